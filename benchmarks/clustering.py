"""Ways to cluster, on the same recordings and the same arrays: how the defaults were chosen.

    python benchmarks/conversations.py --train TRAIN --rttm DEV --out FOLDER
    python benchmarks/clustering.py FOLDER --cache CACHE [--models builtin|DIR] [--only PATTERN] [--json FILE]
    python benchmarks/clustering.py FOLDER --cache CACHE --long
    python benchmarks/clustering.py FOLDER --cache CACHE --margins [--json FILE]

FOLDER holds FILE.flac beside FILE.rttm. Segmentation and voice vectors are computed once for each recording
and kept in CACHE under the sha256 of the models, so new weights need nothing but this command. Windows are
1 s apart here, for which the rules are made; steps.py measures other steps. "default" is what Witness does
with these models, and every other row changes one thing in it. DER: collar 0, overlap counted, over whole
recordings; "files" is the mean of the recordings' own rates, in which a short one counts as much as a long
one. The last columns: pooled DER minus the default's, and its 95 % interval from drawing recordings. Pauses
are not filled here (`Rule.pause` is 0): these references, unlike those made by people, end at every pause.
`--long` instead clusters all recordings joined to one, condensed and not, and 24 hours made of them.
`--margins` tells how often the number of speakers and its runner-up are right, by the margin between them.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import platform
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy.linalg import eigh
from scipy.ndimage import gaussian_filter1d
from scipy.optimize import linear_sum_assignment

from witness import __version__
from witness.audio import decode
from witness.diarization import clustering, embedding, reconstruction, segmentation, vbx
from witness.formats import rttm
from witness.models import store
from witness.schema import (
    FRAME_STEP,
    FRAMES,
    LOCAL_SPEAKERS,
    Bool,
    Float32,
    Float64,
    Int,
    Rule,
    Segmentation,
    Turn,
)
from witness.sessions import on_cores

DRAWS = 10_000
LAG = 10  # windows of 10 s, 1 s apart: so far apart they share no sound


@dataclass(frozen=True)
class Case:
    """One recording as the clustering sees it."""

    name: str
    duration: float
    windows: Segmentation
    vectors: Float32
    reference: list[Turn]


def cases(folder: Path, cache: Path, chosen: store.DiarizationModels, threads: int) -> list[Case]:
    """Every recording with a reference; from the cache if it is there."""
    cache.mkdir(parents=True, exist_ok=True)
    paths = sorted(folder.glob("*.rttm"))
    if not paths:
        sys.exit(
            f"{folder}: has no FILE.rttm beside a FILE.flac; benchmarks/conversations.py makes such a folder"
        )
    loaded: list[object] = []
    found = []
    for number, path in enumerate(paths, start=1):
        sound = path.with_suffix(".flac")
        digest = hashlib.sha256(sound.read_bytes()).hexdigest()[:16]
        bits = cache / f"{digest}-{chosen.segmentation.sha256[:16]}.npz"
        voice = cache / f"{digest}-{chosen.segmentation.sha256[:16]}-{chosen.embedding.sha256[:16]}.npz"
        if not bits.exists() or not voice.exists():
            if not loaded:
                loaded = [segmentation.load(chosen.segmentation), embedding.load(chosen.embedding)]
            recording = decode.load(str(sound))
            (samples,) = recording.samples
            with on_cores(threads) as mapper:
                if not bits.exists():
                    windows = segmentation.segment(
                        samples,
                        loaded[0],  # type: ignore[arg-type]
                        step=1.0,
                        faint=chosen.rule.faint,
                        mapper=mapper,
                    )
                    np.savez(bits, active=np.packbits(windows.active), duration=recording.source.duration)
                windows = _windows(bits)
                vectors = embedding.embed(samples, [windows], loaded[1], mapper=mapper)  # type: ignore[arg-type]
                np.savez(voice, vectors=vectors)
            sys.stderr.write(f"{number} of {len(paths)}: {path.stem}\n")
        (reference,) = rttm.parse(path.read_text()).values()
        duration = float(np.load(bits)["duration"])
        found.append(Case(path.stem, duration, _windows(bits), np.load(voice)["vectors"], reference))
    return found


def _windows(bits: Path) -> Segmentation:
    flat = np.unpackbits(np.load(bits)["active"])
    whole = len(flat) // (FRAMES * LOCAL_SPEAKERS) * (FRAMES * LOCAL_SPEAKERS)
    return Segmentation.regular(flat[:whole].reshape(-1, FRAMES, LOCAL_SPEAKERS).astype(np.bool_))


# --- the variants: functions of a case that never see the truth, apart from `told` ---


def plain(case: Case, rule: Rule) -> list[Turn]:
    """What Witness does."""
    return turns(case, clustering.cluster(case.vectors, case.windows.active, rule).labels)


def long_step(case: Case, rule: Rule) -> list[Turn]:
    """The rule of the original Witness: 0.05 more in a recording of more than 600 s with 300 vectors."""
    long = case.duration > 600 and train(case, rule).sum() >= 300
    return plain(case, replace(rule, threshold=rule.threshold + 0.05 * long))


def from_neighbors(case: Case, rule: Rule, base: float, slope: float) -> list[Turn]:
    """The threshold from pairs that are surely one voice: the same local speaker, LAG windows later."""
    points, places = units(case), chains(case)
    far = [np.linalg.norm(points[w, i] - points[w + LAG, j]) for w, i, j in places]
    within = float(np.median(far)) if len(far) >= 3 else 0.5
    return plain(case, replace(rule, threshold=min(2.0, base + slope * within), reach=0.0))


def from_spread(case: Case, rule: Rule, base: float, slope: float) -> list[Turn]:
    """The threshold from the distances of windows that share no sound, most of which are of two voices."""
    chosen = train(case, rule)
    points, at = units(case)[chosen], np.argwhere(chosen)[:, 0]
    apart = np.abs(at[:, None] - at) >= LAG
    if apart.sum() < 10:
        return plain(case, replace(rule, reach=0.0))
    far = float(np.quantile(np.sqrt(np.maximum(0, 2 - 2 * points @ points.T))[apart], 0.9))
    return plain(case, replace(rule, threshold=base + slope * far, reach=0.0))


def smoothed(case: Case, rule: Rule, lag: int) -> list[Turn]:
    """Each vector averaged with those around it of the same local speaker, as far as it can be followed."""
    points = np.nan_to_num(units(case)) * np.maximum(5, frames_alone(case))[:, :, None]
    total = points.copy()
    for distance in range(1, lag + 1):
        for window, one, other in chains(case, distance):
            total[window, one] += points[window + distance, other]
            total[window + distance, other] += points[window, one]
    known = np.isfinite(case.vectors).all(axis=2)
    vectors = np.where(known[:, :, None], total, np.nan).astype(np.float32)
    return plain(replace(case, vectors=vectors), rule)


def weighted(case: Case, rule: Rule, power: float) -> list[Turn]:
    """Vectors count in proportion to a power of the clean speech they come from."""
    chosen = train(case, rule)
    if chosen.sum() < 2:
        return plain(case, rule)
    weights = np.maximum(5, frames_alone(case)[chosen]) ** power
    weights *= len(weights) / weights.sum()
    points = units(case)[chosen]
    groups = clustering._Groups(points, weights, np.arange(len(points)))
    tree = clustering._tree(groups, rule.linkage)
    speakers, _ = clustering._agglomerate(groups, tree, rule, clustering.SpeakerBounds())
    return turns(case, joined(case, points, speakers, 1))


def another_balance(case: Case, rule: Rule, power: float) -> list[Turn]:
    """Who is who by a tree to which the size of clusters matters more, or less."""
    kept = clustering.BALANCE
    clustering.BALANCE = power
    try:
        return plain(case, replace(rule, balanced=True))
    finally:
        clustering.BALANCE = kept


def told(case: Case, rule: Rule) -> list[Turn]:
    """With the true number of speakers, which no other variant knows."""
    number = len({turn.speaker for turn in case.reference})
    bounds = clustering.SpeakerBounds(number, number)
    return turns(case, clustering.cluster(case.vectors, case.windows.active, rule, bounds=bounds).labels)


def variational(
    case: Case, rule: Rule, others: Callable[[Case], SmallPlda], fa: float, fb: float
) -> list[Turn]:
    """VBx from the default's first tree cut at its threshold, with a PLDA that did not see this recording."""
    chosen = train(case, rule)
    if chosen.sum() < 2:
        return plain(case, rule)
    points, plda = units(case)[chosen], others(case)
    tree = clustering._tree(clustering._Groups.single(points), rule.linkage)
    labels = tree.cut(int(np.searchsorted(tree.heights, rule.threshold, side="right")))
    gamma = vbx.refine(plda.project(points), plda.phi, labels, np.ones(len(points)), vbx.Strength(fa, fb))
    centroids = gamma.T @ points / gamma.sum(axis=0)[:, None]
    result = np.full(chosen.shape, clustering.NOBODY)
    known = np.isfinite(case.vectors).all(axis=2)
    result[known] = clustering._join(case.vectors, known, centroids, apart=rule.apart)
    return turns(case, result)


