"""Samples -> where a recording is so faint that nobody of this conversation speaks.

A segmentation network takes every ten seconds at the same level. Ten seconds in which hardly anything is to
be heard are then looked at as if through a microscope, and hiss and breath can pass for voices.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from witness.schema import FRAME_SAMPLES, SAMPLE_RATE, Bool, Float32, Map, Samples, in_turn

LOUD = 0.9
"""The loud parts of a recording begin at this quantile of its tenths of a second: a slammed door, or applause
for less than a tenth of the time, does not count, and where less than that is spoken nothing is too faint."""
TENTH = 6  # segmentation frames
AROUND = 30
"""Segmentation frames, 0.5 s: the mean over so many does not fall between two syllables."""
BAND = 200.0, 4000.0
"""Hz, in which a voice has to be so loud: breath and rumble are below, hiss is above."""
FFT = 512
LEAD = 240  # samples from the beginning of a segmentation frame to that of the FFT that has its middle
MINUTE = 60 * SAMPLE_RATE // FRAME_SAMPLES  # frames that are worked on together


def heard(samples: Samples, faint: float, *, mapper: Map = in_turn) -> Bool:
    """(frames,): whether half a second around each segmentation frame of a recording is loud enough.

    Loud enough is more than `faint` dB below the loud parts of all `samples`. There is a frame for every 270
    samples begun, with its middle where the networks have it.
    """
    frames = -(-len(samples) // FRAME_SAMPLES)
    if not frames:
        return np.zeros(0, np.bool_)

    def look(first: int) -> Float32:
        last = min(first + MINUTE, frames)
        begin = first * FRAME_SAMPLES + LEAD
        sound = np.zeros((last - 1 - first) * FRAME_SAMPLES + FFT, np.float32)
        there = samples[begin : begin + len(sound)]
        sound[: len(there)] = there
        return _powers(sound)

    powers = np.concatenate(list(mapper(look, range(0, frames, MINUTE))))
    whole = frames // TENTH * TENTH
    tenths = powers[:whole].reshape(-1, TENTH).mean(axis=1) if whole else powers
    limit = float(np.quantile(tenths, LOUD)) * 10 ** (-faint / 10)
    sides = np.pad(powers, (AROUND // 2, AROUND - 1 - AROUND // 2), "edge")
    loud: Bool = np.convolve(sides, np.full(AROUND, 1 / AROUND, np.float32), "valid") > limit
    return loud


def _powers(sound: Float32) -> Float32:
    """The power in `BAND` of each 512 samples, 270 apart."""
    import scipy.fft

    frames = np.lib.stride_tricks.sliding_window_view(sound, FFT)[::FRAME_SAMPLES]
    first, last = (round(edge * FFT / SAMPLE_RATE) for edge in BAND)
    spectrum = np.asarray(scipy.fft.rfft(frames * _window(), axis=1))[:, first : last + 1]
    power: Float32 = (spectrum.real**2 + spectrum.imag**2).sum(axis=1)
    return power


@cache
def _window() -> Float32:
    return np.hanning(FFT).astype(np.float32)
