"""What a figure was measured on: the machine, the versions, the source."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from witness import machine_limits
from witness._version import __version__

DISTRIBUTIONS = (
    *("onnxruntime", "onnxruntime-migraphx", "numpy", "scipy", "av", "soxr", "pywhispercpp"),
    *("ctranslate2", "pyannote.metrics", "kaldialign", "meeteval", "num2words"),
)
"""What does the arithmetic."""


@dataclass(frozen=True)
class Hardware:
    """The machine that a figure was measured on."""

    processor: str
    cores: int
    """That the process may use."""
    memory_gb: float | None
    """None where nobody knows."""
    system: str


def hardware() -> Hardware:
    """What this process runs on."""
    return Hardware(_processor(), machine_limits.cores(), _memory(), platform.platform())


def versions() -> dict[str, str]:
    """Name -> version of Witness, Python and those of DISTRIBUTIONS that are installed."""
    found = {"witness": __version__, "python": platform.python_version()}
    for name in DISTRIBUTIONS:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def source_sha256() -> str:
    """One hash of all source files of this package: two runs with the same one ran the same program."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def peak_memory(*, children: bool = False) -> float | None:
    """MB that this process, or the largest of its children, held at its peak; None where nobody knows.

    On Linux a child counts as no smaller than this process was when the child was started.
    """
    if not children:
        with suppress(OSError):  # exact, for it is not inherited
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024 / 1e6
    if sys.platform == "win32":
        return None
    import resource

    who = resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(who).ru_maxrss * unit / 1e6


def load() -> float | None:
    """Processes that wanted a core, on average over the last minute; None where nobody knows."""
    try:
        return round(os.getloadavg()[0], 1)
    except (AttributeError, OSError):  # not on Windows
        return None


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None
