"""Voice vectors -> which of them are one speaker, over the whole recording.

Agglomerative clustering of the vectors that come from enough clean speech; then every vector joins the
closest speaker. What was measured, and what lost: docs/decisions/2026-11-21-clustering.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from types import NoneType
from typing import Literal, TypeVar

import numpy as np

from witness.diarization import vbx
from witness.errors import UsageError
from witness.schema import FRAMES, LOCAL_SPEAKERS, Bool, Count, Float32, Float64, Int, Linkage, Rule, alone

NOBODY = -1
SMALLEST_SHARE = 0.1  # of all vectors; a cluster with this share is a speaker in any recording, however short
MANY = 4000  # most groups that get a full matrix of distances: 128 MB, and 64 MB for windows
BLOCK = 2000  # neighboring vectors or groups that are condensed together to an eighth
BALANCE = 0.5  # how much the size of clusters counts in a balanced tree: 0 is centroid linkage, 1 is Ward's
ROWS = 4096  # windows worked on together
SLICE = 256  # rows of distances copied together: 8 MB

Tree = Linkage | Literal["balanced"]
Real = TypeVar("Real", Float32, Float64)


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
    of: Int
    """(vectors,): the group of each."""
    distinct: Float32 | None = None
    """(groups, groups): the number of windows in which vectors of both are two people; None: not used."""

    def __len__(self) -> int:
        return len(self.points)

    @staticmethod
    def single(points: Float64, distinct: Float32 | None = None) -> _Groups:
        """Groups of one vector each."""
        return _Groups(points, np.ones(len(points)), np.arange(len(points)), distinct)


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
        # Not scipy's `fcluster`: a recording of a minute is clustered faster than that is imported.
        count = len(self.weights)
        above = np.arange(count + merged)  # of each group and merge
        above[self.merges[:merged, :2].astype(np.intp)] = np.arange(count, count + merged)[:, None]
        while (above != (higher := above[above])).any():
            above = higher
        clusters: Int = np.unique(above[:count], return_inverse=True)[1]
        return clusters

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
    train = valid & (_clean(active) >= rule.shortest * FRAMES)
    if train.sum() < bounds.least:
        train = valid  # better from short speech than not at all

    rule = replace(rule, smallest=max(1, round(rule.smallest / step)))
    chosen = vectors[train]
    groups = _condense(chosen, np.nonzero(train)[0], rule)
    tree = _tree(groups, rule.linkage, rule.distinct)
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


def _condense(vectors: Float32, windows: Int, rule: Rule) -> _Groups:
    """At most MANY groups; if there are more vectors, the most alike of neighbors are merged first.

    `windows` is the window of each vector, rising. Every BLOCK neighbors are merged to an eighth, by the
    linkage of `rule`. Distances between groups stay exact, so the result is that of one tree if that tree
    makes the same merges. But that vectors of two blocks share a window does not count.
    """
    if len(vectors) <= MANY:
        return _ungrouped(vectors, windows, rule)
    slices = [slice(first, first + BLOCK) for first in range(0, len(vectors), BLOCK)]
    groups = _side_by_side([_eighth(_ungrouped(vectors[part], windows[part], rule), rule) for part in slices])
    while len(groups) > MANY:
        slices = [slice(first, first + BLOCK) for first in range(0, len(groups), BLOCK)]
        fewer = _side_by_side([_eighth(_part(groups, part), rule) for part in slices])
        groups = _Groups(fewer.points, fewer.weights, fewer.of[groups.of], fewer.distinct)
    return groups


def _ungrouped(vectors: Float32, windows: Int, rule: Rule) -> _Groups:
    points = _unit(vectors)
    return _Groups.single(points, _distinct(points, windows, rule.threshold) if rule.distinct else None)


def _distinct(points: Float64, windows: Int, threshold: float) -> Float32:
    """(vectors, vectors): 1 for two of one window that are further apart than `threshold`, else 0.

    Two that are closer may be one voice that the segmentation split in two.
    """
    distinct = np.zeros((len(points), len(points)), np.float32)
    for offset in range(1, LOCAL_SPEAKERS):
        earlier = np.flatnonzero(windows[offset:] == windows[:-offset])
        later = earlier + offset
        apart = ((points[earlier] - points[later]) ** 2).sum(axis=1) > threshold**2
        distinct[earlier, later] = distinct[later, earlier] = apart
    return distinct


def _part(groups: _Groups, part: slice) -> _Groups:
    """Some of the groups, each as if it were a vector."""
    points = groups.points[part]
    distinct = None if groups.distinct is None else groups.distinct[part, part]
    return _Groups(points, groups.weights[part], np.arange(len(points)), distinct)


def _eighth(groups: _Groups, rule: Rule) -> _Groups:
    """An eighth of the groups, by the linkage of `rule`."""
    tree = _tree(groups, rule.linkage, rule.distinct)
    clusters = tree.cut(len(groups) - -(-len(groups) // 8))
    means = _means(groups.points, groups.weights, clusters)
    weights = np.bincount(clusters, groups.weights).astype(np.float64)
    distinct = groups.distinct
    if distinct is not None:
        distinct = _sums(_sums(distinct, clusters).T, clusters)
        np.fill_diagonal(distinct, 0)
    return _Groups(means, weights, clusters, distinct)


def _side_by_side(parts: list[_Groups]) -> _Groups:
    """The groups of all parts, which share no windows."""
    from scipy.linalg import block_diag

    offsets = np.cumsum([0] + [len(part) for part in parts])
    blocks = [part.distinct for part in parts if part.distinct is not None]
    return _Groups(
        np.concatenate([part.points for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.of + offset for part, offset in zip(parts, offsets, strict=False)]),
        block_diag(*blocks) if blocks else None,
    )


def _tree(groups: _Groups, linkage: Tree, distinct: float = 0.0) -> _Tree:
    """All merges of the groups, the closest first: scipy's `linkage`, but for groups with weights.

    Lance-Williams updates of squared distances, where each row remembers its nearest neighbor (Müllner,
    "Modern hierarchical, agglomerative clustering algorithms", the generic algorithm). "average" is over all
    pairs of unit vectors of two groups, which is 2 - 2 a.b of their means a and b. "balanced" is
    d² (mn / (m + n))^BALANCE for means d apart of m and n vectors, halfway from "centroid" to Ward's: the
    less there is of a voice, the further off its mean is by chance. To the squared distance of two clusters
    is added `distinct` times the share of the smaller one's vectors that are known to be other people than
    the larger one's because they share a window.
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
    shared = groups.distinct.copy() if distinct and groups.distinct is not None else None

    def costs_of(rows: Int) -> Float64:
        """(rows, clusters): what it costs to merge them, as a squared distance."""
        squared, own = distances[rows], sizes[rows, None]
        if shared is not None:
            squared = squared + distinct * shared[rows] / np.minimum(own, sizes)
        return squared * (own * sizes / (own + sizes)) ** BALANCE if linkage == "balanced" else squared

    def nearest(rows: Int) -> tuple[Int, Float64]:
        costs = costs_of(rows)
        near: Int = costs.argmin(axis=1)
        return near, costs[np.arange(len(rows)), near]

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
        if shared is not None:
            shared[survivor] = shared[:, survivor] = shared[absorbed] + shared[survivor]
        names[survivor], sizes[survivor] = count + step, total
        least[absorbed] = np.inf
        (costs,) = costs_of(np.array([survivor]))
        closer = costs < least
        stale |= ((near == absorbed) | (near == survivor)) & ~gone
        near[closer], least[closer], stale[closer] = survivor, costs[closer], False
        near[survivor], least[survivor], stale[survivor] = costs.argmin(), costs.min(), False
    return _Tree(merges, weights)


