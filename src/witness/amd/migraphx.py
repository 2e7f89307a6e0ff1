"""One model with one pinned shape on an AMD GPU, in a child process; and when that is worth it.

`--device auto` uses what the compiled-graph cache has, if it saves time, and never compiles. `--device
migraphx` compiles what is missing and stops with DeviceError where the GPU cannot be used.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from witness.amd import cards, graphs
from witness.amd.graphs import Graph, Key, Measured, Tuning
from witness.amd.process import DiedError, GpuProcess
from witness.amd.rocm import CURE, Machine, choose_card, ignored_variables, machine
from witness.errors import DeviceError, GraphError
from witness.options import Precision, Runtime, available_cores
from witness.reporter import SILENT, Reporter
from witness.schema import Float32
from witness.sessions import on_cores, provider_options

T = TypeVar("T")

COMPILE_LIMIT = 600.0
"""Seconds. A ResNet34 is said to take 28 to 46; hangs of half an hour are known (AMDMIGraphX#4029, #4164)."""
LOAD_LIMIT = 120.0  # seconds to start a process, load ROCm and a compiled graph
WARM = "`witness gpu warm` compiles it"


@dataclass(frozen=True)
class Job:
    """A model with one input, to run with one shape on one card."""

    machine: Machine
    source: bytes
    name: str
    shape: tuple[int, ...]
    precision: Precision = Precision.FP32
    tuning: Tuning = "default"

    @cached_property
    def key(self) -> Key:
        return Key(
            hashlib.sha256(self.source).hexdigest(),
            self.machine.runtime,
            self.machine.migraphx,
            self.machine.gfx,
            self.precision,
            self.tuning,
            self.shape,
        )

    def request(self, folder: Path) -> dict[str, Any]:
        return {
            "do": "open",
            "name": self.name,
            "shape": self.shape,
            "libraries": [str(path) for path in self.machine.libraries],
            "provider": provider_options(
                str(folder),
                gpu=self.machine.card.index,
                fp16=self.precision == Precision.FP16,
                exhaustive=self.tuning == "exhaustive",
            ),
        }


def _twice(action: Callable[[], T]) -> T:
    """One retry if the child dies: the crashes that are known are races."""
    try:
        return action()
    except DiedError:
        return action()


def _load(job: Job, folder: Path, file: str) -> GpuProcess:
    """A process with the compiled graph in `folder`.

    Raises GraphError if the provider did not take it: then it has compiled another one, or tried to.
    """
    before = _state(folder)
    process = GpuProcess()
    try:
        process.ask(job.request(folder), job.source, limit=LOAD_LIMIT)
        if _state(folder) != before:
            raise GraphError(f"MIGraphX did not take {file} and compiled anew")
    except BaseException:
        process.kill()
        raise
    return process


def _state(folder: Path) -> dict[str, tuple[int, int, int]]:
    states = {path.name: path.stat() for path in folder.iterdir()}
    return {name: (state.st_ino, state.st_size, state.st_mtime_ns) for name, state in states.items()}


def open_graph(job: Job, graph: Graph) -> GpuProcess:
    """A process with `graph`, which has just answered the canary as the CPU did. Raises DeviceError."""

    def once() -> GpuProcess:
        process = _load(job, graph.folder, graph.file)
        try:
            answer = process.run(graphs.signal(job.shape))
            graphs.check_canary(*graphs.compare(answer, graph.reference()), job.precision)
        except BaseException:
            process.kill()
            raise
        return process

    return _twice(once)


def warm(
    job: Job,
    cpu: Callable[[Float32], Float32],
    *,
    limit: float = COMPILE_LIMIT,
    reporter: Reporter = SILENT,
) -> Graph:
    """Compile, prove and measure; what is there already and sound is left alone.

    `cpu` is the same model on the CPU. Raises DeviceError: refused, or no end within `limit` seconds.
    """
    if (found := _find(job, reporter)) is not None:
        return found
    try:
        with graphs.building(job.key, limit) as folder:
            if (found := _find(job, SILENT)) is not None:  # another process was quicker
                return found
            reporter.note(f"compiling {job.name} for {job.machine.title}, for {limit:.0f} s at most")
            begun = time.perf_counter()
            _twice(lambda: _compile(job, folder, limit, reporter))
            compile_s = time.perf_counter() - begun
            made = [path.name for path in folder.glob("*.mxr")]
            if len(made) != 1:
                raise GraphError(f"it left {len(made)} compiled graphs, not one")
            return _keep(job, folder, made[0], compile_s, cpu)
    except DeviceError as error:
        raise refused(job.name, job.machine, error) from error


def refused(name: str, where: Machine, error: DeviceError) -> DeviceError:
    """`error`, in a whole sentence with the cure."""
    return DeviceError(f"MIGraphX cannot run {name} on {where.title}: {error}; {CURE}")


def _find(job: Job, reporter: Reporter) -> Graph | None:
    try:
        return graphs.find(job.key)
    except GraphError as error:
        reporter.note(f"the compiled graph for {job.machine.title} is made anew: {error}")
        return None


def _compile(job: Job, folder: Path, limit: float, reporter: Reporter) -> None:
    for half in folder.glob("*.mxr"):  # of the try before
        half.unlink()
    process = GpuProcess()
    try:
        process.ask(job.request(folder), job.source, limit=limit, reporter=reporter)
    finally:
        process.kill()  # it holds nothing: the graph is on the disk


def adopt(job: Job, graph: Graph, cpu: Callable[[Float32], Float32]) -> Graph:
    """Take a graph that was compiled elsewhere: proved and measured here. Raises DeviceError."""
    if difference := job.key.difference(graph.key):
        raise GraphError(difference)
    with graphs.building(job.key, LOAD_LIMIT) as folder:
        shutil.copyfile(graph.path, folder / graph.file)
        return _keep(job, folder, graph.file, None, cpu)


def _keep(
    job: Job, folder: Path, file: str, compile_s: float | None, cpu: Callable[[Float32], Float32]
) -> Graph:
    # What it says is checked before it is loaded; what it computes, in a process that did not compile it.
    graphs.check_program((folder / file).read_bytes(), file, job.key)
    feats = graphs.signal(job.shape)
    reference = cpu(feats)
    answer, load_s, gpu_ms = _twice(lambda: _first_runs(job, folder, file, feats))
    cosine, difference = graphs.compare(answer, reference)
    graphs.check_canary(cosine, difference, job.precision)
    together = available_cores()
    with on_cores(together) as mapped:
        cpu_ms = _milliseconds(lambda: list(mapped(cpu, [feats] * together))) / together
    measured = Measured(compile_s, load_s, gpu_ms, cpu_ms, together, cosine, difference)
    return graphs.keep(graphs.describe(folder, file, job.key, job.name, measured), reference)


def _first_runs(job: Job, folder: Path, file: str, feats: Float32) -> tuple[Float32, float, float]:
    """The graph's answer to `feats`, seconds until it was there, milliseconds of a run after that."""
    begun = time.perf_counter()
    process = _load(job, folder, file)
    try:
        answer = process.run(feats)
        load_s = time.perf_counter() - begun
        return answer, load_s, float(np.median([_milliseconds(lambda: process.run(feats)) for _ in range(5)]))
    finally:
        process.kill()


def _milliseconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return 1e3 * (time.perf_counter() - begun)


class Accelerated:
    """A model on the GPU as a function of one array of the pinned shape. Safe to call from several threads.

    If the process dies it is started once more; if that does not help, `strict` raises DeviceError, and
    otherwise the CPU does the rest, which `warn` hears of.
    """

    def __init__(
        self, job: Job, graph: Graph, cpu: Callable[[Float32], Float32], *, strict: bool, reporter: Reporter
    ) -> None:
        self._job, self._graph, self._cpu = job, graph, cpu
        self._strict, self._reporter = strict, reporter
        self._lock = threading.Lock()
        self._process: GpuProcess | None = open_graph(job, graph)
        self.on_gpu = 0
        """Calls that the GPU answered."""
        self.on_cpu = 0
        """Calls that the CPU answered because the GPU had failed."""

    def __call__(self, array: Float32) -> Float32:
        with self._lock:
            if self._process is not None and (result := self._try(array)) is not None:
                self.on_gpu += 1
                return result
            self.on_cpu += 1
        return self._cpu(array)

    def _try(self, array: Float32) -> Float32 | None:
        process = cast(GpuProcess, self._process)
        try:
            try:
                return process.run(array)
            except DiedError:
                process = self._process = open_graph(self._job, self._graph)
                return process.run(array)
        except DeviceError as error:
            process.kill()
            self._process = None
            failed = f"MIGraphX failed on {self._job.machine.title}"
            if self._strict:
                raise DeviceError(f"{failed}: {error}; {CURE}") from error
            self._reporter.warn(f"{failed}, so the CPU did the rest of the voices: {error}")
            return None

    @property
    def device(self) -> str:
        """What answered: "migraphx", "cpu" (there was no full block, or nothing worked), or both."""
        return "+".join(["migraphx"] * (self.on_gpu > 0) + ["cpu"] * (self.on_cpu > 0)) or "cpu"

    def finish(self) -> str | None:
        """End the process; all results are here. What is to be said about its end, if anything."""
        return None if self._process is None else self._process.finish()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


@contextmanager
def accelerate(
    source: bytes,
    name: str,
    shape: tuple[int, ...],
    cpu: Callable[[Float32], Float32],
    runtime: Runtime,
    *,
    calls: int,
    precision: Precision = Precision.FP32,
    reporter: Reporter = SILENT,
) -> Iterator[Accelerated | None]:
    """The model for `shape` on the GPU, as `runtime.device` says; None: on the CPU.

    `calls` is how many there will be at most. What was chosen, and why, is one line to `note`, if there is a
    choice. With device "migraphx", raises DeviceError.
    """
    if runtime.device == "cpu" or (runtime.device == "auto" and not cards.cards()):
        yield None
        return
    strict = runtime.device == "migraphx"
    if ignored := ignored_variables():
        reporter.note(f"ignored, because they change what MIGraphX runs: {', '.join(ignored)}")
    chosen: Accelerated | None = None
    try:
        card = choose_card(runtime.gpu)
        if not strict:
            _check_card(card)
        job = Job(machine(card), source, name, shape, precision)
        if strict:
            graph, reason = warm(job, cpu, reporter=reporter), f"{calls} blocks"
        else:
            graph, reason = _worth_it(job, runtime, calls)
    except DeviceError as error:
        if strict:
            raise
        reporter.note(f"voices on the CPU: {error}")
    else:
        chosen = _start(job, graph, reason, cpu, strict=strict, reporter=reporter)
    try:
        yield chosen
    except BaseException:
        if chosen is not None:
            chosen.kill()
        raise
    if chosen is not None and (line := chosen.finish()):
        reporter.note(line)


def _start(
    job: Job,
    graph: Graph,
    reason: str,
    cpu: Callable[[Float32], Float32],
    *,
    strict: bool,
    reporter: Reporter,
) -> Accelerated | None:
    try:
        chosen = Accelerated(job, graph, cpu, strict=strict, reporter=reporter)
    except DeviceError as error:
        if strict:
            raise refused(job.name, job.machine, error) from error
        reporter.warn(f"voices on the CPU, because MIGraphX failed on {job.machine.title}: {error}")
        return None
    how = (
        "" if job.precision == Precision.FP32 else f" in {job.precision} (cosine {graph.measured.cosine:.6f})"
    )
    reporter.note(f"voices on {job.machine.title} through MIGraphX{how}: {reason}")
    return chosen


def _check_card(card: cards.Card) -> None:
    """What can be said without reading any library. Raises DeviceError."""
    if card.supported != "listed":
        raise DeviceError(f"{card.gfx} is not on AMD's list for MIGraphX; --device migraphx tries it")
    if not any(graphs.folders()):
        raise DeviceError(f"there is no compiled graph for {card.name} yet; {WARM}")


def _worth_it(job: Job, runtime: Runtime, calls: int) -> tuple[Graph, str]:
    """The graph that is kept for `job`, and what it saves. Raises DeviceError: why the CPU is the choice."""
    try:
        graph = graphs.find(job.key)
    except GraphError as error:
        raise GraphError(
            f"the compiled graph for {job.machine.title} is no good: {error}; {WARM} anew"
        ) from error
    if graph is None:
        raise DeviceError(f"none of the compiled graphs is for this model on {job.machine.title}; {WARM}")
    measured = graph.measured
    # All cores were at work when it was measured; with fewer, the CPU is so much slower.
    cpu_ms = measured.cpu_ms * measured.cpu_cores / min(runtime.cores, measured.cpu_cores)
    saved = calls * (cpu_ms - measured.gpu_ms) / 1e3
    times = f"{measured.gpu_ms:.0f} ms, on the CPU {cpu_ms:.0f} ms, {measured.load_s:.1f} s to load"
    sums = f"{calls} blocks at {times}"
    if saved <= measured.load_s:
        raise DeviceError(f"that is quicker here ({sums})")
    return graph, sums
