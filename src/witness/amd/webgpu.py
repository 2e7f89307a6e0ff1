"""One model with one pinned shape on any GPU with a Vulkan driver, through onnxruntime's WebGPU plug-in.

It needs no ROCm, and is for cards that MIGraphX does not take. The plug-in chooses the card, and shaders are
compiled at every start, in half a second on an H200. `--device auto` takes it where it is there, agrees with
the CPU and saves time. How fast the two are is measured once, and remembered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from witness import resources
from witness._version import install
from witness.amd import graphs, provider
from witness.amd.accelerated import Accelerated, Way
from witness.amd.process import GpuDiedError, GpuProcess
from witness.amd.provider import WEBGPU, WEBGPU_PLUGIN, Wish
from witness.amd.rocm import FIX
from witness.amd.subject import Subject
from witness.errors import DeviceError
from witness.files import cache_folder, replace, sha256, sha256_at
from witness.options import Device, Precision, Runtime
from witness.reporter import SILENT, Reporter
from witness.schema import Float32
from witness.sessions import on_cores

INSTALL = install("webgpu")
OPEN_LIMIT = 240.0
"""Seconds to open the model and run it once, with its shaders: one on an H200, 67 on a software driver."""
REPEATS = 3
"""Runs whose median is the time of a block."""


@dataclass(frozen=True)
class Speed:
    """What was measured when the model ran here first."""

    load_s: float
    """Seconds from starting the process until its answer agreed with the CPU's."""
    gpu_ms: float
    """Milliseconds of a block, the median."""
    cpu_ms: float
    """Milliseconds of a block on the CPU with all cores at work: wall time divided by blocks."""
    cpu_cores: int

    def saves(self, calls: int, cores: int) -> bool:
        """Whether so many blocks are done earlier than by so many cores, loading included."""
        return calls * (self.on_cpu(cores) - self.gpu_ms) / 1e3 > self.load_s

    def words(self, cores: int) -> str:
        """The sums, for messages."""
        return f"a block takes {self.gpu_ms:.0f} ms, on the CPU {self.on_cpu(cores):.0f} ms"

    def on_cpu(self, cores: int) -> float:
        """Milliseconds of a block on so many cores; with fewer, the CPU is so much slower."""
        return self.cpu_ms * self.cpu_cores / min(cores, self.cpu_cores)


@contextmanager
def accelerate(
    subject: Subject | None,
    runtime: Runtime,
    *,
    calls: int,
    precision: Precision = Precision.FP32,
    reporter: Reporter = SILENT,
) -> Iterator[Accelerated | None]:
    """The model on the GPU, as `runtime.device` says; None: on the CPU.

    Without a `subject` it always runs on the CPU, because its input has no one shape. `calls` is how many
    there will be at most. With device "webgpu", raises DeviceError.
    """
    strict = runtime.device == Device.WEBGPU
    library = provider.plugin_library(WEBGPU_PLUGIN) if strict or runtime.device == Device.AUTO else None
    chosen: Accelerated | None = None
    if strict:
        chosen = _strictly(subject, runtime, library, precision, reporter)
    elif library is not None and subject is not None and precision == Precision.FP32 and _cards():
        chosen = _if_it_pays(subject, runtime, library, calls, reporter)
    try:
        yield chosen
    except BaseException:
        if chosen is not None:
            chosen.kill()
        raise
    if chosen is not None and (line := chosen.finish()):
        reporter.note(line)


def _strictly(
    subject: Subject | None,
    runtime: Runtime,
    library: Path | None,
    precision: Precision,
    reporter: Reporter,
) -> Accelerated:
    """The model on the GPU. Raises DeviceError."""
    if library is None:
        raise DeviceError(f"onnxruntime's WebGPU plug-in is missing; fix: {INSTALL} (Python 3.11 or newer)")
    if subject is None:
        raise DeviceError(
            "this voice model looks at stretches of speech of any length, and the GPU is given one; "
            "fix: leave out --device, or use --models builtin"
        )
    if runtime.gpu is not None:
        raise DeviceError("--gpu goes with --device migraphx: WebGPU chooses the card itself")
    if precision != Precision.FP32:
        raise DeviceError("--precision goes with --device migraphx: WebGPU computes in fp32")
    try:
        accelerated = Accelerated(_way(subject, library), strict=True, reporter=reporter)
    except DeviceError as error:
        raise DeviceError(f"WebGPU cannot run {subject.name}: {error}; {FIX}") from error
    reporter.note("voices on the GPU through WebGPU")
    return accelerated


