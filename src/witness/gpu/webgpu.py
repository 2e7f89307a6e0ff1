"""One model with one pinned shape on any GPU with a Vulkan driver, through onnxruntime's WebGPU plug-in.

It needs no ROCm, and is for cards that MIGraphX does not take. The plug-in chooses the card, and shaders are
compiled at every start, in half a second on an H200. `--device auto` takes it where it is there, agrees with
the CPU and saves time. How fast the two are is measured once, and remembered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path

from witness._version import install
from witness.errors import DeviceError
from witness.gpu import graphs, provider, rocm
from witness.gpu.accelerated import Accelerated, Way
from witness.gpu.process import GpuProcess, killed_on_error, twice
from witness.gpu.provider import WEBGPU, WEBGPU_PLUGIN, Wish
from witness.gpu.rocm import FIX
from witness.gpu.speed import Speed, measure
from witness.gpu.subject import Subject
from witness.options import Device, Precision, Runtime
from witness.progress import SILENT, AboutMachine, Reporter
from witness.schema import Float32
from witness.storage.atomic import replace
from witness.storage.cache import cache_folder
from witness.storage.files import sha256

INSTALL = install("webgpu")
OPEN_LIMIT = 240.0
"""Seconds to open the model and run it once, with its shaders: one on an H200, 67 on a software driver."""


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
    chosen: Accelerated | None = None
    if runtime.device == Device.WEBGPU:
        library = provider.plugin_library(WEBGPU_PLUGIN)
        chosen = _strictly(subject, runtime, library, precision, reporter)
    elif subject is not None and (library := choice(subject, runtime, precision)) is not None:
        chosen = _if_it_pays(subject, runtime, library, calls, reporter)
    with chosen or nullcontext():
        yield chosen


def choice(subject: Subject | None, runtime: Runtime, precision: Precision) -> Path | None:
    """The plug-in's library where "auto" may choose it; None: it has no say."""
    if runtime.device != Device.AUTO or subject is None or precision != Precision.FP32:
        return None
    library = provider.plugin_library(WEBGPU_PLUGIN)
    return library if library is not None and _cards() else None


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
        reporter.note(
            f"voices on the CPU: WebGPU saves no time here (a block takes {known.words(runtime.cores)})"
        )
        return None
    begun = time.perf_counter()
    try:
        accelerated = Accelerated(_way(subject, library), strict=False, reporter=reporter)
        speed = known or _measured(accelerated, subject, time.perf_counter() - begun)
    except DeviceError as error:
        reporter.warn(AboutMachine(f"voices on the CPU, because WebGPU failed: {error}"))
        return None
    if known is None:
        _remember(key, speed)
    if speed.on_cpu(runtime.cores) <= speed.gpu_ms:
        accelerated.kill()
        reporter.note(
            f"voices on the CPU: WebGPU saves no time here (a block takes {speed.words(runtime.cores)})"
        )
        return None
    reporter.note(f"voices on the GPU through WebGPU: a block takes {speed.words(runtime.cores)}")
    return accelerated


def _way(subject: Subject, library: Path) -> Way:
    """How the model runs; the CPU answers the canary when the GPU has, and once."""
    signal = graphs.signal(subject.shape)

    @cache
    def reference() -> Float32:
        return subject.cpu(signal)

    def opened() -> GpuProcess:
        """A process with the model wholly on the GPU, which answers as the CPU does. Raises DeviceError."""
        request = {
            "do": "open",
            "name": subject.name,
            "shape": subject.shape,
            "libraries": [],
            "provider": Wish(name=WEBGPU, plugin=str(library), options={}),
        }
        with killed_on_error(GpuProcess()) as process:
            process.ask(request, subject.source, limit=OPEN_LIMIT)
            answer = process.run(signal)
            graphs.check_canary(*graphs.compare(answer, reference()), Precision.FP32)
        return process

    return Way(Device.WEBGPU, "WebGPU failed", lambda: twice(opened), subject.cpu)


def _measured(accelerated: Accelerated, subject: Subject, load_s: float) -> Speed:
    """How fast it is on this machine; its blocks do not count. Raises DeviceError."""
    speed = measure(accelerated, subject.cpu, graphs.signal(subject.shape), load_s)
    if accelerated.on_cpu:
        raise DeviceError("the GPU's process ended while it was measured")
    accelerated.on_gpu = 0
    return speed


def _cards(root: Path = Path("/")) -> list[str]:
    """Vendor and device of every card that the kernel shows: the plug-in wants one. `root` is for tests.

    Where there is no /sys/class/drm, as in many containers, onnxruntime looks on the PCI bus (since 1.25).
    """
    folders = sorted((root / "sys/class/drm").glob("renderD*/device")) or sorted(
        path.parent for path in (root / "sys/bus/pci/devices").glob("*/class") if _shows(path)
    )
    found = []
    for folder in folders:
        with suppress(OSError):
            found.append("-".join((folder / name).read_text().strip() for name in ("vendor", "device")))
    return found


def _shows(path: Path) -> bool:
    """Whether a device with this file "class" is a display controller, as all graphics cards are."""
    with suppress(OSError):
        return path.read_text().startswith("0x03")
    return False


def _key(subject: Subject, library: Path) -> str:
    """Of what was measured: another model, plug-in or card is measured again."""
    parts = [sha256(subject.source), rocm.hashes_of([library])[library], list(subject.shape), _cards()]
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
