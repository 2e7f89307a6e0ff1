"""The page with all recordings, and the files that it is made of."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from witness.jobs.recordings import ENDINGS

if TYPE_CHECKING:
    from jinja2 import Template

FILES = {
    # What the page of a transcript looks like and is made with, this one is, too.
    "look.css": ("witness.formats", "templates", "text/css"),
    "page.css": ("witness.formats", "templates", "text/css"),
    "dom.js": ("witness.formats", "templates", "text/javascript"),
    "colors.js": ("witness.formats", "templates", "text/javascript"),
    "call.js": ("witness.formats", "templates", "text/javascript"),
    "library.css": ("witness.serve", "static", "text/css"),
    "library.js": ("witness.serve", "static", "text/javascript"),
    "add.js": ("witness.serve", "static", "text/javascript"),
}
"""Name in addresses -> package, folder and type; nothing else is given out."""


def routes() -> list[BaseRoute]:
    """The first page that one sees."""
    return [Route("/", front), Route("/static/{name}", static)]


def front(request: Request) -> Response:
    """The page."""
    folder = request.app.state.desk.folder
    text = _page().render(folder=folder.name or str(folder), endings=" ".join(sorted(ENDINGS)))
    return Response(text, media_type="text/html")


def static(request: Request) -> Response:
    """One of its files."""
    name = request.path_params["name"]
    if name not in FILES:
        raise HTTPException(404, "there is no such file")
    package, folder, kind = FILES[name]
    return Response(resources.files(package).joinpath(folder, name).read_bytes(), media_type=kind)


@cache
def _page() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("witness.serve")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template(
        "library.html.j2"
    )
