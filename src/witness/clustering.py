"""Voice vectors -> which of them are one speaker, over the whole recording.

Agglomerative clustering of the vectors that come from enough clean speech, as pyannote 3.1 does it; then
every vector joins the nearest speaker, two vectors of one window never the same one, as in community-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from witness.errors import UsageError
from witness.schema import FRAMES, Bool, Float32, Float64, Int

NOBODY = -1
MIN_CLEAN_SHARE = 0.2  # of a window's frames: a vector of less speech has no say in the clustering
MIN_CLUSTER_SIZE = 12  # or a tenth of the vectors: a smaller cluster is no speaker of its own
LONG_RECORDING = 600.0  # seconds
MANY_VECTORS = 300
LONG_THRESHOLD_STEP = 0.05


@dataclass(frozen=True)
class SpeakerBounds:
    """How many speakers there may be; equal bounds give exactly that many, if there are so many vectors."""

    least: int = 1
    most: int | None = None

    def __post_init__(self) -> None:
        if self.least < 1 or (self.most is not None and self.most < self.least):
            raise UsageError(f"at least {self.least} and at most {self.most} speakers cannot both hold")

    def __str__(self) -> str:
        if self.most == self.least:
            return f"{self.least} speakers"
        return (
            f"{self.least} or more speakers" if self.most is None else f"{self.least} to {self.most} speakers"
        )

    def __contains__(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)


def adaptive_threshold(threshold: float, duration: float, vectors: int) -> float:
    """The merge threshold for a recording of `duration` seconds and so many vectors.

    The rule of the original Witness: a long recording gives each speaker more varied vectors.
    """
    long = duration > LONG_RECORDING and vectors >= MANY_VECTORS
    return threshold + LONG_THRESHOLD_STEP if long else threshold


def cluster(
    vectors: Float32,
    active: Bool,
    *,
    method: Literal["average", "centroid"],
    threshold: float,
    duration: float,
    bounds: SpeakerBounds = SpeakerBounds(),
) -> Int:
    """The speaker of each window-local speaker: (windows, 3), -1 where there is none.

    `vectors` is (windows, 3, 256), NaN where there is too little speech; `active` is (windows, 589, 3).
    `method` and `threshold` (Euclidean distance of unit vectors, 0 to 2) belong to the voice model.
    Speakers are numbered 0, 1, ... without a gap.
    """
    labels = np.full(vectors.shape[:2], NOBODY, np.intp)
    known: Bool = np.asarray(np.isfinite(vectors).all(axis=2))
    clean = (active & (active.sum(axis=2, keepdims=True) == 1)).sum(axis=1)
    train = known & (clean >= MIN_CLEAN_SHARE * FRAMES)
    if train.sum() < bounds.least:
        train = known  # better from short pieces than not at all
    if not known.any():
        return labels

    chosen = _unit(vectors[train])
    speakers = _agglomerate(chosen, method, adaptive_threshold(threshold, duration, len(chosen)), bounds)
    centroids = _centroids(chosen, speakers)
    for window in np.flatnonzero(known.any(axis=1)):
        here = known[window]
        labels[window, here] = _assign(_unit(vectors[window, here]), centroids)
    if len(np.unique(labels[known])) <= speakers.max():  # some speaker lost all of its vectors to others
        labels[train] = speakers
    return labels


def _agglomerate(
    vectors: Float64, method: Literal["average", "centroid"], threshold: float, bounds: SpeakerBounds
) -> Int:
    """The speaker, 0, 1, ..., of each of at least one unit vectors."""
    count = len(vectors)
    if count == 1:
        return np.zeros(1, np.intp)
    bounds = SpeakerBounds(min(bounds.least, count), bounds.most)
    merges = linkage(vectors, method=method, metric="euclidean")
    smallest = min(MIN_CLUSTER_SIZE, max(1, round(0.1 * count)))
    labels = fcluster(merges, threshold, criterion="distance").astype(np.intp)
    while (natural := _large(labels, smallest).size) not in bounds:
        merged = _closest_cut(merges, smallest, threshold, bounds, natural)
        if merged is not None:
            # Heights that count the merges cut the tree after so many of them, whatever their order.
            numbered = np.column_stack([merges[:, :2], np.arange(1.0, count), merges[:, 3]])
            labels = fcluster(numbered, merged, criterion="distance").astype(np.intp)
            break
        smallest //= 2  # one vector a speaker is allowed in the end, and then any number can be had
    large = _large(labels, smallest)
    kept = np.isin(labels, large)
    speakers = np.searchsorted(large, labels)
    speakers[~kept] = _nearest(vectors[~kept], _centroids(vectors[kept], speakers[kept]))
    return speakers


def _large(labels: Int, smallest: int) -> Int:
    """The labels that at least `smallest` vectors carry."""
    names, sizes = np.unique(labels, return_counts=True)
    return names[sizes >= smallest]


def _closest_cut(
    merges: Float64, smallest: int, threshold: float, bounds: SpeakerBounds, wanted: int
) -> int | None:
    """After how many merges there are large clusters within bounds, nearest `wanted` and the threshold."""
    sizes = np.concatenate([np.ones(len(merges) + 1), merges[:, 3]])
    large = (sizes >= smallest).astype(np.intp)
    children = merges[:, :2].astype(np.intp)
    change = large[len(merges) + 1 :] - large[children[:, 0]] - large[children[:, 1]]
    counts = large[: len(merges) + 1].sum() + np.concatenate([[0], np.cumsum(change)])
    fitting = [merged for merged, number in enumerate(counts) if int(number) in bounds]
    heights = np.concatenate([[0.0], merges[:, 2]])
    return min(
        fitting,
        key=lambda merged: (abs(int(counts[merged]) - wanted), abs(float(heights[merged]) - threshold)),
        default=None,
    )


def _assign(vectors: Float64, centroids: Float64) -> Int:
    """The speaker of each vector of one window: two of them are two people, as long as there are so many.

    community-1 gives up a third local speaker where only two are known; here it goes to the nearest, since
    to lose its speech costs as much as to confuse it.
    """
    distances = cdist(vectors, centroids, metric="cosine")
    nearest: Int = distances.argmin(axis=1).astype(np.intp)
    rows, columns = linear_sum_assignment(distances)
    nearest[rows] = columns
    return nearest


def _unit(vectors: Float32) -> Float64:
    wide: Float64 = vectors.astype(np.float64)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return wide


def _centroids(vectors: Float64, labels: Int) -> Float64:
    return np.stack([vectors[labels == label].mean(axis=0) for label in range(labels.max() + 1)])


def _nearest(vectors: Float64, centroids: Float64) -> Int:
    nearest: Int = cdist(vectors, centroids, metric="cosine").argmin(axis=1).astype(np.intp)
    return nearest
