"""What somebody said, as one row of the index: a text that SQLite divides into words, and when each begins.

SQLite takes letters and digits for words and all else for what is between them. Where a script puts no spaces
between words, each of its characters becomes a word, and a word that is looked for becomes a phrase of them.
What is put between them cannot be seen, and is taken out before anybody reads it.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from witness.schema import Transcript, Utterance
from witness.text import UNSPACED, one_line

INSIDE, GLUE = "\u200b", "\u2060"
"""Between two characters of a word, and between two words without a space between them."""
OPEN, CLOSE = "\x01", "\x02"
"""Around what was found; `one_line` takes them out of texts."""
AROUND = 12
"""Words before and after what was found."""
WIDEST = 24
"""Words from the first to the last of those that were found which are shown as one quotation."""

_RANGES = "".join(f"{first}-{last}" for first, last in UNSPACED)
_EDGE = re.compile(f"(?<=[{_RANGES}])(?=[^ ])|(?<=[^ ])(?=[{_RANGES}])")
_HIDDEN = re.compile(f"[{INSIDE}{GLUE}]")
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


@dataclass(frozen=True)
class Quotation:
    """A part of a passage that was looked for."""

    start: float
    end: float
    text: str
    before: str
    after: str


def divided(text: str) -> str:
    """The text with `INSIDE` where a script has no spaces."""
    return _EDGE.sub(INSIDE, _HIDDEN.sub("", one_line(text)))


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
        piece = divided(word.text.strip()).replace(" ", "\u00a0")
        if begins:
            text += " " if word.text[:1].isspace() else GLUE
        text += piece
        begins.append(max(0, round(1000 * (word.start - said.start))))
    return Passage(speaker, said.start, said.end, text, _little(begins).tobytes())


def quotation(marked: str, start: float, end: float, begins: bytes) -> Quotation:
    """What was found in a passage, given its `words` with `OPEN` and `CLOSE` around what was found."""
    words = _words(marked)
    found = [number for number, (_, word) in enumerate(words) if OPEN in word or CLOSE in word] or [0]
    first = found[0]
    last = max(number for number in found if number - first < WIDEST)
    times = [start + after / 1000 for after in _little(array("I", begins))]
    until = times[last + 1] if last + 1 < len(times) else end
    return Quotation(
        start=round(times[first], 3),
        end=round(max(until, times[first]), 3),
        text=_joined(words[first : last + 1]),
        before=_joined(words[max(0, first - AROUND) : first]),
        after=_joined(words[last + 1 : last + 1 + AROUND]),
    )


def shown(words: str, last: bool) -> str:
    """The last or the first words of a passage, as people read them."""
    parts = _words(words)
    return _joined(parts[-AROUND:] if last else parts[:AROUND])


def _words(text: str) -> list[tuple[str, str]]:
    """(what is before it, word) of each word."""
    gaps = ["", *_BETWEEN.findall(text)]
    return list(zip(gaps, _BETWEEN.split(text), strict=True))


def _joined(words: Sequence[tuple[str, str]]) -> str:
    text = "".join(gap + word for gap, word in words)
    return re.sub(f"[{INSIDE}{GLUE}{OPEN}{CLOSE}]", "", text).replace("\u00a0", " ").strip()


def _little(numbers: array[int]) -> array[int]:
    """The same numbers, in the order of bytes that the index has, or from it."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
