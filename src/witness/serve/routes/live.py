"""A recording while it is transcribed: the text that is final so far, and the sound to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from witness.serve import assets
from witness.serve.app_state import GONE, desk_of
from witness.serve.roles import Endpoint, Role
from witness.serve.routes.home import STYLES, template
from witness.serve.routes.recordings import EventStream, about_job, answered, event
from witness.serve.status import JobStatus, State
from witness.text import printable

if TYPE_CHECKING:
    from jinja2 import Template

    from witness.serve.app_state import AppState
    from witness.serve.queue import Queue
    from witness.work.produce import Segment


def routes() -> list[Endpoint]:
    """What the page listens to; the page itself stands where the transcript will be."""
    return [Endpoint("GET", "/t/{id}/live", Role.READ, live)]


def page(request: Request) -> Response:
    """The page of a recording that has no transcript yet. Raises HTTPException if there is none such."""
    _, standing = waited_for(request)
    if standing.state == "done":
        raise HTTPException(404, GONE)
    text = _page().render(
        role=request.state.user.role,
        name=printable(standing.name),
        styles=[assets.address(name) for name in STYLES],
        script=assets.script("web/lists/live.js"),
    )
    return Response(text, media_type="text/html")


async def live(request: Request) -> Response:
    """How it stands with the recording, and what was said in it as far as that is final."""
    queue, standing = await run_in_threadpool(waited_for, request)
    with answered():
        return EventStream(queue, _NewText(standing.id))


def waited_for(request: Request) -> tuple[Queue, JobStatus]:
    """The queue, and what it knows of the recording that a request is about. Raises HTTPException."""
    desk, recording = desk_of(request), request.path_params["id"]
    if desk.queue is None:
        raise HTTPException(404, GONE)
    if not desk.queue.board.has(recording):
        desk.queue.board.put(_undone(desk, recording))
    return desk.queue, desk.queue.board.status(recording)


def _undone(desk: AppState, recording: str) -> JobStatus:
    """How it ended with a recording of which the board has forgotten that. Raises HTTPException."""
    row = desk.library.row(recording)
    if row is None or row.state not in ("failed", "canceled"):
        raise HTTPException(404, GONE)
    place, source = desk.library.path_of(row)
    if source is None:  # a file that is no transcript
        raise HTTPException(422, row.why or GONE)
    output = place.relative_to(desk.folder).as_posix().removesuffix(".json")
    state: State = "failed" if row.state == "failed" else "canceled"
    return JobStatus(row.id, source.name, state, why=row.why, output=output, source=str(source))


def sound(request: Request) -> Path:
    """The recording itself. Raises HTTPException."""
    path = Path(waited_for(request)[1].source)
    # As for transcripts: no link leads out of the folder.
    if path.resolve() != path or not path.is_relative_to(desk_of(request).folder) or not path.is_file():
        raise HTTPException(404, "the recording is not in the folder")
    return path


class _NewText:
    """Makes events of the standings of one recording; of the text only what is new."""

    def __init__(self, recording: str) -> None:
        self._recording = recording
        self._before: Sequence[Segment] = ()

    def __call__(self, standing: JobStatus) -> str:
        if standing.id != self._recording:
            return ""
        text, said = "", standing.said
        if said and said != self._before:
            pairs = zip(self._before, said, strict=False)
            first = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
            if first is None:
                first = min(len(self._before), len(said))
            text = event("said", {"first": first, "segments": said[first:]})
            self._before = said
        return text + about_job(standing)


@cache
def _page() -> Template:
    return template("live.html.j2")
