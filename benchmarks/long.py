"""How time and memory grow with a recording, up to a day.

    pip install '.[bench]'
    python benchmarks/long.py FOLDER [--hours 1 4 24] [--json benchmarks/results/long_builtin.json]

The recordings (*.flac) of FOLDER are joined in a seeded random order, as often as needed, each time with a
seeded gain; a shorter recording is the beginning of a longer one. Each is given to `witness run` in a
separate process, which writes JSON, RTTM and the findings, as it would for a user. Memory is the peak of the
resident set of that process. "slope" is the slope of wall time over hours, both as logarithms, between the
shortest and the longest: 1 is linear. "load" is how many processes wanted a core, sampled every ten seconds.
If it is more than the number of threads, other programs were running, and "cpu_slope", the slope of the
processor time, says more.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import harness
import numpy as np
import soundfile

from witness.audio import decode, spool
from witness.bench import machine
from witness.schema import SAMPLE_RATE

SEED = 24
GAINS = (-12.0, 0.0)  # dB


def record(folder: Path, hours: float, target: Path) -> None:
    """Write a recording of that many hours."""
    paths = sorted(folder.glob("*.flac"))
    if not paths:
        sys.exit(f"{folder}: has no FILE.flac")
    rng = np.random.default_rng(SEED)
    left = round(hours * 3600 * SAMPLE_RATE)
    with soundfile.SoundFile(target, "w", SAMPLE_RATE, 1, "PCM_16") as file:
        while left:
            for place in rng.permutation(len(paths)):
                sound = decode.load(str(paths[place])).samples[0][:left]
                file.write(sound * 10 ** (rng.uniform(*GAINS) / 20))
                left -= len(sound)


def measure(path: Path, threads: int) -> dict[str, Any]:
    """What a run on the recording cost."""
    loads: list[float] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(10):
            if (load := machine.load()) is not None:
                loads.append(load)

    watching = threading.Thread(target=look)
    watching.start()
    with TemporaryDirectory(dir=path.parent) as out:
        more = ["--models", "builtin", "--whisper", "none", "--device", "cpu", "--threads", str(threads)]
        cost = harness.transcribe(path, Path(out), [*more, "-f", "rttm"])
        wall = cost["wall"]
        over.set()
        watching.join()
        result = json.loads((Path(out) / f"{path.stem}.json").read_bytes())
        sizes = {file.name.removeprefix(path.stem): file.stat().st_size for file in Path(out).iterdir()}
    timing = {stage: seconds for stage, seconds in result["timing"].items() if seconds is not None}
    duration = result["audio"]["duration"]
    return {
        "hours": round(duration / 3600, 4),
        "wall": round(wall, 2),
        "times_real_time": round(duration / wall, 2),
        "cpu": cost["processor"],
        "peak_memory_mb": cost["peak_memory_mb"],
        "stages": timing,
        "clustering_share": round(timing["clustering"] / wall, 4),
        "speakers": len(result["speakers"]),
        "turns": len(result["turns"]),
        "result_bytes": sizes,
        "load": round(mean(loads), 2) if loads else None,
    }


def slope(recordings: list[dict[str, Any]], cost: str) -> float | None:
    """Between the shortest and the longest; None if there is only one."""
    by_hours = sorted(recordings, key=lambda one: one["hours"])
    first, last = by_hours[0], by_hours[-1]
    if first is last:
        return None
    return round(math.log(last[cost] / first[cost]) / math.log(last["hours"] / first["hours"]), 4)


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--hours", type=float, nargs="+", default=[1.0, 4.0, 24.0])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    result: dict[str, Any] = {
        "command": "python benchmarks/long.py FOLDER",
        "threads": options.threads,
        "nice": os.nice(0),
        "seed": SEED,
        "recordings": [],
    }
    with TemporaryDirectory(dir=spool.folder()) as folder:
        for hours in options.hours:
            path = Path(folder) / f"{hours:g}h.flac"
            record(options.folder, hours, path)
            result["recordings"].append(measure(path, options.threads))
            path.unlink()
            result |= {"slope": slope(result["recordings"], "wall")}
            result |= {"cpu_slope": slope(result["recordings"], "cpu")}
            harness.show(result, options.json)


if __name__ == "__main__":
    main()
