"""Known people: one voiceprint each, in plain files that a person can read, copy and delete.

A voiceprint is the mean of the vectors that one voice model gives for a person who speaks alone. A speaker
who is no closer to a known person than strangers are stays without a name (`cohort`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta

from witness.diarization.cohort import Cohort
from witness.errors import InputError, OutputError, UsageError
from witness.progress import SILENT, Reporter
from witness.schema import FRAME_STEP, LONGEST, Float64, Int, ModelFile, Track, sole_speech
from witness.storage import atomic, files, typed_json
from witness.storage.files import LONGEST_NAME as LONGEST_FILE_NAME

SCHEMA = "witness-voice/1"
LONGEST_NAME = 100
CLEAN = 60  # segmentation frames, 1 s: a vector from less clean speech is left out
LEAST_TO_NAME = 3.0  # seconds of clean speech; with less, a speaker is not compared with known people
LEAST_TO_ENROLL = 10.0  # seconds of clean speech
OTHERS = 0.05
"""Share of the speech to enroll from that may be others', which allows for the diarizer's errors."""
OTHERS_SECONDS = 2.0
"""Seconds of it that may be others' at most."""
THRESHOLD = 5.3
"""Score of `Cohort.scores` that strangers hardly ever reach with any voice model; see
docs/benchmarks.md."""
SURE = THRESHOLD + 2.0
"""From here on it is "sounds like Anna", and below "may be Anna". Nothing was measured for it; it is a margin
within which a person should listen twice."""
SMALLEST, LARGEST = 16, 4096  # numbers in a voice vector


@dataclass(frozen=True)
class Print:
    """The voice of one speaker in one recording."""

    total: Float64
    """(dims,): the sum of unit vectors times their seconds of clean speech; zeros without clean speech."""
    seconds: float
    """Of clean speech."""

    @property
    def vector(self) -> Float64:
        """(dims,), of length 1; NaN if nothing is clean enough."""
        with np.errstate(invalid="ignore"):
            unit: Float64 = self.total / np.linalg.norm(self.total)
        return unit

    def __add__(self, other: Print) -> Print:
        return Print(self.total + other.total, self.seconds + other.seconds)


@dataclass(frozen=True)
class VoiceSource:
    """A recording behind a voiceprint."""

    path: str
    """Absolute."""
    sha256: str


@dataclass(frozen=True)
class Voice:
    """A known person, as their file holds them."""

    schema: str
    name: str
    model: str
    """Name of the voice model."""
    embedding: str
    """The sha256 of the voice model; vectors of different models cannot be compared."""
    seconds: Annotated[float, Meta(ge=0, le=LONGEST)]
    """Of the speech it was made from."""
    recordings: tuple[VoiceSource, ...]
    """To make it again with another model; empty: a part of a transcript."""
    vector: Annotated[
        tuple[Annotated[float, Meta(ge=-1, le=1)], ...], Meta(min_length=SMALLEST, max_length=LARGEST)
    ]
    """Of length 1."""


@dataclass(frozen=True)
class Known:
    """The people to recognize."""

    voices: tuple[Voice, ...]
    cohort: Cohort
    """By their voice model."""


