"""Decoded frames -> tracks: checked, mixed if asked for, and brought to full scale."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from witness.audio import spool, stereo
from witness.errors import InputError
from witness.options import Channels
from witness.schema import SIDES, Float32
from witness.text import clock

_INTEGERS_ABOVE = 32.0
"""Peak, 30 dB over full scale, that no gain explains; 16-bit integers this small would hold no speech."""

_LARGEST = 2.0**32
"""Peak beyond which samples cannot even be integers of 32 bits."""

_CANCELED = 1e-3
"""Power of the mix over that of the channels: 1 / channels if they are unrelated, near 0 if opposite."""


Tracks = tuple[spool.Spool, ...]
Layout = Literal["mix", "split", "call"]
""""call": the two sides of a call, each without the other's voice."""


@dataclass
class Mixer:
    """Makes tracks of the channels of one recording, and measures them."""

    name: str
    """The recording's name in messages."""
    asked: Channels
    start: float = 0.0
    """Seconds of the recording before its first frame, for messages."""
    channels: int = 0
    """Channels of the recording; 0 before its first frame."""
    peak: float = 0.0
    channel_power: float = 0.0
    mixed_power: float = 0.0
    levels: stereo.Levels = field(default_factory=stereo.Levels)
    """Levels of two channels that may be the sides of a call."""
    _change: str = ""
    """The message that refuses a change of the number of channels."""

    def tracks(self, frames: Iterator[tuple[int, Float32]]) -> Iterator[tuple[int, Float32]]:
        """(rate, (frames, channels)) -> (rate, (frames, tracks)) for `finished`.

        Raises InputError if samples are not numbers or far too large, or if the number of tracks changes.
        """
        seconds = self.start
        for rate, block in frames:
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
            if n_channels != self.channels and not self._change:
                self._change = (
                    f"{self.name}: changes from {self.channels} to {n_channels} channels at "
                    f"{clock(seconds, 1)}; fix: use --channels mix"
                )
            yield rate, self._tracks(rate, block)
            seconds += n_frames / rate

    def _tracks(self, rate: int, block: Float32) -> Float32:
        """(frames, channels) -> (frames, tracks)."""
        if self.asked == Channels.SPLIT:
            if self._change:
                raise InputError(self._change)
            return block
        n_channels = block.shape[1]
        mixed = self._mixed(block) if n_channels > 1 else block
        if self.asked == Channels.MIX or self.channels != 2:
            return mixed
        # Only its end tells whether this is a call. Until then a second track beside the mix can restore the
        # sides, so that nothing is decoded twice, and the mix is that of any other recording to the last bit.
        if n_channels == 2:
            self.levels.add(rate, block)
            return np.concatenate([mixed, stereo.half_difference(block)], axis=1)
        return np.concatenate([mixed, np.zeros_like(mixed)], axis=1)

    def _mixed(self, block: Float32) -> Float32:
        """(frames, channels) -> (frames, 1): their mean."""
        n_channels = block.shape[1]
        # Channel by channel: the order of numpy's own sum may depend on the shape of the block.
        mixed = block[:, :1].copy()
        for channel in range(1, n_channels):
            mixed += block[:, channel : channel + 1]
        mixed /= n_channels
        self.channel_power += float(np.vdot(block, block)) / n_channels
        self.mixed_power += float(np.vdot(mixed, mixed))
        return mixed

    def finished(self, tracks: Tracks) -> tuple[Tracks, Layout, list[str]]:
        """Finish the resampled result of `tracks`, in place; return it and warnings. Raises InputError."""
        warnings = [*self._scaled(tracks)]
        if self.asked == Channels.SPLIT:
            return tracks, "split", warnings
        if len(tracks) == 2 and stereo.is_call(self.levels.powers):
            if self._change:
                raise InputError(self._change)
            stereo.take_apart(*tracks)
            return tracks, "call", [f"{self.name}: {SIDES}", *warnings]
        if self.mixed_power < _CANCELED * self.channel_power:
            warnings.append(
                f"{self.name}: the channels cancel each other when mixed; fix: use --channels split"
            )
        return tracks[:1], "mix", warnings

    def _scaled(self, tracks: Tracks) -> Iterator[str]:
        """Bring integers stored as floats to full scale 1, in place. Yields a warning if there are any."""
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
