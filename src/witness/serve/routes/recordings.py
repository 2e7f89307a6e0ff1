"""Recordings that are dropped into the page: sent, watched, canceled, tried again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from witness.errors import UsageError
from witness.serve.queue import Queue
from witness.serve.roles import Endpoint, Role
from witness.serve.status import BusyError, JobStatus, UnknownError
from witness.work import overrides
from witness.work.overrides import JobOverrides

ALIVE = 15.0
"""Seconds after which a comment says that the stream of events is still there."""
DEAF = 30.0
"""Seconds for a client to read what it was sent."""
AGAIN = 2000
"""Milliseconds after which a browser comes back when the stream ends."""


def routes() -> list[Endpoint]:
    """What the page needs of the queue."""
    return [
        Endpoint("POST", "/api/recordings", Role.WRITE, send_recordings),
        Endpoint("POST", "/api/recordings/untranscribed", Role.WRITE, transcribe_the_rest),
        Endpoint("GET", "/api/events", Role.READ, events),
        Endpoint("POST", "/api/jobs/{id}/cancel", Role.WRITE, cancel),
        Endpoint("POST", "/api/jobs/{id}/retry", Role.WRITE, retry),
        Endpoint("POST", "/api/jobs/{id}/dismiss", Role.WRITE, dismiss),
    ]


async def send_recordings(request: Request) -> Response:
    """Take the recordings of a form into the folder; all of them, or none if one is refused."""
    desk = request.app.state.desk
    async with desk.uploads.received(request) as form:
        if not form.uploads:
            raise HTTPException(400, "no recording in the request; send it in a field with a file name")
        with answered():
            uploads = [(upload.path, upload.name) for upload in form.uploads]
            given = [text for name, text in form.fields if name == "settings"]
            standings = await run_in_threadpool(desk.queue.add, uploads, wish_in(*given[:1]))
    rows = [standing.row() for standing in standings]
    return JSONResponse({"jobs": rows}, 201)


async def transcribe_the_rest(request: Request) -> Response:
    """Have all recordings that lie below the folder without a transcript worked on."""
    desk = request.app.state.desk
    wish = wish_in((await request.body()).decode("utf-8", "replace"))
    with answered():
        standings = await run_in_threadpool(desk.queue.transcribe, desk.library.untranscribed(), wish)
    desk.library.changed()
    return JSONResponse({"jobs": [standing.row() for standing in standings]}, 201)


def wish_in(text: str = "") -> JobOverrides:
    """What a request wants otherwise, a JSON object; nothing: all as at the desk. Raises UsageError."""
    try:
        given = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise UsageError("the settings are not a JSON object")
    return overrides.parse(given)


def cancel(request: Request) -> Response:
    """End the work on a recording, or its wait."""
    with answered():
        return JSONResponse(request.app.state.desk.queue.cancel(request.path_params["id"]).row())


async def retry(request: Request) -> Response:
    """Have another try, with other settings if some are given."""
    text = (await request.body()).decode("utf-8", "replace")
    wish = wish_in(text) if text.strip() else None
    with answered():
        queue, id_ = request.app.state.desk.queue, request.path_params["id"]
        return JSONResponse((await run_in_threadpool(queue.retry, id_, wish)).row())


def dismiss(request: Request) -> Response:
    """Tell no more that a recording could not be transcribed again."""
    desk = request.app.state.desk
    with answered():
        desk.queue.dismiss(request.path_params["id"])
    desk.library.look()
    return JSONResponse({})


async def events(request: Request) -> Response:
    """All recordings of the queue now, and each change: server-sent events."""
    with answered():
        return EventStream(request.app.state.desk.queue, about_job)


def about_job(standing: JobStatus) -> str:
    """The event that says how it stands with a recording."""
    return event("job", standing.row())


def event(kind: str, told: object) -> str:
    """A server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(told)}\n\n"


@contextmanager
def answered() -> Iterator[None]:
    """Those of the queue's errors as answers that `answers` does not know."""
    try:
        yield
    except UnknownError as error:
        raise HTTPException(404, str(error)) from error
    except BusyError as error:
        raise HTTPException(429, str(error), {"Retry-After": "30"}) from error


class EventStream(Response):
    """What somebody wants to know of the queue, as it comes.

    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """

    media_type = "text/event-stream"

    def __init__(self, queue: Queue, tell: Callable[[JobStatus], str]) -> None:
        """`tell` makes the events of each standing, or "". Raises BusyError if too many listen."""
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        loop, self._woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(self._woken.set)

        self._queue, self._tell = queue, tell
        self._listener = queue.board.listen(wake)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Tell until the client leaves, does not read, or the queue ends."""
        gone = asyncio.ensure_future(left(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            text, spoken = f"retry: {AGAIN}\n\n", -ALIVE
            while not gone.done() and (news := self._take()) is not None:
                text += "".join(map(self._tell, news))
                if text or time.monotonic() - spoken >= ALIVE:
                    spoken = time.monotonic()
                    body = {"type": "http.response.body", "body": (text or ": still here\n\n").encode()}
                    await asyncio.wait_for(send({**body, "more_body": True}), DEAF)
                text = ""
                await self._wait(gone)
            await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), DEAF)
        except asyncio.TimeoutError:
            pass  # nobody reads
        finally:
            self._queue.board.forget(self._listener)
            gone.cancel()

    def _take(self) -> list[JobStatus] | None:
        self._woken.clear()
        return self._listener.take()

    async def _wait(self, gone: asyncio.Future[None]) -> None:
        """Until there is news, the client has left, or it is time for a sign of life."""
        woken = asyncio.ensure_future(self._woken.wait())
        either: set[asyncio.Future[Any]] = {woken, gone}
        await asyncio.wait(either, timeout=ALIVE, return_when=asyncio.FIRST_COMPLETED)
        woken.cancel()


async def left(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
