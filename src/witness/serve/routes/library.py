"""All recordings: listed, searched, renamed, moved, sorted under tags, thrown away and had again."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from witness.errors import ConflictError, UsageError
from witness.serve.app_state import body_of, desk_of, respond
from witness.serve.library.index import DamagedError
from witness.serve.library.library import ListedRecording
from witness.serve.library.query import parse
from witness.serve.library.selection import SORTS, Selection, choices, is_called
from witness.serve.roles import Endpoint, Role
from witness.serve.uploads import clean_stem
from witness.text import printable
from witness.transcript import edits, trash
from witness.work.recordings import INNER

T = TypeVar("T")

MOST_ROWS = 1000
"""Recordings or passages in one answer."""
MOST_NAMED = 50
"""Recordings that are called as what is looked for, in one answer."""
MOST_TAGS = 50
"""Tags in one request."""
DEEPEST = 8
"""Folders in each other."""
GONE = "there is no such recording anymore; reload the page"


def routes() -> list[Endpoint]:
    """All below `/api/` that is about recordings which lie there already."""
    return [
        Endpoint("GET", "/api/library", Role.READ, _listing),
        Endpoint("GET", "/api/search", Role.READ, _search),
        Endpoint("POST", "/api/recordings/{id}/move", Role.WRITE, move),
        Endpoint("POST", "/api/recordings/{id}/tags", Role.WRITE, tag),
        Endpoint("POST", "/api/recordings/{id}/delete", Role.WRITE, throw),
        Endpoint("GET", "/api/trash", Role.READ, list_trash),
        Endpoint("POST", "/api/trash/empty", Role.WRITE, empty),
        Endpoint("POST", "/api/trash/{id}/restore", Role.WRITE, restore),
    ]


async def _listing(request: Request) -> Response:
    """The recordings that are so, sorted, and what there is to choose from."""
    desk = request.app.state.desk
    given = request.query_params
    sort, order = given.get("sort", "date"), given.get("order", "down")
    if sort not in SORTS or order not in ("up", "down"):
        raise HTTPException(400, f"sort is one of {', '.join(SORTS)}, and order is up or down")
    wanted = Selection(**{name: given[name] for name in Selection.__dataclass_fields__ if name in given})
    offset, limit = _slice(request, 100)
    states = desk.queue.board.states() if desk.queue is not None else {}

    def list_() -> dict[str, Any]:
        everything, indexed = desk.library.recordings(states)
        rows = wanted.of(everything)
        rows.sort(key=SORTS["name"])
        rows.sort(key=SORTS[sort], reverse=order == "down")
        found = [_json(vars(one)) for one in rows[offset : offset + limit]]
        shown = {"total": len(rows), "all": len(everything), "recordings": found, "indexed": indexed}
        return {**shown, "choices": choices(everything) if not offset else None}

    rest = len(desk.library.untranscribed())
    return JSONResponse({**await run_in_threadpool(_asked, list_), "untranscribed": rest})


async def _search(request: Request) -> Response:
    """Where something was said, by recording, and which recordings are called so."""
    library = request.app.state.desk.library
    query, speaker = (request.query_params.get(name, "") for name in ("q", "speaker"))
    within = request.query_params.get("within")
    offset, limit = _slice(request, 20 if within is None else 50)

    def search() -> dict[str, Any]:
        found = library.index.search(query, speaker, offset=offset, limit=limit, within=within)
        rows = {one.id: one for one in library.recordings()[0]}
        groups = [
            {**asdict(group), **_json(_heading(rows[group.id]))} for group in found.groups if group.id in rows
        ]
        wanted = parse(query)
        named = [] if within or offset else [row for row in rows.values() if is_called(row, wanted)]
        titles = {"named": [_json(_heading(one)) for one in named[:MOST_NAMED]], "named_total": len(named)}
        return {**asdict(found), "groups": groups, **titles}

    return JSONResponse(await run_in_threadpool(_asked, search))


def _heading(row: ListedRecording) -> dict[str, Any]:
    return {"id": row.id, "name": row.name, "folder": row.folder, "date": row.date}


def _asked(work: Callable[[], T]) -> T:
    """The result of `work`, which asks the index. Raises HTTPException where the index cannot answer."""
    try:
        return work()
    except DamagedError as error:
        raise HTTPException(503, f"{error}; try again in a while", {"Retry-After": "5"}) from error
    except sqlite3.OperationalError as error:
        raise HTTPException(
            503, f"the index cannot be used ({error}); try again", {"Retry-After": "5"}
        ) from error


def _slice(request: Request, usual: int) -> tuple[int, int]:
    """`offset` and `limit`. Raises HTTPException."""
    given = [
        request.query_params.get(name, usual) for name, usual in (("offset", "0"), ("limit", str(usual)))
    ]
    if not all(one.isascii() and one.isdigit() and len(one) < 10 for one in given):
        raise HTTPException(400, "offset and limit are whole numbers")
    offset, limit = map(int, given)
    return offset, min(limit, MOST_ROWS)


def _json(row: dict[str, Any]) -> dict[str, Any]:
    """With names of files that UTF-8 can write, and the date as JSON has it."""
    told = {
        name: printable(value) if name in ("name", "folder", "why", "not_again") and value else value
        for name, value in row.items()
        if name != "notes"
    }
    if row.get("date") is not None:
        told["date"] = datetime.fromtimestamp(row["date"], timezone.utc).isoformat(timespec="seconds")
    return told


# --- changes ---


class Target(Struct):
    """Another name, or another folder below the desk's."""

    name: str
    folder: str


