"""The file format of `schema.Findings`, NAME.findings.npz: the same bytes for the same findings.

It is an npz file without pickled objects. N counts tracks from 0.

    header      everything that is not an array: JSON in UTF-8, as uint8
    starts_N    (windows,) int64: the sample at which each window begins
    active_N    (windows, 589, 3) activity, as packed bits
    known_N     (windows, 3) which local speakers have a vector, as packed bits
    vectors_N   (known, 256) float32: their vectors, in that order
    plda_NAME   arrays of the clustering, if it has any

Nearly all of it is vectors; for sizes, see docs/decisions/2026-11-22-constants.md.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, TypedDict

import numpy as np
from msgspec import Meta

from witness._version import __version__
from witness.errors import InputError
from witness.options import Layout, Options
from witness.schema import (
    FRAME_SAMPLES,
    FRAMES,
    LOCAL_SPEAKERS,
    WINDOW_SAMPLES,
    Bool,
    Findings,
    ModelFile,
    Recognition,
    Rule,
    Segmentation,
    Source,
    Time,
    Track,
    Word,
)
from witness.storage.decode import DAMAGED, from_json

VERSION = 1
"""Of the format; files of another version cannot be read."""
MOST_WINDOWS = 100_000
"""In all tracks together: 55 hours of one. What they take in memory is known before it is taken."""
LARGEST_HEADER = 32 << 20
"""Bytes. The words of an hour of talk take 0.4 MB."""
LARGEST_PLDA = 1 << 20
"""Numbers in an array of the clustering; that of community-1 has 32,768."""


@dataclass(frozen=True)
class _Version:
    """So much of the header every version has."""

    version: int


class _Models(TypedDict):
    """Name, sha256 and engine of each model."""

    segmentation: tuple[str, str, str | None] | None
    embedding: tuple[str, str, str | None] | None
    whisper: tuple[str, str, str | None] | None


class _Devices(TypedDict):
    embedding: str | None
    whisper: str | None


@dataclass(frozen=True)
class _WordColumns:
    """The words of a track by column; all columns are equally long."""

    start: tuple[Time, ...] = ()
    end: tuple[Time, ...] = ()
    text: tuple[str, ...] = ()
    speaker: tuple[str | None, ...] = ()
    speaker_confidence: tuple[float | None, ...] = ()
    overlap: tuple[bool, ...] = ()
    supported: tuple[bool, ...] = ()
    probability: tuple[float | None, ...] = ()
    language: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class _Recognition:
    words: _WordColumns
    language: str | None
    device: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _TrackHeader:
    windows: Annotated[int, Meta(ge=0, le=MOST_WINDOWS)]
    vector: Annotated[int, Meta(ge=1, le=512)]
    """Numbers in a voice vector."""
    recognition: _Recognition | None


@dataclass(frozen=True)
class _Header:
    """Everything that is not an array."""

    version: int
    audio: Source
    models: _Models
    device: _Devices
    rule: Rule
    channels: Layout
    fast: bool
    tracks: tuple[_TrackHeader, ...]
    warnings: tuple[str, ...]
    machine: tuple[str, ...] = ()
    """Earlier files have none."""


def encode(findings: Findings) -> bytes:
    """The content of the file."""
    path = findings.audio.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    header = {
        "version": VERSION,
        "audio": {**asdict(findings.audio), "path": path},
        # Without the path, which is good on one machine only.
        "models": {role: model and _model(model) for role, model in findings.models.items()},
        "device": findings.device,
        "rule": asdict(findings.rule),
        "channels": findings.channels,
        "fast": findings.fast,
        "warnings": findings.warnings,
        "machine": findings.machine,
        "tracks": [
            {
                "windows": len(track.windows.active),
                "vector": track.vectors.shape[2],
                "recognition": track.recognition and _recognition(track.recognition),
            }
            for track in findings.tracks
        ],
    }
    arrays: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}
    arrays |= {f"plda_{name}": array for name, array in sorted(findings.plda.items())}
    for number, track in enumerate(findings.tracks):
        known = np.isfinite(track.vectors).all(axis=2)
        arrays[f"starts_{number}"] = track.windows.starts.astype(np.int64)
        arrays[f"active_{number}"] = np.packbits(track.windows.active)
        arrays[f"known_{number}"] = np.packbits(known)
        arrays[f"vectors_{number}"] = track.vectors[known]
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def decode(content: bytes, name: str) -> Findings:
    """The findings in the content of a file.

    Raises InputError, which calls the file `name`, if it is damaged or of another version of the format.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _decode(archive, name)
    except DAMAGED as error:
        raise _damaged(name, error) from error


