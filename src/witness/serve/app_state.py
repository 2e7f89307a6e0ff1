"""State that all requests share, and helpers that read a request."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive

from witness.options import Options, Runtime
from witness.serve.editing.worker import Worker
from witness.serve.library.library import Library
from witness.storage import files

if TYPE_CHECKING:
    from witness.serve.queue import Queue
    from witness.serve.uploads import Uploads

T = TypeVar("T")

LINGER = 1.0
"""Seconds to read the rest of a refused request."""
GONE = "there is no such transcript anymore; go back to the recordings"


KNOWN = "known"
"""The folder of the voices of known people, below the desk's."""


@dataclass(frozen=True)
class Quotas:
    """Limits of each request."""

    body: int = 8 << 20
    """Bytes of a request without recordings; the corrections of a day are smaller."""
    upload: int = 8 << 30
    """Bytes of a request with recordings."""
    patience: float = 30.0
    """Seconds without a byte after which a request is given up."""
    slowest: int = 1000
    """Bytes per second that a request must have on average, after `patience`."""


@dataclass(frozen=True)
class AppState:
    """The desk's folder, and the parts of the desk that work in it."""

    folder: Path
    """Absolute, without symbolic links."""
    token: str
    """Grants full access."""
    library: Library
    options: Options = field(default_factory=Options)
    """For new recordings."""
    runtime: Runtime = field(default_factory=Runtime)
    limits: Quotas = field(default_factory=Quotas)
    queue: Queue | None = None
    """None, like `uploads`: the desk takes no recordings."""
    uploads: Uploads | None = None
    editor: Worker = field(default_factory=Worker)
    """Works on the transcript of an open page."""
    finder: Worker = field(default_factory=Worker)
    """Reads recordings and searches all transcripts for a voice, which takes longer."""

    @property
    def known(self) -> Path:
        """The folder of the voices of known people, which may be missing. Raises ForeignError."""
        if self.options.known:
            return Path(self.options.known)
        files.refuse_link(self.folder / KNOWN)
        return self.folder / KNOWN


def desk_of(request: Request) -> AppState:
    desk: AppState = request.app.state.desk
    return desk


def queue_of(request: Request) -> Queue:
    """Return the queue. Raises HTTPException if the desk has none."""
    queue = desk_of(request).queue
    if queue is None:
        raise HTTPException(503, "this desk takes no recordings")
    return queue


async def discard(receive: Receive, limit: float = math.inf) -> None:
    """Read at most so many bytes that a client still sends, for a moment, so that it reads a refusal."""

    async def read() -> None:
        left = limit
        while left > 0 and (message := await receive()).get("more_body", False):
            left -= len(message.get("body", b""))

    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(read(), LINGER)


async def path_of(request: Request) -> Path:
    """Return the JSON of the transcript whose id is in the address. Raises HTTPException."""
    path = await run_in_threadpool(desk_of(request).library.find, request.path_params["id"])
    if path is None:
        raise HTTPException(404, GONE)
    return path


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
