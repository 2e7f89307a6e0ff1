"""How good the estimate of the time that is left is: what it said during a run against what was left.

    pip install '.[bench]'
    python benchmarks/estimates.py FILE... [--whisper base] [--models campplus] [--json OUT]

Each FILE is transcribed twice, with no memory of earlier runs: "first" has the weights that Witness brings,
and "again" those of the first run. The figures are the whole time that the estimate implied once a tenth, a
quarter and half of the whole time had gone, as a ratio to the true one; null: it said nothing yet. Other
programs that begin or end during a run make any estimate wrong, so the machine must be idle.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness

from witness import Engine, Options, caching
from witness.cli.live import RunCourse

SHARES = (0.1, 0.25, 0.5)


def said(recording: Path, options: Options) -> dict[str, Any]:
    """What a run said while it worked."""
    course, told = RunCourse(), list[tuple[float, float]]()

    def progress(stage: str, done: float, total: float) -> None:
        left = course.hear(stage, done, total)
        if left is not None and left.seconds is not None:
            gone = time.monotonic() - begun
            told.append((gone, gone + left.seconds))

    course.engine = Engine(options, progress=progress)
    begun = time.monotonic()
    course.engine.transcribe(recording)
    whole = time.monotonic() - begun
    course.learn()
    ratios = {}
    for share in SHARES:
        before = [implied for gone, implied in told if gone <= share * whole]
        ratios[f"{share:g}"] = round(before[-1] / whole, 2) if before else None
    return {"seconds": round(whole, 1), "ratios": ratios}


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("recordings", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--whisper", default="auto")
    parser.add_argument("--models", default="auto")
    asked = parser.parse_args()
    options = Options(models=asked.models, whisper=asked.whisper, offline=True)
    Engine(options).open()  # what is made of a model once is no part of a recording's time
    kept, figures = caching.cache_folder() / "models", {}
    for recording in asked.recordings:
        with TemporaryDirectory() as cache:
            Path(cache, "models").symlink_to(kept)
            os.environ["WITNESS_CACHE"] = cache
            runs = {when: said(recording, options) for when in ("first", "again")}
        figures[recording.name] = runs
    harness.show({"whisper": asked.whisper, "models": asked.models, "estimates": figures}, asked.json)


if __name__ == "__main__":
    main()
