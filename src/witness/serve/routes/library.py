"""All recordings: list, search, names, folders, tags and the trash."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from witness.errors import ConflictError, UsageError
from witness.serve.app_state import body_of, desk_of, respond
from witness.serve.library.library import SORTS, ListedRecording, Selection, choices, has_name
from witness.serve.library.query import parse
from witness.serve.roles import Endpoint, Role
from witness.serve.uploads import clean_stem
from witness.text import printable
from witness.transcript import edits, trash
from witness.work.folder import INNER

MOST_ROWS = 1000
"""Recordings or passages in one answer."""
MOST_NAMED = 50
"""Recordings whose name matches a search, in one answer."""
MOST_TAGS = 50
"""Tags in one request."""
DEEPEST = 8
"""Nested folders."""
GONE = "there is no such recording anymore; reload the page"


def routes() -> list[Endpoint]:
    return [
        Endpoint("GET", "/api/library", Role.READ, list_recordings),
        Endpoint("GET", "/api/search", Role.READ, search),
        Endpoint("POST", "/api/recordings/{id}/move", Role.WRITE, move),
        Endpoint("POST", "/api/recordings/{id}/tags", Role.WRITE, tag),
        Endpoint("POST", "/api/recordings/{id}/delete", Role.WRITE, throw),
        Endpoint("GET", "/api/trash", Role.READ, list_trash),
        Endpoint("POST", "/api/trash/empty", Role.WRITE, empty),
        Endpoint("POST", "/api/trash/{id}/restore", Role.WRITE, restore),
    ]


async def list_recordings(request: Request) -> Response:
    """Return the matching recordings, sorted, and the choices for filters."""
    desk, params = desk_of(request), request.query_params
    sort, order = params.get("sort", "date"), params.get("order", "down")
    if sort not in SORTS or order not in ("up", "down"):
        raise HTTPException(400, f"sort is one of {', '.join(SORTS)}, and order is up or down")
    selection = Selection(**{name: params[name] for name in Selection.__dataclass_fields__ if name in params})
    offset, limit = _window(request, 100)
    states = desk.queue.board.states() if desk.queue is not None else {}

    def answer() -> dict[str, Any]:
        everything, indexed = desk.library.recordings(states)
        rows = selection.select(everything)
        rows.sort(key=SORTS["name"])
        rows.sort(key=SORTS[sort], reverse=order == "down")
        return {
            "total": len(rows),
            "all": len(everything),
            "recordings": [_json(vars(row)) for row in rows[offset : offset + limit]],
            "indexed": indexed,
            "choices": choices(everything) if not offset else None,
        }

    untranscribed = len(desk.library.untranscribed())
    return JSONResponse({**await run_in_threadpool(answer), "untranscribed": untranscribed})


async def search(request: Request) -> Response:
    """Return passages, by recording, and the recordings whose name matches."""
    library = desk_of(request).library
    query, speaker = (request.query_params.get(name, "") for name in ("q", "speaker"))
    within = request.query_params.get("within")
    offset, limit = _window(request, 20 if within is None else 50)

    def answer() -> dict[str, Any]:
        matches = library.index.search(query, speaker, offset=offset, limit=limit, within=within)
        rows = {row.id: row for row in library.recordings()[0]}
        groups = [
            {**asdict(group), **_heading(rows[group.id])} for group in matches.groups if group.id in rows
        ]
        parsed = parse(query)
        named = [] if within or offset else [row for row in rows.values() if has_name(row, parsed)]
        headings = [_heading(row) for row in named[:MOST_NAMED]]
        return {**asdict(matches), "groups": groups, "named": headings, "named_total": len(named)}

    return JSONResponse(await run_in_threadpool(answer))


def _heading(row: ListedRecording) -> dict[str, Any]:
    return _json({"id": row.id, "name": row.name, "folder": row.folder, "date": row.date})


def _window(request: Request, usual: int) -> tuple[int, int]:
    """Return `offset` and `limit`. Raises HTTPException."""
    values = [request.query_params.get("offset", "0"), request.query_params.get("limit", str(usual))]
    if not all(value.isascii() and value.isdigit() and len(value) < 10 for value in values):
        raise HTTPException(400, "offset and limit are whole numbers")
    return int(values[0]), min(int(values[1]), MOST_ROWS)


def _json(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for JSON: names of files in characters of UTF-8, and the date as text."""
    texts = ("name", "folder", "why", "not_again")
    shown = {
        name: printable(value) if name in texts and value else value
        for name, value in row.items()
        if name != "notes"
    }
    if row.get("date") is not None:
        shown["date"] = datetime.fromtimestamp(row["date"], timezone.utc).isoformat(timespec="seconds")
    return shown


