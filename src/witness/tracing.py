"""Where the time of a run goes: stages and calls of models, noted while somebody wants to know.

    with tracing.recording() as trace:
        transcribe(...)

One trace at a time in a process. Without one, what notes times does nothing.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Span:
    """A stage at work."""

    stage: str
    begin: float
    """Seconds, by time.perf_counter."""
    wall: float
    cpu: float
    """Seconds of processor time of this whole process meanwhile."""


@dataclass(frozen=True)
class Call:
    """One call of a model."""

    model: str
    shape: tuple[int, ...]
    begin: float
    wall: float
    cpu: float
    """Seconds of processor time of its thread."""
    thread: int


@dataclass
class Trace:
    """Everything noted so far; safe to add to from any thread."""

    folder: Path | None = None
    """Where onnxruntime may write its own traces meanwhile; None: it makes none."""
    spans: list[Span] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    sessions: list[tuple[str, float, Callable[[], str]]] = field(default_factory=list)
    """With a trace of their own: the model, when it was opened, what ends the trace and names its file."""

    def call(self, model: str, shape: tuple[int, ...], begin: float, cpu: float) -> None:
        """Note a call of `model` that began at `begin` (`cpu`: by time.thread_time) and has just ended."""
        wall, cpu = time.perf_counter() - begin, time.thread_time() - cpu
        self.calls.append(Call(model, shape, begin, wall, cpu, threading.get_ident()))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Note what is done inside as that stage."""
        begin, cpu = time.perf_counter(), time.process_time()
        yield
        self.spans.append(Span(name, begin, time.perf_counter() - begin, time.process_time() - cpu))

    def document(self) -> str:
        """Everything as one JSON document in Chrome's trace format, for chrome://tracing or ui.perfetto.dev.

        Process 0 is Witness: its stages, and the calls of models by thread. The others are onnxruntime's
        sessions, operator by operator. Ends onnxruntime's traces.
        """
        events = [_process(0, "witness")]
        for span in self.spans:
            extra = {"cpu_seconds": round(span.cpu, 6)}
            events.append(_event(span.stage, 0, 0, span.begin, span.wall, extra))
        threads = {call.thread: number for number, call in enumerate(self.calls, start=1)}
        events += [
            _event(_short(call.model), 0, threads[call.thread], call.begin, call.wall, {"shape": call.shape})
            for call in self.calls
        ]
        for number, (model, opened, end) in enumerate(self.sessions, start=1):
            events.append(_process(number, f"onnxruntime: {_short(model)}"))
            found = json.loads(Path(end()).read_bytes())
            events += [{**event, "pid": number, "ts": event["ts"] + opened * 1e6} for event in found]
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"


def _short(model: str) -> str:
    """Its name without the folders: "trunk of embedding.onnx"."""
    return re.sub(r"\S*[/\\]", "", model)


def _process(number: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}


def _event(
    name: str, process: int, thread: int, begin: float, wall: float, extra: dict[str, Any]
) -> dict[str, Any]:
    times = {"ts": begin * 1e6, "dur": wall * 1e6}
    return {"ph": "X", "name": name, "pid": process, "tid": thread, **times, "args": extra}


_current: Trace | None = None


def current() -> Trace | None:
    """The trace that is being recorded, if one is."""
    return _current


@contextmanager
def recording(folder: Path | None = None) -> Iterator[Trace]:
    """Record a trace; with `folder`, onnxruntime's own traces into it as well."""
    global _current
    trace = Trace(folder)
    _current = trace
    try:
        yield trace
    finally:
        _current = None


class Stopwatch:
    """Seconds of wall time that each stage of one recording took; a trace that is recorded hears of them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what is done inside as that stage's, in addition to what it took before."""
        begun, trace = time.perf_counter(), current()
        with nullcontext() if trace is None else trace.stage(name):
            yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun
