"""Voice vectors -> speakers of the whole recording.

A vote decides how many people there are: half of the recording is drawn again and again, clustered, and cut
at several thresholds. One tree of the whole recording then assigns the vectors. The measurements behind it:
docs/decisions/2026-11-23-one-rule.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, product
from numbers import Integral
from types import NoneType
from typing import Literal

import numpy as np

from witness.diarization import vbx
from witness.errors import UsageError
from witness.schema import (
    FRAMES,
    LOCAL_SPEAKERS,
    Bool,
    Count,
    Float32,
    Float64,
    Int,
    Linkage,
    Rule,
    sole_speech,
)

NOBODY = -1
SMALLEST_SHARE = 0.05  # of all vectors: a cluster with it is a speaker in any recording, however short
DRAWS = 20  # of half of the recording
STRETCH = 5.0  # seconds drawn together; a sound is in windows of three such stretches: few draws lack it
THRESHOLDS = np.linspace(0.9, 1.1, 5)  # at which each draw is cut, as parts of the rule's
GOLDEN = (5**0.5 - 1) / 2
MANY = 4000  # most groups that get a full matrix of distances: 128 MB
BLOCK = 2000  # neighboring vectors or groups that are condensed together to an eighth
BALANCE = 0.4  # how much the size of clusters counts in a balanced tree: 0 is centroid linkage, 1 is Ward's
ROWS = 4096  # windows worked on together
SLICE = 256  # rows of distances copied together: 8 MB

Tree = Linkage | Literal["balanced"]


@dataclass(frozen=True)
class SpeakerBounds:
    """Limits for the number of speakers; equal bounds give exactly that many if there are enough vectors.

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
    """The speaker of each local speaker, and how sure their number is."""

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

    def __len__(self) -> int:
        return len(self.points)

    @staticmethod
    def single(points: Float64) -> _Groups:
        """Groups of one vector each."""
        return _Groups(points, np.ones(len(points)), np.arange(len(points)))


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
    chosen, windows = vectors[train], np.nonzero(train)[0]
    groups = _condense(chosen, rule)
    if plda is not None and len(groups) > 1:
        tree = _tree(groups, rule.linkage)
        first = tree.cut(int(np.searchsorted(tree.heights, rule.threshold, side="right")))
        centroids = _variational(chosen, groups, first, plda, step)
        labels[valid] = np.unique(_join(vectors, active, valid, centroids), return_inverse=True)[1]
        if (number := int(labels.max()) + 1) in bounds:
            return Clusters(labels, Count(number))
    count = _vote(groups, windows, _draws(len(vectors), max(1, round(STRETCH / step))), rule, bounds)
    speakers = _split(groups, count.found, rule)
    centroids = _means(groups.points, groups.weights, speakers)
    labels[valid] = _join(vectors, active, valid, centroids)
    if len(np.unique(labels[valid])) < len(centroids):  # a speaker lost all of its vectors to others
        labels[train] = speakers[groups.of]
    return Clusters(labels, count if count.found == len(centroids) else Count(len(centroids)))


def _clean(active: Bool) -> Int:
    """(windows, 3): the number of frames of clean speech of each local speaker."""
    clean = np.empty((len(active), active.shape[2]), np.intp)
    for first in range(0, len(active), ROWS):
        clean[first : first + ROWS] = sole_speech(active[first : first + ROWS]).sum(axis=1)
    return clean


def _condense(vectors: Float32, rule: Rule) -> _Groups:
    """At most MANY groups; if there are more vectors, the most alike of neighbors are merged first.

    Every BLOCK neighbors are merged to an eighth, by the linkage of `rule`. Distances between groups stay
    exact, so the result is that of one tree if that tree makes the same merges.
    """
    groups = _Groups.single(_unit(vectors))
    while len(groups) > MANY:
        slices = [slice(first, first + BLOCK) for first in range(0, len(groups), BLOCK)]
        parts = [_eighth(groups.points[part], groups.weights[part], rule) for part in slices]
        offsets = np.cumsum([0] + [len(part) for part in parts])
        of = np.concatenate([part.of + offset for part, offset in zip(parts, offsets, strict=False)])
        groups = _Groups(
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.weights for part in parts]),
            of[groups.of],
        )
    return groups


