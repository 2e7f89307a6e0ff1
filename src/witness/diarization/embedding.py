"""Audio + activity -> one voice vector per window-local speaker, with ONE trunk pass over the audio.

    features --blocks--> trunk --frames--> masked statistics pooling --> head --> vectors

pyannote runs the ResNet once per window and speaker, about 30 seconds of it for each second of audio.
Here each second is seen once, and long pauses never, in blocks with so much context that their frames are
those of one unbroken pass, and every mask of every window is pooled from these frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from witness.diarization import embedding_cut
from witness.diarization.fbank import HOP, N_MELS, fbank, frame_count
from witness.errors import ModelError
from witness.reporter import SILENT, Reporter
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
    T,
    alone,
    in_turn,
)
from witness.sessions import Model

STRIDE = 8  # fbank frames per trunk frame: three stages of stride 2
TRUNK_SAMPLES = STRIDE * HOP  # from one trunk frame to the next: 1280, 0.08 s
WINDOW_FRAMES = 125  # trunk frames in a window of 10 s
CONTEXT = 15  # trunk frames, 1.2 s; ResNet34 sees 112 fbank frames (14 trunk frames) to either side
FAST_CONTEXT = 1  # trunk frames around speech that a fast run hears, of pauses and of talk at once
BLOCK = 330
"""Trunk frames of a call: 26.4 s, of which 24 s are new.

