"""Which words lie in a place: corrections and notes are tied to the words whose middles are there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from witness.schema import Int, Spans, Word


class WordPlaces:
    """Words that can be asked many times which of them lie in a place."""

    def __init__(self, words: Sequence[Word]) -> None:
        middles = np.array([(word.start + word.end) / 2 for word in words])
        self._order = np.argsort(middles, kind="stable")
        self._times = middles[self._order]

    def of(self, spans: Spans) -> Int:
        """The rising indexes of the words whose middle lies in one of `spans`."""
        starts, ends = np.array(spans).reshape(-1, 2).T
        first, last = np.searchsorted(self._times, starts), np.searchsorted(self._times, ends, "right")
        parts = [self._order[a:b] for a, b in zip(first, last, strict=True)]
        found: Int = np.unique(np.concatenate([self._order[:0], *parts]))
        return found
