"""Work that is killed at random and begun again: python tests/fuzz/kills.py [--way WAY] [--whisper MODEL]

A recording is transcribed by `witness run`, by `witness batch` or on the desk (--way), which is ended (mostly
SIGKILL, also SIGTERM and SIGINT) and begun again, until it is done; then from the beginning. Most kills come
once the journal has grown to a length drawn at random between what it has and what it has in the end, so that
they fall while pieces are recognized; the others come at any moment. Now and then the journal is damaged
before the work goes on.

Not allowed: a result with other bytes than that of a run that nobody disturbed (but for the times that its
stages took), less in the journal than before, anything in it twice (then it was heard twice), files that are
no results, and a journal that is still there when all is done. The last line is the sum as JSON: "resumed"
counts the starts with something in the journal. The exit code is 1 if anything was not as it should be.
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
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import soundfile

sys.path[:0] = [str(Path(__file__).parents[1])]

import ct2  # noqa: E402
from witness import Engine, Options, Runtime  # noqa: E402
from witness.storage.checkpoint import records  # noqa: E402

CALL = Path(__file__).parents[1] / "data" / "call.flac"
SIGNALS = (*[signal.SIGKILL] * 4, signal.SIGTERM, signal.SIGINT)
DAMAGED = 0.1
"""Share of the kills after which the journal is damaged."""
ANY_MOMENT = 0.2
"""Share of the kills that come at any moment of the whole time."""
STEP = 0.02
"""Seconds between two looks at the journal."""
TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105 - of a server that ends with the campaign


class Work:
    """The work on one recording, in one of the ways there are; results lie in `folder`."""

    def __init__(self, way: str, base: Path, whisper: str) -> None:
        self._way = way
        self._talk = base / "talk.flac"
        self.folder = base / "out"
        self.folder.mkdir()
        self._said = base / "said"
        options = ["--models", "builtin", "--offline", "--device", "cpu", "--whisper", whisper]
        formats = ["-f", "json", "-f", "txt"]
        if way == "desk":
            asked = ["serve", str(self.folder), "--port", "0", "--no-browser", "--token", TOKEN]
        elif way == "batch":
            asked = ["batch", str(self._talk), "-o", str(self.folder), *formats]
        else:
            asked = ["run", str(self._talk), "-o", f"{self.folder}{os.sep}", *formats]
        self._command = [sys.executable, "-m", "witness", *asked, *options]
        self._child: subprocess.Popen[str] | None = None
        self.renew()

    def renew(self) -> None:
        """Nothing is done."""
        for path in sorted(self.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        if self._way == "desk":
            (self.folder / "talk.flac").write_bytes(self._talk.read_bytes())

    def start(self) -> None:
        """Begin, or go on."""
        with self._said.open("wb") as said:
            self._child = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=said, text=True)
        if self._way == "desk":
            assert self._child.stdout is not None
            address = self._child.stdout.readline().partition("?")[0].strip()
            asked = urllib.request.Request(  # noqa: S310 - our own
                f"{address}api/recordings/untranscribed",
                method="POST",
                headers={"Authorization": f"Bearer {TOKEN}"},
            )
            with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
                answer.read()

    def kill(self, how: signal.Signals) -> None:
        """End it."""
        assert self._child is not None
        self._child.send_signal(how)
        self._child.wait()

    def done(self) -> bool:
        """Return whether the work is done; end it then."""
        assert self._child is not None
        if self._way != "desk":
            return self._child.poll() is not None
        if self._child.poll() is None and not (self.folder / "talk.txt").exists():
            return False
        ended = time.monotonic() + 10  # the journal goes after the results
        while journals() and time.monotonic() < ended:
            time.sleep(STEP)
        self.kill(signal.SIGINT)
        return True

    @property
    def failure(self) -> str | None:
        """The error, if it failed."""
        assert self._child is not None
        return (
            None
            if self._child.returncode in (0, 128 + signal.SIGINT)
            else (f"exit code {self._child.returncode}: {self._said.read_text()[-500:]}")
        )

    def results(self) -> dict[str, bytes]:
        """Return the files by name, without the times of the stages."""
        found = {}
        for path in sorted({*self.folder.rglob("talk.*")} - {self.folder / "talk.flac"}):
            content = path.read_bytes()
            if path.name == "talk.json":
                content = json.dumps({**json.loads(content), "timing": None}).encode()
            found[path.name] = content
        return found

    def litter(self) -> list[str]:
        """Return the names of unfinished saves."""
        return [path.name for path in self.folder.rglob(".*.saving")]


def journals() -> dict[str, bytes]:
    """Return the contents of the journals by name."""
    found = {}
    for path in Path(os.environ["WITNESS_CACHE"], "unfinished").glob("*"):
        with suppress(FileNotFoundError):  # it was just deleted
            found[path.name] = path.read_bytes()
    return found


def length() -> int:
    """Return the bytes of all journals."""
    return sum(map(len, journals().values()))


def damage(chance: random.Random) -> None:
    """Change a byte of a journal, or cut it."""
    for path in Path(os.environ["WITNESS_CACHE"], "unfinished").glob("*"):
        content = bytearray(path.read_bytes())
        if content:
            place = chance.randrange(len(content))
            content[place] ^= 1 << chance.randrange(8)
            path.write_bytes(content[:place] if chance.random() < 0.5 else content)


def undisturbed(work: Work) -> tuple[dict[str, bytes], float, int]:
    """Return the results, the seconds of the work, and the largest size of the journal."""
    begun, longest = time.monotonic(), 0
    work.start()
    while not work.done():
        longest = max(longest, length())
        time.sleep(STEP)
    if work.failure is not None:
        raise RuntimeError(work.failure)
    return work.results(), time.monotonic() - begun, longest


def moment(chance: random.Random, whole: float, longest: int) -> Callable[[], bool]:
    """Return a condition for the kill of the work that starts now."""
    if chance.random() < ANY_MOMENT:
        end = time.monotonic() + chance.uniform(0.0, 1.1) * whole
        return lambda: time.monotonic() >= end
    there = length()
    target = there + chance.randint(1, max(2, longest - there))
    return lambda: length() >= target


def campaign() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--way", choices=("run", "batch", "desk"), default="run")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--whisper", help="a model; by default one that is made for the tests")
    parser.add_argument("--seconds", type=int, default=180, help="of the recording, which repeats itself")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    begun, kills, done, resumed, bad = time.monotonic(), 0, 0, 0, 0

    def complain(wrong: str) -> None:
        nonlocal bad
        bad += 1
        sys.stdout.write(f"after {kills} kills: {wrong}\n")

    with tempfile.TemporaryDirectory() as base:
        os.environ["WITNESS_CACHE"] = str(Path(base, "cache"))
        samples, rate = soundfile.read(CALL, dtype="float32")
        soundfile.write(Path(base, "talk.flac"), np.resize(samples, asked.seconds * rate), rate)
        work = Work(asked.way, Path(base), asked.whisper or str(ct2.write(Path(base, "model"))))
        with Engine(Options(models="builtin", offline=True), Runtime(device="cpu")):
            pass  # what is cached is made
        expected, whole, longest = undisturbed(work)
        work.renew()
        kept: dict[str, bytes] = {}
        while kills < asked.kills or kept:
            resumed += any(map(len, kept.values()))
            now = moment(chance, whole, longest)
            work.start()
            while not (ended := work.done()) and not (kills < asked.kills and now()):
                time.sleep(STEP)
            if not ended:
                work.kill(chance.choice(SIGNALS))
                kills += 1
            if ended or work.results() == expected:
                if ended and work.failure is not None:
                    complain(work.failure)
                if work.results() != expected:
                    complain("the result has other bytes")
                if ended and (journals() or work.litter()):
                    complain(f"left {[*journals(), *work.litter()]}")
                done += 1
                work.renew()
                kept = journals()
                continue
            if work.results() and not work.litter():  # which the next start finishes
                complain(f"left {list(work.results())}")
            there = journals()
            if any(not there.get(name, b"").startswith(content) for name, content in kept.items()):
                complain("there is less in the journal than before")
            for content in there.values():
                if twice := sum(
                    count - 1 for count in Counter(name for name, _ in records(content)).values()
                ):
                    complain(f"{twice} records are twice in the journal")
            if chance.random() < DAMAGED:
                damage(chance)
                there = {}
            kept = there
        summary = {
            "way": asked.way,
            "kills": kills,
            "done": done,
            "resumed": resumed,
            "whole": round(whole, 1),
            "seconds": round(time.monotonic() - begun),
            "bad": bad,
        }
    sys.stdout.write(json.dumps(summary) + "\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(campaign())