class ChangedTags(Struct):
    """Tags to add and to remove."""

    add: list[str]
    remove: list[str]


class Ids(Struct):
    """Recordings in the trash."""

    ids: list[str]


async def move(request: Request) -> Response:
    """Give it another name, or another folder below the desk's."""
    body = await body_of(request, Target)

    def moved() -> dict[str, Any]:
        desk, row = desk_of(request), _row(request)
        target = _place(desk.folder, body.name, body.folder)
        path, source = desk.library.path_of(row)
        was_read = desk.library.is_read(path)
        if target != path:
            target = desk.editor.call(trash.move, path, target, source)
            if desk.queue is not None:
                with suppress(ConflictError):  # a batch is at work, which finds it by its contents
                    desk.queue.note_move(path.relative_to(desk.folder), target.relative_to(desk.folder))
        id_ = desk.library.moved(path, target, was_read=was_read)
        return _json({"id": id_, **_named(desk.folder, target)})

    return JSONResponse(await run_in_threadpool(moved))


async def tag(request: Request) -> Response:
    """Sort it under some tags more, and some less."""
    body = await body_of(request, ChangedTags)
    if len(body.add) + len(body.remove) > MOST_TAGS:
        raise HTTPException(400, f"add and remove have at most {MOST_TAGS} tags")
    desk = desk_of(request)
    path = await run_in_threadpool(lambda: desk.library.path_of(_row(request))[0])
    written = await desk.editor.run(edits.tag, path, body.add, body.remove)
    desk.library.changed()
    return respond(written)


def throw(request: Request) -> Response:
    """Put it into the trash, with all that belongs to it."""
    desk = desk_of(request)
    path, source = desk.library.path_of(_row(request))
    thrown = desk.editor.call(trash.throw, path, desk.folder, source)
    if desk.queue is not None:
        with suppress(ConflictError):
            desk.queue.note_deletion(path.relative_to(desk.folder))
    desk.library.look()
    return respond(thrown)


def list_trash(request: Request) -> Response:
    """All that was thrown away, the latest first."""
    found = trash.in_trash(desk_of(request).folder)
    rows = [{"id": one.id, "name": one.name, "folder": one.folder, "date": one.at} for one in found]
    return JSONResponse({"trash": list(map(_json, rows))})


def restore(request: Request) -> Response:
    """Put it back where it was."""
    desk = desk_of(request)
    path = desk.editor.call(trash.restore, desk.folder, request.path_params["id"])
    desk.library.look()
    return JSONResponse(_json(_named(desk.folder, path)))


async def empty(request: Request) -> Response:
    """Delete for good what somebody has seen in the trash."""
    body = await body_of(request, Ids)
    count = await run_in_threadpool(trash.empty, desk_of(request).folder, body.ids)
    return JSONResponse({"deleted": count})


def _place(root: Path, name: str, folder: str) -> Path:
    """Where the JSON of a recording is to be that somebody calls so. Raises UsageError."""
    stem = clean_stem(name)
    if not stem or stem.casefold().endswith(INNER):
        raise UsageError(f"{name[:80]!r} cannot be the name of a recording; choose another one")
    given = [part for part in re.split(r"[/\\]", folder) if part.strip()]
    parts = list(map(clean_stem, given))
    place = root.joinpath(*parts, f"{stem}.json")
    if not all(parts) or len(parts) > DEEPEST or not place.parent.resolve().is_relative_to(root):
        raise UsageError(f"{folder[:80]!r} cannot be the name of a folder; choose another one")
    return place


def _named(root: Path, place: Path) -> dict[str, str]:
    folder = place.parent.relative_to(root).as_posix()
    return {"name": place.name.removesuffix(".json"), "folder": "" if folder == "." else folder}


def _row(request: Request) -> ListedRecording:
    """The recording that a request is about, unless it is being worked on. Raises HTTPException."""
    desk = desk_of(request)
    row = _asked(lambda: desk.library.row(request.path_params["id"]))
    if row is None:
        raise HTTPException(404, GONE)
    if desk.queue is not None and row.id in desk.queue.board.states():
        raise ConflictError(f"{row.name}: is being transcribed; cancel that first")
    return row
