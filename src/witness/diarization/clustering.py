"""Voice vectors -> which of them are one speaker, over the whole recording.

Agglomerative clustering of the vectors that come from enough clean speech; then every vector joins the
closest speaker. What was measured, and what lost: docs/decisions/2026-11-21-clustering.md and, how many
speakers there are, 2026-11-22-counting.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from types import NoneType

import numpy as np

from witness.diarization import vbx
from witness.errors import UsageError
from witness.schema import (
    FRAME_STEP,
    FRAMES,
    Bool,
    Corrections,
    Count,
    Float32,
    Float64,
    Int,
    Linkage,
    Rule,
    alone,
)

NOBODY = -1
SMALLEST_SHARE = 0.1  # of all vectors; a cluster with this share is a speaker in any recording, however short
MANY = 4000  # most groups that get a full matrix of distances: 128 MB, and 64 MB for windows
BLOCK = 2000  # neighboring vectors or groups that are condensed together to an eighth
ROWS = 4096  # windows worked on together
SLICE = 256  # rows of distances copied together: 8 MB


@dataclass(frozen=True)
class SpeakerBounds:
    """How many speakers there may be; equal bounds give exactly that many if there are enough vectors.

    Raises UsageError if no number satisfies them.
    """

    least: int = 1
    most: int | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.least, Integral) and isinstance(self.most, (Integral, NoneType))
        if not whole or self.least < 1 or (self.most is not None and self.most < self.least):
            raise UsageError(
                f"no number of speakers is at least {self.least} and at most {self.most}; fix: ask for "
                "a minimum of 1 or more, and a maximum that is not below it, in whole numbers"
            )

    def __str__(self) -> str:
        if self.most == self.least:
            return f"{self.least} speaker{'s' if self.least > 1 else ''}"
        return (
            f"{self.least} or more speakers" if self.most is None else f"{self.least} to {self.most} speakers"
        )

    def __contains__(self, count: int) -> bool:
        return self.least <= count and (self.most is None or count <= self.most)


@dataclass(frozen=True)
class Clusters:
    """Who is who, and how sure their number is."""

    labels: Int
    """(windows, 3): 0, 1, ... without a gap; NOBODY without a vector."""
    count: Count


@dataclass(frozen=True)
class _Groups:
    """Unit vectors, or the means of groups of them that are surely one speaker each."""

    points: Float64
    """(groups, dims)"""
    weights: Float64
    """(groups,): vectors in each."""
    clean: Float64
    """(groups,): seconds of clean speech behind a vector, on average."""
    of: Int
    """(vectors,): the group of each."""

    def __len__(self) -> int:
        return len(self.points)

    @staticmethod
    def single(points: Float64, clean: Float64) -> _Groups:
        """Groups of one vector each."""
        return _Groups(points, np.ones(len(points)), clean, np.arange(len(points)))


@dataclass(frozen=True)
class _Tree:
    """All merges of some groups, from the bottom up."""

    merges: Float64
    """(groups - 1, 4), a linkage matrix of scipy's, but the last column counts vectors, not groups."""
    weights: Float64
    """(groups,): vectors in each."""

    @property
    def heights(self) -> Float64:
        """(merges,), rising: a merge below an earlier one, as in centroid linkage, gets that one's height."""
        return np.maximum.accumulate(self.merges[:, 2])

    def cut(self, merged: int) -> Int:
        """(groups,): the cluster, 0, 1, ..., of each group after the first `merged` merges."""
        from scipy.cluster.hierarchy import fcluster

        if not len(self.merges):
            return np.zeros(1, np.intp)
        # Merge numbers in place of heights cut the tree after exactly that many merges.
        count = len(self.weights)
        numbered = np.column_stack([self.merges[:, :2], np.arange(1.0, count), np.ones(count - 1)])
        return fcluster(numbered, merged, criterion="distance").astype(np.intp) - 1

    def large(self, smallest: int) -> Int:
        """(groups,): the number of clusters with at least `smallest` vectors after 0, 1, ... merges."""
        count = len(self.weights)
        large = (np.concatenate([self.weights, self.merges[:, 3]]) >= smallest).astype(np.intp)
        children = self.merges[:, :2].astype(np.intp)
        change = large[count:] - large[children[:, 0]] - large[children[:, 1]]
        counts: Int = large[:count].sum() + np.concatenate([[0], np.cumsum(change)])
        return counts


