"""Audio -> who is active in each 10 s window, with a powerset segmentation model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations

import numpy as np

from witness.diarization import loudness, segmentation_cut
from witness.errors import ModelError
from witness.models.session import Model
from witness.progress import SILENT, Reporter
from witness.schema import (
    FRAMES,
    LOCAL_SPEAKERS,
    SAMPLE_RATE,
    WINDOW_SAMPLES,
    Bool,
    Float32,
    Int,
    Map,
    ModelFile,
    Samples,
    Segmentation,
    map_serially,
)

SHORT = 300 * SAMPLE_RATE
"""Samples, 5 minutes: shorter recordings need windows 1 s apart (docs/decisions/2026-11-22-constants.md)."""
GROUP = 8  # windows worked on together: fewer share less of the model, more are too much for a core


SegmentationModel = Callable[[Float32, Int], Float32]
"""(samples,) in [-1, 1] and (windows,) starts of windows -> (windows, 589, 7) scores of powerset classes.

Starts are multiples of segmentation_cut.GRID, and all windows lie within the samples.
"""


def powerset(speakers: int, at_once: int) -> Bool:
    """(classes, speakers): the active speakers of each class, at most `at_once`; silence comes first."""
    sets = [group for size in range(at_once + 1) for group in combinations(range(speakers), size)]
    table = np.zeros((len(sets), speakers), np.bool_)
    for row, group in enumerate(sets):
        table[row, list(group)] = True
    return table


POWERSET = powerset(LOCAL_SPEAKERS, 2)  # {} 0 1 2 01 02 12


def decode(scores: Float32) -> Bool:
    """(..., 589, 7) scores -> (..., 589, 3) activity: the best class of each frame."""
    active: Bool = POWERSET[scores.argmax(axis=-1)]
    return active


def load(file: ModelFile) -> SegmentationModel:
    """Open a segmentation model. Raises ModelError if it does not map [N, 1, 160000] to [N, 589, 7]."""
    model = segmentation_cut.open_front(file) or _whole(file)
    shape = model(np.zeros(WINDOW_SAMPLES, np.float32), np.zeros(1, np.intp)).shape
    if shape[1:] != (FRAMES, len(POWERSET)):
        raise ModelError(
            f"{file.path}: gives {list(shape)}, not [N, 589, 7]; fix: use a powerset model of 3 speakers"
        )
    return model


def _whole(file: ModelFile) -> SegmentationModel:
    """A model that is not cut. Raises ModelError."""
    model = Model(file.path, file.path)
    expected = (None, 1), (None, 1), (None, WINDOW_SAMPLES)
    shape = model.input_shape
    if len(shape) == 3 and (shape[0] or 1) != 1:
        raise ModelError(
            f"{file.path}: takes {shape[0]} windows at a time, not one or any number; "
            "fix: use the export of this model for one window at a time"
        )
    if len(shape) != 3 or any(size not in sizes for size, sizes in zip(shape, expected, strict=True)):
        raise ModelError(
            f"{file.path}: takes {list(shape)}, not [N, 1, 160000]; "
            "fix: use a segmentation model for windows of 10 s"
        )
    return windowed(model, batch=shape[0] or segmentation_cut.BATCH)  # speakrs exports a batch of 1


def windowed(model: Callable[[Float32], Float32], batch: int = segmentation_cut.BATCH) -> SegmentationModel:
    """A `SegmentationModel` from a model that takes (windows, 1, 160000) samples, `batch` windows at most."""

    def look(sound: Float32, starts: Int) -> Float32:
        windows = np.stack([sound[None, start : start + WINDOW_SAMPLES] for start in starts])
        return np.concatenate(
            [model(windows[first : first + batch]) for first in range(0, len(starts), batch)]
        )

    return look


def step_of(samples: int, *, fast: bool = False, stretches: bool = False) -> float:
    """Seconds from one window to the next in a recording of `samples` samples.

    `stretches`: the voice model takes stretches of speech, which windows share, and loses nothing by windows
    that lie further apart the longer a recording is (docs/decisions/2026-11-23-stretches.md).
    """
    if fast:
        return 2.0 if samples < SHORT else 3.0
    if stretches:
        return min(max(1.0, 2.0 * samples / SHORT), 2.0)
    return 1.0 if samples < SHORT else 2.0


def window_starts(samples: int, step: float) -> Int:
    """(windows,): the first samples of the windows that cover a recording of `samples` samples.

    They are `step` seconds apart, rounded to multiples of GRID; the last window may reach beyond the end.
    """
    hop = step * SAMPLE_RATE
    beyond = max(0, samples - WINDOW_SAMPLES)
    count = 0 if samples == 0 else 1 + math.ceil(beyond / hop)
    grid = segmentation_cut.GRID
    starts: Int = np.rint(np.arange(count) * (hop / grid)).astype(np.intp) * grid
    return starts


def stream(
    samples: Samples,
    model: SegmentationModel,
    *,
    step: float | None = None,
    faint: float | None = None,
    mapper: Map = map_serially,
    reporter: Reporter = SILENT,
) -> Iterator[Segmentation]:
    """Find the active speakers in every window of `samples`, a few windows at a time, in order.

    The last window is padded with silence. Windows of nothing but zeros are alike, so the model sees one of
    them: a damaged file of some KB may claim an hour between two sounds. `step` is the seconds between
    windows, by default those of `step_of`. With `faint`, no speaker is active where the recording is that
    many dB below its own loud parts (`loudness`). Groups hold the same windows whatever `mapper` runs at the
    same time, so the result does not depend on it. Progress is ("segmentation", windows, all windows).
    """
    starts = window_starts(len(samples), step_of(len(samples)) if step is None else step)
    done = 0
    reporter.progress("segmentation", done, len(starts))
    # Padded because the last window may reach beyond the end.
    audible = None if faint is None else np.pad(loudness.is_loud(samples, faint, mapper=mapper), (0, FRAMES))

    @cache
    def silence() -> Bool:
        return decode(model(np.zeros(WINDOW_SAMPLES, np.float32), np.zeros(1, np.intp)))

    def activity(sound: Float32, starts: Int) -> Bool:
        filled = np.array([sound[start : start + WINDOW_SAMPLES].any() for start in starts])
        if filled.all():
            return decode(model(sound, starts))
        active = silence().repeat(len(starts), axis=0)
        if filled.any():
            active[filled] = decode(model(sound, starts[filled]))
        return active

    def look(starts: Int) -> Segmentation:
        recorded = samples[int(starts[0]) : int(starts[-1]) + WINDOW_SAMPLES]
        sound = np.zeros(starts[-1] - starts[0] + WINDOW_SAMPLES, np.float32)
        sound[: len(recorded)] = recorded
        piece = Segmentation(activity(sound, starts - starts[0]), starts)
        if audible is not None:
            for window, frame in zip(piece.active, piece.frame_starts, strict=True):
                window &= audible[frame : frame + FRAMES, None]
        return piece

    for piece in mapper(look, (starts[first : first + GROUP] for first in range(0, len(starts), GROUP))):
        done += len(piece.starts)
        reporter.progress("segmentation", done, len(starts))
        yield piece
