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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, structs, to_builtins

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
from witness.storage import typed_json

VERSION = 1
"""The version of the format; files of another version cannot be read."""
MOST_WINDOWS = 100_000
"""The limit of all tracks together: 55 hours of one track. It bounds the memory before any is taken."""
LARGEST_HEADER = 32 << 20
"""Maximum bytes of the header. The words of an hour of talk take 0.4 MB."""
LARGEST_PLDA = 1 << 20
"""Maximum numbers in an array of the clustering; that of community-1 has 32,768."""


class _Version(Struct):
    """The part of the header that every version has."""

    version: int


class _Models(Struct):
    """Name, sha256 and engine of each model; not the path, which holds on one machine only."""

    segmentation: tuple[str, str, str | None] | None
    embedding: tuple[str, str, str | None] | None
    whisper: tuple[str, str, str | None] | None


class _Devices(Struct):
    embedding: str | None
    whisper: str | None


class _Words(Struct, omit_defaults=True):
    """The words of a track by column, which is shorter; all columns are equally long."""

    start: tuple[Time, ...] = ()
    end: tuple[Time, ...] = ()
    text: tuple[str, ...] = ()
    speaker: tuple[str | None, ...] = ()
    speaker_confidence: tuple[float | None, ...] = ()
    overlap: tuple[bool, ...] = ()
    supported: tuple[bool, ...] = ()
    probability: tuple[float | None, ...] = ()
    language: tuple[str | None, ...] = ()


COLUMNS = _Words.__struct_fields__


class _Recognition(Struct):
    """A recognition without its seconds."""

    words: _Words
    language: str | None
    device: str
    warnings: tuple[str, ...]


class _Track(Struct):
    windows: Annotated[int, Meta(ge=0, le=MOST_WINDOWS)]
    vector: Annotated[int, Meta(ge=1, le=512)]
    """Numbers in a voice vector."""
    recognition: _Recognition | None


class _Header(Struct, kw_only=True):
    """Everything that is not an array."""

    version: int
    audio: Source
    models: _Models
    device: _Devices
    rule: Rule
    channels: Layout
    fast: bool
    warnings: tuple[str, ...]
    machine: tuple[str, ...] = ()
    """Empty in earlier files."""
    tracks: tuple[_Track, ...]


def encode(findings: Findings) -> bytes:
    """Return the content of the file."""
    path = findings.audio.path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    header = _Header(
        version=VERSION,
        audio=replace(findings.audio, path=path),
        models=_Models(
            **{
                role: None if model is None else (model.name, model.sha256, model.engine)
                for role, model in findings.models.items()
            }
        ),
        device=_Devices(**findings.device),
        rule=findings.rule,
        channels=findings.channels,
        fast=findings.fast,
        warnings=findings.warnings,
        machine=findings.machine,
        tracks=tuple(
            _Track(
                len(track.windows.active),
                track.vectors.shape[2],
                None if track.recognition is None else _columns(track.recognition),
            )
            for track in findings.tracks
        ),
    )
    arrays: dict[str, Any] = {"header": np.frombuffer(json.dumps(to_builtins(header)).encode(), np.uint8)}
    arrays |= {f"plda_{name}": array for name, array in sorted(findings.plda.items())}
    for number, track in enumerate(findings.tracks):
        has_vector = np.isfinite(track.vectors).all(axis=2)
        arrays[f"starts_{number}"] = track.windows.starts.astype(np.int64)
        arrays[f"active_{number}"] = np.packbits(track.windows.active)
        arrays[f"known_{number}"] = np.packbits(has_vector)
        arrays[f"vectors_{number}"] = track.vectors[has_vector]
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def decode(content: bytes, name: str) -> Findings:
    """Read the findings in the content of a file.

    Raises InputError, which calls the file `name`, if it is damaged or of another version of the format.
    """
    with _opened(content, name) as archive:
        return _decode(archive, name)


def check_version(content: bytes, name: str) -> None:
    """Raise InputError for another version, as `decode` does, but without its time (0.06 s for an hour)."""
    with _opened(content, name) as archive:
        _header(archive, name)


def checkpoint_key(
    source: Source, channels: str, models: Mapping[str, ModelFile | None], options: Options
) -> str:
    """Return the key of a checkpoint: everything that changes the findings and the recognized words."""
    asked = asdict(options)
    for option in ("known", "speakers", "min_speakers", "max_speakers", "offline"):
        asked.pop(option)  # they change the clustering only
    hashes = {role: model and model.sha256 for role, model in models.items()}
    return json.dumps([__version__, source.sha256, channels, asked, hashes])


def from_checkpoint(content: bytes | None) -> Findings | None:
    """Read the findings of an interrupted run; None: the checkpoint holds no readable ones."""
    if content is None:
        return None
    with suppress(InputError):
        return decode(content, "findings")
    return None


@contextmanager
def _opened(content: bytes, name: str) -> Iterator[zipfile.ZipFile]:
    """Open the archive for the body, and raise InputError for what `typed_json.DAMAGED` names."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield archive
    except typed_json.DAMAGED as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{name}: is damaged, or not a file of findings ({reason}); transcribe the recording again"
        ) from error


def _header(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the header, of this version. Raises InputError, or one of `typed_json.DAMAGED`."""
    text: bytes = _array(archive, "header", np.uint8, None, LARGEST_HEADER).tobytes()
    if typed_json.decode(text, _Version).version != VERSION:
        raise InputError(f"{name}: was written by another version of Witness; transcribe the recording again")
    return text


