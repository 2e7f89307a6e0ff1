"""Errors: in the shape of OpenAI's API for programs, as text for whoever opens an address in a browser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Match

from witness.errors import ConflictError, InputError, OutputError, UsageError, WitnessError

if TYPE_CHECKING:
    from witness.serve.app_state import AppState

PATH = re.compile(r"(?<![\w./:@-])/(?!v1/)(?:[\w.@+-]+/)+([\w.@+-]+)")
"""An absolute path, and its last part; no address of the web."""
PUBLIC = "/v1/"
"""What the addresses for programs elsewhere begin with."""
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
"""OpenAI's words for a status; others are "invalid_request_error" below 500 and "server_error" above."""
CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
"""OpenAI's codes for a status."""


class FieldError(UsageError):
    """A field of a request that cannot be honored."""

    def __init__(self, param: str, why: str, code: str | None = None) -> None:
        super().__init__(f"{param}: {why}")
        self.param = param
        self.code = code


def error(
    status: int,
    message: str,
    headers: Mapping[str, str] | None = None,
    accept: str = "",
    more: Mapping[str, str | None] = {},
) -> Response:
    """The answer that says what is wrong; `accept` is what the request says of itself."""
    if "text/html" in accept:
        return PlainTextResponse(f"{message}\n", status, headers)
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    rest = {"param": None, "code": CODES.get(status), **more}
    content = {"error": {"message": message, "type": kind, **rest}}
    return JSONResponse(content, status, headers)


def public(message: str, desk: AppState) -> str:
    """A message for a program elsewhere: files of this machine by their names, without where they are."""
    chosen = [one for one in (desk.options.whisper, desk.options.models, desk.options.known) if one]
    places = {str(desk.folder), str(Path.home()), *(str(Path(one).absolute().parent) for one in chosen)}
    for place in sorted(places - {"/"}, key=len, reverse=True):
        message = re.sub(rf"{re.escape(place)}[/\\](?:[^/\\\s:;,]+[/\\])*", "", message)
    return PATH.sub(r"\1", message)


def refused(request: Request, raised: Exception) -> Response:
    """The answer to an HTTPException, which handlers raise."""
    assert isinstance(raised, HTTPException)  # noqa: S101 - for mypy; Starlette calls it for no other
    message, headers = _told(request, raised.detail), raised.headers
    if raised.status_code == 405:  # Starlette names the methods of the first route alone
        matching = [route for route in request.app.routes if route.matches(request.scope)[0] != Match.NONE]
        headers = {"Allow": ", ".join(sorted(set[str]().union(*(route.methods for route in matching))))}
    return error(raised.status_code, message, headers, request.headers.get("accept", ""))


def failed(request: Request, raised: Exception) -> Response:
    """The answer to a WitnessError, whose message names the fix."""
    status = 500
    more: dict[str, str | None] = {}
    if isinstance(raised, FieldError):
        status = 404 if raised.code == "model_not_found" else 400
        more = {"param": raised.param, "code": raised.code}
    elif isinstance(raised, UsageError):
        status = 400
    elif isinstance(raised, ConflictError):
        status = 409
    elif isinstance(raised, InputError):
        status = 422
    elif isinstance(raised, OutputError):
        status = 507
    # What is there now, for whoever wants to put their change on top of it.
    if isinstance(raised, ConflictError) and raised.version:
        more = {"version": raised.version}
    message = _told(request, str(raised))
    return error(status, message, accept=request.headers.get("accept", ""), more=more)


def _told(request: Request, message: str) -> str:
    return public(message, request.app.state.desk) if request.url.path.startswith(PUBLIC) else message


HANDLERS = {HTTPException: refused, WitnessError: failed}
"""For Starlette."""
