"""Which language is spoken in each part of a track, from what a recognizer hears in the parts one by one.

Whisper tells the language of a piece of up to 30 s; of a piece in two languages it tells a mixture. Where the
track's language is clear, nothing more is done. Other pieces are cut into parts, and a Viterbi pass decides
for all of them together: a change of language has a cost, so that it takes clear evidence.
docs/decisions/2026-11-23-words-of-all-languages.md, "Languages".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from witness.recognition.vad import FRAME_RATE

CLEAR = 0.9
"""Probability from which a piece is taken to be in the track's language alone."""
PART = 8 * FRAME_RATE
"""The most frames of a part of an unclear piece."""
CHANGE = 2.0
"""Nats that a change of language costs."""
LEAST = 1e-4
"""What counts of a language that is less probable than that: no part alone outweighs all others."""
SHORT = 3.0
"""Seconds; the evidence of a shorter part counts in proportion."""
CANDIDATE = 0.8
"""Probability that another language must reach in some part, else it is a mistake."""


def among(probabilities: Mapping[str, float], allowed: Sequence[str]) -> dict[str, float]:
    """The same for the languages that may be spoken (empty: all), so that their sum is 1."""
    kept = {code: one for code, one in probabilities.items() if not allowed or code in allowed}
    whole = sum(kept.values())
    return {code: one / whole for code, one in kept.items()} if whole > 0 else {}


def decide(parts: Sequence[tuple[float, Mapping[str, float]]], main: str) -> list[str]:
    """The language of each part, of which are given its seconds and how probable each language is.

    `main` is the language of the track, which stays where no other is clear.
    """
    found = {code for _, told in parts for code, one in told.items() if one >= CANDIDATE}
    codes = [main, *sorted(found - {main})]
    scores = np.array(
        [
            [min(1.0, seconds / SHORT) * math.log(max(told.get(code, 0.0), LEAST)) for code in codes]
            for seconds, told in parts
        ]
    )
    best = np.zeros(len(codes))
    ways: list[list[int]] = []
    for score in scores:
        leader = int(best.argmax())
        stays = best >= best[leader] - CHANGE
        ways.append([own if stay else leader for own, stay in enumerate(stays)])
        best = np.maximum(best, best[leader] - CHANGE) + score
    place, path = int(best.argmax()) if len(parts) else 0, []
    for way in reversed(ways):
        path.append(codes[place])
        place = way[place]
    return path[::-1]
