"""What the shortest turn and filled pauses within a turn cost and gain, under several conventions.

    python benchmarks/turns.py FOLDER --cache CACHE [--json FILE]

FOLDER and CACHE are those of clustering.py. "strict" is collar 0, "collar" leaves out 0.25 s on each side of
a reference boundary; overlap counts in both. These references end at every pause; "people" are the same with
pauses of one speaker up to 0.8 s filled, as people label. A rate is followed by what it is less the first
row's, in points, with the 95 % interval from drawing recordings.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from clustering import DRAWS, Case, cases, errors

from witness.diarization import clustering, reconstruction
from witness.models import store
from witness.schema import FRAME_STEP, Bool, Float64, Int, Rule, Turn

COLLAR = 0.25  # seconds on each side
LABELED = 0.8  # seconds of a pause that people do not label
VARIANTS = (  # least seconds of a turn, and of a pause within one; whether turns are dropped first
    *((least, 0.0, False) for least in (0.0, 0.1, 0.15, 0.2, 0.3)),
    (0.1, 0.0, True),
    *((0.1, 0.1, False), (0.0, 0.1, False), (0.0, 0.2, False)),
)


def turns(case: Case, labels: Int, rule: Rule, least: float, pause: float, early: bool) -> list[Turn]:
    """What Witness would write with these limits; `early`: turns are dropped before pauses are filled."""
    active = reconstruction.reconstruct(case.windows, labels).active
    if early:
        _drop(active, least)
    reconstruction.fill_pauses([active], rule.pause)
    if not early:
        _drop(active, least)
    found = reconstruction.turns(active.T, [str(n) for n in range(active.shape[1])], case.duration)
    return joined(found, pause)


def _drop(active: Bool, least: float) -> None:
    kept = reconstruction.SHORTEST
    reconstruction.SHORTEST = int(np.ceil(least / FRAME_STEP))
    try:
        reconstruction.drop_flickers(active)
    finally:
        reconstruction.SHORTEST = kept


def joined(found: list[Turn], pause: float) -> list[Turn]:
    """The turns, with pauses of up to that many seconds within what one speaker says filled."""
    done: list[Turn] = []
    last: dict[str, int] = {}
    for turn in sorted(found):
        place = last.get(turn.speaker)
        if pause and place is not None and turn.start - done[place].end <= pause:
            done[place] = replace(done[place], end=max(done[place].end, turn.end))
        else:
            last[turn.speaker] = len(done)
            done.append(turn)
    return sorted(done)


def scores(case: Case, found: list[Turn]) -> Iterator[Float64]:
    """The errors, as `clustering.errors` counts them, under each convention."""
    for reference in (case.reference, joined(case.reference, LABELED)):
        yield errors(reference, found, case.duration)
        edges = sorted({edge for turn in reference for edge in (turn.start, turn.end)})
        spans = pairwise([-COLLAR, *edges, case.duration + COLLAR])
        scored = [(a + COLLAR, b - COLLAR) for a, b in spans if b - a > 2 * COLLAR]
        yield errors(_within(reference, scored), _within(found, scored), case.duration)


def _within(found: list[Turn], spans: list[tuple[float, float]]) -> list[Turn]:
    cut = [(max(a, turn.start), min(b, turn.end), turn.speaker) for turn in found for a, b in spans]
    return sorted(Turn(start, end, speaker) for start, end, speaker in cut if end > start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    chosen = store.diarization_models("builtin", offline=True)
    found = cases(args.folder, args.cache, chosen, threads=2)
    labels = [clustering.cluster(case.vectors, case.windows.active, chosen.rule).labels for case in found]
    draws = np.random.default_rng(0).multinomial(len(found), np.full(len(found), 1 / len(found)), DRAWS)

    def rates(rows: Float64) -> Float64:
        sums = draws @ rows
        result: Float64 = 100 * sums[:, :3].sum(axis=1) / sums[:, 3]
        return result

    names = ("strict", "collar", "people strict", "people collar")
    first: Float64 | None = None
    document = []
    for least, pause, early in VARIANTS:
        made = [
            turns(case, one, chosen.rule, least, pause, early)
            for case, one in zip(found, labels, strict=True)
        ]
        rows = np.array([list(scores(case, one)) for case, one in zip(found, made, strict=True)])
        first = rows if first is None else first
        total, before = rows.sum(axis=0), first.sum(axis=0)
        row: dict[str, object] = {
            "turn": least,
            "pause": pause,
            "before_pauses_are_filled": early,
            "turns": sum(map(len, made)),
            "under_0.1_s": sum(turn.duration < 0.1 for one in made for turn in one),
        }
        for place, name in enumerate(names):
            der = 100 * total[place, :3].sum() / total[place, 3]
            less = der - 100 * before[place, :3].sum() / before[place, 3]
            interval = np.percentile(rates(rows[:, place]) - rates(first[:, place]), [2.5, 97.5])
            row[name] = [round(float(number), 2) for number in (der, less, *interval)]
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
        document.append(row)
    if args.json:
        seconds = sum(case.duration for case in found)
        content = {"recordings": len(found), "hours": round(seconds / 3600, 2), "rows": document}
        args.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
