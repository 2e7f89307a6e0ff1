"""How fast a GPU and the CPU run one block of a model, and whether the GPU saves time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from witness import machine_limits
from witness.models.session import on_cores
from witness.schema import Float32

REPEATS = 5
"""Runs whose median is the time of a block."""


@dataclass(frozen=True)
class Speed:
    """What was measured on this machine."""

    load_s: float
    """Seconds from starting the process to the first result."""
    gpu_ms: float
    """Milliseconds of a block, the median."""
    core_ms: float
    """Milliseconds of a block on one core, with the others idle."""
    cpu_ms: float
    """Milliseconds of a block on the CPU with all cores at work: wall time divided by blocks."""
    cpu_cores: int

    def on_cpu(self, cores: int) -> float:
        """Milliseconds of a block on so many cores: no less than their share, or than all take together.

        All cores are slower than one times their number, because they share memory and arithmetic units.
        """
        return max(self.core_ms / cores, self.cpu_ms)

    def saves(self, calls: int, cores: int) -> bool:
        """Whether so many blocks are done earlier than by so many cores, loading included."""
        return calls * (self.on_cpu(cores) - self.gpu_ms) / 1e3 > self.load_s

    def words(self, cores: int) -> str:
        """The sums, for messages."""
        return f"{self.gpu_ms:.0f} ms, on the CPU {self.on_cpu(cores):.0f} ms"


def measure(
    gpu: Callable[[Float32], object], cpu: Callable[[Float32], object], block: Float32, load_s: float
) -> Speed:
    """Run `block` on both; `load_s` is known."""
    gpu_ms = float(np.median([_milliseconds(lambda: gpu(block)) for _ in range(REPEATS)]))
    core_ms = _milliseconds(lambda: cpu(block))
    cores = machine_limits.cores()
    with on_cores(cores) as mapped:
        cpu_ms = _milliseconds(lambda: list(mapped(cpu, [block] * cores))) / cores
    return Speed(load_s, gpu_ms, core_ms, cpu_ms, cores)


def _milliseconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return 1e3 * (time.perf_counter() - begun)
