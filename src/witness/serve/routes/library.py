"""All recordings: list, search, names, folders, tags and the trash; their notes, and the known people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from witness.diarization import voices
from witness.errors import ConflictError, InputError, OtherJsonError, UsageError, WitnessError
from witness.formats.registry import Format
from witness.serve import editing
from witness.serve.app_state import AppState
from witness.serve.endpoints import Endpoint, desk_of
from witness.serve.library.index import DamagedError
from witness.serve.library.library import SORTS, ListedRecording, Selection, choices, has_name
from witness.serve.library.query import parse
from witness.serve.roles import Role
from witness.serve.routes.home import show_page
from witness.serve.routes.transcripts import change, download
from witness.serve.uploads import clean_stem
from witness.text import printable
from witness.transcript import edits, trash
from witness.transcript.store import Written
from witness.transcript.trash import Thrown
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
MOST_NOTES = 1000
"""Notes in one answer."""


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
        Endpoint("GET", "/notes", Role.READ, show_notes),
        Endpoint("GET", "/api/notes", Role.READ, list_notes),
        Endpoint("GET", "/api/notes/codes", Role.READ, list_codes),
        Endpoint("GET", "/api/notes/project", Role.READ, export_project),
        Endpoint("GET", "/api/people", Role.READ, list_people),
        Endpoint("GET", "/api/people/search", Role.READ, search_voice),
        Endpoint("POST", "/api/people/forget", Role.WRITE, forget),
    ]


def list_recordings(request: Request, desk: AppState) -> dict[str, Any]:
    """Return the matching recordings, sorted, and the choices for filters."""
    params = request.query_params
    sort, order = params.get("sort", "date"), params.get("order", "down")
    if sort not in SORTS or order not in ("up", "down"):
        raise HTTPException(400, f"sort is one of {', '.join(SORTS)}, and order is up or down")
    selection = Selection(**{name: params[name] for name in Selection.__dataclass_fields__ if name in params})
    offset, limit = _window(request, 100)
    states = desk.queue.board.states() if desk.queue is not None else {}

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
        "untranscribed": len(desk.library.untranscribed()),
    }


def search(request: Request, desk: AppState) -> dict[str, Any]:
    """Return passages, by recording, and the recordings whose name matches."""
    query, speaker = (request.query_params.get(name, "") for name in ("q", "speaker"))
    within = request.query_params.get("within")
    offset, limit = _window(request, 20 if within is None else 50)
    matches = desk.library.index.search(query, speaker, offset=offset, limit=limit, within=within)
    rows = {row.id: row for row in desk.library.recordings()[0]}
    groups = [{**asdict(group), **_heading(rows[group.id])} for group in matches.groups if group.id in rows]
    parsed = parse(query)
    named = [] if within or offset else [row for row in rows.values() if has_name(row, parsed)]
    headings = [_heading(row) for row in named[:MOST_NAMED]]
    return {**asdict(matches), "groups": groups, "named": headings, "named_total": len(named)}


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


def move(request: Request, desk: AppState, body: RecordingTarget) -> dict[str, Any]:
    """Rename a recording, or move it to another folder."""
    target = _target(desk.folder, body)
    path, source = _paths(request)
    was_read = desk.library.is_read(path)
    if target != path:
        target = desk.editor.call(trash.move, path, target, source, desk.folder)
        if desk.queue is not None:
            with suppress(ConflictError):  # a batch is at work, which finds it by its contents
                desk.queue.note_move(path.relative_to(desk.folder), target.relative_to(desk.folder))
    id_ = desk.library.moved(path, target, was_read=was_read)
    return _json({"id": id_, **_named(desk.folder, target)})


def tag(request: Request, desk: AppState, body: ChangedTags) -> Written:
    """Change the tags of a recording."""
    if len(body.add) + len(body.remove) > MOST_TAGS:
        raise HTTPException(400, f"add and remove have at most {MOST_TAGS} tags")
    return change(desk, edits.change_tags, _paths(request)[0], body.add, body.remove)


def throw(request: Request, desk: AppState) -> Thrown:
    """Move a recording with all its files into the trash."""
    path, source = _paths(request)
    thrown = desk.editor.call(trash.throw, path, desk.folder, source)
    if desk.queue is not None:
        with suppress(ConflictError):
            desk.queue.note_deletion(path.relative_to(desk.folder))
    desk.library.look()
    return thrown


def list_trash(desk: AppState) -> dict[str, Any]:
    """List the trash, the latest first."""
    return {
        "trash": [
            _json({"id": entry.id, "name": entry.name, "folder": entry.folder, "date": entry.at})
            for entry in trash.list_trash(desk.folder)
        ]
    }


def restore(desk: AppState, id_: str) -> dict[str, Any]:
    """Move a recording from the trash back to its folder."""
    path = desk.editor.call(trash.restore, desk.folder, id_)
    desk.library.look()
    return _json(_named(desk.folder, path))


def empty(desk: AppState, body: Ids) -> dict[str, int]:
    """Delete these recordings in the trash for good."""
    chosen = [entry for entry in trash.list_trash(desk.folder) if entry.id in body.ids]
    with suppress(DamagedError):  # the index was removed, and is built again without them
        desk.library.forget(Path(entry.folder) / f"{entry.name}.json" for entry in chosen)
    return {"deleted": trash.delete(desk.folder, body.ids)}


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


def _paths(request: Request) -> tuple[Path, Path | None]:
    """Return the paths of the recording in the address, as `Library.path_of`.

    Raises HTTPException, ConflictError.
    """
    desk = desk_of(request)
    row = desk.library.row(request.path_params["id"])
    if row is None:
        raise HTTPException(404, GONE)
    if desk.queue is not None and row.id in desk.queue.board.states():
        raise ConflictError(f"{row.name}: is being transcribed; cancel that first")
    return desk.library.path_of(row)


# --- notes and codes ---


def show_notes(desk: AppState) -> Response:
    """Return the page."""
    return show_page("notes", folder=desk.folder.name or str(desk.folder))


def list_notes(request: Request, desk: AppState) -> dict[str, Any]:
    """List the notes, by recording and time; `q` is a part of each, `code` one of its codes."""
    notes, codes = _notes(request, desk)
    return {"total": len(notes), "codes": codes, "notes": notes[:MOST_NOTES]}


def list_codes(request: Request, desk: AppState) -> dict[str, Any]:
    """List all codes."""
    return {"codes": _notes(request, desk)[1]}


def export_project(request: Request, desk: AppState) -> Response:
    """Return the transcripts with notes as one REFI-QDA project."""
    ids = dict.fromkeys(note["id"] for note in _notes(request, desk)[0])
    paths = [path for id_ in ids if (path := desk.library.find(id_)) is not None]
    if not paths:
        raise HTTPException(404, "there are no notes yet")
    name, content = desk.editor.call(editing.project, desk.folder, paths)
    return download(name, content, Format.QDPX.about.media_type)


def _notes(request: Request, desk: AppState) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the matching notes, and all codes."""
    query, code = (request.query_params.get(name, "").casefold().strip() for name in ("q", "code"))
    notes, codes = [], set[str]()
    rows, _ = desk.library.recordings()
    for row in sorted(rows, key=lambda row: (row.folder.casefold(), row.name.casefold())):
        for note in row.notes:
            codes.update(note.codes)
            text = "\n".join((note.quote, note.text, note.speaker, *note.codes, row.name)).casefold()
            if query in text and (not code or code in map(str.casefold, note.codes)):
                notes.append({**asdict(note), "id": row.id, "name": printable(row.name)})
    return notes, sorted(codes, key=str.casefold)