def check_version(content: bytes, name: str) -> None:
    """Raise InputError as `decode` does, as far as the version tells: without its time, an hour's 0.06 s."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _header(archive, name)
    except DAMAGED as error:
        raise _damaged(name, error) from error


def work(source: Source, channels: str, models: Mapping[str, ModelFile | None], options: Options) -> str:
    """What a journal goes by: all that changes what the models find and what is recognized."""
    asked = asdict(options)
    for who in ("known", "speakers", "min_speakers", "max_speakers", "offline"):
        asked.pop(who)  # they only change who is who
    hashes = {role: model and model.sha256 for role, model in models.items()}
    return json.dumps([__version__, source.sha256, channels, asked, hashes])


def kept(content: bytes | None) -> Findings | None:
    """Of a run that was interrupted; None: there are none."""
    if content is None:
        return None
    with suppress(InputError):
        return decode(content, "findings")
    return None


def _damaged(name: str, error: Exception) -> InputError:
    why = " ".join(str(error).split())[:200]
    return InputError(
        f"{name}: is damaged, or not a file of findings ({why}); transcribe the recording again"
    )


def _header(archive: zipfile.ZipFile, name: str) -> bytes:
    """The header, of this version. Raises InputError, or one of `documents.DAMAGED`."""
    text: bytes = _array(archive, "header", np.uint8, None, LARGEST_HEADER).tobytes()
    if from_json(text, _Version).version != VERSION:
        raise InputError(f"{name}: was written by another version of Witness; transcribe the recording again")
    return text


def _decode(archive: zipfile.ZipFile, name: str) -> Findings:
    """Raises InputError, or one of `documents.DAMAGED`."""
    header = from_json(_header(archive, name), _Header)
    part, tracks = header.audio.part, header.tracks
    if part is not None and not 0 <= part.start < part.end:
        raise ValueError("the part is empty - at `$.audio.part`")
    if len(tracks) < 1 or len(tracks) != {Layout.MIX: 1, Layout.CALL: 2}.get(header.channels, len(tracks)):
        raise ValueError(f"{len(tracks)} tracks of a recording with channels {header.channels}")
    if (windows := sum(track.windows for track in tracks)) > MOST_WINDOWS:
        raise ValueError(f"{windows} windows, and {MOST_WINDOWS} are the limit")
    found = tuple(_track(archive, number, track) for number, track in enumerate(tracks))
    if any(not np.array_equal(track.windows.starts, found[0].windows.starts) for track in found):
        raise ValueError("its tracks have different windows")
    arrays = [name.removesuffix(".npy") for name in archive.namelist() if name.startswith("plda_")]
    models: Mapping[str, Any] = header.models
    return Findings(
        audio=header.audio,
        models={role: m and ModelFile(m[0], "", *m[1:]) for role, m in models.items()},
        device={"embedding": header.device["embedding"], "whisper": header.device["whisper"]},
        rule=header.rule,
        plda={
            name.removeprefix("plda_"): _array(archive, name, np.float64, None, LARGEST_PLDA)
            for name in arrays
        },
        channels=header.channels,
        fast=header.fast,
        tracks=found,
        warnings=header.warnings,
        machine=header.machine,
    )


def _model(model: ModelFile) -> list[str | None]:
    """For the header: as the fields of `ModelFile`, without the path."""
    return [model.name, model.sha256, model.engine]


def _recognition(recognition: Recognition) -> dict[str, Any]:
    """For the header: without the seconds it took; the words by column, which is shorter."""
    words, columns = recognition.words, [column.name for column in fields(_WordColumns)]
    return {
        "words": {name: [getattr(word, name) for word in words] for name in columns} if words else {},
        "language": recognition.language,
        "device": recognition.device,
        "warnings": recognition.warnings,
    }


def _read_recognition(found: _Recognition) -> Recognition:
    """The inverse of `_recognition`. Raises ValueError."""
    names = [column.name for column in fields(_WordColumns)]
    rows = zip(*(getattr(found.words, name) for name in names), strict=True)
    return Recognition(
        words=tuple(Word(**dict(zip(names, row, strict=True))) for row in rows),
        language=found.language,
        device=found.device,
        warnings=found.warnings,
    )


def _track(archive: zipfile.ZipFile, number: int, head: _TrackHeader) -> Track:
    """Track `number`; `head` is its part of the header. Raises one of `documents.DAMAGED`."""
    windows, size = head.windows, head.vector
    starts = _array(archive, f"starts_{number}", np.int64, (windows,)).astype(np.intp)
    steps = np.diff(starts)
    # No gaps: who speaks is counted in frames from the first window to the last.
    if starts[:1].any() or ((steps < FRAME_SAMPLES) | (steps > WINDOW_SAMPLES)).any():
        raise ValueError(f"starts_{number} are not those of windows")
    active = _bits(archive, f"active_{number}", (windows, FRAMES, LOCAL_SPEAKERS))
    known = _bits(archive, f"known_{number}", (windows, LOCAL_SPEAKERS))
    given = _array(archive, f"vectors_{number}", np.float32, (int(known.sum()), size))
    lengths = np.linalg.norm(given.astype(np.float64), axis=1)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise ValueError(f"vectors_{number} are not voice vectors")
    vectors = np.full((windows, LOCAL_SPEAKERS, size), np.nan, np.float32)
    vectors[known] = given
    recognition = None if head.recognition is None else _read_recognition(head.recognition)
    return Track(Segmentation(active, starts), vectors, recognition)


def _array(
    archive: zipfile.ZipFile,
    name: str,
    kind: Any,
    shape: tuple[int, ...] | None,
    most: int | None = None,
) -> Any:
    """An array of the archive; its shape, of `most` numbers if none is given, is known before it is read.

    Raises one of `documents.DAMAGED`.
    """
    with archive.open(f"{name}.npy") as file:
        np.lib.format.read_magic(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a head that Python 2 could have written
            found, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        if shape is None and most is not None and len(found) <= 2 and np.prod(found, dtype=float) <= most:
            shape = found
        if dtype != np.dtype(kind) or found != shape:
            raise ValueError(f"{name} is an array of {dtype}, {'x'.join(map(str, found))}")
        data = file.read(int(np.prod(found)) * dtype.itemsize)
        return np.frombuffer(data, dtype).reshape(found, order="F" if fortran else "C")


def _bits(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...]) -> Bool:
    """Packed bits of the archive as booleans of that shape. Raises one of `documents.DAMAGED`."""
    count = int(np.prod(shape))
    packed = _array(archive, name, np.uint8, (-(-count // 8),))
    flags: Bool = np.unpackbits(packed, count=count).reshape(shape).view(np.bool_)
    return flags
