"""The JSON document of a transcript -> the transcript, without what the models found.

JSON rounds times to milliseconds, strips the words of their spaces, and does not say which words make an
utterance nor in which track it was heard. The text of an utterance tells the first two: its words are those
that spell it. A track is known by the speakers' ids, where there are several.
"""

from __future__ import annotations

import glob
import math
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from witness import documents, files
from witness.errors import InputError
from witness.formats.writers import SCHEMA
from witness.options import Bounds
from witness.recognition.tokens import unspaced
from witness.schema import (
    LONGEST,
    Correction,
    Count,
    ModelFile,
    Pauses,
    Source,
    Speaker,
    Transcript,
    Turn,
    Utterance,
    Word,
)

TRACK = re.compile(r"CH(\d+)_")
"""What the id of a speaker begins with if the recording has several tracks."""
SLACK = 0.0015
"""Seconds by which a word may lie outside of its utterance: both were rounded."""


class OtherJsonError(InputError):
    """It is JSON, but not of a transcript."""


@dataclass(frozen=True)
class _Head:
    schema: str


@dataclass(frozen=True)
class _Model:
    name: str
    sha256: str
    engine: str | None = None


@dataclass(frozen=True)
class _Utterance:
    start: float
    end: float
    speaker: str | None
    text: str | None


@dataclass(frozen=True)
class _Document:
    """docs/json.md; not `stages`, which belongs to a file beside it."""

    audio: Source
    models: dict[str, _Model | None]
    device: dict[str, str | None]
    timing: dict[str, float | str | None]
    language: str | None
    speakers: tuple[Speaker, ...]
    speaker_counts: tuple[Count, ...]
    turns: tuple[Turn, ...]
    utterances: tuple[_Utterance, ...]
    words: tuple[Word, ...]
    warnings: tuple[str, ...]
    machine: tuple[str, ...]
    fast: bool
    asked: Bounds
    corrections: tuple[Correction, ...]
    pauses: Pauses = None


def read(path: Path) -> Transcript:
    """The transcript in the JSON at `path`.

    Raises InputError, which names the file and the place in it, and OtherJsonError if it is another kind of
    JSON, as programs write beside transcripts.
    """
    try:
        content = files.read(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); give a JSON transcript that Witness wrote"
        ) from error
    try:
        if documents.decode(content, _Head).schema != SCHEMA:
            raise ValueError
    except documents.NotJsonError as error:
        raise InputError(f"{path} is not JSON ({error}); transcribe the recording again") from error
    except ValueError as error:
        raise OtherJsonError(f"{path} is not a transcript of Witness; give a file of -f json") from error
    try:
        return _transcript(documents.decode(content, _Document))
    except ValueError as error:
        raise InputError(
            f"{path} is damaged ({error}); transcribe the recording again, or run witness redo"
        ) from error


def is_transcript(path: Path) -> bool:
    """Whether the JSON at `path` says that it is a transcript."""
    try:
        return documents.decode(files.read(path), _Head).schema == SCHEMA
    except (OSError, ValueError):
        return False


@dataclass(frozen=True)
class Found:
    """A JSON file, perhaps of a transcript."""

    path: Path
    folder: Path
    """Where it lies below the folder that was named; "." if it was named itself."""


def find(inputs: Sequence[str]) -> list[Found]:
    """The files that are named, those that patterns match, and the JSON below folders that is not hidden.

    Several folders keep their names. No file comes twice.
    """
    folders = [Path(given) for given in inputs if Path(given).is_dir()]
    found: dict[Path, Found] = {}
    for given in inputs:
        path = Path(given)
        if path.is_dir():
            above = Path(path.resolve().name) if len(folders) > 1 else Path()
            for file in sorted(path.rglob("*.json")):
                below = file.relative_to(path)
                if file.is_file() and not any(part.startswith(".") for part in below.parts):
                    found.setdefault(file.resolve(), Found(file, above / below.parent))
        else:
            named = path.exists() or not glob.has_magic(given)
            matches = [path] if named else [Path(one) for one in sorted(glob.glob(given, recursive=True))]  # noqa: PTH207
            for match in matches:
                found.setdefault(match.resolve(), Found(match, Path()))
    return list(found.values())