# --- people whose voices are known ---


class Person(Struct):
    """A person whose voice is known."""

    name: str


def list_people(desk: AppState) -> dict[str, Any]:
    """List the people, and the recordings with a speaker of their name."""
    rows, _ = desk.library.recordings()
    people, unreadable = [], []
    for path in sorted(desk.known.glob("*.json")):
        try:
            voice = voices.read_one(path)
        except InputError as error:
            unreadable.append(str(error))
            continue
        recordings = [{"id": row.id, "recording": _title(row)} for row in rows if voice.name in row.speakers]
        people.append({"name": voice.name, "seconds": round(voice.seconds, 1), "recordings": recordings})
    return {"people": people, "left": unreadable}


def forget(desk: AppState, body: Person) -> dict[str, Any]:
    """Delete a person's voice; names in transcripts stay."""
    voices.forget(body.name, desk.known)
    return {}


def search_voice(request: Request, desk: AppState) -> Response:
    """Search all recordings for a person's voice, and return a line of JSON after each."""
    lines = _search_voice(desk, request.query_params.get("name", ""))
    return StreamingResponse(lines, media_type="application/x-ndjson")


def _search_voice(desk: AppState, name: str) -> Iterator[str]:
    rows, _ = desk.library.recordings()
    total, seen, failed = len(rows), 0, 0
    for row in rows:
        match = None
        try:
            path = desk.library.find(row.id)
            if path is None:  # it failed, or was deleted
                total -= 1
                continue
            match = desk.finder.call(editing.find_voice, path, desk.known, name)
        except OtherJsonError:
            total -= 1
            continue
        except WitnessError:  # damaged, or without its findings; the library says so
            failed += 1
        seen += 1
        line: dict[str, Any] = {"seen": seen, "total": total, "left": failed}
        if match is not None:
            line["found"] = {**match, "id": row.id, "recording": _title(row)}
        yield json.dumps(line) + "\n"
    yield json.dumps({"seen": total, "total": total, "left": failed}) + "\n"


def _title(row: ListedRecording) -> str:
    return printable(f"{row.folder}/{row.name}".lstrip("/"))
