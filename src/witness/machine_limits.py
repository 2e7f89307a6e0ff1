"""The cores and the memory that this process may use."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def cores() -> int:
    """Return the number of cores: fewer than the machine's inside a container or under taskset."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def memory(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory that are free, by the system and its containers; None: unknown."""
    free = []
    with suppress(OSError, ValueError, StopIteration):
        lines = (root / "proc/meminfo").read_text("ascii").splitlines()
        free.append(int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024)
    with suppress(OSError, ValueError):  # "max" is not a number
        group = root / "sys/fs/cgroup"
        used = int((group / "memory.current").read_text())
        free.append(int((group / "memory.max").read_text()) - used)
    return min(free, default=None)
