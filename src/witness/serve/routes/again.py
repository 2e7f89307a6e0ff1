"""A recording transcribed again with other settings, what became different, and the words of its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from witness import languages
from witness.models import store
from witness.serve.requests import body_of, desk_of, of, path_of, texts_of
from witness.serve.roles import Endpoint, Role
from witness.serve.routes.recordings import answered
from witness.work import overrides


def routes() -> list[Endpoint]:
    """What can be chosen, what is done with it, and what came of it."""
    return [
        Endpoint("GET", "/api/choices", Role.READ, choices),
        Endpoint("GET", "/api/vocabulary", Role.READ, vocabulary),
        Endpoint("POST", "/api/vocabulary", Role.WRITE, change_vocabulary),
        Endpoint("POST", "/t/{id}/again", Role.WRITE, again),
        Endpoint("GET", "/t/{id}/differences", Role.READ, differences),
        Endpoint("POST", "/t/{id}/differences", Role.WRITE, looked_through),
        Endpoint("POST", "/t/{id}/earlier", Role.WRITE, earlier),
        Endpoint("GET", "/t/{id}/vocabulary", Role.READ, vocabulary),
        Endpoint("POST", "/t/{id}/vocabulary", Role.WRITE, change_vocabulary),
    ]


def choices(request: Request) -> Response:
    """The models and languages that a recording can be transcribed with."""
    desk = desk_of(request)
    found = [] if desk.options.whisper == "none" else store.choices(desk.options)
    models = [
        {"name": one.name, "english": one.english_only, "here": one.here, "megabytes": one.megabytes}
        for one in found
    ]
    return JSONResponse({"models": models, "languages": languages.NAMES, "language": desk.options.language})


async def again(request: Request) -> Response:
    """Have the recording of a transcript transcribed again, with the settings in the request."""
    desk, path = desk_of(request), await path_of(request)
    given = {**await body_of(request)}
    if desk.queue is None:
        raise HTTPException(503, "nothing can be transcribed here")
    source, _ = await run_in_threadpool(desk.editor.ask, "source", path)
    wish = overrides.read({**given, **source["part"]})
    with answered():
        status = await run_in_threadpool(desk.queue.again, path, Path(source["recording"]).absolute(), wish)
    return JSONResponse(status.row(), 201)


async def differences(request: Request) -> Response:
    """Compare the transcript with the earlier one."""
    desk, path = desk_of(request), await path_of(request)
    return JSONResponse((await run_in_threadpool(desk.editor.ask, "differences", path))[0])


async def looked_through(request: Request) -> Response:
    """Note that a person has looked through the differences."""
    desk, path = desk_of(request), await path_of(request)
    given = of(await body_of(request), version=str)
    return JSONResponse((await run_in_threadpool(desk.editor.ask, "looked_through", path, **given))[0])


async def earlier(request: Request) -> Response:
    """Exchange the transcript with the earlier one."""
    desk, path = desk_of(request), await path_of(request)
    given = of(await body_of(request), version=str)
    said, _ = await run_in_threadpool(desk.editor.ask, "swap", path, **given)
    desk.library.changed()
    return JSONResponse(said)


async def vocabulary(request: Request) -> Response:
    """List the words of the folder, or of a transcript's folder, and the terms on offer."""
    return await _words(request)


async def change_vocabulary(request: Request) -> Response:
    """Take terms into these words, or drop them."""
    body = await body_of(request)
    return await _words(
        request, **{key: list(overrides.terms(texts_of(body, key))) for key in ("take", "drop")}
    )


async def _words(request: Request, **more: Any) -> Response:
    desk = desk_of(request)
    folder = (await path_of(request)).parent if "id" in request.path_params else desk.folder
    asked = run_in_threadpool(desk.editor.ask, "words", folder, root=str(desk.folder), **more)
    return JSONResponse((await asked)[0])
