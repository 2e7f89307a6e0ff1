"""What a request says, checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

if TYPE_CHECKING:
    from witness.serve.app_state import AppState

GONE = "there is no such transcript anymore; go back to the recordings"


def desk_of(request: Request) -> AppState:
    """What the handlers share."""
    desk: AppState = request.app.state.desk
    return desk


async def path_of(request: Request) -> Path:
    """The JSON of the transcript that a request is about. Raises HTTPException."""
    path = await run_in_threadpool(desk_of(request).library.find, request.path_params["id"])
    if path is None:
        raise HTTPException(404, GONE)
    return path


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request. Raises HTTPException."""
    try:
        given = await request.json()
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise HTTPException(400, "the request is not a JSON object")
    return given


def of(given: dict[str, Any], **kinds: type) -> dict[str, Any]:
    """These values of a request. Raises HTTPException for one that is missing, or of another type."""
    for key, kind in kinds.items():
        value = given.get(key)
        if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool):
            raise HTTPException(400, f"{key} is missing in the request, or no {kind.__name__}")
    return {key: given[key] for key in kinds}


def texts_of(given: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of texts in a request; empty if it is missing. Raises HTTPException."""
    found = given.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise HTTPException(400, f"{key} is not a list of texts")
    return tuple(found)
