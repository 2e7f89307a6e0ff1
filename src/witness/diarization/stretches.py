"""Audio + activity -> voice vectors, by a model that looks at a whole stretch of speech.

    clean speech of all windows -> stretches of a few seconds -> model -> means by local speaker

CAM++, ECAPA and ERes2Net cannot be cut at their pooling: every frame depends on all of the stretch. Run for
every local speaker of every window, they would process each second of speech five to ten times. But
neighboring windows hold mostly the same speech. So each second is processed once, in a stretch of one
person's clean speech, and all windows whose local speaker says this stretch share its vector. The choice of
stretches: docs/decisions/2026-11-23-stretches.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from witness.diarization import onnx_graph
from witness.diarization.embedding import MIN_ACTIVE, MIN_CLEAN, clean_masks
from witness.diarization.fbank import HOP, fbank, frame_count
from witness.errors import ModelError
from witness.models.session import Model
from witness.progress import SILENT, Reporter
from witness.schema import (
    FRAMES,
    LOCAL_SPEAKERS,
    WINDOW_SAMPLES,
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

LENGTH = 400
"""Features, 4 s: the clean speech of a local speaker is divided into stretches of this length at most."""
SHORTEST = 50
"""Features, 0.5 s: shorter speech is repeated, because some models take no less."""
PLENTY = 295
"""Segmentation frames, 5 s: speakers with that much clean speech in a window come first, in the order of
time."""
SAID = 0.8
"""Share of a stretch that a local speaker must say to share its vector, and of its part in their window that
makes the stretch theirs."""
WINDOW = WINDOW_SAMPLES // HOP  # features in a window: 1000
_PLACES = np.arange(WINDOW) * FRAMES // WINDOW  # the segmentation frame of each feature of a window


@dataclass(frozen=True)
class StretchModel:
    """A voice model that takes a stretch of any length."""

    model: Callable[[Float32], Float32]
    """(1, T, 80) features less their mean, or (1, samples) or (1, 1, samples) -> (1, dims)."""
    features: bool
    """True if it takes features, false if it takes samples in [-1, 1]."""
    rank: int = 3
    """Of its input."""

    def run(self, samples: Samples, frames: Int) -> Float32:
        """(1, dims): the vector of the stretch of `samples` whose features are `frames`, rising."""
        runs = np.split(frames, np.flatnonzero(np.diff(frames) > 1) + 1)
        spans = [(int(run[0]), int(run[-1]) + 1) for run in runs]
        if self.features:
            inputs = np.concatenate([fbank(samples, first, last) for first, last in spans])
            inputs = _repeated(inputs - inputs.mean(axis=0), SHORTEST)[None]
        else:
            parts = [samples[first * HOP : last * HOP] for first, last in spans]
            inputs = _repeated(np.concatenate(parts), SHORTEST * HOP)
            inputs = inputs[(None,) * (self.rank - 1)]
        return self.model(inputs)


def _repeated(stretch: Float32, shortest: int) -> Float32:
    """A stretch, as often as it takes to reach the least length."""
    return np.concatenate([stretch] * -(-shortest // len(stretch)))


def load(model: ModelFile) -> StretchModel:
    """Open a voice model on the CPU. Raises ModelError if it does not make one vector of a stretch."""
    graph = onnx_graph.read(model.path)
    shape = onnx_graph.sizes(onnx_graph.data(graph.graph))
    del graph.graph.output[:-1]  # the last output is the voice vector, as WeSpeaker has it
    opened = Model(graph.SerializeToString(), model.path)
    features = len(shape) == 3 and shape[1] != 1
    voice = StretchModel(opened, features, len(shape))
    noise = np.random.default_rng(0).normal(0.0, 0.1, 10 * SHORTEST * HOP + WINDOW).astype(np.float32)
    lengths = SHORTEST, 10 * SHORTEST, 10 * SHORTEST
    short, whole, again = (voice.run(noise, np.arange(length)) for length in lengths)
    if not (short.shape == whole.shape == (1, whole.size)) or not np.isfinite([short, whole]).all():
        raise ModelError(
            f"{model.path}: does not make one vector of a stretch of speech (it gives "
            f"{list(short.shape)} and {list(whole.shape)} for two of them); is it a voice model?"
        )
    if (whole != again).any() or (short == whole).all():
        raise ModelError(
            f"{model.path}: its vectors do not follow from the speech alone; fix: export it for inference"
        )
    return voice


@dataclass(frozen=True)
class Shared:
    """The stretches of a recording and the local speakers who say them."""

    stretches: list[Int]
    """The features of each, rising: their numbers in the recording."""
    of: dict[tuple[int, int], list[tuple[int, int]]]
    """(window, local speaker) -> the stretches that they say, and how many features of each."""


def divide(windows: Segmentation, features: int) -> Shared:
    """Divide the speech of a recording of `features` features into stretches of one person each.

    The local speakers with the most clean speech come first: speech outside their stretches becomes new
    stretches if it reaches LENGTH. Speakers who say none of the stretches get new ones. Speakers without
    clean speech share nothing.
    """
    offsets: Int = -(-windows.starts // HOP)
    masks = clean_masks(windows.active)
    sizes = masks.sum(axis=1)
    clean = sole_speech(windows.active).sum(axis=1) >= MIN_CLEAN
    firsts = np.searchsorted(offsets, offsets - WINDOW, side="right")
    lasts = np.searchsorted(offsets, offsets + WINDOW)
    stretches: list[Int] = []
    begun: list[list[int]] = [[] for _ in offsets]  # the stretches that come from each window
    of: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def speech(window: int, speaker: int) -> Bool:
        """(1000,): the features of a window that are speech of this local speaker."""
        mask: Bool = masks[window, _PLACES, speaker]
        mask[max(0, features - int(offsets[window])) :] = False
        return mask

    def theirs(window: int, mask: Bool) -> Iterator[tuple[int, Int]]:
        """Yield the stretches of the owner of a mask, and the features of each in the window."""
        for source in range(firsts[window], lasts[window]):
            for stretch in begun[source]:
                places = stretches[stretch] - offsets[window]
                places = places[(places >= 0) & (places < WINDOW)]
                hits = places[mask[places]]
                if len(hits) >= max(1, SAID * len(places)):
                    yield stretch, hits

    def shared(window: int, mask: Bool) -> list[tuple[int, int]]:
        """Return the stretches that the owner of a mask says enough of, and the number of features of
        each."""
        return [
            (stretch, len(hits))
            for stretch, hits in theirs(window, mask)
            if len(hits) >= SAID * len(stretches[stretch])
        ]

    places = np.argwhere(clean & (sizes >= MIN_ACTIVE))
    plenty = np.minimum(sizes[tuple(places.T)], PLENTY)
    richest = places[np.argsort(-plenty, kind="stable")].tolist()
    for window, speaker in richest:
        mask = speech(window, speaker)
        left = mask.copy()
        for _, hits in theirs(window, mask):
            left[hits] = False
        if left.sum() < LENGTH:
            left = mask & (not shared(window, mask))
        frames = np.flatnonzero(left) + offsets[window]
        if len(frames):
            for part in np.array_split(frames, -(-len(frames) // LENGTH)):
                begun[window].append(len(stretches))
                stretches.append(part)
    for window, speaker in richest:
        of[window, speaker] = shared(window, speech(window, speaker))
    for window, speaker in np.argwhere(~clean & (sizes >= MIN_ACTIVE)).tolist():
        if len(frames := np.flatnonzero(speech(window, speaker))[:LENGTH] + offsets[window]):
            of[window, speaker] = [(len(stretches), len(frames))]
            stretches.append(frames)
    return Shared(stretches, {speaker: parts for speaker, parts in of.items() if parts})


def embed(
    samples: Samples,
    windows: Iterable[Segmentation],
    model: StretchModel,
    *,
    mapper: Map = map_serially,
    reporter: Reporter = SILENT,
) -> Float32:
    """(windows, 3, dims) float32, as `embedding.embed`: means of unit vectors.

    All windows are drawn first, because a stretch comes from the window that has most of it. The result does
    not depend on `mapper`. Progress is ("embedding", stretches, all stretches).
    """
    whole = Segmentation.joined(windows)
    shared = divide(whole, frame_count(len(samples)))
    count = len(shared.stretches)
    reporter.progress("embedding", 0, max(count, 1))
    vectors: list[Float64] = []
    for vector in mapper(lambda frames: model.run(samples, frames)[0], shared.stretches):
        vectors.append(vector / np.linalg.norm(vector.astype(np.float64)))
        reporter.progress("embedding", len(vectors), count)
    size = len(vectors[0]) if vectors else 1
    result = np.full((len(whole.starts), LOCAL_SPEAKERS, size), np.nan, np.float32)
    for (window, speaker), parts in shared.of.items():
        result[window, speaker] = sum(vectors[stretch] * weight for stretch, weight in parts)
    return result
