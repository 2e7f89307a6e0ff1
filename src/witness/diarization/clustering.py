"""Voice vectors -> which of them are one speaker, over the whole recording.

Agglomerative clustering of the vectors that come from enough clean speech; then every vector joins the
nearest speaker. What was measured, and what lost: docs/decisions/2026-11-21-clustering.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from witness.diarization import vbx
from witness.errors import UsageError
from witness.schema import FRAMES, LOCAL_SPEAKERS, Bool, Count, Float32, Float64, Int, Linkage, Rule, alone

NOBODY = -1
SMALLEST_SHARE = 0.1  # of all vectors: a cluster of so many is a speaker in a recording however short
MANY = 4000  # vectors, or groups of them, between which all is kept: 128 MB of distances, 64 MB of windows
BLOCK = 2000  # neighbouring ones that are condensed to an eighth together
BALANCE = 0.5  # how much the size of clusters counts in a balanced tree: 0 not at all, 1 as Ward has it
ROWS = 4096  # of anything that is worked through in pieces
SLICE = 256  # rows of distances of which copies are made at once: 8 MB each

Tree = Linkage | Literal["balanced"]
Real = TypeVar("Real", Float32, Float64)


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


@dataclass(frozen=True)
class Clusters:
    """Who is who, and how sure their number is."""

    labels: Int
    """(windows, 3): 0, 1, ... without a gap; -1 where there is nobody."""
    count: Count


@dataclass(frozen=True)
class _Groups:
    """Unit vectors, or the means of some that are surely one speaker."""

    points: Float64
    """(groups, dims)"""
    weights: Float64
    """(groups,): vectors in each."""
    of: Int
    """(vectors,): the group of each."""
    distinct: Float32 | None = None
    """(groups, groups): in how many windows vectors of both are two people; None: it does not matter."""

    def __len__(self) -> int:
        return len(self.points)

    @staticmethod
    def single(points: Float64, distinct: Float32 | None = None) -> _Groups:
        """One vector each."""
        return _Groups(points, np.ones(len(points)), np.arange(len(points)), distinct)


@dataclass(frozen=True)
class _Tree:
    """All merges of some groups, from the bottom up."""

    merges: Float64
    """(groups - 1, 4), as scipy has them; the last column counts vectors, not groups."""
    weights: Float64
    """(groups,): vectors in each."""

    @property
    def heights(self) -> Float64:
        """Of each merge; with centroid linkage one may lie under an earlier one, which then counts."""
        return np.maximum.accumulate(self.merges[:, 2])

    def cut(self, merged: int) -> Int:
        """The cluster, 0, 1, ..., of each group after so many merges."""
        from scipy.cluster.hierarchy import fcluster

        if not len(self.merges):
            return np.zeros(1, np.intp)
        # Heights that count the merges cut the tree after so many of them, whatever their order.
        count = len(self.weights)
        numbered = np.column_stack([self.merges[:, :2], np.arange(1.0, count), np.ones(count - 1)])
        return fcluster(numbered, merged, criterion="distance").astype(np.intp) - 1

    def large(self, smallest: int) -> Int:
        """(groups,): how many clusters of at least `smallest` vectors there are after 0, 1, ... merges."""
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
    """Find the speaker of each window-local speaker.

    `vectors` is (windows, 3, dims), NaN where there is too little speech; `active` is (windows, 589, 3).
    A vector counts for the `step` seconds between windows: rules are made for those 1 s apart.
    `rule` and `plda` belong to the voice model; with `plda`, the tree is only where variational Bayes begins.
    """
    labels = np.full(vectors.shape[:2], NOBODY, np.intp)
    known: Bool = np.asarray(np.isfinite(vectors).all(axis=2))
    if not known.any():
        return Clusters(labels, Count(0))
    train = known & (_clean(active) >= rule.shortest * FRAMES)
    if train.sum() < bounds.least:
        train = known  # better from short pieces than not at all

    rule = replace(rule, smallest=max(1, round(rule.smallest / step)))
    chosen = vectors[train]
    groups = _condense(chosen, np.nonzero(train)[0], rule)
    tree = _tree(groups, rule.linkage, rule.distinct)
    if plda is not None and len(groups) > 1:
        centroids = _variational(chosen, groups, tree, rule.threshold, plda, step)
        labels[known] = np.unique(_join(vectors, known, centroids, apart=rule.apart), return_inverse=True)[1]
        if (found := int(labels.max()) + 1) in bounds:
            return Clusters(labels, Count(found))
    speakers, count = _agglomerate(groups, tree, rule, bounds)
    centroids = _means(groups.points, groups.weights, speakers)
    labels[known] = _join(vectors, known, centroids, apart=rule.apart)
    if len(np.unique(labels[known])) < count.found:  # some speaker lost all of its vectors to others
        labels[train] = speakers[groups.of]
    return Clusters(labels, count)


def _clean(active: Bool) -> Int:
    """(windows, 3): frames in which a local speaker is active alone."""
    clean = np.empty((len(active), active.shape[2]), np.intp)
    for first in range(0, len(active), ROWS):
        clean[first : first + ROWS] = alone(active[first : first + ROWS]).sum(axis=1)
    return clean


def _condense(vectors: Float32, windows: Int, rule: Rule) -> _Groups:
    """At most `MANY` groups; in a recording with more vectors, neighbours go first where they are most alike.

    `windows` is the window of each vector, in order. Of every `BLOCK` neighbours an eighth is left, by the
    linkage that goes on from there. Distances between groups are exact, so the result is that of one tree as
    long as it would have made these merges, too; but windows are not looked at from block to block.
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
    """(vectors, vectors): 1 for two of one window that are further apart than `threshold`, or else 0.

    Those that are nearer may be one voice that the segmentation split in two.
    """
    distinct = np.zeros((len(points), len(points)), np.float32)
    for further in range(1, LOCAL_SPEAKERS):
        one = np.flatnonzero(windows[further:] == windows[:-further])
        other = one + further
        apart = ((points[one] - points[other]) ** 2).sum(axis=1) > threshold**2
        distinct[one, other] = distinct[other, one] = apart
    return distinct


