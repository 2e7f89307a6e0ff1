"""A transcript as people read it, which most formats are written from: lines, tiers and noted passages."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count, pairwise
from math import inf
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import structs

from witness.schema import (
    CLOSING,
    LONG_PARAGRAPH,
    SENTENCE_ENDS,
    Correction,
    Source,
    Spans,
    Transcript,
    Utterance,
    Word,
    WordIndex,
)
from witness.text import clock, in_json, one_line

UNKNOWN = "UNKNOWN"
"""The name in place of an unknown speaker."""
INAUDIBLE = "[inaudible]"
"""The mark in place of words that the recognizer could not make out."""
NOT_ENGLISH = "[not English]"
"""The mark in place of words in a language that the recognizer does not know."""
DATE = (1980, 1, 1, 0, 0, 0)
"""The date of the files in an archive, the earliest that a ZIP can express."""
SHORT_PAUSE = 1.0
"""Seconds; a shorter pause is not timed."""
SENTENCE_PAUSE = 5.0
"""Seconds; a speaker who pauses longer within a sentence begins a paragraph."""
FILLERS = {
    language: frozenset(words.split())
    for language, words in {
        "en": "um umm uhm uh uhh er erm hmm hm mm",
        "de": "äh ähm ähem öh öhm hm hmm",
        "fr": "euh heu hum hm",
        "es": "eh em ehm mm",
        "it": "ehm eh uhm mm",
        "nl": "eh ehm uh uhm hm",
        "pt": "hum hã ahn é-é",
        "sv": "öh öhm eh hm",
        "da": "øh øhm hm",
        "no": "eh øh ehm hm",
        "pl": "yyy eee hm",
        "fi": "öö ööh hmm",
    }.items()
}
"""Fillers by language: "um" and "er" are fillers in English and words in German."""
PUNCTUATION = ".,;:!?…-–— "
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters outside XML 1.0: https://www.w3.org/TR/xml/#charsets."""


@dataclass(frozen=True)
class Line:
    """Speech of one speaker without a break, from `start` to `end`, in seconds."""

    start: float
    end: float
    speaker: str
    """The name or the id, never empty."""
    text: str | None
    """The words or a mark in their place; None: no recognizer ran."""
    words: tuple[Word, ...] = ()
    pause: str | None = None
    """The mark of the pause before the line, if the style marks pauses."""
    speaker_id: str | None = None
    """None: the speaker is unknown."""
    track: int = 0
    """The track, as in `schema.Utterance`."""
    language: str | None = None
    """Code; None: unknown."""

    @property
    def unmarked(self) -> str | None:
        """The text without marks of pauses."""
        return "".join(word.text for word in self.words).strip() if self.words else self.text


@dataclass(frozen=True)
class Reading:
    """The readable part of a transcript: no words where the diarizer heard no speech."""

    transcript: Transcript
    title: str
    summary: str
    """The length of the recording and each speaker's share."""
    lines: Sequence[Line]
    path: Path | None = None
    """The path of the file to be written; None: unknown."""
    warnings: Sequence[str] = ()
    """All warnings for people who read the transcript; those about this machine are not."""

    @property
    def timed(self) -> bool:
        """True if lines begin with their time."""
        return self.transcript.style.times == "keep"

    @property
    def named(self) -> bool:
        """True if lines begin with their speaker."""
        return self.transcript.style.speaker_names != "none"

    @property
    def notes(self) -> Iterator[str]:
        """Warnings about unusable parts of the recording, a line each."""
        return map(one_line, self.transcript.about_sound)

    @property
    def said(self) -> Iterator[Line]:
        """For programs: the lines without the marks in place of words; all lines if no recognizer ran."""
        return (line for line in self.lines if line.words or line.text is None)


