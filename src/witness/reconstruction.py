"""Window-local activity + speakers -> who speaks in each frame of the recording, and turns.

As pyannote 3.1: overlapping windows vote on how many speak, and the speakers with the most evidence do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from witness.schema import (
    FRAME_DURATION,
    FRAME_STEP,
    FRAMES,
    SAMPLE_RATE,
    WINDOW_SAMPLES,
    Bool,
    Float32,
    Int,
    Segmentation,
    Turn,
)

FRAME_SAMPLES = round(FRAME_STEP * SAMPLE_RATE)  # 270
ROWS = 65_536  # frames that are worked through together


@dataclass(frozen=True)
class Diarization:
    """Who speaks when, over frames of 0.016875 s; frame i has its middle at i * 0.016875 + 0.03096875 s."""

    evidence: Float32
    """(frames, speakers): in how many of the windows over a frame the speaker is active, 0 to 1."""
    active: Bool
    """(frames, speakers): who speaks."""

    def in_order_of_appearance(self) -> Diarization:
        """The same with the speakers sorted by their first frame, without those who never speak."""
        heard = np.flatnonzero(self.active.any(axis=0))
        order = heard[np.argsort(self.active[:, heard].argmax(axis=0), kind="stable")]
        if np.array_equal(order, np.arange(self.active.shape[1])):
            return self
        return Diarization(self.evidence[:, order], self.active[:, order])

    def merged(self, places: Sequence[int]) -> Diarization:
        """The same with each speaker in the column that `places` says; those who share one are one."""
        if list(places) == list(range(self.active.shape[1])):
            return self
        speakers = max(places) + 1
        evidence = np.zeros((len(self.evidence), speakers), np.float32)
        active = np.zeros((len(self.active), speakers), np.bool_)
        for column, place in enumerate(places):
            evidence[:, place] += self.evidence[:, column]
            active[:, place] |= self.active[:, column]
        return Diarization(np.minimum(evidence, 1.0, out=evidence), active)

    def exclusive(self) -> Bool:
        """(frames, speakers): `active` without overlap; the one with the most evidence goes on alone."""
        if not self.active.shape[1]:
            return self.active
        alone = np.asarray(self.active.any(axis=1), np.intp)
        return _top(np.where(self.active, self.evidence, np.float32(0)), alone)


def reconstruct(segmentation: Segmentation, labels: Int, *, most: int | None = None) -> Diarization:
    """Put the windows together. `labels` is (windows, 3), -1 for nobody; `most` caps who speaks at once."""
    speakers = int(labels.max(initial=-1)) + 1
    starts = frame_starts(segmentation)
    total = frame_count(segmentation)
    windows = np.zeros(total, np.intp)
    votes = np.zeros((total, speakers), np.float32)
    for start, active, names in zip(starts, segmentation.active, labels, strict=True):
        windows[start : start + FRAMES] += 1
        for speaker in np.unique(names[names >= 0]):
            votes[start : start + FRAMES, speaker] += active[:, names == speaker].any(axis=1)
    count = speaker_count(segmentation)
    if most is not None:
        count = np.minimum(count, most)
    active = _top(votes, count) if speakers else np.zeros((total, 0), np.bool_)
    votes /= np.maximum(windows, 1)[:, None]
    return Diarization(votes, active)


def owners(segmentation: Segmentation, found: Diarization) -> Int:
    """(windows, 3): which speaker of the recording each speaker of a window is, by their common frames.

    -1 for who is silent, or with nobody.
    """
    owner = np.full((len(segmentation.active), segmentation.active.shape[2]), -1, np.intp)
    if found.active.shape[1]:
        for row, start in enumerate(frame_starts(segmentation)):
            there = found.active[start : start + FRAMES].astype(np.float32)
            common = segmentation.active[row, : len(there)].astype(np.float32).T @ there
            owner[row] = np.where(common.any(axis=1), common.argmax(axis=1), -1)
    return owner


def speaker_count(segmentation: Segmentation) -> Int:
    """(frames,): how many speak at once, the mean over the windows on a frame, rounded half to even."""
    total = frame_count(segmentation)
    windows, speaking = np.zeros(total, np.intp), np.zeros(total, np.intp)
    for start, active in zip(frame_starts(segmentation), segmentation.active, strict=True):
        windows[start : start + FRAMES] += 1
        speaking[start : start + FRAMES] += active.sum(axis=1)
    count: Int = np.rint(speaking / np.maximum(windows, 1)).astype(np.intp)
    return count


def frame_starts(segmentation: Segmentation) -> Int:
    """(windows,): the frame of the recording at which each window begins."""
    frames: Int = np.rint(segmentation.starts / FRAME_SAMPLES).astype(np.intp)
    return frames


def frame_count(segmentation: Segmentation) -> int:
    """Frames from the start of the first window to the end of the last, as pyannote counts them."""
    starts = segmentation.starts
    return round((int(starts[-1]) + WINDOW_SAMPLES) / FRAME_SAMPLES) + 1 if len(starts) else 0


def turns(active: Bool, names: list[str], duration: float) -> list[Turn]:
    """The turns in (frames, speakers) activity, sorted, inside a recording of `duration` seconds.

    A turn begins at the middle of its first frame and ends at the middle of the first frame without it.
    """
    middles = np.minimum(np.arange(len(active)) * FRAME_STEP + FRAME_DURATION / 2, duration)
    found = []
    for speaker, name in enumerate(names):
        edges = np.flatnonzero(np.diff(active[:, speaker].astype(np.int8), prepend=0, append=0))
        for first, after in edges.reshape(-1, 2):
            start, end = middles[first], middles[min(after, len(middles) - 1)]
            if end > start:
                found.append(Turn(float(start), float(end), name))
    return sorted(found)


def _top(evidence: Float32, count: Int) -> Bool:
    """The `count` speakers of each frame with the most evidence, none without any; the first on a tie."""
    chosen = np.empty(evidence.shape, np.bool_)
    for first in range(0, len(evidence), ROWS):  # their order takes eight times the memory of the answer
        part = evidence[first : first + ROWS]
        order = np.argsort(-part, axis=1, kind="stable")
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], axis=1)
        chosen[first : first + ROWS] = (place < count[first : first + ROWS, None]) & (part > 0)
    return chosen
