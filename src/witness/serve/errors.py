"""Error answers: in the shape of OpenAI's API for programs, as text for people in a browser."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Match

from witness.errors import ConflictError, InputError, OutputError, UsageError, WitnessError
from witness.serve.library.index import DamagedError
from witness.serve.queue import BusyError, UnknownError

if TYPE_CHECKING:
    from witness.serve.app_state import AppState

PATH = re.compile(r"(?<![\w./:@-])/(?!v1/)(?:[\w.@+-]+/)+([\w.@+-]+)")
"""An absolute path, and its last part; no address of the web."""
PROGRAMS = "/v1/"
"""Prefix of the addresses for programs, also on other machines."""
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
    """A field of a request has a bad value."""

    def __init__(self, param: str, why: str, code: str | None = None) -> None:
        super().__init__(f"{param}: {why}")
        self.param = param
        self.code = code


STATUSES: tuple[tuple[type[Exception], int, int | None], ...] = (
    (UnknownError, 404, None),
    (BusyError, 429, 30),
    (DamagedError, 503, 5),
    (UsageError, 400, None),
    (ConflictError, 409, None),
    (InputError, 422, None),
    (OutputError, 507, None),
    (sqlite3.OperationalError, 503, 5),
    (WitnessError, 500, None),
)
"""Errors, their status, and the seconds after which a client may try again."""


def error(
    status: int,
    message: str,
    headers: Mapping[str, str] | None = None,
    accept: str = "",
    more: Mapping[str, str | None] = {},
) -> Response:
    """Return the answer with a message; `accept` is the request's header."""
    if "text/html" in accept:
        return PlainTextResponse(f"{message}\n", status, headers)
    name = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    content = {"message": message, "type": name, "param": None, "code": CODES.get(status), **more}
    return JSONResponse({"error": content}, status, headers)


def public(message: str, desk: AppState) -> str:
    """Return a message for a program on another machine: files by their names, without their folders."""
    chosen = [path for path in (desk.options.whisper, desk.options.models, desk.options.known) if path]
    folders = {str(desk.folder), str(Path.home()), *(str(Path(path).absolute().parent) for path in chosen)}
    for folder in sorted(folders - {"/"}, key=len, reverse=True):
        message = re.sub(rf"{re.escape(folder)}[/\\](?:[^/\\\s:;,]+[/\\])*", "", message)
    return PATH.sub(r"\1", message)


def answer(request: Request, raised: Exception) -> Response:
    """Answer to an error, whose message names the cure."""
    message, headers, more = str(raised), None, dict[str, str | None]()
    if isinstance(raised, HTTPException):
        status, message, headers = raised.status_code, raised.detail, raised.headers
        if status == 405:  # Starlette names the methods of the first route alone
            routes = [route for route in request.app.routes if route.matches(request.scope)[0] != Match.NONE]
            headers = {"Allow": ", ".join(sorted(set[str]().union(*(route.methods for route in routes))))}
    else:
        status, retry = next((code, wait) for name, code, wait in STATUSES if isinstance(raised, name))
        headers = {"Retry-After": str(retry)} if retry else None
    if isinstance(raised, FieldError):
        status = 404 if raised.code == "model_not_found" else status
        more = {"param": raised.param, "code": raised.code}
    elif isinstance(raised, ConflictError) and raised.version:
        more = {"version": raised.version}  # for clients that put their change on top of it
    elif isinstance(raised, sqlite3.Error):
        message = f"the index cannot be used ({message}); try again"
    if request.url.path.startswith(PROGRAMS):
        message = public(message, request.app.state.desk)
    return error(status, message, headers, request.headers.get("accept", ""), more)


HANDLERS = dict.fromkeys((HTTPException, WitnessError, sqlite3.OperationalError), answer)
"""For Starlette."""