def reassigned(case: Case, rule: Rule) -> list[Turn]:
    """Each turn is assigned again: the mean of the vectors behind it goes to the closest speaker's mean."""
    labels = clustering.cluster(case.vectors, case.windows.active, rule).labels
    points, weights = np.nan_to_num(units(case)), frames_alone(case).astype(float)
    count = int(labels.max(initial=-1)) + 1
    means = np.array([(points * weights[:, :, None])[labels == one].sum(axis=0) for one in range(count)])
    means /= np.maximum(1e-9, np.linalg.norm(means, axis=1, keepdims=True)) if count else 1
    found = []
    starts = case.windows.frame_starts
    for turn in turns(case, labels):
        total = np.zeros(points.shape[2])
        if turn.duration >= 1:
            for window in np.flatnonzero(
                (starts * FRAME_STEP < turn.end) & (starts * FRAME_STEP + 10 > turn.start)
            ):
                first, last = (int(edge / FRAME_STEP) - starts[window] for edge in (turn.start, turn.end))
                inside = case.windows.active[window, max(0, first) : max(0, last)].sum(axis=0)
                mine = labels[window] == int(turn.speaker)
                total += (points[window] * (inside * mine)[:, None]).sum(axis=0)
        speaker = str(int((means @ total).argmax())) if total.any() else turn.speaker
        found.append(Turn(turn.start, turn.end, speaker))
    return found


