"""What the models found <-> bytes: an npz file without pickled objects, the same bytes for the same findings.

    header      JSON as bytes: source, models, words, ...; everything that is no array
    starts_N    the sample at which each window of track N begins, int64
    active_N    activity of track N, one bit each
    known_N     which window-local speakers of track N have a vector, one bit each
    vectors_N   their vectors, float32, one after the other
    plda_NAME   arrays of the clustering, if it has any

An hour takes 4 to 7 MB, nearly all of it vectors.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict
from typing import Any

import numpy as np

from witness.errors import InputError
from witness.options import Layout
from witness.schema import (
    FRAMES,
    LOCAL_SPEAKERS,
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


def encode(findings: Findings) -> bytes:
    """The whole file."""
    header = {
        "version": VERSION,
        "audio": asdict(findings.audio),
        # Without the path, which is this machine's.
        "models": {role: model and [model.name, model.sha256] for role, model in findings.models.items()},
        "device": findings.device,
        "rule": asdict(findings.rule),
        "channels": findings.channels,
        "fast": findings.fast,
        "warnings": findings.warnings,
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
    """The findings in a file called `name`. Raises InputError if they are damaged or of another version."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            if header["version"] != VERSION:
                raise InputError(f"{name} was written by another version of witness; transcribe again")
            tracks = tuple(_track(file, number, head) for number, head in enumerate(header["tracks"]))
            return Findings(
                audio=Source(**header["audio"]),
                models={role: m and ModelFile(m[0], "", m[1]) for role, m in header["models"].items()},
                device=header["device"],
                rule=Rule(**header["rule"]),
                plda={name.removeprefix("plda_"): file[name] for name in file if name.startswith("plda_")},
                channels=Layout(header["channels"]),
                fast=header["fast"],
                tracks=tracks,
                warnings=tuple(header["warnings"]),
            )
    except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{name} holds no stages of a transcript, or is damaged; transcribe again"
        ) from error


def _recognition(found: Recognition) -> dict[str, Any]:
    """Without the seconds it took; the words by column, which is half the size."""
    rows = [asdict(word) for word in found.words]
    return {
        "words": {key: [row[key] for row in rows] for key in rows[0]} if rows else {},
        "language": found.language,
        "device": found.device,
        "warnings": found.warnings,
    }


def _track(file: Any, number: int, head: dict[str, Any]) -> Track:
    windows = head["windows"]
    active = _bits(file[f"active_{number}"], (windows, FRAMES, LOCAL_SPEAKERS))
    vectors = np.full((windows, LOCAL_SPEAKERS, head["vector"]), np.nan, np.float32)
    vectors[_bits(file[f"known_{number}"], (windows, LOCAL_SPEAKERS))] = file[f"vectors_{number}"]
    found = head["recognition"]
    recognition = None
    if found:
        columns = found["words"]
        words = tuple(
            Word(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)
        )
        recognition = Recognition(words, found["language"], found["device"], tuple(found["warnings"]))
    return Track(Segmentation(active, file[f"starts_{number}"].astype(np.intp)), vectors, recognition)


def _bits(packed: Any, shape: tuple[int, ...]) -> Any:
    return np.unpackbits(packed, count=int(np.prod(shape))).reshape(shape).astype(np.bool_)
