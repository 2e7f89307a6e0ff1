"""A card and the libraries that would drive it: found as the system's loader finds them, without loading."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from witness.amd import cards
from witness.errors import DeviceError
from witness.sessions import provider_library, runtime_version

LOADER = "/lib64/ld-linux-x86-64.so.2"  # glibc's; the ABI fixes the path
CURE = "`witness doctor` looks for the reason, --device cpu does without"
OVERRIDES = re.compile(r"ORT_MIGRAPHX_|MIGRAPHX_")
"""Variables that beat what is given in code: another cache folder, another precision, other passes."""


@dataclass(frozen=True)
class Machine:
    """A card, and the libraries that would drive it."""

    card: cards.Card
    runtime: str
    migraphx: str
    libraries: tuple[Path, ...]
    """Of HIP and MIGraphX, to be loaded by these paths."""

    @property
    def gfx(self) -> str:
        """The card's architecture, or what HSA_OVERRIDE_GFX_VERSION passes it off as."""
        parts = os.environ.get("HSA_OVERRIDE_GFX_VERSION", "").split(".")
        if len(parts) == 3 and all(part.isdigit() for part in parts):
            return "gfx{}{:x}{:x}".format(*map(int, parts))
        return self.card.gfx

    @property
    def title(self) -> str:
        name = self.card.name
        return name if self.gfx in name else f"{name} ({self.gfx})"


def choose_card(index: int | None) -> cards.Card:
    """The card of that ordinal; None: the best. Raises DeviceError."""
    there = [card for card in cards.cards() if card.index >= 0]
    chosen = cards.pick(there, index)
    if chosen is not None:
        return chosen
    if there:
        names = ", ".join(f"{card.index} ({card.name})" for card in there)
        raise DeviceError(f"there is no GPU {index}; there is {names}; --gpu chooses one")
    raise DeviceError(f"no AMD GPU is visible (/sys/class/kfd); {CURE}")


def machine(card: cards.Card) -> Machine:
    """The card with what this installation has to drive it; nothing is loaded. Raises DeviceError."""
    provider = provider_library()
    if provider is None:
        raise DeviceError("this onnxruntime has no MIGraphX; cure: pip install onnxruntime-migraphx")
    if Path("/dev/kfd").exists() and not os.access("/dev/kfd", os.R_OK | os.W_OK):
        raise DeviceError(
            "there is no right to use /dev/kfd; cure: sudo usermod -aG render,video $USER, and log in again"
        )
    found = _resolve(provider)
    if missing := [name for name, path in found.items() if path is None]:
        raise DeviceError(
            f"{', '.join(missing)} is missing, which onnxruntime's MIGraphX needs; "
            f"install ROCm with MIGraphX of that version; {CURE}"
        )
    ours = {name: path for name, path in found.items() if path and re.match(r"libmigraphx|libamdhip", name)}
    hip = [path for name, path in ours.items() if name.startswith("libamdhip")]
    graph = [path for name, path in ours.items() if name.startswith("libmigraphx_c.")]
    # MIGraphX opens the library of its GPU by name, from its own folder.
    beside = [path for library in graph for path in library.resolve().parent.glob("libmigraphx*.so*")]
    files = {path.resolve() for name, path in ours.items() if name.startswith("libmigraphx")}
    files |= {path.resolve() for path in beside}
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return Machine(
        card,
        f"{runtime_version()}, provider {hashlib.sha256(provider.read_bytes()).hexdigest()[:16]}",
        f"{', '.join(path.resolve().name for path in graph)} {digest.hexdigest()[:16]}",
        (*hip, *graph),
    )


def _resolve(library: Path) -> dict[str, Path | None]:
    """What `library` needs, and the file that the system's loader would take for it; None: there is none."""
    try:
        result = subprocess.run(
            [LOADER, str(library)],
            # Not the user's folder: onnxruntime's list of folders to search has the current one in it.
            cwd="/",
            env={**os.environ, "LD_TRACE_LOADED_OBJECTS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise DeviceError(
            f"{LOADER} does not run ({error.strerror}), which finds ROCm's libraries"
        ) from error
    found = re.findall(r"^\t(\S+) => (not found|/.*?)(?: \(0x|$)", result.stdout, re.MULTILINE)
    return {name: None if path == "not found" else Path(path) for name, path in found}


def ignored_variables() -> list[str]:
    """Names of environment variables that would change what is compiled, and that the child does not get."""
    return sorted(name for name in os.environ if OVERRIDES.match(name))
