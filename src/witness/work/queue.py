"""The queue of a folder's recordings, for batch and desk alike.

A batch fills it at once; the desk adds recordings when they arrive, and tells browsers. The jobs run on this
machine (`pool`) or on a cluster. The folder's manifest knows at any moment which recordings are done, so a
queue that is killed loses nothing but the work at hand.
"""

from __future__ import annotations

import math
import queue
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Protocol

from witness.child import one_line
from witness.errors import CancelledError, OutputError, WitnessError, lacks_resources
from witness.options import Runtime
from witness.work.eta import Estimate, Forecast
from witness.work.folder import Folder, size_and_mtime
from witness.work.manifest import Entry
from witness.work.produce import Job, Outcome, Segment, Watcher, nothing_said

RARELY = 50
"""Time between two estimates, as a multiple of the time of one: there may be a million recordings."""


PAUSE = 5.0
"""Seconds without a new job after this process found no free files, processes, threads or memory."""


class LostError(WitnessError):
    """Raised for a job whose machine is lost, so that nothing is known about its recording."""


class Workers(Protocol):
    """Processes that do jobs: a `pool.Pool` or a `cluster.Cluster`."""

    @property
    def workers(self) -> int:
        """Jobs that run at a time; 0: not known yet."""

    def submit(self, job: Job, watcher: Watcher) -> Future[Outcome]:
        """Have a job done. Its future raises LostError if its workers are lost."""


class Observer:
    """Events of a queue. A subclass overrides those that it needs."""

    live = False
    """True has `progressed` and `said` called, from threads of the workers."""

    def begun(self, item: Entry) -> None:
        """Take note that a recording is worked on."""

    def progressed(self, item: Entry, stage: str, estimate: Estimate) -> None:
        """Take note of progress."""

    def said(self, item: Entry, first: int, segments: Sequence[Segment]) -> None:
        """Take note of final text, as `produce.Said`."""

    def postponed(self, item: Entry, error: str) -> None:
        """Take note that a recording waits until the others are done, because its disk failed."""

    def ended(self, item: Entry, entry: Entry, outcome: Outcome | None) -> None:
        """Take note of the end of a recording. None: there was nothing to do, or it was canceled.

        An entry that has only "begun" means that its workers were lost: the next run does it.
        """

    def unwritable(self, item: Entry, error: OutputError) -> None:  # noqa: ARG002
        """Take note that the result of a recording cannot be written."""
        raise error


Prepare = Callable[[Entry], tuple[Entry, Folder] | None]
"""Returns a recording with all its settings, and its folder; None: it must wait for something."""


