"""The page of a transcript, and what it asks of the server."""

from __future__ import annotations

import asyncio
import json
import mimetypes
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse

from witness.formats.registry import PURPOSES, Format
from witness.options import chosen
from witness.serve import assets
from witness.serve.requests import GONE, body_of, desk_of, of, path_of
from witness.serve.roles import Endpoint, Role
from witness.serve.routes import live
from witness.serve.routes.recordings import AGAIN, ALIVE
from witness.storage import files

FIRST = (Format.DOCX, Format.TXT, Format.SRT, Format.QDA, Format.CSV)
"""What people export most; the others of the same purpose follow."""
POLICY = "connect-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Beside the policy in the page itself, which names the hash of its style."""


PACE = 0.5
"""Seconds between two looks for a newer version."""
MOST_WATCHING = 200
"""Windows that are told of newer versions."""
_watching: set[object] = set()


def routes() -> list[Endpoint]:
    """All below `/t/`, where a transcript goes by its id."""
    return [
        Endpoint("GET", "/t/{id}/", Role.READ, show),
        Endpoint("GET", "/t/{id}/sound", Role.READ, sound),
        Endpoint("GET", "/t/{id}/outline", Role.READ, outline),
        Endpoint("GET", "/t/{id}/version", Role.READ, version),
        Endpoint("GET", "/t/{id}/events", Role.READ, events),
        Endpoint("GET", "/t/{id}/corrections", Role.READ, corrections),
        Endpoint("PUT", "/t/{id}/corrections", Role.WRITE, save),
        Endpoint("POST", "/t/{id}/corrections", Role.WRITE, add_corrections),
        Endpoint("POST", "/t/{id}/notes", Role.COMMENT, add_notes),
        Endpoint("POST", "/t/{id}/original", Role.WRITE, original),
        Endpoint("POST", "/t/{id}/speakers", Role.WRITE, speakers),
        Endpoint("POST", "/t/{id}/name", Role.WRITE, name),
        Endpoint("GET", "/t/{id}/replace", Role.READ, occurrences),
        Endpoint("POST", "/t/{id}/replace", Role.WRITE, rewrite),
        Endpoint("GET", "/t/{id}/export", Role.READ, export),
        Endpoint("POST", "/t/{id}/preview", Role.READ, preview),
        Endpoint("POST", "/t/{id}/voice", Role.WRITE, voice),
        Endpoint("GET", "/t/{id}/suggestions", Role.READ, suggestions),
    ]


async def show(request: Request) -> Response:
    """The page; until there is a transcript, that of the work on it."""
    desk, id_ = desk_of(request), request.path_params["id"]
    if await run_in_threadpool(desk.library.find, id_) is None:
        return await run_in_threadpool(live.page, request)
    rest = {
        "id": id_,
        "working": desk.queue is not None and id_ in desk.queue.board.states(),
        "notAgain": desk.library.not_again(id_),
        "formats": formats(),
        "barred": barred(request),
        "noting": request.state.user.role == Role.COMMENT,
    }
    _, content = await _ask(request, "html", rest=rest, script=assets.script("web/lists/transcript.js"))
    return Response(content, media_type="text/html", headers={"Content-Security-Policy": POLICY})


def barred(request: Request) -> str | None:
    """Why whoever asks may correct nothing; None: they may."""
    role = request.state.user.role
    return None if role == Role.WRITE else f"you may {role} here; ask the owner of the desk for more"


def formats() -> list[dict[str, str]]:
    """All that can be exported here, by what they are for."""
    found = (*FIRST, *(form for form in Format if form not in FIRST))
    return [
        {"word": form, "label": form.about.label, "purpose": form.about.purpose, "shows": form.about.shows}
        for purpose in PURPOSES
        for form in found
        if form.about.purpose == purpose and form.installed
    ]


async def sound(request: Request) -> Response:
    """The recording, or the part of it that is asked for."""
    desk = desk_of(request)
    path = await run_in_threadpool(desk.library.find, request.path_params["id"])
    if path is None:
        recording = await run_in_threadpool(live.sound, request)
    else:
        recording = await run_in_threadpool(desk.finder.recording, path)
    kind = mimetypes.guess_type(recording.name)[0] or ""
    playable = kind.startswith(("audio/", "video/"))
    return FileResponse(
        recording,
        media_type=kind if playable else "application/octet-stream",
        headers={"Cache-Control": "private, max-age=600"},
    )


async def outline(request: Request) -> Response:
    """The peaks of the recording, a byte each."""
    _, content = await run_in_threadpool(desk_of(request).finder.ask, "outline", await path_of(request))
    return Response(content, media_type="application/octet-stream")


async def version(request: Request) -> Response:
    """Which transcript is there now; `corrections` says it, too, and takes longer."""
    try:
        return JSONResponse({"version": await run_in_threadpool(files.sha256_at, await path_of(request))})
    except OSError as error:
        raise HTTPException(404, GONE) from error


