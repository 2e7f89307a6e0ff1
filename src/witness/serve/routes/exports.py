"""Exports: one file, or several recordings and formats as one archive."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from witness.errors import WitnessError
from witness.formats.registry import Format
from witness.options import chosen
from witness.serve import editing
from witness.serve.app_state import AppState
from witness.serve.editing import ExportOptions
from witness.serve.endpoints import Endpoint, existing
from witness.serve.roles import Role
from witness.serve.routes.transcripts import download, formats

MOST = 10_000
"""Recordings in one archive."""
DATE = (1980, 1, 1, 0, 0, 0)
"""Date of its files, the earliest that the format has: the same transcripts give the same bytes."""
ARCHIVE = "transcripts.zip"
FAILURES = "NOT EXPORTED.txt"
"""In an archive: the failures and their reasons, a line each."""


class Export(Struct):
    """Files of some recordings; `sound`: and their MP3."""

    ids: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    sound: bool = False


def routes() -> list[Endpoint]:
    return [
        Endpoint("POST", "/api/export", Role.READ, export),
        Endpoint("GET", "/api/formats", Role.READ, list_formats),
    ]


def list_formats() -> dict[str, Any]:
    """List the formats that this installation can write."""
    return {"formats": formats()}


def export(desk: AppState, body: Export) -> Response:
    """Return one file, or an archive."""
    options = editing.read_options(body.options)
    orders = [_Order(chosen(Format, word), options) for word in dict.fromkeys(body.formats)]
    if body.sound:
        orders.append(_Order(None, options))
    if not body.ids or not orders or len(body.ids) > MOST:
        raise HTTPException(400, f"choose a format, and 1 to {MOST} recordings")
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

    def fill(self, desk: AppState, path: Path) -> tuple[str, bytes]:
        """Return name and content. Raises WitnessError."""
        if self.form is None:
            return desk.finder.call(editing.export_sound, path, self.options)
        return desk.finder.call(editing.export, path, self.form, self.options)


def _pieces(desk: AppState, paths: Sequence[Path], orders: Sequence[_Order]) -> Iterator[bytes]:
    sink = _Sink()
    failures: list[str] = []
    names: set[str] = set()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            below = path.relative_to(desk.folder)
            for order in orders:
                try:
                    name, content = order.fill(desk, path)
                except WitnessError as error:
                    failures.append(f"{below.as_posix()}: {error}\n")
                    continue
                anonymous = order.options.names == "anonymous"  # folders are called after people, too
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
