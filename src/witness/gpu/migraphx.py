"""One model with one pinned shape on an AMD GPU, in a child process, where that saves time.

`--device auto` uses a graph of the cache, if it saves time, and never compiles. `--device
migraphx` compiles a missing graph, and stops with DeviceError if the GPU cannot be used.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from witness import machine_limits
from witness.child import Message
from witness.errors import DeviceError, GraphError, ModelError, UsageError
from witness.gpu import cards, graph_cache
from witness.gpu.graph_cache import Graph, Key, Measured, Tuning
from witness.gpu.process import GpuDiedError, GpuProcess, twice
from witness.gpu.rocm import FIX, Stack, choose_card, find_stack, note_ignored_variables
from witness.gpu.strict import Shapes, pin_all
from witness.models.session import Model, on_cores
from witness.options import Device, Precision, Runtime
from witness.progress import SILENT, AboutMachine, Reporter
from witness.schema import Float32
from witness.storage import files

COMPILE_LIMIT = 600.0
"""Seconds. A ResNet34 is said to take 28 to 46; hangs of half an hour are known (AMDMIGraphX#4029, #4164)."""
LOAD_LIMIT = 120.0
"""Seconds to start a process, and load ROCm and a compiled graph."""
REPEATS = 5
"""Runs of a block on the GPU; its time is their median."""
LARGEST = 2 << 30
"""Bytes of an ONNX file; protobuf takes no larger ones."""
WARM = "`witness gpu warm` compiles it"
NO_SHAPE = (
    "this voice model looks at stretches of speech of any length, and MIGraphX compiles a model for one; "
    "fix: leave out --device, or use --models builtin"
)
"""The reason why a model without a `Subject` runs on no GPU."""


# --- a model to compile ---


@dataclass(frozen=True)
class Subject:
    """A model with one input and one output, for one shape of that input."""

    source: bytes
    """The content of its ONNX file."""
    name: str
    """Its name in messages."""
    shape: tuple[int, ...]
    """Of its input."""
    cpu: Callable[[Float32], Float32]
    """The same model on the CPU: the reference for the GPU's answers, and the substitute if the GPU fails."""


def subject_from_file(path: Path, shapes: Shapes) -> Subject:
    """Return the model at `path`, for its shape in `shapes`, which one of fixed sizes does not need.

    Raises ModelError if it cannot be read, UsageError if the shape is missing or does not fit.
    """
    source = read_onnx(path)
    model = Model(source, str(path))
    pin_all(path.name, {model.input_name: model.dimensions}, shapes)
    sizes = shapes.get(model.input_name, model.dimensions)
    return Subject(source, path.name, tuple(size for size in sizes if isinstance(size, int)), model)


def read_onnx(path: Path) -> bytes:
    try:
        return files.read(path, LARGEST)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); name an ONNX file") from error


def parse_shapes(texts: Sequence[str]) -> Shapes:
    """["feats=1x998x80"] -> {"feats": (1, 998, 80)}. Raises UsageError."""
    shapes: Shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        parts = sizes.split("x")
        if not name or not all(part.isascii() and part.isdigit() and int(part) for part in parts):
            raise UsageError(f"--shape {text!r} is not like feats=1x998x80")
        shapes[name] = tuple(map(int, parts))
    return shapes


@dataclass(frozen=True)
class CompileTarget:
    """A model, and the card and the settings to compile it for."""

    stack: Stack
    subject: Subject
    precision: Precision = Precision.FP32
    tuning: Tuning = Tuning.DEFAULT

    @cached_property
    def key(self) -> Key:
        return Key(
            files.sha256(self.subject.source),
            self.stack.runtime,
            self.stack.migraphx,
            self.stack.gfx,
            self.precision,
            self.tuning,
            self.subject.shape,
        )

    def request(self, folder: Path) -> Message:
        """Return the child's request to open it, with its compiled graph in `folder`, read or written."""
        fp16, exhaustive = self.precision == Precision.FP16, self.tuning == Tuning.EXHAUSTIVE
        common = self.stack.request(self.subject.name, folder, fp16=fp16, exhaustive=exhaustive)
        return {"do": "open", "shape": self.subject.shape, **common}


