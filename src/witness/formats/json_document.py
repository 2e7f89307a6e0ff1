"""The JSON document of a transcript, docs/json.md: the only module that knows its shape.

    Transcript -> from_transcript -> Document -> encode -> bytes
    bytes -> decode -> Document -> to_transcript -> Transcript

A new optional key takes a line here and a line at its class in `schema`. Older documents of this schema are
read as far as that works without guessing: an utterance without its list of words cannot be shown, but its
transcript can be made again from the findings.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct, structs

from witness import schema
from witness.formats.reading import to_json
from witness.options import MOST_SPEAKERS, Bounds
from witness.schema import (
    LONGEST,
    Correction,
    Count,
    ModelFile,
    Review,
    Source,
    Style,
    Time,
    Transcript,
    Turn,
)
from witness.storage import typed_json
from witness.text import unspaced

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")
S = TypeVar("S", bound=Struct)

SCHEMA: Final = "witness/1"
MOST_CORRECTIONS = 10_000
"""Maximum number of corrections of a transcript."""


class OtherSchemaError(ValueError):
    """Raised for JSON that is not of a transcript."""


class OlderError(ValueError):
    """Raised for a document whose utterances do not list their words."""


class Head(Struct, frozen=True):
    """The first key of every JSON file of Witness."""

    schema: str


class RecordingEntry(Struct, frozen=True):
    """The part of `Source` that identifies a recording."""

    path: str
    sha256: str


class DocumentHead(Struct, frozen=True):
    """The part of a document, of any version, that identifies it and its state."""

    schema: str
    audio: RecordingEntry
    corrections: tuple[msgspec.Raw, ...]
    corrected: bool | None = None
    review: Review = Review()
    tags: tuple[str, ...] = ()

    @property
    def holds_corrections(self) -> bool:
        """True if a person has worked on it; for an older document, if a person may have."""
        if self.tags or self.review != Review():
            return True
        return bool(self.corrections) if self.corrected is None else self.corrected


class ModelEntry(Struct, frozen=True, omit_defaults=True):
    """The weights of a model; a speaker model has no engine."""

    name: str
    sha256: str
    engine: str | None = None


class SpeakerEntry(Struct, frozen=True):
    """Entry of a `schema.Speaker`."""

    id: str
    name: str | None
    seconds: float
    share: float


class UtteranceEntry(Struct, frozen=True, gc=False):
    """Entry of a `schema.Utterance`; `words` are indexes into the document's words, `track` into its
    counts."""

    start: float
    end: float
    speaker: str | None
    text: str | None
    words: tuple[int, ...] | None = None
    track: Annotated[int, Meta(ge=0)] = 0
    corrected: bool = False
    language: str | None = None
    not_english: bool = False


class WordEntry(Struct, frozen=True, gc=False):
    """Entry of a `schema.Word`, without the spaces around it."""

    start: Time
    end: Time
    text: str
    speaker: str | None
    speaker_confidence: float | None
    overlap: bool
    supported: bool
    corrected: bool = False
    probability: float | None = None


Number = Annotated[int, Meta(ge=1, le=MOST_SPEAKERS)]


class Asked(Struct, frozen=True):
    """Entry of `Bounds`."""

    speakers: Number | None
    min_speakers: Number | None
    max_speakers: Number | None


class Link(Struct, frozen=True):
    """Name and hash of the file with the findings, beside the document."""

    file: str
    sha256: str


class Document(Struct, frozen=True, kw_only=True):
    """The whole document; older ones may lack the fields that have a default."""

    schema: Literal["witness/1"]
    audio: Source
    models: dict[str, ModelEntry | None]
    device: dict[str, str | None]
    timing: dict[str, float | str | None]
    language: str | None
    speakers: tuple[SpeakerEntry, ...]
    first_speaker: Literal[0, 1] = 0
    speaker_counts: tuple[Count, ...]
    turns: tuple[Turn, ...]
    utterances: tuple[UtteranceEntry, ...]
    words: tuple[WordEntry, ...]
    warnings: tuple[str, ...]
    machine: tuple[str, ...]
    fast: bool
    asked: Asked
    style: Style = Style()
    review: Review = Review()
    tags: tuple[str, ...] = ()
    corrected: bool | None = None
    corrections: Annotated[tuple[Correction, ...], Meta(max_length=MOST_CORRECTIONS)]
    findings: Link | None


# --- bytes ---


def encode(document: Document) -> bytes:
    """Return the file's bytes, as of `to_json`."""
    return to_json(document).encode()