def _decode(archive: zipfile.ZipFile, name: str) -> Findings:
    """Raises InputError, or one of `typed_json.DAMAGED`."""
    header = typed_json.decode(_header(archive, name), _Header)
    part, tracks = header.audio.part, header.tracks
    if part is not None and not 0 <= part.start < part.end:
        raise ValueError("the part is empty - at `$.audio.part`")
    if len(tracks) < 1 or len(tracks) != {Layout.MIX: 1, Layout.CALL: 2}.get(header.channels, len(tracks)):
        raise ValueError(f"{len(tracks)} tracks of a recording with channels {header.channels}")
    if (windows := sum(track.windows for track in tracks)) > MOST_WINDOWS:
        raise ValueError(f"{windows} windows, and {MOST_WINDOWS} are the limit")
    decoded = tuple(_track(archive, number, track) for number, track in enumerate(tracks))
    if any(not np.array_equal(track.windows.starts, decoded[0].windows.starts) for track in decoded):
        raise ValueError("its tracks have different windows")
    arrays = [name.removesuffix(".npy") for name in archive.namelist() if name.startswith("plda_")]
    models: Mapping[str, Any] = structs.asdict(header.models)
    return Findings(
        audio=header.audio,
        models={role: m and ModelFile(m[0], "", *m[1:]) for role, m in models.items()},
        device=structs.asdict(header.device),
        rule=header.rule,
        plda={
            name.removeprefix("plda_"): _array(archive, name, np.float64, None, LARGEST_PLDA)
            for name in arrays
        },
        channels=header.channels,
        fast=header.fast,
        tracks=decoded,
        warnings=header.warnings,
        machine=header.machine,
    )


def _columns(recognition: Recognition) -> _Recognition:
    columns = {name: tuple(getattr(word, name) for word in recognition.words) for name in COLUMNS}
    return _Recognition(_Words(**columns), recognition.language, recognition.device, recognition.warnings)


def _rows(columns: _Recognition) -> Recognition:
    """Invert `_columns`. Raises ValueError."""
    rows = zip(*(getattr(columns.words, name) for name in COLUMNS), strict=True)
    words = tuple(Word(**dict(zip(COLUMNS, row, strict=True))) for row in rows)
    return Recognition(words, columns.language, columns.device, columns.warnings)


def _track(archive: zipfile.ZipFile, number: int, head: _Track) -> Track:
    """Read track `number`; `head` is its part of the header. Raises one of `typed_json.DAMAGED`."""
    windows, size = head.windows, head.vector
    starts = _array(archive, f"starts_{number}", np.int64, (windows,)).astype(np.intp)
    steps = np.diff(starts)
    # No gaps: speakers are counted in frames from the first window to the last.
    if starts[:1].any() or ((steps < FRAME_SAMPLES) | (steps > WINDOW_SAMPLES)).any():
        raise ValueError(f"starts_{number} are not those of windows")
    active = _bits(archive, f"active_{number}", (windows, FRAMES, LOCAL_SPEAKERS))
    has_vector = _bits(archive, f"known_{number}", (windows, LOCAL_SPEAKERS))
    dense = _array(archive, f"vectors_{number}", np.float32, (int(has_vector.sum()), size))
    lengths = np.linalg.norm(dense.astype(np.float64), axis=1)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise ValueError(f"vectors_{number} are not voice vectors")
    vectors = np.full((windows, LOCAL_SPEAKERS, size), np.nan, np.float32)
    vectors[has_vector] = dense
    recognition = None if head.recognition is None else _rows(head.recognition)
    return Track(Segmentation(active, starts), vectors, recognition)


def _array(
    archive: zipfile.ZipFile, name: str, dtype: Any, shape: tuple[int, ...] | None, limit: int | None = None
) -> Any:
    """Read an array; without a shape, its own if it has at most `limit` numbers. Checks before it reads.

    Raises one of `typed_json.DAMAGED`.
    """
    with archive.open(f"{name}.npy") as file:
        np.lib.format.read_magic(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a head that Python 2 could have written
            size, fortran, actual = np.lib.format.read_array_header_1_0(file)
        if shape is None and limit is not None and len(size) <= 2 and np.prod(size, dtype=float) <= limit:
            shape = size
        if actual != np.dtype(dtype) or size != shape:
            raise ValueError(f"{name} is an array of {actual}, {'x'.join(map(str, size))}")
        data = file.read(int(np.prod(size)) * actual.itemsize)
        return np.frombuffer(data, actual).reshape(size, order="F" if fortran else "C")


def _bits(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...]) -> Bool:
    """Read packed bits as booleans of that shape. Raises one of `typed_json.DAMAGED`."""
    count = int(np.prod(shape))
    packed = _array(archive, name, np.uint8, (-(-count // 8),))
    flags: Bool = np.unpackbits(packed, count=count).reshape(shape).view(np.bool_)
    return flags
