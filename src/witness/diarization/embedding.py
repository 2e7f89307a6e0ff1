"""Audio + activity -> one voice vector per local speaker of each window, with ONE trunk pass over the audio.

    features --blocks--> trunk --frames--> masked statistics pooling --> head --> vectors

pyannote runs the ResNet once per window and speaker, on about 30 seconds for each second of audio. Here each
second is run once, and long pauses never. Blocks have enough context for their frames to be those of one
unbroken pass, and the masks of all windows are pooled from these frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import tee, zip_longest
from threading import Lock

import numpy as np

from witness.diarization import embedding_cut
from witness.diarization.embedding_cut import CONTEXT as CONTEXT
from witness.diarization.embedding_cut import STRIDE as STRIDE
from witness.diarization.fbank import HOP, N_MELS, fbank, frame_count
from witness.models.session import Model
from witness.progress import SILENT, Reporter
from witness.schema import (
    FRAMES,
    LOCAL_SPEAKERS,
    Bool,
    Float32,
    Float64,
    Int,
    Map,
    ModelFile,
    Samples,
    Segmentation,
    map_serially,
    sole_speech,
)

TRUNK_SAMPLES = STRIDE * HOP  # from one trunk frame to the next: 1280, 0.08 s
WINDOW_FRAMES = 125  # trunk frames in a window of 10 s
FAST_CONTEXT = 1  # trunk frames that a fast run adds around clean speech, of pauses and of overlap
BLOCK = 330
"""Trunk frames in one call: 26.4 s, 24 s of them new.

