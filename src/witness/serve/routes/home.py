"""The page with all recordings, and the files that it is made of."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from witness.audio.source import ENDINGS
from witness.models import store
from witness.options import Options
from witness.serve import assets
from witness.serve.roles import Endpoint, Role

if TYPE_CHECKING:
    from jinja2 import Template

STYLES = (
    *(f"web/templates/{name}.css" for name in ("look", "page", "desk")),
    "web/lists/library.css",
)
"""What the page of a transcript looks like, and this one, too; then its own."""


def routes() -> list[Endpoint]:
    """The first page that one sees."""
    return [
        Endpoint("GET", "/", Role.READ, front),
        Endpoint("GET", "/static/{address:path}", Role.READ, static),
    ]


def front(request: Request) -> Response:
    """The page."""
    desk = request.app.state.desk
    folder = desk.folder
    settled = desk.queue.models.ready() if desk.queue is not None else None
    if settled is None or settled.options.whisper == "none":  # why there are no words is in every transcript
        settled = desk
    text = _page().render(
        role=request.state.user.role,
        folder=folder.name or str(folder),
        endings=" ".join(sorted(ENDINGS)),
        model=_about_model(settled.options),
        styles=[assets.address(name) for name in STYLES],
        script=assets.script("web/lists/home.js"),
    )
    return Response(text, media_type="text/html")


def _about_model(options: Options) -> str:
    """What recognizes the words here, and in which languages; `options` are settled if that was done."""
    if options.whisper == "none":
        return (
            "This desk was started without a recognizer (--whisper none): it tells who spoke, not the words."
        )
    if options.whisper == "auto":
        line = f"The words come from the Whisper model that suits this machine{_language(options)}."
        here = [one for one in store.list_whisper_choices(options) if one.here]
        if not here or not all(one.english_only for one in here):
            return line
        if not options.offline:
            return (
                f"{line} The only one on this disk is {here[0].name}, which knows English only; another one "
                "is fetched with the first recording, if a model hub can be reached."
            )
        options = replace(options, whisper=here[0].name)
    name = PurePosixPath(options.whisper).name
    only = name.endswith((".en", ".en.bin"))
    known = ", which knows English only: other languages have no words" if only else _language(options)
    return f"The words come from the model {name}{known}."


def _language(options: Options) -> str:
    """In which languages it listens."""
    if options.language is None:
        return ", in the language that it hears"
    if options.language == "multi":
        return ", in every language that it hears"
    return f", which listens for {options.language.replace(',', ', ')}"


def static(request: Request) -> Response:
    """One of the files of both pages."""
    version, _, name = request.path_params["address"].partition("/")
    if version != assets.version() or name not in assets.files():
        raise HTTPException(404, "there is no such file")
    kept = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(assets.files()[name], media_type=assets.TYPES[PurePosixPath(name).suffix], headers=kept)


@cache
def _page() -> Template:
    return template("library.html.j2")


def template(name: str) -> Template:
    """One of the desk's own."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("witness.web")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(name)
