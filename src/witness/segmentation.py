"""Audio -> who is active in each 10 s window, by a powerset segmentation model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Protocol

import numpy as np

from witness.errors import ModelError
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
    Progress,
    Samples,
    Segmentation,
    in_turn,
    no_progress,
)
from witness.sessions import Model

BATCH = 4  # windows a call: 15 % less CPU time than one by one, no gain beyond


class SegmentationModel(Protocol):
    """(windows, 1, 160000) samples in [-1, 1] -> (windows, 589, 7) scores, one per powerset class."""

    def __call__(self, array: Float32, /) -> Float32: ...


def powerset(speakers: int, at_once: int) -> Bool:
    """(classes, speakers): who is active in each class, at most `at_once` of them; the empty set first."""
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
    """Open a segmentation model and hold it to its contract. Raises ModelError."""
    model = Model(file.path, file.path)
    wanted = (None, 1), (None, 1), (None, WINDOW_SAMPLES)
    shape = model.input_shape
    if len(shape) != 3 or any(size not in sizes for size, sizes in zip(shape, wanted, strict=True)):
        raise ModelError(
            f"{file.path}: takes {list(shape)}, not [N, 1, 160000]; "
            "use a segmentation model for windows of 10 s"
        )
    result = model(np.zeros((1, 1, WINDOW_SAMPLES), np.float32)).shape
    if result[1:] != (FRAMES, len(POWERSET)):
        raise ModelError(
            f"{file.path}: gives {list(result)}, not [N, 589, 7]; use a powerset model of 3 speakers"
        )
    if shape[0] == 1:  # as speakrs exports it
        return lambda windows: np.concatenate([model(window[None]) for window in windows])
    return model


def window_count(samples: int, step: float = 1.0) -> int:
    """Windows that cover `samples` samples; the last one may stick out. None for no samples."""
    beyond = samples - WINDOW_SAMPLES
    return 0 if samples == 0 else 1 + max(0, -(-beyond // round(step * SAMPLE_RATE)))


def segment(
    samples: Samples,
    model: SegmentationModel,
    *,
    step: float = 1.0,
    batch: int = BATCH,
    mapper: Map = in_turn,
    progress: Progress = no_progress,
) -> Segmentation:
    """All of `stream`."""
    return Segmentation.joined(
        stream(samples, model, step=step, batch=batch, mapper=mapper, progress=progress)
    )


def stream(
    samples: Samples,
    model: SegmentationModel,
    *,
    step: float = 1.0,
    batch: int = BATCH,
    mapper: Map = in_turn,
    progress: Progress = no_progress,
) -> Iterator[Segmentation]:
    """Find who is active in every window of `samples`, some windows after the other, in order.

    The last window is padded with silence, and so is a recording shorter than one window. Batches hold
    the same windows whatever `mapper` does at the same time, so the result does not depend on it.
    """
    hop = round(step * SAMPLE_RATE)
    starts = np.arange(window_count(len(samples), step)) * hop
    done = 0
    progress("segmentation", done, len(starts))

    def look(starts: Int) -> Segmentation:
        return Segmentation(decode(model(_windows(samples, starts))), starts)

    for piece in mapper(look, (starts[first : first + batch] for first in range(0, len(starts), batch))):
        done += len(piece.starts)
        progress("segmentation", done, len(starts))
        yield piece


def _windows(samples: Samples, starts: Int) -> Float32:
    """(windows, 1, 160000); what lies beyond the recording is silence."""
    windows = np.zeros((len(starts), 1, WINDOW_SAMPLES), np.float32)
    heard = samples[int(starts[0]) : int(starts[-1]) + WINDOW_SAMPLES]  # neighbours overlap: read once
    for window, start in zip(windows, starts - starts[0], strict=True):
        piece = heard[start : start + WINDOW_SAMPLES]
        window[0, : len(piece)] = piece
    return windows
