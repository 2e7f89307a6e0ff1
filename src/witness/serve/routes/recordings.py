"""Recordings on their way to a transcript: sent, transcribed, canceled, tried again, and read meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from witness.errors import UsageError
from witness.serve.app_state import GONE, desk_of, queue_of
from witness.serve.queue import Queue
from witness.serve.roles import Endpoint, Role
from witness.serve.routes.home import show_page
from witness.serve.status import JobStatus, State
from witness.text import printable
from witness.work import overrides
from witness.work.overrides import JobOverrides

if TYPE_CHECKING:
    from witness.work.produce import Segment

ALIVE = 15.0
"""Seconds without an event after which a comment keeps the stream open."""
DEAF = 30.0
"""Seconds for a client to read an event."""
AGAIN = 2000
"""Milliseconds after which a browser comes back when the stream ends."""


def routes() -> list[Endpoint]:
    return [
        Endpoint("POST", "/api/recordings", Role.WRITE, send_recordings),
        Endpoint("POST", "/api/recordings/untranscribed", Role.WRITE, transcribe_the_rest),
        Endpoint("GET", "/api/events", Role.READ, stream_events),
        Endpoint("POST", "/api/jobs/{id}/cancel", Role.WRITE, cancel),
        Endpoint("POST", "/api/jobs/{id}/retry", Role.WRITE, retry),
        Endpoint("POST", "/api/jobs/{id}/dismiss", Role.WRITE, dismiss),
        Endpoint("GET", "/t/{id}/live", Role.READ, stream_text),
    ]


async def send_recordings(request: Request) -> Response:
    """Take the recordings of a form into the folder; all of them, or none if one is refused."""
    queue, desk = queue_of(request), desk_of(request)
    assert desk.uploads is not None  # noqa: S101 - it comes with the queue
    async with desk.uploads.received(request) as form:
        if not form.uploads:
            raise HTTPException(400, "no recording in the request; send it in a field with a file name")
        uploads = [(upload.path, upload.name) for upload in form.uploads]
        settings = [text for name, text in form.fields if name == "settings"]
        jobs = await run_in_threadpool(queue.add, uploads, parse_overrides(*settings[:1]))
    return JSONResponse({"jobs": [job.row() for job in jobs]}, 201)


async def transcribe_the_rest(request: Request) -> Response:
    """Queue all recordings below the folder that have no transcript."""
    queue, library = queue_of(request), desk_of(request).library
    changes = parse_overrides(await _text(request))
    jobs = await run_in_threadpool(queue.transcribe, library.untranscribed(), changes)
    library.changed()
    return JSONResponse({"jobs": [job.row() for job in jobs]}, 201)


def parse_overrides(text: str = "") -> JobOverrides:
    """Parse the settings of a request, a JSON object; empty: those of the desk. Raises UsageError."""
    try:
        settings = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        settings = None
    if not isinstance(settings, dict):
        raise UsageError("the settings are not a JSON object")
    return overrides.parse(settings)


async def _text(request: Request) -> str:
    return (await request.body()).decode("utf-8", "replace")


def cancel(request: Request) -> Response:
    """Cancel a recording that waits or is being transcribed."""
    return JSONResponse(queue_of(request).cancel(request.path_params["id"]).row())


async def retry(request: Request) -> Response:
    """Try a recording again, with the settings in the request, if any."""
    text = await _text(request)
    changes = parse_overrides(text) if text.strip() else None
    job = await run_in_threadpool(queue_of(request).retry, request.path_params["id"], changes)
    return JSONResponse(job.row())


def dismiss(request: Request) -> Response:
    """Forget that another transcription of a recording failed."""
    queue_of(request).dismiss(request.path_params["id"])
    desk_of(request).library.look()
    return JSONResponse({})


async def stream_events(request: Request) -> Response:
    """Send the status of all recordings of the queue, and each change, as server-sent events."""
    return EventStream(queue_of(request), _status_event)


# --- a recording while it is transcribed ---


def live_page(request: Request) -> Response:
    """Return the page of a recording without a transcript. Raises HTTPException if it is not in the queue."""
    _, job = _job(request)
    if job.state == "done":
        raise HTTPException(404, GONE)
    return show_page("live", role=request.state.user.role, name=printable(job.name))


async def stream_text(request: Request) -> Response:
    """Send the status of the recording, and its final text so far, as server-sent events."""
    queue, job = await run_in_threadpool(_job, request)
    return EventStream(queue, _NewText(job.id))


def live_sound(request: Request) -> Path:
    """Return the path of the recording. Raises HTTPException."""
    path = Path(_job(request)[1].source)
    # As for transcripts: no link leads out of the folder.
    if path.resolve() != path or not path.is_relative_to(desk_of(request).folder) or not path.is_file():
        raise HTTPException(404, "the recording is not in the folder")
    return path


def _job(request: Request) -> tuple[Queue, JobStatus]:
    """Return the queue, and the status of the recording in the address. Raises HTTPException."""
    desk, recording = desk_of(request), request.path_params["id"]
    if desk.queue is None:
        raise HTTPException(404, GONE)
    if not desk.queue.board.has(recording):  # it may have ended long ago
        row = desk.library.row(recording)
        if row is None or row.state not in ("failed", "canceled"):
            raise HTTPException(404, GONE)
        path, source = desk.library.path_of(row)
        if source is None:  # a file without a transcript
            raise HTTPException(422, row.why or GONE)
        output = path.relative_to(desk.folder).as_posix().removesuffix(".json")
        state: State = "failed" if row.state == "failed" else "canceled"
        job = JobStatus(row.id, source.name, state, why=row.why, output=output, source=str(source))
        desk.queue.board.put(job)
    return desk.queue, desk.queue.board.status(recording)


# --- server-sent events ---


def event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _status_event(job: JobStatus) -> str:
    return event("job", job.row())


class _NewText:
    """Makes the events of one recording; of its text, the new part."""

    def __init__(self, recording: str) -> None:
        self._recording = recording
        self._before: Sequence[Segment] = ()

    def __call__(self, job: JobStatus) -> str:
        if job.id != self._recording:
            return ""
        text, said = "", job.said
        if said and said != self._before:
            pairs = enumerate(zip(self._before, said, strict=False))
            first = next((number for number, (old, new) in pairs if old != new), None)
            if first is None:
                first = min(len(self._before), len(said))
            text = event("said", {"first": first, "segments": said[first:]})
            self._before = said
        return text + _status_event(job)


class EventStream(Response):
    """Server-sent events about the queue.

    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """

    media_type = "text/event-stream"

    def __init__(self, queue: Queue, write: Callable[[JobStatus], str]) -> None:
        """`write` makes the events of each status, or "". Raises BusyError if too many listen."""
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        loop, self._woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(self._woken.set)

        self._queue, self._write = queue, write
        self._listener = queue.board.listen(wake)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send events until the client leaves, does not read, or the queue ends."""
        gone = asyncio.ensure_future(wait_until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            text, spoken = f"retry: {AGAIN}\n\n", -ALIVE
            while not gone.done() and (news := self._take()) is not None:
                text += "".join(map(self._write, news))
                if text or time.monotonic() - spoken >= ALIVE:
                    spoken = time.monotonic()
                    body = {"type": "http.response.body", "body": (text or ": still here\n\n").encode()}
                    await asyncio.wait_for(send({**body, "more_body": True}), DEAF)
                text = ""
                woken = asyncio.ensure_future(self._woken.wait())
                either: set[asyncio.Future[Any]] = {woken, gone}
                await asyncio.wait(either, timeout=ALIVE, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
            await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), DEAF)
        except asyncio.TimeoutError:
            pass  # the client does not read
        finally:
            self._queue.board.forget(self._listener)
            gone.cancel()

    def _take(self) -> list[JobStatus] | None:
        self._woken.clear()
        return self._listener.take()


async def wait_until_gone(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
