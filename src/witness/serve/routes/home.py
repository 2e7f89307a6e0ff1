"""The page with all recordings, and the modules and style sheets of all pages."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from witness.audio.source import ENDINGS
from witness.models import store
from witness.options import Options
from witness.serve.app_state import AppState
from witness.serve.endpoints import Endpoint
from witness.serve.roles import Role
from witness.web import bundle

if TYPE_CHECKING:
    from jinja2 import Template

FOLDERS = ("web/editor", "web/templates", "web/desk")
"""Folders of the package with modules and style sheets, which import each other by relative paths."""
TYPES = {".css": "text/css", ".js": "text/javascript"}
STYLES = (
    *(f"web/templates/{name}.css" for name in ("look", "page", "desk")),
    "web/desk/library.css",
)
"""Style sheets of the desk's own pages."""


def routes() -> list[Endpoint]:
    return [
        Endpoint("GET", "/", Role.READ, front),
        Endpoint("GET", "/static/{address:path}", Role.READ, static),
    ]


def front(request: Request, desk: AppState) -> Response:
    """Return the page with all recordings."""
    resolved = desk.queue.models.ready() if desk.queue is not None else None
    # Every transcript says why it has no words.
    options = desk.options if resolved is None or resolved.options.whisper == "none" else resolved.options
    return show_page(
        "library",
        script="home",
        role=request.state.user.role,
        folder=desk.folder.name or str(desk.folder),
        endings=" ".join(sorted(ENDINGS)),
        model=_about_model(options),
    )


def _about_model(options: Options) -> str:
    """Describe the model and its languages; `options` are resolved if the queue has done that."""
    if options.whisper == "none":
        return (
            "This desk was started without a recognizer (--whisper none): it tells who spoke, not the words."
        )
    if options.whisper == "auto":
        line = f"The words come from the Whisper model that suits this machine{_language(options)}."
        installed = [choice.file for choice in store.list_whisper_choices(options) if choice.path]
        if not installed or not all(model.english_only for model in installed):
            return line
        if not options.offline:
            return (
                f"{line} The only one on this disk is {installed[0].name}, which knows English only; another "
                "one is fetched with the first recording, if a model hub can be reached."
            )
        options = replace(options, whisper=installed[0].name)
    name = PurePosixPath(options.whisper).name
    only = name.endswith((".en", ".en.bin"))
    languages = ", which knows English only: other languages have no words" if only else _language(options)
    return f"The words come from the model {name}{languages}."


def _language(options: Options) -> str:
    if options.language is None:
        return ", in the language that it hears"
    if options.language == "multi":
        return ", in every language that it hears"
    return f", which listens for {options.language.replace(',', ', ')}"


# --- all pages ---


def static(request: Request) -> Response:
    """Return a module or a style sheet."""
    version_, _, name = request.path_params["address"].partition("/")
    if version_ != version() or name not in files():
        raise HTTPException(404, "there is no such file")
    kept = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(files()[name], media_type=TYPES[PurePosixPath(name).suffix], headers=kept)


@cache
def files() -> dict[str, bytes]:
    """Return the content of modules and style sheets, by path in the package."""
    return {
        f"{folder}/{file.name}": file.read_bytes()
        for folder in FOLDERS
        for file in sorted(resources.files("witness").joinpath(folder).iterdir(), key=lambda file: file.name)
        if file.name.endswith(tuple(TYPES))
    }


@cache
def version() -> str:
    """Return a part of every address that changes with the files: browsers keep them for ever."""
    digest = hashlib.sha256()
    for name, content in files().items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def addresses(entry: str) -> list[str]:
    """Return the addresses of the modules that an entry needs, its own the last."""
    return [f"/static/{version()}/{name}" for name in bundle.needed(entry)]


def show_page(name: str, /, script: str = "", **values: Any) -> Response:
    """Return one of the desk's pages; `script` is the name of its module, if another."""
    styles = [f"/static/{version()}/{style}" for style in STYLES]
    return HTMLResponse(
        template(f"{name}.html.j2").render(
            styles=styles, script=addresses(f"web/desk/{script or name}.js"), **values
        )
    )


@cache
def template(name: str) -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("witness.web")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(name)
