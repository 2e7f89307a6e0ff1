"""Notes and codes of all transcripts: a list to search in, and a project for a QDA program."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from witness.formats.registry import Format
from witness.serve.app_state import desk_of
from witness.serve.editing import views
from witness.serve.roles import Endpoint, Role
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


def page(request: Request) -> Response:
    """Return the page."""
    folder = desk_of(request).folder
    return show_page("notes", folder=folder.name or str(folder))


async def list_notes(request: Request) -> Response:
    """List the notes, by recording and time; `q` is a part of each, `code` one of its codes."""
    notes, codes = await run_in_threadpool(_notes, request)
    return JSONResponse({"total": len(notes), "codes": codes, "notes": notes[:MOST]})


async def list_codes(request: Request) -> Response:
    """List all codes."""
    _, codes = await run_in_threadpool(_notes, request)
    return JSONResponse({"codes": codes})


async def project(request: Request) -> Response:
    """Return the transcripts with notes as one REFI-QDA project."""
    desk = desk_of(request)
    notes, _ = await run_in_threadpool(_notes, request)
    ids = dict.fromkeys(note["id"] for note in notes)
    paths = [path for id_ in ids if (path := await run_in_threadpool(desk.library.find, id_)) is not None]
    if not paths:
        raise HTTPException(404, "there are no notes yet")
    name, content = await desk.editor.run(views.project, desk.folder, paths)
    return download(content, name, Format.QDPX.about.media_type)


def _notes(request: Request) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the matching notes, and all codes."""
    query, code = (request.query_params.get(name, "").casefold().strip() for name in ("q", "code"))
    notes, codes = [], set[str]()
    rows, _ = desk_of(request).library.recordings()
    for row in sorted(rows, key=lambda row: (row.folder.casefold(), row.name.casefold())):
        for note in row.notes:
            codes.update(note.codes)
            text = "\n".join((note.quote, note.text, note.speaker, *note.codes, row.name)).casefold()
            if query in text and (not code or code in map(str.casefold, note.codes)):
                notes.append({**asdict(note), "id": row.id, "name": printable(row.name)})
    return notes, sorted(codes, key=str.casefold)