class JobQueue:
    """Recordings that wait, and jobs at work. One thread calls its methods; `call` is for any."""

    def __init__(
        self, workers: Workers, runtime: Runtime, prepare: Prepare, observer: Observer, ahead: int = 1
    ) -> None:
        """Submit at most `ahead` jobs for each worker at a time."""
        self._workers = workers
        self._runtime = runtime
        self._prepare = prepare
        self._observer = observer
        self._ahead = ahead
        self.waiting: dict[str, Entry] = {}
        """By output, as all of these."""
        self.working: dict[str, tuple[Entry, Future[Outcome]]] = {}
        self.forecast = Forecast()
        self._next: deque[str] = deque()  # some may wait no more
        self._copies: dict[str, list[str]] = defaultdict(list)  # those that wait for the end of another one
        self._postponed: dict[str, None] = {}
        self._tried: set[str] = set()
        self._paused_until = -math.inf
        self._inbox: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._left: float | None = None
        self._next_estimate = 0.0

    def add(self, item: Entry) -> None:
        """Have a recording wait for its turn."""
        self.waiting[item.output] = item
        self._next.append(item.output)

    def remove(self, output: str) -> None:
        """Have a recording wait no more."""
        del self.waiting[output]

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.working

    @property
    def paused(self) -> bool:
        return time.monotonic() < self._paused_until

    def pause(self) -> None:
        """Submit nothing for a while: this process lacks resources."""
        self._paused_until = time.monotonic() + PAUSE

    def call(self, step: Callable[[], object] | None) -> None:
        """Have `step` called by `run_step`, from any thread; None ends the queue."""
        self._inbox.put(step)

    def run_step(self, timeout: float | None) -> bool:
        """Run the next step, if one comes within so many seconds. Return False at the end of the queue."""
        with suppress(queue.Empty):
            step = self._inbox.get(timeout=timeout)
            if step is None:
                return False
            step()
        return True

    def submit_next(self) -> None:
        """Submit recordings as long as there is room for them. Raises the errors of preparing one."""
        if self.paused:
            return
        if not self._next and not self.working:
            self._next.extend(self._postponed)
            self._postponed.clear()
        while self._next and len(self.working) < max(1, self._ahead * self._workers.workers):
            output = self._next[0]
            if output in self.waiting:
                prepared = self._prepare(self.waiting[output])
                if prepared is None:
                    return
                item, folder = prepared
                with suppress(OSError):  # the worker names the trouble
                    size, mtime_ns = size_and_mtime(item.source)
                    item = replace(item, size=size, mtime_ns=mtime_ns)
                if (original := self._original(item, folder)) is not None:
                    self._copies[original].append(output)
                else:
                    self._begin(item, folder)
            self._next.popleft()

    def seconds_left(self) -> float | None:
        """Return the seconds until all is done; None: not known yet."""
        begun = time.monotonic()
        if begun >= self._next_estimate:
            items = chain((item for item, _ in self.working.values()), self.waiting.values())
            self._left = self.forecast.left(items)
            ended = time.monotonic()
            self._next_estimate = ended + RARELY * (ended - begun)
        return self._left

    def _original(self, item: Entry, folder: Folder) -> str | None:
        """Return the output of a recording at work that has the same bytes or the same output."""
        if item.output in self.working:
            return item.output
        if not folder.takes_copies:
            return None
        alike = [other for other, _ in self.working.values() if other.size == item.size]
        sha256 = folder.sha256(item) if alike else None
        if sha256 is None:
            return None
        return next((other.output for other in alike if folder.sha256(other) == sha256), None)

    def _begin(self, item: Entry, folder: Folder) -> None:
        """Submit a recording, or find that there is nothing to do. Raises OutputError."""
        if (entry := folder.spared(item)) is not None:
            del self.waiting[item.output]
            self._observer.ended(item, entry, None)
            return
        folder.claim(item)
        job = folder.job(item, self._runtime)
        del self.waiting[item.output]
        estimate = self.forecast.begin(item, job)
        self._observer.begun(item)

        def progress(stage: str, done: float, total: float) -> None:
            estimate.update(stage, done, total)
            if self._observer.live:
                self._observer.progressed(item, stage, estimate)

        said = partial(self._observer.said, item) if self._observer.live else nothing_said
        future = self._workers.submit(job, Watcher(progress, said))
        self.working[item.output] = item, future
        future.add_done_callback(lambda _: self._inbox.put(partial(self._end, item, folder, future)))

    def _end(self, item: Entry, folder: Folder, future: Future[Outcome]) -> None:
        """Record the outcome of a recording. Raises OutputError where the observer does."""
        del self.working[item.output]
        self._next.extendleft(reversed(self._copies.pop(item.output, [])))
        outcome: Outcome | None = None
        try:
            if future.cancelled() or isinstance(future.exception(), CancelledError):
                entry = folder.entry(item, "canceled")
                folder.manifest.append(entry)
            elif isinstance(error := future.exception(), LostError):
                entry = folder.entry(item, "begun", str(error))
            else:
                outcome = _outcome_of(item, future)
                if lacking := lacks_resources(future.exception()):
                    self.pause()
                if (outcome.later and item.output not in self._tried) or (lacking and self._observer.live):
                    self._tried.add(item.output)
                    self.waiting[item.output] = item
                    self._postponed[item.output] = None
                    self._observer.postponed(item, outcome.error or "")
                    return
                entry = folder.record(item, outcome)
            self._observer.ended(item, entry, outcome)
        except OutputError as error:
            self._observer.unwritable(item, error)
        finally:
            self.forecast.end(item, outcome)


def _outcome_of(item: Entry, future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except Exception as error:
        text = f"{type(error).__name__}: {one_line(error)}"[:300]
        why = f"{item.source}: no worker could finish it ({text}); try again with --retry-failed"
        return Outcome(why, 1, later=lacks_resources(error))