def smoothed_evidence(case: Case, rule: Rule, frames: float) -> list[Turn]:
    """The evidence is smoothed over time, so that ties do not flicker."""
    found = diarization(case, rule)
    evidence = gaussian_filter1d(found.evidence[:], frames, axis=0) * (found.evidence[:] > 0)
    count = reconstruction.speaker_count(case.windows)
    active = reconstruction._top(evidence.astype(np.float32), count, evidence.sum(axis=0))
    return named(case, active)


def steadied(case: Case, rule: Rule, epsilon: float) -> list[Turn]:
    """On a tie within `epsilon`, the speaker of the frame before continues (speakrs: 0.1)."""
    found = diarization(case, rule)
    count = reconstruction.speaker_count(case.windows)
    active = np.zeros(found.active.shape, np.bool_)
    before = np.zeros(found.active.shape[1], np.bool_)
    totals = found.evidence[:].sum(axis=0)
    for frame, evidence in enumerate(found.evidence[:]):
        score = (evidence + epsilon * before) * (evidence > 0)
        before = reconstruction._top(score[None], count[frame : frame + 1], totals)[0]
        active[frame] = before
    return named(case, active)


def least_lengths(case: Case, rule: Rule, on: float, off: float) -> list[Turn]:
    """Pauses of up to `off` seconds are filled, then turns of less than `on` seconds dropped."""
    found: list[Turn] = []
    before = plain(case, rule)
    for speaker in sorted({turn.speaker for turn in before}):
        mine: list[Turn] = []
        for turn in (turn for turn in before if turn.speaker == speaker):
            if mine and turn.start - mine[-1].end <= off:
                turn = replace(turn, start=mine.pop().start)
            mine.append(turn)
        found += [turn for turn in mine if turn.duration >= on]
    return sorted(found)