# --- compile and load ---


def warm(target: CompileTarget, *, limit: float = COMPILE_LIMIT, reporter: Reporter = SILENT) -> Graph:
    """Compile, check against the CPU and measure, unless the cache has a sound graph already.

    Raises DeviceError: MIGraphX refused, or was not done within `limit` seconds.
    """
    if (graph := _cached(target, reporter)) is not None:
        return graph
    try:
        with graph_cache.scratch_folder(target.key.digest, limit) as folder:
            if (graph := _cached(target, SILENT)) is not None:  # another process was quicker
                return graph
            reporter.note(
                f"compiling {target.subject.name} for {target.stack.title}, for {limit:.0f} s at most"
            )
            begun = time.perf_counter()
            twice(lambda: _compile(target, folder, limit, reporter))
            compile_s = time.perf_counter() - begun
            programs = [path.name for path in folder.glob("*.mxr")]
            if len(programs) != 1:
                raise GraphError(f"it left {len(programs)} compiled graphs, not one")
            return _add(target, folder / programs[0], compile_s)
    except DeviceError as error:
        raise refused(target.subject.name, target.stack, error) from error


def import_graph(
    file: Path,
    choose_stack: Callable[[], Stack],
    choose_subject: Callable[[tuple[int, ...]], Subject],
    reporter: Reporter = SILENT,
) -> Graph:
    """Take a compiled graph from `file` if it is for this machine and computes the CPU's numbers.

    The file is read first; then `choose_stack` names the machine, and `choose_subject` the model for the
    shape in the file. Raises InputError if the file cannot be used, GraphError naming the part that does not
    match, DeviceError if there is no such machine.
    """
    with graph_cache.scratch_folder("import", COMPILE_LIMIT) as folder:
        with _naming(file):
            graph = graph_cache.unpack(file, folder)
        stack = choose_stack()
        with _naming(file):
            target = CompileTarget(
                stack, choose_subject(graph.key.shape), graph.key.precision, graph.key.tuning
            )
            note_ignored_variables(reporter)
            return adopt(target, graph)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    try:
        yield
    except DeviceError as error:
        raise GraphError(f"{file}: not taken: {error}; `witness gpu warm` compiles one here") from error


def adopt(target: CompileTarget, graph: Graph) -> Graph:
    """Check and measure a graph that was compiled elsewhere, and add it to the cache. Raises DeviceError."""
    if difference := target.key.difference(graph.key):
        raise GraphError(difference)
    with graph_cache.scratch_folder(target.key.digest, LOAD_LIMIT) as folder:
        shutil.copyfile(graph.path, folder / graph.file)
        return _add(target, folder / graph.file, None)


def refused(name: str, stack: Stack, error: DeviceError) -> DeviceError:
    """Return `error` as a whole sentence that names the model, the card and the fix."""
    return DeviceError(f"MIGraphX cannot run {name} on {stack.title}: {error}; {FIX}")


def _cached(target: CompileTarget, reporter: Reporter) -> Graph | None:
    try:
        return graph_cache.find(target.key)
    except GraphError as error:
        reporter.note(f"the compiled graph for {target.stack.title} is made again: {error}")
        return None


def _compile(target: CompileTarget, folder: Path, limit: float, reporter: Reporter) -> None:
    for half in folder.glob("*.mxr"):  # of the try before
        half.unlink()
    with GpuProcess() as process:  # it holds nothing: the graph is on the disk
        process.request(target.request(folder), target.subject.source, limit=limit, reporter=reporter)


def _add(target: CompileTarget, path: Path, compile_s: float | None) -> Graph:
    # The file is checked before anything loads it, and its numbers in a process that did not compile it.
    graph_cache.check_program(path.read_bytes(), path.name, target.key)
    reference = target.subject.cpu(graph_cache.canary_signal(target.subject.shape))
    measured = twice(lambda: _measure(target, path, reference, compile_s))
    return graph_cache.add(path, target.key, target.subject.name, measured, reference)