def read(
    transcript: Transcript,
    path: Path | None = None,
    *,
    smooth: bool = False,
    labels: bool = False,
    joined: bool = False,
) -> Reading:
    """Return the readable part of a transcript, for a file at `path`.

    Words where the diarizer heard no speaker are left out, and speech without recognized words gets a mark.
    `smooth` leaves out fillers if the style drops them; `labels` shows `Speaker 1` in place of SPEAKER_01;
    `joined` makes a paragraph of consecutive lines of one speaker within a sentence.
    """
    if smooth and transcript.style.fillers == "drop":
        transcript = _without_fillers(transcript)
    shown = transcript.label if labels else transcript.name
    shares = [f"{shown(speaker.id)} {speaker.share:.0%}" for speaker in transcript.speakers]
    lines = [
        Line(
            utterance.start,
            utterance.end,
            one_line(shown(utterance.speaker) or UNKNOWN),
            text,
            utterance.words,
            pause,
            utterance.speaker,
            utterance.track,
            utterance.language or transcript.language,
        )
        for pause, utterance, text in _with_pauses(transcript)
    ]
    if joined:
        lines = _joined(lines, _chosen_starts(transcript))
        if transcript.partial and lines and _is_open(lines[-1]):
            del lines[-1]  # the next line may be a part of it
    summary = ", ".join([length(transcript.audio), *shares])
    return Reading(transcript, title(transcript), summary, lines, path, warnings_for_people(transcript))


def _chosen_starts(transcript: Transcript) -> set[float]:
    """Return the starts of paragraphs that a person split off."""
    splits = [correction.other for correction in transcript.corrections if correction.kind == "split"]
    if not splits:
        return set()
    index = WordIndex(transcript.words)
    return {transcript.words[number].start for spans in splits for number in index.within(spans)}


def _joined(lines: Sequence[Line], starts: Collection[float]) -> list[Line]:
    """Join lines that are parts of a sentence of one speaker."""
    paragraphs: list[Line] = []
    for line in lines:
        if not paragraphs or line.start in starts or not _goes_on(paragraphs[-1], line):
            paragraphs.append(line)
            continue
        before = paragraphs[-1]
        space = " " if line.pause or line.words[0].text[:1].isspace() else ""
        pause = f" {line.pause}" if line.pause else ""
        text = f"{before.text}{pause}{space}{line.text}"
        paragraphs[-1] = replace(before, end=line.end, text=text, words=(*before.words, *line.words))
    return paragraphs


def _goes_on(before: Line, line: Line) -> bool:
    """Return True if a line continues the sentence before."""
    return (
        _is_open(before)
        and bool(line.words)
        and (line.speaker_id, line.track) == (before.speaker_id, before.track)
        and line.start - before.end < SENTENCE_PAUSE
        and line.end - before.start <= LONG_PARAGRAPH
    )


def _is_open(line: Line) -> bool:
    """Return True if a line ends within a sentence."""
    return bool(line.words) and not _ends(line.words[-1])


def warnings_for_people(transcript: Transcript) -> list[str]:
    """Return the warnings that documents show, with the labels of speakers."""
    return list(map(transcript.labeled, transcript.about_recording))


def title(transcript: Transcript) -> str:
    """Return the recording's name without folder and ending, in one line; "stdin" if it has no name."""
    return "stdin" if transcript.audio.path == "-" else one_line(PurePath(transcript.audio.path).stem)


def length(audio: Source) -> str:
    """Return the length of the recording, and the part of it that was transcribed."""
    whole = clock(audio.duration)
    if audio.part is None:
        return f"{whole} long"
    return f"{clock(audio.part.start)} to {clock(audio.part.end)} of {whole}"


def single(words: Sequence[Word]) -> Iterator[Word]:
    """Yield words without spaces. A corrected passage, one word of a transcript, becomes several.

    Its time is divided by the number of letters.
    """
    for word in words:
        for text, start, end in spread(word, word.text.split()):
            yield structs.replace(word, start=start, end=end, text=text)


def spread(word: Word, texts: Sequence[str]) -> Iterator[tuple[str, float, float]]:
    """Yield each of the texts with its start and end: the word's time divided by letters."""
    edges = list(accumulate(map(len, texts), initial=0))
    pace = (word.end - word.start) / max(1, edges[-1])
    for text, (first, last) in zip(texts, pairwise(edges), strict=True):
        yield text, word.start + first * pace, word.start + last * pace


def to_json(document: Any) -> str:
    """Return the JSON of a file. Bytes of a name that are not UTF-8 become U+FFFD instead of an error."""
    return msgspec.json.format(compact_json(document), indent=1) + "\n"


