"""Which language is spoken in each part of a track, from what a recognizer hears in the parts one by one.

Whisper tells the language of a piece of up to 30 s; of a piece in two languages it tells a mixture. But its
decoder can attend to a part of the piece alone, which costs next to nothing. Where another language may be
spoken, pieces are cut in pauses and where another person begins to speak, and a Viterbi pass decides for all
parts together: a change of language has a cost, so that it takes clear evidence. Before a language changes,
each part is encoded by itself, which tells its language better.
docs/decisions/2026-11-24-languages-in-turn.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice

import numpy as np

from witness.recognition.chunking import Piece
from witness.recognition.engine_worker import ChunkResult
from witness.recognition.fallback import Found
from witness.recognition.vad import FRAME_RATE
from witness.schema import Int

HEARD = 3 * FRAME_RATE
"""Frames of a part that tell its language."""
SUSPECTED = 0.5
"""Probability in some part from which another language than that of the track may be spoken there."""
PART = 6 * FRAME_RATE
"""The most frames of a part."""
CHANGE = 3.0
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


def may_change(told: Sequence[Mapping[str, float]], main: str) -> bool:
    """Whether another language than `main` may be spoken in some part."""
    return any(one >= SUSPECTED for part in told for code, one in part.items() if code != main)


def changes(parts: Sequence[Piece], told: Sequence[Mapping[str, float]], main: str) -> bool:
    """Whether another language than `main` seems to be spoken in some of the parts of a piece."""
    measured = [(len(part) / FRAME_RATE, one) for part, one in zip(parts, told, strict=True)]
    return set(decide(measured, main)[0]) != {main}


Decided = tuple[Piece, ChunkResult | None]
"""A piece in one language, and what was heard in it; None: it must be heard."""


class Tracker:
    """Decides as the pieces of a track come, in order, and keeps those back that are not decided yet."""

    def __init__(self, main: str) -> None:
        """`main` is the language of the track, which stays where no other is clear."""
        self._main = self._before = main
        self._held: list[tuple[Found, list[Piece], list[Mapping[str, float]]]] = []

    @property
    def waits(self) -> bool:
        """Whether pieces are kept back."""
        return bool(self._held)

    def add(
        self, found: Found, parts: Sequence[Piece] = (), told: Sequence[Mapping[str, float]] = ()
    ) -> list[Decided]:
        """What is decided with another piece: what was heard in pieces of the track's language, and instead
        of the others the largest parts that have one language each.

        Of a piece that was not heard are given its parts, and how probable each language is in them.
        """
        self._held.append((found, list(parts) or [found[0]], list(told) or [{self._main: 1.0}]))
        return self._decided(last=False)

    def rest(self) -> list[Decided]:
        """What is left at the end of the track."""
        return self._decided(last=True)

    def _decided(self, *, last: bool) -> list[Decided]:
        parts = [(part, one) for _, parts, told in self._held for part, one in zip(parts, told, strict=True)]
        languages, settled = decide(
            [(len(part) / FRAME_RATE, one) for part, one in parts], self._main, self._before
        )
        left = iter(languages)
        done: list[Decided] = []
        if self._held and not last and self._held[-1][0][1].unclear:
            settled = min(settled, len(parts) - 1)  # the next may make the end of this one clear
        while self._held and (last or len(self._held[0][1]) <= settled):
            (piece, heard), own, _ = self._held.pop(0)
            settled -= len(own)
            own_languages = list(islice(left, len(own)))
            self._before = own_languages[-1]
            if not heard.unclear:
                done.append((piece, heard))
                continue
            for language, run in groupby(zip(own_languages, own, strict=True), key=lambda one: one[0]):
                frames = np.concatenate([part.frames for _, part in run])
                done.append((replace(piece, frames=frames, language=language), None))
        return done


def decide(
    parts: Sequence[tuple[float, Mapping[str, float]]],
    main: str,
    before: str | None = None,
    *,
    change: float = CHANGE,
) -> tuple[list[str], int]:
    """The language of each part, of which are given its seconds and how probable each language is; and how
    many of them, from the first on, keep theirs whatever follows in these languages.

    `main` is the language of the track, which stays where no other is clear; `before` that of what is said
    before, None if that is nothing; `change` are the nats that a change of language costs.
    """
    found = {code for _, told in parts for code, one in told.items() if one >= CANDIDATE}
    codes = [main, *sorted({*found, before or main} - {main})]
    scores = np.array(
        [
            [min(1.0, seconds / SHORT) * math.log(max(told.get(code, 0.0), LEAST)) for code in codes]
            for seconds, told in parts
        ]
    )
    best = np.array([0.0 if before in (None, code) else -change for code in codes])
    ways: list[Int] = []
    for score in scores:
        leader = int(best.argmax())
        ways.append(np.where(best >= best[leader] - change, np.arange(len(codes)), leader))
        best = np.maximum(best, best[leader] - change) + score
    place, path = int(best.argmax()), []
    ends, settled = set(np.flatnonzero(best >= best.max() - change).tolist()), 0
    for number, way in reversed(list(enumerate(ways, start=1))):
        if len(ends) == 1:
            settled = max(settled, number)
        path.append(codes[place])
        place = int(way[place])
        ends = {int(way[end]) for end in ends}
    return path[::-1], settled
