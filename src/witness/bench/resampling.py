"""The bootstrap over files: how much a pooled figure owes to which files there happen to be."""

from __future__ import annotations

import numpy as np

from witness.schema import Float64

DRAWS = 10_000
SEED = 0


def sums(counts: Float64) -> Float64:
    """(draws, columns): sums over files drawn with replacement of (files, columns).

    The draws depend on the number of files only, so two results of the same files are drawn together.
    """
    draws = np.random.default_rng(SEED).integers(len(counts), size=(DRAWS, len(counts)))
    # How often each file is drawn: less memory than the counts of every draw.
    weights = np.stack([np.bincount(draw, minlength=len(counts)) for draw in draws])
    drawn: Float64 = weights @ counts
    return drawn


def interval(values: Float64) -> tuple[float, float]:
    """What the middle 95 % of the values lie between."""
    low, high = np.percentile(values, [2.5, 97.5]).tolist()
    return low, high
