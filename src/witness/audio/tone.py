"""A tone over parts of a recording, in place of what is said there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from witness.schema import SAMPLE_RATE, Float32, Spans

PITCH = 1000.0
"""Hertz, as broadcasters have it."""
LEVEL = 0.1
"""Of full scale: heard, and not louder than speech."""


def over(
    blocks: Iterable[Float32], spans: Spans, begin: float = 0.0, level: float = LEVEL
) -> Iterator[Float32]:
    """The samples (blocks of (samples,) at SAMPLE_RATE), replaced by a tone within `spans`, in seconds.

    The first sample is at `begin`; `level` is the tone's, 0 for silence.
    """
    edges = [tuple(round((edge - begin) * SAMPLE_RATE) for edge in span) for span in spans]
    done = 0
    for block in blocks:
        covered = block
        for first, last in edges:
            first, last = max(0, first - done), min(len(block), last - done)
            if first < last:
                if covered is block:
                    covered = block.copy()
                times = np.arange(done + first, done + last) / SAMPLE_RATE
                covered[first:last] = level * np.sin(2 * np.pi * PITCH * times)
        yield covered
        done += len(block)