def compact_json(data: Any) -> str:
    """Return JSON without spaces, which a terminal can show; not UTF-8 as in `to_json`."""
    try:
        return in_json(msgspec.json.encode(data).decode())
    except UnicodeEncodeError:  # halves of characters, which `in_json` replaces
        return in_json(json.dumps(msgspec.to_builtins(data), ensure_ascii=False, separators=(",", ":")))


def for_xml(text: str) -> str:
    """Replace by U+FFFD what no XML document can hold."""
    return NO_XML.sub("\ufffd", text)


def zipped(contents: Mapping[str, bytes]) -> bytes:
    """Return an archive of files by name, the same bytes for the same contents."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, DATE), content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def ms(seconds: float) -> float:
    """Round seconds to milliseconds."""
    return round(float(seconds), 3)


def _lines_of_text(transcript: Transcript) -> Iterator[tuple[Utterance, str | None]]:
    """Yield the readable utterances, each with its text in one line; None: no recognizer ran."""
    recognized = transcript.device["whisper"] is not None
    for utterance in map(_in_lines, transcript.utterances):
        if not utterance.words:
            mark = NOT_ENGLISH if utterance.not_english else INAUDIBLE
            yield utterance, mark if recognized else None
        elif any(word.supported for word in utterance.words):  # all words of an utterance agree in this
            yield utterance, utterance.text


def _with_pauses(transcript: Transcript) -> Iterator[tuple[str | None, Utterance, str | None]]:
    """Yield the mark of the pause before each readable utterance, the utterance, and its text."""
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
    """Return the text of an utterance with its pauses."""
    text = words[0].text
    for before, word in pairwise(words):
        if word.start - before.end >= least:
            text += f" {_pause(word.start - before.end)}" + ("" if word.text.startswith(" ") else " ")
        text += word.text
    return text.strip()


def _pause(seconds: float) -> str:
    """Write a pause as transcription conventions do: short ones are not timed."""
    return "(.)" if seconds < SHORT_PAUSE else f"({seconds:.0f} s)"


def _in_lines(utterance: Utterance) -> Utterance:
    """Replace line breaks in the words."""
    texts = [one_line(word.text) for word in utterance.words]
    if texts == [word.text for word in utterance.words]:
        return utterance
    words = (structs.replace(word, text=text) for word, text in zip(utterance.words, texts, strict=True))
    return replace(utterance, words=tuple(words))


# --- without fillers ---


def _without_fillers(transcript: Transcript) -> Transcript:
    """Drop the fillers, and utterances that hold nothing else."""
    utterances = []
    for utterance in transcript.utterances:
        fillers = FILLERS.get(utterance.language or transcript.language or "", frozenset())
        words = _drop(utterance.words, fillers)
        if len(words) == len(utterance.words):
            utterances.append(utterance)
        elif words:
            start, end = words[0].start, words[-1].end
            utterances.append(replace(utterance, words=tuple(words), start=start, end=end))
    return replace(transcript, utterances=tuple(utterances))


def _drop(words: Sequence[Word], fillers: frozenset[str]) -> list[Word]:
    """Drop the fillers; the end of a sentence and a capital letter move to the neighbors."""
    kept: list[Word] = []
    capital = False
    for word in words:
        bare = word.text.strip(PUNCTUATION)
        if not word.corrected and bare.casefold() in fillers:
            capital = capital or (bare[:1].isupper() and (not kept or _ends(kept[-1])))
            if _ends(word) and kept and not _ends(kept[-1]):
                end = word.text.rstrip(CLOSING)[-1]
                kept[-1] = structs.replace(kept[-1], text=kept[-1].text.rstrip(",;:–—- ") + end)
            continue
        if capital:
            text = word.text
            first = len(text) - len(text.lstrip())
            text = text[:first] + text[first : first + 1].upper() + text[first + 1 :]
            word = structs.replace(word, text=text)
            capital = False
        kept.append(word)
    return kept


def _ends(word: Word) -> bool:
    return word.text.rstrip(CLOSING).endswith(tuple(SENTENCE_ENDS))


# --- tiers, for programs that annotate speech ---


@dataclass(frozen=True)
class Interval:
    """A part of a tier, in milliseconds: at least one, because an instant is no interval."""

    start: int
    end: int
    text: str


def tiers(reading: Reading) -> dict[str, list[Line]]:
    """Return name -> lines that do not overlap, in the order of the speakers.

    A tier cannot hold two things at a time: a speaker who talks in two channels at once has a second one,
    "Anna (2)". Without a recognizer the tiers hold the turns, which overlap where people do.
    """
    names = {speaker.id: speaker.name or speaker.id for speaker in reading.transcript.speakers}
    lines = reading.lines
    if all(line.text is None for line in lines):
        turns = reading.transcript.turns
        lines = [Line(turn.start, turn.end, names[turn.speaker], names[turn.speaker]) for turn in turns]
    by_name: dict[str, list[Line]] = {name: [] for name in names.values()}
    for line in lines:
        for number in count(1):
            name = line.speaker if number == 1 else f"{line.speaker} ({number})"
            tier = by_name.setdefault(name, [])
            if not tier or interval(tier[-1]).end <= interval(line).start:
                tier.append(line)
                break
    return {name: tier for name, tier in by_name.items() if tier}


def interval(line: Line) -> Interval:
    """Return the whole line as an interval."""
    start = round(1000 * line.start)
    return Interval(start, max(start + 1, round(1000 * line.end)), line.text or "")


def word_intervals(tier: Sequence[Line]) -> Iterator[Interval]:
    """Yield the words of a tier; a word without duration gets a millisecond, and the next ones wait."""
    end = 0
    for word in single([word for line in tier for word in line.words]):
        start = max(end, round(1000 * word.start))
        end = max(start + 1, round(1000 * word.end))
        yield Interval(start, end, word.text)


# --- notes, highlights and codes ---


@dataclass(frozen=True)
class NotedPassage:
    """A passage with a person's note; without a text and codes it is a highlight."""

    spans: Spans
    start: float
    """Seconds from the beginning of the recording, as is `end`."""
    end: float
    quote: str
    """The words of the passage; empty if a correction has removed them."""
    speakers: tuple[str, ...]
    """The ids of the passage's speakers."""
    text: str = ""
    codes: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """Codes and text, for programs that have one text for both."""
        return "\n".join(part for part in (", ".join(self.codes), self.text) if part)


