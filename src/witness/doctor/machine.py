"""The machine that the doctor's checks examine, and a check's result."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from witness.doctor import probes
from witness.gpu import cards, loader
from witness.gpu.cards import Card

# The packages with MIGraphX on each distribution, for the installed ROCm. `build.sh` says the same
# (tests/test_scripts.py compares the two); docs/amd-gpu.md has the sources.

APT = "sudo apt update && sudo apt install"
SOURCE = f"add AMD's package source of MIGraphX (docs/amd-gpu.md), then {APT}"
DEB = "amdrocm-migraphx_2.16.0-3.py312_amd64.deb"
OF_ROCM = {
    (7, 1): f"{APT} migraphx",
    (7, 2): f"{APT} migraphx",
    (7, 14): f"download {DEB} from AMD (docs/amd-gpu.md), then sudo dpkg -i {DEB}",
    (10, 0): f"{SOURCE} amdrocm-migraphx",
}
"""ROCm from AMD below /opt -> the command that adds MIGraphX to it, on Ubuntu and Debian."""
OF_ROCM_10 = f"{SOURCE} amdrocm10-migraphx"
"""The same for ROCm 10.1 and newer."""
WITHOUT_ROCM = "add AMD's two package sources (docs/amd-gpu.md), then sudo apt install amdrocm10-migraphx"
UBUNTU_WITH_MIGRAPHX = (26, 10)
"""The first Ubuntu whose own packages have MIGraphX with its GPU part; Debian's have the CPU part only."""
OTHERS = {
    "fedora": "sudo dnf install migraphx (Fedora 44 or newer, or EPEL 10; before that: ./build.sh)",
    "arch": "sudo pacman -S migraphx",
}
"""ID of a distribution -> the command that installs ROCm with MIGraphX."""


@dataclass(frozen=True)
class Check:
    """The result of examining one part of the machine."""

    name: str
    ok: bool | None
    """True: it works. False: it is broken, although it is needed here. None: neither, but worth knowing."""
    finding: str
    fix: str | None = None
    """The cure, if any."""
    missing: bool = False
    """Needed and absent; that is not broken, because a first run with a network fetches it."""


@dataclass(frozen=True)
class Machine:
    """This machine, or a folder that stands for another machine."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    system: str = sys.platform
    """As in `sys.platform`."""
    here: Path = field(default_factory=Path.cwd)
    """The current folder."""
    ask: Callable[..., dict[str, Any]] = probes.ask
    wheel: str | None = field(default_factory=lambda: package("onnxruntime-migraphx"))
    """The version of onnxruntime-migraphx; None: it is not installed."""
    wheel_page: str = field(default_factory=lambda: package("onnxruntime-migraphx", "home_page") or "")
    """The home page in its metadata, or ""."""
    plugin: str | None = field(default_factory=lambda: package("onnxruntime-ep-migraphx"))
    """The version of AMD's plug-in provider; None: it is not installed."""
    glibc: str = field(default_factory=lambda: platform.libc_ver()[1])
    """The version of the C library, such as 2.36; "" without glibc."""

    @cached_property
    def cards(self) -> tuple[Card, ...]:
        return cards.list_cards(self.root, self.environment) if self.system == "linux" else ()

    @property
    def wants_gpu(self) -> bool:
        """True if AMD lists a visible card, so that MIGraphX ought to run."""
        return any(self.lists(card) and card.index >= 0 for card in self.cards)

    def lists(self, card: Card) -> bool:
        """Return true if AMD's list for the installed ROCm, or else the newest list, has the card."""
        since = card.listed_since
        return card.supported == "listed" and (since is None or self.rocm is None or self.rocm >= since)

    def gpu_check(self, name: str, works: bool, finding: str, fix: str | None = None) -> Check:
        """Return a check of something that the GPU needs, broken only if the machine has a card for it."""
        if works:
            return Check(name, True, finding)
        return Check(name, False, finding, fix) if self.wants_gpu else Check(name, None, finding)

    @cached_property
    def distribution(self) -> dict[str, str]:
        try:
            text = (self.root / "etc/os-release").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return {}
        return {key: value.strip("\"'") for key, value in re.findall(r"^(\w+)=(.*)$", text, re.M)}

    @cached_property
    def rocm(self) -> tuple[int, int] | None:
        """The newest ROCm from AMD below /opt, such as (7, 2); None: absent, or it does not say."""
        folders = (*self.root.glob("opt/rocm-*"), *self.root.glob("opt/rocm/core-*"))
        named = [re.search(r"-(\d+)\.(\d+)", folder.name) for folder in folders]
        versions = [(int(match[1]), int(match[2])) for match in named if match]
        for path in self.root.glob("opt/rocm*/lib/libamdhip64.so.*.*.*"):
            # libamdhip64.so.7.2.70204 is of ROCm 7.2.4; since 7.14 the last number is another one.
            match = re.search(r"\.so\.(\d+)\.\d+\.(\d+)", path.name)
            if match and int(match[2]) // 10000 == int(match[1]):
                versions.append((int(match[1]), int(match[2]) // 100 % 100))
        return max(versions, default=None)

    @property
    def install_rocm(self) -> str:
        return self.install_for(self.rocm)

    def install_for(self, rocm: tuple[int, int] | None) -> str:
        """Return the command that installs MIGraphX on this distribution, for a version of ROCm."""
        name, number = (self.distribution.get(key, "") for key in ("ID", "VERSION_ID"))
        names = [name, *self.distribution.get("ID_LIKE", "").split()]
        if "ubuntu" in names or "debian" in names:
            release = tuple(map(int, re.findall(r"\d+", number)))
            if rocm is None and name == "ubuntu" and release >= UBUNTU_WITH_MIGRAPHX:
                return "sudo apt install libmigraphx-c3 (from universe)"
            if rocm is not None and rocm >= (10, 1):
                return OF_ROCM_10
            return WITHOUT_ROCM if rocm is None else OF_ROCM.get(rocm, WITHOUT_ROCM)
        commands = (OTHERS[name] for name in names if name in OTHERS)
        return next(commands, "install ROCm 7.1 or newer with MIGraphX (docs/amd-gpu.md)")

    def libraries(self, pattern: str) -> list[str]:
        """Return the names of the library files that match, longest (most precise) first."""
        names = {path.name for path in loader.find_on_disk(pattern, self.root, self.environment)}
        return sorted(names, key=len, reverse=True)


def package(name: str, key: str = "version") -> str | None:
    """Return an entry of a package's metadata; None: it is not installed."""
    try:
        return str(metadata(name).json.get(key, ""))
    except PackageNotFoundError:
        return None
