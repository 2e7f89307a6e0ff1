"""Jobs -> futures of their outcomes, in child processes of this machine that are replaced when they die.

Not concurrent.futures' own pool: one worker that dies there breaks it for all, nothing in it can be stopped
after a time, its workers outlive a parent that is killed, and Dask's processes may not have one at all.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from witness.batch.worker import Job, Outcome, job_to_json, outcome_from_json
from witness.child import Child, ChildError, DiedError, Limits, TooLargeError, TooSlowError

TRIES = 2
"""A recording whose worker dies gets another one, once: the fault may have been the worker's."""


class Pool:
    """A context manager; `submit` gives a `concurrent.futures.Future`. Left, it ends its processes."""

    def __init__(self, slots: Sequence[dict[str, Any]]) -> None:
        """A worker a slot, started with its first job. A slot is fields of `sessions.Runtime` of its own."""
        self._jobs: queue.SimpleQueue[tuple[Job, Future[Outcome]] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._slots = [_Slot(own, self._jobs, self._closing) for own in slots]
        self.workers = len(self._slots)

    def submit(self, job: Job) -> Future[Outcome]:
        """Have a job done; whatever happens to it, the future has an outcome."""
        future: Future[Outcome] = Future()
        self._jobs.put((job, future))
        return future

    def __enter__(self) -> Pool:
        for slot in self._slots:
            slot.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        for slot in self._slots:
            slot.kill()
            self._jobs.put(None)
        for slot in self._slots:
            slot.join()


class _Slot(threading.Thread):
    """One worker process after another, and the thread that talks to it."""

    def __init__(
        self,
        own: dict[str, Any],
        jobs: queue.SimpleQueue[tuple[Job, Future[Outcome]] | None],
        closing: threading.Event,
    ) -> None:
        super().__init__(daemon=True)
        self._own = own
        self._jobs = jobs
        self._closing = closing
        self._lock = threading.Lock()
        self._child: Child | None = None

    def run(self) -> None:
        while (item := self._jobs.get()) is not None and not self._closing.is_set():
            job, future = item
            if not future.set_running_or_notify_cancel():
                continue
            settings = replace(job.settings, runtime={**job.settings.runtime, **self._own})
            try:
                future.set_result(self._perform(replace(job, settings=settings)))
            except Exception as error:  # no process can be started, say
                future.set_exception(error)
        self.kill()

    def kill(self) -> None:
        """End the process at once; it holds nothing worth saving."""
        with self._lock:
            if self._child is not None:
                self._child.kill()

    def _perform(self, job: Job) -> Outcome:
        outcome = Outcome()
        for _ in range(TRIES):
            outcome = self._ask(job)
            if not outcome.again or self._closing.is_set():
                break
        return replace(outcome, again=False)

    def _ask(self, job: Job) -> Outcome:
        with self._lock:
            if self._closing.is_set():
                return Outcome(f"{job.source}: interrupted; the same command takes it up again", 1)
            child = self._child = self._child or Child("witness.batch.worker")
        limits = Limits(job.limit, job.limit_memory)
        try:
            return outcome_from_json(child.ask({"job": job_to_json(job)}, limits=limits)[0]["outcome"])
        except ChildError as error:
            with self._lock:
                child.kill()
                self._child = None
            return _failed(job, error)


def _failed(job: Job, error: ChildError) -> Outcome:
    """What to say of a job whose worker gave no outcome."""
    if isinstance(error, TooSlowError):
        return Outcome(f"{job.source}: took longer than --limit-time {job.limit:g} s; raise it", 1)
    if isinstance(error, TooLargeError):
        allowed = f"{(job.limit_memory or 0) / 1e9:g} GB"
        return Outcome(f"{job.source}: took more memory than --limit-memory {allowed}; raise it", 1)
    fix = "export it again as WAV or FLAC; if it was memory, use fewer --jobs"
    cause = f"ended with {error}{error.last_words}" if isinstance(error, DiedError) else f"failed ({error})"
    return Outcome(f"{job.source}: the process that worked on it {cause}; {fix}", 1, again=True)


def memory() -> int | None:
    """Bytes that may be taken without harm, by what the system and its containers say; None: unknown."""
    found = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        found.append(int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024)
    with suppress(OSError, ValueError):  # "max" is no number
        group = Path("/sys/fs/cgroup")
        used = int((group / "memory.current").read_text())
        found.append(int((group / "memory.max").read_text()) - used)
    return min(found, default=None)
