"""Jobs -> futures of their outcomes, in child processes of this machine that are replaced when they die.

Not concurrent.futures' own pool: one worker that dies there breaks it for all, nothing in it can be stopped
after a time, its workers outlive a parent that is killed, and Dask's processes may not have one at all.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from witness.batch.worker import Job, Outcome, job_to_json, outcome_from_json

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
        self._child: subprocess.Popen[bytes] | None = None
        self._log = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 - closed when the thread ends
        self._late = False

    def run(self) -> None:
        with self._log:
            while (item := self._jobs.get()) is not None and not self._closing.is_set():
                job, future = item
                if not future.set_running_or_notify_cancel():
                    continue
                settings = replace(job.settings, runtime={**job.settings.runtime, **self._own})
                try:
                    future.set_result(self._perform(replace(job, settings=settings)))
                except Exception as error:  # no process can be started, say
                    future.set_exception(error)
            if self._child is not None:
                self._clear(self._child)

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
            child = self._child = self._child or self._start()
        stdin, stdout = cast("tuple[IO[bytes], IO[bytes]]", (child.stdin, child.stdout))
        self._late = False
        timer = threading.Timer(job.limit, self._stop) if job.limit is not None else None
        if timer is not None:
            timer.start()
        try:
            with suppress(OSError):  # it is dead, and the reply that does not come says so
                stdin.write(job_to_json(job).encode() + b"\n")
                stdin.flush()
            line = stdout.readline()
        finally:
            if timer is not None:
                timer.cancel()
        if line.endswith(b"\n") and not self._late:
            return outcome_from_json(line)
        return self._bury(child, job)

    def _stop(self) -> None:
        self._late = True
        self.kill()

    def _bury(self, child: subprocess.Popen[bytes], job: Job) -> Outcome:
        """What to say of a job whose worker is dead or was stopped."""
        code = self._clear(child)
        if self._late:
            return Outcome(f"{job.source}: took longer than --limit-time {job.limit:g} s; raise it", 1)
        self._log.seek(0)
        lines = [" ".join(line.split()) for line in self._log.read().decode("utf-8", "replace").splitlines()]
        last = next((f" ({line[-200:]})" for line in reversed(lines) if line), "")
        try:
            cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        except ValueError:
            cause = f"signal {-code}"
        cure = "export it again as WAV or FLAC; if it was memory, use fewer --jobs"
        return Outcome(
            f"{job.source}: the process that worked on it ended with {cause}{last}; {cure}", 1, again=True
        )

    def _clear(self, child: subprocess.Popen[bytes]) -> int:
        """End a process and leave nothing of it; its exit code."""
        child.kill()
        code = child.wait()
        for pipe in (child.stdin, child.stdout):
            with suppress(OSError):  # about a job that was never read
                cast("IO[bytes]", pipe).close()
        with self._lock:
            self._child = None
        return code

    def _start(self) -> subprocess.Popen[bytes]:
        self._log.seek(0)
        self._log.truncate()
        pipe = subprocess.PIPE
        # `python -m` looks for modules in the current folder first: not in the user's, with a queue.py say.
        return subprocess.Popen(
            [sys.executable, "-m", "witness.batch.worker"],
            stdin=pipe,
            stdout=pipe,
            stderr=self._log,
            cwd=Path(__file__).parents[2],
            # As the command line does it for itself: the stages bring their own threads.
            env={"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **os.environ},
        )


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
