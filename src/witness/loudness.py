"""Samples -> where a recording is so faint that nobody of this conversation speaks.

A segmentation network takes every ten seconds at the same level. Ten seconds in which hardly anything is to
be heard are then looked at as if through a microscope, and hiss and breath can pass for voices.
"""

from __future__ import annotations

import numpy as np

from witness.schema import FRAME_SAMPLES, FRAMES, SAMPLE_RATE, Bool, Float32, Map, Samples, in_turn

TENTH = SAMPLE_RATE // 10
LOUD = 0.9
"""The loud parts of a recording begin at this quantile of its tenths of a second: a slammed door, or applause
for less than a tenth of the time, does not count, and where less than that is spoken nothing is too faint."""
AROUND = 30
"""Segmentation frames, 0.5 s: the mean over so many does not fall between two syllables."""
BASS = 0.97
"""Of each sample that is taken from the next one (Kaldi's pre-emphasis): a rumble is not loud."""


def limit(samples: Samples, faint: float, *, mapper: Map = in_turn) -> float:
    """The power of what is `faint` dB below the loud parts of `samples`; 0 if they are shorter than 0.1 s."""
    minute = 600 * TENTH
    parts = (samples[first : first + minute] for first in range(0, len(samples), minute))
    powers = np.concatenate([np.zeros(0), *mapper(_tenths, parts)])
    return float(np.quantile(powers, LOUD)) * 10 ** (-faint / 10) if len(powers) else 0.0


def above(window: Float32, limit: float) -> Bool:
    """(589,): whether half a second around each segmentation frame of (160000,) samples has more power."""
    blocks = np.pad(_powers(window, FRAME_SAMPLES), (AROUND // 2, AROUND - 1 - AROUND // 2), "edge")
    power = np.convolve(blocks, np.full(AROUND, 1 / AROUND, np.float32), "valid")
    # Frame i has its middle in block i + 1.
    heard: Bool = power[1 : FRAMES + 1] > limit
    return heard


def _tenths(samples: Float32) -> Float32:
    return _powers(samples, TENTH)


def _powers(samples: Float32, size: int) -> Float32:
    """The power of each whole block of `size` samples, without the bass."""
    high = samples[1:] - np.float32(BASS) * samples[:-1]
    blocks = high[: len(high) // size * size].reshape(-1, size)
    powers: Float32 = np.einsum("ij,ij->i", blocks, blocks) / np.float32(size)
    return powers
