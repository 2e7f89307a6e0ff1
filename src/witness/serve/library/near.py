"""Words that are spelled nearly like another one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SHORTEST = 4
"""Letters of a word that others are near to; below, every word is."""
LONG = 8
"""Letters from which on two may be wrong."""


def allowed(word: str) -> int:
    """How many letters may be wrong, missing, too many, or swapped with their neighbor."""
    return 0 if len(word) < SHORTEST else 1 if len(word) < LONG else 2


def distances(word: str, others: Sequence[str]) -> npt.NDArray[np.int16]:
    """(others,): how many letters are wrong, missing, too many, or swapped with their neighbor.

    Optimal string alignment, for all at once: https://doi.org/10.1145/363958.363994
    """
    lengths = np.array([len(one) for one in others], np.intp)
    longest = int(lengths.max(initial=0))
    kind = np.int8 if longest + len(word) < 127 else np.int16  # the smaller, the faster
    letters = np.zeros((longest, len(others)), np.uint32)
    for place, one in enumerate(others):
        letters[: len(one), place] = [ord(letter) for letter in one]
    earlier = before = np.repeat(np.arange(longest + 1, dtype=kind)[:, None], len(others), 1)
    for row, letter in enumerate(word, start=1):
        now = np.empty_like(before)
        now[0] = row
        for column in range(1, longest + 1):
            same = letters[column - 1] == ord(letter)
            cost = np.minimum(before[column], now[column - 1]) + 1
            cost = np.minimum(cost, before[column - 1] + ~same)
            if row > 1 and column > 1:
                swapped = (letters[column - 2] == ord(letter)) & (letters[column - 1] == ord(word[row - 2]))
                cost = np.where(swapped, np.minimum(cost, earlier[column - 2] + 1), cost)
            now[column] = cost
        earlier, before = before, now
    return before[lengths, np.arange(len(others))].astype(np.int16)