def hysteresis(case: Case, rule: Rule, onset: float, offset: float) -> list[Turn]:
    """Each speaker by themselves: a turn reaches `onset` somewhere and stays above `offset`."""
    evidence = diarization(case, rule).evidence[:]
    active = np.zeros(evidence.shape, np.bool_)
    for speaker in range(evidence.shape[1]):
        above = evidence[:, speaker] > offset
        for first, last in np.flatnonzero(np.diff(above.astype(np.int8), prepend=0, append=0)).reshape(-1, 2):
            active[first:last, speaker] = evidence[first:last, speaker].max() >= onset
    return named(case, active)


def variants(rule: Rule, others: Callable[[Case], SmallPlda]) -> dict[str, Callable[[Case], list[Turn]]]:
    """Name -> function of a case. Steps are relative to `rule`, so they fit other weights, too."""
    t, r = rule.threshold, rule.reach
    fixed = replace(rule, reach=0.0)
    old = Rule("average", 1.10, apart=True)
    rules = {
        "default": rule,
        "before (fixed 1.10, apart)": old,
        **{f"fixed {t + d:.2f}": replace(fixed, threshold=t + d) for d in (-0.1, 0.0, 0.05, 0.1, 0.15, 0.2)},
        **{
            f"threshold {t + d:.2f} reach {r + e:.1f}": replace(rule, threshold=t + d, reach=r + e)
            for d in (-0.05, 0.0, 0.05)
            for e in (-0.1, 0.0, 0.1)
            if (d or e) and 0 <= r + e <= 1
        },
        "apart: two of a window are two people": replace(rule, apart=True),
        "one tree": replace(rule, balanced=False),
        **{f"distinct {n:g}": replace(rule, distinct=n) for n in (0, 0.1, 0.2, 0.4)},
        **{f"smallest {n}": replace(rule, smallest=n) for n in (4, 12, 20)},
        **{f"shortest {n}": replace(rule, shortest=n) for n in (0.05, 0.2, 0.3)},
        **{f"centroid, fixed {n}": replace(fixed, linkage="centroid", threshold=n) for n in (0.7, 0.8, 0.9)},
    }
    others_than_rules: dict[str, Callable[[Case], list[Turn]]] = {
        "the original's: + 0.05 when long": partial(long_step, rule=old),
        "threshold from own pairs": partial(from_neighbors, rule=rule, base=0.9, slope=0.3),
        "threshold from own spread": partial(from_spread, rule=rule, base=0.42, slope=0.5),
        "vectors smoothed over 3 windows": partial(smoothed, rule=rule, lag=3),
        "vectors smoothed over 5 windows": partial(smoothed, rule=rule, lag=5),
        **{f"balance {n:g}": partial(another_balance, rule=rule, power=n) for n in (0, 0.25, 0.75, 1)},
        "told the number": partial(told, rule=rule),
        "told the number, one tree": partial(told, rule=replace(rule, balanced=False)),
        "weighted by sqrt of clean speech": partial(weighted, rule=rule, power=0.5),
        "weighted by clean speech": partial(weighted, rule=rule, power=1.0),
        **{
            f"VBx Fa {fa} Fb {fb:g}": partial(variational, rule=rule, others=others, fa=fa, fb=fb)
            for fa, fb in ((0.05, 1.0), (0.05, 4.0), (0.05, 10.0), (0.1, 4.0), (0.1, 10.0))
        },
        "final turns assigned again": partial(reassigned, rule=rule),
        "tie smoothing 0.1": partial(steadied, rule=rule, epsilon=0.1),
        "evidence smoothed over 0.1 s": partial(smoothed_evidence, rule=rule, frames=5),
        "turns of 0.1 s at least": partial(least_lengths, rule=rule, on=0.1, off=0.0),
        "turns of 0.3 s at least": partial(least_lengths, rule=rule, on=0.3, off=0.0),
        "pauses to 0.1 s filled": partial(least_lengths, rule=rule, on=0.0, off=0.1),
        "pauses to 0.3 s filled": partial(least_lengths, rule=rule, on=0.0, off=0.3),
        "hysteresis 0.6, 0.4": partial(hysteresis, rule=rule, onset=0.6, offset=0.4),
    }
    return {name: partial(plain, rule=one) for name, one in rules.items()} | others_than_rules


