"""Activity of windows + clustering -> who speaks in each frame of the recording, and turns.

As in pyannote 3.1: overlapping windows vote on how many people speak, and those with the most evidence do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from witness.schema import (
    FRAME_DURATION,
    FRAME_SAMPLES,
    FRAME_STEP,
    FRAMES,
    WINDOW_SAMPLES,
    Bool,
    Counts,
    Evidence,
    Float32,
    Int,
    Segmentation,
    Turn,
    runs,
)

ROWS = 65_536  # frames worked on together
SHORTEST = (
    6  # frames, 0.1 s: listeners do not hear less as a turn (docs/decisions/2026-11-22-calls-and-turns.md)
)


@dataclass(frozen=True)
class Diarization:
    """Speakers over time, in segmentation frames; the middle of frame i is at i * 0.016875 + 0.03096875 s."""

    evidence: Evidence
    active: Bool
    """(frames, speakers): who speaks."""

    @staticmethod
    def in_order_of_appearance(evidence: Evidence, active: Bool) -> Diarization:
        """Speakers sorted by their first frame, without those who never speak. Overwrites the arrays."""
        speakers = np.flatnonzero(active.any(axis=0))
        order = np.array(sorted(speakers, key=lambda speaker: int(active[:, speaker].argmax())), np.intp)
        if not np.array_equal(order, np.arange(active.shape[1])):
            for array in (evidence.votes, active):
                for rows in _slices(len(array)):
                    array[rows, : len(order)] = array[rows][:, order]
        columns = slice(len(order))
        return Diarization(Evidence(evidence.votes[:, columns], evidence.windows), active[:, columns])

    def steadied(self) -> Diarization:
        """Return it without flickers and without speakers made of flickers alone. Overwrites the arrays."""
        drop_flickers(self.active)
        return Diarization.in_order_of_appearance(self.evidence, self.active)

    def merged(self, columns: Sequence[int]) -> Diarization:
        """Move speaker i to column `columns[i]`; speakers who share a column become one."""
        if list(columns) == list(range(self.active.shape[1])):
            return self
        speakers = max(columns) + 1
        votes = np.zeros((len(self.active), speakers), self.evidence.votes.dtype)
        active = np.zeros((len(self.active), speakers), np.bool_)
        for speaker, column in enumerate(columns):
            votes[:, column] += self.evidence.votes[:, speaker]
            active[:, column] |= self.active[:, speaker]
        np.minimum(votes, self.evidence.windows[:, None], out=votes)
        return Diarization(Evidence(votes, self.evidence.windows), active)

    def exclusive(self) -> Int:
        """(frames,): the speaker of each frame, -1 for silence; in overlap the speaker with the most
        evidence."""
        speaker = np.full(len(self.active), -1, np.intp)
        if self.active.shape[1]:
            for rows in _slices(len(speaker)):
                active = self.active[rows]
                # Plus one, since no speaker has votes in a filled pause.
                first = np.where(active, self.evidence.votes[rows] + 1.0, 0).argmax(axis=1)
                speaker[rows] = np.where(active.any(axis=1), first, -1)
        return speaker


def reconstruct(segmentation: Segmentation, labels: Int, *, at_once: int | None = None) -> Diarization:
    """Put the windows together; the speakers are in order of appearance.

    `labels` is (windows, 3): the speaker of each local speaker, -1 for none. `at_once` is the largest
    number of speakers at the same time.
    """
    speakers = int(labels.max(initial=-1)) + 1
    windows, count = _windows(segmentation), speaker_count(segmentation)
    if at_once is not None:
        count = np.minimum(count, at_once)
    votes = np.zeros((len(windows), speakers), windows.dtype)
    for start, active, names in zip(segmentation.frame_starts, segmentation.active, labels, strict=True):
        for speaker in np.unique(names[names >= 0]):
            votes[start : start + FRAMES, speaker] += active[:, names == speaker].any(axis=1)
    totals = votes.sum(axis=0, dtype=np.float32)
    chosen = np.zeros(votes.shape, np.bool_)
    if speakers:
        for rows in _slices(len(votes)):
            chosen[rows] = _top(votes[rows], count[rows], totals)
    return Diarization.in_order_of_appearance(Evidence(votes, windows), chosen)


def drop_flickers(active: Bool) -> None:
    """Silence each speaker wherever they speak for less than SHORTEST frames. In place.

    `active` is (frames, speakers). A frame that this leaves silent gets the speakers who are active on both
    sides.
    """
    for length in range(1, SHORTEST):  # the shortest first, because runs around them grow
        for speaker in range(active.shape[1]):
            starts, ends = runs(active[:, speaker]).T
            for start, end in zip(*(edges[ends - starts == length] for edges in (starts, ends)), strict=True):
                active[start:end, speaker] = False
                if start > 0 and end < len(active) and not active[start:end].any():
                    active[start:end] = active[start - 1] & active[end]


def fill_pauses(tracks: Sequence[Bool], pause: float) -> None:
    """Make those who speak before and after a silence of up to `pause` seconds speak in it, too. In place.

    `tracks` are the (frames, speakers) activities of one recording; in a silence, no
    track has a speaker.
    """
    speech = np.any([active.any(axis=1) for active in tracks], axis=0)
    silences = np.flatnonzero(speech[:-1] & ~speech[1:]) + 1  # first frames
    onsets = np.flatnonzero(~speech[:-1] & speech[1:]) + 1
    onsets = onsets[onsets > silences[0]] if len(silences) else onsets
    for silence, onset in zip(silences, onsets, strict=False):  # the last silence may have no end
        if (onset - silence) * FRAME_STEP <= pause:
            for active in tracks:
                active[silence:onset] = active[silence - 1] & active[onset]


def owners(segmentation: Segmentation, speaking: Bool) -> Int:
    """(windows, 3): the speaker of `speaking` (frames, speakers) who shares most frames with each local
    speaker.

    -1 for a local speaker who is silent or shares no frame with a speaker.
    """
    owner = np.full((len(segmentation.active), segmentation.active.shape[2]), -1, np.intp)
    if speaking.shape[1]:
        for row, start in enumerate(segmentation.frame_starts):
            active = speaking[start : start + FRAMES].astype(np.float32)
            common = segmentation.active[row, : len(active)].astype(np.float32).T @ active
            owner[row] = np.where(common.any(axis=1), common.argmax(axis=1), -1)
    return owner


def speaker_count(segmentation: Segmentation) -> Int:
    """(frames,): the mean number of speakers over the windows on each frame, rounded half to even."""
    windows = _windows(segmentation)
    speaking = np.zeros(len(windows), np.uint16)
    for start, active in zip(segmentation.frame_starts, segmentation.active, strict=True):
        speaking[start : start + FRAMES] += active.sum(axis=1, dtype=np.uint16)
    count: Int = np.rint(speaking / np.maximum(windows, 1).astype(np.float64)).astype(np.intp)
    return count


def _windows(segmentation: Segmentation) -> Counts:
    """(frames,): the number of windows on each frame, in the smallest type that holds it."""
    windows = np.zeros(frame_count(segmentation), np.uint16)
    for start in segmentation.frame_starts:
        windows[start : start + FRAMES] += 1
    return windows.astype(np.min_scalar_type(windows.max(initial=0)))


def frame_count(segmentation: Segmentation) -> int:
    """The number of frames from the start of the recording to the end of the last window, as in pyannote."""
    starts = segmentation.starts
    return round((int(starts[-1]) + WINDOW_SAMPLES) / FRAME_SAMPLES) + 1 if len(starts) else 0


def turns(active: Iterable[Bool], names: list[str], duration: float) -> list[Turn]:
    """The turns in the (frames,) activity of each speaker, sorted, within a recording of `duration` seconds.

    A turn begins at the middle of its first frame and ends at the middle of the first frame after it.
    """
    spoken = []
    for name, speaking in zip(names, active, strict=True):
        frames = np.minimum(runs(speaking), len(speaking) - 1)
        middles = np.minimum(frames * FRAME_STEP + FRAME_DURATION / 2, duration)
        for start, end in middles:
            if end > start:
                spoken.append(Turn(float(start), float(end), name))
    return sorted(spoken)


def _top(votes: Counts, count: Int, totals: Float32) -> Bool:
    """(frames, speakers): the `count` (frames,) speakers with most votes, one or more each.

    Ties go to the speaker with more votes in the whole recording: `totals` (speakers,).
    """
    order = np.argsort(-(votes + totals / (totals.sum() + 1)), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(order.shape[1])[None, :], axis=1)
    chosen: Bool = (rank < count[:, None]) & (votes > 0)
    return chosen


def _slices(frames: int) -> Iterator[slice]:
    """All frames in pieces, since intermediate values take many times the memory of the result."""
    for first in range(0, frames, ROWS):
        yield slice(first, first + ROWS)
