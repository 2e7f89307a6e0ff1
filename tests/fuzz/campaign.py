"""Damaged recordings through the whole command: python tests/fuzz/campaign.py [--first 0] [--count 3000]

Each goes through `witness FILE -f json -o ...` in a process of its own, forked from one that has imported
everything and opened the models. Not allowed: a traceback, a message of more than a line, an exit code that
the README does not name for one recording, more than a minute, more than 1 GB, a result that is no JSON. The
last line is the sum as JSON; the exit code is 1 if there was any of these.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from corpus import mutated, seeds

SECONDS = 60
BYTES = 1_000_000_000
CODES = {0, 4}
"""A damaged recording is read as far as it goes, or it cannot be read; nothing else fits."""


def attempt(path: Path, folder: Path) -> tuple[int, float, int, str]:
    """(exit code or -signal, seconds, peak bytes, stderr) of the command on one recording."""
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        signal.alarm(SECONDS)  # its default is to end the process
        streams = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(streams, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        from witness.cli.main import main

        code = 1
        try:
            main([str(path), *OPTIONS, "-o", str(folder / "out.json")])
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        finally:
            os._exit(code)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    text = (folder / "stderr").read_text("utf-8", "replace")
    return code, time.monotonic() - begun, usage.ru_maxrss * 1024, text


OPTIONS = ["-q", "-f", "json", "--models", "builtin", "--offline", "--whisper", "none", "--threads", "1"]


def complaint(code: int, seconds: float, peak: int, stderr: str, out: Path) -> str | None:
    """What is not allowed about the outcome; None: nothing."""
    lines = [line for line in stderr.splitlines() if line]
    if code == -signal.SIGALRM:
        return f"hung for {seconds:.0f} s"
    if code not in CODES:
        return f"exit code {code}"
    if "Traceback" in stderr or len(lines) > (code != 0):
        return f"{len(lines)} lines on stderr"
    if peak > BYTES:
        return f"{peak / 1e6:.0f} MB"
    if code == 0:
        try:
            json.loads(out.read_text())
        except (OSError, ValueError) as error:
            return f"no result: {error}"
    return None


def campaign() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=3000)
    arguments = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from witness import pipeline
    from witness.cli.main import main

    engine = pipeline.Engine(pipeline.Options(models="builtin", offline=True))
    for name in ("chosen", "segmenter", "voice"):  # opened once; the recordings are what is tried here
        opened = getattr(engine, name)
        setattr(pipeline.Engine, name, property(lambda _, opened=opened: opened))
    whole = seeds()
    codes: Counter[int] = Counter()
    slowest, largest, bad = 0.0, 0, 0
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
            found = attempt(path, Path(folder))
            codes[found[0]] += 1
            slowest, largest = max(slowest, found[1]), max(largest, found[2])
            if (wrong := complaint(*found, out)) is not None:
                bad += 1
                sys.stdout.write(f"{name}: {wrong}\n{found[3][-2000:]}\n")
            path.unlink()
    summary = {
        "inputs": arguments.count,
        "kinds": len(whole),
        "exit_codes": dict(sorted(codes.items())),
        "slowest_seconds": round(slowest, 2),
        "peak_mb": round(largest / 1e6, 1),
        "bad": bad,
    }
    sys.stdout.write(json.dumps(summary) + "\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(campaign())
