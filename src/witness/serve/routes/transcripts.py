"""A transcript: its page, corrections, exports, voices and differences, and the vocabulary of its folder."""

from __future__ import annotations

import asyncio
import json
import mimetypes
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse

from witness import languages
from witness.formats.registry import PURPOSES, Format
from witness.models import store
from witness.options import MOST_SPEAKERS, Part, chosen
from witness.serve.app_state import GONE, body_of, desk_of, path_of, queue_of, respond
from witness.serve.editing import exports, views
from witness.serve.roles import Endpoint, Role
from witness.serve.routes.home import addresses
from witness.serve.routes.recordings import AGAIN, ALIVE, live_page, live_sound
from witness.storage import files
from witness.transcript import edits, previous
from witness.transcript.store import Written
from witness.work import overrides

P = ParamSpec("P")

FIRST = (Format.DOCX, Format.TXT, Format.SRT, Format.QDA, Format.CSV)
"""The formats that people export most; the others of the same purpose follow."""
POLICY = "connect-src 'self'; media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Beside the policy in the page itself, which names the hash of its style."""
PACE = 0.5
"""Seconds between two looks for a newer version."""
MOST_WATCHING = 200
"""Windows that hear of newer versions."""
_watching: set[object] = set()


def routes() -> list[Endpoint]:
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
        Endpoint("POST", "/t/{id}/original", Role.WRITE, restore_original),
        Endpoint("POST", "/t/{id}/speakers", Role.WRITE, count_speakers),
        Endpoint("POST", "/t/{id}/name", Role.WRITE, name_speaker),
        Endpoint("GET", "/t/{id}/replace", Role.READ, list_occurrences),
        Endpoint("POST", "/t/{id}/replace", Role.WRITE, rewrite),
        Endpoint("GET", "/t/{id}/export", Role.READ, export),
        Endpoint("POST", "/t/{id}/preview", Role.READ, preview),
        Endpoint("POST", "/t/{id}/voice", Role.WRITE, keep_voice),
        Endpoint("GET", "/t/{id}/suggestions", Role.READ, suggest_names),
        Endpoint("GET", "/api/choices", Role.READ, list_choices),
        Endpoint("POST", "/t/{id}/again", Role.WRITE, transcribe_again),
        Endpoint("GET", "/t/{id}/differences", Role.READ, list_differences),
        Endpoint("POST", "/t/{id}/differences", Role.WRITE, look_through),
        Endpoint("POST", "/t/{id}/earlier", Role.WRITE, swap),
        Endpoint("GET", "/api/vocabulary", Role.READ, list_vocabulary),
        Endpoint("POST", "/api/vocabulary", Role.WRITE, change_vocabulary),
        Endpoint("GET", "/t/{id}/vocabulary", Role.READ, list_vocabulary),
        Endpoint("POST", "/t/{id}/vocabulary", Role.WRITE, change_vocabulary),
    ]


# --- the page ---


async def show(request: Request) -> Response:
    """Return the page; until there is a transcript, that of the work on it."""
    desk, id_ = desk_of(request), request.path_params["id"]
    path = await run_in_threadpool(desk.library.find, id_)
    if path is None:
        return await run_in_threadpool(live_page, request)
    role = request.state.user.role
    barred = None if role == Role.WRITE else f"you may {role} here; ask the owner of the desk for more"
    visit = views.Visit(
        id=id_,
        formats=formats(),
        barred=barred,
        noting=role == Role.COMMENT,
        working=desk.queue is not None and id_ in desk.queue.board.states(),
        not_again=desk.library.not_again(id_),
    )
    content = await desk.editor.run(views.page, path, visit, addresses("web/desk/transcript.js"))
    return Response(content, media_type="text/html", headers={"Content-Security-Policy": POLICY})


def formats() -> list[dict[str, str]]:
    """Return all formats that can be exported here, by purpose."""
    ordered = (*FIRST, *(form for form in Format if form not in FIRST))
    return [
        {"word": form, "label": form.about.label, "purpose": form.about.purpose, "shows": form.about.shows}
        for purpose in PURPOSES
        for form in ordered
        if form.about.purpose == purpose and form.installed
    ]


