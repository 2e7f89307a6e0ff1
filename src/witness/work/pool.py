"""Worker processes on this machine, which do jobs and are replaced when they die.

In a ProcessPoolExecutor, one worker that dies breaks it for all, no job can be stopped after a time, workers
outlive a parent that is killed, and Dask's processes may not have one at all.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from witness import machine_limits
from witness.child import Child, ChildError, DiedError, Limits, Message, TooLargeError, TooSlowError
from witness.errors import CancelledError
from witness.options import Device, Runtime
from witness.work.produce import Job, Outcome, Watcher, nothing_said
from witness.work.worker import from_json, to_json

TRIES = 2
"""Attempts at a recording whose worker dies: the fault may have been the worker's."""
PEAK = 1_500_000_000
"""Bytes of memory that a worker may take besides the recognizer's weights; measured:
docs/decisions/2026-11-22-constants.md."""


def worker_count(jobs: int | None, recordings: int, memory: int | None, weights: int = 0) -> int:
    """Return the number of workers without a card of their own: `jobs`, or one per core, if they all fit.

    `memory` is in bytes; None: unknown. Each worker has the recognizer's `weights`, in bytes.
    """
    room = max(1, memory // (PEAK + weights)) if memory is not None else machine_limits.cores()
    return max(1, min(jobs or machine_limits.cores(), room, recordings))


def worker_runtime(workers: int, device: Device, threads: int | None = None) -> Runtime:
    """Return the runtime of one of several workers; `threads` None: a fair share of the cores."""
    threads = threads or max(1, machine_limits.cores() // workers)
    # With one core each, words at the same time as the diarizer would be two threads on it.
    return Runtime(device, threads=threads, serial=threads == 1)


class Pool:
    """A context manager; `submit` gives a `concurrent.futures.Future`. Leaving it ends its processes."""

    def __init__(self, gpus: Sequence[int | None]) -> None:
        """Have one worker for each card; None: on the device of the job's runtime.

        A worker starts with its first job.
        """
        self._jobs: _Jobs = queue.SimpleQueue()
        self._closing = threading.Event()
        self._slots = [_Slot(gpu, self._jobs, self._closing) for gpu in gpus]
        self.workers = len(self._slots)

    def submit(self, job: Job, watcher: Watcher | None = None) -> Future[Outcome]:
        """Have a job done. Its future has an outcome also for a job that fails.

        A thread of the pool calls the watcher.
        """
        future: Future[Outcome] = Future()
        self._jobs.put((job, future, watcher))
        return future

    def stop(self, future: Future[Outcome]) -> None:
        """End a job of `submit`, if need be with its process.

        Its future is canceled, or raises CancelledError; one that is done does not change.
        """
        if not future.cancel():
            for slot in self._slots:
                slot.stop(future)

    def __enter__(self) -> Pool:
        for slot in self._slots:
            slot.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for slot in self._slots:
            slot.kill()
            self._jobs.put(None)
        for slot in self._slots:
            slot.join()


_Jobs = queue.SimpleQueue[tuple[Job, Future[Outcome], Watcher | None] | None]


class _Slot(threading.Thread):
    """One worker process after another, and the thread that talks to it."""

    def __init__(self, gpu: int | None, jobs: _Jobs, closing: threading.Event) -> None:
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
        request = {"job": to_json(job), "watched": watcher is not None}
        request["heard"] = watcher is not None and watcher.said is not nothing_said
        try:
            reply, _ = child.ask(request, limits=Limits(job.limit, job.limit_memory), hear=hear)
            return from_json(reply["outcome"], Outcome)
        except ChildError as error:
            with self._lock:
                child.kill()
                self._child = None
                if self._stopped:
                    raise CancelledError(f"{job.source}: canceled") from error
            return _failed(job, error)


def _failed(job: Job, error: ChildError) -> Outcome:
    """Return the outcome of a job whose worker gave none."""
    if isinstance(error, TooSlowError):
        return Outcome(f"{job.source}: took longer than --limit-time {job.limit:g} s; raise it", 1)
    if isinstance(error, TooLargeError):
        allowed = f"{(job.limit_memory or 0) / 1e9:g} GB"
        return Outcome(f"{job.source}: took more memory than --limit-memory {allowed}; raise it", 1)
    fix = "export it again as WAV or FLAC; if it was memory, use fewer --jobs"
    cause = f"ended with {error}{error.last_words}" if isinstance(error, DiedError) else f"failed ({error})"
    return Outcome(f"{job.source}: the process that worked on it {cause}; {fix}", 1, again=True)
