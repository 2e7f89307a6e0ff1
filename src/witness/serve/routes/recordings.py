"""Recordings on their way to a transcript: sent, transcribed, canceled, tried again, and read meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from witness.errors import UsageError
from witness.serve.app_state import AppState
from witness.serve.endpoints import GONE, Endpoint, desk_of, queue_of, respond
from witness.serve.queue import JobStatus, Queue, State
from witness.serve.roles import Role
from witness.serve.routes.home import show_page
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
    return rows(jobs)


def rows(jobs: Sequence[JobStatus]) -> Response:
    """Return the statuses of recordings that were queued."""
    return respond({"jobs": [job.row() for job in jobs]}, 201)


def transcribe_the_rest(desk: AppState, queue: Queue, content: bytes) -> Response:
    """Queue all recordings below the folder that have no transcript."""
    jobs = queue.transcribe(desk.library.untranscribed(), parse_overrides(content))
    desk.library.changed()
    return rows(jobs)


def parse_overrides(text: str | bytes = "") -> JobOverrides:
    """Parse the settings of a request, a JSON object; empty: those of the desk. Raises UsageError."""
    try:
        settings = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        settings = None
    if not isinstance(settings, dict):
        raise UsageError("the settings are not a JSON object")
    return overrides.parse(settings)


def cancel(queue: Queue, id_: str) -> dict[str, Any]:
    """Cancel a recording that waits or is being transcribed."""
    return queue.cancel(id_).row()


def retry(queue: Queue, id_: str, content: bytes) -> dict[str, Any]:
    """Try a recording again, with the settings in the request, if any."""
    return queue.retry(id_, parse_overrides(content) if content.strip() else None).row()


def dismiss(desk: AppState, queue: Queue, id_: str) -> dict[str, Any]:
    """Forget that another transcription of a recording failed."""
    queue.dismiss(id_)
    desk.library.look()
    return {}


async def stream_events(request: Request) -> Response:
    """Send the status of all recordings of the queue, and each change, as server-sent events."""
    return _stream(queue_of(request), _status_event)


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
    return _stream(queue, _NewText(job.id))


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


class EventStream(StreamingResponse):
    """Server-sent events, until the client leaves or does not read.

    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str], headers: Mapping[str, str] = {}) -> None:
        super().__init__(events, headers={"X-Accel-Buffering": "no", **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""

        async def sending(message: Message) -> None:
            try:
                await asyncio.wait_for(send(message), DEAF)
            except asyncio.TimeoutError:
                raise ClientDisconnect from None

        with suppress(ClientDisconnect):
            await super().__call__(scope, receive, sending)


def _stream(queue: Queue, write: Callable[[JobStatus], str]) -> Response:
    """Stream what `write` makes of each status of the queue. Raises BusyError if too many listen."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(woken.set)

    listener = queue.board.listen(wake)

    async def events() -> AsyncIterator[str]:
        text, spoken = f"retry: {AGAIN}\n\n", -ALIVE
        try:
            while (news := listener.take()) is not None:
                text += "".join(map(write, news))
                if text or time.monotonic() - spoken >= ALIVE:
                    spoken = time.monotonic()
                    yield text or ": still here\n\n"
                text = ""
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(woken.wait(), ALIVE)
                woken.clear()
        finally:
            queue.board.forget(listener)

    return EventStream(events())


async def wait_until_gone(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
