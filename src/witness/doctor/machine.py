"""What the doctor's checks share: the machine that they look at, and what they find."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Any

from witness.doctor import install, probes
from witness.gpu import cards, loader
from witness.gpu.cards import Card


@dataclass(frozen=True)
class Check:
    """What was found out about one part of the machine."""

    name: str
    ok: bool | None
    """True: it works. False: it is broken, although it is needed here. None: neither, but worth knowing."""
    finding: str
    fix: str | None = None
    """What to do, if anything."""
    missing: bool = False
    """It is needed and not here; that is not broken, because a first run with a network fetches it."""


@dataclass(frozen=True)
class Machine:
    """Where to look: this machine, or a folder that stands for another one."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    system: str = sys.platform
    """As in `sys.platform`."""
    here: Path = field(default_factory=Path.cwd)
    """The current folder."""
    ask: Callable[..., dict[str, Any]] = probes.ask
    wheel: str | None = field(default_factory=lambda: package_version("onnxruntime-migraphx"))
    """The version of onnxruntime-migraphx; None: it is not installed."""
    wheel_page: str = field(default_factory=lambda: home_page("onnxruntime-migraphx"))
    """The home page in its metadata; "" if there is none."""
    plugin: str | None = field(default_factory=lambda: package_version("onnxruntime-ep-migraphx"))
    """The version of AMD's plug-in provider; None: it is not installed."""
    glibc: str = field(default_factory=lambda: platform.libc_ver()[1])
    """The version of the C library, such as 2.36; "" where it is not glibc."""

    @cached_property
    def cards(self) -> tuple[Card, ...]:
        """The AMD cards that can compute; () on other systems than Linux."""
        return cards.cards(self.root, self.environment) if self.system == "linux" else ()

    @property
    def wants_gpu(self) -> bool:
        """Whether there is a card that AMD lists and nobody hides, so that MIGraphX ought to run."""
        return any(self.lists(card) and card.index >= 0 for card in self.cards)

    def lists(self, card: Card) -> bool:
        """Whether AMD's list for the installed ROCm, or else the newest one, has the card."""
        since = cards.LISTED.get(card.gfx)
        return card.supported == "listed" and (since is None or self.rocm is None or self.rocm >= since)

    def gpu_check(self, name: str, works: bool, finding: str, fix: str | None = None) -> Check:
        """A check of something that the GPU needs. It is broken only where there is a card for it."""
        if works:
            return Check(name, True, finding)
        return Check(name, False, finding, fix) if self.wants_gpu else Check(name, None, finding)

    @cached_property
    def distribution(self) -> dict[str, str]:
        """The fields of /etc/os-release, such as ID, VERSION_ID and PRETTY_NAME."""
        try:
            text = (self.root / "etc/os-release").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return {}
        return {key: value.strip("\"'") for key, value in re.findall(r"^(\w+)=(.*)$", text, re.M)}

    @cached_property
    def rocm(self) -> tuple[int, int] | None:
        """The ROCm that AMD's packages installed, such as (7, 2); None: there is none."""
        return install.installed(self.root)

    @property
    def install_rocm(self) -> str:
        """How to install MIGraphX on this distribution, for this ROCm."""
        return install.advice(self.distribution, self.rocm)

    def libraries(self, pattern: str) -> list[str]:
        """The names of the library files that match, the longest (that say most) first."""
        names = {path.name for path in loader.on_disk(pattern, self.root, self.environment)}
        return sorted(names, key=len, reverse=True)


def home_page(name: str) -> str:
    """Of a Python package; "" if it is not installed or has none."""
    try:
        return metadata(name).json.get("home_page", "")  # type: ignore[return-value]
    except PackageNotFoundError:
        return ""


def package_version(name: str) -> str | None:
    """Of a Python package; None: it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
