"""Which transcripts lie below the folder. No path ever comes from a request: an id is looked up here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute


@dataclass(frozen=True)
class Place:
    """A JSON file below the folder, perhaps a transcript."""

    id: str
    path: Path
    """Below the folder."""
    size: int
    mtime_ns: int


def id_of(path: Path) -> str:
    """What a transcript is called in addresses; `path` is below the folder."""
    return hashlib.sha256(os.fsencode(path.as_posix())).hexdigest()[:16]


def walk(folder: Path) -> Iterator[Place]:
    """The JSON files below a folder, without what is hidden and what links lead to."""
    for above, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if name[0] != ".")
        for name in sorted(names):
            if name[0] == "." or not name.endswith(".json"):
                continue
            path = Path(above, name)
            try:
                stat = path.lstat()
            except OSError:
                continue  # it is gone
            if path.is_file() and not path.is_symlink():
                below_it = path.relative_to(folder)
                yield Place(id_of(below_it), below_it, stat.st_size, stat.st_mtime_ns)


class Library:
    """The transcripts below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def find(self, transcript: str) -> Path | None:
        """The absolute path of the transcript with that id; None: there is none."""
        for place in walk(self.folder):
            if place.id == transcript:
                path = self.folder / place.path
                return path if path.resolve().is_relative_to(self.folder) else None
        return None


def routes() -> list[BaseRoute]:
    """The table of contents."""
    from starlette.routing import Route

    return [Route("/api/library", listing)]


def listing(request: Request) -> Response:
    """All recordings, sorted."""
    places = list(walk(request.app.state.desk.library.folder))
    recordings = [{"id": place.id, "name": place.path.stem} for place in places]
    return JSONResponse({"total": len(places), "recordings": recordings, "indexed": 0})
