"""Whether a recognized text can be what somebody said, or a recognizer that goes in circles or dreams."""

from __future__ import annotations

import re
import zlib
from collections import Counter

COMPRESSION = 2.4
"""A text that zlib makes smaller by more repeats itself; openai/whisper's limit."""
LOGPROB = -1.0
"""Mean log probability of the tokens below which a text is improbable; openai/whisper's limit."""
RATE = 30.0
"""Characters a second that nobody says: fast speech has 20."""
IMPROBABLE = "is improbable"
WORDS = re.compile(r"\w+(?:['’]\w+)*")
"""Without punctuation: a loop of "no, no, no." ends with another character."""
GRAM, TIMES, LOOP = 3, 4, 8
"""Up to GRAM words that come back more than TIMES times, one after the other, and are more than LOOP words
in all, are a loop. People say "no" six times, and six equal digits."""


def doubt(text: str, seconds: float, logprob: float | None) -> str | None:
    """What is wrong with a text that is said to have been spoken within `seconds`; None: nothing."""
    words = WORDS.findall(text.casefold())
    if _loops(words) or _compression(text) > COMPRESSION:
        return "repeats itself"
    if len(text) > RATE * max(seconds, 1.0):
        return "is too much for the time"
    if logprob is not None and logprob < LOGPROB:
        return IMPROBABLE
    return None


def _loops(words: list[str]) -> bool:
    """Whether a few words are repeated without a break, or a long phrase comes back again and again."""
    for size in range(1, GRAM + 1):
        run = 1
        for place in range(size, len(words) - size + 1, size):
            run = run + 1 if words[place : place + size] == words[place - size : place] else 1
            if run > TIMES and run * size > LOOP:
                return True
    grams = Counter(zip(*(words[shift:] for shift in range(8)), strict=False))
    return max(grams.values(), default=0) >= TIMES


def _compression(text: str) -> float:
    raw = text.encode()
    return len(raw) / len(zlib.compress(raw)) if raw else 0.0