def _transcript(document: _Document) -> Transcript:
    """Raises ValueError that names the place of what cannot be."""
    _check(document)
    utterances = _in_tracks(list(_utterances(document)), len(document.speaker_counts))
    words = sorted((word for one in utterances for word in one.words), key=lambda one: (one.start, one.end))
    return Transcript(
        audio=document.audio,
        models={
            role: None if model is None else ModelFile(model.name, "", model.sha256, model.engine)
            for role, model in document.models.items()
        },
        device=document.device,
        timing=document.timing,
        language=document.language,
        speakers=document.speakers,
        turns=document.turns,
        utterances=tuple(utterances),
        words=tuple(words),
        warnings=document.warnings,
        machine=document.machine,
        counts=document.speaker_counts,
        fast=document.fast,
        asked=document.asked,
        corrections=document.corrections,
        pauses=document.pauses,
    )


def _check(document: _Document) -> None:
    """Raise ValueError for what no type says: times run forward, and all speakers are in the list."""
    if not 0 <= document.audio.duration <= LONGEST:
        raise ValueError(f"{document.audio.duration} s is not a duration - at `$.audio.duration`")
    ids = {speaker.id for speaker in document.speakers}
    for name in ("turns", "utterances", "words"):
        for number, one in enumerate(getattr(document, name)):
            if not 0 <= one.start <= one.end <= LONGEST:
                raise ValueError(f"{one.start} to {one.end} is not a time span - at `$.{name}[{number}]`")
            if one.speaker not in ids and (one.speaker is not None or name == "turns"):
                raise ValueError(f"{one.speaker!r} is not one of the speakers - at `$.{name}[{number}]`")
    if "whisper" not in document.device:
        raise ValueError("the device of `whisper` is missing - at `$.device`")


# --- what JSON does not say ---


def _utterances(document: _Document) -> Iterator[Utterance]:
    """The utterances, each with the words that spell it."""
    waiting: dict[str | None, deque[tuple[int, Word]]] = {}
    for number, word in enumerate(document.words):
        waiting.setdefault(word.speaker, deque()).append((number, word))
    for number, one in enumerate(document.utterances):
        words: tuple[Word, ...] | None = ()
        if one.text is not None:
            words = _spelled(one.text, one.end + SLACK, waiting.get(one.speaker, deque()))
        if words is None:
            raise ValueError(f"no words of its speaker spell its text - at `$.utterances[{number}]`")
        yield Utterance(one.start, one.end, one.speaker, words)
    if left := [number for queue in waiting.values() for number, _ in queue]:
        raise ValueError(f"it is in no utterance - at `$.words[{min(left)}]`")


def _spelled(text: str, end: float, waiting: deque[tuple[int, Word]]) -> tuple[Word, ...] | None:
    """The first words that spell the text, with its spaces, taken from those that wait; None: there are none.

    Words between them belong to an utterance at the same time in another track.
    """
    found: list[Word] = []
    passed: list[tuple[int, Word]] = []
    place = 0
    while waiting and waiting[0][1].start <= end:
        number, word = waiting.popleft()
        begin = next((at for at in range(place, len(text)) if not text[at].isspace()), len(text))
        if not text.startswith(word.text, begin) or (place == len(text) and word.text):
            passed.append((number, word))
            continue
        spaces = text[place:begin]
        if not place and word.text and not unspaced(word.text[0]):
            spaces = " "  # which the beginning of a text has lost
        found.append(replace(word, text=spaces + word.text))
        place = begin + len(word.text)
    waiting.extendleft(reversed(passed))
    return tuple(found) if found and place == len(text) else None


def _in_tracks(utterances: list[Utterance], tracks: int) -> list[Utterance]:
    """The utterances, each in a track: that of the speaker's id, or one in which nobody else speaks."""
    if tracks < 2:
        return utterances
    busy = [-math.inf] * tracks  # until when, in each track
    placed = []
    for one in utterances:
        match = TRACK.match(one.speaker or "")
        own = min(int(match[1]), tracks) - 1 if match else 0
        track = min(range(tracks), key=lambda track: (busy[track] > one.start, track != own, track))
        if one.speaker is not None:
            busy[track] = max(busy[track], one.end)
        placed.append(replace(one, track=track))
    return placed
