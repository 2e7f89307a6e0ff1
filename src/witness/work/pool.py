"""Jobs -> futures of their outcomes, by worker processes on this machine that are replaced when they die.

Not concurrent.futures' own pool: there, one worker that dies breaks it for all, no job can be stopped after a
time, workers outlive a parent that is killed, and Dask's processes may not have one at all.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType

from witness.child import Child, ChildError, DiedError, Limits, Message, TooLargeError, TooSlowError
from witness.errors import CancelledError
from witness.work.produce import Job, Outcome, Watcher, nothing_said
from witness.work.worker import job_to_json, outcome_from_json

TRIES = 2
"""Attempts at a recording whose worker dies: the fault may have been the worker's."""


class Pool:
    """A context manager; `submit` gives a `concurrent.futures.Future`. Leaving it ends its processes."""

    def __init__(self, gpus: Sequence[int | None]) -> None:
        """One worker for each, on that card; None: on whatever the job's runtime says.

        A worker starts with its first job.
        """
        self._jobs: _Jobs = queue.SimpleQueue()
        self._closing = threading.Event()
        self._slots = [_Slot(gpu, self._jobs, self._closing) for gpu in gpus]
        self.workers = len(self._slots)

    def submit(self, job: Job, watcher: Watcher | None = None) -> Future[Outcome]:
        """Have a job done; whatever happens to it, the future has an outcome.

        `watcher` hears of it from a thread of the pool.
        """
        future: Future[Outcome] = Future()
        self._jobs.put((job, future, watcher))
        return future

    def stop(self, future: Future[Outcome]) -> None:
        """End a job that `submit` took, by ending its process if it is being worked on.

        Its future is canceled, or raises CancelledError; one that is done stays as it is.
        """
        if not future.cancel():
            for slot in self._slots:
                slot.stop(future)

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


_Jobs = queue.SimpleQueue[tuple[Job, Future[Outcome], Watcher | None] | None]


class _Slot(threading.Thread):
    """One worker process after another, and the thread that talks to it."""

    def __init__(
        self,
        gpu: int | None,
        jobs: _Jobs,
        closing: threading.Event,
    ) -> None:
        super().__init__(daemon=True)
        self._gpu = gpu
        self._jobs = jobs
        self._closing = closing
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._future: Future[Outcome] | None = None  # of the job at hand
        self._stopped = False

    def run(self) -> None:
        while (item := self._jobs.get()) is not None and not self._closing.is_set():
            job, future, watcher = item
            with self._lock:
                if not future.set_running_or_notify_cancel():
                    continue
                self._future, self._stopped = future, False
            if self._gpu is not None:
                runtime = replace(job.settings.runtime, gpu=self._gpu)
                job = replace(job, settings=replace(job.settings, runtime=runtime))
            try:
                future.set_result(self._perform(job, watcher))
            except Exception as error:  # no process can be started, say
                future.set_exception(error)
        self.kill()

    def stop(self, future: Future[Outcome]) -> None:
        """End the process if it works on the job of this future."""
        with self._lock:
            if self._future is future and not future.done():
                self._stopped = True
                if self._child is not None:
                    self._child.kill()

    def kill(self) -> None:
        """End the process at once; it holds nothing worth saving."""
        with self._lock:
            if self._child is not None:
                self._child.kill()

    def _perform(self, job: Job, watcher: Watcher | None) -> Outcome:
        outcome = Outcome()
        for _ in range(TRIES):
            outcome = self._ask(job, watcher)
            if not outcome.again or self._closing.is_set():
                break
        return replace(outcome, again=False)

    def _ask(self, job: Job, watcher: Watcher | None) -> Outcome:
        def hear(news: Message) -> None:
            if watcher is None:
                return
            if "said" in news:
                watcher.said(news["first"], news["said"])
            else:
                watcher.progress(news["stage"], news["done"], news["total"])

        with self._lock:
            if self._stopped:
                raise CancelledError(f"{job.source}: canceled")
            if self._closing.is_set():
                return Outcome(f"{job.source}: interrupted; run the same command again to continue", 1)
            child = self._child = self._child or Child("witness.work.worker")
        request = {"job": job_to_json(job), "watched": watcher is not None}
        request["heard"] = watcher is not None and watcher.said is not nothing_said
        try:
            reply, _ = child.ask(request, limits=Limits(job.limit, job.limit_memory), hear=hear)
            return outcome_from_json(reply["outcome"])
        except ChildError as error:
            with self._lock:
                child.kill()
                self._child = None
                if self._stopped:
                    raise CancelledError(f"{job.source}: canceled") from error
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
