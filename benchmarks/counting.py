"""How many people a recording has: how often the rule for it is right.

    python benchmarks/rooms.py develop --train TRAIN --more TRAIN2 --rttm DEV --timing AMI --out FOLDER
    python benchmarks/counting.py arrays FOLDER --out ARRAYS [--models builtin|DIR] [--workers N]
    python benchmarks/counting.py measure ARRAYS [ARRAYS ...] [--models builtin|DIR] [--json FILE]

`arrays` saves what the clustering sees of each recording, with the models' own steps between windows.
`measure`: how often the number is right (all speakers of the reference count), within one, the bias, and DER
(collar 0, overlap counted) found and with the true number, with 95 % intervals from drawing recordings; the
other rows change one thing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import report
import soundfile
from clustering import DRAWS, Case, errors, turns

from witness.diarization import clustering, embedding, segmentation
from witness.formats import rttm
from witness.models import store
from witness.schema import (
    FRAMES,
    LOCAL_SPEAKERS,
    SAMPLE_RATE,
    Float64,
    Rule,
    Segmentation,
    Turn,
)
from witness.sessions import on_cores

LONG = 300.0  # seconds: from here on windows are two seconds apart, as witness.pipeline has them

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


def scores(case: Case, rule: Rule, *, told: bool = False) -> Float64:
    """The errors of clustering.py, of which the last is the number of speakers too many."""
    number = len({turn.speaker for turn in case.reference})
    bounds = clustering.SpeakerBounds(number, number) if told else clustering.SpeakerBounds()
    step = case.windows.step
    found = clustering.cluster(case.vectors, case.windows.active, rule, step=step, bounds=bounds)
    return errors(case.reference, turns(case, found.labels), case.duration)


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
    plain = replace(rule, reach=0.0, distinct=0.0, balanced=False)
    rules = {
        "default": rule,
        "reach off": replace(rule, reach=0.0),
        "distinct off": replace(rule, distinct=0.0),
        "one tree": replace(rule, balanced=False),
        **{f"smallest {size}": replace(rule, smallest=size) for size in (4, 6, 12)},
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
    parser.add_argument("what", choices=["arrays", "measure"])
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
    report.show(measure(cases, rule), args.json)


if __name__ == "__main__":
    main()
