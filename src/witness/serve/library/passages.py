"""What somebody said, as one row of the index: its words as people read them, and when each begins."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from witness.schema import Transcript, Utterance
from witness.serve.library.folding import folded
from witness.serve.library.query import Query
from witness.text import one_line

GLUE = "\u2060"
"""Between two words without a space between them. It cannot be seen, and is taken out for people."""
AROUND = 12
"""Words before and after what was found."""
WIDEST = 24
"""Words from the first to the last of those that were found which are shown in one quotation."""

_BETWEEN = re.compile(f"[ {GLUE}]")


@dataclass(frozen=True)
class Passage:
    """Consecutive words of one speaker."""

    speaker: str
    """As people read it; empty: nobody knows who."""
    start: float
    """Seconds from the beginning of the recording, as is `end`."""
    end: float
    words: str
    begins: bytes
    """Of each word, in milliseconds after `start`: unsigned, of 4 bytes, little-endian."""

    @property
    def spellings(self) -> tuple[str, str]:
        """The words as `folding` compares them: plain, and spelled, which is empty where it is the same."""
        plain, spelled = (" ".join(words) for words in folded_all(self.words)[1:])
        return plain, "" if spelled == plain else spelled


@dataclass(frozen=True)
class Quotation:
    """A part of a passage that was looked for."""

    start: float
    end: float
    pieces: tuple[str, ...]
    """The text, cut where what was found begins and ends: the second, the fourth and so on were found."""


def names(transcript: Transcript) -> dict[str, str]:
    """Each speaker's id and what people read instead: the name, or the number that the page gives."""
    first = {turn.speaker: turn.start for turn in reversed(transcript.turns)}
    ordered = sorted(transcript.speakers, key=lambda one: (first.get(one.id, float("inf")), one.id))
    return {one.id: one.name or f"Speaker {number}" for number, one in enumerate(ordered, start=1)}


def passages(transcript: Transcript) -> Iterator[Passage]:
    """All that was said in words, in the order of time."""
    called = names(transcript)
    for one in transcript.utterances:
        if one.words:
            yield _passage(one, called.get(one.speaker or "", ""))


def _passage(said: Utterance, speaker: str) -> Passage:
    text = ""
    begins = array("I")
    for word in said.words:
        piece = one_line(word.text.strip()).replace(GLUE, "").replace(" ", "\u00a0")
        if begins:
            text += " " if word.text[:1].isspace() else GLUE
        text += piece
        begins.append(max(0, round(1000 * (word.start - said.start))))
    return Passage(speaker, said.start, said.end, text, _little(begins).tobytes())


def folded_all(words: str) -> tuple[list[int], list[str], list[str]]:
    """All words of a passage as they are compared, plain and spelled, and which word of it each is of."""
    owners: list[int] = []
    plain: list[str] = []
    spelled: list[str] = []
    for place, word in enumerate(_BETWEEN.split(words)):
        one, other = folded(word)
        owners += [place] * len(one)
        plain += one
        spelled += other
    return owners, plain, spelled


def quotation(passage: Passage, query: Query, before: str = "", after: str = "") -> Quotation:
    """What was found in a passage, with the words around, or the beginning of it.

    `before` and `after` are the words of the passages beside it, for what begins or ends with the passage.
    """
    words = _words(passage.words)
    found = sorted(_found(passage.words, query))
    first = found[0] if found else 0
    last = max((place for place in found if place - first < WIDEST), default=WIDEST)
    last = min(last, len(words) - 1)
    begin, end = max(0, first - AROUND), min(len(words), last + 1 + AROUND)
    pieces = [""]
    for place in range(begin, end):
        gap, word = words[place]
        gap = "" if place == begin else gap.replace(GLUE, "")
        if (place in found) == (len(pieces) % 2 == 0):
            pieces[-1] += gap + word
        elif len(pieces) % 2:  # what was found begins
            pieces[-1] += gap
            pieces.append(word)
        else:
            pieces.append(gap + word)
    if not len(pieces) % 2:
        pieces.append("")
    if found and first == 0 and before:
        pieces[0] = f"{_shown(before, last=True)} – {pieces[0]}"
    if found and last + 1 == len(words) and after:
        pieces[-1] = f"{pieces[-1]} – {_shown(after, last=False)}"
    times = [passage.start + late / 1000 for late in _little(array("I", passage.begins))]
    until = times[last + 1] if last + 1 < len(times) else passage.end
    return Quotation(
        start=round(times[first], 3),
        end=round(max(until, times[first]), 3),
        pieces=tuple(piece.replace("\u00a0", " ") for piece in pieces),
    )


def _found(words: str, query: Query) -> set[int]:
    """The places of the words that were looked for."""
    owners, *spellings = folded_all(words)
    return {owners[place] for term in query.terms for each in spellings for place in term.places(each)}


def _shown(words: str, last: bool) -> str:
    """The last or the first words of a passage, as people read them."""
    parts = _words(words)
    text = "".join(gap + word for gap, word in (parts[-AROUND:] if last else parts[:AROUND]))
    return text.replace(GLUE, "").replace("\u00a0", " ").strip()


def _words(text: str) -> list[tuple[str, str]]:
    """(what is before it, word) of each word."""
    gaps = ["", *_BETWEEN.findall(text)]
    return list(zip(gaps, _BETWEEN.split(text), strict=True))


def _little(numbers: array[int]) -> array[int]:
    """The same numbers, in the order of bytes that the index has, or from it."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