# --- what they share ---


def units(case: Case) -> Float64:
    """(windows, 3, dims): vectors of length 1, NaN where there is none."""
    wide = case.vectors.astype(np.float64)
    result: Float64 = wide / np.linalg.norm(wide, axis=2, keepdims=True)
    return result


def frames_alone(case: Case) -> Int:
    return clustering._clean(case.windows.active)


def train(case: Case, rule: Rule) -> Bool:
    """(windows, 3): the vectors that take part in clustering."""
    known = np.isfinite(case.vectors).all(axis=2)
    chosen: Bool = known & (frames_alone(case) >= rule.shortest * FRAMES)
    return chosen if chosen.any() else known


def chains(case: Case, lag: int = LAG) -> list[tuple[int, int, int]]:
    """(window, local speaker, the same one `lag` windows later), followed by overlap."""
    active, starts = case.windows.active, case.windows.frame_starts
    known = np.isfinite(case.vectors).all(axis=2)
    following = np.full((len(active), LOCAL_SPEAKERS), -1)
    for window in range(len(active) - 1):
        hop = starts[window + 1] - starts[window]
        one, other = active[window, hop:].astype(int), active[window + 1, : FRAMES - hop].astype(int)
        together = one.T @ other
        for i, j in zip(*linear_sum_assignment(-together), strict=True):
            if together[i, j] >= 30 and together[i, j] > 0.7 * max(one[:, i].sum(), other[:, j].sum()):
                following[window, i] = j
    found = []
    for window, local in np.argwhere(known[: max(0, len(active) - lag)]):
        now = int(local)
        for step in range(lag):
            now = int(following[window + step, now])
            if now < 0:
                break
        if now >= 0 and known[window + lag, now]:
            found.append((int(window), int(local), now))
    return found


def joined(case: Case, points: Float64, labels: Int, smallest: int) -> Int:
    """(windows, 3): every vector's speaker, the closest mean of the clusters that are large enough."""
    sizes = np.bincount(labels)
    large = np.flatnonzero(sizes >= min(smallest, sizes.max()))
    centroids = np.stack([points[labels == one].mean(axis=0) for one in large])
    known = np.isfinite(case.vectors).all(axis=2)
    result = np.full(known.shape, clustering.NOBODY)
    result[known] = clustering._join(case.vectors, known, centroids, apart=False)
    return result


def diarization(case: Case, rule: Rule) -> reconstruction.Diarization:
    labels = clustering.cluster(case.vectors, case.windows.active, rule).labels
    return reconstruction.reconstruct(case.windows, labels)


def turns(case: Case, labels: Int) -> list[Turn]:
    return named(case, reconstruction.reconstruct(case.windows, labels).active)


def named(case: Case, active: Bool) -> list[Turn]:
    return reconstruction.turns(active.T, [str(number) for number in range(active.shape[1])], case.duration)


