"""The notes and codes of all transcripts of the folder: a list to search in, and a project of them."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from witness.formats.registry import Format
from witness.serve import assets
from witness.serve.app_state import AppState
from witness.serve.editing import views
from witness.serve.roles import Endpoint, Role
from witness.serve.routes.home import STYLES, template
from witness.serve.routes.transcripts import download
from witness.text import printable

if TYPE_CHECKING:
    from jinja2 import Template

MOST = 1000
"""Notes in one answer."""


def routes() -> list[Endpoint]:
    """The page, the list, the codes and the project."""
    return [
        Endpoint("GET", "/notes", Role.READ, page),
        Endpoint("GET", "/api/notes", Role.READ, listed),
        Endpoint("GET", "/api/notes/codes", Role.READ, codes),
        Endpoint("GET", "/api/notes/project", Role.READ, project),
    ]


def page(request: Request) -> Response:
    """The page."""
    folder = request.app.state.desk.folder
    text = _page().render(
        folder=folder.name or str(folder),
        styles=[assets.address(name) for name in STYLES],
        script=assets.script("web/lists/notes.js"),
    )
    return Response(text, media_type="text/html")


async def listed(request: Request) -> Response:
    """The notes, by the names of the recordings and by time; `q` is in each, `code` one of its codes."""
    found, codes = await run_in_threadpool(_found, request)
    return JSONResponse({"total": len(found), "codes": codes, "notes": found[:MOST]})


async def codes(request: Request) -> Response:
    """All codes, for whoever is about to write one."""
    _, known = await run_in_threadpool(_found, request)
    return JSONResponse({"codes": known})


async def project(request: Request) -> Response:
    """The transcripts that have notes, as one REFI-QDA project."""
    desk: AppState = request.app.state.desk
    found, _ = await run_in_threadpool(_found, request)
    ids = dict.fromkeys(one["id"] for one in found)
    paths = [path for one in ids if (path := await run_in_threadpool(desk.library.find, one)) is not None]
    if not paths:
        raise HTTPException(404, "there are no notes yet")
    name, content = await desk.editor.run(views.project, desk.folder, paths)
    return download(content, name, Format.QDPX.about.media_type)


def _found(request: Request) -> tuple[list[dict[str, Any]], list[str]]:
    """The notes that are asked for, and all codes."""
    library = request.app.state.desk.library
    wanted, code = (request.query_params.get(name, "").casefold().strip() for name in ("q", "code"))
    found, codes = [], set[str]()
    rows, _ = library.recordings()
    for row in sorted(rows, key=lambda one: (one.folder.casefold(), one.name.casefold())):
        for note in row.notes:
            codes.update(note.codes)
            whole = "\n".join((note.quote, note.text, note.speaker, *note.codes, row.name)).casefold()
            if wanted in whole and (not code or code in (one.casefold() for one in note.codes)):
                found.append({**asdict(note), "id": row.id, "name": printable(row.name)})
    return found, sorted(codes, key=str.casefold)


@cache
def _page() -> Template:
    return template("notes.html.j2")
