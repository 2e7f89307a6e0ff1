"""Passages of a transcript as rows of the index: the words as people read them, and their times."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from witness.schema import Transcript, Utterance
from witness.serve.library.query import Query, folded
from witness.text import one_line

GLUE = "\u2060"
"""Between two words without a space between them. It is invisible, and is taken out for people."""
AROUND = 12
"""Words before and after a match."""
WIDEST = 24
"""Words from the first to the last match in one quotation."""

_BETWEEN = re.compile(f"[ {GLUE}]")


@dataclass(frozen=True)
class Passage:
    """Consecutive words of one speaker."""

    speaker: str
    """Empty: unknown."""
    start: float
    end: float
    words: str
    begins: bytes
    """Start of each word, in milliseconds after `start`: unsigned, of 4 bytes, little-endian."""

    @property
    def spellings(self) -> tuple[str, str]:
        """The words of `folded`: plain, and spelled, which is empty if it is the same."""
        plain, spelled = (" ".join(words) for words in folded_all(self.words)[1:])
        return plain, "" if spelled == plain else spelled


@dataclass(frozen=True)
class Hit:
    """A part of a passage with matches."""

    speaker: str
    start: float
    end: float
    pieces: tuple[str, ...]
    """The text, cut at the ends of matches: the second, the fourth and so on are matches."""


def names(transcript: Transcript) -> dict[str, str]:
    """Return each speaker's name, or the number that the page gives, by id."""
    first = {turn.speaker: turn.start for turn in reversed(transcript.turns)}
    ordered = sorted(transcript.speakers, key=lambda person: (first.get(person.id, float("inf")), person.id))
    return {person.id: person.name or f"Speaker {number}" for number, person in enumerate(ordered, start=1)}


def passages(transcript: Transcript) -> Iterator[Passage]:
    """Yield the utterances with words, in the order of time."""
    called = names(transcript)
    for utterance in transcript.utterances:
        if utterance.words:
            yield _passage(utterance, called.get(utterance.speaker or "", ""))


def _passage(utterance: Utterance, speaker: str) -> Passage:
    text = ""
    begins = array("I")
    for word in utterance.words:
        piece = one_line(word.text.strip()).replace(GLUE, "").replace(" ", "\u00a0")
        if begins:
            text += " " if word.text[:1].isspace() else GLUE
        text += piece
        begins.append(max(0, round(1000 * (word.start - utterance.start))))
    return Passage(speaker, utterance.start, utterance.end, text, _little_endian(begins).tobytes())


def folded_all(words: str) -> tuple[list[int], list[str], list[str]]:
    """Return the folded words of a passage, plain and spelled, and before them each one's position in it."""
    owners: list[int] = []
    plain: list[str] = []
    spelled: list[str] = []
    for position, word in enumerate(_BETWEEN.split(words)):
        plain_parts, spelled_parts = folded(word)
        owners += [position] * len(plain_parts)
        plain += plain_parts
        spelled += spelled_parts
    return owners, plain, spelled


def quotation(passage: Passage, query: Query, before: str = "", after: str = "") -> Hit:
    """Quote the matches in a passage with the words around, or its beginning.

    `before` and `after` are the words of the neighbors, for a match at an end of the passage.
    """
    words = _words(passage.words)
    owners, *spellings = folded_all(passage.words)
    matches = sorted(
        {owners[part] for term in query.terms for each in spellings for part in term.positions(each)}
    )
    first = matches[0] if matches else 0
    last = max((position for position in matches if position - first < WIDEST), default=WIDEST)
    last = min(last, len(words) - 1)
    begin, end = max(0, first - AROUND), min(len(words), last + 1 + AROUND)
    pieces = [""]
    for position in range(begin, end):
        gap, word = words[position]
        gap = "" if position == begin else gap.replace(GLUE, "")
        if (position in matches) == (len(pieces) % 2 == 0):
            pieces[-1] += gap + word
        elif len(pieces) % 2:  # a match begins
            pieces[-1] += gap
            pieces.append(word)
        else:
            pieces.append(gap + word)
    if not len(pieces) % 2:
        pieces.append("")
    if matches and first == 0 and before:
        pieces[0] = f"{_readable(_words(before)[-AROUND:])} – {pieces[0]}"
    if matches and last + 1 == len(words) and after:
        pieces[-1] = f"{pieces[-1]} – {_readable(_words(after)[:AROUND])}"
    times = [passage.start + late / 1000 for late in _little_endian(array("I", passage.begins))]
    until = times[last + 1] if last + 1 < len(times) else passage.end
    return Hit(
        passage.speaker,
        start=round(times[first], 3),
        end=round(max(until, times[first]), 3),
        pieces=tuple(piece.replace("\u00a0", " ") for piece in pieces),
    )


def _words(text: str) -> list[tuple[str, str]]:
    """Return each word after the gap before it."""
    gaps = ["", *_BETWEEN.findall(text)]
    return list(zip(gaps, _BETWEEN.split(text), strict=True))


def _readable(words: list[tuple[str, str]]) -> str:
    text = "".join(gap + word for gap, word in words)
    return text.replace(GLUE, "").replace("\u00a0", " ").strip()


def _little_endian(numbers: array[int]) -> array[int]:
    """Convert numbers to the index's order of bytes, or back."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