One size for all, because a GPU compiles a graph for each. The context costs 30 frames of every block: 1.1 s
of trunk for a second of audio at 330, 1.2 at 180. A larger block leaves more to the CPU, which runs the end
of a recording with its true length (13 s on average), and needs more memory: ResNet34 holds several tensors
of 32 x 80 x 2640 numbers, 27 MB each. Ten minutes are 7500 trunk frames: 315 in the first block and 300 in
each after it make 24 full ones and a rest.
"""
MEAN_FRAMES = 998  # fbank frames in 10 s: the features' mean is taken over so many around each frame
BLOCK_SHAPE = (1, BLOCK * STRIDE, N_MELS)  # of the features of a full block
MIN_ACTIVE = 10  # segmentation frames, 0.17 s; a voice vector of less is noise (speakrs' constant)
MIN_CLEAN = 20  # segmentation frames, 0.34 s; with fewer outside overlap, overlap is better than nothing


class Trunk(Protocol):
    """(1, T, 80) features -> (1, ..., ceil(T / 8)) frames."""

    def __call__(self, array: Float32, /) -> Float32: ...


@dataclass(frozen=True)
class VoiceModel:
    """A voice model in two halves. `trunk` runs any length; `block_trunk` only BLOCK_SHAPE."""

    trunk: Trunk
    head: Callable[[Float32], Float32]
    block_trunk: Trunk
    trunk_part: bytes = b""
    """The trunk as ONNX, to run it elsewhere."""


@dataclass(frozen=True)
class Block:
    """Trunk frames of one call, as if they followed one another."""

    frames: Int
    """(frames,), rising: their numbers in the recording."""
    new: slice
    """Those that it answers for; the others are their context."""


def load(model: ModelFile) -> VoiceModel:
    """Open a voice model on the CPU, cut at its pooling, and hold it to its contract. Raises ModelError."""
    trunk_part, head_part = embedding_cut.open_cut(model)
    trunk = Model(trunk_part, f"trunk of {model.path}")
    if len(trunk.input_shape) != 3 or trunk.input_shape[2] not in (None, N_MELS):
        raise ModelError(f"{model.path}: takes {list(trunk.input_shape)}, not [B, T, 80]; use a voice model")
    frames = trunk(np.zeros((1, STRIDE * CONTEXT, N_MELS), np.float32)).shape[-1]
    if frames != CONTEXT:
        raise ModelError(
            f"{model.path}: gives {frames} frames for {STRIDE * CONTEXT} features, not one for each "
            f"{STRIDE}; use a voice model of that stride"
        )
    return VoiceModel(trunk, Model(head_part, f"head of {model.path}"), trunk, trunk_part)


@dataclass
class _Open:
    """Windows that are segmented and have voices still to be pooled."""

    seen: int = 0
    """All windows so far, those without a voice too."""
    rows: Int = field(default_factory=lambda: np.zeros(0, np.intp))
    """(open,): their numbers among all."""
    starts: Float64 = field(default_factory=lambda: np.zeros(0))
    """(open,) in trunk frames; windows 1 s apart are 12.5 apart."""
    masks: Bool = field(default_factory=lambda: np.zeros((0, FRAMES, LOCAL_SPEAKERS), np.bool_))
    wanted: Bool = field(default_factory=lambda: np.zeros((0, LOCAL_SPEAKERS), np.bool_))

    def add(self, piece: Segmentation) -> None:
        masks = clean_masks(piece.active)
        wanted = masks.sum(axis=1) >= MIN_ACTIVE
        some = wanted.any(axis=1)
        self.rows = np.concatenate([self.rows, self.seen + np.flatnonzero(some)])
        self.starts = np.concatenate([self.starts, piece.starts[some] / TRUNK_SAMPLES])
        self.masks = np.concatenate([self.masks, masks[some]])
        self.wanted = np.concatenate([self.wanted, wanted[some]])
        self.seen += len(masks)

    def keep(self, kept: Bool) -> None:
        self.rows, self.starts = self.rows[kept], self.starts[kept]
        self.masks, self.wanted = self.masks[kept], self.wanted[kept]

    def weights(self, chosen: Bool, frames: Int) -> Float64:
        """(voices, frames): 1.0 where a trunk frame lies under the mask of a voice in a chosen window."""
        inside = frames[None, :] - self.starts[chosen][:, None]  # in trunk frames from the window's start
        index = np.floor(inside * (FRAMES / WINDOW_FRAMES)).astype(np.intp)
        valid = (inside >= 0) & (index < FRAMES)
        there = np.flatnonzero(chosen)[:, None]
        weights = self.masks[there, np.where(valid, index, 0)] & valid[:, :, None]
        return weights.transpose(0, 2, 1)[self.wanted[chosen]].astype(np.float64)

    def speak(self, frames: Int) -> Bool:
        """(frames,): whether a trunk frame lies under any mask."""
        near = (self.starts <= frames[-1]) & (self.starts + WINDOW_FRAMES > frames[0])
        return np.asarray(self.weights(near, frames).any(axis=0), np.bool_)


def embed(
    samples: Samples,
    windows: Iterable[Segmentation],
    model: VoiceModel,
    *,
    context: int = CONTEXT,
    mapper: Map = in_turn,
    reporter: Reporter = SILENT,
) -> Float32:
    """A voice vector for every window and local speaker: (windows, 3, 256) float32, not normalised.

    NaN for a speaker active for fewer than 10 frames. Frames in which two speak are left out where a
    speaker has 20 others. The trunk runs over what a mask needs and `context` frames around it; with fewer
    than CONTEXT, the frames are not those of one pass over the whole. `windows` are drawn as they are needed,
    piece by piece: a block of the trunk is run as soon as all windows that touch it are there. What is pooled
    together follows from the blocks alone, so the result does not depend on what `mapper` does at the same
    time.
    """
    total = -(-frame_count(len(samples)) // STRIDE)
    voices = _Open()

    def run(item: tuple[Block, Float32]) -> tuple[Block, Float64]:
        block, feats = item
        full = len(feats) == BLOCK * STRIDE
        return block, embedding_cut.rows((model.block_trunk if full else model.trunk)(feats[None]))

    reporter.progress("embedding", 0, total)
    found: list[tuple[Int, Int, Float32]] = []
    outputs = mapper(run, features(samples, plan(_heard(total, iter(windows), voices, context))))
    # Of the trunk, kept as long as a window may still need them, and their numbers.
    frames, numbers = np.empty((0, 0)), np.zeros(0, np.intp)
    for (block, output), following in _and_next(outputs):
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
            places = np.argwhere(voices.wanted[complete])[enough]
            found.append((voices.rows[complete][places[:, 0]], places[:, 1], result))
        voices.keep(~complete)
        needed = numbers >= voices.starts.min(initial=reached)
        frames, numbers = frames[needed], numbers[needed]
        reporter.progress("embedding", reached, total)
    reporter.progress("embedding", total, total)
    size = found[0][2].shape[1] if found else 1
    vectors = np.full((voices.seen, LOCAL_SPEAKERS, size), np.nan, np.float32)
    for rows, speakers, result in found:
        vectors[rows, speakers] = result
    return vectors


def _and_next(items: Iterable[T]) -> Iterator[tuple[T, T | None]]:
    """Each item and the one after it; after the last there is none."""
    before: T | None = None
    for item in items:
        if before is not None:
            yield before, item
        before = item
    if before is not None:
        yield before, None


def _heard(total: int, windows: Iterator[Segmentation], voices: _Open, context: int) -> Iterator[Int]:
    """The trunk frames of `total` that a mask needs and those around; puts windows into `voices`."""
    speech = np.zeros(context, np.bool_)  # from `context` frames before the next to be decided
    decided, latest = 0, 0
    while decided < total:
        if (piece := next(windows, None)) is None:
            known = total + context
        else:
            voices.add(piece)
            known = max(latest, math.ceil(piece.starts[-1] / TRUNK_SAMPLES))  # all masks before are there
        if known == latest:
            continue
        speech = np.concatenate([speech, voices.speak(np.arange(latest, known))])
        latest = known
        if (some := min(known - context, total) - decided) > 0:
            spread = np.ones(2 * context + 1, np.intp)
            yield decided + np.flatnonzero(np.convolve(speech, spread, "valid")[:some])
            decided, speech = decided + some, speech[some:]
    for piece in windows:  # that begin in the last moments
        voices.add(piece)


def clean_masks(active: Bool) -> Bool:
    """(windows, frames, speakers) activity without overlap, for each speaker with enough of it, else with."""
    clean = alone(active)
    return np.where(clean.sum(axis=1, keepdims=True) >= MIN_CLEAN, clean, active)


def plan(heard: Iterable[Int]) -> Iterator[Block]:
    """Blocks that answer for each of these trunk frames once; their numbers come in rising pieces.

    Full blocks have one length (a GPU compiles one shape); the last has what is left. All frames begin at
    multiples of the stride, so with their context they are those of one pass over the whole.
    """
    waiting, first = np.zeros(0, np.intp), 0
    for piece in heard:
        waiting = np.concatenate([waiting, piece])
        while len(waiting) > BLOCK:
            yield Block(waiting[:BLOCK], slice(first, BLOCK - CONTEXT))
            waiting, first = waiting[BLOCK - 2 * CONTEXT :], CONTEXT
    if len(waiting) > first:
        yield Block(waiting, slice(first, len(waiting)))


def full_blocks(samples: int) -> int:
    """How many blocks of a recording of so many samples are full, at most: silence is not run."""
    total = frame_count(samples)
    blocks = plan([np.arange(-(-total // STRIDE))])
    return sum(len(block.frames) == BLOCK and block.frames[-1] * STRIDE + STRIDE <= total for block in blocks)


def features(samples: Samples, blocks: Iterable[Block]) -> Iterator[tuple[Block, Float32]]:
    """Each block with its (T, 80): log mel energies less their mean over the 10 s around each frame.

    At the ends of the recording the 10 s are its first and its last, as in a window that lies there; the
    mean of each window (pyannote's way) would tie the trunk to the window. Mean cosine between the two
    ways is 0.970 to 0.998 over 30 recordings; with the mean of the whole recording 0.938 to 0.996.
    """
    total = frame_count(len(samples))
    half = MEAN_FRAMES // 2
    first, have = 0, np.empty((0, N_MELS), np.float32)
    for block in blocks:
        parts = []
        for frames in np.split(block.frames, np.flatnonzero(np.diff(block.frames) > WINDOW_FRAMES) + 1):
            places = (frames[:, None] * STRIDE + np.arange(STRIDE)).ravel()
            places = places[places < total]
            # The ten seconds around each frame, moved inside the recording.
            low = np.clip(places - half, 0, max(0, total - MEAN_FRAMES))
            high = np.minimum(low + MEAN_FRAMES, total)
            kept = have[max(0, int(low[0]) - first) :]
            first = int(low[0])
            stop = max(int(high[-1]), int(places[-1]) + 1)
            have = np.concatenate([kept, fbank(samples, first + len(kept), stop)])
            sums = np.concatenate([np.zeros((1, N_MELS)), np.cumsum(have, axis=0, dtype=np.float64)])
            mean = (sums[high - first] - sums[low - first]) / (high - low)[:, None]
            parts.append(have[places - first] - mean.astype(np.float32))
        yield block, np.concatenate(parts)
