"""OpenAI's transcription interface, for programs that speak it already.

A request has its turn before the recordings of the folder and leaves nothing there. Who asks may leave at any
time, and the work ends with them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from witness.batch.worker import Job, Outcome, Settings
from witness.errors import InputError, UsageError
from witness.files import name_of
from witness.options import PageAudio
from witness.serve import answers, openai_wish
from witness.serve.openai_wish import Wish
from witness.serve.queue import Queue
from witness.serve.recordings import ALIVE, DEAF, left
from witness.serve.uploads import Form, Upload, drain

AT_ONCE = 8
"""Requests that may be sent, wait and be worked on at the same time."""
LONGEST = 6 * 3600.0
"""Seconds that a request may take once its recording is there."""
PACE = 1.0
"""Seconds between two comments of a stream."""


def routes() -> list[BaseRoute]:
    """The interface."""
    return [
        Route("/v1/models", list_models),
        Route("/v1/models/{name}", show_model),
        Route("/v1/audio/transcriptions", _Transcriptions(), methods=["POST"]),
    ]


async def list_models(request: Request) -> Response:
    """The names that a request may give as its model."""
    settings = await asyncio.wrap_future(request.app.state.desk.queue.settings())
    models = [_model(name) for name in openai_wish.models(settings)]
    return JSONResponse({"object": "list", "data": models})


async def show_model(request: Request) -> Response:
    """One of them."""
    settings = await asyncio.wrap_future(request.app.state.desk.queue.settings())
    if (name := request.path_params["name"]) not in openai_wish.models(settings):
        raise HTTPException(404, "there is no model of this name; GET /v1/models lists those that there are")
    return JSONResponse(_model(name))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "witness"}


class _Transcriptions:
    """An ASGI application: the recording must stay until the answer is sent."""

    def __init__(self) -> None:
        self._now = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Raises HTTPException, UsageError before anything is sent."""
        request = Request(scope, receive)
        if self._now >= AT_ONCE:
            await drain(request)
            raise HTTPException(429, f"{AT_ONCE} requests are at work; try again", {"Retry-After": "30"})
        self._now += 1
        desk = request.app.state.desk
        try:
            async with desk.uploads.received(request) as form:
                recording = _only(form)
                settings = await asyncio.wrap_future(desk.queue.settings())
                wish = openai_wish.wish(form.fields, settings)
                written = [Path(name_of(form.folder / "result", kind)) for kind in wish.formats]
                job = _job(recording, wish, written, settings)
                with suppress(ClientDisconnect):  # nobody reads an answer
                    async with _working(desk.queue, job, recording, receive) as work:
                        if wish.stream:
                            await _stream(work, wish, written, _patient(send))
                            return
                        while not await work.ended():
                            pass
                        body = await run_in_threadpool(openai_wish.answer, wish, written)
                        kind = openai_wish.TYPES.get(wish.response, "application/json")
                        await Response(body, media_type=kind)(scope, receive, _patient(send))
        finally:
            self._now -= 1


def _only(form: Form) -> Upload:
    """The recording of a form. Raises UsageError if there is not just one."""
    if [upload.field for upload in form.uploads] != ["file"]:
        raise UsageError("file: send one recording in the field `file`, with its file name")
    return form.uploads[0]


def _job(recording: Upload, wish: Wish, written: Sequence[Path], settings: Settings) -> Job:
    targets = tuple(zip(wish.formats, map(str, written), strict=True))
    page = PageAudio.NONE
    settings = replace(settings, options=wish.options, keep_stages=False, html_audio=page, pauses=None)
    return Job(str(recording.path), targets, settings)


def _patient(send: Send) -> Send:
    """Raises ClientDisconnect when what is sent is not read: it would be worked for nobody."""

    async def sending(message: Message) -> None:
        try:
            await asyncio.wait_for(send(message), DEAF)
        except asyncio.TimeoutError:
            raise ClientDisconnect from None

    return sending


@asynccontextmanager
async def _working(queue: Queue, job: Job, recording: Upload, receive: Receive) -> AsyncIterator[_Work]:
    """The work on a job, which ends at the latest when this is left."""
    work = _Work(recording, receive)
    future = queue.submit(job, work.hear)
    future.add_done_callback(work.end)
    try:
        yield work
    finally:
        work.gone.cancel()
        if not future.done():  # also for a request that is canceled
            await asyncio.shield(asyncio.to_thread(queue.stop, future))


class _Work:
    """The work on a recording, for somebody who waits for it."""

    def __init__(self, recording: Upload, receive: Receive) -> None:
        self.news = ""
        """How far it is."""
        self.gone = asyncio.ensure_future(left(receive))
        """Done when nobody waits anymore."""
        self._recording = recording
        self._loop = asyncio.get_running_loop()
        self._late = self._loop.time() + LONGEST
        self._outcome: asyncio.Future[Outcome | None] = self._loop.create_future()

    def hear(self, stage: str, done: float, total: float) -> None:
        """As `reporter.Progress`."""
        self.news = f"{stage} {100 * done / total:.0f} %" if total > 0 else stage

    def end(self, future: Future[Outcome]) -> None:
        """Take what became of the work, in any thread."""
        lost = future.cancelled() or future.exception() is not None
        outcome = None if lost else future.result()

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


_STATUS = {UsageError.exit_code: 400, InputError.exit_code: 400}


async def _stream(work: _Work, wish: Wish, written: Sequence[Path], send: Send) -> None:
    """Comments while the work is done, then the events. What fails is the last event."""
    headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def say(text: str, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": text.encode(), "more_body": more})

    try:
        await say(": begun\n\n")
        while not await work.ended(PACE):
            await say(f": {work.news}\n\n")
        for event in await run_in_threadpool(lambda: list(openai_wish.events(wish, written))):
            await say(f"data: {json.dumps(event)}\n\n")
    except HTTPException as error:
        await say(f"data: {bytes(answers.error(error.status_code, error.detail).body).decode()}\n\n")
    await say("data: [DONE]\n\n", more=False)
