"""Endpoints: a method of an address, the least role that may use it, and a handler."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction, isfunction
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from witness.serve.app_state import AppState
from witness.serve.queue import Queue
from witness.serve.roles import Role

T = TypeVar("T")

GONE = "there is no such transcript anymore; go back to the recordings"


class Endpoint(Route):
    """One method of an address, and the least role that may use it.

    Each method has its own handler, so that no handler asks for the method: GET's answers HEAD, too. A
    handler runs in a thread, with those of these arguments that it names: `request`; `desk`; `queue`, without
    which the request is refused; `id_` of the address; `path`, that of the JSON of the transcript with this
    id; `content`, the request's bytes; `body`, the JSON in them, in the type of the parameter. It returns a
    response, or a value for one in JSON. An `async` one runs in the server's thread, and gets the request
    alone; so does an ASGI application.
    """

    def __init__(self, method: str, path: str, least: Role, handler: Callable[..., Any]) -> None:
        in_thread = isfunction(handler) and not iscoroutinefunction(handler)
        super().__init__(path, _answers(handler) if in_thread else handler, methods=[method])
        self.least = least


def _answers(handler: Callable[..., Any]) -> Callable[[Request], Any]:
    needs = get_type_hints(handler)

    async def answer(request: Request) -> Response:
        arguments: dict[str, Any] = {}
        if "content" in needs:
            arguments["content"] = await request.body()
        if "body" in needs:
            arguments["body"] = await body_of(request, needs["body"])
        return await run_in_threadpool(run, request, arguments)

    def run(request: Request, arguments: dict[str, Any]) -> Response:
        arguments |= {name: get(request) for name, get in _ARGUMENTS.items() if name in needs}
        result = handler(**arguments)
        return result if isinstance(result, Response) else respond(result)

    return answer


def desk_of(request: Request) -> AppState:
    desk: AppState = request.app.state.desk
    return desk


def queue_of(request: Request) -> Queue:
    """Return the queue. Raises HTTPException if the desk has none."""
    queue = desk_of(request).queue
    if queue is None:
        raise HTTPException(503, "this desk takes no recordings")
    return queue


def path_of(request: Request) -> Path:
    """Return the JSON of the transcript whose id is in the address. Raises HTTPException."""
    return existing(desk_of(request), request.path_params["id"])


def existing(desk: AppState, id_: str) -> Path:
    """Return the JSON of the transcript with an id. Raises HTTPException for an unknown id."""
    path = desk.library.find(id_)
    if path is None:
        raise HTTPException(404, GONE)
    return path


_ARGUMENTS: dict[str, Callable[[Request], Any]] = {
    "request": lambda request: request,
    "id_": lambda request: request.path_params["id"],
    "desk": desk_of,
    "queue": queue_of,
    "path": path_of,
}


async def body_of(request: Request, expected: type[T]) -> T:
    """Return the JSON in a request, which has the type `expected`. Raises HTTPException."""
    try:
        return msgspec.convert(await request.json(), expected)
    except msgspec.ValidationError as error:
        raise HTTPException(400, f"the request cannot be used ({error})") from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the request is not JSON") from error


def respond(value: Any, status: int = 200) -> Response:
    """Return a value of msgspec's types as JSON."""
    return JSONResponse(msgspec.to_builtins(value), status)
