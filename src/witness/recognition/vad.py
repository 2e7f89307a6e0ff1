"""Where somebody speaks in a track, told to the recognizer while the diarizer finds it out."""

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
"""Frames of the segmentation, 0.25 s, by which windows differ on when another voice begins."""


class Speech:
    """Where somebody speaks, by frames of 20 ms; written by one thread and read by another.

    Windows of the segmentation overlap. Somebody may speak where any window says so (`possible`), and is
    taken to speak where at least half of them do (`likely`).
    """

    def __init__(self, samples: int) -> None:
        """For a track of so many samples at 16 kHz, of which nothing is known yet."""
        self.frames = -(-samples // FRAME)
        steps = int(samples / SAMPLE_RATE / FRAME_STEP) + 2
        self._votes = np.zeros(steps, np.uint8)  # a frame has ten windows or so
        self._windows = np.zeros(steps, np.uint8)
        self._changed = np.zeros(steps, np.uint8)
        self._known = 0  # segmentation frames that no later window can change
        self._news = threading.Condition()
        # The segmentation frame whose middle is nearest to that of each of our frames.
        middles = (np.arange(self.frames) + 0.5) / FRAME_RATE - FRAME_DURATION / 2
        self._nearest = np.clip(np.rint(middles / FRAME_STEP).astype(np.int32), 0, steps - 1)

    def add(self, windows: Segmentation) -> None:
        """Take in windows that come after all that were added."""
        with self._news:
            for active, first in zip(windows.active, windows.frame_starts, strict=True):
                part = slice(int(first), min(int(first) + active.shape[0], len(self._votes)))
                self._votes[part] += active.any(axis=1)[: max(0, part.stop - part.start)]
                self._windows[part] += 1
                changed = int(first) + _changes(active)
                self._changed[changed[changed < len(self._changed)]] += 1
            if len(windows.starts):
                self._known = max(self._known, int(windows.frame_starts[-1]))
            self._news.notify_all()

    def finish(self) -> None:
        """There are no more windows."""
        with self._news:
            self._known = len(self._votes)
            self._news.notify_all()

    @property
    def finished(self) -> bool:
        """Whether there are no more windows."""
        with self._news:
            return self._known >= len(self._votes)

    def known(self, frame: int, check: Callable[[], None]) -> int:
        """Wait until everything before `frame` is known; the number of frames that are known by then.

        `check` is called twice a second and may raise.
        """
        frame = min(frame, self.frames)
        with self._news:
            while (known := self._frames_known()) < frame:
                self._news.wait(0.5)
                check()
        return known

    def _frames_known(self) -> int:
        if self._known >= len(self._votes):
            return self.frames
        return int(np.searchsorted(self._nearest, self._known))

    def possible(self, first: int, last: int) -> Bool:
        """(last - first,): where any window hears somebody."""
        found: Bool = self._votes[self._nearest[first:last]] > 0
        return found

    def changes(self, first: int, last: int) -> Int:
        """(n,) increasing, of `first` to `last`: the frames at which another person begins to speak, as at
        least half of the windows say. What is AROUND them must be known."""
        from scipy.ndimage import maximum_filter1d

        near = slice(
            max(0, int(self._nearest[first]) - 2 * AROUND), int(self._nearest[last - 1]) + 1 + 2 * AROUND
        )
        votes = np.convolve(self._changed[near], np.bartlett(2 * AROUND + 1), "same")
        enough = 2 * votes >= np.maximum(self._windows[near], 1)
        peaks = near.start + np.flatnonzero(enough & (votes == maximum_filter1d(votes, 2 * AROUND + 1)))
        frames = np.unique(np.searchsorted(self._nearest, peaks))
        found: Int = frames[(frames > first) & (frames < last)]
        return found

    def likely(self, first: int = 0, last: int | None = None) -> Bool:
        """(last - first,): where at least half of the windows hear somebody."""
        there = self._nearest[first:last]
        found: Bool = 2 * self._votes[there] >= np.maximum(self._windows[there], 1)
        return found


def _changes(active: Bool) -> Int:
    """(n,) increasing: the middle between voices of a window, (frames, speakers), that follow each other."""
    clean = sole_speech(active)
    frames = np.flatnonzero(clean.any(axis=1))
    speakers = clean[frames].argmax(axis=1)
    last = np.flatnonzero(np.diff(speakers))
    found: Int = (frames[last] + frames[last + 1]) // 2
    return found