def cluster(
    vectors: Float32,
    active: Bool,
    rule: Rule,
    *,
    step: float = 1.0,
    bounds: SpeakerBounds = SpeakerBounds(),
    plda: vbx.Plda | None = None,
) -> Clusters:
    """Find the speaker of each local speaker of each window.

    `vectors` is (windows, 3, dims), NaN where there is too little speech; `active` is (windows, 589, 3).
    `step` is the seconds between windows: the sizes in `rule` are for windows 1 s apart. `rule` and `plda`
    belong to the voice model; with `plda`, the tree is only the beginning of variational Bayes.
    """
    labels = np.full(vectors.shape[:2], NOBODY, np.intp)
    valid: Bool = np.asarray(np.isfinite(vectors).all(axis=2))
    if not valid.any():
        return Clusters(labels, Count(0))
    clean = _clean(active)
    train = valid & (clean >= rule.shortest * FRAMES)
    if train.sum() < bounds.least:
        train = valid  # better from short speech than not at all

    rule = replace(rule, smallest=max(1, round(rule.smallest / step)))
    chosen = vectors[train]
    # A vector without a frame of clean speech counts as having one.
    groups = _condense(chosen, FRAME_STEP * np.maximum(1, clean[train]), rule)
    tree = _tree(groups, rule.linkage)
    if plda is not None and len(groups) > 1:
        first = tree.cut(int(np.searchsorted(tree.heights, rule.threshold, side="right")))
        centroids = _variational(chosen, groups, first, plda, step)
        labels[valid] = np.unique(_join(vectors, valid, centroids, apart=rule.apart), return_inverse=True)[1]
        if (number := int(labels.max()) + 1) in bounds:
            return Clusters(labels, Count(number))
    speakers, count = _agglomerate(groups, tree, rule, bounds)
    centroids = _means(groups.points, groups.weights, speakers)
    labels[valid] = _join(vectors, valid, centroids, apart=rule.apart)
    if len(np.unique(labels[valid])) < count.found:  # a speaker lost all of its vectors to others
        labels[train] = speakers[groups.of]
    return Clusters(labels, count)


def _clean(active: Bool) -> Int:
    """(windows, 3): the number of frames of clean speech of each local speaker."""
    clean = np.empty((len(active), active.shape[2]), np.intp)
    for first in range(0, len(active), ROWS):
        clean[first : first + ROWS] = alone(active[first : first + ROWS]).sum(axis=1)
    return clean


def _condense(vectors: Float32, clean: Float64, rule: Rule) -> _Groups:
    """At most MANY groups; if there are more vectors, the most alike of neighbors are merged first.

    `clean` (vectors,) is the seconds of clean speech of each, which are in order of time. Every BLOCK
    neighbors are merged to an eighth, by the linkage of `rule`. Distances between groups stay exact, so the
    result is that of one tree if that tree makes the same merges.
    """
    if len(vectors) <= MANY:
        return _Groups.single(_unit(vectors), clean)
    slices = [slice(first, first + BLOCK) for first in range(0, len(vectors), BLOCK)]
    blocks = (_Groups.single(_unit(vectors[part]), clean[part]) for part in slices)
    groups = _side_by_side([_eighth(block, rule) for block in blocks])
    while len(groups) > MANY:
        slices = [slice(first, first + BLOCK) for first in range(0, len(groups), BLOCK)]
        fewer = _side_by_side([_eighth(_part(groups, part), rule) for part in slices])
        groups = replace(fewer, of=fewer.of[groups.of])
    return groups


def _part(groups: _Groups, part: slice) -> _Groups:
    """Some of the groups, each as if it were a vector."""
    points = groups.points[part]
    return _Groups(points, groups.weights[part], groups.clean[part], np.arange(len(points)))