# --- changes ---


class RecordingTarget(Struct):
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
    """Rename a recording, or move it to another folder."""
    body = await body_of(request, RecordingTarget)

    def answer() -> dict[str, Any]:
        desk, row = desk_of(request), _row(request)
        target = _target(desk.folder, body)
        path, source = desk.library.path_of(row)
        was_read = desk.library.is_read(path)
        if target != path:
            target = desk.editor.call(trash.move, path, target, source)
            if desk.queue is not None:
                with suppress(ConflictError):  # a batch is at work, which finds it by its contents
                    desk.queue.note_move(path.relative_to(desk.folder), target.relative_to(desk.folder))
        id_ = desk.library.moved(path, target, was_read=was_read)
        return _json({"id": id_, **_named(desk.folder, target)})

    return JSONResponse(await run_in_threadpool(answer))


async def tag(request: Request) -> Response:
    """Change the tags of a recording."""
    body = await body_of(request, ChangedTags)
    if len(body.add) + len(body.remove) > MOST_TAGS:
        raise HTTPException(400, f"add and remove have at most {MOST_TAGS} tags")
    desk = desk_of(request)
    path = await run_in_threadpool(lambda: desk.library.path_of(_row(request))[0])
    written = await desk.editor.run(edits.change_tags, path, body.add, body.remove)
    desk.library.changed()
    return respond(written)


def throw(request: Request) -> Response:
    """Move a recording with all its files into the trash."""
    desk = desk_of(request)
    path, source = desk.library.path_of(_row(request))
    thrown = desk.editor.call(trash.throw, path, desk.folder, source)
    if desk.queue is not None:
        with suppress(ConflictError):
            desk.queue.note_deletion(path.relative_to(desk.folder))
    desk.library.look()
    return respond(thrown)


def list_trash(request: Request) -> Response:
    """List the trash, the latest first."""
    thrown = trash.list_trash(desk_of(request).folder)
    rows = [
        _json({"id": entry.id, "name": entry.name, "folder": entry.folder, "date": entry.at})
        for entry in thrown
    ]
    return JSONResponse({"trash": rows})


def restore(request: Request) -> Response:
    """Move a recording from the trash back to its folder."""
    desk = desk_of(request)
    path = desk.editor.call(trash.restore, desk.folder, request.path_params["id"])
    desk.library.look()
    return JSONResponse(_json(_named(desk.folder, path)))


async def empty(request: Request) -> Response:
    """Delete these recordings in the trash for good."""
    body = await body_of(request, Ids)
    count = await run_in_threadpool(trash.delete, desk_of(request).folder, body.ids)
    return JSONResponse({"deleted": count})


def _target(root: Path, body: RecordingTarget) -> Path:
    """Return the path of the JSON of a recording with this name and folder. Raises UsageError."""
    stem = clean_stem(body.name)
    if not stem or stem.casefold().endswith(INNER):
        raise UsageError(f"{body.name[:80]!r} cannot be the name of a recording; choose another one")
    parts = [clean_stem(part) for part in re.split(r"[/\\]", body.folder) if part.strip()]
    path = root.joinpath(*parts, f"{stem}.json")
    if not all(parts) or len(parts) > DEEPEST or not path.parent.resolve().is_relative_to(root):
        raise UsageError(f"{body.folder[:80]!r} cannot be the name of a folder; choose another one")
    return path


def _named(root: Path, path: Path) -> dict[str, str]:
    folder = path.parent.relative_to(root).as_posix()
    return {"name": path.name.removesuffix(".json"), "folder": "" if folder == "." else folder}


def _row(request: Request) -> ListedRecording:
    """Return the recording in the address. Raises HTTPException, ConflictError."""
    desk = desk_of(request)
    row = desk.library.row(request.path_params["id"])
    if row is None:
        raise HTTPException(404, GONE)
    if desk.queue is not None and row.id in desk.queue.board.states():
        raise ConflictError(f"{row.name}: is being transcribed; cancel that first")
    return row
