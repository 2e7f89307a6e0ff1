"""The file format of `schema.Findings`, NAME.stages.npz: the same bytes for the same findings.

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
import zipfile
from dataclasses import asdict
from typing import Any

import numpy as np

from witness.errors import InputError
from witness.options import Layout, Part
from witness.schema import (
    FRAMES,
    LOCAL_SPEAKERS,
    Bool,
    Findings,
    ModelFile,
    Recognition,
    Rule,
    Segmentation,
    Source,
    Track,
    Word,
)

VERSION = 2
"""Of the format; files of another version cannot be read."""


def encode(findings: Findings) -> bytes:
    """The content of the file."""
    header = {
        "version": VERSION,
        "audio": asdict(findings.audio),
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
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            if header["version"] != VERSION:
                raise InputError(
                    f"{name}: was written by another version of Witness; transcribe the recording again"
                )
            tracks = tuple(_track(file, number, head) for number, head in enumerate(header["tracks"]))
            return Findings(
                audio=_source(header["audio"]),
                models={role: m and ModelFile(m[0], "", *m[1:]) for role, m in header["models"].items()},
                device=header["device"],
                rule=Rule(**header["rule"]),
                plda={name.removeprefix("plda_"): file[name] for name in file if name.startswith("plda_")},
                channels=Layout(header["channels"]),
                fast=header["fast"],
                tracks=tracks,
                warnings=tuple(header["warnings"]),
                machine=tuple(header.get("machine", ())),  # earlier files have none
            )
    except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{name}: is damaged, or not a file of stages; transcribe the recording again"
        ) from error


def _model(model: ModelFile) -> list[str | None]:
    """For the header: as the fields of `ModelFile`, without the path."""
    return [model.name, model.sha256, model.engine]


def _source(header: dict[str, Any]) -> Source:
    part = header.pop("part")
    return Source(**header, part=part and Part(**part))


def _recognition(recognition: Recognition) -> dict[str, Any]:
    """For the header: without the seconds it took; the words by column, which is shorter."""
    rows = [asdict(word) for word in recognition.words]
    return {
        "words": {key: [row[key] for row in rows] for key in rows[0]} if rows else {},
        "language": recognition.language,
        "device": recognition.device,
        "warnings": recognition.warnings,
    }


def _read_recognition(header: dict[str, Any]) -> Recognition:
    """The inverse of `_recognition`."""
    columns = header["words"]
    words = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return Recognition(
        words=tuple(Word(**word) for word in words),
        language=header["language"],
        device=header["device"],
        warnings=tuple(header["warnings"]),
    )


def _track(file: Any, number: int, head: dict[str, Any]) -> Track:
    """Track `number` of an open npz file; `head` is its part of the header."""
    windows = head["windows"]
    active = _bits(file[f"active_{number}"], (windows, FRAMES, LOCAL_SPEAKERS))
    vectors = np.full((windows, LOCAL_SPEAKERS, head["vector"]), np.nan, np.float32)
    vectors[_bits(file[f"known_{number}"], (windows, LOCAL_SPEAKERS))] = file[f"vectors_{number}"]
    recognition = head["recognition"] and _read_recognition(head["recognition"])
    return Track(Segmentation(active, file[f"starts_{number}"].astype(np.intp)), vectors, recognition)


def _bits(packed: Any, shape: tuple[int, ...]) -> Bool:
    """Packed bits as booleans of that shape."""
    flags: Bool = np.unpackbits(packed, count=int(np.prod(shape))).reshape(shape).astype(np.bool_)
    return flags