def folds(found: list[Case], rule: Rule) -> Callable[[Case], SmallPlda]:
    """A PLDA for each recording, made of two thirds of the others: better than one from elsewhere."""

    @cache
    def of(fold: int) -> SmallPlda:
        parts = [one for number, case in enumerate(found) if number % 3 != fold for one in spoken(case, rule)]
        everything = np.concatenate(parts)
        mean = everything.mean(axis=0)
        parts = [(part - mean) / np.linalg.norm(part - mean, axis=1, keepdims=True) for part in parts]
        within = sum(np.cov(part.T, bias=True) for part in parts) / len(parts) + 1e-4 * np.eye(len(mean))
        between = np.cov(np.array([part.mean(axis=0) for part in parts]).T)
        dims = min(32, len(mean))
        phi, directions = eigh(between, within)
        return SmallPlda(mean, directions[:, ::-1][:, :dims], np.maximum(phi[::-1][:dims], 1e-6))

    number = {case.name: place for place, case in enumerate(found)}
    return lambda case: of(number[case.name] % 3)


@dataclass(frozen=True)
class SmallPlda:
    """A PLDA without the second normalization of community-1's."""

    mean: Float64
    directions: Float64
    phi: Float64

    def project(self, vectors: Float64) -> Float64:
        centered = vectors - self.mean
        features: Float64 = centered / np.linalg.norm(centered, axis=1, keepdims=True) @ self.directions
        return features


def spoken(case: Case, rule: Rule) -> Iterator[Float64]:
    """Vectors of each voice of the reference, where the segmentation has it nearly pure."""
    names = sorted({turn.speaker for turn in case.reference})
    total = reconstruction.frame_count(case.windows)
    truth = np.zeros((total, len(names)), int)
    for turn in case.reference:
        truth[round(turn.start / FRAME_STEP) : round(turn.end / FRAME_STEP), names.index(turn.speaker)] = 1
    points, chosen = units(case), train(case, rule)
    owners = np.full(chosen.shape, -1)
    for window, start in enumerate(case.windows.frame_starts):
        part = truth[start : start + FRAMES]
        shared = case.windows.active[window, : len(part)].astype(int).T @ part
        pure = shared.max(axis=1) > 0.9 * case.windows.active[window].sum(axis=0)
        owners[window] = np.where(pure, shared.argmax(axis=1), -1)
    for voice in range(len(names)):
        mine = points[chosen & (owners == voice)][:60]
        if len(mine) >= 8:
            yield mine


# --- scores ---


def errors(reference: list[Turn], hypothesis: list[Turn], duration: float) -> Float64:
    """Seconds of false alarm, missed, confusion, speech; Jaccard errors, their number; speakers too many.

    Exact, between all edges of turns; a test compares it with pyannote.metrics.
    """
    edges = [0.0, duration, *(edge for turn in (*reference, *hypothesis) for edge in (turn.start, turn.end))]
    cuts = np.unique(np.clip(edges, 0, duration))
    lengths = np.diff(cuts)

    def matrix(found: list[Turn]) -> Bool:
        names = sorted({turn.speaker for turn in found})
        active = np.zeros((len(lengths), len(names)), np.bool_)
        for turn in found:
            first, last = np.searchsorted(cuts, np.clip([turn.start, turn.end], 0, duration))
            active[first:last, names.index(turn.speaker)] = True
        return active

    true, said = matrix(reference), matrix(hypothesis)
    many, heard = true.sum(axis=1), said.sum(axis=1)
    together = (true * lengths[:, None]).T @ said.astype(float)
    rows, columns = linear_sum_assignment(-together)
    right = together[rows, columns]
    own, other = (true * lengths[:, None]).sum(axis=0)[rows], (said * lengths[:, None]).sum(axis=0)[columns]
    return np.array(
        [
            lengths @ np.maximum(0, heard - many),
            lengths @ np.maximum(0, many - heard),
            lengths @ np.minimum(many, heard) - right.sum(),
            lengths @ many,
            true.shape[1] - (right / np.maximum(1e-9, own + other - right)).sum(),
            true.shape[1],
            said.shape[1] - true.shape[1],
        ]
    )


