"""Decoded frames -> tracks: checked, mixed if asked for, and brought to full scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from witness.audio import spool, stereo
from witness.errors import InputError
from witness.schema import Float32
from witness.text import clock

BLOCK = 1 << 16
"""Least number of frames mixed and resampled together: little work for Python, 0.25 MB per channel."""

_INTEGERS_ABOVE = 32.0
"""Peak, 30 dB over full scale, that no gain explains; 16-bit integers this small would hold no speech."""

_LARGEST = 2.0**32
"""Peak beyond which samples cannot even be integers of 32 bits."""

_CANCELED = 1e-3
"""Power of the mix over that of the channels: 1 / channels if they are unrelated, near 0 if opposite."""


@dataclass
class Mixer:
    """Makes tracks of the channels of one recording, and remembers what it has seen of them."""

    name: str
    """What messages call the recording."""
    mode: Literal["mix", "split"]
    """One track, the mean of all channels; or a track per channel."""
    levels: stereo.Levels | None = None
    """Gets the levels of two channels that may be the sides of a call."""
    start: float = 0.0
    """Seconds of the recording before its first frame, for messages."""
    channels: int = 0
    """Of the recording; 0 before its first frame."""
    peak: float = 0.0
    channel_power: float = 0.0
    mixed_power: float = 0.0

    def tracks(self, frames: Iterator[tuple[int, Float32]]) -> Iterator[tuple[int, Float32]]:
        """(rate, (frames, channels)) -> (rate, (frames, tracks)).

        Raises InputError if samples are not numbers or far too large, or if the number of tracks changes.
        """
        seconds = self.start
        for rate, block in _gathered(frames):
            n_frames, n_channels = block.shape
            peak = float(np.abs(block).max())
            if not peak <= _LARGEST:  # also for NaN
                row = int(np.argmin(np.abs(block).max(axis=1) <= _LARGEST))
                raise InputError(
                    f"{self.name}: the sample at {clock(seconds + row / rate, 1)} is "
                    f"{np.abs(block[row]).max():.3g}; fix: export it again as 16-bit WAV or FLAC"
                )
            self.peak = max(self.peak, peak)
            self.channels = self.channels or n_channels
            if self.mode == "split" and n_channels != self.channels:
                raise InputError(
                    f"{self.name}: changes from {self.channels} to {n_channels} channels at "
                    f"{clock(seconds, 1)}; fix: use --channels mix"
                )
            if self.levels is not None and n_channels == 2:
                self.levels.add(rate, block)
            yield rate, self._mixed(block) if self.mode == "mix" and n_channels > 1 else block
            seconds += n_frames / rate

    def _mixed(self, block: Float32) -> Float32:
        """(frames, channels) -> (frames, 1): their mean."""
        n_channels = block.shape[1]
        # Channel by channel: the order in which numpy's own sum adds may depend on the shape of the block.
        mixed = block[:, :1].copy()
        for channel in range(1, n_channels):
            mixed += block[:, channel : channel + 1]
        mixed /= n_channels
        self.channel_power += float(np.vdot(block, block)) / n_channels
        self.mixed_power += float(np.vdot(mixed, mixed))
        return mixed

    def level(self, tracks: Sequence[spool.Spool]) -> Iterator[str]:
        """Bring integers stored as floats to full scale 1, in place. Yields a warning for what is wrong."""
        if self.peak > _INTEGERS_ABOVE:
            # Up to twice full scale, for overs.
            bits = next(bits for bits in (16, 24, 32) if self.peak <= 2.0**bits)
            for track in tracks:
                for start, samples in spool.pieces(track):
                    track[start : start + len(samples)] = samples / np.float32(2.0 ** (bits - 1))
            yield (
                f"{self.name}: samples reach {self.peak:.0f} where full scale is 1; they were taken for "
                f"{bits}-bit integers stored as floats and scaled down"
            )
        if self.mixed_power < _CANCELED * self.channel_power:
            yield f"{self.name}: the channels cancel each other when mixed; fix: use --channels split"


def _gathered(frames: Iterator[tuple[int, Float32]]) -> Iterator[tuple[int, Float32]]:
    """The same in blocks of at least BLOCK frames, as long as neither the rate nor the channels change."""
    held: list[Float32] = []
    held_rate = 0
    for rate, block in frames:
        full = sum(map(len, held)) >= BLOCK
        if held and (full or rate != held_rate or block.shape[1] != held[0].shape[1]):
            yield held_rate, np.concatenate(held)
            held = []
        held.append(block)
        held_rate = rate
    if held:
        yield held_rate, np.concatenate(held)
