"""The clustering rule against the same rule with one thing changed, on the same arrays.

    pip install '.[bench]'
    python benchmarks/clustering.py FOLDER --cache CACHE [--models campplus|builtin|DIR] [--group PATTERN]

FOLDER holds FILE.flac beside FILE.rttm. What the networks find in a recording is computed once and kept in
CACHE, with Witness's own steps between windows. DER: collar 0, overlap counted, whole recordings, pauses
filled as the rule says; in percent, pooled over the recordings of a group, of which there may be several.
"less shipped": the difference with its 95 % interval from drawing recordings. "votes": how often the number
of speakers and its runner-up are right, by the share of votes that it has, and how often the vote found
another number than one cut.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import harness
import numpy as np

from witness.audio import decode
from witness.bench import resampling, scoring
from witness.diarization import clustering, reconstruction, segmentation, voice_model
from witness.diarization.clustering import Clusters, SpeakerBounds
from witness.diarization.stream import Networks, stream
from witness.formats import rttm
from witness.models import store
from witness.models.session import on_cores
from witness.schema import FRAMES, LOCAL_SPEAKERS, Bool, Float64, Int, Rule, Segmentation, Track, Turn

SHARES = (0.0, 0.4, 0.5, 0.6, 0.8, 1.01)


@dataclass(frozen=True)
class Case:
    """One recording as the clustering sees it."""

    name: str
    duration: float
    track: Track
    reference: list[Turn]

    @property
    def number(self) -> int:
        """Of its speakers."""
        return len({turn.speaker for turn in self.reference})


def load(paths: list[Path], cache: Path, chosen: store.DiarizationModels, threads: int) -> Iterator[Case]:
    """Every recording; from the cache if it is there."""
    cache.mkdir(parents=True, exist_ok=True)
    networks: list[Networks] = []
    what = f"{chosen.segmentation.sha256} {chosen.embedding.sha256} {chosen.rule.faint}"
    made_by = hashlib.sha256(what.encode()).hexdigest()[:16]
    for path in paths:
        sound = path.with_suffix(".flac")
        kept = cache / f"{hashlib.sha256(sound.read_bytes()).hexdigest()[:16]}-{made_by}.npz"
        if not kept.exists():
            if not networks:
                voice = voice_model.load(chosen.embedding)
                networks = [Networks(segmentation.load(chosen.segmentation), voice, chosen.rule.faint)]
            recording = decode.load(str(sound))
            with on_cores(threads) as mapper:
                track = stream(recording.samples[0], networks[0], mapper=mapper)
                np.savez(
                    kept,
                    active=np.packbits(track.windows.active),
                    starts=track.windows.starts,
                    vectors=track.vectors,
                    duration=recording.source.duration,
                )
            sys.stderr.write(f"{path.stem}\n")
        with np.load(kept) as arrays:
            flat = np.unpackbits(arrays["active"])[: len(arrays["starts"]) * FRAMES * LOCAL_SPEAKERS]
            active = flat.reshape(-1, FRAMES, LOCAL_SPEAKERS).astype(np.bool_)
            track = Track(Segmentation(active, arrays["starts"]), arrays["vectors"])
            (reference,) = rttm.parse(path.read_text()).values()
            yield Case(path.stem, float(arrays["duration"]), track, reference)


# --- the rows ---


def clustered(case: Case, rule: Rule, bounds: SpeakerBounds = SpeakerBounds()) -> Clusters:
    """What Witness does."""
    windows = case.track.windows
    return clustering.cluster(case.track.vectors, windows.active, rule, step=windows.step, bounds=bounds)


def told(case: Case, rule: Rule) -> Clusters:
    """With the true number, which no other row knows."""
    return clustered(case, rule, SpeakerBounds(case.number, case.number))


def one_cut(case: Case, rule: Rule) -> Clusters:
    """The number of one tree, of the whole, at the rule's own threshold."""
    return undrawn(case, rule, np.ones(1))


def thresholds_only(case: Case, rule: Rule) -> Clusters:
    """A vote over thresholds, of the whole."""
    return undrawn(case, rule, clustering.THRESHOLDS)


def undrawn(case: Case, rule: Rule, thresholds: Float64) -> Clusters:
    """The number from the whole, cut at `thresholds`."""
    whole = replace(rule, smallest=2 * rule.smallest)  # draws of half of the recording need half as many
    with patched(_draws=lambda windows, _: np.ones((1, windows), np.bool_), THRESHOLDS=thresholds):
        number = max(1, clustered(case, whole).count.found)
    return clustered(case, rule, SpeakerBounds(number, number))


def one_tree(case: Case, rule: Rule) -> Clusters:
    """Who is who by the tree of the vote."""
    tree = clustering._tree
    with patched(_tree=lambda groups, _: tree(groups, rule.linkage)):
        return clustered(case, rule)


def nobody_apart(case: Case, rule: Rule) -> Clusters:
    """Who talk at the same time may be one speaker."""
    with patched(_apart=lambda cosines, *_: cosines.argmax(axis=2)):
        return clustered(case, rule)


@contextmanager
def patched(**names: Any) -> Iterator[None]:
    """Other values of names in the module of the clustering."""
    kept = {name: getattr(clustering, name) for name in names}
    for name, value in names.items():
        setattr(clustering, name, value)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(clustering, name, value)


