"""Where the time of a run goes: stages and calls of models, noted while somebody wants to know.

    with tracing.recording() as trace:
        transcribe(...)

One trace at a time in a process. Without one, what notes times does nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


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
    thread: int


@dataclass
class Trace:
    """Everything noted so far; safe to add to from any thread."""

    folder: Path | None = None
    """Where onnxruntime may write its own traces meanwhile; None: it makes none."""
    spans: list[Span] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    ends: list[Callable[[], tuple[str, int]]] = field(default_factory=list)
    """For each session with a trace of its own: ends it; gives its file and when it began, in ns."""

    def call(self, model: str, shape: tuple[int, ...], begin: float) -> None:
        """Note a call of `model` that began at `begin` and has just ended."""
        wall = time.perf_counter() - begin
        self.calls.append(Call(model, shape, begin, wall, threading.get_ident()))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Note what is done inside as that stage."""
        begin, cpu = time.perf_counter(), time.process_time()
        yield
        self.spans.append(Span(name, begin, time.perf_counter() - begin, time.process_time() - cpu))


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