def _part(groups: _Groups, part: slice) -> _Groups:
    points = groups.points[part]
    distinct = None if groups.distinct is None else groups.distinct[part, part]
    return _Groups(points, groups.weights[part], np.arange(len(points)), distinct)


def _eighth(groups: _Groups, rule: Rule) -> _Groups:
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
    """The merges of weighted points by falling nearness, as scipy's `linkage`, which knows no weights.

    Lance-Williams updates of squared distances; each row remembers its nearest other one (Müllner: "Modern
    hierarchical, agglomerative clustering algorithms", the generic algorithm). "average" is over all pairs of
    unit vectors behind two groups, which their means hold: it is 2 - 2 a.b. "balanced" is
    d² (mn / (m + n))^BALANCE of the means of m and n vectors, half-way from "centroid" to Ward's: the less
    there is of a voice, the further off its mean is by chance. Two clusters that were heard side by side are
    further apart: by `distinct`, as a squared distance, if that is so of all vectors of the smaller one.
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
    heard = groups.distinct.copy() if distinct and groups.distinct is not None else None

    def counted(rows: Int) -> Float64:
        """(rows, clusters): squared distances as they count."""
        squared, own = distances[rows], sizes[rows, None]
        if heard is not None:
            squared = squared + distinct * heard[rows] / np.minimum(own, sizes)
        return squared * (own * sizes / (own + sizes)) ** BALANCE if linkage == "balanced" else squared

    def nearest(rows: Int) -> tuple[Int, Float64]:
        costs = counted(rows)
        near: Int = costs.argmin(axis=1)
        return near, costs[np.arange(len(rows)), near]

    parts = [nearest(np.arange(first, min(first + SLICE, count))) for first in range(0, count, SLICE)]
    near, least = (np.concatenate(part) for part in zip(*parts, strict=True))
    for step in range(count - 1):
        one = int(least.argmin())
        other = int(near[one])
        total = sizes[one] + sizes[other]
        first, second = sorted((names[one], names[other]))
        merges[step] = first, second, np.sqrt(max(0.0, least[one])), total
        merged = (sizes[one] * distances[one] + sizes[other] * distances[other]) / total
        if linkage != "average":
            merged -= sizes[one] * sizes[other] / total**2 * distances[one, other]
        gone = np.isinf(least)
        gone[one] = True
        merged[gone] = merged[other] = np.inf
        # `other` is the merged cluster from here on, and `one` is no more.
        distances[other] = distances[:, other] = merged
        distances[one] = distances[:, one] = np.inf
        if heard is not None:
            heard[other] = heard[:, other] = heard[one] + heard[other]
        names[other], sizes[other] = count + step, total
        least[one] = np.inf
        (costs,) = counted(np.array([other]))
        nearer = costs < least
        near[nearer], least[nearer] = other, costs[nearer]
        lost = np.flatnonzero(((near == one) | (near == other)) & ~nearer & ~gone)
        lost = np.union1d(lost, other)
        near[lost], least[lost] = nearest(lost)
    return _Tree(merges, weights)


def _agglomerate(groups: _Groups, tree: _Tree, rule: Rule, bounds: SpeakerBounds) -> tuple[Int, Count]:
    """The speaker, 0, 1, ..., of each group, and how sure their number is."""
    vectors = int(groups.weights.sum())
    bounds = SpeakerBounds(min(bounds.least, vectors), bounds.most)
    heights = tree.heights
    threshold = rule.threshold
    if len(heights):
        # A recording whose voices are far apart, or whose noise drives them apart, needs a higher one.
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
        smallest //= 2  # one vector a speaker is allowed in the end, and then any number can be had
        counts = tree.large(smallest)
    if rule.balanced and counts[merged] > 1:
        other = _tree(groups, "balanced", rule.distinct)
        alike = np.flatnonzero(other.large(smallest) == counts[merged])
        if len(alike):
            tree, merged = other, int(alike[-1])
    labels = tree.cut(merged)
    large = np.flatnonzero(np.bincount(labels, groups.weights) >= smallest)
    kept = np.isin(labels, large)
    speakers = np.searchsorted(large, labels)
    if not kept.all():
        means = _means(groups.points[kept], groups.weights[kept], speakers[kept])
        speakers[~kept] = _nearness(groups.points[~kept], means).argmax(axis=1)
    return speakers, count if count.found == len(large) else Count(len(large))


def _runner_up(counts: Int, heights: Float64, merged: int, threshold: float) -> Count:
    """What the nearest other threshold would have found. `counts` is after 0, 1, ... merges at `heights`."""
    found = int(counts[merged])
    places = np.flatnonzero((counts != found) & (counts > 0))
    if not len(places):
        return Count(found)
    # After fewer merges, the next one must lie above the threshold; after more, the last one under it.
    up = np.concatenate([[0.0], heights])[places] - threshold
    down = threshold - np.concatenate([heights, [np.inf]])[places]
    moves = np.where(places > merged, up, down)
    nearest = int(moves.argmin())
    return Count(found, int(counts[places[nearest]]), max(0.0, float(moves[nearest])))


def _variational(
    vectors: Float32, groups: _Groups, tree: _Tree, threshold: float, plda: vbx.Plda, step: float
) -> Float64:
    """(speakers, dims): centroids of the speakers that are needed, as community-1 finds them."""
    raw = np.empty_like(groups.points)
    for dimension in range(vectors.shape[1]):  # means of what is not normalised, without a copy of it all
        raw[:, dimension] = np.bincount(groups.of, vectors[:, dimension], len(groups)) / groups.weights
    labels = tree.cut(int(np.searchsorted(tree.heights, threshold, side="right")))
    shares = vbx.refine(plda.project(raw), plda.phi, labels, step * groups.weights) * groups.weights[:, None]
    centroids: Float64 = shares.T @ raw / shares.sum(axis=0)[:, None]
    return centroids


def _join(vectors: Float32, known: Bool, centroids: Float64, *, apart: bool) -> Int:
    """(known vectors,): the speaker nearest to each.

    `apart`: two vectors of one window are two people, as long as there are so many, and a third one goes to
    the nearest, since to lose its speech costs as much as to confuse it (community-1 gives it up).
    """
    from scipy.optimize import linear_sum_assignment

    joined = []
    for first in range(0, len(vectors), ROWS):
        here = known[first : first + ROWS]
        near = _nearness(_unit(vectors[first : first + ROWS][here]), centroids)
        found = near.argmax(axis=1)
        if apart:
            ends = np.cumsum(here.sum(axis=1))
            for start, end in zip(ends - here.sum(axis=1), ends, strict=True):
                rows, columns = linear_sum_assignment(-near[start:end])
                found[start + rows] = columns
        joined.append(found)
    return np.concatenate(joined)


def _unit(vectors: Float32) -> Float64:
    wide: Float64 = vectors.astype(np.float64)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return wide


def _means(points: Float64, weights: Float64, labels: Int) -> Float64:
    """(clusters, dims): the mean of the vectors behind the points of each label 0, 1, ..."""
    means: Float64 = _sums(points * weights[:, None], labels) / _sums(weights, labels)[:, None]
    return means


def _sums(rows: Real, labels: Int) -> Real:
    """(clusters, ...): the sum of the rows of each label 0, 1, ..."""
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
    return np.add.reduceat(rows[order], starts)


def _nearness(points: Float64, centroids: Float64) -> Float64:
    """(points, centroids): cosines, where the points are unit vectors."""
    directions = centroids / np.linalg.norm(centroids, axis=1, keepdims=True)
    cosines: Float64 = points @ directions.T
    return cosines
