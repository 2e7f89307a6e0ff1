"""One model with one pinned shape on an AMD GPU, in a child process; and when that is worth it.

`--device auto` uses what the cache of compiled graphs has, if it saves time, and never compiles. `--device
migraphx` compiles what is missing, and stops with DeviceError where the GPU cannot be used.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from witness.errors import DeviceError, GraphError
from witness.gpu import cards, graphs
from witness.gpu.accelerated import Accelerated, Way
from witness.gpu.graphs import Graph, Key, Measured, Tuning
from witness.gpu.process import GpuProcess, killed_on_error, twice
from witness.gpu.provider import provider_options
from witness.gpu.rocm import FIX, Stack, choose_card, note_ignored, stack
from witness.gpu.speed import measure
from witness.gpu.subject import Subject
from witness.options import Device, Precision, Runtime
from witness.progress import SILENT, AboutMachine, Reporter
from witness.schema import Float32
from witness.storage.files import sha256

COMPILE_LIMIT = 600.0
"""Seconds. A ResNet34 is said to take 28 to 46; hangs of half an hour are known (AMDMIGraphX#4029, #4164)."""
LOAD_LIMIT = 120.0
"""Seconds to start a process, and load ROCm and a compiled graph."""
WARM = "`witness gpu warm` compiles it"
NO_SHAPE = (
    "this voice model looks at stretches of speech of any length, and MIGraphX compiles a model for one; "
    "fix: leave out --device, or use --models builtin"
)
"""Why a model without a `Subject` runs on no GPU."""


@dataclass(frozen=True)
class Target:
    """A model, and the card and the settings to compile it for."""

    stack: Stack
    subject: Subject
    precision: Precision = Precision.FP32
    tuning: Tuning = Tuning.DEFAULT

    @cached_property
    def key(self) -> Key:
        """Of its compiled graph."""
        return Key(
            sha256(self.subject.source),
            self.stack.runtime,
            self.stack.migraphx,
            self.stack.gfx,
            self.precision,
            self.tuning,
            self.subject.shape,
        )

    def request(self, folder: Path) -> dict[str, Any]:
        """What the child is asked to open it, with the compiled graph in `folder` or to be written there."""
        return {
            "do": "open",
            "name": self.subject.name,
            "shape": self.subject.shape,
            "libraries": [str(path) for path in self.stack.libraries],
            "provider": provider_options(
                self.stack.provider,
                str(folder),
                gpu=self.stack.card.index,
                fp16=self.precision == Precision.FP16,
                exhaustive=self.tuning == Tuning.EXHAUSTIVE,
            ),
        }


def _load(target: Target, folder: Path, file: str) -> GpuProcess:
    """A process with the compiled graph in `folder`.

    Raises GraphError if the provider did not take it: then it has compiled another one, or tried to.
    """
    before = _state(folder)
    with killed_on_error(GpuProcess()) as process:
        process.ask(target.request(folder), target.subject.source, limit=LOAD_LIMIT)
        if _state(folder) != before:
            raise GraphError(f"MIGraphX did not take {file} and compiled from scratch")
    return process


def _state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Name of a file -> what changes when it is written."""
    states = {path.name: path.stat() for path in folder.iterdir()}
    return {name: (state.st_ino, state.st_size, state.st_mtime_ns) for name, state in states.items()}


def open_graph(target: Target, graph: Graph) -> GpuProcess:
    """A process with `graph`, which has just answered the canary as the CPU did. Raises DeviceError."""

    def once() -> GpuProcess:
        with killed_on_error(_load(target, graph.folder, graph.file)) as process:
            answer = process.run(graphs.signal(target.subject.shape))
            graphs.check_canary(*graphs.compare(answer, graph.reference()), target.precision)
        return process

    return twice(once)


def warm(target: Target, *, limit: float = COMPILE_LIMIT, reporter: Reporter = SILENT) -> Graph:
    """Compile, check against the CPU and measure, unless the cache has a sound graph already.

    Raises DeviceError: MIGraphX refused, or was not done within `limit` seconds.
    """
    if (graph := _find(target, reporter)) is not None:
        return graph
    try:
        with graphs.building(target.key, limit) as folder:
            if (graph := _find(target, SILENT)) is not None:  # another process was quicker
                return graph
            reporter.note(
                f"compiling {target.subject.name} for {target.stack.title}, for {limit:.0f} s at most"
            )
            begun = time.perf_counter()
            twice(lambda: _compile(target, folder, limit, reporter))
            compile_s = time.perf_counter() - begun
            made = [path.name for path in folder.glob("*.mxr")]
            if len(made) != 1:
                raise GraphError(f"it left {len(made)} compiled graphs, not one")
            return _add(target, folder, made[0], compile_s)
    except DeviceError as error:
        raise refused(target.subject.name, target.stack, error) from error


def refused(name: str, where: Stack, error: DeviceError) -> DeviceError:
    """`error`, in a whole sentence that names the model, the card and the fix."""
    return DeviceError(f"MIGraphX cannot run {name} on {where.title}: {error}; {FIX}")


def _find(target: Target, reporter: Reporter) -> Graph | None:
    """The sound graph that the cache has for it, if any."""
    try:
        return graphs.find(target.key)
    except GraphError as error:
        reporter.note(f"the compiled graph for {target.stack.title} is made again: {error}")
        return None


def _compile(target: Target, folder: Path, limit: float, reporter: Reporter) -> None:
    """Have the provider write its program into `folder`. Raises DeviceError."""
    for half in folder.glob("*.mxr"):  # of the try before
        half.unlink()
    process = GpuProcess()
    try:
        process.ask(target.request(folder), target.subject.source, limit=limit, reporter=reporter)
    finally:
        process.kill()  # it holds nothing: the graph is on the disk


def adopt(target: Target, graph: Graph) -> Graph:
    """Take a graph that was compiled elsewhere: checked and measured here. Raises DeviceError."""
    if difference := target.key.difference(graph.key):
        raise GraphError(difference)
    with graphs.building(target.key, LOAD_LIMIT) as folder:
        shutil.copyfile(graph.path, folder / graph.file)
        return _add(target, folder, graph.file, None)


def _add(target: Target, folder: Path, file: str, compile_s: float | None) -> Graph:
    """Check, measure and cache the program `file` in `folder`. Raises DeviceError."""
    # What it says is checked before it is loaded; what it computes, in a process that did not compile it.
    graphs.check_program((folder / file).read_bytes(), file, target.key)
    reference = target.subject.cpu(graphs.signal(target.subject.shape))
    measured = twice(lambda: _first_runs(target, folder, file, reference, compile_s))
    return graphs.add(graphs.describe(folder, file, target.key, target.subject.name, measured), reference)


def _first_runs(
    target: Target, folder: Path, file: str, reference: Float32, compile_s: float | None
) -> Measured:
    """How well and how fast the graph answers the canary, of which `reference` is the CPU's answer."""
    signal = graphs.signal(target.subject.shape)
    begun = time.perf_counter()
    process = _load(target, folder, file)
    try:
        answer = process.run(signal)
        load_s = time.perf_counter() - begun
        cosine, difference = graphs.compare(answer, reference)
        graphs.check_canary(cosine, difference, target.precision)
        speed = measure(process.run, target.subject.cpu, signal, load_s)
    finally:
        process.kill()
    return Measured(**asdict(speed), compile_s=compile_s, cosine=cosine, difference=difference)


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
    there will be at most. Where there is a choice, a note says what was chosen and why. With device
    "migraphx", raises DeviceError.
    """
    if not _concerns(runtime):
        yield None
        return
    strict = runtime.device == Device.MIGRAPHX
    note_ignored(reporter)
    chosen: Accelerated | None = None
    try:
        if subject is None:
            raise DeviceError(NO_SHAPE)
        card = choose_card(runtime.gpu)
        if not strict:
            _check_card(card)
        target = Target(stack(card), subject, precision)
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


def _concerns(runtime: Runtime) -> bool:
    """Whether MIGraphX may run something, or has something to say. Reads no library."""
    if runtime.device != Device.AUTO:
        return runtime.device == Device.MIGRAPHX
    return bool(cards.cards())


def _start(
    target: Target, graph: Graph, reason: str, *, strict: bool, reporter: Reporter
) -> Accelerated | None:
    """The model with its graph loaded; None: that failed. With `strict`, raises DeviceError then."""
    try:
        title = f"MIGraphX failed on {target.stack.title}"
        way = Way(Device.MIGRAPHX, title, lambda: open_graph(target, graph), target.subject.cpu)
        chosen = Accelerated(way, strict=strict, reporter=reporter)
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
    if not any(graphs.folders()):
        raise DeviceError(f"there is no compiled graph for {card.name} yet; {WARM}")


def _worth_it(target: Target, runtime: Runtime, calls: int) -> tuple[Graph, str]:
    """The cached graph for `target`, and what it saves. Raises DeviceError: why the CPU is the choice."""
    try:
        graph = graphs.find(target.key)
    except GraphError as error:
        raise GraphError(
            f"the compiled graph for {target.stack.title} cannot be used: {error}; {WARM} again"
        ) from error
    if graph is None:
        raise DeviceError(f"none of the compiled graphs is for this model on {target.stack.title}; {WARM}")
    measured = graph.measured
    times = f"{measured.words(runtime.cores)}, {measured.load_s:.1f} s to load"
    sums = f"{_blocks(calls)} at {times}"
    if not measured.saves(calls, runtime.cores):
        raise DeviceError(f"that is faster on this machine ({sums})")
    return graph, sums


def _blocks(calls: int) -> str:
    return "1 block" if calls == 1 else f"{calls} blocks"
