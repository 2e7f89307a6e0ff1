"""Is a number of speakers on which most draws of a recording's windows agree righter than the shipped one?

    python benchmarks/counting.py arrays FOLDER --out ARRAYS
    python benchmarks/stability.py ARRAYS [ARRAYS ...] [--models builtin|DIR] [--json FILE]

The windows of each recording are drawn again, in four ways, and every draw is clustered. "vote" is told the
number that most draws have; "consensus" is average linkage of how often two vectors were one speaker, cut at
a half. Figures of both: as counting.py has them.

"warning": how well a figure tells a right number from a wrong one, as the area under the ROC curve. "margin"
is what Witness prints, "same number" the share of draws that have the number, "alike" how sure the draws are
of who is with whom.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import report
from clustering import DRAWS, Case, errors, turns
from counting import load, scores, summary
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from scipy.stats import rankdata

from witness.diarization import clustering
from witness.models import store
from witness.schema import CLOSE, Bool, Float64, Int, Rule

REDRAWN = 30  # draws of each recording
STRETCH = 10.0  # seconds: windows that are nearer share sound
WAYS = ("windows", "stretches", "half", "left out")


def draws(case: Case, way: str) -> Iterator[Int]:
    """The windows of each draw: as many windows or stretches as there are, drawn with replacement; half of
    the windows; or all but a quarter of the recording, another one each time.
    """
    count, rng = len(case.windows.starts), np.random.default_rng(0)
    length = max(1, min(round(STRETCH / case.windows.step), count // 4))
    for number in range(REDRAWN):
        if way == "windows":
            places = rng.integers(count, size=count)
        elif way == "stretches":
            firsts = rng.integers(count - length + 1, size=-(-count // length))
            places = (firsts[:, None] + np.arange(length)).ravel()
        elif way == "half":
            places = rng.choice(count, (count + 1) // 2, replace=False)
        else:
            first = round(number * count / REDRAWN)
            places = np.delete(np.arange(count), (first + np.arange(count // 4)) % count)
        yield np.sort(places)


def redrawn(case: Case, rule: Rule, places: Int) -> tuple[int, Int]:
    """How many speakers a draw has, and which of them is the closest to each vector of the recording."""
    share = min(1.0, len(places) / len(case.windows.starts))
    smaller = replace(rule, smallest=max(1, round(rule.smallest * share)))
    vectors, active = case.vectors[places], case.windows.active[places]
    found = clustering.cluster(vectors, active, smaller, step=case.windows.step)
    labels = np.full(case.vectors.shape[:2], clustering.NOBODY, np.intp)
    valid = np.isfinite(case.vectors).all(axis=2)
    labels[valid] = 0
    if (known := found.labels != clustering.NOBODY).any():
        speakers = np.unique(found.labels[known], return_inverse=True)[1]
        points = clustering._unit(vectors[known])
        centroids = clustering._means(points, np.ones(len(points)), speakers)
        labels[valid] = clustering._join(case.vectors, valid, centroids, apart=False)
    return found.count.found, labels


def vote(numbers: list[int], shipped: int) -> int:
    """The most frequent; of several the one that is nearest to what is shipped."""
    return max(sorted(set(numbers)), key=lambda number: (numbers.count(number), -abs(number - shipped)))


def consensus(together: Float64, smallest: int) -> Int:
    """(vectors,): clusters of vectors that were one speaker in most draws; a small one joins the closest."""
    if len(together) < 2:
        return np.zeros(len(together), np.intp)
    tree = linkage(squareform(1 - together, checks=False), "average")
    labels = fcluster(tree, 0.5, "distance") - 1
    sizes = np.bincount(labels)
    least = min(smallest, max(1, round(clustering.SMALLEST_SHARE * len(labels))), sizes.max())
    large = np.flatnonzero(sizes >= least)
    closest = np.stack([together[:, labels == one].mean(axis=1) for one in large], axis=1).argmax(axis=1)
    result: Int = np.where(sizes[labels] >= least, np.searchsorted(large, labels), closest)
    return result


def area(figures: Float64, right: Bool) -> float:
    """Under the ROC curve: how often a right number has the higher figure than a wrong one."""
    many, few = int(right.sum()), int((~right).sum())
    return (float(rankdata(figures)[right].sum()) - many * (many + 1) / 2) / max(1, many * few)


def warning(figures: Float64, margins: Float64, right: Bool) -> dict[str, object]:
    rng = np.random.default_rng(0)
    drawn = [rng.integers(len(right), size=len(right)) for _ in range(DRAWS // 5)]
    drawn = [places for places in drawn if 0 < right[places].sum() < len(right)]
    areas = [np.array([area(some[places], right[places]) for places in drawn]) for some in (figures, margins)]
    return {
        "area": round(area(figures, right), 3),
        "interval": np.percentile(areas[0], [2.5, 97.5]).round(3).tolist(),
        "minus_margin": round(area(figures, right) - area(margins, right), 3),
        "minus_margin_interval": np.percentile(areas[0] - areas[1], [2.5, 97.5]).round(3).tolist(),
    }


def drawn_again(
    case: Case, found: clustering.Clusters, rule: Rule, way: str
) -> tuple[Float64, Float64, Float64]:
    """The errors of the vote and of the consensus; the two figures that could warn."""
    step, number, known = case.windows.step, found.count.found, found.labels != clustering.NOBODY
    numbers, labels = zip(*(redrawn(case, rule, places) for places in draws(case, way)), strict=True)
    most = vote([max(1, one) for one in numbers], number)
    bounds = clustering.SpeakerBounds(most, most)
    voted = clustering.cluster(case.vectors, case.windows.active, rule, step=step, bounds=bounds).labels
    together = np.mean([one[known][:, None] == one[known] for one in labels], axis=0)
    agreed = found.labels.copy()
    agreed[known] = consensus(together, max(1, round(rule.smallest / step)))
    alike = -np.mean(together * (1 - together)) if known.any() else 0.0
    figures = np.array([np.mean(np.array(numbers) == number), alike])
    voted_errors, agreed_errors = (
        errors(case.reference, turns(case, one), case.duration) for one in (voted, agreed)
    )
    return voted_errors, agreed_errors, figures


def stability(cases: list[Case], rule: Rule) -> dict[str, object]:
    shipped = [clustering.cluster(c.vectors, c.windows.active, rule, step=c.windows.step) for c in cases]
    base, told = (np.array([scores(case, rule, told=told) for case in cases]) for told in (False, True))
    right = base[:, 6] == 0
    margins = np.array([np.inf if one.count.margin is None else one.count.margin for one in shipped])
    near = margins <= CLOSE
    rows: dict[str, object] = {
        "default": summary(base, told, base),
        "margin": warning(margins, margins, right),
        "near a tie": {"recordings": int(near.sum()), "right": int(right[near].sum())},
        "not near": {"recordings": int((~near).sum()), "right": int(right[~near].sum())},
    }
    for way in WAYS:
        pairs = zip(cases, shipped, strict=True)
        results = [drawn_again(case, found, rule, way) for case, found in pairs]
        voted, agreed, figures = (np.array(part) for part in zip(*results, strict=True))
        rows[f"vote, {way}"] = summary(voted, told, base)
        rows[f"consensus, {way}"] = summary(agreed, told, base)
        rows[f"same number, {way}"] = warning(figures[:, 0], margins, right)
        rows[f"alike, {way}"] = warning(figures[:, 1], margins, right)
        sys.stderr.write(f"{way}\n")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--models", default="builtin", help="builtin or a folder")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cases = [load(path) for folder in args.folders for path in sorted(folder.glob("*.npz"))]
    if not cases:
        sys.exit(f"{args.folders[0]}: has no arrays; benchmarks/counting.py arrays writes them")
    rows = stability(cases, store.diarization_models(args.models, offline=True).rule)
    report.show({"recordings": len(cases), "rows": rows}, args.json)


if __name__ == "__main__":
    main()
