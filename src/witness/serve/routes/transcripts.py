"""A transcript: its page, corrections, exports, voices and differences, and the vocabulary of its folder."""

from __future__ import annotations

import asyncio
import inspect
import json
import mimetypes
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Concatenate, ParamSpec, get_type_hints
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from witness import languages
from witness.errors import WitnessError
from witness.formats.registry import PURPOSES, Format
from witness.models import store
from witness.options import Part, chosen
from witness.serve import editing
from witness.serve.app_state import AppState
from witness.serve.editing import ExportOptions
from witness.serve.endpoints import GONE, Endpoint, existing, respond
from witness.serve.queue import Queue
from witness.serve.roles import Role
from witness.serve.routes.home import addresses
from witness.serve.routes.recordings import AGAIN, ALIVE, EventStream, live_page, live_sound
from witness.storage import files
from witness.transcript import edits, previous
from witness.transcript.anonymous import TITLE
from witness.transcript.edits import Edit
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
MOST_EXPORTED = 10_000
"""Recordings in one archive."""
DATE = (1980, 1, 1, 0, 0, 0)
"""Date of its files, the earliest that the format has: the same transcripts give the same bytes."""
ARCHIVE = "transcripts.zip"
FAILURES = "NOT EXPORTED.txt"
"""In an archive: the failures and their reasons, a line each."""
NO_REASON = "cannot be exported; an export with names tells the reason"
"""The line of an anonymous archive, because a reason names files."""


def routes() -> list[Endpoint]:
    return [
        Endpoint("GET", "/t/{id}/", Role.READ, show),
        Endpoint("GET", "/t/{id}/sound", Role.READ, sound),
        Endpoint("GET", "/t/{id}/outline", Role.READ, outline),
        Endpoint("GET", "/t/{id}/version", Role.READ, version),
        Endpoint("GET", "/t/{id}/events", Role.READ, events),
        Endpoint("GET", "/t/{id}/corrections", Role.READ, corrections),
        Endpoint("PUT", "/t/{id}/corrections", Role.WRITE, save),
        Endpoint("POST", "/t/{id}/corrections", Role.WRITE, change_by(edits.add_corrections)),
        Endpoint("POST", "/t/{id}/notes", Role.COMMENT, change_by(edits.add_notes)),
        Endpoint("POST", "/t/{id}/original", Role.WRITE, change_by(edits.restore_original)),
        Endpoint("POST", "/t/{id}/speakers", Role.WRITE, change_by(edits.recount_speakers)),
        Endpoint("POST", "/t/{id}/name", Role.WRITE, change_by(edits.name_speaker)),
        Endpoint("GET", "/t/{id}/replace", Role.READ, list_occurrences),
        Endpoint("POST", "/t/{id}/replace", Role.WRITE, change_by(edits.rewrite_words)),
        Endpoint("GET", "/t/{id}/export", Role.READ, export),
        Endpoint("POST", "/t/{id}/preview", Role.READ, preview),
        Endpoint("POST", "/t/{id}/voice", Role.WRITE, keep_voice),
        Endpoint("GET", "/t/{id}/suggestions", Role.READ, suggest_names),
        Endpoint("GET", "/api/choices", Role.READ, list_choices),
        Endpoint("POST", "/t/{id}/again", Role.WRITE, transcribe_again),
        Endpoint("GET", "/t/{id}/differences", Role.READ, list_differences),
        Endpoint("POST", "/t/{id}/differences", Role.WRITE, change_by(previous.mark_seen)),
        Endpoint("POST", "/t/{id}/earlier", Role.WRITE, change_by(previous.swap)),
        Endpoint("GET", "/api/vocabulary", Role.READ, list_vocabulary),
        Endpoint("POST", "/api/vocabulary", Role.WRITE, change_vocabulary),
        Endpoint("GET", "/t/{id}/vocabulary", Role.READ, list_vocabulary),
        Endpoint("POST", "/t/{id}/vocabulary", Role.WRITE, change_vocabulary),
        Endpoint("POST", "/api/export", Role.READ, export_all),
        Endpoint("GET", "/api/formats", Role.READ, list_formats),
    ]


# --- the page ---


def show(request: Request, desk: AppState, id_: str) -> Response:
    """Return the page; until there is a transcript, that of the work on it."""
    path = desk.library.find(id_)
    if path is None:
        return live_page(request)
    role = request.state.user.role
    visit = {
        "id": id_,
        "formats": formats(),
        "barred": None if role == Role.WRITE else f"you may {role} here; ask the owner of the desk for more",
        "noting": role == Role.COMMENT,
        "working": desk.queue is not None and id_ in desk.queue.board.states(),
        "notAgain": desk.library.not_again(id_),
    }
    content = desk.editor.call(editing.page, path, visit, addresses("web/desk/transcript.js"))
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


