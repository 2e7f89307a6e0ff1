"""Speech in a track: the diarizer writes it while the recognizer reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from witness.schema import FRAME_DURATION, FRAME_STEP, SAMPLE_RATE, Bool, Int, Segmentation, sole_speech

FRAME_RATE = 50
"""Frames per second: Whisper's encoder has one every 20 ms."""
FRAME = SAMPLE_RATE // FRAME_RATE
"""Samples in a frame."""
AROUND = 15
"""Frames of the segmentation, 0.25 s, between windows' beginnings of the same voice."""


class Speech:
    """Speech in frames of 20 ms; one thread writes it, another reads it.

    Windows of the segmentation overlap. Speech is `possible` in a frame if any window has speech there, and
    `likely` if at least half of them do.
    """

    def __init__(self, samples: int) -> None:
        """Begin without windows, for a track of so many samples at 16 kHz."""
        self.frames = -(-samples // FRAME)
        steps = int(samples / SAMPLE_RATE / FRAME_STEP) + 2
        self._votes = np.zeros(steps, np.uint8)  # a frame has ten windows or so
        self._windows = np.zeros(steps, np.uint8)
        self._changed = np.zeros(steps, np.uint8)
        self._final = 0  # segmentation frames that no later window changes
        self._news = threading.Condition()
        # For each frame, the segmentation frame with the nearest middle.
        middles = (np.arange(self.frames) + 0.5) / FRAME_RATE - FRAME_DURATION / 2
        self._nearest = np.clip(np.rint(middles / FRAME_STEP).astype(np.int32), 0, steps - 1)

    def add(self, windows: Segmentation) -> None:
        """Add windows that follow all earlier ones."""
        with self._news:
            for active, first in zip(windows.active, windows.frame_starts, strict=True):
                part = slice(int(first), min(int(first) + active.shape[0], len(self._votes)))
                self._votes[part] += active.any(axis=1)[: max(0, part.stop - part.start)]
                self._windows[part] += 1
                changed = int(first) + _changes(active)
                self._changed[changed[changed < len(self._changed)]] += 1
            if len(windows.starts):
                self._final = max(self._final, int(windows.frame_starts[-1]))
            self._news.notify_all()

    def finish(self) -> None:
        """Note that no more windows follow."""
        with self._news:
            self._final = len(self._votes)
            self._news.notify_all()

    @property
    def finished(self) -> bool:
        """All windows are there."""
        with self._news:
            return self._final >= len(self._votes)

    def wait_for(self, frame: int, check: Callable[[], None]) -> int:
        """Wait until everything before `frame` is final; return the number of final frames.

        `check` is called twice a second and may raise.
        """
        frame = min(frame, self.frames)
        with self._news:
            while (final := self._final_frames()) < frame:
                self._news.wait(0.5)
                check()
        return final

    def _final_frames(self) -> int:
        if self._final >= len(self._votes):
            return self.frames
        return int(np.searchsorted(self._nearest, self._final))

    def possible(self, first: int, last: int) -> Bool:
        """(last - first,): frames with speech in any window."""
        speech: Bool = self._votes[self._nearest[first:last]] > 0
        return speech

    def changes(self, first: int, last: int) -> Int:
        """(n,) increasing, of `first` to `last`: changes of the speaker in at least half of the windows.

        The frames AROUND them must be final.
        """
        from scipy.ndimage import maximum_filter1d

        near = slice(
            max(0, int(self._nearest[first]) - 2 * AROUND), int(self._nearest[last - 1]) + 1 + 2 * AROUND
        )
        votes = np.convolve(self._changed[near], np.bartlett(2 * AROUND + 1), "same")
        enough = 2 * votes >= np.maximum(self._windows[near], 1)
        peaks = near.start + np.flatnonzero(enough & (votes == maximum_filter1d(votes, 2 * AROUND + 1)))
        frames = np.unique(np.searchsorted(self._nearest, peaks))
        inside: Int = frames[(frames > first) & (frames < last)]
        return inside

    def likely(self, first: int = 0, last: int | None = None) -> Bool:
        """(last - first,): frames with speech in at least half of the windows."""
        nearest = self._nearest[first:last]
        speech: Bool = 2 * self._votes[nearest] >= np.maximum(self._windows[nearest], 1)
        return speech


def _changes(active: Bool) -> Int:
    """(n,) increasing: the middles between successive voices of a window, (frames, speakers)."""
    clean = sole_speech(active)
    frames = np.flatnonzero(clean.any(axis=1))
    speakers = clean[frames].argmax(axis=1)
    last = np.flatnonzero(np.diff(speakers))
    middles: Int = (frames[last] + frames[last + 1]) // 2
    return middles
