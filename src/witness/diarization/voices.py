"""Known people: a voiceprint each, in plain files that a person can read, copy and delete.

A voiceprint is the mean of the voice vectors of what one person says alone. Whoever is no nearer to any of
the known than strangers are to each other stays without a name.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from witness import files
from witness.errors import InputError, OutputError, UsageError
from witness.reporter import SILENT, Reporter
from witness.schema import FRAME_STEP, Float64, Int, Track, alone

SCHEMA = "witness-voice/1"
LONGEST_NAME = 100
CLEAN = 60  # segmentation frames, 1 s: the vector of a window with less speech of a speaker alone is left out
LEAST_TO_NAME = 3.0  # seconds alone; with less, a speaker is not compared with the known
LEAST_TO_ENROLL = 10.0  # seconds alone


@dataclass(frozen=True)
class Print:
    """What a speaker sounds like in one recording."""

    total: Float64
    """(256,): the sum of unit vectors, weighted by speech; None of it if nothing is clean enough."""
    seconds: float
    """Of speech alone."""

    @property
    def vector(self) -> Float64:
        """(256,), of length 1; NaN if nothing is clean enough."""
        with np.errstate(invalid="ignore"):
            unit: Float64 = self.total / np.linalg.norm(self.total)
        return unit

    def __add__(self, other: Print) -> Print:
        return Print(self.total + other.total, self.seconds + other.seconds)


@dataclass(frozen=True)
class Voice:
    """A known person."""

    name: str
    embedding: str
    """The sha256 of the voice model; the vectors of another one mean nothing to it."""
    vector: Float64
    """(256,), of length 1."""
    seconds: float
    """Of the speech it was made from."""


@dataclass(frozen=True)
class Known:
    """Those to be recognised."""

    voices: tuple[Voice, ...]
    threshold: float
    """Cosine that a stranger hardly ever reaches; belongs to the voice model."""


def prints(track: Track, owners: Int, seconds: Sequence[float]) -> list[Print]:
    """A print of each speaker; `owners` (windows, 3) says whose a window's speakers are, -1 nobody's.

    `seconds` are how long each speaks alone.
    """
    clean = alone(track.windows.active).sum(axis=1)
    usable = np.isfinite(track.vectors).all(axis=2) & (clean >= CLEAN)
    found = []
    for speaker, spoken in enumerate(seconds):
        rows = usable & (owners == speaker)
        vectors = track.vectors[rows].astype(np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        found.append(Print((vectors * (clean[rows] * FRAME_STEP)[:, None]).sum(axis=0), spoken))
    return found


def recognise(found: Mapping[str, Print], known: Known) -> dict[str, tuple[Voice, float]]:
    """Speaker -> who it is and how alike they are (cosine); nobody twice, strangers not at all."""
    from scipy.optimize import linear_sum_assignment

    speakers = [
        name for name, one in found.items() if one.seconds >= LEAST_TO_NAME and np.isfinite(one.vector).all()
    ]
    if not speakers or not known.voices:
        return {}
    alike = (
        np.stack([found[name].vector for name in speakers])
        @ np.stack([voice.vector for voice in known.voices]).T
    )
    pairs = zip(*linear_sum_assignment(-alike), strict=True)
    return {
        speakers[row]: (known.voices[column], float(alike[row, column]))
        for row, column in pairs
        if alike[row, column] >= known.threshold
    }


def check_name(name: str) -> str:
    """The name as it will be printed. Raises UsageError if it would break a line of text or is empty."""
    name = unicodedata.normalize("NFC", name).strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise UsageError(f"{name[:LONGEST_NAME]!r} is no name: 1 to {LONGEST_NAME} printable characters")
    return name


def read(folder: Path, embedding: str, reporter: Reporter = SILENT) -> tuple[Voice, ...]:
    """The voices in `folder` that were made with this voice model, by name; `note` is told of others.

    Raises InputError if the folder or a file in it cannot be used.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; witness enroll makes one")
    voices = [_read(path) for path in sorted(folder.glob("*.json"))]
    for voice in voices:
        if voice.embedding != embedding:
            reporter.note(
                f"{voice.name} was enrolled with another voice model and is not recognised; enroll again"
            )
    return tuple(voice for voice in voices if voice.embedding == embedding)


def fingerprint(folder: Path) -> str:
    """A hash of all that `folder` holds. Raises InputError if it cannot be read."""
    digest = hashlib.sha256()
    try:
        for path in sorted(folder.glob("*.json")):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    except OSError as error:
        raise InputError(f"{folder} cannot be read ({error.strerror}); change its mode or owner") from error
    return digest.hexdigest()


def write(voice: Voice, folder: Path) -> Path:
    """Store a voice, in the place of an earlier one of that name. Raises OutputError, UsageError."""
    stem = re.sub(r"[^\w .-]", "_", voice.name).strip(". ") or "_"
    path = folder / f"{stem}.json"
    if path.exists() and (there := _read(path).name) != voice.name:
        raise UsageError(f"{path} is {there}; choose another name")
    document = {
        "schema": SCHEMA,
        "name": voice.name,
        "embedding": voice.embedding,
        "seconds": round(voice.seconds, 3),
        "vector": [round(float(value), 6) for value in voice.vector],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be made ({error.strerror}); change --known") from error
    files.write((json.dumps(document, ensure_ascii=False) + "\n").encode(), path)
    return path


def _read(path: Path) -> Voice:
    try:
        document = json.loads(path.read_text("utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(document["schema"])
        vector = np.array([float(value) for value in document["vector"]])
        if not np.isclose(np.linalg.norm(vector), 1.0, atol=1e-3):
            raise ValueError("vector")
        return Voice(
            check_name(document["name"]), str(document["embedding"]), vector, float(document["seconds"])
        )
    except (OSError, ValueError, KeyError, TypeError, UsageError) as error:
        raise InputError(f"{path} holds no voice of witness enroll; delete it, or enroll again") from error
