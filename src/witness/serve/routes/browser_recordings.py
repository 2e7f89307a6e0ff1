"""Recordings that a browser makes: begun, added to while they are made, finished or discarded."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from witness.serve.app_state import AppState, body_of
from witness.serve.browser_recordings import OtherPlaceError, Take, Takes
from witness.serve.roles import Endpoint, Role
from witness.serve.routes.recordings import answered, wish_in
from witness.serve.uploads import clean


class Named(Struct):
    """The name of a recording."""

    name: str


def routes() -> list[Endpoint]:
    """What a page asks for that records."""
    return [
        Endpoint("POST", "/api/takes", Role.WRITE, begin),
        Endpoint("GET", "/api/takes", Role.READ, unfinished),
        Endpoint("POST", "/api/takes/{id}/pieces/{place:int}", Role.WRITE, add),
        Endpoint("POST", "/api/takes/{id}/finish", Role.WRITE, finish),
        Endpoint("POST", "/api/takes/{id}/discard", Role.WRITE, discard),
    ]


async def begin(request: Request) -> Response:
    """A new take, with a name."""
    body = await body_of(request, Named)
    take = await run_in_threadpool(_takes(request).begin, clean(body.name))
    return JSONResponse(_row(take), 201)


def unfinished(request: Request) -> Response:
    """All that are not finished; those of which pieces still come say so."""
    return JSONResponse({"takes": [_row(take) for take in _takes(request).unfinished()]})


async def add(request: Request) -> Response:
    """The next piece. 409 tells where it has to begin."""
    id_, place = request.path_params["id"], request.path_params["place"]
    piece = await request.body()
    try:
        return JSONResponse(_row(await run_in_threadpool(_takes(request).add, id_, place, piece)))
    except OtherPlaceError as error:
        return JSONResponse({"error": {"message": str(error)}, "size": error.size}, 409)


async def finish(request: Request) -> Response:
    """Take it into the folder as a recording, to be transcribed with the settings in the request, if any."""
    desk: AppState = request.app.state.desk
    takes, id_ = _takes(request), request.path_params["id"]
    assert desk.queue is not None  # noqa: S101 - as _takes has made sure of
    wish = wish_in((await request.body()).decode("utf-8", "replace"))
    sound = await run_in_threadpool(takes.sound, id_)
    with answered():
        standings = await run_in_threadpool(desk.queue.add, [sound], wish)
    await run_in_threadpool(takes.discard, id_)  # only its name is left
    return JSONResponse({"jobs": [standing.row() for standing in standings]}, 201)


async def discard(request: Request) -> Response:
    """Forget it."""
    await run_in_threadpool(_takes(request).discard, request.path_params["id"])
    return JSONResponse({})


def _takes(request: Request) -> Takes:
    desk: AppState = request.app.state.desk
    if desk.queue is None:
        raise HTTPException(503, "nothing can be recorded here")
    return desk.takes


def _row(take: Take) -> dict[str, Any]:
    date = datetime.fromtimestamp(take.changed, timezone.utc).isoformat(timespec="seconds")
    return {**asdict(take), "changed": date, "idle": take.idle}