One size for all calls, because a GPU compiles a graph for each size. Why 330:
docs/decisions/2026-11-22-constants.md.
"""
MEAN_FRAMES = 998  # fbank frames in 10 s, the window of the features' mean
BLOCK_SHAPE = (1, BLOCK * STRIDE, N_MELS)  # of the features of a full block
MIN_ACTIVE = 10  # segmentation frames, 0.17 s; a voice vector from less is noise (speakrs' constant)
MIN_CLEAN = 20  # segmentation frames, 0.34 s; with less clean speech, overlap is better than nothing


Trunk = Callable[[Float32], Float32]
"""(1, T, 80) features -> (1, ..., ceil(T / 8)) frames."""


@dataclass(frozen=True)
class VoiceModel:
    """A voice model in two halves."""

    trunk: Trunk
    """For features of any length."""
    head: Callable[[Float32], Float32]
    """(n, 2 x features) statistics -> (n, dims) voice vectors."""
    block_trunk: Trunk
    """For features of BLOCK_SHAPE only; the trunk on a GPU is one."""
    trunk_part: bytes = b""
    """The trunk as ONNX, to run it elsewhere."""


@dataclass(frozen=True)
class Block:
    """Trunk frames of one call, run as if each followed the one before."""

    frames: Int
    """(frames,), rising: their numbers in the recording."""
    new: slice
    """The frames whose output is used; the others are their context."""


def load(model: ModelFile) -> VoiceModel:
    """Open a voice model on the CPU, cut at its pooling. Raises ModelError as `embedding_cut.cut` does."""
    trunk_part, head_part = embedding_cut.open_cut(model)
    trunk = Model(trunk_part, f"trunk of {model.path}")
    return VoiceModel(trunk, embedding_cut.open_head(head_part, model.path), trunk, trunk_part)


@dataclass
class _Open:
    """Windows that are segmented and whose voices are still to be pooled."""

    seen: int = 0
    """All windows so far, also those without a voice."""
    rows: Int = field(default_factory=lambda: np.zeros(0, np.intp))
    """(open,): the number of each among all windows."""
    starts: Float64 = field(default_factory=lambda: np.zeros(0))
    """(open,) in trunk frames; windows 1 s apart are 12.5 apart."""
    masks: Bool = field(default_factory=lambda: np.zeros((0, FRAMES, LOCAL_SPEAKERS), np.bool_))
    """(open, 589, 3): `clean_masks`."""
    enough_speech: Bool = field(default_factory=lambda: np.zeros((0, LOCAL_SPEAKERS), np.bool_))
    """(open, 3): true where a local speaker is active long enough for a vector."""

    def add(self, piece: Segmentation) -> None:
        masks = clean_masks(piece.active)
        enough_speech = masks.sum(axis=1) >= MIN_ACTIVE
        voiced = enough_speech.any(axis=1)
        self.rows = np.concatenate([self.rows, self.seen + np.flatnonzero(voiced)])
        self.starts = np.concatenate([self.starts, piece.starts[voiced] / TRUNK_SAMPLES])
        self.masks = np.concatenate([self.masks, masks[voiced]])
        self.enough_speech = np.concatenate([self.enough_speech, enough_speech[voiced]])
        self.seen += len(masks)

    def close(self, complete: Bool) -> None:
        """Drop the windows in the (open,) mask."""
        self.rows, self.starts = self.rows[~complete], self.starts[~complete]
        self.masks, self.enough_speech = self.masks[~complete], self.enough_speech[~complete]

    def weights(self, chosen: Bool, frames: Int) -> Float64:
        """(voices, frames): 1.0 where a trunk frame lies under the mask of a voice of the chosen windows."""
        inside = frames[None, :] - self.starts[chosen][:, None]  # in trunk frames from the window's start
        index = np.floor(inside * (FRAMES / WINDOW_FRAMES)).astype(np.intp)
        valid = (inside >= 0) & (index < FRAMES)
        windows = np.flatnonzero(chosen)[:, None]
        weights = self.masks[windows, np.where(valid, index, 0)] & valid[:, :, None]
        return weights.transpose(0, 2, 1)[self.enough_speech[chosen]].astype(np.float64)

    def any_voice(self, frames: Int) -> Bool:
        """(frames,): true where a trunk frame lies under any mask."""
        near = (self.starts <= frames[-1]) & (self.starts + WINDOW_FRAMES > frames[0])
        return np.asarray(self.weights(near, frames).any(axis=0), np.bool_)


def embed(
    samples: Samples,
    windows: Iterable[Segmentation],
    model: VoiceModel,
    *,
    context: int = CONTEXT,
    mapper: Map = map_serially,
    reporter: Reporter = SILENT,
) -> Float32:
    """(windows, 3, 256) float32: the voice vector of every local speaker of every window, not normalized.

    NaN where a speaker is active for fewer than MIN_ACTIVE frames. Overlap is left out where a speaker has
    MIN_CLEAN frames without. The trunk runs over the frames under a mask and `context` frames around them;
    with fewer than CONTEXT, its output is not that of one pass over the whole.

    `windows` are drawn when needed: a block runs as soon as all windows that touch it are segmented. The
    blocks alone decide which frames are pooled together, so the result does not depend on `mapper`. Progress
    is ("embedding", trunk frames, trunk frames of the recording).
    """
    total = -(-frame_count(len(samples)) // STRIDE)
    voices = _Open()

    done, telling = 0, Lock()

    def run(item: tuple[Block, Float32]) -> tuple[Block, Float64]:
        nonlocal done
        block, feats = item
        full = len(feats) == BLOCK * STRIDE
        output = embedding_cut.rows((model.block_trunk if full else model.trunk)(feats[None]))
        with telling:  # several threads do this
            done = max(done, int(block.frames[block.new][-1]) + 1)
            reporter.progress("embedding", done, total)
        return block, output

    reporter.progress("embedding", done, total)
    pooled: list[tuple[Int, Int, Float32]] = []  # windows, local speakers, and their vectors
    outputs = mapper(run, features(samples, plan(_needed(total, iter(windows), voices, context))))
    # The trunk's output as long as a window may need it, and the numbers of its frames.
    frames, numbers = np.empty((0, 0)), np.zeros(0, np.intp)
    current, ahead = tee(outputs)
    next(ahead, None)
    for (block, output), following in zip_longest(current, ahead):
        frames = np.concatenate([frames.reshape(-1, output.shape[1]), output[block.new]])
        numbers = np.concatenate([numbers, block.frames[block.new]])
        reached = total if following is None else int(following[0].frames[following[0].new][0])

        complete = voices.starts + WINDOW_FRAMES <= reached
        if following is None:
            complete[:] = True
        weights = voices.weights(complete, numbers)
        enough = weights.sum(axis=1) >= 2  # a deviation needs two; at the very end there may be fewer
        if enough.any():
            result = model.head(embedding_cut.pool(frames, weights[enough]))
            places = np.argwhere(voices.enough_speech[complete])[enough]
            pooled.append((voices.rows[complete][places[:, 0]], places[:, 1], result))
        voices.close(complete)
        needed = numbers >= voices.starts.min(initial=reached)
        frames, numbers = frames[needed], numbers[needed]
    reporter.progress("embedding", total, total)
    size = pooled[0][2].shape[1] if pooled else 1
    vectors = np.full((voices.seen, LOCAL_SPEAKERS, size), np.nan, np.float32)
    for rows, speakers, result in pooled:
        vectors[rows, speakers] = result
    return vectors


def _needed(total: int, windows: Iterator[Segmentation], voices: _Open, context: int) -> Iterator[Int]:
    """The trunk frames of `total` under a mask, and `context` around them; puts windows into `voices`."""
    speech = np.zeros(context, np.bool_)  # begins `context` frames before the first undecided frame
    decided, segmented = 0, 0  # frames whose need is known; frames whose masks are all known
    while decided < total:
        if (piece := next(windows, None)) is None:
            reached = total + context
        else:
            voices.add(piece)
            reached = max(segmented, math.ceil(piece.starts[-1] / TRUNK_SAMPLES))
        if reached == segmented:
            continue
        speech = np.concatenate([speech, voices.any_voice(np.arange(segmented, reached))])
        segmented = reached
        if (count := min(segmented - context, total) - decided) > 0:
            spread = np.ones(2 * context + 1, np.intp)
            yield decided + np.flatnonzero(np.convolve(speech, spread, "valid")[:count])
            decided, speech = decided + count, speech[count:]
    for piece in windows:  # that begin after the last trunk frame
        voices.add(piece)


def clean_masks(active: Bool) -> Bool:
    """(windows, frames, speakers) activity, without overlap where a speaker has MIN_CLEAN frames without."""
    clean = sole_speech(active)
    return np.where(clean.sum(axis=1, keepdims=True) >= MIN_CLEAN, clean, active)


def plan(needed: Iterable[Int]) -> Iterator[Block]:
    """Blocks that have each needed trunk frame once among their new ones; numbers come in rising pieces.

    All blocks but the last have BLOCK frames, since a GPU compiles one shape. All frames begin at multiples
    of the stride, so with their context they are those of one pass over the whole.
    """
    waiting, first = np.zeros(0, np.intp), 0
    for piece in needed:
        waiting = np.concatenate([waiting, piece])
        while len(waiting) > BLOCK:
            yield Block(waiting[:BLOCK], slice(first, BLOCK - CONTEXT))
            waiting, first = waiting[BLOCK - 2 * CONTEXT :], CONTEXT
    if len(waiting) > first:
        yield Block(waiting, slice(first, len(waiting)))


def full_blocks(samples: int) -> int:
    """The largest number of full blocks in a recording of `samples` samples: silence is not run."""
    total = frame_count(samples)
    blocks = plan([np.arange(-(-total // STRIDE))])
    return sum(len(block.frames) == BLOCK and block.frames[-1] * STRIDE + STRIDE <= total for block in blocks)


def features(samples: Samples, blocks: Iterable[Block]) -> Iterator[tuple[Block, Float32]]:
    """Each block with its (T, 80) features: log mel energies less their mean over 10 s around each frame.

    At the ends of the recording these are its first and last 10 s. pyannote subtracts the mean of each
    window, which would tie the trunk to the window. How close the two are:
    docs/decisions/2026-11-22-constants.md.
    """
    total = frame_count(len(samples))
    half = MEAN_FRAMES // 2
    first, energies = 0, np.empty((0, N_MELS), np.float32)  # log mel energies from frame `first` on
    for block in blocks:
        parts = []
        for frames in np.split(block.frames, np.flatnonzero(np.diff(block.frames) > WINDOW_FRAMES) + 1):
            places = (frames[:, None] * STRIDE + np.arange(STRIDE)).ravel()
            places = places[places < total]
            # The 10 s around each frame, moved inside the recording.
            low = np.clip(places - half, 0, max(0, total - MEAN_FRAMES))
            high = np.minimum(low + MEAN_FRAMES, total)
            earlier = energies[max(0, int(low[0]) - first) :]
            first = int(low[0])
            stop = max(int(high[-1]), int(places[-1]) + 1)
            energies = np.concatenate([earlier, fbank(samples, first + len(earlier), stop)])
            sums = np.concatenate([np.zeros((1, N_MELS)), np.cumsum(energies, axis=0, dtype=np.float64)])
            mean = (sums[high - first] - sums[low - first]) / (high - low)[:, None]
            parts.append(energies[places - first] - mean.astype(np.float32))
        yield block, np.concatenate(parts)