def _measure(target: CompileTarget, path: Path, reference: Float32, compile_s: float | None) -> Measured:
    """Measure the graph's speed and its distance from `reference`, the CPU's answer to the canary."""
    signal, cpu = graph_cache.canary_signal(target.subject.shape), target.subject.cpu
    begun = time.perf_counter()
    with GpuProcess() as process:
        _load(process, target, path)
        answer = process.run(signal)
        load_s = time.perf_counter() - begun
        cosine, difference = graph_cache.compare(answer, reference)
        graph_cache.check_canary(cosine, difference, target.precision)
        gpu_ms = float(np.median([_milliseconds(lambda: process.run(signal)) for _ in range(REPEATS)]))
        core_ms = _milliseconds(lambda: cpu(signal))
        cores = machine_limits.cores()
        with on_cores(cores) as mapped:
            cpu_ms = _milliseconds(lambda: list(mapped(cpu, [signal] * cores))) / cores
    return Measured(load_s, gpu_ms, core_ms, cpu_ms, cores, compile_s, cosine, difference)


def _milliseconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return 1e3 * (time.perf_counter() - begun)


def open_graph(target: CompileTarget, graph: Graph) -> GpuProcess:
    """Start a process with `graph`, which has just answered the canary as the CPU did.

    Raises DeviceError.
    """

    def opened() -> GpuProcess:
        process = GpuProcess()
        try:
            _load(process, target, graph.path)
            answer = process.run(graph_cache.canary_signal(target.subject.shape))
            graph_cache.check_canary(*graph_cache.compare(answer, graph.reference()), target.precision)
        except BaseException:
            process.kill()
            raise
        return process

    return twice(opened)


def _load(process: GpuProcess, target: CompileTarget, path: Path) -> None:
    """Load the compiled graph at `path`.

    Raises GraphError if the provider did not take it: then it has compiled another one, or tried to.
    """
    before = _file_states(path.parent)
    process.request(target.request(path.parent), target.subject.source, limit=LOAD_LIMIT)
    if _file_states(path.parent) != before:
        raise GraphError(f"MIGraphX did not take {path.name} and compiled from scratch")


def _file_states(folder: Path) -> dict[str, tuple[int, int, int]]:
    states = {path.name: path.stat() for path in folder.iterdir()}
    return {name: (state.st_ino, state.st_size, state.st_mtime_ns) for name, state in states.items()}


# --- run ---


class Accelerated:
    """A model on the GPU as a function of one array of the pinned shape. Safe to call from several threads.

    If the process dies it is started once more. If that does not help, the CPU does the rest, and a warning
    says so; with `strict`, DeviceError is raised. As a context manager it ends the process.
    """

    def __init__(self, target: CompileTarget, graph: Graph, *, strict: bool, reporter: Reporter) -> None:
        """Start the process. Raises DeviceError."""
        self._target, self._graph, self._strict, self._reporter = target, graph, strict, reporter
        self._lock = threading.Lock()
        self._process: GpuProcess | None = open_graph(target, graph)
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
        return self._target.subject.cpu(array)

    def _run(self, process: GpuProcess, array: Float32) -> Float32 | None:
        """Return the GPU's answer; None: it failed, and is not asked again.

        With `strict`, raises DeviceError.
        """
        try:
            try:
                return process.run(array)
            except GpuDiedError:
                process = self._process = open_graph(self._target, self._graph)
                return process.run(array)
        except DeviceError as error:
            process.kill()
            self._process = None
            failed = f"MIGraphX failed on {self._target.stack.title}"
            if self._strict:
                raise DeviceError(f"{failed}: {error}; {FIX}") from error
            self._reporter.warn(AboutMachine(f"{failed}, so the CPU did the rest of the voices: {error}"))
            return None

    @property
    def device(self) -> str:
        """The devices that answered: "migraphx", "cpu" (no full block, or nothing worked), or both."""
        return "+".join([Device.MIGRAPHX] * (self.on_gpu > 0) + ["cpu"] * (self.on_cpu > 0)) or "cpu"

    def __enter__(self) -> Accelerated:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()


