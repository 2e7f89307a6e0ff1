"""Whether a model that knows English only was given another language.

It writes English all the same: what sounds alike, improbable to itself, or the same words again and again. So
its own probabilities tell. docs/decisions/2026-11-23-not-english.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from witness.recognition.fallback import Found, flaw
from witness.recognition.hallucination_checks import IMPROBABLE
from witness.recognition.language_tracking import decide
from witness.recognition.vad import FRAME_RATE

ENGLISH, OTHER = "en", "other"
MIDDLE, STEEP = -0.8, 12.0
"""Of the logistic function that makes a mean log probability of tokens a probability of English."""
LOOP = 0.05
"""Probability of English where the text repeats itself, has no end or is too much for the time."""
PACE = 4.0
"""Tokens in a second of English: fewer are as little evidence as less speech."""
ENOUGH = 6
"""Tokens; of less than that in a row nothing is said."""


def apart(heard: Iterable[Found]) -> tuple[list[Found], list[Found]]:
    """What was heard in pieces, in order -> what is English, and what is not."""
    found = list(heard)
    sides: tuple[list[Found], list[Found]] = [], []
    languages = decide([_told(one) for one in found], ENGLISH)
    for language, run in groupby(zip(languages, found, strict=True), key=lambda item: item[0]):
        pieces = [one for _, one in run]
        enough = sum(len(result.tokens) for _, result in pieces) >= ENOUGH
        sides[language != ENGLISH and enough].extend(pieces)
    return sides


def spans(pieces: Sequence[Found]) -> list[tuple[float, float]]:
    """From when to when these pieces last, in seconds; those that follow each other as one."""
    found: list[tuple[float, float]] = []
    for piece, _ in pieces:
        if found and piece.start - found[-1][1] < 1 / FRAME_RATE:
            found[-1] = found[-1][0], piece.end
        else:
            found.append((piece.start, piece.end))
    return found


def _told(one: Found) -> tuple[float, dict[str, float]]:
    """How much speech it is evidence of, in seconds, and how probable English is."""
    piece, heard = one
    if flaw(piece, heard) not in (None, IMPROBABLE):
        english = LOOP
    elif heard.logprob is None or not heard.tokens:
        return 0.0, {}
    else:
        english = 1 / (1 + math.exp(STEEP * (MIDDLE - heard.logprob)))
    return len(heard.tokens) / PACE, {ENGLISH: english, OTHER: 1 - english}
