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


def distances(word: str, others: Sequence[str], most: int) -> npt.NDArray[np.int16]:
    """(others,): how many letters are wrong, missing, too many, or swapped with their neighbor.

    What is more than `most` is `most` + 1. Optimal string alignment, for all at once, of which only cells
    near the diagonal can count: https://doi.org/10.1145/363958.363994
    """
    lengths = np.array([len(one) for one in others], np.intp)
    longest, beyond = int(lengths.max(initial=0)), most + 1
    padded = "".join(one.ljust(longest, "\0") for one in others).encode("utf-32-le", "surrogatepass")
    letters = np.ascontiguousarray(np.frombuffer(padded, np.uint32).reshape(len(others), longest).T)
    kind = np.int8 if beyond + 1 < 127 else np.int16  # the smaller, the faster
    far = np.full((longest + 1, len(others)), beyond, kind)
    earlier = before = far.copy()
    for column in range(min(most, longest) + 1):
        before[column] = column
    for row, letter in enumerate(word, start=1):
        now = far.copy()
        if row <= most:
            now[0] = row
        for column in range(max(1, row - most), min(longest, row + most) + 1):
            same = letters[column - 1] == ord(letter)
            cost = np.minimum(before[column], now[column - 1]) + kind(1)
            cost = np.minimum(cost, before[column - 1] + ~same)
            if row > 1 and column > 1:
                swapped = (letters[column - 2] == ord(letter)) & (letters[column - 1] == ord(word[row - 2]))
                cost = np.where(swapped, np.minimum(cost, earlier[column - 2] + kind(1)), cost)
            now[column] = np.minimum(cost, kind(beyond))
        earlier, before = before, now
    return before[lengths, np.arange(len(others))].astype(np.int16)
