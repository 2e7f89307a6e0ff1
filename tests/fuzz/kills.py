"""Runs that are killed at random and begun again: python tests/fuzz/kills.py [--kills 50] [--whisper MODEL]

A recording is transcribed by `witness run`, which is ended (mostly SIGKILL, also SIGTERM and SIGINT) at any
moment and begun again, until it is done; then from the beginning. Now and then its journal is damaged before
it goes on. Not allowed: a result with other bytes than that of a run that nobody disturbed (but for the times
that its stages took), less in the journal than before, anything in the folder that is not a result, and a
journal that is still there when all is done. The last line is the sum as JSON; the exit code is 1 if there
was any of these.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

sys.path[:0] = [str(Path(__file__).parents[1])]

import ct2  # noqa: E402

CALL = Path(__file__).parents[1] / "data" / "call.flac"
SIGNALS = (*[signal.SIGKILL] * 4, signal.SIGTERM, signal.SIGINT)
DAMAGED = 0.1
"""Share of the kills after which the journal is damaged."""
NAMES = ["talk.findings.npz", "talk.json", "talk.txt"]


def command(folder: Path, whisper: str) -> list[str]:
    """That writes into folder/out."""
    options = ["-f", "json", "-f", "txt", "--models", "builtin", "--offline", "--device", "cpu"]
    given = [str(folder / "talk.flac"), *options, "--whisper", whisper, "-o", f"{folder / 'out'}{os.sep}"]
    return [sys.executable, "-m", "witness", "run", *given]


def result(folder: Path) -> list[bytes]:
    """What was written, without the times that it took; it is deleted."""
    out = folder / "out"
    content = []
    for path in sorted(out.iterdir()):
        found = path.read_bytes()
        if path.suffix == ".json":
            found = json.dumps({**json.loads(found), "timing": None}).encode()
        content.append(path.name.encode() + found)
        path.unlink()
    return content


def journals(cache: Path) -> dict[str, int]:
    """How long each is."""
    return {path.name: path.stat().st_size for path in (cache / "unfinished").glob("*")}


def damage(cache: Path, chance: random.Random) -> None:
    """Change a byte of a journal, or cut it."""
    for path in (cache / "unfinished").glob("*"):
        content = bytearray(path.read_bytes())
        if content:
            place = chance.randrange(len(content))
            content[place] ^= 1 << chance.randrange(8)
            path.write_bytes(content[:place] if chance.random() < 0.5 else content)


def campaign() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--whisper", help="a model; by default one that is made for the tests")
    parser.add_argument("--times", type=int, default=3, help="how often the recording repeats itself")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    begun, kills, done, went_on, bad = time.monotonic(), 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as base:
        folder, cache = Path(base), Path(base, "cache")
        os.environ["WITNESS_CACHE"] = str(cache)
        samples, rate = soundfile.read(CALL, dtype="float32")
        soundfile.write(folder / "talk.flac", np.tile(samples, asked.times), rate)
        arguments = command(folder, asked.whisper or str(ct2.write(folder / "model")))
        subprocess.run(arguments, check=True, stderr=subprocess.PIPE)  # makes what is cached
        result(folder)
        started = time.monotonic()
        subprocess.run(arguments, check=True, stderr=subprocess.PIPE)
        whole = time.monotonic() - started
        expected = result(folder)

        def complain(wrong: str) -> None:
            nonlocal bad
            bad += 1
            sys.stdout.write(f"after {kills} kills: {wrong}\n")

        kept: dict[str, int] = {}
        while kills < asked.kills or kept:
            with tempfile.TemporaryFile() as said:
                child = subprocess.Popen(arguments, stderr=said)
                code = None
                if kills < asked.kills:
                    try:
                        code = child.wait(chance.uniform(0.1, 1.1) * whole)
                    except subprocess.TimeoutExpired:
                        child.send_signal(chance.choice(SIGNALS))
                        child.wait()
                        kills += 1
                else:
                    code = child.wait()
                said.seek(0)
                went_on += b"continues where it stopped" in said.read()
            left = sorted(path.name for path in (folder / "out").glob("[!.]*"))
            if code is None and left != NAMES:
                if left and not list((folder / "out").glob(".*.saving")):  # which the next run finishes
                    complain(f"left {left}")
                now = journals(cache)
                if any(now.get(name, 0) < size for name, size in kept.items()):
                    complain(f"the journal had {kept}, and has {now}")
                if chance.random() < DAMAGED:
                    damage(cache, chance)
                    now = {}
                kept = now
                continue
            if code not in (0, None):
                complain(f"exit code {code}")
            done += 1
            if result(folder) != expected:
                complain("the result has other bytes")
            if code == 0 and journals(cache):
                complain("the journal is still there")
            kept = {}
        summary = {
            "kills": kills,
            "done": done,
            "went_on": went_on,
            "whole": round(whole, 1),
            "seconds": round(time.monotonic() - begun),
            "bad": bad,
        }
    sys.stdout.write(json.dumps(summary) + "\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(campaign())
