"""Detection of calls in two channels, and each side of a call without the other's voice.

A telephone system that records each side in its own channel gives the best evidence for speakers there is. In
such a recording speech comes and goes in both channels, mostly in one of them at a time. A mono recording in
two channels is equal in both, a room or music is in both at the same time, and a channel that only hums has
no pauses. Levels are relative to each channel's own level, since the far side is often 20 dB quieter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from witness.audio import spool
from witness.schema import SAMPLE_RATE, Float32, Float64

FRAMES_PER_SECOND = 25
SMOOTH = 11  # frames, 0.44 s: turns last longer, the notes and beats of music mostly do not
LEVEL = 99.0  # percentile of a channel's frames that is its level: a minute of speech in an hour is enough
PAUSES = 5.0  # percentile of a channel's frames that is a pause, if it has any
DYNAMICS = 15.0  # least dB between level and pauses; hum and noise have less than 6
ACTIVE = 25.0  # dB below its level at which a channel still sounds
ONE_SIDED = 10.0  # least dB between the channels, each relative to its own level
MOSTLY = 0.6  # least share of the sounding time that is one-sided; double talk is a tenth to a third of calls
EACH = 0.05  # least share of the sounding time of either side
LEAST = 1.0  # least seconds of either side
ALIKE = 0.5  # correlation of the waveforms above which the channels hold the same sound
DEAD = 1e-6  # power, -60 dBFS, below which a channel's level is that of an empty channel
HELD = 3  # frames of the delay of bleed: echoes take up to 0.1 s


@dataclass
class Levels:
    """The powers of two channels, and the mean of their product, in frames of 40 ms."""

    _frames: list[Float64] = field(default_factory=list)
    """(3, frames) each: the power of the first channel, of the second, and the mean product."""
    _rest: Float32 = field(default_factory=lambda: np.empty((0, 2), np.float32))
    """Samples that do not fill a frame yet."""
    _rate: int = 0

    def add(self, rate: int, block: Float32) -> None:
        """Take the next (n, 2) samples at `rate` Hz; any n."""
        size = max(1, rate // FRAMES_PER_SECOND)
        if rate != self._rate:
            self._rate, self._rest = rate, self._rest[:0]
        block = np.concatenate([self._rest, block])
        whole = len(block) // size * size
        parts = block[:whole].reshape(-1, size, 2).astype(np.float64)
        self._rest = block[whole:]
        left, right = parts[:, :, 0], parts[:, :, 1]
        pairs = (left, left), (right, right), (left, right)
        self._frames.append(np.stack([(first * second).mean(axis=1) for first, second in pairs]))

    @property
    def powers(self) -> Float64:
        """(3, frames): the power of the first channel, of the second, and the mean of their product."""
        return np.concatenate([np.zeros((3, 0)), *self._frames], axis=1)


def is_call(powers: Float64) -> bool:
    """Return whether (3, frames) `Levels.powers` belong to a call with one side per channel."""
    if powers.shape[1] < SMOOTH:
        return False
    total = powers.sum(axis=1)
    if abs(total[2]) > ALIKE * np.sqrt(total[0] * total[1]):
        return False
    power = _smooth(powers[:2], SMOOTH)
    level, pause = np.percentile(power, LEVEL, axis=1), np.percentile(power, PAUSES, axis=1)
    if (level < DEAD).any() or (level < pause * 10 ** (DYNAMICS / 10)).any():
        return False
    relative = _relative(power)
    sounding = relative.max(axis=0) > -ACTIVE
    sides = [
        (sounding & (lead > ONE_SIDED)).sum()
        for lead in (relative[0] - relative[1], relative[1] - relative[0])
    ]
    enough = max(LEAST * FRAMES_PER_SECOND, EACH * sounding.sum())
    return bool(min(sides) >= enough and sum(sides) >= MOSTLY * sounding.sum())


def half_difference(block: Float32) -> Float32:
    """(frames, 2) -> (frames, 1): the mean of both gives the first channel with it, the second without."""
    half = block[:, :1] - block[:, 1:]
    half /= 2
    return half


def take_apart(mixed: spool.Spool, half: spool.Spool) -> None:
    """The mean of two channels and their `half_difference`, at 16 kHz -> the sides of a call, in place."""
    for (start, mean), (_, difference) in zip(spool.pieces(mixed), spool.pieces(half), strict=True):
        mixed[start : start + len(mean)] = mean + difference
        half[start : start + len(mean)] = mean - difference
    silence_bleed([mixed, half])


def silence_bleed(sides: Sequence[spool.Spool]) -> None:
    """Silence each of two tracks at 16 kHz, in place, where only the speaker of the other is heard."""
    from scipy.ndimage import maximum_filter1d

    levels = Levels()
    size = SAMPLE_RATE // FRAMES_PER_SECOND
    step = size * FRAMES_PER_SECOND * 60
    for (_, left), (_, right) in zip(*(spool.pieces(side, step) for side in sides), strict=True):
        levels.add(SAMPLE_RATE, np.stack([left, right], axis=1))
    powers = levels.powers[:2]
    if not powers.shape[1]:
        return
    relative = _relative(_smooth(powers, HELD))
    for track, side in enumerate(sides):
        # Bleed comes late and continues when its speaker pauses, so the other side counts for a while.
        far = maximum_filter1d(relative[1 - track], 2 * HELD + 1)
        audible = (far - relative[track] < ONE_SIDED) | (far < -ACTIVE)
        gains = maximum_filter1d(audible, 3).astype(np.float32)  # so that no word loses its edges
        for start, part in spool.pieces(side, step):
            # A straight line from the middle of a frame to the middle of the next, so that nothing clicks.
            places = (np.arange(start, start + len(part)) + 0.5) / size - 0.5
            gain = np.interp(places, np.arange(len(gains)), gains).astype(np.float32)
            side[start : start + len(part)] = part * gain


def _relative(power: Float64) -> Float64:
    """(2, frames) powers -> dB relative to each channel's own level."""
    level = np.maximum(np.percentile(power, LEVEL, axis=1, keepdims=True), DEAD)
    return 10 * np.log10(np.maximum(power, 1e-12) / level)


def _smooth(powers: Float64, frames: int) -> Float64:
    """(2, n) -> (2, n): the mean over `frames` frames around each."""
    kernel = np.ones(frames) / frames
    return np.stack([np.convolve(row, kernel, "same") for row in powers])
