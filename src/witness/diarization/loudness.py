"""Samples -> frames that are loud enough to hold speech of this conversation.

A segmentation network brings every 10 s to the same level. That turns up 10 s of near silence, and then hiss
and breath may pass for voices.
"""

from __future__ import annotations

import numpy as np

from witness.schema import FRAME_SAMPLES, SAMPLE_RATE, Bool, Float32, Map, Samples, map_serially

LOUD = 0.9
"""Quantile of the power of tenths of a second at which the loud parts of a recording begin.

A slammed door, or applause for less than a tenth of the time, does not count. If people speak for less than a
tenth of the time, nothing is too faint.
"""
TENTH = 6  # segmentation frames, 0.1 s
AROUND = 30
"""Segmentation frames, 0.5 s: a mean over that long does not drop between two syllables."""
BAND = 200.0, 4000.0
"""Hz between which power is measured: rumble and breath lie below, hiss above."""
FFT = 512  # samples
WINDOW = np.hanning(FFT).astype(np.float32)
LEAD = 240  # samples from the start of a segmentation frame to that of the FFT with the same middle
MINUTE = 60 * SAMPLE_RATE // FRAME_SAMPLES  # segmentation frames worked on together


def is_loud(samples: Samples, faint: float, *, mapper: Map = map_serially) -> Bool:
    """(frames,): true where the half second around each segmentation frame is loud enough for a voice.

    That is less than `faint` dB below the loud parts of `samples`. There is a frame for every 270 samples or
    part of them, with its middle where the networks have it.
    """
    frames = -(-len(samples) // FRAME_SAMPLES)
    if not frames:
        return np.zeros(0, np.bool_)

    def look(first: int) -> Float32:
        last = min(first + MINUTE, frames)
        begin = first * FRAME_SAMPLES + LEAD
        sound = np.zeros((last - 1 - first) * FRAME_SAMPLES + FFT, np.float32)
        recorded = samples[begin : begin + len(sound)]
        sound[: len(recorded)] = recorded  # silence beyond the end
        return _powers(sound)

    powers = np.concatenate(list(mapper(look, range(0, frames, MINUTE))))
    whole = frames // TENTH * TENTH
    tenths = powers[:whole].reshape(-1, TENTH).mean(axis=1) if whole else powers
    limit = float(np.quantile(tenths, LOUD)) * 10 ** (-faint / 10)
    sides = np.pad(powers, (AROUND // 2, AROUND - 1 - AROUND // 2), "edge")
    loud: Bool = np.convolve(sides, np.full(AROUND, 1 / AROUND, np.float32), "valid") > limit
    return loud


def _powers(sound: Float32) -> Float32:
    """(samples,) -> (frames,): the power in BAND of each 512 samples, 270 apart."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, FFT)[::FRAME_SAMPLES]
    first, last = (round(edge * FFT / SAMPLE_RATE) for edge in BAND)
    spectrum = np.fft.rfft(frames * WINDOW, axis=1)[:, first : last + 1]
    power: Float32 = (spectrum.real**2 + spectrum.imag**2).sum(axis=1)
    return power
