"""Damaged recordings through the whole command: python tests/fuzz/campaign.py [--first 0] [--count 3000]

Each goes through `witness FILE -f json -o ...` in a process of its own, forked from one that has imported
everything and opened the models. Not allowed: a traceback, a message of more than a line, an exit code that
the README does not name for one recording, more than a minute, more than 1 GB, a result that is no JSON. The
last line is the sum as JSON; the exit code is 1 if there was any of these.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import trials
from corpus import mutated, seeds

CODES = {0, 4}
"""A damaged recording is read as far as it goes, or it cannot be read; nothing else fits."""


OPTIONS = ["-q", "-f", "json", "--models", "builtin", "--offline", "--whisper", "none", "--threads", "1"]


def complaint(ended: trials.Ended, out: Path) -> str | None:
    """Return the fault of an outcome; None: the outcome is allowed."""
    if (wrong := trials.complaint(ended, CODES)) is not None:
        return wrong
    lines = [line for line in ended.said.splitlines() if line]
    if len(lines) > (ended.code != 0):
        return f"{len(lines)} lines on stderr"
    if ended.code == 0:
        try:
            json.loads(out.read_text())
        except (OSError, ValueError) as error:
            return f"no result: {error}"
    return None


def campaign() -> int:
    """Run it."""
    arguments = trials.parser(__doc__, 3000).parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from witness import pipeline
    from witness.cli.main import main

    engine = pipeline.Engine(pipeline.Options(models="builtin", offline=True))
    for name in ("chosen", "segmenter", "voice"):  # opened once; the recordings are what is tried here
        opened = getattr(engine, name)
        setattr(pipeline.Engine, name, property(lambda _, opened=opened: opened))
    whole = seeds()
    found = trials.Sum()
    with tempfile.TemporaryDirectory() as folder:
        # What runs once here is imported here, and by no child: most of the time otherwise.
        (first := Path(folder, "whole")).write_bytes(next(iter(whole.values())))
        with suppress(SystemExit):
            main([str(first), *OPTIONS, "-o", str(Path(folder, "out.json"))])
        for number in range(arguments.first, arguments.first + arguments.count):
            name, data = mutated(number, whole)
            path, out = Path(folder, name), Path(folder, "out.json")
            path.write_bytes(data)
            out.unlink(missing_ok=True)
            line = [str(path), *OPTIONS, "-o", str(out)]
            ended = trials.alone(lambda line=line: trials.command(*line), Path(folder, "stderr"))
            found.add("recording", name, ended, complaint(ended, out))
            path.unlink()
    return found.finish(kinds=len(whole))


if __name__ == "__main__":
    sys.exit(campaign())
