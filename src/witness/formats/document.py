"""The JSON document of a transcript, docs/json.md: the only place that knows its shape.

    Transcript -> of -> Document -> encode -> bytes -> decode -> Document -> transcript -> Transcript

A new key that may be missing is one line here, and one at the noun in `schema` that has it. Older documents
of this schema are read as far as that goes without guessing: which words an utterance has is needed to show
a transcript, but not to make it again from its findings.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct, structs

from witness import schema
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
from witness.storage.decode import NotJsonError, from_json
from witness.text import in_json, unspaced

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")
S = TypeVar("S", bound=Struct)

SCHEMA: Final = "witness/1"
MOST_CORRECTIONS = 10_000
"""Maximum number of corrections of a transcript."""


class OtherSchemaError(ValueError):
    """It is JSON, but not of a transcript."""


class OlderError(ValueError):
    """The document was written before utterances said which words they have."""


class Head(Struct, frozen=True):
    """What every JSON of ours says first."""

    schema: str


class RecordingEntry(Struct, frozen=True):
    """As much of `Source` as tells one from another."""

    path: str
    sha256: str


class DocumentHead(Struct, frozen=True):
    """As much of a document as tells whose it is, whatever its version."""

    schema: str
    audio: RecordingEntry
    corrections: tuple[msgspec.Raw, ...]
    corrected: bool | None = None
    review: Review = Review()
    tags: tuple[str, ...] = ()

    @property
    def holds_corrections(self) -> bool:
        """Whether a person has worked on it; of an older document, whether anybody could have."""
        if self.tags or self.review != Review():
            return True
        return bool(self.corrections) if self.corrected is None else self.corrected


class ModelEntry(Struct, frozen=True, omit_defaults=True):
    """Weights; a speaker model has no engine."""

    name: str
    sha256: str
    engine: str | None = None


class SpeakerEntry(Struct, frozen=True):
    """As `schema.Speaker`."""

    id: str
    name: str | None
    seconds: float
    share: float


class UtteranceEntry(Struct, frozen=True, gc=False):
    """As `schema.Utterance`; `words` are indexes into those of the document, `track` into its counts."""

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
    """As `schema.Word`, without the spaces around it."""

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
    """As `Bounds`."""

    speakers: Number | None
    min_speakers: Number | None
    max_speakers: Number | None


class Link(Struct, frozen=True):
    """The file with the findings, beside the document."""

    file: str
    sha256: str


class Document(Struct, frozen=True, kw_only=True):
    """The whole document; what has a default may be missing in older ones."""

    schema: Literal["witness/1"]
    audio: Source
    models: dict[str, ModelEntry | None]
    device: dict[str, str | None]
    timing: dict[str, float | str | None]
    language: str | None
    speakers: tuple[SpeakerEntry, ...]
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
    """The file. Bytes of a name that are not UTF-8 become U+FFFD, so that they do not cost the result."""
    try:
        text = msgspec.json.format(msgspec.json.encode(document), indent=1).decode()
    except UnicodeEncodeError:  # halves of characters, which `in_json` replaces
        text = json.dumps(msgspec.to_builtins(document), ensure_ascii=False, indent=1)
    return f"{in_json(text)}\n".encode()


def decode(content: bytes) -> Document:
    """The document in a file.

    Raises NotJsonError, OtherSchemaError, and ValueError that names the place of what cannot be.
    """
    try:
        document = from_json(content, Document)
    except NotJsonError:
        raise
    except ValueError:
        _check_schema(content)
        raise
    if document.findings is not None and not _is_name(document.findings.file):
        raise ValueError(f"{document.findings.file[:80]!r} is not the name of a file - at `$.findings.file`")
    return document


def _check_schema(content: bytes) -> None:
    """Raise OtherSchemaError unless it says that it is what `Document` describes."""
    try:
        found = from_json(content, Head).schema
    except ValueError as error:
        raise OtherSchemaError(str(error)) from error
    if found != SCHEMA:
        raise OtherSchemaError(f"its schema is {found[:80]!r}, not {SCHEMA!r}")


def summary(content: bytes) -> DocumentHead | None:
    """What a transcript of any version says of itself; None: it is none."""
    try:
        found = from_json(content, DocumentHead)
    except ValueError:
        return None
    return found if found.schema.startswith("witness/") else None


# --- from a transcript ---


def of(transcript: Transcript, link: Mapping[str, str] | None = None) -> Document:
    """The document; seconds are rounded to milliseconds, and what is unknown is None.

    `link`: name ("file") and "sha256" of the file with the findings, which lies beside the document.
    """
    transcript = in_milliseconds(transcript)
    words, uttered = transcript.words, [word for one in transcript.utterances for word in one.words]
    if missing := list((Counter(uttered) - Counter(words)).elements()):  # of a transcript made by hand
        words = tuple(sorted((*words, *missing), key=lambda word: (word.start, word.end)))
    places: dict[schema.Word, deque[int]] = {}
    for number, word in enumerate(words):
        places.setdefault(word, deque()).append(number)
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
        speakers=tuple(_like(SpeakerEntry, speaker) for speaker in transcript.speakers),
        speaker_counts=tuple(map(_rounded, transcript.counts)),
        turns=transcript.turns,
        utterances=tuple(
            _like(UtteranceEntry, one, words=tuple(places[word].popleft() for word in one.words))
            for one in transcript.utterances
        ),
        words=tuple(_like(WordEntry, word, text=word.text.strip()) for word in words),
        warnings=transcript.warnings,
        machine=transcript.machine,
        fast=transcript.fast,
        asked=_like(Asked, transcript.asked),
        style=transcript.style,
        review=_rounded(transcript.review),
        tags=transcript.tags,
        corrected=transcript.corrected,
        corrections=transcript.corrections,
        findings=None if link is None else Link(**link),
    )


def in_milliseconds(transcript: Transcript) -> Transcript:
    """The same transcript with all numbers that people see rounded as the document has them."""
    part = transcript.audio.part
    words = {id(word): word for one in transcript.utterances for word in one.words}
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


def _like(kind: type[S], noun: Any, **others: Any) -> S:
    """The part of a document that has what `noun` has, and `others`."""
    return kind(
        **{name: getattr(noun, name) for name in kind.__struct_fields__ if name not in others}, **others
    )


def _rounded(item: D) -> D:
    """A dataclass with its numbers rounded to three digits after the point."""
    short = _short(vars(item))
    return replace(item, **short) if short else item


def _short(fields: Mapping[str, Any]) -> dict[str, float]:
    """Those of the fields that are other numbers with three digits after the point."""
    return {
        name: short
        for name, value in fields.items()
        if isinstance(value, float | np.floating)
        and ((short := _ms(float(value))) != value or type(value) is not float)
    }


def _ms(value: float) -> float:
    return round(float(value), 3)


# --- to a transcript ---


def transcript(document: Document) -> Transcript:
    """The transcript, without what the models found.

    Raises OlderError, and ValueError that names the place of what cannot be.
    """
    _check(document)
    utterances = list(_utterances(document))
    words: dict[int, schema.Word] = {}
    for one, spelled in zip(document.utterances, utterances, strict=True):
        words |= zip(one.words or (), spelled.words, strict=True)
    return Transcript(
        audio=document.audio,
        models={
            role: None if model is None else ModelFile(model.name, "", model.sha256, model.engine)
            for role, model in document.models.items()
        },
        device=document.device,
        timing=document.timing,
        language=document.language,
        speakers=tuple(schema.Speaker(**structs.asdict(one)) for one in document.speakers),
        turns=document.turns,
        utterances=tuple(utterances),
        words=tuple(words[number] for number in range(len(words))),
        warnings=document.warnings,
        machine=document.machine,
        counts=document.speaker_counts,
        fast=document.fast,
        asked=Bounds(**structs.asdict(document.asked)),
        corrected=bool(document.corrected),
        corrections=document.corrections,
        style=document.style,
        review=document.review,
        tags=document.tags,
    )


def _check(document: Document) -> None:
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


def _utterances(document: Document) -> Iterator[schema.Utterance]:
    """The utterances, each with its words, which have their spaces again."""
    free = set(range(len(document.words)))
    for number, one in enumerate(document.utterances):
        if one.words is None:
            raise OlderError("an earlier version of Witness wrote it")
        own = set(one.words)
        try:
            if len(own) < len(one.words) or not own <= free:
                raise ValueError("its words are not there, or are another's")
            free -= own
            words = tuple(_spaced(one, [document.words[place] for place in one.words]))
        except ValueError as error:
            raise ValueError(f"{error} - at `$.utterances[{number}]`") from None
        yield schema.Utterance(
            one.start, one.end, one.speaker, words, one.track, one.corrected, one.not_english
        )
    if free:
        raise ValueError(f"it is in no utterance - at `$.words[{min(free)}]`")


def _spaced(utterance: UtteranceEntry, words: Sequence[WordEntry]) -> Iterator[schema.Word]:
    """The words as the text of their utterance spells them; the first has the space that its script uses.

    Raises ValueError.
    """
    text, place, language = utterance.text or "", 0, utterance.language
    for number, word in enumerate(words):
        begin = text.find(word.text, place)
        if begin < 0 or (spaces := text[place:begin]).strip():
            break
        place = begin + len(word.text)
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
        if place == len(text) and (utterance.text is None) == (not words):
            return
    raise ValueError("its words do not spell its text")


def _is_name(name: str) -> bool:
    """Whether it is the name of a file, and leads to no other folder."""
    return PurePath(name).name == name
