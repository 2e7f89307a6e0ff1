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
    ModelFile,
    Progress,
    Segmentation,
    no_progress,
)
from witness.sessions import Model, ordered_map

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
    samples: Float32,
    model: SegmentationModel,
    *,
    step: float = 1.0,
    batch: int = BATCH,
    threads: int = 1,
    progress: Progress = no_progress,
) -> Segmentation:
    """Find who is active in every window of `samples`, (samples,) float32 in [-1, 1] at 16 kHz.

    The last window is padded with silence, and so is a recording shorter than one window. Batches hold
    the same windows whatever `threads` is, so the result does not depend on it.
    """
    count = window_count(len(samples), step)
    active = np.zeros((count, FRAMES, LOCAL_SPEAKERS), np.bool_)
    done = 0
    progress("segmentation", done, count)
    for decoded in ordered_map(
        lambda windows: decode(model(windows)), _batches(samples, count, step, batch), threads
    ):
        active[done : done + len(decoded)] = decoded
        done += len(decoded)
        progress("segmentation", done, count)
    return Segmentation.regular(active, step)


def _batches(samples: Float32, count: int, step: float, batch: int) -> Iterator[Float32]:
    """(at most `batch`, 1, 160000) each; what lies beyond the recording is silence."""
    hop = round(step * SAMPLE_RATE)
    for first in range(0, count, batch):
        windows = np.zeros((min(batch, count - first), 1, WINDOW_SAMPLES), np.float32)
        for row in range(len(windows)):
            piece = samples[(first + row) * hop :][:WINDOW_SAMPLES]
            windows[row, 0, : len(piece)] = piece
        yield windows
