"""Whether a model that knows English only was given another language.

It writes English all the same: what sounds alike, improbable to itself, or the same words again and again. So
its own probabilities tell. docs/decisions/2026-11-23-not-english.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from witness.recognition.fallback import NAMED, Found, flaw
from witness.recognition.hallucination_checks import IMPROBABLE
from witness.recognition.language_tracking import decide

ENGLISH, OTHER = "en", "other"
CLEAR = 0.9
"""Probability from which a piece is taken to be English at once."""
CHANGE = 2.0
"""Nats that a change from English to another language costs, or back."""
MIDDLE, STEEP = -0.8, 12.0
"""Of the logistic function that makes a mean log probability of tokens a probability of English."""
LOOP = 0.05
"""Probability of English where the text repeats itself, has no end or is too much for the time."""
PACE = 4.0
"""Tokens in a second of English: fewer are as little evidence as less speech."""
ENOUGH = 6
"""Tokens; of less than that in a row nothing is said."""


def believed(heard: Iterable[Found], not_english: list[tuple[float, float]]) -> Iterator[Found]:
    """Of what was heard in pieces, in order, what is English; from when to when others last, in seconds, is
    appended to `not_english`.

    The first that is not clearly English, and all after it, are held back until all are heard.
    """
    held: list[Found] = []
    for one in heard:
        if held or _told(one)[1].get(ENGLISH, 1.0) < CLEAR:
            held.append(one)
        else:
            yield one
    languages, _ = decide([_told(one) for one in held], ENGLISH, change=CHANGE)
    for language, run in groupby(zip(languages, held, strict=True), key=lambda item: item[0]):
        pieces = [one for _, one in run]
        if language == ENGLISH or sum(len(result.tokens) for _, result in pieces) < ENOUGH:
            yield from pieces
        else:
            not_english.append((pieces[0][0].start, pieces[-1][0].end))


def to_line(
    not_english: Sequence[tuple[float, float]], model: str, clock: Callable[[float], str]
) -> Iterator[str]:
    """What a reader should know about what was not English. `clock` writes a time in seconds."""
    if not_english:
        places = [f"{clock(start)} to {clock(end)}" for start, end in not_english]
        more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
        yield (
            f"[not English], at {', '.join(places[:NAMED])}{more}: {model} knows English only; "
            "fix: --whisper base (or --language en, if it is English)"
        )


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
