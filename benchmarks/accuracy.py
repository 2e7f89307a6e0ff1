"""DER of `witness.diarize` on a folder of recordings with references, pooled by group.

    pip install '.[bench]'
    python benchmarks/accuracy.py FOLDER --group 'sim_*' --group pyannote_sample

FOLDER holds FILE.flac beside FILE.rttm; docs/benchmarks.md names the sources of the published figures. Prints
a table; `--json FILE` writes all figures, by file, too. Convention "strict": collar 0, overlap counted, turns
of one speaker that overlap are one, whole files scored; errors are summed over the files of a group and
divided by its speech. The interval is from a bootstrap over files (2.5 % to 97.5 % of 10,000 draws, fixed
seed) and says little about a handful of files. Speakers: the number of files in which their number is right,
and the mean of hypothesis minus reference.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import harness
import numpy as np

from witness import Options, diarize, text
from witness.bench import pooling, scoring
from witness.formats import rttm


def score(path: Path, options: Options) -> tuple[list[float], int]:
    """Seconds of false alarm, missed detection, confusion and speech; speakers too many."""
    (reference,) = rttm.parse(path.read_text()).values()
    found = diarize(path.with_suffix(".flac"), options)
    pair = {path.stem: (reference, list(found.turns))}
    (file,) = scoring.score(pair, {path.stem: [(0.0, found.audio.duration)]})
    return list(file.seconds["strict"]), file.hypothesis_speakers - file.reference_speakers


def summary(paths: list[Path], scores: list[tuple[list[float], int]]) -> dict[str, Any]:
    seconds = np.array([parts for parts, _ in scores])
    extra = np.array([count for _, count in scores])
    sums = pooling.drawn_sums(seconds)
    rates = 100 * sums[:, :3].sum(axis=1) / sums[:, 3]
    pooled = 100 * seconds[:, :3].sum(axis=0) / seconds[:, 3].sum()
    return {
        "files": [path.stem for path in paths],
        "speech_seconds": round(float(seconds[:, 3].sum()), 1),
        "der": round(float(pooled.sum()), 1),
        "interval": [round(edge, 1) for edge in pooling.middle_95(rates)],
        **{
            part: round(float(value), 1)
            for part, value in zip(scoring.Seconds._fields[:3], pooled, strict=False)
        },
        "speakers_right": f"{int((extra == 0).sum())} of {len(extra)}",
        "speakers_bias": round(float(extra.mean()), 2),
        "by_file": {
            path.stem: {"der": round(100 * sum(parts[:3]) / parts[3], 1), "speakers_extra": count}
            for path, (parts, count) in zip(paths, scores, strict=True)
        },
    }


HEADS = (
    "recordings",
    "files",
    "DER %",
    "95 %",
    "false alarm",
    "missed",
    "confusion",
    "speakers right",
    "bias",
)


def cells(name: str, group: dict[str, Any]) -> list[str]:
    """Return the row of a group."""
    low, high = group["interval"]
    parts = [str(group[part]) for part in scoring.Seconds._fields[:3]]
    speakers = [group["speakers_right"], f"{group['speakers_bias']:+}"]
    return [name, str(len(group["files"])), str(group["der"]), f"{low} to {high}", *parts, *speakers]


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--group", action="append", default=[], help="a pattern of file names; repeatable")
    parser.add_argument("--models", default="builtin", help="builtin, standard or a folder")
    args = parser.parse_args()

    options = Options(models=args.models, offline=True)
    groups = {}
    for pattern in args.group or ["*"]:
        paths = sorted(args.folder.glob(f"{pattern}.rttm"))
        if not paths:
            sys.exit(f"{args.folder}: has no {pattern}.rttm; check --group")
        groups[pattern] = summary(paths, [score(path, options) for path in paths])
    result = {
        "models": args.models,
        "convention": "strict: collar 0, overlap counted, a speaker's own overlapping turns merged, "
        "pooled over files, whole files scored",
        "groups": groups,
    }
    harness.show(
        result, args.json, text.table([HEADS, *(cells(name, group) for name, group in groups.items())])
    )


if __name__ == "__main__":
    main()