def another(**changes: Any) -> Callable[[Case, Rule], Clusters]:
    return lambda case, rule: clustered(case, replace(rule, **changes))


def moved(move: float) -> Callable[[Case, Rule], Clusters]:
    return lambda case, rule: clustered(case, replace(rule, threshold=rule.threshold + move))


def set_to(**names: Any) -> Callable[[Case, Rule], Clusters]:
    def row(case: Case, rule: Rule) -> Clusters:
        with patched(**names):
            return clustered(case, rule)

    return row


ROWS: dict[str, Callable[[Case, Rule], Clusters]] = {
    "shipped": clustered,
    "one cut": one_cut,
    "thresholds only": thresholds_only,
    "one tree": one_tree,
    "who talk together may be one": nobody_apart,
    **{f"threshold {move:+}": moved(move) for move in (-0.1, -0.05, 0.05, 0.1)},
    **{f"stretches of {seconds} s": set_to(STRETCH=seconds) for seconds in (2.0, 10.0)},
    "10 draws": set_to(DRAWS=10),
    **{f"balance {power}": set_to(BALANCE=power) for power in (0.25, 0.5)},
    **{f"smallest share {share}": set_to(SMALLEST_SHARE=share) for share in (0.025, 0.1)},
    **{f"smallest {size}": another(smallest=size) for size in (4, 12)},
    "told the number": told,
}


# --- the figures ---


def errors(case: Case, labels: Int, rule: Rule) -> Float64:
    """(5,): seconds of false alarm, missed detection, confusion and speech; speakers too many."""
    found = reconstruction.reconstruct(case.track.windows, labels)
    reconstruction.fill_pauses([found.active], rule.pause)
    active: Bool = found.steadied().active
    names = [str(number) for number in range(active.shape[1])]
    turns = reconstruction.turns(active.T, names, case.duration)
    (score,) = scoring.score({"f": (case.reference, turns)}, {"f": [(0.0, case.duration)]})
    return np.array([*score.seconds["strict"], score.hypothesis_speakers - score.reference_speakers])


def summary(rows: Float64, shipped: Float64) -> dict[str, object]:
    rates, base = (
        100 * some[:, :3].sum(axis=1) / some[:, 3]
        for some in (resampling.sums(rows), resampling.sums(shipped))
    )
    parts = 100 * rows[:, :3].sum(axis=0) / rows[:, 3].sum()
    extra = rows[:, 4]
    whole = 100 * shipped[:, :3].sum() / shipped[:, 3].sum()
    return {
        "der": round(float(parts.sum()), 1),
        "interval": np.round(resampling.interval(rates), 1).tolist(),
        "confusion": round(float(parts[2]), 1),
        "right": f"{int((extra == 0).sum())} of {len(extra)}",
        "bias": round(float(extra.mean()), 2),
        "less shipped": round(float(parts.sum() - whole), 1),
        "less shipped, interval": np.round(resampling.interval(rates - base), 1).tolist(),
    }


def votes(cases: list[Case], rule: Rule) -> dict[str, object]:
    counts = [clustered(case, rule).count for case in cases]
    cuts = [one_cut(case, rule).count.found for case in cases]
    right = np.array([count.found == case.number for count, case in zip(counts, cases, strict=True)])
    second = np.array([count.runner_up == case.number for count, case in zip(counts, cases, strict=True)])
    once = np.array([cut == case.number for cut, case in zip(cuts, cases, strict=True)])
    other = np.array([cut != count.found for cut, count in zip(cuts, counts, strict=True)])
    shares = np.array([1.0 if count.share is None else count.share for count in counts])
    table = {}
    for low, high in pairwise(SHARES):
        some = (shares > low) & (shares <= high)
        figures = some.sum(), (some & right).sum(), (some & second).sum()
        table[f"share up to {min(high, 1.0)}"] = dict(
            zip(("recordings", "right", "runner-up right"), map(int, figures), strict=True)
        )
    return {
        "recordings": len(cases),
        "right": int(right.sum()),
        "right with one cut": int(once.sum()),
        "changed": int(other.sum()),
        "changed, right": int((other & right).sum()),
        "changed, right with one cut": int((other & once).sum()),
        "by share": table,
    }


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--models", default="builtin", help="a set or a folder")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--group", action="append", default=[], help="a pattern of file names; repeatable")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    chosen = store.diarization_models(args.models, offline=True)
    groups: dict[str, object] = {}
    everything: dict[str, Case] = {}
    for group in args.group or ["*"]:
        paths = sorted(path for folder in args.folders for path in folder.glob(f"{group}.rttm"))
        if not paths:
            parser.error(f"there is no {group}.rttm in the folders")
        cases = list(load(paths, args.cache, chosen, args.threads))
        everything |= {case.name: case for case in cases}
        scores = {
            name: np.array([errors(case, row(case, chosen.rule).labels, chosen.rule) for case in cases])
            for name, row in ROWS.items()
        }
        groups[group] = {name: summary(rows, scores["shipped"]) for name, rows in scores.items()}
    figures = {
        "models": {"segmentation": chosen.segmentation.sha256, "embedding": chosen.embedding.sha256},
        "recordings": list(everything),
        "groups": groups,
        "votes": votes(list(everything.values()), chosen.rule),
    }
    harness.show(figures, args.json)


if __name__ == "__main__":
    main()