def sound(request: Request, desk: AppState, id_: str) -> Response:
    """Return the recording, or the range of it that the request names."""
    path = desk.library.find(id_)
    recording = live_sound(request) if path is None else desk.recording(path)
    media_type = mimetypes.guess_type(recording.name)[0] or ""
    playable = media_type.startswith(("audio/", "video/"))
    return FileResponse(
        recording,
        media_type=media_type if playable else "application/octet-stream",
        headers={"Cache-Control": "private, max-age=600"},
    )


def outline(desk: AppState, path: Path) -> Response:
    """Return the peaks of the recording, a byte each."""
    return Response(desk.finder.call(editing.peaks, path), media_type="application/octet-stream")


def version(path: Path) -> dict[str, str]:
    """Return the current version; `corrections` has it, too, and takes longer."""
    try:
        return {"version": files.sha256_at(path)}
    except OSError as error:
        raise HTTPException(404, GONE) from error


def events(path: Path) -> Response:
    """Send the current version, and each that follows, as server-sent events."""
    if len(_watching) >= MOST_WATCHING:
        raise HTTPException(429, "too many windows are open; close some", {"Retry-After": "30"})
    return EventStream(_versions(path))


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


def corrections(desk: AppState, path: Path) -> dict[str, Any]:
    """Return the version and the steps."""
    return desk.editor.call(editing.saved_steps, path)


def save(desk: AppState, path: Path, body: Edit) -> Written:
    """Save all steps of a page."""
    return change(desk, edits.save, path, body)


def list_occurrences(request: Request, desk: AppState, path: Path) -> dict[str, Any]:
    """List the places of words that may be written otherwise."""
    heard, written = (request.query_params.get(key, "") for key in ("heard", "written"))
    return desk.finder.call(editing.find_occurrences, path, heard, written)


