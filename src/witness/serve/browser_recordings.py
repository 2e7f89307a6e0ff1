"""Recordings that a browser makes: they arrive in pieces, and survive a crash of the browser or the server.

A take is a folder in a hidden folder of the desk, with the sound so far and the name. Finishing it makes it a
recording of the desk; any page may do so.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from witness.errors import InputError, OutputError
from witness.serve.app_state import body_of, desk_of, queue_of
from witness.serve.roles import Endpoint, Role
from witness.serve.routes.recordings import parse_overrides
from witness.serve.uploads import ROOM, clean
from witness.storage import files

PLACE = ".witness-takes"
OURS = re.compile(r"[0-9a-f]{16}")
MOST = 50
"""Unfinished takes."""
IDLE = 15.0
"""Seconds without a piece after which the page that made a take seems gone."""


class OffsetError(Exception):
    """A piece does not begin at the end of the sound so far."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the next piece begins at {size}")
        self.size = size
        """Bytes of the sound so far."""


@dataclass(frozen=True)
class Take:
    """An unfinished recording."""

    id: str
    name: str
    """File name for the finished recording."""
    size: int
    changed: float
    """Time of the latest piece, in seconds since 1970."""

    def row(self) -> dict[str, Any]:
        """Return it as JSON."""
        date = datetime.fromtimestamp(self.changed, timezone.utc).isoformat(timespec="seconds")
        idle = time.time() - self.changed > IDLE
        return {"id": self.id, "name": self.name, "size": self.size, "changed": date, "idle": idle}


class Takes:
    """The takes of a folder. Any thread may call."""

    def __init__(self, folder: Path, largest: int) -> None:
        """Keep takes of at most `largest` bytes in the desk's folder."""
        self._folder, self._largest = folder / PLACE, largest
        self._lock = threading.Lock()

    def begin(self, name: str) -> Take:
        """Make a take. Raises OutputError, InputError if there are too many."""
        with self._lock:
            if len(self.unfinished()) >= MOST:
                raise InputError(f"{MOST} recordings are not finished; finish or discard some first")
            take = secrets.token_hex(8)
            try:
                files.own_folder(self._folder)
                (self._folder / take).mkdir(0o700)
                self._sound(take).touch(0o600)
                (self._folder / take / "name").write_text(name, "utf-8")
            except OSError as error:
                raise OutputError(f"{self._folder}: cannot be written ({error.strerror})") from error
            return self._read(take)

    def add(self, take: str, offset: int, piece: bytes) -> Take:
        """Write a piece to the disk. Raises OffsetError, InputError, OutputError."""
        with self._lock:
            before = self._read(take)
            if offset != before.size:
                raise OffsetError(before.size)
            if before.size + len(piece) > self._largest:
                raise InputError("the recording is too long; finish it, and begin another one")
            try:
                if shutil.disk_usage(self._folder).free - ROOM < len(piece):
                    raise OutputError("the disk is full; free some space; the recording continues meanwhile")
                with os.fdopen(files.own(self._sound(take), os.O_WRONLY | os.O_APPEND), "ab") as file:
                    file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise OutputError(f"the recording cannot be written ({error.strerror})") from error
            return self._read(take)

    def unfinished(self) -> list[Take]:
        """Return all takes, the latest last."""
        takes = []
        with suppress(OSError):
            for path in self._folder.iterdir():
                with suppress(InputError):  # it was finished meanwhile, or is just begun
                    takes.append(self._read(path.name))
        return sorted(takes, key=lambda take: take.changed)

    def sound(self, take: str) -> tuple[Path, str]:
        """Return the file of a take, and the name for it. Raises InputError if it is empty."""
        before = self._read(take)
        if not before.size:
            raise InputError("nothing was recorded; discard it, and record again")
        return self._sound(take), before.name

    def discard(self, take: str) -> None:
        """Delete a take, whose sound may have been moved away. Raises InputError."""
        with self._lock:
            self._read(take, moved=True)
            shutil.rmtree(self._folder / take, ignore_errors=True)

    def _sound(self, take: str) -> Path:
        return self._folder / take / "sound"

    def _read(self, take: str, *, moved: bool = False) -> Take:
        folder = self._folder / take
        try:
            if not OURS.fullmatch(take):
                raise FileNotFoundError
            for path in (folder / "name", self._sound(take)):
                files.refuse_link(path, self._folder.parent)
            name = files.read(folder / "name").decode()
            status = folder.stat() if moved else self._sound(take).stat()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("there is no such recording anymore") from error
        return Take(take, name, 0 if moved else status.st_size, status.st_mtime)


# --- routes ---


class RecordingName(Struct):
    """The name of a recording."""

    name: str


def routes() -> list[Endpoint]:
    return [
        Endpoint("POST", "/api/takes", Role.WRITE, begin),
        Endpoint("GET", "/api/takes", Role.READ, list_unfinished),
        Endpoint("POST", "/api/takes/{id}/pieces/{place:int}", Role.WRITE, add),
        Endpoint("POST", "/api/takes/{id}/finish", Role.WRITE, finish),
        Endpoint("POST", "/api/takes/{id}/discard", Role.WRITE, discard),
    ]


async def begin(request: Request) -> Response:
    """Begin a take."""
    body = await body_of(request, RecordingName)
    take = await run_in_threadpool(_takes(request).begin, clean(body.name))
    return JSONResponse(take.row(), 201)


async def list_unfinished(request: Request) -> Response:
    """List the unfinished takes; `idle` ones get no pieces anymore."""
    takes = await run_in_threadpool(_takes(request).unfinished)
    return JSONResponse({"takes": [take.row() for take in takes]})


async def add(request: Request) -> Response:
    """Add a piece; the answer with status 409 has the offset of the next one."""
    id_, offset = request.path_params["id"], request.path_params["place"]
    piece = await request.body()
    try:
        return JSONResponse((await run_in_threadpool(_takes(request).add, id_, offset, piece)).row())
    except OffsetError as error:
        return JSONResponse({"error": {"message": str(error)}, "size": error.size}, 409)


async def finish(request: Request) -> Response:
    """Move a take into the folder as a recording, and queue it with the settings in the request, if any."""
    takes, id_ = _takes(request), request.path_params["id"]
    overrides = parse_overrides((await request.body()).decode("utf-8", "replace"))
    sound = await run_in_threadpool(takes.sound, id_)
    jobs = await run_in_threadpool(queue_of(request).add, [sound], overrides)
    await run_in_threadpool(takes.discard, id_)  # only its name is left
    return JSONResponse({"jobs": [job.row() for job in jobs]}, 201)


async def discard(request: Request) -> Response:
    """Delete a take."""
    await run_in_threadpool(_takes(request).discard, request.path_params["id"])
    return JSONResponse({})


def _takes(request: Request) -> Takes:
    queue_of(request)  # refuses on a desk that takes no recordings
    desk, state = desk_of(request), request.app.state
    if not hasattr(state, "takes"):  # all handlers run in one thread, so there is one lock
        state.takes = Takes(desk.folder, desk.limits.upload)
    takes: Takes = state.takes
    return takes