async def events(request: Request) -> Response:
    """The version that is there now, and each that follows, whoever writes it: server-sent events."""
    path = await path_of(request)
    if len(_watching) >= MOST_WATCHING:
        raise HTTPException(429, "too many windows are open; close some", {"Retry-After": "30"})
    return StreamingResponse(
        _versions(path), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _versions(path: Path) -> AsyncIterator[str]:
    me = object()
    _watching.add(me)
    try:
        yield f"retry: {AGAIN}\n\n"
        before: tuple[int, int] | None = None
        quiet = 0.0
        while True:
            with suppress(OSError):  # it is being replaced, or gone
                status = await run_in_threadpool(path.stat)
                now = status.st_size, status.st_mtime_ns
                if now != before:
                    told = json.dumps({"version": await run_in_threadpool(files.sha256_at, path)})
                    before, quiet = now, 0.0
                    yield f"event: version\ndata: {told}\n\n"
            if quiet > ALIVE:
                quiet = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(PACE)
            quiet += PACE
    finally:
        _watching.discard(me)


async def corrections(request: Request) -> Response:
    """Return the version and the steps."""
    return JSONResponse((await _ask(request, "show"))[0])


async def save(request: Request) -> Response:
    """Save all steps of a page."""
    return await _changed(request, "save", edit=await body_of(request))


async def add_corrections(request: Request) -> Response:
    """Put corrections on top of the saved ones."""
    return await _changed(request, "add", **of(await body_of(request), version=str, corrections=dict))


async def add_notes(request: Request) -> Response:
    """Steps of a page that are nothing but notes, on top of what is there."""
    return await _changed(request, "note", **of(await body_of(request), version=str, steps=list))


async def original(request: Request) -> Response:
    """Back to the machine's version."""
    return await _changed(request, "original", **of(await body_of(request), version=str))


async def speakers(request: Request) -> Response:
    """Another number of speakers; null: as many as there seem to be."""
    given = await body_of(request)
    number = given.get("speakers")
    if number is not None and (type(number) is not int or not 1 <= number <= 10_000):
        raise HTTPException(400, "speakers is a number from 1 to 10000, or null")
    return await _changed(request, "recount", **of(given, version=str), speakers=number)


async def name(request: Request) -> Response:
    """Name one speaker."""
    return await _changed(request, "name", **of(await body_of(request), version=str, speaker=str, name=str))


async def occurrences(request: Request) -> Response:
    """List the places of words that may be written otherwise."""
    texts = {key: request.query_params.get(key, "") for key in ("heard", "written")}
    path = await path_of(request)
    places, _ = await run_in_threadpool(desk_of(request).finder.ask, "occurrences", path, **texts)
    return JSONResponse(places)


async def rewrite(request: Request) -> Response:
    """Write words otherwise, in the places that a person chose."""
    wanted = of(await body_of(request), version=str, heard=str, written=str, places=list)
    if not all(isinstance(place, int) for place in wanted["places"]):
        raise HTTPException(400, "places are whole numbers")
    return await _changed(request, "rewrite", **wanted)


async def export(request: Request) -> Response:
    """The transcript in another format, as a download."""
    form = chosen(Format, request.query_params.get("format", ""))
    said, content = await _ask(request, "export", format=form)
    return download(content, said["name"], form.about.media_type)


def download(content: bytes, name: str, kind: str) -> Response:
    """A file for the browser to keep."""
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    return Response(content, media_type=kind, headers=headers)


async def preview(request: Request) -> Response:
    """How the file of a format begins, with options."""
    given = of(await body_of(request), format=str, options=dict)
    form = chosen(Format, given["format"])
    return JSONResponse((await _ask(request, "preview", format=form, options=given["options"]))[0])


async def voice(request: Request) -> Response:
    """Keep the voice of a stretch, or of all that a speaker says."""
    desk, given = desk_of(request), await body_of(request)
    whose: dict[str, type] = {"speaker": str} if "speaker" in given else {"start": float, "end": float}
    wanted = of(given, name=str, **whose)
    return JSONResponse((await _ask(request, "enroll", known=str(desk.known), **wanted))[0])


async def suggestions(request: Request) -> Response:
    """Whom the speakers sound like, of those who are known."""
    desk, path = desk_of(request), await path_of(request)
    if not any(desk.known.glob("*.json")):
        return JSONResponse({"speakers": {}})
    asked = run_in_threadpool(desk.finder.ask, "suggest", path, known=str(desk.known))
    return JSONResponse((await asked)[0])


# --- what the handlers share ---


async def _ask(request: Request, do: str, **more: Any) -> tuple[dict[str, Any], bytes]:
    return await run_in_threadpool(desk_of(request).editor.ask, do, await path_of(request), **more)


async def _changed(request: Request, do: str, **more: Any) -> Response:
    """Change the transcript, and answer with its new version."""
    answer = JSONResponse((await _ask(request, do, **more))[0])
    desk_of(request).library.changed()
    return answer
