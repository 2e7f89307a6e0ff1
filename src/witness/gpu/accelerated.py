"""A model that a GPU runs in a process of its own, and the CPU when that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from witness.errors import DeviceError
from witness.gpu.process import GpuDiedError, GpuProcess
from witness.gpu.rocm import FIX
from witness.options import Device
from witness.progress import AboutMachine, Reporter
from witness.schema import Float32


@dataclass(frozen=True)
class Way:
    """How a model runs on a GPU."""

    device: Device
    title: str
    """Of the engine and the card, for messages: "MIGraphX failed on Radeon RX 9070"."""
    start: Callable[[], GpuProcess]
    """A process with the model, which has just answered the canary as the CPU did. Raises DeviceError."""
    cpu: Callable[[Float32], Float32]
    """The same model on the CPU."""


class Accelerated:
    """A model on the GPU as a function of one array of the pinned shape. Safe to call from several threads.

    If the process dies it is started once more. If that does not help, the CPU does the rest, and a warning
    says so; with `strict`, DeviceError is raised. As a context manager it ends the process, which is killed
    after an error; a note says so if it ends badly.
    """

    def __init__(self, way: Way, *, strict: bool, reporter: Reporter) -> None:
        """Start the process. Raises DeviceError."""
        self._way, self._strict, self._reporter = way, strict, reporter
        self._lock = threading.Lock()
        self._process: GpuProcess | None = way.start()
        self.on_gpu = 0
        """Calls that the GPU answered."""
        self.on_cpu = 0
        """Calls that the CPU answered because the GPU had failed."""

    def __call__(self, array: Float32) -> Float32:
        with self._lock:
            if self._process is not None and (result := self._run(self._process, array)) is not None:
                self.on_gpu += 1
                return result
            self.on_cpu += 1
        return self._way.cpu(array)

    def _run(self, process: GpuProcess, array: Float32) -> Float32 | None:
        """The GPU's answer; None: it failed, and is not asked again. With `strict`, raises DeviceError."""
        try:
            try:
                return process.run(array)
            except GpuDiedError:
                process = self._process = self._way.start()
                return process.run(array)
        except DeviceError as error:
            process.kill()
            self._process = None
            if self._strict:
                raise DeviceError(f"{self._way.title}: {error}; {FIX}") from error
            self._reporter.warn(
                AboutMachine(f"{self._way.title}, so the CPU did the rest of the voices: {error}")
            )
            return None

    @property
    def device(self) -> str:
        """What answered: "migraphx", "cpu" (no full block, or nothing worked), or both."""
        return "+".join([self._way.device] * (self.on_gpu > 0) + ["cpu"] * (self.on_cpu > 0)) or "cpu"

    def __enter__(self) -> Accelerated:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._process is None:
            return
        if kind is not None:
            self._process.kill()
        elif line := self._process.finish():
            self._reporter.note(line)

    def kill(self) -> None:
        """End the process now."""
        if self._process is not None:
            self._process.kill()