def decode(content: bytes) -> Document:
    """Read a document.

    Raises NotJsonError, OtherSchemaError, and ValueError that names the position of an invalid value.
    """
    try:
        document = typed_json.decode(content, Document)
    except typed_json.NotJsonError:
        raise
    except ValueError:
        _check_schema(content)
        raise
    if document.findings is not None and not _is_name(document.findings.file):
        raise ValueError(f"{document.findings.file[:80]!r} is not the name of a file - at `$.findings.file`")
    return document


def _check_schema(content: bytes) -> None:
    """Raise OtherSchemaError unless the content names the schema of `Document`."""
    try:
        name = typed_json.decode(content, Head).schema
    except ValueError as error:
        raise OtherSchemaError(str(error)) from error
    if name != SCHEMA:
        raise OtherSchemaError(f"its schema is {name[:80]!r}, not {SCHEMA!r}")


def decode_head(content: bytes) -> DocumentHead | None:
    """Read the head of a transcript of any version; None: the content is no transcript."""
    try:
        head = typed_json.decode(content, DocumentHead)
    except ValueError:
        return None
    return head if head.schema.startswith("witness/") else None


# --- from a transcript ---


def from_transcript(transcript: Transcript, link: Mapping[str, str] | None = None) -> Document:
    """Return the document; seconds are rounded to milliseconds, and unknown values are None.

    `link`: name ("file") and "sha256" of the file with the findings, which lies beside the document.
    """
    transcript = in_milliseconds(transcript)
    words = transcript.words
    uttered = [word for utterance in transcript.utterances for word in utterance.words]
    if missing := list((Counter(uttered) - Counter(words)).elements()):  # in a transcript made by hand
        words = tuple(sorted((*words, *missing), key=lambda word: (word.start, word.end)))
    indexes: dict[schema.Word, deque[int]] = {}
    for number, word in enumerate(words):
        indexes.setdefault(word, deque()).append(number)
    return Document(
        schema=SCHEMA,
        audio=transcript.audio,
        models={
            role: None if model is None else ModelEntry(model.name, model.sha256, model.engine)
            for role, model in transcript.models.items()
        },
        device=transcript.device,
        timing={
            stage: _ms(value) if isinstance(value, float) else value
            for stage, value in transcript.timing.items()
        },
        language=transcript.language,
        speakers=tuple(_entry(SpeakerEntry, speaker) for speaker in transcript.speakers),
        first_speaker=1 if transcript.first_speaker else 0,
        speaker_counts=tuple(map(_rounded, transcript.counts)),
        turns=transcript.turns,
        utterances=tuple(
            _entry(UtteranceEntry, each, words=tuple(indexes[word].popleft() for word in each.words))
            for each in transcript.utterances
        ),
        words=tuple(_entry(WordEntry, word, text=word.text.strip()) for word in words),
        warnings=transcript.warnings,
        machine=transcript.machine,
        fast=transcript.fast,
        asked=_entry(Asked, transcript.asked),
        style=transcript.style,
        review=_rounded(transcript.review),
        tags=transcript.tags,
        corrected=transcript.corrected,
        corrections=transcript.corrections,
        findings=None if link is None else Link(**link),
    )


def in_milliseconds(transcript: Transcript) -> Transcript:
    """Round all visible numbers of a transcript as the document does."""
    part = transcript.audio.part
    words = {id(word): word for utterance in transcript.utterances for word in utterance.words}
    words |= {id(word): word for word in transcript.words}  # mostly the same
    rounded = {
        key: structs.replace(word, **short) if (short := _short(structs.asdict(word))) else word
        for key, word in words.items()
    }
    return replace(
        transcript,
        audio=replace(_rounded(transcript.audio), part=None if part is None else _rounded(part)),
        speakers=tuple(map(_rounded, transcript.speakers)),
        turns=tuple(map(_rounded, transcript.turns)),
        words=tuple(rounded[id(word)] for word in transcript.words),
        utterances=tuple(
            replace(_rounded(utterance), words=tuple(rounded[id(word)] for word in utterance.words))
            for utterance in transcript.utterances
        ),
    )


def _entry(entry: type[S], noun: Any, **others: Any) -> S:
    """Return an entry with the fields of `noun`, and `others`."""
    return entry(
        **{name: getattr(noun, name) for name in entry.__struct_fields__ if name not in others}, **others
    )


def _rounded(item: D) -> D:
    """Round the numbers of a dataclass to three digits after the point."""
    short = _short(vars(item))
    return replace(item, **short) if short else item