@contextmanager
def accelerate(
    subject: Subject | None,
    runtime: Runtime,
    *,
    calls: int,
    precision: Precision = Precision.FP32,
    reporter: Reporter = SILENT,
) -> Iterator[Accelerated | None]:
    """Give the model on the GPU if `runtime.device` says so; None: on the CPU.

    A model without a `subject` always runs on the CPU, because its input has no one shape. `calls` is the
    largest number of blocks to come. A note names the choice and its reason, if there was one. With device
    "migraphx", raises DeviceError.
    """
    strict = runtime.device == Device.MIGRAPHX
    if not strict and not (runtime.device == Device.AUTO and cards.list_cards()):
        yield None
        return
    note_ignored_variables(reporter)
    chosen: Accelerated | None = None
    try:
        if subject is None:
            raise DeviceError(NO_SHAPE)
        card = choose_card(runtime.gpu)
        if not strict:
            _check_card(card)
        target = CompileTarget(find_stack(card), subject, precision)
        if strict:
            graph, reason = warm(target, reporter=reporter), _blocks(calls)
        else:
            graph, reason = _worth_it(target, runtime, calls)
    except DeviceError as error:
        if strict:
            raise
        reporter.note(f"voices on the CPU: {error}")
    else:
        chosen = _start(target, graph, reason, strict=strict, reporter=reporter)
    with chosen or nullcontext():
        yield chosen


def _start(
    target: CompileTarget, graph: Graph, reason: str, *, strict: bool, reporter: Reporter
) -> Accelerated | None:
    """Load the graph of a model; None: that failed. With `strict`, raises DeviceError then."""
    try:
        chosen = Accelerated(target, graph, strict=strict, reporter=reporter)
    except DeviceError as error:
        if strict:
            raise refused(target.subject.name, target.stack, error) from error
        reporter.warn(
            AboutMachine(f"voices on the CPU, because MIGraphX failed on {target.stack.title}: {error}")
        )
        return None
    how = ""
    if target.precision != Precision.FP32:
        how = f" in {target.precision} (cosine {graph.measured.cosine:.6f})"
    reporter.note(f"voices on {target.stack.title} through MIGraphX{how}: {reason}")
    return chosen


def _check_card(card: cards.Card) -> None:
    """Raise DeviceError for a card that "auto" does not use. Reads no library."""
    if card.supported != "listed":
        raise DeviceError(f"{card.gfx} is not on AMD's list for MIGraphX; --device migraphx tries it")
    if not any(graph_cache.folders()):
        raise DeviceError(f"there is no compiled graph for {card.name} yet; {WARM}")


def _worth_it(target: CompileTarget, runtime: Runtime, calls: int) -> tuple[Graph, str]:
    """Return the cached graph for `target`, and the time it saves. Raises DeviceError for the CPU."""
    try:
        graph = graph_cache.find(target.key)
    except GraphError as error:
        raise GraphError(
            f"the compiled graph for {target.stack.title} cannot be used: {error}; {WARM} again"
        ) from error
    if graph is None:
        raise DeviceError(f"none of the compiled graphs is for this model on {target.stack.title}; {WARM}")
    measured = graph.measured
    cpu_ms = measured.on_cpu(runtime.cores)
    times = f"{measured.gpu_ms:.0f} ms, on the CPU {cpu_ms:.0f} ms, {measured.load_s:.1f} s to load"
    reason = f"{_blocks(calls)} at {times}"
    if not measured.saves(calls, runtime.cores):
        raise DeviceError(f"that is faster on this machine ({reason})")
    return graph, reason


def _blocks(calls: int) -> str:
    return "1 block" if calls == 1 else f"{calls} blocks"