def _if_it_pays(
    subject: Subject, runtime: Runtime, library: Path, calls: int, reporter: Reporter
) -> Accelerated | None:
    """The model on the GPU, if that saves time; None: on the CPU, and a note says why."""
    key = _key(subject, library)
    known = _remembered().get(key)
    if known is not None and not known.saves(calls, runtime.cores):
        reporter.note(f"voices on the CPU: WebGPU saves no time here ({known.words(runtime.cores)})")
        return None
    begun = time.perf_counter()
    try:
        accelerated = Accelerated(_way(subject, library), strict=False, reporter=reporter)
        speed = known or _measure(accelerated, subject, time.perf_counter() - begun)
    except DeviceError as error:
        reporter.warn(f"voices on the CPU, because WebGPU failed: {error}")
        return None
    if known is None:
        _remember(key, speed)
    if speed.on_cpu(runtime.cores) <= speed.gpu_ms:
        accelerated.kill()
        reporter.note(f"voices on the CPU: WebGPU saves no time here ({speed.words(runtime.cores)})")
        return None
    reporter.note(f"voices on the GPU through WebGPU: {speed.words(runtime.cores)}")
    return accelerated


def _way(subject: Subject, library: Path) -> Way:
    """How the model runs; the CPU's answer to the canary is computed once."""
    signal = graphs.signal(subject.shape)
    reference = subject.cpu(signal)

    def start() -> GpuProcess:
        return _twice(lambda: _open(subject, library, signal, reference))

    return Way(Device.WEBGPU, "WebGPU failed", start, subject.cpu)


def _twice(action: Callable[[], GpuProcess]) -> GpuProcess:
    """As for MIGraphX: tried again if the process dies."""
    try:
        return action()
    except GpuDiedError:
        return action()


def _open(subject: Subject, library: Path, signal: Float32, reference: Float32) -> GpuProcess:
    """A process with the model wholly on the GPU, which answers as the CPU does. Raises DeviceError."""
    request = {
        "do": "open",
        "name": subject.name,
        "shape": subject.shape,
        "libraries": [],
        "provider": Wish(name=WEBGPU, plugin=str(library), options={}),
    }
    process = GpuProcess()
    try:
        process.ask(request, subject.source, limit=OPEN_LIMIT)
        answer = process.run(signal)
        graphs.check_canary(*graphs.compare(answer, reference), Precision.FP32)
    except BaseException:
        process.kill()
        raise
    return process


def _measure(accelerated: Accelerated, subject: Subject, load_s: float) -> Speed:
    """Blocks on the GPU and on all cores."""
    signal = graphs.signal(subject.shape)
    gpu = [_seconds(lambda: accelerated(signal)) for _ in range(REPEATS)]
    accelerated.on_gpu = 0
    cores = resources.cores()
    with on_cores(cores) as mapped:
        cpu = _seconds(lambda: list(mapped(subject.cpu, [signal] * cores))) / cores
    return Speed(round(load_s, 3), round(1e3 * float(np.median(gpu)), 1), round(1e3 * cpu, 1), cores)


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _cards() -> list[str]:
    """Vendor and device of every card that the kernel shows: the plug-in does not go without one."""
    found = []
    for device in sorted(Path("/sys/class/drm").glob("renderD*/device")):
        with suppress(OSError):
            found.append("-".join((device / name).read_text().strip() for name in ("vendor", "device")))
    return found


def _key(subject: Subject, library: Path) -> str:
    """Of what was measured: another model, plug-in or card is measured again."""
    parts = [sha256(subject.source), sha256_at(library), list(subject.shape), _cards()]
    return sha256(json.dumps(parts).encode())[:32]


def _remembered() -> dict[str, Speed]:
    """What was measured here; {} if nothing was, or the file is damaged."""
    try:
        return {key: Speed(**row) for key, row in json.loads(_store().read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _remember(key: str, speed: Speed) -> None:
    """Write it down; where that fails, it is measured again."""
    rows = {name: asdict(row) for name, row in (_remembered() | {key: speed}).items()}
    with suppress(OSError):
        _store().parent.mkdir(parents=True, exist_ok=True)
        replace(json.dumps(rows, indent=1).encode(), _store())


def _store() -> Path:
    return cache_folder() / "webgpu.json"
