"""A transcript as people read it: what most formats are written from, and what they share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import inf
from pathlib import Path, PurePath
from typing import Any

from msgspec import structs

from witness.formats import fillers
from witness.schema import Source, Transcript, Utterance, Word
from witness.text import clock, in_json, one_line

UNKNOWN = "UNKNOWN"
"""In place of a speaker who is not known."""
INAUDIBLE = "[inaudible]"
"""In place of words that are not known although a recognizer listened."""
NOT_ENGLISH = "[not English]"
"""In place of words in another language than the one that the recognizer knows."""
SHORT_PAUSE = 1.0
"""Seconds; a shorter pause is not timed."""

NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to write: https://www.w3.org/TR/xml/#charsets."""


@dataclass(frozen=True)
class Line:
    """What somebody says without a break, from `start` to `end`, in seconds."""

    start: float
    end: float
    speaker: str
    """The name or the id, never empty."""
    text: str | None
    """The words or a mark in their place; None: nobody listened for words."""
    words: tuple[Word, ...] = ()
    pause: str | None = None
    """The mark of the pause before it, if pauses are to be marked."""
    speaker_id: str | None = None
    """None: the speaker is not known."""
    track: int = 0
    """Where it was heard, as in `schema.Utterance`."""
    language: str | None = None
    """Code; None: not known."""

    @property
    def unmarked(self) -> str | None:
        """The text without marks of pauses."""
        return "".join(word.text for word in self.words).strip() if self.words else self.text


@dataclass(frozen=True)
class Reading:
    """What people read of a transcript: no words where nobody was heard speaking."""

    transcript: Transcript
    title: str
    summary: str
    """How long it is and who speaks how much."""
    lines: Sequence[Line]
    place: Path | None = None
    """Where the file will be; None: nobody knows."""

    @property
    def timed(self) -> bool:
        """Whether to say when a line begins."""
        return self.transcript.style.times == "keep"

    @property
    def named(self) -> bool:
        """Whether to say who speaks."""
        return self.transcript.style.speaker_names != "none"

    @property
    def notes(self) -> Iterator[str]:
        """What of the recording could not be used, each in one line."""
        return map(one_line, self.transcript.about_sound)

    @property
    def said(self) -> Iterator[Line]:
        """For programs: the lines without the marks in place of words; all lines if nobody listened."""
        return (line for line in self.lines if line.words or line.text is None)


def read(transcript: Transcript, place: Path | None = None, *, smooth: bool = False) -> Reading:
    """What people read of a transcript, in a file at `place`.

    Words where the diarizer heard nobody are left out, and speech in which the recognizer heard no words is
    marked. `smooth`: without fillers, too, if its style drops them.
    """
    if smooth and transcript.style.fillers == "drop":
        transcript = fillers.dropped(transcript)
    shares = [f"{speaker.name or speaker.id} {speaker.share:.0%}" for speaker in transcript.speakers]
    lines = [
        Line(
            utterance.start,
            utterance.end,
            one_line(transcript.name(utterance.speaker) or UNKNOWN),
            text,
            utterance.words,
            pause,
            utterance.speaker,
            utterance.track,
            utterance.language or transcript.language,
        )
        for pause, utterance, text in _with_pauses(transcript)
    ]
    return Reading(
        transcript, title(transcript), ", ".join([length(transcript.audio), *shares]), lines, place
    )


def title(transcript: Transcript) -> str:
    """The recording's name without its folder and ending, in one line; "stdin" if it has none."""
    return "stdin" if transcript.audio.path == "-" else one_line(PurePath(transcript.audio.path).stem)


def length(audio: Source) -> str:
    """How long the recording is, and what of it was transcribed."""
    whole = clock(audio.duration)
    if audio.part is None:
        return f"{whole} long"
    return f"{clock(audio.part.start)} to {clock(audio.part.end)} of {whole}"


def single(words: Sequence[Word]) -> Iterator[Word]:
    """The words, none with a space in or around it: a passage that was corrected is one word of a transcript.

    Its time is divided by the number of letters.
    """
    for word in words:
        texts = word.text.split()
        edges = list(accumulate(map(len, texts), initial=0))
        pace = (word.end - word.start) / max(1, edges[-1])
        for text, first, last in zip(texts, edges, edges[1:], strict=False):
            yield structs.replace(
                word, start=word.start + first * pace, end=word.start + last * pace, text=text
            )


def to_json(document: Any) -> str:
    """A document of another program's format."""
    return in_json(json.dumps(document, ensure_ascii=False, indent=1)) + "\n"


def for_xml(text: str) -> str:
    """The text with U+FFFD for what no XML document can hold."""
    return NO_XML.sub("\ufffd", text)


def ms(seconds: float) -> float:
    """Seconds, rounded to milliseconds."""
    return round(float(seconds), 3)


def _lines_of_text(transcript: Transcript) -> Iterator[tuple[Utterance, str | None]]:
    """The utterances that people read, each with its text in one line; None: nobody listened for words."""
    recognized = transcript.device["whisper"] is not None
    for utterance in map(_in_lines, transcript.utterances):
        if not utterance.words:
            mark = NOT_ENGLISH if utterance.not_english else INAUDIBLE
            yield utterance, mark if recognized else None
        elif any(word.supported for word in utterance.words):  # all words of an utterance are, or none is
            yield utterance, utterance.text


def _with_pauses(transcript: Transcript) -> Iterator[tuple[str | None, Utterance, str | None]]:
    """The mark of the pause before each utterance that people read, the utterance, and its text."""
    end, least = inf, transcript.style.pauses
    for utterance, text in _lines_of_text(transcript):
        pause = None
        if least is not None:
            silence = utterance.start - end
            pause = _pause(silence) if silence >= least else None
            text = _spoken(utterance.words, least) if utterance.words else text
        yield pause, utterance, text
        end = utterance.end if end == inf else max(end, utterance.end)


def _spoken(words: Sequence[Word], least: float) -> str:
    """The text of an utterance with its pauses."""
    text = words[0].text
    for before, word in pairwise(words):
        if word.start - before.end >= least:
            text += f" {_pause(word.start - before.end)}" + ("" if word.text.startswith(" ") else " ")
        text += word.text
    return text.strip()


def _pause(seconds: float) -> str:
    """As transcription conventions write it: short ones are not timed."""
    return "(.)" if seconds < SHORT_PAUSE else f"({seconds:.0f} s)"


def _in_lines(utterance: Utterance) -> Utterance:
    """The same, with nothing in its words that could end a line."""
    texts = [one_line(word.text) for word in utterance.words]
    if texts == [word.text for word in utterance.words]:
        return utterance
    words = (structs.replace(word, text=text) for word, text in zip(utterance.words, texts, strict=True))
    return replace(utterance, words=tuple(words))
