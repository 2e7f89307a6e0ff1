"""Transcript -> files: each format by its own module, JSON with the findings beside it.

What was said and what things are called is data: in no format can it become markup, a line or a formula.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from witness import files
from witness.formats import findings, reading
from witness.formats.registry import Format
from witness.options import Part
from witness.schema import ModelFile, Sound, Transcript, Word
from witness.text import in_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

SCHEMA = "witness/1"


def to_json(transcript: Transcript, stages: Mapping[str, str] | None = None) -> str:
    """`"schema": "witness/1"`; seconds are rounded to milliseconds, what is unknown is null.

    `stages`: name ("file") and "sha256" of the file with the findings, which lies beside the JSON file.
    """
    document = {
        "schema": SCHEMA,
        "audio": {
            "path": transcript.audio.path,
            "duration": _ms(transcript.audio.duration),
            "channels": transcript.audio.channels,
            "sha256": transcript.audio.sha256,
            "part": _part(transcript.audio.part),
        },
        "models": {role: _model(model) for role, model in transcript.models.items()},
        "device": transcript.device,
        "timing": {
            stage: _ms(value) if isinstance(value, float) else value
            for stage, value in transcript.timing.items()
        },
        "language": transcript.language,
        "speakers": [
            {
                "id": speaker.id,
                "name": speaker.name,
                "seconds": _ms(speaker.seconds),
                "share": _ms(speaker.share),
            }
            for speaker in transcript.speakers
        ],
        "speaker_counts": [
            {
                "found": count.found,
                "runner_up": count.runner_up,
                "margin": None if count.margin is None else _ms(count.margin),
            }
            for count in transcript.counts
        ],
        "turns": [
            {"start": _ms(turn.start), "end": _ms(turn.end), "speaker": turn.speaker}
            for turn in transcript.turns
        ],
        "utterances": [
            {
                "start": _ms(utterance.start),
                "end": _ms(utterance.end),
                "speaker": utterance.speaker,
                "text": utterance.text,
            }
            for utterance in transcript.utterances
        ],
        "words": [_word(word) for word in transcript.words],
        "warnings": list(transcript.warnings),
        "machine": list(transcript.machine),
        "fast": transcript.fast,
        "asked": asdict(transcript.asked),
        "pauses": transcript.pauses,
        "corrections": [asdict(correction) for correction in transcript.corrections],
        "stages": stages,
    }
    return in_json(json.dumps(document, ensure_ascii=False, indent=1)) + "\n"


def save(
    transcript: Transcript,
    targets: Iterable[tuple[str, Path | None]],
    *,
    keep: bool = True,
    sound: Sound | None = None,
) -> None:
    """Write each format to its file; None is stdout.

    All are written from the numbers that JSON has, so that the transcript in it gives the same bytes again.
    Beside a JSON file (not beside a pipe) go the findings, unless `keep` is false. `sound` is for a page.
    Raises OutputError and BrokenPipeError.
    """
    transcript = as_in_json(transcript)
    contents: list[tuple[bytes, Path | None]] = []
    voices: list[Path] = []
    for form, path in targets:
        stages = None
        if form == Format.JSON and keep and path and files.is_regular(path) and transcript.findings:
            found = findings.encode(transcript.findings)
            voices.append(files.beside(path))
            contents.append((found, voices[-1]))
            stages = {"file": voices[-1].name, "sha256": files.sha256(found)}
        if form == Format.JSON:
            contents.append((encode(to_json(transcript, stages)), path))
        else:
            contents.append((content(transcript, form, sound), path))
    files.write_all(contents, private=voices)


def content(transcript: Transcript, form: str, sound: Sound | None = None) -> bytes:
    """The file of a format; `transcript` is one `as_in_json`, and `sound` is as in `save`."""
    text = written(transcript, form, sound)
    return encode(text) if isinstance(text, str) else text


def written(transcript: Transcript, form: str, sound: Sound | None = None) -> str | bytes:
    """The text or the bytes of a format, by the module of its name. `sound` is for what can hold it."""
    form = Format(form)
    if form == Format.JSON:
        return to_json(transcript)
    write = import_module(f"witness.formats.{form}").write
    read = reading.read(transcript)
    text: str | bytes = write(read, sound) if form.about.sound else write(read)
    return text


def as_in_json(transcript: Transcript) -> Transcript:
    """The same transcript with all numbers that people see rounded as JSON has them."""
    part = transcript.audio.part
    return replace(
        transcript,
        audio=replace(_rounded(transcript.audio), part=None if part is None else _rounded(part)),
        speakers=tuple(map(_rounded, transcript.speakers)),
        turns=tuple(map(_rounded, transcript.turns)),
        utterances=tuple(
            replace(_rounded(utterance), words=tuple(map(_rounded, utterance.words)))
            for utterance in transcript.utterances
        ),
    )


def _rounded(item: T) -> T:
    """A dataclass with its numbers rounded to three digits after the point."""
    numbers = {
        name: _ms(float(value))
        for name, value in vars(item).items()
        if isinstance(value, float | np.floating)
    }
    return replace(item, **numbers)


def encode(text: str) -> bytes:
    """UTF-8; bytes of a file name that are not UTF-8 become U+FFFD, so that they do not cost the result."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode("utf-8")


def _word(word: Word) -> dict[str, Any]:
    confidence = word.speaker_confidence
    return {
        "start": _ms(word.start),
        "end": _ms(word.end),
        "text": word.text.strip(),
        "speaker": word.speaker,
        "speaker_confidence": None if confidence is None else _ms(confidence),
        "overlap": word.overlap,
        "supported": word.supported,
    }


def _part(part: Part | None) -> dict[str, float] | None:
    return None if part is None else {"start": _ms(part.start), "end": _ms(part.end)}


def _model(model: ModelFile | None) -> dict[str, str] | None:
    if model is None:
        return None
    engine = {} if model.engine is None else {"engine": model.engine}
    return {"name": model.name, "sha256": model.sha256, **engine}


def _ms(value: float) -> float:
    return round(float(value), 3)
