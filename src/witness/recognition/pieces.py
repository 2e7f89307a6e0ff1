"""A track -> pieces that fit Whisper's window, cut where it is quietest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from witness.audio import spool
from witness.schema import SAMPLE_RATE, Bool, Float32, Samples

FRAME_RATE = 50
"""Frames per second: Whisper's encoder has one every 20 ms."""
FRAME = SAMPLE_RATE // FRAME_RATE
"""Samples in a frame."""
WINDOW = 30 * FRAME_RATE
"""Frames that Whisper hears at once."""
SHORTEST = WINDOW // 4
"""Frames. A piece whose text Whisper cannot finish is not cut shorter than this."""
QUIET = 10
"""Frames. A cut is in the middle of the 0.2 s with the least energy."""
MARGIN = 10
"""Frames of silence that are left around what sounds."""
SILENCE = 10 / 32768
"""A frame is silent if half the difference between its highest and its lowest sample is less: -70 dBFS, ten
steps of 16-bit audio, where converters and codecs idle. Whisper hears the shape of a spectrum, not its level,
and invents words there."""


@dataclass(frozen=True)
class Piece:
    """Frames `first` to `last` (excluded) of a track."""

    first: int
    last: int

    @property
    def frames(self) -> int:
        """Its length in frames."""
        return self.last - self.first

    @property
    def start(self) -> float:
        """Seconds from the beginning of the track."""
        return self.first / FRAME_RATE

    @property
    def end(self) -> float:
        """Seconds from the beginning of the track."""
        return self.last / FRAME_RATE


@dataclass(frozen=True)
class Loudness:
    """How loud each frame of a track is."""

    sounding: Bool
    """(frames,): not silent."""
    energy: Float32
    """(frames,): sum of the squared samples."""

    @staticmethod
    def of(samples: Samples) -> Loudness:
        """Of a track, (n,) at 16 kHz. Reads it in parts: it may be larger than memory."""
        count = -(-len(samples) // FRAME)
        sounding, energy = np.empty(count, np.bool_), np.empty(count, np.float32)
        for start, part in spool.pieces(samples, WINDOW * FRAME):
            frames = np.pad(part, (0, -len(part) % FRAME)).reshape(-1, FRAME)
            there = slice(start // FRAME, start // FRAME + len(frames))
            sounding[there] = np.ptp(frames, axis=1) / 2 >= SILENCE
            energy[there] = np.einsum("ij,ij->i", frames, frames)
        return Loudness(sounding, energy)

    def next_piece(self, place: int, longest: int) -> Piece | None:
        """What to recognize next from frame `place` on, at most `longest` frames; None: only silence is left.

        Silence before and after is left out, and a longer stretch ends where its last third is quietest.
        """
        if not self.sounding[place:].any():
            return None
        first = max(place, place + int(self.sounding[place:].argmax()) - MARGIN)
        last = len(self.energy)
        if last - first > longest:
            earliest = first + 2 * longest // 3
            quiet = np.convolve(self.energy[earliest : first + longest], np.ones(QUIET), "valid")
            last = earliest + int(quiet.argmin()) + QUIET // 2
        final = first + int(np.flatnonzero(self.sounding[first:last])[-1])
        return Piece(first, min(last, final + 1 + MARGIN))

    def most_speech(self) -> Piece | None:
        """The piece with the most frames that are nearly as loud as the loudest; None: only silence."""
        if not self.sounding.any():
            return None
        loud = float(np.percentile(self.energy[self.sounding], 95)) * 10**-2.5
        pieces, place = [], 0
        while (piece := self.next_piece(place, WINDOW)) is not None:
            pieces.append(piece)
            place = piece.last
        return max(pieces, key=lambda piece: int((self.energy[piece.first : piece.last] > loud).sum()))
