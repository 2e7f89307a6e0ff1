"""What a figure was measured on: this machine, these versions, this source."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from witness._version import __version__
from witness.options import available_cores

DISTRIBUTIONS = (
    *("onnxruntime", "onnxruntime-migraphx", "numpy", "scipy", "av", "soxr", "pywhispercpp"),
    "pyannote.metrics",
)


def hardware() -> dict[str, Any]:
    """Processor, cores that this process may use, memory and system."""
    return {
        "processor": _processor(),
        "cores": available_cores(),
        "memory_gb": _memory(),
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    """Of Witness, Python and what does the arithmetic; what is not installed is not in it."""
    found = {"witness": __version__, "python": platform.python_version()}
    for name in DISTRIBUTIONS:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def source_sha256() -> str:
    """Of this package's own source files: two runs with the same one ran the same program."""
    digest = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def peak_memory(*, children: bool = False) -> float | None:
    """The most that this process, or the largest of its children, ever held, in MB; None where nobody knows.

    On Linux a small child is counted as large as this process was when it was started.
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
    """How many processes wanted a core over the last minute, on average; None where nobody knows."""
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