def _agglomerate(groups: _Groups, tree: _Tree, rule: Rule, bounds: SpeakerBounds) -> tuple[Int, Count]:
    """(groups,): the speaker, 0, 1, ..., of each group; and how sure their number is."""
    vectors = int(groups.weights.sum())
    bounds = SpeakerBounds(min(bounds.least, len(groups)), bounds.most)
    heights = tree.heights
    threshold = rule.threshold
    if len(heights):
        # A recording whose voices are far apart, or driven apart by noise, needs a higher threshold.
        threshold += rule.reach * max(0.0, float(heights[-1]) - threshold)
    smallest = min(rule.smallest, max(1, round(SMALLEST_SHARE * vectors)))
    merged = int(np.searchsorted(heights, threshold, side="right"))
    counts = tree.large(smallest)
    natural = int(counts[merged])
    count = _runner_up(counts, heights, merged, threshold)
    while int(counts[merged]) not in bounds:
        fitting = [place for place, number in enumerate(counts) if int(number) in bounds]
        if fitting:
            below = np.concatenate([[0.0], heights])
            merged = min(
                fitting,
                key=lambda place: (abs(int(counts[place]) - natural), abs(float(below[place]) - threshold)),
            )
            break
        smallest //= 2  # in the end one vector makes a speaker, and then any number is possible
        counts = tree.large(smallest)
    if rule.balanced and counts[merged] > 1:
        balanced = _tree(groups, "balanced", rule.distinct)
        places = np.flatnonzero(balanced.large(smallest) == counts[merged])
        if len(places):
            tree, merged = balanced, int(places[-1])
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
    joined = []
    for first in range(0, len(vectors), ROWS):
        mask = valid[first : first + ROWS]
        cosines = _cosines(_unit(vectors[first : first + ROWS][mask]), centroids)
        speakers = cosines.argmax(axis=1)
        if apart:
            from scipy.optimize import linear_sum_assignment

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


def _sums(rows: Real, labels: Int) -> Real:
    """(clusters, ...): the sum of the rows of each label 0, 1, ..."""
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
    return np.add.reduceat(rows[order], starts)


def _cosines(points: Float64, centroids: Float64) -> Float64:
    """(points, centroids): cosine similarities; the points must be unit vectors."""
    directions = centroids / np.linalg.norm(centroids, axis=1, keepdims=True)
    cosines: Float64 = points @ directions.T
    return cosines
