"""How good the estimate of the time that is left is: what it says during a run against what was left.

    pip install '.[bench]'
    python benchmarks/estimates.py FILE... [--whisper base]... [--models campplus]... [--json OUT]

Each FILE is transcribed once with each pair of models. Of what the run tells of its stages, an estimate is
made as the first time on a machine ("first": it expects what `witness.work.eta.PRIOR` has), and as on one
that knows its pace ("again": from the FILE before, from the last for the first). The figures are the whole
time that the estimate implied once a tenth, a quarter and half of the whole time had gone, as a ratio to the
true one; null: it said nothing yet. Other programs that begin or end during a run make any estimate wrong, so
the machine must be idle.

"processor" are the processor seconds of each stage for a unit of its work, in all processes: the medians are
what belongs into PRIOR and WORDS, which other programs disturb less.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import harness

from witness import Engine, Options
from witness.work import eta
from witness.work.eta import Estimate, Workload

SHARES = (0.1, 0.25, 0.5)
TICKS = os.sysconf("SC_CLK_TCK")


class Told(NamedTuple):
    """What a run told of a stage, and when."""

    time: float
    processor: float
    stage: str
    done: float
    total: float


class Replay:
    """A clock that stands where what was told is read again."""

    def __init__(self, told: list[Told], processor: bool = False) -> None:
        self._told, self._processor = told, processor
        self.now = 0.0

    def into(self, estimate: Estimate) -> list[tuple[float, float]]:
        """When the estimate said something: seconds, and the whole time it implied."""
        said = []
        for one in self._told:
            self.now = one.processor if self._processor else one.time
            estimate.update(one.stage, one.done, one.total)
            if (left := estimate.left) is not None:
                said.append((self.now, self.now + left))
        return said


def processor() -> float:
    """Seconds that this process and those below it have had so far."""
    ticks = 0
    for member in harness.family(os.getpid()):
        with suppress(OSError):
            _, _, fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")
            ticks += sum(map(int, fields.split()[11:13]))
    return ticks / TICKS


def recorded(options: Options, recording: Path) -> tuple[float, list[Told]]:
    """The whole time of a run, and what it told."""
    told: list[Told] = []

    def progress(stage: str, done: float, total: float) -> None:
        told.append(Told(time.monotonic() - begun, processor() - used, stage, done, total))

    engine = Engine(options, progress=progress)
    begun, used = time.monotonic(), processor()
    engine.transcribe(recording)
    return time.monotonic() - begun, told


def ratios(whole: float, said: list[tuple[float, float]]) -> dict[str, float | None]:
    """Of the implied whole time to the true one."""
    found = {}
    for share in SHARES:
        before = [implied for gone, implied in said if gone <= share * whole]
        found[f"{share:g}"] = round(before[-1] / whole, 2) if before else None
    return found


def judged(workload: Workload, runs: list[tuple[float, list[Told]]]) -> Iterator[dict[str, Any]]:
    """What the estimates of each run said."""
    for before, (whole, told) in zip([runs[-1], *runs], runs, strict=False):
        replays = [Replay(one) for one in (before[1], told, told)]
        earlier, first, again = replays
        with TemporaryDirectory() as cache, patch.dict(os.environ, WITNESS_CACHE=cache):
            said = first.into(new := eta.start_estimate(workload, clock=lambda: first.now))  # noqa: B023
            earlier.into(known := eta.start_estimate(workload, clock=lambda: earlier.now))  # noqa: B023
            eta.remember(workload, known)
            said_again = again.into(eta.start_estimate(workload, clock=lambda: again.now))  # noqa: B023
        used = Replay(told, processor=True)
        used.into(spent := Estimate(workload.prior, workload.step, clock=lambda: used.now))  # noqa: B023
        yield {
            "seconds": round(whole, 1),
            "first": ratios(whole, said),
            "again": ratios(whole, said_again),
            "stages": {stage: round(one, 5) for stage, one in new.pace().items()},
            "processor": {stage: round(one, 5) for stage, one in spent.pace().items()},
        }


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("recordings", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--whisper", action="append")
    parser.add_argument("--models", action="append")
    asked = parser.parse_args()
    figures: dict[str, Any] = {}
    for models in asked.models or ["auto"]:
        for whisper in asked.whisper or ["auto"]:
            options = Options(models=models, whisper=whisper, offline=True)
            runs = [recorded(options, recording) for recording in asked.recordings]
            names = [recording.name for recording in asked.recordings]
            rows = dict(zip(names, judged(Workload.of_engine(Engine(options)), runs), strict=True))
            used = defaultdict(list)
            for row in rows.values():
                for stage, one in row["processor"].items():
                    used[stage].append(one)
            medians = {stage: round(median(one), 5) for stage, one in used.items()}
            figures[f"{models}, {whisper}"] = {"processor": medians, "estimates": rows}
    harness.show({"kinds": figures}, asked.json)


if __name__ == "__main__":
    main()