def noted_passages(transcript: Transcript) -> list[NotedPassage]:
    """Return the noted passages in the order of time; of several notes on the same words the last one
    counts."""
    notes = [correction for correction in transcript.corrections if correction.kind == "note"]
    if not notes:
        return []
    index = WordIndex(transcript.words)
    latest: dict[object, NotedPassage] = {}
    for note in notes:
        numbers = tuple(index.within(note.other).tolist())
        key: object = numbers or note.other
        latest.pop(key, None)
        if note.text is not None:
            latest[key] = _noted_passage(note, [transcript.words[number] for number in numbers])
    return sorted(latest.values(), key=lambda passage: (passage.start, passage.end))


def _noted_passage(note: Correction, words: Sequence[Word]) -> NotedPassage:
    start = words[0].start if words else note.other[0][0]
    end = max((word.end for word in words), default=note.other[-1][1])
    quote = "".join(word.text for word in words).strip()
    speakers = dict.fromkeys(word.speaker for word in words if word.speaker)
    return NotedPassage(note.other, start, end, quote, tuple(speakers), note.text or "", note.codes)


def locate(line: Line, passages: Sequence[NotedPassage]) -> list[tuple[int, int, int]]:
    """Return (first character, last character + 1, number) of each passage that is in the text of a line.

    A passage of separate words reaches from the first to the last.
    """
    if not passages or not line.words or line.text is None:
        return []
    edges, at = [], 0
    for word in line.words:
        text = word.text.strip()
        first = line.text.index(text, at)
        at = first + len(text)
        edges.append((first, at))
    index = WordIndex(line.words)
    inside = [(number, index.within(passage.spans)) for number, passage in enumerate(passages)]
    return [(edges[words[0]][0], edges[words[-1]][1], number) for number, words in inside if len(words)]
