"""Traces of the time of a run: stages and model calls, recorded on request.

    with tracing.recording() as trace:
        transcribe(...)

A process records one trace at a time. Without one, nothing is recorded but the seconds of each stage.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any


@dataclass(frozen=True)
class Span:
    """One run of a stage."""

    stage: str
    begin: float
    """Seconds, by time.perf_counter."""
    wall: float
    cpu: float
    """Seconds of processor time that the whole process took meanwhile."""


@dataclass(frozen=True)
class Call:
    """One call of a model."""

    model: str
    shape: tuple[int, ...]
    begin: float
    wall: float
    cpu: float
    """Seconds of processor time of the calling thread."""
    thread: int


@dataclass
class Trace:
    """Everything recorded so far. Any thread may add to it."""

    folder: Path | None = None
    """Folder for the traces of onnxruntime; None: it writes no traces."""
    spans: list[Span] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    sessions: list[tuple[str, float, Callable[[], str]]] = field(default_factory=list)
    """Models that onnxruntime traces: name, time of opening, what ends the trace and returns its path."""

    def call(self, model: str, shape: tuple[int, ...], begin: float, cpu: float) -> None:
        """Record a call of `model` that began at `begin` (`cpu`: by time.thread_time) and has just ended."""
        wall, cpu = time.perf_counter() - begin, time.thread_time() - cpu
        self.calls.append(Call(model, shape, begin, wall, cpu, threading.get_ident()))

    def document(self) -> str:
        """Everything as one JSON document in Chrome's trace format, for chrome://tracing or ui.perfetto.dev.

        Process 0 is Witness: its stages, and its model calls by thread. The others are onnxruntime sessions,
        operator by operator. This ends onnxruntime's traces.
        """
        events = [_process(0, "witness")]
        events += [_event(span.stage, 0, span, {"cpu_seconds": round(span.cpu, 6)}) for span in self.spans]
        threads = {call.thread: number for number, call in enumerate(self.calls, start=1)}
        for call in self.calls:
            events.append(_event(_short(call.model), threads[call.thread], call, {"shape": call.shape}))
        for number, (model, opened, end) in enumerate(self.sessions, start=1):
            events.append(_process(number, f"onnxruntime: {_short(model)}"))
            operators = json.loads(Path(end()).read_bytes())
            events += [{**event, "pid": number, "ts": event["ts"] + opened * 1e6} for event in operators]
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def _short(model: str) -> str:
    """A model's name without folders: "trunk of embedding.onnx"."""
    part, of, path = model.partition(" of ") if not Path(model).is_absolute() else ("", "", model)
    return f"{part}{of}{PurePath(path).name}"


def _process(number: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}


def _event(name: str, thread: int, work: Span | Call, extra: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": work.begin * 1e6, "dur": work.wall * 1e6}
    return {"ph": "X", "name": name, "pid": 0, "tid": thread, **times, "args": extra}


_current: Trace | None = None


def current() -> Trace | None:
    """The trace that is being recorded, if any."""
    return _current


@contextmanager
def recording(folder: Path | None = None) -> Iterator[Trace]:
    """Record a trace; with `folder`, onnxruntime writes its own traces there as well."""
    global _current
    trace = Trace(folder)
    _current = trace
    try:
        yield trace
    finally:
        _current = None


class Stopwatch:
    """Seconds of wall time of each stage of one recording. A trace that is being recorded gets them, too."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time of the block to that stage."""
        begin, cpu, trace = time.perf_counter(), time.process_time(), current()
        yield
        wall = time.perf_counter() - begin
        self.seconds[name] = self.seconds.get(name, 0.0) + wall
        if trace is not None:
            trace.spans.append(Span(name, begin, wall, time.process_time() - cpu))
