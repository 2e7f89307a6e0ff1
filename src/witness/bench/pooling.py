"""Errors of all recordings together, with intervals by a bootstrap over recordings.

Errors are (recordings, 4): three sorts of errors, and the speech or the words that they are a share of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from witness.schema import Float64

DRAWS, SEED = 10_000, 0
"""Of the bootstrap."""

Interval = tuple[float, float]
"""Of 95 %."""


@dataclass(frozen=True)
class Pooled:
    """Errors that are summed, then divided once. In percent; not numbers if there is nothing to score."""

    rate: float
    interval: Interval | None
    """None: not shown, because of a single recording."""
    parts: tuple[float, float, float]
    """The rate of each sort of errors."""
    total: float
    """The speech or the words of the reference."""


@dataclass(frozen=True)
class Difference:
    """Difference of two rates of the same recordings."""

    points: float
    """Percentage points; below zero: the first is better."""
    interval: Interval | None
    """By drawing the same recordings for both; None as in `Pooled`."""


def pool(errors: Float64, *, interval: bool = True) -> Pooled:
    """Pool the errors of all recordings; without `interval` its field is None."""
    sums = errors.sum(axis=0)
    if not sums[3]:
        nothing = float("nan")
        return Pooled(nothing, (nothing, nothing), (nothing, nothing, nothing), 0.0)
    first, second, third = (100 * sums[:3] / sums[3]).tolist()
    edges = middle_95(_rates(errors)) if interval else None
    return Pooled(first + second + third, edges, (first, second, third), float(sums[3]))


def compare(errors: Float64, others: Float64, *, interval: bool = True) -> Difference:
    """Subtract the rate of `others`, of the same recordings in the same order.

    Both are drawn together, so what makes a recording hard for either drops out.
    """
    points = _rate(errors) - _rate(others)
    return Difference(points, middle_95(_rates(errors) - _rates(others)) if interval else None)


def drawn_sums(counts: Float64) -> Float64:
    """Return (draws, columns): sums over files drawn with replacement of (files, columns).

    The draws depend on the number of files only, so two results of the same files are drawn together.
    """
    draws = np.random.default_rng(SEED).integers(len(counts), size=(DRAWS, len(counts)))
    # Numbers of times that each file is drawn: less memory than the counts of every draw.
    weights = np.stack([np.bincount(draw, minlength=len(counts)) for draw in draws])
    sums: Float64 = weights @ counts
    return sums


def middle_95(values: Float64) -> Interval:
    """Return the edges of the middle 95 % of the values."""
    low, high = np.percentile(values, [2.5, 97.5]).tolist()
    return low, high


def _rate(errors: Float64) -> float:
    total = float(errors[:, 3].sum())
    return float(100 * errors[:, :3].sum() / total) if total else float("nan")


def _rates(errors: Float64) -> Float64:
    """Return (draws,): the pooled rate of recordings drawn with replacement."""
    drawn = drawn_sums(errors)
    rates: Float64 = 100 * drawn[:, :3].sum(axis=1) / np.maximum(drawn[:, 3], 1e-9)
    return rates