def _short(fields: Mapping[str, Any]) -> dict[str, float]:
    """Return the rounded fields whose numbers change with three digits after the point."""
    return {
        name: short
        for name, value in fields.items()
        if isinstance(value, float | np.floating)
        and ((short := _ms(float(value))) != value or type(value) is not float)
    }


def _ms(value: float) -> float:
    return round(float(value), 3)


# --- to a transcript ---


def to_transcript(document: Document) -> Transcript:
    """Return the transcript, without findings.

    Raises OlderError, and ValueError that names the position of an invalid value.
    """
    _check(document)
    utterances = list(_utterances(document))
    words: dict[int, schema.Word] = {}
    for entry, utterance in zip(document.utterances, utterances, strict=True):
        words |= zip(entry.words or (), utterance.words, strict=True)
    return Transcript(
        audio=document.audio,
        models={
            role: None if model is None else ModelFile(model.name, "", model.sha256, model.engine)
            for role, model in document.models.items()
        },
        device=document.device,
        timing=document.timing,
        language=document.language,
        speakers=tuple(schema.Speaker(**structs.asdict(entry)) for entry in document.speakers),
        turns=document.turns,
        utterances=tuple(utterances),
        words=tuple(words[number] for number in range(len(words))),
        warnings=document.warnings,
        machine=document.machine,
        counts=document.speaker_counts,
        first_speaker=document.first_speaker,
        fast=document.fast,
        asked=Bounds(**structs.asdict(document.asked)),
        corrected=bool(document.corrected),
        corrections=document.corrections,
        style=document.style,
        review=document.review,
        tags=document.tags,
    )


def _check(document: Document) -> None:
    """Raise ValueError if times run backward, a speaker is not listed, or a device is missing."""
    if not 0 <= document.audio.duration <= LONGEST:
        raise ValueError(f"{document.audio.duration} s is not a duration - at `$.audio.duration`")
    ids = {speaker.id for speaker in document.speakers}
    for name in ("turns", "utterances", "words"):
        for number, entry in enumerate(getattr(document, name)):
            if not 0 <= entry.start <= entry.end <= LONGEST:
                raise ValueError(f"{entry.start} to {entry.end} is not a time span - at `$.{name}[{number}]`")
            if entry.speaker not in ids and (entry.speaker is not None or name == "turns"):
                raise ValueError(f"{entry.speaker!r} is not one of the speakers - at `$.{name}[{number}]`")
    if "whisper" not in document.device:
        raise ValueError("the device of `whisper` is missing - at `$.device`")


def _utterances(document: Document) -> Iterator[schema.Utterance]:
    """Yield the utterances, each with its words, which have their spaces again."""
    free = set(range(len(document.words)))
    for number, entry in enumerate(document.utterances):
        if entry.words is None:
            raise OlderError("an earlier version of Witness wrote it")
        indexes = set(entry.words)
        try:
            if len(indexes) < len(entry.words) or not indexes <= free:
                raise ValueError("its words are missing, or belong to another utterance")
            free -= indexes
            words = tuple(_spaced(entry, [document.words[index] for index in entry.words]))
        except ValueError as error:
            raise ValueError(f"{error} - at `$.utterances[{number}]`") from None
        yield schema.Utterance(
            entry.start, entry.end, entry.speaker, words, entry.track, entry.corrected, entry.not_english
        )
    if free:
        raise ValueError(f"it is in no utterance - at `$.words[{min(free)}]`")


def _spaced(utterance: UtteranceEntry, words: Sequence[WordEntry]) -> Iterator[schema.Word]:
    """Yield the words as the text of their utterance spells them; the first has the space that its script
    uses.

    Raises ValueError.
    """
    text, at, language = utterance.text or "", 0, utterance.language
    for number, word in enumerate(words):
        begin = text.find(word.text, at)
        if begin < 0 or (spaces := text[at:begin]).strip():
            break
        at = begin + len(word.text)
        if number == 0 and word.text and not unspaced(word.text[0]):
            spaces = " "
        yield schema.Word(
            word.start,
            word.end,
            spaces + word.text,
            word.speaker,
            word.speaker_confidence,
            word.overlap,
            word.supported,
            word.corrected,
            probability=word.probability,
            language=language,
        )
    else:
        if at == len(text) and (utterance.text is None) == (not words):
            return
    raise ValueError("its words do not spell its text")


def _is_name(name: str) -> bool:
    """Return True for the name of a file that leads to no other folder."""
    return PurePath(name).name == name