def prints(track: Track, owners: Int, seconds: Sequence[float]) -> list[Print]:
    """A print of each speaker of a track.

    `owners` (windows, 3) is the speaker that each local speaker is, or -1; `seconds` is how long each speaker
    speaks alone.
    """
    clean = sole_speech(track.windows.active).sum(axis=1)
    usable = np.isfinite(track.vectors).all(axis=2) & (clean >= CLEAN)
    speakers = []
    for speaker, spoken in enumerate(seconds):
        rows = usable & (owners == speaker)
        vectors = track.vectors[rows].astype(np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        speakers.append(Print((vectors * (clean[rows] * FRAME_STEP)[:, None]).sum(axis=0), spoken))
    return speakers


def others(seconds: Iterable[float]) -> float:
    """Return the seconds that are not the main speaker's; 0: few enough to enroll."""
    ordered = sorted(seconds, reverse=True)
    rest = sum(ordered[1:])
    return rest if rest > OTHERS_SECONDS or rest > OTHERS * sum(ordered) else 0.0


def enrolled(
    name: str, model: ModelFile, voice: Print | None, recordings: tuple[VoiceSource, ...] = ()
) -> Voice:
    """Return the voice of a person who speaks alone in `recordings`; a `voice` of None means no speech.

    Raises InputError if there is too little speech.
    """
    if voice is None or voice.seconds < LEAST_TO_ENROLL or not voice.total.any():
        where = f"{', '.join(source.path for source in recordings)}: " if recordings else ""
        raise InputError(
            f"{where}{0.0 if voice is None else voice.seconds:.1f} s of clean speech is too little to know a "
            f"voice by; give {LEAST_TO_ENROLL:g} s or more"
        )
    return new_voice(name, model, voice, recordings)


def new_voice(name: str, model: ModelFile, voice: Print, recordings: tuple[VoiceSource, ...] = ()) -> Voice:
    """Return the voice of a person by a voice model."""
    vector = tuple(voice.vector.tolist())
    return Voice(SCHEMA, name, model.name, model.sha256, voice.seconds, recordings, vector)


def recognize(prints: Mapping[str, Print], people: Known) -> dict[str, tuple[Voice, float]]:
    """Map speakers to known people and their scores; strangers are left out, and no person appears twice."""
    from scipy.optimize import linear_sum_assignment

    speakers = [
        name
        for name, voice in prints.items()
        if voice.seconds >= LEAST_TO_NAME and np.isfinite(voice.vector).all()
    ]
    if not speakers or not people.voices:
        return {}
    scores = people.cohort.scores(
        np.stack([prints[name].vector for name in speakers]),
        np.array([voice.vector for voice in people.voices]),
    )
    pairs = zip(*linear_sum_assignment(-scores), strict=True)
    return {
        speakers[row]: (people.voices[column], float(scores[row, column]))
        for row, column in pairs
        if scores[row, column] >= THRESHOLD
    }


def check_name(name: str) -> str:
    """Return the name in the form that is printed. Raises UsageError if it is empty, too long or not
    printable."""
    name = unicodedata.normalize("NFC", name).strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise UsageError(
            f"{name[:LONGEST_NAME]!r} is not a name; fix: use 1 to {LONGEST_NAME} printable characters"
        )
    return name


def read(folder: Path, embedding: ModelFile, reporter: Reporter = SILENT) -> tuple[Voice, ...]:
    """The voices in `folder` made with the voice model `embedding`, in the order of their files.

    A note tells of those made with another. Raises InputError if the folder has no voiceprint, or if it or a
    file in it cannot be used.
    """
    voices = read_all(folder)
    for voice in voices:
        if voice.embedding != embedding.sha256:
            again = f"witness enroll --again --known {folder}" if voice.recordings else "enroll again"
            reporter.note(
                f"{voice.name} was enrolled with {voice.model}, not with {embedding.name}, and is not "
                f"recognized; fix: {again}"
            )
    return tuple(voice for voice in voices if voice.embedding == embedding.sha256)


def read_all(folder: Path) -> tuple[Voice, ...]:
    """The voices in `folder`, in the order of their files. Raises InputError as `read` does."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; fix: make it with witness enroll")
    voices = tuple(read_one(path) for path in sorted(folder.glob("*.json")))
    if not voices:
        raise InputError(
            f"{folder}: has no voiceprint to recognize people by; fix: check --known, or make one with "
            "witness enroll"
        )
    return voices


def fingerprint(folder: Path) -> str:
    """A hash of all voices in `folder`. Raises InputError if they cannot be read."""
    digest = hashlib.sha256()
    try:
        for path in sorted(folder.glob("*.json")):
            digest.update(hashlib.sha256(files.read(path)).digest())
    except OSError as error:
        raise InputError(
            f"{folder}: could not be read ({error.strerror}); fix: change its permissions or owner"
        ) from error
    return digest.hexdigest()


def forget(name: str, folder: Path) -> None:
    """Delete a person's voice. Raises InputError if it is not there, OutputError, UsageError as `path_of`."""
    path = path_of(name, folder)
    try:
        path.unlink()
    except FileNotFoundError as error:
        raise InputError(f"{name} is not known; nothing was deleted") from error
    except OSError as error:
        raise OutputError(f"{path}: cannot be deleted ({error.strerror}); fix: change --known") from error


def path_of(name: str, folder: Path) -> Path:
    """The file in `folder` that a person's voice is kept in; nothing is written.

    Raises OutputError if it could not be, UsageError if it holds a person of another name.
    """
    stem = re.sub(r"[^\w .-]", "_", name).encode()[:LONGEST_FILE_NAME].decode("utf-8", "ignore")
    path = folder / f"{stem.strip('. ') or '_'}.json"
    try:
        if path.exists() and (holder := read_one(path).name) != name:
            raise UsageError(f"{path}: holds the voice of {holder}; fix: choose another name")
        nearest = next(above for above in (folder, *folder.absolute().parents) if above.exists())
    except OSError as error:
        raise OutputError(f"{folder}: cannot be used ({error.strerror}); fix: change --known") from error
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        why = "no permission" if nearest.is_dir() else f"{nearest} is not a folder"
        raise OutputError(f"{folder}: cannot be written ({why}); fix: change --known")
    return path


def write(voice: Voice, folder: Path) -> Path:
    """Store a voice in `folder`, replacing an earlier one of the same name, and return its file.

    Raises what `path_of` raises.
    """
    path = path_of(voice.name, folder)
    document = {
        **asdict(voice),
        "seconds": round(voice.seconds, 3),
        "vector": [round(value, 6) for value in voice.vector],
    }
    try:
        atomic.make_folder(folder, 0o700)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be created ({error.strerror}); fix: change --known") from error
    atomic.write((json.dumps(document, ensure_ascii=False) + "\n").encode(), path, private=True)
    return path


def read_one(path: Path) -> Voice:
    """The voice in a file. Raises InputError."""
    try:
        voice = typed_json.decode(files.read(path), Voice)
        if voice.schema != SCHEMA:
            raise ValueError(f"its schema is {voice.schema[:80]!r}, not {SCHEMA!r}")
        if not np.isclose(np.linalg.norm(voice.vector), 1.0, atol=1e-3):
            raise ValueError("its length is not 1 - at `$.vector`")
        return replace(voice, name=check_name(voice.name))
    except (OSError, ValueError, UsageError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path}: is not a voiceprint of witness enroll ({why}); fix: check --known, or take the file "
            "out of the folder"
        ) from error
