"""Uploads: writes the recordings of a request with `multipart/form-data` to files, piece by piece.

They lie in a hidden folder beside the results, on the same disk, and leave it when they are complete. A
server begins by deleting the incomplete ones of an earlier one. Not Starlette's form parser: it writes
gigabytes to the system's temporary folder, limits neither headers nor text, and needs a file name.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import unicodedata
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from witness.audio import source
from witness.audio.source import ENDINGS
from witness.errors import WitnessError, writing
from witness.serve.app_state import discard
from witness.serve.library.library import is_recording
from witness.storage import files, transaction
from witness.text import one_line
from witness.work.produce import FULL

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

PLACE, LOCK = ".witness-uploads", "lock"
MOST_FILES = 100
"""Recordings in one request."""
MOST_PARTS = 200
"""Parts of one request, recordings or not."""
MOST_TEXT = 8 << 20
"""Bytes of text in one request; samples of known speakers are texts."""
AT_ONCE = 16
"""Requests that may send recordings at the same time; others wait."""
MOST_WAITING = 100
"""Requests that may wait."""
ROOM = 64 << 20
"""Bytes of the disk that uploads leave free."""
PIECE = 1 << 20
"""Bytes that are parsed and written at a time."""
OURS = re.compile(r"[0-9a-f]{16}")
"""Names of the folders of requests."""
LONGEST = 120
"""Bytes of a name without its ending; results append numbers and endings."""
NOT_IN_NAMES = re.compile(r'[<>:"/\\|?*\ufffd]+')
"""Characters that some disk refuses, and the sign for control characters."""
_ENCODED = re.compile(rb"(?i);\s*filename\*\s*=\s*utf-8'[^']*'([^;\s]*)")
"""A name of RFC 5987, which goes before a plain one."""
SOUND = (b"audio/", b"video/", b"application/octet-stream")
"""Types of a recording without a name."""
RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)
"""Names of devices on Windows."""


@dataclass(frozen=True)
class Upload:
    """A recording in a request."""

    field: str
    """Its field in the form."""
    name: str
    """A safe name, made of the sent one."""
    path: Path


@dataclass
class Form:
    """The form in a request."""

    folder: Path
    """The folder of this request, which ends with it."""
    uploads: list[Upload] = field(default_factory=list)
    fields: list[tuple[str, str]] = field(default_factory=list)
    """Names and values, in their order."""


class Uploads:
    """The hidden folder of one server; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._uploads = folder / PLACE
        self._lock = ExitStack()
        self._waiting = 0
        self._turns = asyncio.Semaphore(AT_ONCE)

    def __enter__(self) -> Uploads:
        """Delete the leftovers of another server. Raises WitnessError if one is at work, OutputError."""
        with writing(self._uploads):
            files.own_folder(self._uploads)  # a link may lead to a folder of others
            if not self._lock.enter_context(transaction.held(self._uploads / LOCK)):
                raise WitnessError(
                    f"another witness serve is at work in {self._folder}; use it, or end it first"
                )
            for left in self._uploads.iterdir():
                if OURS.fullmatch(left.name):
                    shutil.rmtree(left, ignore_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    @asynccontextmanager
    async def received(self, request: Request) -> AsyncIterator[Form]:
        """Yield the form of a request, once it is complete; move recordings away to keep them.

        Raises HTTPException, whose text names the fault of the request.
        """
        media_type, options = parse_options_header(request.headers.get("content-type"))
        form = Form(self._uploads / secrets.token_hex(8))
        try:
            try:
                await self._check(request, media_type == b"multipart/form-data" and b"boundary" in options)
                self._waiting += 1
                try:
                    async with self._turns:
                        form.folder.mkdir(0o700)
                        await _receive(request, options[b"boundary"], form)
                finally:
                    self._waiting -= 1
            except OSError as error:
                full = error.errno in FULL
                why = _FULL if full else f"the recording cannot be kept ({error.strerror})"
                raise HTTPException(507, why) from error
            yield form
        finally:
            # Also for a request that is canceled.
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, form.folder, ignore_errors=True))

    async def _check(self, request: Request, is_form: bool) -> None:
        """Refuse a request by its headers. Raises HTTPException."""
        wrong: HTTPException | None = None
        length = request.headers.get("content-length", "0")
        if not is_form:
            wrong = HTTPException(415, "send multipart/form-data with the recording in a field")
        elif self._waiting >= AT_ONCE + MOST_WAITING:
            wrong = HTTPException(429, "too many recordings are being sent; try again", {"Retry-After": "10"})
        elif shutil.disk_usage(self._folder).free - ROOM < (int(length) if length.isdigit() else 0):
            wrong = HTTPException(507, _FULL)
        if wrong is not None:
            await discard(request.receive)
            raise wrong


_FULL = "the disk is full; free disk space, then send it again"