async def sound(request: Request) -> Response:
    """Return the recording, or the range of it that the request names."""
    desk = desk_of(request)
    path = await run_in_threadpool(desk.library.find, request.path_params["id"])
    if path is None:
        recording = await run_in_threadpool(live_sound, request)
    else:
        recording = await run_in_threadpool(desk.finder.recording, path)
    media_type = mimetypes.guess_type(recording.name)[0] or ""
    playable = media_type.startswith(("audio/", "video/"))
    return FileResponse(
        recording,
        media_type=media_type if playable else "application/octet-stream",
        headers={"Cache-Control": "private, max-age=600"},
    )


async def outline(request: Request) -> Response:
    """Return the peaks of the recording, a byte each."""
    content = await desk_of(request).finder.run(views.peaks, await path_of(request))
    return Response(content, media_type="application/octet-stream")


async def version(request: Request) -> Response:
    """Return the current version; `corrections` has it, too, and takes longer."""
    try:
        return JSONResponse({"version": await run_in_threadpool(files.sha256_at, await path_of(request))})
    except OSError as error:
        raise HTTPException(404, GONE) from error


async def events(request: Request) -> Response:
    """Send the current version, and each that follows, as server-sent events."""
    path = await path_of(request)
    if len(_watching) >= MOST_WATCHING:
        raise HTTPException(429, "too many windows are open; close some", {"Retry-After": "30"})
    return StreamingResponse(
        _versions(path), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _versions(path: Path) -> AsyncIterator[str]:
    window = object()
    _watching.add(window)
    try:
        yield f"retry: {AGAIN}\n\n"
        before: tuple[int, int] | None = None
        quiet = 0.0
        while True:
            with suppress(OSError):  # the file is being replaced, or gone
                status = await run_in_threadpool(path.stat)
                now = status.st_size, status.st_mtime_ns
                if now != before:
                    data = json.dumps({"version": await run_in_threadpool(files.sha256_at, path)})
                    before, quiet = now, 0.0
                    yield f"event: version\ndata: {data}\n\n"
            if quiet > ALIVE:
                quiet = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(PACE)
            quiet += PACE
    finally:
        _watching.discard(window)


# --- corrections ---


class Seen(Struct):
    """A change of the version that a person has seen."""

    version: str


class AddedCorrections(Seen):
    """Corrections on top of the saved ones."""

    corrections: dict[str, Any]


class AddedNotes(Seen):
    """Steps of a page that are notes, on top of the saved ones."""

    steps: list[Any]


class SpeakerCount(Seen):
    """Another number of speakers; None: the number that the recording suggests."""

    speakers: Annotated[int, Meta(ge=1, le=MOST_SPEAKERS)] | None = None


class SpeakerName(Seen):
    """A name for one speaker."""

    speaker: str
    name: str


class Rewriting(Seen):
    """Words to write otherwise, in the places that a person chose."""

    heard: str
    written: str
    places: list[int]


async def corrections(request: Request) -> Response:
    """Return the version and the steps."""
    return respond(await desk_of(request).editor.run(views.saved_steps, await path_of(request)))


async def save(request: Request) -> Response:
    """Save all steps of a page."""
    return await _change(request, edits.save, edits.read_edit(await body_of(request, dict[str, Any])))


async def add_corrections(request: Request) -> Response:
    body = await body_of(request, AddedCorrections)
    return await _change(request, edits.add_corrections, body.version, body.corrections)


async def add_notes(request: Request) -> Response:
    body = await body_of(request, AddedNotes)
    return await _change(request, edits.add_notes, body.version, body.steps)


async def restore_original(request: Request) -> Response:
    """Go back to the machine's version."""
    return await _change(request, edits.restore_original, (await body_of(request, Seen)).version)


async def count_speakers(request: Request) -> Response:
    body = await body_of(request, SpeakerCount)
    return await _change(request, edits.recount_speakers, body.version, body.speakers)


async def name_speaker(request: Request) -> Response:
    body = await body_of(request, SpeakerName)
    return await _change(request, edits.name_speaker, body.version, body.speaker, body.name)


async def list_occurrences(request: Request) -> Response:
    """List the places of words that may be written otherwise."""
    heard, written = (request.query_params.get(key, "") for key in ("heard", "written"))
    path = await path_of(request)
    return respond(await desk_of(request).finder.run(views.occurrences_of, path, heard, written))


async def rewrite(request: Request) -> Response:
    body = await body_of(request, Rewriting)
    return await _change(request, edits.rewrite_words, body.version, body.heard, body.written, body.places)


async def _change(
    request: Request,
    function: Callable[Concatenate[Path, P], Written],
    *args: P.args,
    **kwargs: P.kwargs,
) -> Response:
    """Change the transcript, and return its new version."""
    desk = desk_of(request)
    written = await desk.editor.run(function, await path_of(request), *args, **kwargs)
    desk.library.changed()
    return respond(written)


# --- exports and voices ---


class Preview(Struct):
    """A format and options."""

    format: str
    options: dict[str, Any]


class VoiceRequest(Struct):
    """The voice of a speaker, or of a part of the recording, under a name."""

    name: str
    speaker: str | None = None
    start: float | None = None
    end: float | None = None


async def export(request: Request) -> Response:
    """Return the transcript in another format, as a download."""
    form = chosen(Format, request.query_params.get("format", ""))
    name, content = await desk_of(request).editor.run(exports.content, await path_of(request), form)
    return download(content, name, form.about.media_type)


def download(content: bytes, name: str, media_type: str) -> Response:
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    return Response(content, media_type=media_type, headers=headers)


async def preview(request: Request) -> Response:
    """Return the beginning of the file of a format, with options."""
    body, path = await body_of(request, Preview), await path_of(request)
    form, options = chosen(Format, body.format), exports.read_options(body.options)
    return JSONResponse({"text": await desk_of(request).editor.run(exports.preview, path, form, options)})


async def keep_voice(request: Request) -> Response:
    """Keep the voice of a part, or of all turns of a speaker."""
    desk, body = desk_of(request), await body_of(request, VoiceRequest)
    if body.speaker is not None:
        voice_of: str | Part = body.speaker
    elif body.start is not None and body.end is not None:
        voice_of = Part(body.start, body.end)
    else:
        raise HTTPException(400, "give a speaker, or start and end")
    path = await path_of(request)
    return respond(await desk.editor.run(views.enroll, path, desk.known, body.name, voice_of))


async def suggest_names(request: Request) -> Response:
    """Return the known people that the speakers sound like."""
    desk, path = desk_of(request), await path_of(request)
    if not any(desk.known.glob("*.json")):
        return JSONResponse({"speakers": {}})
    return respond({"speakers": await desk.finder.run(views.suggest, path, desk.known)})


# --- transcribed again ---


class ChangedVocabulary(Struct):
    """Terms to take into a vocabulary, and to drop."""

    take: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


def list_choices(request: Request) -> Response:
    """List the models and languages that a recording can be transcribed with."""
    options = desk_of(request).options
    choices = [] if options.whisper == "none" else store.list_whisper_choices(options)
    models = [
        {
            "name": choice.name,
            "english": choice.english_only,
            "here": choice.here,
            "megabytes": choice.megabytes,
        }
        for choice in choices
    ]
    return JSONResponse({"models": models, "languages": languages.NAMES, "language": options.language})


async def transcribe_again(request: Request) -> Response:
    """Have the recording of a transcript transcribed again, with the settings in the request."""
    path, body = await path_of(request), await body_of(request, dict[str, Any])
    queue = queue_of(request)
    source = await desk_of(request).editor.run(views.source, path)
    if source.part is not None:
        body |= {"start": source.part.start, "end": source.part.end}
    settings = overrides.parse(body)
    status = await run_in_threadpool(queue.again, path, source.path.absolute(), settings)
    return JSONResponse(status.row(), 201)


async def list_differences(request: Request) -> Response:
    """Compare the transcript with the earlier one."""
    differences = await desk_of(request).editor.run(views.differences, await path_of(request))
    if differences is None:
        return JSONResponse({"there": False})
    return JSONResponse({"there": True, **msgspec.to_builtins(differences)})


async def look_through(request: Request) -> Response:
    """Note that a person has looked through the differences."""
    return await _change(request, previous.mark_seen, (await body_of(request, Seen)).version)


async def swap(request: Request) -> Response:
    """Exchange the transcript with the earlier one."""
    return await _change(request, previous.swap, (await body_of(request, Seen)).version)


async def list_vocabulary(request: Request) -> Response:
    """List the words of the folder, or of a transcript's folder, and the terms on offer."""
    return await _vocabulary(request, ChangedVocabulary())


async def change_vocabulary(request: Request) -> Response:
    return await _vocabulary(request, await body_of(request, ChangedVocabulary))


async def _vocabulary(request: Request, change: ChangedVocabulary) -> Response:
    desk = desk_of(request)
    folder = (await path_of(request)).parent if "id" in request.path_params else desk.folder
    take, drop = overrides.clean_terms(change.take), overrides.clean_terms(change.drop)
    return respond(await desk.editor.run(views.folder_words, folder, desk.folder, take, drop))
