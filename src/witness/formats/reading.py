"""A transcript as people read it: what most formats are written from, and what they share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from witness.schema import Transcript, Word
from witness.text import in_json

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


@dataclass(frozen=True)
class Reading:
    """What people read of a transcript: no words where nobody was heard speaking."""

    transcript: Transcript
    title: str
    summary: str
    """How long it is and who speaks how much."""
    lines: Sequence[Line]

    @property
    def said(self) -> Iterator[Line]:
        """For programs: the lines without the marks in place of words; all lines if nobody listened."""
        return (line for line in self.lines if line.words or line.text is None)


def single(words: Sequence[Word]) -> Iterator[Word]:
    """The words, none with a space in or around it: a passage that was corrected is one word of a transcript.

    Its time is divided by the number of letters.
    """
    for word in words:
        texts = word.text.split()
        edges = list(accumulate(map(len, texts), initial=0))
        pace = (word.end - word.start) / max(1, edges[-1])
        for text, first, last in zip(texts, edges, edges[1:], strict=False):
            yield replace(word, start=word.start + first * pace, end=word.start + last * pace, text=text)


def to_json(document: Any) -> str:
    """A document of another program's format."""
    return in_json(json.dumps(document, ensure_ascii=False, indent=1)) + "\n"


def for_xml(text: str) -> str:
    """The text with U+FFFD for what no XML document can hold."""
    return NO_XML.sub("\ufffd", text)


def ms(seconds: float) -> float:
    """Seconds, rounded to milliseconds."""
    return round(float(seconds), 3)