def change(
    desk: AppState,
    function: Callable[Concatenate[Path, P], Written],
    path: Path,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Written:
    """Change a transcript, and return its new version."""
    written = desk.editor.call(function, path, *args, **kwargs)
    desk.library.changed()
    return written


def change_by(function: Callable[..., Written]) -> Callable[..., Written]:
    """Return a handler that changes the transcript by a function, whose other arguments are the request."""
    hints = get_type_hints(function, include_extras=True)
    _, *parameters = inspect.signature(function).parameters.values()
    fields = [
        (
            parameter.name,
            hints[parameter.name],
            *(() if parameter.default is parameter.empty else (parameter.default,)),
        )
        for parameter in parameters
    ]

    def handler(desk: AppState, path: Path, body: Struct) -> Written:
        return change(desk, function, path, **msgspec.structs.asdict(body))

    handler.__annotations__["body"] = msgspec.defstruct(function.__name__, fields)
    return handler


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


def export(request: Request, desk: AppState, path: Path) -> Response:
    """Return the transcript in another format, as a download."""
    form = chosen(Format, request.query_params.get("format", ""))
    return download(*desk.editor.call(editing.export, path, form), form.about.media_type)


def download(name: str, content: bytes, media_type: str) -> Response:
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    return Response(content, media_type=media_type, headers=headers)


def preview(desk: AppState, path: Path, body: Preview) -> dict[str, str]:
    """Return the beginning of the file of a format, with options."""
    form, options = chosen(Format, body.format), editing.read_options(body.options)
    return {"text": desk.editor.call(editing.preview, path, form, options)}


def keep_voice(desk: AppState, path: Path, body: VoiceRequest) -> dict[str, Any]:
    """Keep the voice of a part, or of all turns of a speaker."""
    if body.speaker is not None:
        voice_of: str | Part = body.speaker
    elif body.start is not None and body.end is not None:
        voice_of = Part(body.start, body.end)
    else:
        raise HTTPException(400, "give a speaker, or start and end")
    return desk.editor.call(editing.enroll, path, desk.known, body.name, voice_of)


def suggest_names(desk: AppState, path: Path) -> dict[str, Any]:
    """Return the known people that the speakers sound like."""
    known = any(desk.known.glob("*.json"))
    return {"speakers": desk.finder.call(editing.suggest, path, desk.known) if known else {}}


# --- transcribed again ---


class ChangedVocabulary(Struct):
    """Terms to take into a vocabulary, and to drop."""

    take: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


def list_choices(desk: AppState) -> dict[str, Any]:
    """List the models and languages that a recording can be transcribed with."""
    options = desk.options
    choices = [] if options.whisper == "none" else store.list_whisper_choices(options)
    models = [
        {
            "name": choice.file.name,
            "english": choice.file.english_only,
            "here": choice.path is not None,
            "megabytes": round(choice.file.total / 1e6),
        }
        for choice in choices
    ]
    return {"models": models, "languages": languages.NAMES, "language": options.language}


def transcribe_again(desk: AppState, queue: Queue, path: Path, body: dict[str, Any]) -> Response:
    """Have the recording of a transcript transcribed again, with the settings in the request."""
    recording, part = desk.editor.call(editing.source, path)
    if part is not None:
        body |= {"start": part.start, "end": part.end}
    return respond(queue.again(path, recording.absolute(), overrides.parse(body)).row(), 201)


def list_differences(desk: AppState, path: Path) -> dict[str, Any]:
    """Compare the transcript with the earlier one."""
    return desk.editor.call(editing.differences, path)


def list_vocabulary(request: Request, desk: AppState) -> dict[str, Any]:
    """List the words of the folder, or of a transcript's folder, and the terms on offer."""
    return change_vocabulary(request, desk, ChangedVocabulary())


def change_vocabulary(request: Request, desk: AppState, body: ChangedVocabulary) -> dict[str, Any]:
    id_ = request.path_params.get("id")
    folder = desk.folder if id_ is None else existing(desk, id_).parent
    take, drop = overrides.clean_terms(body.take), overrides.clean_terms(body.drop)
    return desk.editor.call(editing.folder_words, folder, desk.folder, take, drop)


# --- exports of several ---


class Export(Struct):
    """Files of some recordings; `sound`: and their MP3."""

    ids: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    sound: bool = False


def list_formats() -> dict[str, Any]:
    """List the formats that this installation can write."""
    return {"formats": formats()}


def export_all(desk: AppState, body: Export) -> Response:
    """Return one file, or an archive."""
    options = editing.read_options(body.options)
    orders = [_Order(chosen(Format, word), options) for word in dict.fromkeys(body.formats)]
    if body.sound:
        orders.append(_Order(None, options))
    if not body.ids or not orders or len(body.ids) > MOST_EXPORTED:
        raise HTTPException(400, f"choose a format, and 1 to {MOST_EXPORTED} recordings")
    paths = [existing(desk, id_) for id_ in dict.fromkeys(body.ids)]
    if len(paths) * len(orders) == 1:
        return download(*orders[0].fill(desk, paths[0]), orders[0].media_type)
    return StreamingResponse(  # no more than one of its files is in memory
        _pieces(desk, paths, orders),
        media_type="application/zip",
        headers={"Content-Disposition": f"attachment; filename={ARCHIVE}"},
    )


@dataclass(frozen=True)
class _Order:
    """A file of each recording."""

    form: Format | None
    """None: MP3."""
    options: ExportOptions

    @property
    def media_type(self) -> str:
        return "audio/mpeg" if self.form is None else self.form.about.media_type

    def fill(self, desk: AppState, path: Path, title: str = TITLE) -> tuple[str, bytes]:
        """Return name and content; an anonymous one has this `title`. Raises WitnessError."""
        if self.form is None:
            return desk.finder.call(editing.export_sound, path, self.options, title)
        return desk.finder.call(editing.export, path, self.form, self.options, title)


def _pieces(desk: AppState, paths: Sequence[Path], orders: Sequence[_Order]) -> Iterator[bytes]:
    sink = _Sink()
    failures: list[str] = []
    names: set[str] = set()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, path in enumerate(paths, start=1):
            below = path.relative_to(desk.folder)
            title = TITLE if len(paths) == 1 else f"{TITLE} {number}"
            for order in orders:
                anonymous = order.options.names == "anonymous"  # folders are called after people, too
                try:
                    name, content = order.fill(desk, path, title)
                except WitnessError as error:
                    failed, why = (title, NO_REASON) if anonymous else (below.as_posix(), error)
                    failures.append(f"{failed}: {why}\n")
                    continue
                folder = PurePosixPath() if anonymous else PurePosixPath(below.parent.as_posix())
                _put(archive, _free(str(folder / name), names), content)
                yield sink.take()
        if failures:
            _put(archive, FAILURES, "".join(failures).encode("utf-8", "replace"))
    yield sink.take()


def _put(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    about = zipfile.ZipInfo(name.encode("utf-8", "replace").decode(), DATE)
    about.external_attr = 0o600 << 16
    archive.writestr(about, content, zipfile.ZIP_DEFLATED)


def _free(name: str, names: set[str]) -> str:
    """Return the name, with a number if the archive has it already."""
    stem, dot, ending = name.partition(".") if "/" not in name else (name, "", "")
    number, free = 1, name
    while free.casefold() in names:
        number += 1
        free = f"{stem} {number}{dot}{ending}"
    names.add(free.casefold())
    return free


class _Sink:
    """A file for writing that hands on the written bytes piece by piece."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, content: bytes) -> int:
        self._written += content
        return len(content)

    def flush(self) -> None:
        """Do nothing: all bytes can be taken already."""

    def close(self) -> None:
        """Do nothing: the bytes stay until they are taken."""

    def take(self) -> bytes:
        """Return the bytes since the last call."""
        taken = bytes(self._written)
        self._written.clear()
        return taken
