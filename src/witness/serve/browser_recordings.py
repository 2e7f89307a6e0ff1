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
from starlette.requests import Request
from starlette.responses import Response

from witness.errors import InputError, OutputError, writing
from witness.serve.app_state import AppState
from witness.serve.endpoints import Endpoint, respond
from witness.serve.queue import Queue
from witness.serve.roles import Role
from witness.serve.routes.recordings import parse_overrides, rows
from witness.serve.uploads import ROOM, clean
from witness.storage import atomic, files

PLACE = ".witness-takes"
OURS = re.compile(r"[0-9a-f]{16}")
MOST = 50
"""Unfinished takes."""
IDLE = 15.0
"""Seconds without a piece after which the page that made a take seems gone."""


_lock = threading.Lock()
"""Of each change to a take."""


class RecordingName(Struct):
    """The name of a recording."""

    name: str


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


def routes() -> list[Endpoint]:
    return [
        Endpoint("POST", "/api/takes", Role.WRITE, begin),
        Endpoint("GET", "/api/takes", Role.READ, list_unfinished),
        Endpoint("POST", "/api/takes/{id}/pieces/{place:int}", Role.WRITE, add),
        Endpoint("POST", "/api/takes/{id}/finish", Role.WRITE, finish),
        Endpoint("POST", "/api/takes/{id}/discard", Role.WRITE, discard),
    ]


def begin(queue: Queue, body: RecordingName) -> Response:
    """Begin a take. Raises OutputError, InputError if there are too many."""
    name, id_ = clean(body.name), secrets.token_hex(8)
    with _lock:
        if len(unfinished(queue.folder)) >= MOST:
            raise InputError(f"{MOST} recordings are not finished; finish or discard some first")
        takes = queue.folder / PLACE
        with writing(takes):
            files.own_folder(takes)
            atomic.make_folder(takes / id_, 0o700)
            _sound(queue, id_).touch(0o600)
            atomic.replace(name.encode(), takes / id_ / "name")
        return respond(_read(queue.folder, id_).row(), 201)


def list_unfinished(queue: Queue) -> dict[str, Any]:
    """List the unfinished takes; `idle` ones get no pieces anymore."""
    return {"takes": [take.row() for take in unfinished(queue.folder)]}


def add(request: Request, desk: AppState, queue: Queue, id_: str, content: bytes) -> Response:
    """Write a piece to the disk; the answer with status 409 has the offset of the next one."""
    with _lock:
        size = _read(queue.folder, id_).size
        if request.path_params["place"] != size:
            message = f"the next piece begins at {size}"
            return respond({"error": {"message": message}, "size": size}, 409)
        if size + len(content) > desk.limits.upload:
            raise InputError("the recording is too long; finish it, and begin another one")
        with writing("the recording"):
            if shutil.disk_usage(queue.folder).free - ROOM < len(content):
                raise OutputError("the disk is full; free some space; the recording continues meanwhile")
            handle = files.own(_sound(queue, id_), os.O_WRONLY | os.O_APPEND)
            with os.fdopen(handle, "ab", buffering=0) as file:
                try:
                    left = memoryview(content)
                    while left:
                        left = left[file.write(left) :]
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(size)  # or the next attempt does not fit
                    raise
        return respond(_read(queue.folder, id_).row())


def finish(queue: Queue, id_: str, content: bytes) -> Response:
    """Move a take into the folder as a recording, and queue it with the settings in the request, if any."""
    overrides = parse_overrides(content)
    take = _read(queue.folder, id_)
    if not take.size:
        raise InputError("nothing was recorded; discard it, and record again")
    jobs = queue.add([(_sound(queue, id_), take.name)], overrides)
    _delete(queue, id_)  # only its name is left
    return rows(jobs)


def discard(queue: Queue, id_: str) -> dict[str, Any]:
    """Delete a take."""
    _read(queue.folder, id_)
    _delete(queue, id_)
    return {}


def unfinished(folder: Path) -> list[Take]:
    """Return all takes of a desk, the latest last."""
    takes = []
    with suppress(OSError):
        for path in (folder / PLACE).iterdir():
            with suppress(InputError):  # it was finished meanwhile, or is just begun
                takes.append(_read(folder, path.name))
    return sorted(takes, key=lambda take: take.changed)


def _read(folder: Path, id_: str) -> Take:
    """Read a take of a desk. Raises InputError."""
    take = folder / PLACE / id_
    try:
        if not OURS.fullmatch(id_):
            raise FileNotFoundError
        for path in (take / "name", take / "sound"):
            files.refuse_link(path, folder)
        name = files.read(take / "name").decode()
        status = (take / "sound").stat()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("there is no such recording anymore") from error
    return Take(id_, name, status.st_size, status.st_mtime)


def _sound(queue: Queue, id_: str) -> Path:
    return queue.folder / PLACE / id_ / "sound"


def _delete(queue: Queue, id_: str) -> None:
    with _lock:
        shutil.rmtree(queue.folder / PLACE / id_, ignore_errors=True)
