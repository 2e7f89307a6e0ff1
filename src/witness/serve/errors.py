"""Errors: in the shape of OpenAI's API for programs, as text for whoever opens an address in a browser."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from witness.errors import ConflictError, InputError, OutputError, UsageError, WitnessError

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


def refused(request: Request, raised: Exception) -> Response:
    """The answer to an HTTPException, which handlers raise."""
    assert isinstance(raised, HTTPException)  # noqa: S101 - for mypy; Starlette calls it for no other
    return error(raised.status_code, raised.detail, raised.headers, request.headers.get("accept", ""))


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
    return error(status, str(raised), accept=request.headers.get("accept", ""), more=more)


HANDLERS = {HTTPException: refused, WitnessError: failed}
"""For Starlette."""
