"""The work that a request to OpenAI's interface waits for: its own, or that of the folder's queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from witness.errors import InputError, UsageError
from witness.formats.output_paths import name_of
from witness.formats.registry import Format
from witness.serve.editing import exports
from witness.serve.editing.worker import Worker
from witness.serve.queue import Queue
from witness.serve.routes.recordings import ALIVE, answered, left
from witness.serve.uploads import Upload
from witness.work.produce import Job, Outcome, Segment, Watcher

LONGEST = 6 * 3600.0
"""Seconds that a request may take once its recording is there."""
_STATUS = {UsageError.exit_code: 400, InputError.exit_code: 400}


@asynccontextmanager
async def working(queue: Queue, job: Job, recording: Upload, receive: Receive) -> AsyncIterator[Work]:
    """The work on a job, which ends at the latest when this is left."""
    work = Work(recording, receive)
    future = queue.submit(job, Watcher(work.hear, work.take))
    future.add_done_callback(lambda done: work.end(_outcome(done)))
    try:
        yield work
    finally:
        work.gone.cancel()
        if not future.done():  # also for a request that is canceled
            await asyncio.shield(asyncio.to_thread(queue.stop, future))


def _outcome(future: Future[Outcome]) -> Outcome | None:
    """None: there will be none."""
    return None if future.cancelled() or future.exception() is not None else future.result()


@asynccontextmanager
async def keeping(queue: Queue, folder: Path, recording: Upload, receive: Receive) -> AsyncIterator[Work]:
    """The work on a recording that goes into the folder, and on when this is left."""
    work = Work(recording, receive)
    with answered():
        (standing,) = await run_in_threadpool(queue.add, [(recording.path, recording.name)])
        work.result = folder / name_of(standing.output, Format.JSON)
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(look)

        def look() -> None:
            news = listener.take()
            for one in news or ():
                if one.id == standing.id:
                    work.hear(one.stage or one.state, one.share, 1.0)
                    work.take(0, one.said)
                    if one.state not in ("waiting", "working"):
                        done = one.state == "done"
                        work.end(Outcome() if done else Outcome(one.why or "it was canceled", 1))
            if news is None:
                work.end(None)

        listener = queue.board.listen(wake)
    try:
        yield work
    finally:
        work.gone.cancel()
        queue.board.forget(listener)


def export(editor: Worker, transcript: Path, files: Sequence[tuple[Format, Path]]) -> None:
    """Write a transcript in other formats. Raises WitnessError, OSError."""
    for form, path in files:
        path.write_bytes(editor.call(exports.content, transcript, form)[1])


class Work:
    """The work on a recording, for somebody who waits for it."""

    def __init__(self, recording: Upload, receive: Receive) -> None:
        self.news = ""
        """How far it is."""
        self.said: list[Segment] = []
        """What is final so far."""
        self.result: Path | None = None
        """The transcript, if it is kept."""
        self.gone = asyncio.ensure_future(left(receive))
        """Done when nobody waits anymore."""
        self._recording = recording
        self._loop = asyncio.get_running_loop()
        self._late = self._loop.time() + LONGEST
        self._outcome: asyncio.Future[Outcome | None] = self._loop.create_future()

    def hear(self, stage: str, done: float, total: float) -> None:
        """As `reporter.Progress`."""
        self.news = f"{stage} {100 * done / total:.0f} %" if total > 0 else stage

    def take(self, first: int, segments: Sequence[Segment]) -> None:
        """As `worker.Said`."""
        self.said += segments[max(0, len(self.said) - first) :]

    def end(self, outcome: Outcome | None) -> None:
        """Take what became of the work, in any thread; None: there is no outcome."""

        def take() -> None:
            if not self._outcome.done():
                self._outcome.set_result(outcome)

        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(take)

    async def ended(self, seconds: float = ALIVE) -> bool:
        """Whether the work ends within that time.

        Raises ClientDisconnect if nobody waits for it anymore, HTTPException if it failed or takes too long.
        """
        either: set[asyncio.Future[Any]] = {self._outcome, self.gone}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._outcome.done():
            self._check(self._outcome.result())
            return True
        if self.gone.done():
            raise ClientDisconnect
        if self._loop.time() > self._late:
            raise HTTPException(504, f"it took longer than {LONGEST / 3600:g} h; send a shorter recording")
        return False

    def _check(self, outcome: Outcome | None) -> None:
        if outcome is None:
            raise HTTPException(503, "the server is ending, or its worker cannot be started; try again later")
        if outcome.error is None:
            return
        status = 507 if outcome.full else _STATUS.get(outcome.code, 500)
        # It names the file on this machine, which is nothing that a client could know.
        raise HTTPException(status, outcome.error.replace(str(self._recording.path), self._recording.name))