async def _receive(request: Request, boundary: bytes, form: Form) -> None:
    """Write a request into the folder of `form`. Raises HTTPException, OSError."""
    parts = _Parts(form)
    more, unread = True, bytearray()
    try:
        parser = MultipartParser(boundary, parts.callbacks())
        while more:
            message = await request.receive()
            more = message.get("more_body", False)  # not in the one that the client has left
            unread += message.get("body", b"")
            if len(unread) >= PIECE or not more:
                await run_in_threadpool(parser.write, bytes(unread))
                unread.clear()
        parser.finalize()
    except (HTTPException, FormParserError, OSError) as error:
        if more:
            await discard(request.receive)
        if isinstance(error, FormParserError):
            raise HTTPException(400, "the request is not valid multipart/form-data") from None
        raise
    finally:
        if parts.file is not None:
            parts.file.close()
    if not parts.whole:
        raise HTTPException(400, "the request ended early; send it again")


class _Parts:
    """Callbacks of the parser: headers, then pieces of a text or of a recording."""

    def __init__(self, form: Form) -> None:
        self.whole = False
        """The parser has seen the end of the form."""
        self.file: BinaryIO | None = None
        """File of the current recording."""
        self._form = form
        self._count = self._text = 0
        self._begin()

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._field,
            "on_header_value": self._value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._start,
            "on_part_data": self._take,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        self._header, self._content = b"", b""
        self._headers: dict[bytes, bytes] = {}
        self._field_name = ""
        self._name: str | None = None
        """File name of a recording; None: a text."""
        self.file = None

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _value(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]

    def _end_header(self) -> None:
        self._headers[self._header.lower()] = self._content
        self._header, self._content = b"", b""

    def _start(self) -> None:
        """Decide by the headers: a recording or a text."""
        self._count += 1
        if self._count > MOST_PARTS:
            raise HTTPException(413, f"more than {MOST_PARTS} parts in one request; send less")
        disposition = self._headers.get(b"content-disposition", b"")
        _, options = parse_options_header(disposition)
        self._field_name = options.get(b"name", b"").decode("utf-8", "replace")
        if (encoded := _ENCODED.search(disposition)) is not None:
            self._name = unquote(encoded[1].decode("latin-1"), errors="replace")
        elif b"filename" in options:
            self._name = options[b"filename"].decode("utf-8", "replace")
        elif self._headers.get(b"content-type", b"").lower().startswith(SOUND):  # RFC 7578: it needs no name
            self._name = self._field_name
        else:
            return
        if len(self._form.uploads) >= MOST_FILES:
            raise HTTPException(413, f"more than {MOST_FILES} recordings in one request; send fewer")
        if is_recording(self._name):
            self._keep(self._name)

    def _keep(self, sent: str) -> None:
        """Begin a recording, whose name has an ending. Raises HTTPException."""
        name = clean(sent)
        path = self._form.folder / f"{len(self._form.uploads)}{Path(name).suffix}"
        self._form.uploads.append(Upload(self._field_name, name, path))
        self.file = path.open("wb")
        self.file.write(self._content)

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self.file is not None:
            self.file.write(memoryview(data)[start:end])
            return
        self._content += data[start:end]
        if self._name is not None:
            if len(self._content) >= source.NEEDED:
                self._probe(self._name)
            return
        self._text += end - start
        if self._text > MOST_TEXT:
            raise HTTPException(
                413, f"more than {MOST_TEXT >> 10} KiB of text beside the recording; send less"
            )

    def _probe(self, name: str) -> None:
        """Begin a recording without a telling name (`audio`, `blob`), by its first bytes."""
        ending = source.guess_ending(self._content)
        self._keep(name if ending is None else f"{name.strip('.')}.{ending}")

    def _end(self) -> None:
        if self.file is None and self._name is not None:
            self._probe(self._name)
        if self.file is not None:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            return
        try:
            self._form.fields.append((self._field_name, self._content.decode()))
        except UnicodeDecodeError:
            raise HTTPException(400, "a field is not UTF-8") from None

    def _finish(self) -> None:
        self.whole = True


def clean(sent: str) -> str:
    """Return the sent name of a recording, without signs that a disk or a terminal may mistake.

    Raises HTTPException if it is not the name of a recording.
    """
    last = re.split(r"[/\\]", sent)[-1]
    stem, ending = os.path.splitext(one_line(last))  # noqa: PTH122
    if ending[1:].lower() not in ENDINGS:
        why = "does not have the ending of a recording: wav, mp3, m4a, flac, ogg, mp4, webm, ..."
        raise HTTPException(415, f"{stem[:80]}{ending[:20]}: {why}")
    return (clean_stem(stem) or "recording") + ending.lower()


def clean_stem(text: str) -> str:
    """Return a safe name of a recording, without its ending, or of a folder; empty: it has no safe part."""
    stem = unicodedata.normalize("NFC", NOT_IN_NAMES.sub(" ", one_line(text)))
    stem = " ".join(stem.split()).strip(" .-~")
    if RESERVED.match(f"{stem}."):
        stem = f"recording {stem}"
    return os.fsencode(stem)[:LONGEST].decode("utf-8", "ignore").rstrip(" .")