def summary(scores: Float64, base: Float64) -> dict[str, float | list[float]]:
    """Rates in percent of (recordings, 7) errors, and their difference from those of the default."""
    total = scores.sum(axis=0)
    draws = np.random.default_rng(0).multinomial(len(scores), np.full(len(scores), 1 / len(scores)), DRAWS)

    def rates(values: Float64) -> Float64:
        sums = draws @ values
        result: Float64 = 100 * sums[:, :3].sum(axis=1) / sums[:, 3]
        return result

    false_alarm, missed, confusion = (100 * total[:3] / total[3]).tolist()
    per_file = 100 * scores[:, :3].sum(axis=1) / scores[:, 3]
    difference = 100 * (total[:3].sum() / total[3] - base.sum(axis=0)[:3].sum() / base.sum(axis=0)[3])
    return {
        "der": false_alarm + missed + confusion,
        "false_alarm": false_alarm,
        "missed": missed,
        "confusion": confusion,
        "files": float(per_file.mean()),
        "jer": float(100 * total[4] / total[5]),
        "exact": int((scores[:, 6] == 0).sum()),
        "bias": float(scores[:, 6].mean()),
        "difference": float(difference),
        "interval": np.percentile(rates(scores) - rates(base), [2.5, 97.5]).tolist(),
    }


def line(name: str, row: dict[str, float | list[float]]) -> str:
    rates = [row[key] for key in ("der", "false_alarm", "missed", "confusion", "files", "jer")]
    change = [row["bias"], row["difference"], *row["interval"]]  # type: ignore[misc]
    numbers = [*(f"{rate:6.2f}" for rate in rates), f"{row['exact']:6}", *(f"{one:+6.2f}" for one in change)]
    return f"{name:38} {' '.join(numbers)}\n"


COLUMNS = ("", "DER", "FA", "miss", "conf", "files", "JER", "exact", "bias", "minus default, 95 %")
HEADER = "{:38} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>20}\n".format(*COLUMNS)


def long(found: list[Case], rule: Rule) -> dict[str, float]:
    """How much condensing changes, and what 24 hours cost, in seconds of one core."""
    from sklearn.metrics import adjusted_rand_score  # comes with pyannote.metrics

    vectors = np.concatenate([case.vectors for case in found])
    active = np.concatenate([case.windows.active for case in found])
    known = np.isfinite(vectors).all(axis=2)
    many, block = clustering.MANY, clustering.BLOCK
    result: dict[str, float] = {"windows": len(vectors), "vectors": int(known.sum())}
    clustering.MANY = 10**9
    begun = time.process_time()
    whole = clustering.cluster(vectors, active, rule)
    result["full_seconds"] = time.process_time() - begun
    for size, part in ((many, block), (1000, 500), (250, 250)):
        clustering.MANY, clustering.BLOCK = size, part
        condensed = clustering.cluster(vectors, active, rule)
        rand = adjusted_rand_score(whole.labels[known], condensed.labels[known])
        result[f"adjusted_rand_{size}_{part}"] = float(rand)
        result[f"speakers_{size}_{part}"] = condensed.count.found
    clustering.MANY, clustering.BLOCK = many, block
    result["speakers_full"] = whole.count.found
    for hours in (1, 4, 24):
        # Copies, each slightly different from the others.
        order = np.arange(hours * 3600) % len(vectors)
        jitter = np.random.default_rng(0).normal(0, 0.1, (len(order), 1, vectors.shape[2]))
        scale = np.nanmean(np.abs(vectors))
        copies = vectors[order] + (scale * jitter).astype(np.float32)
        windows = active[order]
        del jitter
        tracemalloc.start()
        begun = time.process_time()
        labels = clustering.cluster(copies, windows, rule).labels
        result[f"seconds_{hours}_h"] = time.process_time() - begun
        result[f"peak_mb_{hours}_h"] = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.reset_peak()
        begun, speakers = time.process_time(), int(labels.max()) + 1
        reconstruction.reconstruct(Segmentation.regular(windows), labels).exclusive()
        result[f"reconstruction_seconds_{hours}_h"] = time.process_time() - begun
        result[f"reconstruction_peak_mb_{hours}_h"] = tracemalloc.get_traced_memory()[1] / 1e6
        result[f"speakers_{hours}_h"] = speakers
        tracemalloc.stop()
    return result