def _eighth(points: Float64, weights: Float64, rule: Rule) -> _Groups:
    """An eighth of some groups, by the linkage of `rule`."""
    single = _Groups(points, weights, np.arange(len(points)))
    clusters = _tree(single, rule.linkage).cut(len(points) - -(-len(points) // 8))
    return _Groups(
        _means(points, weights, clusters), np.bincount(clusters, weights).astype(np.float64), clusters
    )


def _tree(groups: _Groups, linkage: Tree) -> _Tree:
    """All merges of the groups, the closest first: scipy's `linkage`, but for groups with weights.

    Lance-Williams updates of squared distances, where each row remembers its nearest neighbor (Müllner,
    "Modern hierarchical, agglomerative clustering algorithms", the generic algorithm). "average" is over all
    pairs of unit vectors of two groups, which is 2 - 2 a.b of their means a and b. "balanced" is
    d² (mn / (m + n))^BALANCE for means d apart of m and n vectors, halfway from "centroid" to Ward's: the
    less there is of a voice, the further off its mean is by chance.
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

    def costs_of(rows: Int) -> Float64:
        """Return the (rows, clusters) costs of merging, as squared distances."""
        squared, row_sizes = distances[rows], sizes[rows, None]
        return (
            squared * (row_sizes * sizes / (row_sizes + sizes)) ** BALANCE
            if linkage == "balanced"
            else squared
        )

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
        names[survivor], sizes[survivor] = count + step, total
        least[absorbed] = np.inf
        (costs,) = costs_of(np.array([survivor]))
        closer = costs < least
        stale |= ((near == absorbed) | (near == survivor)) & ~gone
        near[closer], least[closer], stale[closer] = survivor, costs[closer], False
        near[survivor], least[survivor], stale[survivor] = costs.argmin(), costs.min(), False
    return _Tree(merges, weights)


def _draws(windows: int, stretch: int) -> Bool:
    """(DRAWS, windows): the windows of each draw: half of all stretches of so many windows, rounded up.

    Draw n takes the stretches i with the smallest fractions of i n GOLDEN. That spreads them evenly, and
    every machine draws the same.
    """
    stretches = -(-windows // stretch)
    places = np.outer(np.arange(1, DRAWS + 1), np.arange(1, stretches + 1)) * GOLDEN % 1
    order = places.argsort(axis=1, kind="stable")
    drawn = np.zeros((DRAWS, stretches), np.bool_)
    np.put_along_axis(drawn, order[:, : -(-stretches // 2)], True, axis=1)
    return np.repeat(drawn, stretch, axis=1)[:, :windows]


def _vote(groups: _Groups, windows: Int, draws: Bool, rule: Rule, bounds: SpeakerBounds) -> Count:
    """Return the number of speakers that most draws have; of equally frequent numbers the smallest.

    `windows` is the window of each vector, `draws` is (draws, all windows). Each draw is clustered by the
    linkage of `rule` and cut at each of THRESHOLDS times its threshold. A number that `bounds` exclude gets
    no vote. If none is left, it is the bound that is nearest to the number of the others.
    """
    if bounds.least == bounds.most:
        return Count(bounds.least)
    votes = np.zeros(len(groups) + 1, np.intp)
    half = replace(rule, smallest=max(1, round(rule.smallest / 2)))
    # Of a short recording there are few different draws.
    different, times = np.unique(draws[:, windows], axis=0, return_counts=True)
    for drawn, repeats in zip(different, times, strict=True):
        weights = np.bincount(groups.of, drawn, len(groups)).astype(np.float64)
        places = np.flatnonzero(weights)
        if not len(places):
            continue
        tree = _tree(_Groups(groups.points[places], weights[places], places), rule.linkage)
        counts = tree.large(_least(half, weights.sum()))
        cuts = np.searchsorted(tree.heights, THRESHOLDS * rule.threshold, side="right")
        np.add.at(votes, np.maximum(counts[cuts], 1), repeats)
    allowed = np.array([number in bounds for number in range(len(votes))])
    if not (votes * allowed).any():
        number = max(int(votes.argmax()), bounds.least)
        return Count(number if bounds.most is None else min(number, bounds.most))
    order = np.argsort(-(votes * allowed), kind="stable")
    winner, second = (int(number) for number in order[:2])
    runner_up = second if (votes * allowed)[second] else None
    return Count(winner, runner_up, float(votes[winner] / votes.sum()))


def _least(rule: Rule, vectors: float) -> int:
    """Vectors that make a speaker where there are so many."""
    return min(rule.smallest, max(1, round(SMALLEST_SHARE * vectors)))


def _split(groups: _Groups, number: int, rule: Rule) -> Int:
    """(groups,): the speaker, 0, 1, ..., of each group; `number` of them if there are as many groups."""
    number = min(number, len(groups))
    smallest = _least(rule, groups.weights.sum())
    tree = _tree(groups, "balanced")
    while not (fitting := np.flatnonzero(tree.large(smallest) == number)).size:
        smallest //= 2  # in the end one vector makes a speaker, and then any number is possible
    labels = tree.cut(int(fitting[-1]))
    large = np.flatnonzero(np.bincount(labels, groups.weights) >= smallest)
    members = np.isin(labels, large)
    speakers = np.searchsorted(large, labels)
    if not members.all():
        means = _means(groups.points[members], groups.weights[members], speakers[members])
        speakers[~members] = _cosines(groups.points[~members], means).argmax(axis=1)
    return speakers


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


def _join(vectors: Float32, active: Bool, valid: Bool, centroids: Float64) -> Int:
    """(valid vectors,): the closest speaker of each.

    But local speakers of one window who talk at the same time are different people, as far as there are
    enough: of all ways to name them it is the one with the greatest sum of cosines. A local speaker too many
    joins the closest, since losing its speech costs as much as confusing it.
    """
    joined = []
    for first in range(0, len(vectors), ROWS):
        mask, part = valid[first : first + ROWS], slice(first, first + ROWS)
        cosines = np.zeros((*mask.shape, len(centroids)))
        cosines[mask] = _cosines(_unit(vectors[part][mask]), centroids)
        speakers = cosines.argmax(axis=2)
        pairs = list(combinations(range(LOCAL_SPEAKERS), 2))
        together = np.stack(
            [
                (active[part, :, i] & active[part, :, j]).any(axis=1) & mask[:, i] & mask[:, j]
                for i, j in pairs
            ],
            axis=1,
        )
        same = np.stack([speakers[:, i] == speakers[:, j] for i, j in pairs], axis=1)
        if (clash := (together & same).any(axis=1)).any():
            speakers[clash] = _apart(cosines[clash], together[clash], pairs)
        joined.append(speakers[mask])
    return np.concatenate(joined)


def _apart(cosines: Float64, together: Bool, pairs: list[tuple[int, int]]) -> Int:
    """(windows, 3): a speaker for each local speaker, different ones for those who talk `together`.

    `cosines` is (windows, 3, speakers), 0 for a local speaker without a vector; `together` is (windows,
    pairs). Of three local speakers none needs more than its three closest speakers.
    """
    closest = np.argsort(-cosines, axis=2, kind="stable")[:, :, :LOCAL_SPEAKERS]
    ways = np.array(list(product(range(closest.shape[2]), repeat=LOCAL_SPEAKERS)))  # (ways, 3)
    named = closest[:, np.arange(LOCAL_SPEAKERS), ways]  # (windows, ways, 3)
    total = np.take_along_axis(cosines, named.transpose(0, 2, 1), axis=2).sum(axis=1)
    for pair, (i, j) in enumerate(pairs):
        total -= 100 * (together[:, pair, None] & (named[:, :, i] == named[:, :, j]))
    best: Int = named[np.arange(len(named)), total.argmax(axis=1)]
    return best


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
    return np.add.reduceat(rows[order], starts)


def _cosines(points: Float64, centroids: Float64) -> Float64:
    """(points, centroids): cosine similarities; the points must be unit vectors."""
    directions = centroids / np.linalg.norm(centroids, axis=1, keepdims=True)
    cosines: Float64 = points @ directions.T
    return cosines