def _eighth(groups: _Groups, rule: Rule) -> _Groups:
    """An eighth of the groups, by the linkage of `rule`."""
    clusters = _tree(groups, rule.linkage).cut(len(groups) - -(-len(groups) // 8))
    weights = _sums(groups.weights, clusters)
    means = _means(groups.points, groups.weights, clusters)
    return _Groups(means, weights, _sums(groups.clean * groups.weights, clusters) / weights, clusters)


def _side_by_side(parts: list[_Groups]) -> _Groups:
    """The groups of all parts."""
    offsets = np.cumsum([0] + [len(part) for part in parts])
    return _Groups(
        np.concatenate([part.points for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.clean for part in parts]),
        np.concatenate([part.of + offset for part, offset in zip(parts, offsets, strict=False)]),
    )


def _tree(groups: _Groups, linkage: Linkage) -> _Tree:
    """All merges of the groups, the closest first: scipy's `linkage`, but for groups with weights.

    Lance-Williams updates of squared distances, where each row remembers its nearest neighbor (Müllner,
    "Modern hierarchical, agglomerative clustering algorithms", the generic algorithm). "average" is over all
    pairs of unit vectors of two groups, which is 2 - 2 a.b of their means a and b.
    """
    points, weights = groups.points, groups.weights
    count = len(points)
    squares = (points**2).sum(axis=1)
    distances = points @ points.T
    distances *= -2
    distances += 2 if linkage == "average" else squares[:, None] + squares
    np.fill_diagonal(distances, np.inf)
    sizes = weights.copy()
    merges = np.empty((count - 1, 4))
    names = np.arange(count)

    def nearest(rows: Int) -> tuple[Int, Float64]:
        near: Int = distances[rows].argmin(axis=1)
        return near, distances[rows, near]

    parts = [nearest(np.arange(first, min(first + SLICE, count))) for first in range(0, count, SLICE)]
    near, least = (np.concatenate(part) for part in zip(*parts, strict=True))
    stale = np.zeros(count, np.bool_)  # whose nearest neighbor is gone or has moved away: `least` or more
    for step in range(count - 1):
        while stale[absorbed := int(least.argmin())]:
            row = np.array([absorbed])
            near[row], least[row] = nearest(row)
            stale[row] = False
        # Row `absorbed` is absorbed into row `survivor` and is then empty.
        survivor = int(near[absorbed])
        total = sizes[absorbed] + sizes[survivor]
        first, second = sorted((names[absorbed], names[survivor]))
        merges[step] = first, second, np.sqrt(max(0.0, least[absorbed])), total
        updated = (sizes[absorbed] * distances[absorbed] + sizes[survivor] * distances[survivor]) / total
        if linkage != "average":
            updated -= sizes[absorbed] * sizes[survivor] / total**2 * distances[absorbed, survivor]
        gone = np.isinf(least)
        gone[absorbed] = True
        updated[gone] = updated[survivor] = np.inf
        distances[survivor] = distances[:, survivor] = updated
        distances[absorbed] = distances[:, absorbed] = np.inf
        names[survivor], sizes[survivor] = count + step, total
        least[absorbed] = np.inf
        costs = distances[survivor]
        closer = costs < least
        stale |= ((near == absorbed) | (near == survivor)) & ~gone
        near[closer], least[closer], stale[closer] = survivor, costs[closer], False
        near[survivor], least[survivor], stale[survivor] = costs.argmin(), costs.min(), False
    return _Tree(merges, weights)


def _corrected(groups: _Groups, tree: _Tree, corrections: Corrections, smallest: int) -> _Tree:
    """The tree with other heights: distances that are as telling for little speech as they are for much.

    To the squared distance of the means of two clusters are added the `corrections`. A cluster under
    `smallest` is no speaker, so its merge tells nothing and has the height of what it joins. So has a merge
    that would lie under one of those it is made of.
    """
    count, dims = groups.points.shape
    children = tree.merges[:, :2].astype(np.intp)
    sizes = np.concatenate([groups.weights, tree.merges[:, 3]])
    means = np.concatenate([groups.points, np.empty((count - 1, dims))])
    clean = np.concatenate([groups.clean, np.empty(count - 1)])
    for place, pair in enumerate(children, start=count):
        shares = sizes[pair] / sizes[place]
        means[place], clean[place] = shares @ means[pair], shares @ clean[pair]
    one, other = means[children].swapaxes(0, 1)
    squared = 2 - 2 * (one * other).sum(axis=1)
    squared += corrections.loose * (1 - (means**2).sum(axis=1)[children].min(axis=1))
    squared += corrections.clean * np.log(clean[children].min(axis=1))
    squared += corrections.share * np.log(sizes[children].max(axis=1) / sizes[-1])
    telling = sizes[children].min(axis=1) >= smallest
    heights = np.concatenate([np.zeros(count), np.where(telling, np.sqrt(np.maximum(0.0, squared)), 0.0)])
    for place, pair in enumerate(children, start=count):
        heights[place] = max(heights[place], heights[pair].max())
    order = np.argsort(heights[count:], kind="stable")
    names = np.arange(2 * count - 1)
    names[count + order] = np.arange(count, 2 * count - 1)
    merges = np.column_stack([np.sort(names[children], axis=1), heights[count:], tree.merges[:, 3]])
    return _Tree(merges[order], tree.weights)


def _agglomerate(groups: _Groups, plain: _Tree, rule: Rule, bounds: SpeakerBounds) -> tuple[Int, Count]:
    """(groups,): the speaker, 0, 1, ..., of each group; and how sure their number is."""
    bounds = SpeakerBounds(min(bounds.least, len(groups)), bounds.most)
    threshold = rule.threshold

    def at(smallest: int) -> tuple[_Tree, Int]:
        tree = plain
        if rule.corrections is not None and len(groups) > 1:
            tree = _corrected(groups, plain, rule.corrections, smallest)
        return tree, tree.large(smallest)

    smallest = min(rule.smallest, max(1, round(SMALLEST_SHARE * groups.weights.sum())))
    tree, counts = at(smallest)
    merged = int(np.searchsorted(tree.heights, threshold, side="right"))
    natural = int(counts[merged])
    count = _runner_up(counts, tree.heights, merged, threshold)
    while int(counts[merged]) not in bounds:
        fitting = [place for place, number in enumerate(counts) if int(number) in bounds]
        if fitting:
            below = np.concatenate([[0.0], tree.heights])
            merged = min(
                fitting,
                key=lambda place: (abs(int(counts[place]) - natural), abs(float(below[place]) - threshold)),
            )
            break
        smallest //= 2  # in the end one vector makes a speaker, and then any number is possible
        tree, counts = at(smallest)
    labels = tree.cut(merged)
    large = np.flatnonzero(np.bincount(labels, groups.weights) >= smallest)
    members = np.isin(labels, large)
    speakers = np.searchsorted(large, labels)
    if not members.all():
        means = _means(groups.points[members], groups.weights[members], speakers[members])
        speakers[~members] = _cosines(groups.points[~members], means).argmax(axis=1)
    return speakers, count if count.found == len(large) else Count(len(large))


def _runner_up(counts: Int, heights: Float64, merged: int, threshold: float) -> Count:
    """The number of speakers after `merged` merges, and the one that the nearest other threshold would give.

    `counts` (groups,) is the number after 0, 1, ... merges, which are at `heights` (groups - 1,).
    """
    number = int(counts[merged])
    places = np.flatnonzero((counts != number) & (counts > 0))
    if not len(places):
        return Count(number)
    # After fewer merges, the next one must lie above the threshold; after more, the last one under it.
    up = np.concatenate([[0.0], heights])[places] - threshold
    down = threshold - np.concatenate([heights, [np.inf]])[places]
    moves = np.where(places > merged, up, down)
    nearest = int(moves.argmin())
    return Count(number, int(counts[places[nearest]]), max(0.0, float(moves[nearest])))


def _variational(vectors: Float32, groups: _Groups, labels: Int, plda: vbx.Plda, step: float) -> Float64:
    """(speakers, dims): centroids of the speakers that are needed, as community-1 finds them.

    `vectors` (n, dims) are raw, `labels` (groups,) is the first clustering.
    """
    raw = np.empty_like(groups.points)
    for dimension in range(vectors.shape[1]):  # means of raw vectors, without a copy of all
        raw[:, dimension] = np.bincount(groups.of, vectors[:, dimension], len(groups)) / groups.weights
    shares = vbx.refine(plda.project(raw), plda.phi, labels, step * groups.weights) * groups.weights[:, None]
    centroids: Float64 = shares.T @ raw / shares.sum(axis=0)[:, None]
    return centroids


def _join(vectors: Float32, valid: Bool, centroids: Float64, *, apart: bool) -> Int:
    """(valid vectors,): the closest speaker of each.

    `apart`: vectors of one window are different people, as far as there are enough speakers. A vector too
    many joins the closest, since losing its speech costs as much as confusing it (community-1 drops it).
    """
    from scipy.optimize import linear_sum_assignment

    joined = []
    for first in range(0, len(vectors), ROWS):
        mask = valid[first : first + ROWS]
        cosines = _cosines(_unit(vectors[first : first + ROWS][mask]), centroids)
        speakers = cosines.argmax(axis=1)
        if apart:
            ends = np.cumsum(mask.sum(axis=1))
            for start, end in zip(ends - mask.sum(axis=1), ends, strict=True):
                rows, columns = linear_sum_assignment(-cosines[start:end])
                speakers[start + rows] = columns
        joined.append(speakers)
    return np.concatenate(joined)


def _unit(vectors: Float32) -> Float64:
    wide: Float64 = vectors.astype(np.float64)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return wide


def _means(points: Float64, weights: Float64, labels: Int) -> Float64:
    """(clusters, dims): the mean of the vectors of each label 0, 1, ...; a point is the mean of some."""
    means: Float64 = _sums(points * weights[:, None], labels) / _sums(weights, labels)[:, None]
    return means


def _sums(rows: Float64, labels: Int) -> Float64:
    """(clusters, ...): the sum of the rows of each label 0, 1, ..."""
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
    sums: Float64 = np.add.reduceat(rows[order], starts)
    return sums


def _cosines(points: Float64, centroids: Float64) -> Float64:
    """(points, centroids): cosine similarities; the points must be unit vectors."""
    directions = centroids / np.linalg.norm(centroids, axis=1, keepdims=True)
    cosines: Float64 = points @ directions.T
    return cosines