def margins(found: list[Case], rule: Rule) -> dict[str, dict[str, int]]:
    """Margin up to which the runner-up is near -> recordings, and in how many each number is right."""
    counts = [clustering.cluster(case.vectors, case.windows.active, rule).count for case in found]
    truth = [len({turn.speaker for turn in case.reference}) for case in found]
    result = {}
    for limit in (0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, np.inf):
        near = [
            (count, true)
            for count, true in zip(counts, truth, strict=True)
            if (np.inf if count.margin is None else count.margin) <= limit
        ]
        result[str(limit)] = {
            "recordings": len(near),
            "found_right": sum(count.found == true for count, true in near),
            "runner_up_right": sum(count.runner_up == true for count, true in near),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="builtin", help="builtin, standard, community-1 or a folder")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--only", default="*", help="a pattern of variants; the default is always included")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--long", action="store_true", help="measure what condensing changes and costs")
    parser.add_argument("--margins", action="store_true", help="measure how sure the number of speakers is")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    chosen = store.diarization_models(args.models, offline=True)
    if chosen.plda:
        sys.exit(
            f"{args.models}: its clustering was published with its PLDA; there is nothing to decide here"
        )
    found = cases(args.folder, args.cache, chosen, args.threads)
    if args.long or args.margins:
        measure = long if args.long else margins
        text = json.dumps(measure(found, chosen.rule), indent=1) + "\n"
        sys.stdout.write(text)
        if args.json:
            args.json.write_text(text)
        return
    everything = variants(chosen.rule, folds(found, chosen.rule))
    wanted = [name for name in everything if name == "default" or fnmatch.fnmatch(name, args.only)]
    sys.stdout.write(
        f"{len(found)} recordings, {sum(case.duration for case in found) / 3600:.2f} h, {chosen.rule}\n"
    )
    sys.stdout.write(HEADER)
    scores: dict[str, Float64] = {}
    for name in wanted:
        scores[name] = np.array([errors(c.reference, everything[name](c), c.duration) for c in found])
        sys.stdout.write(line(name, summary(scores[name], scores["default"])))
        sys.stdout.flush()
    kinds = {
        part: [n for n, case in enumerate(found) if part in case.name.split("_")] for part in _parts(found)
    }
    if len(kinds) > 1:
        sys.stdout.write("\nthe default, by parts of the names\n" + HEADER)
        for part, places in kinds.items():
            some = scores["default"][places]
            sys.stdout.write(line(f"{part} ({len(places)})", summary(some, some)))
    if args.json:
        document = {
            "witness": __version__,
            "python": platform.python_version(),
            "models": {"segmentation": chosen.segmentation.sha256, "embedding": chosen.embedding.sha256},
            "rule": asdict(chosen.rule),
            "convention": "strict: collar 0, overlap counted, whole recordings",
            "variants": {name: _rounded(summary(rows, scores["default"])) for name, rows in scores.items()},
            "recordings": {
                case.name: np.round(row, 2).tolist()
                for case, row in zip(found, scores["default"], strict=True)
            },
        }
        args.json.write_text(json.dumps(document, indent=1) + "\n")


def _parts(found: list[Case]) -> list[str]:
    """Parts that several names have in common, such as "call" or "same" in call_00_2spk_same."""
    parts = [part for case in found for part in case.name.split("_") if not part.isdigit()]
    return [part for part in dict.fromkeys(parts) if 1 < parts.count(part) < len(found)]


def _rounded(row: dict[str, float | list[float]]) -> dict[str, float | list[float]]:
    return {
        key: [round(one, 2) for one in value] if isinstance(value, list) else round(value, 2)
        for key, value in row.items()
    }


if __name__ == "__main__":
    main()
