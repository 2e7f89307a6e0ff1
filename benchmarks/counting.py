"""How many people a recording has: the constants of the rule for it, and how often it is right.

    python benchmarks/rooms.py develop --train TRAIN --more TRAIN2 --rttm DEV --timing AMI --out FOLDER
    python benchmarks/counting.py arrays FOLDER --out ARRAYS [--models builtin|DIR] [--workers N]
    python benchmarks/counting.py fit ARRAYS [ARRAYS ...] [--models builtin|DIR] [--json FILE]
    python benchmarks/counting.py measure ARRAYS [ARRAYS ...] [--models builtin|DIR] [--json FILE]

`arrays` saves what the clustering sees of each recording, with the models' own steps between windows. `fit`
prints `Rule.threshold` and `Rule.corrections` for these vectors: a logistic regression of whether the two
clusters of a merge are two people, over all merges of clusters large enough to be speakers, in whole
recordings and in stretches of them (so that no length and no number of people dominates). Its log-odds are 0
where the corrected distance is the threshold. Five parts of the recordings are also left out in turn, and
counted by what the others give. `measure`: how often the number is right (all speakers of the reference
count), within one, the bias, and DER (collar 0, overlap counted) found and with the true number, with 95 %
intervals from drawing recordings; the other rows change one thing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import soundfile
from clustering import DRAWS, Case, errors, turns

from witness.diarization import clustering, embedding, reconstruction, segmentation
from witness.formats import rttm
from witness.models import store
from witness.schema import (
    FRAME_STEP,
    FRAMES,
    LOCAL_SPEAKERS,
    SAMPLE_RATE,
    Corrections,
    Float64,
    Int,
    Rule,
    Segmentation,
    Turn,
    alone,
)
from witness.sessions import on_cores

LONG = 300.0  # seconds: from here on windows are two seconds apart, as witness.pipeline has them
PURE = 0.6  # least share of a cluster's vectors that must be one person's for its merges to teach anything
RIDGE = 1.0  # penalty of the regression, in standard deviations of the features
PARTS = 5
STRETCHES = 11, 170  # windows, least and most
LEAST = 1.5  # seconds that everybody must speak in a stretch

_loaded: list = []  # of a worker: the networks and their rule


def _load(models: str) -> None:
    chosen = store.diarization_models(models, offline=True)
    _loaded[:] = segmentation.load(chosen.segmentation), embedding.load(chosen.embedding), chosen.rule


def save(path: Path, into: Path) -> str:
    """FILE.rttm and FILE.flac -> FILE.npz."""
    samples, _ = soundfile.read(path.with_suffix(".flac"), dtype="float32")
    duration = len(samples) / SAMPLE_RATE
    segment, embed, rule = _loaded
    with on_cores(1) as mapper:
        step = 1.0 if duration < LONG else 2.0
        windows = segmentation.segment(samples, segment, step=step, faint=rule.faint, mapper=mapper)
        vectors = embedding.embed(samples, [windows], embed, mapper=mapper)
    (reference,) = rttm.parse(path.read_text()).values()
    names = sorted({turn.speaker for turn in reference})
    np.savez_compressed(
        into / path.stem,
        active=np.packbits(windows.active),
        starts=windows.starts,
        vectors=vectors.astype(np.float16),
        duration=duration,
        reference=np.array([(turn.start, turn.end, names.index(turn.speaker)) for turn in reference]),
    )
    return path.stem


def load(path: Path) -> Case:
    with np.load(path) as arrays:
        starts = arrays["starts"]
        flat = np.unpackbits(arrays["active"])[: len(starts) * FRAMES * LOCAL_SPEAKERS]
        active = flat.reshape(-1, FRAMES, LOCAL_SPEAKERS).astype(np.bool_)
        reference = [Turn(float(start), float(end), f"{int(who)}") for start, end, who in arrays["reference"]]
        vectors = arrays["vectors"].astype(np.float32)
        return Case(path.stem, float(arrays["duration"]), Segmentation(active, starts), vectors, reference)


def stretches(case: Case, rng: np.random.Generator) -> list[Case]:
    """One stretch for each minute, in which everybody who speaks does so for a while."""
    count = len(case.windows.active)
    found = []
    for _ in range(round(case.duration / 60)):
        size = int(np.exp(rng.uniform(*np.log(STRETCHES))))
        if size >= count or case.windows.step > 1:
            continue
        part = slice(first := int(rng.integers(count - size + 1)), first + size)
        starts = case.windows.starts[part]
        begin, end = starts[0] / SAMPLE_RATE, min(starts[-1] / SAMPLE_RATE + 10, case.duration)
        reference = [
            Turn(max(turn.start, begin) - begin, min(turn.end, end) - begin, turn.speaker)
            for turn in case.reference
            if turn.end > begin and turn.start < end
        ]
        spoken: dict[str, float] = {}
        for turn in reference:
            spoken[turn.speaker] = spoken.get(turn.speaker, 0) + turn.duration
        if spoken and min(spoken.values()) >= LEAST:
            windows = Segmentation(case.windows.active[part], starts - starts[0])
            found.append(Case(f"{case.name}@{first}", end - begin, windows, case.vectors[part], reference))
    return found


def owners(case: Case) -> Int:
    """(windows, 3): the true speaker of most of the clean speech of each local speaker; -1: nobody."""
    names = sorted({turn.speaker for turn in case.reference})
    truth = np.zeros((reconstruction.frame_count(case.windows) + FRAMES, len(names)), np.float32)
    for turn in case.reference:
        truth[round(turn.start / FRAME_STEP) : round(turn.end / FRAME_STEP), names.index(turn.speaker)] = 1
    clean = alone(case.windows.active)
    common = np.array(
        [
            active.astype(np.float32).T @ truth[start : start + FRAMES]
            for active, start in zip(clean, case.windows.frame_starts, strict=True)
        ]
    )
    return np.where(common.any(axis=2), common.argmax(axis=2), -1)


def merges(case: Case, rule: Rule) -> list[tuple[list[float], bool]]:
    """The squared distance of each telling merge and what `Corrections` are factors of; two people or one."""
    known = np.isfinite(case.vectors).all(axis=2)
    clean = clustering._clean(case.windows.active)
    train = known & (clean >= rule.shortest * FRAMES)
    points, seconds, owner = (
        clustering._unit(case.vectors[train]),
        FRAME_STEP * clean[train],
        owners(case)[train],
    )
    if (count := len(points)) < 2:
        return []
    tree = clustering._tree(clustering._Groups.single(points, seconds), rule.linkage)
    smallest = max(1, round(rule.smallest / case.windows.step))
    smallest = min(smallest, max(1, round(clustering.SMALLEST_SHARE * count)))
    members = [[number] for number in range(count)]
    found = []
    for one, other, _, _ in tree.merges:
        pair = [members[int(one)], members[int(other)]]
        members.append(pair[0] + pair[1])
        people = [np.bincount(owner[part][owner[part] >= 0], minlength=1) for part in pair]
        sizes = [len(part) for part in pair]
        if min(sizes) < smallest or min(who.max() / max(1, who.sum()) for who in people) <= PURE:
            continue
        means = [points[part].mean(axis=0) for part in pair]
        features = [
            2 - 2 * float(means[0] @ means[1]),
            1 - min(float(mean @ mean) for mean in means),
            float(np.log(min(seconds[part].mean() for part in pair))),
            float(np.log(max(sizes) / count)),
        ]
        found.append((features, bool(people[0].argmax() != people[1].argmax())))
    return found


def fitted(rows: Sequence[tuple[list[float], bool]], rule: Rule) -> Rule:
    """The rule with the threshold and the corrections of a logistic regression."""
    features = np.array([one for one, _ in rows])
    two = np.array([differ for _, differ in rows], np.float64)
    mean, deviation = features.mean(axis=0), features.std(axis=0)
    design = np.column_stack([(features - mean) / deviation, np.ones(len(rows))])
    penalty = np.diag([RIDGE] * features.shape[1] + [0.0])
    weights = np.zeros(design.shape[1])
    for _ in range(50):  # Newton's method; ten are enough
        likely = 1 / (1 + np.exp(-design @ weights))
        slope = design.T @ (likely - two) + penalty @ weights
        weights -= np.linalg.solve((design * (likely * (1 - likely))[:, None]).T @ design + penalty, slope)
    slopes = weights[:-1] / deviation
    squared = (slopes @ mean - weights[-1]) / slopes[0]
    loose, clean, share = (slopes[1:] / slopes[0]).round(3).tolist()
    return replace(
        rule, threshold=round(float(squared**0.5), 3), corrections=Corrections(loose, clean, share)
    )


def scores(case: Case, rule: Rule, *, told: bool = False) -> Float64:
    """The errors of clustering.py, of which the last is the number of speakers too many."""
    number = len({turn.speaker for turn in case.reference})
    bounds = clustering.SpeakerBounds(number, number) if told else clustering.SpeakerBounds()
    step = case.windows.step
    found = clustering.cluster(case.vectors, case.windows.active, rule, step=step, bounds=bounds)
    return errors(case.reference, turns(case, found.labels), case.duration)


def fit(cases: list[Case], rule: Rule) -> dict[str, object]:
    rng = np.random.default_rng(0)
    parts: list[list[Case]] = [[] for _ in range(PARTS)]
    for number, case in enumerate(cases):
        parts[number % PARTS] += [case, *stretches(case, rng)]
    rows = [[row for case in part for row in merges(case, rule)] for part in parts]
    extra, whole = [], []
    for left_out, part in enumerate(parts):
        others = [row for number, some in enumerate(rows) if number != left_out for row in some]
        chosen = fitted(others, rule)
        extra += [scores(case, chosen)[-1] for case in part]
        whole += ["@" not in case.name for case in part]
    result = fitted([row for some in rows for row in some], rule)
    right = np.array(extra) == 0
    return {
        "recordings": len(cases),
        "stretches": len(right) - len(cases),
        "merges": sum(len(some) for some in rows),
        "threshold": result.threshold,
        "corrections": asdict(result.corrections) if result.corrections else None,
        "left_out_right": round(100 * float(right[whole].mean()), 1),
        "left_out_right_stretches": round(100 * float(right[~np.array(whole)].mean()), 1),
    }


def _interval(values: Float64) -> list[float]:
    return np.percentile(values, [2.5, 97.5]).round(2).tolist()


def summary(found: Float64, told: Float64, base: Float64) -> dict[str, object]:
    """Of (recordings, 7) errors with the number found and told, and those of the default."""
    draws = np.random.default_rng(0).multinomial(len(found), np.full(len(found), 1 / len(found)), DRAWS)

    def rates(some: Float64) -> Float64:
        sums = np.concatenate([some.sum(axis=0)[None], draws @ some])
        result: Float64 = 100 * sums[:, :3].sum(axis=1) / sums[:, 3]
        return result

    extra = found[:, 6]
    right = draws @ (extra == 0) / len(found) * 100
    loss, change = rates(found) - rates(told), rates(found) - rates(base)
    return {
        "exact": round(100 * float((extra == 0).mean()), 1),
        "exact_interval": _interval(right),
        "within_one": round(100 * float((np.abs(extra) <= 1).mean()), 1),
        "bias": round(float(extra.mean()), 2),
        "bias_interval": _interval(draws @ extra / len(found)),
        "der": round(float(rates(found)[0]), 2),
        "der_interval": _interval(rates(found)[1:]),
        "der_told": round(float(rates(told)[0]), 2),
        "found_minus_told": round(float(loss[0]), 2),
        "found_minus_told_interval": _interval(loss[1:]),
        "minus_default": round(float(change[0]), 2),
        "minus_default_interval": _interval(change[1:]),
    }


def measure(cases: list[Case], rule: Rule) -> dict[str, object]:
    plain = replace(rule, corrections=None)
    rules = {
        "default": rule,
        **{f"smallest {size}": replace(rule, smallest=size) for size in (3, 6, 8, 12)},
        **{f"threshold {move:+g}": replace(rule, threshold=rule.threshold + move) for move in (-0.05, 0.05)},
        **{
            f"{linkage}, fixed {threshold}": replace(plain, linkage=linkage, threshold=threshold)
            for linkage, limits in (("centroid", (0.8, 0.85, 0.9)), ("average", (1.0, 1.05, 1.1)))
            for threshold in limits
        },
    }
    kinds: dict[str, Callable[[Case], bool]] = {
        "all": lambda _: True,
        **{place: lambda case, place=place: case.name.endswith(place) for place in ("near", "far", "own")},
    }
    result: dict[str, object] = {}
    base: tuple[Float64, Float64] | None = None
    for name, one in rules.items():
        pair = tuple(np.array([scores(case, one, told=told) for case in cases]) for told in (False, True))
        base = base or pair
        result[name] = summary(*pair, base[0])
        sys.stdout.write(f"{name:24} {json.dumps(result[name])}\n")
        sys.stdout.flush()
    for kind, wanted in kinds.items():
        places = [number for number, case in enumerate(cases) if wanted(case)]
        if base and kind != "all" and places:
            found, told = (part[places] for part in base)
            result[f"default, {kind} ({len(places)})"] = summary(found, told, found)
    return {
        "recordings": len(cases),
        "hours": round(sum(case.duration for case in cases) / 3600, 2),
        "rows": result,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["arrays", "fit", "measure"])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--models", default="builtin", help="builtin or a folder")
    parser.add_argument("--out", type=Path, help="of arrays: the folder to write")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.what == "arrays":
        if args.out is None:
            parser.error("arrays needs --out")
        args.out.mkdir(parents=True, exist_ok=True)
        paths = [path for folder in args.folders for path in sorted(folder.glob("*.rttm"))]
        with ProcessPoolExecutor(args.workers, initializer=_load, initargs=(args.models,)) as pool:
            for name in pool.map(save, paths, [args.out] * len(paths)):
                sys.stderr.write(f"{name}\n")
        return
    cases = [load(path) for folder in args.folders for path in sorted(folder.glob("*.npz"))]
    if not cases:
        sys.exit(f"{args.folders[0]}: has no arrays; benchmarks/counting.py arrays writes them")
    rule = store.diarization_models(args.models, offline=True).rule
    text = json.dumps((fit if args.what == "fit" else measure)(cases, rule), indent=1) + "\n"
    sys.stdout.write(text)
    if args.json:
        args.json.write_text(text)


if __name__ == "__main__":
    main()
