"""Notes and codes of all transcripts: a list to search in, and a project for a QDA program."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from witness.formats.registry import Format
from witness.serve import editing
from witness.serve.app_state import AppState
from witness.serve.endpoints import Endpoint
from witness.serve.roles import Role
from witness.serve.routes.home import show_page
from witness.serve.routes.transcripts import download
from witness.text import printable

MOST = 1000
"""Notes in one answer."""


def routes() -> list[Endpoint]:
    return [
        Endpoint("GET", "/notes", Role.READ, page),
        Endpoint("GET", "/api/notes", Role.READ, list_notes),
        Endpoint("GET", "/api/notes/codes", Role.READ, list_codes),
        Endpoint("GET", "/api/notes/project", Role.READ, project),
    ]


def page(desk: AppState) -> Response:
    """Return the page."""
    return show_page("notes", folder=desk.folder.name or str(desk.folder))


def list_notes(request: Request, desk: AppState) -> dict[str, Any]:
    """List the notes, by recording and time; `q` is a part of each, `code` one of its codes."""
    notes, codes = _notes(request, desk)
    return {"total": len(notes), "codes": codes, "notes": notes[:MOST]}


def list_codes(request: Request, desk: AppState) -> dict[str, Any]:
    """List all codes."""
    return {"codes": _notes(request, desk)[1]}


def project(request: Request, desk: AppState) -> Response:
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
