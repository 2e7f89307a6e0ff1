"""Signals at random times: python tests/fuzz/signals.py [--first 0] [--count 500]

Each run transcribes a recording that takes some seconds, by the command in a process of its own (every fourth
from the start of the interpreter, the others forked from one that has imported everything), and gets SIGTERM,
SIGINT or SIGHUP within three seconds. Not allowed: an end later than two seconds after the signal (on a busy
machine, without what a thread waited for a core), another exit code than the signal's or that of a run that
was done, a traceback, a result that is not whole, a file that is no result. The last line is the sum as JSON;
the exit code is 1 if there was any of these.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).parent))

import trials

SECONDS = 2.0
NOT_OURS = "init_import_site", "Could not import runpy module"
"""What the interpreter says that was interrupted before it had anything of Witness: it ends with 1."""
PATIENCE = 60.0
"""Seconds after which a process that waits for a core all the time is given up, too."""
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
OPTIONS = ["-f", "json", "-f", "txt", "--models", "builtin", "--offline", "--whisper", "none"]
CALL = Path(__file__).parents[1] / "data" / "call.flac"


def recordings(folder: Path) -> list[Path]:
    """One that is decoded for seconds, and one whose voices are found for seconds."""
    samples, rate = soundfile.read(CALL, dtype="float32")
    long, short = folder / "long.mp3", folder / "short.flac"
    soundfile.write(short, np.tile(samples, 3), rate)
    soundfile.write(long, samples, rate)
    long.write_bytes(long.read_bytes() * 40)  # which for this format is a recording as well
    return [long, short]


def started(number: int, recording: Path, folder: Path) -> int:
    """The id of a process that transcribes into folder/out; its stderr goes to a file."""
    arguments = [str(recording), *OPTIONS, "-o", f"{folder}/out/"]
    stderr = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT)
    pid = os.fork()
    if pid:
        os.close(stderr)
        return pid
    os.dup2(stderr, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for each in SIGNALS:
        signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
    if number % 4 == 0:
        # A crash says where it was: one in many runs does not come again.
        command = [sys.executable, "-X", "faulthandler", "-m", "witness", *arguments]
        os.execv(sys.executable, command)  # noqa: S606
    from witness.cli.main import main

    code = 1
    try:
        main(arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    finally:
        os._exit(code)


def ended(pid: int, seconds: float) -> int | None:
    """The exit code, or -signal; None: it is still there after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def waited(pid: int) -> dict[str, float]:
    """Seconds that each thread of a process has waited for a core so far."""
    found = {}
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError, IndexError):
            found[path.parent.name] = int(path.read_text().split()[1]) / 1e9
    return found


def left(pid: int) -> tuple[int | None, float, float]:
    """(exit code, seconds, and those without waiting for a core) after a signal.

    The end goes from one thread to the next: from the one that works to the one that sees it leave, and from
    this to the last that has to go. So the waits of the two that waited longest are taken off.
    """
    sent, before, longest, code = time.monotonic(), waited(pid), 0.0, None
    while code is None and (taken := time.monotonic() - sent) < PATIENCE and taken - longest < SECONDS:
        now = waited(pid)
        waits = sorted(seconds - before.get(thread, 0.0) for thread, seconds in now.items())
        longest = max(longest, sum(waits[-2:]))
        code = ended(pid, 0.05)
    taken = time.monotonic() - sent
    return code, taken, taken - longest


def complaint(number: signal.Signals, code: int | None, folder: Path) -> str | None:
    """What is not allowed about the end of a run; None: nothing."""
    if code is None:
        return "still there"
    said = (folder / "stderr").read_text("utf-8", "replace")
    if code not in (0, 128 + number, -number) and not (code == 1 and any(each in said for each in NOT_OURS)):
        return f"exit code {code}"
    if "Traceback" in said and f"{os.sep}witness{os.sep}" in said:  # otherwise Python's, while it starts
        return "traceback"
    out = folder / "out"
    made = sorted(path.name for path in out.iterdir()) if out.exists() else []
    stem = made[0].partition(".")[0] if made else ""
    if made not in ([], [f"{stem}.findings.npz", f"{stem}.json", f"{stem}.txt"]):
        return f"left {made}"
    if made:
        from witness.storage import files

        document = json.loads((out / made[1]).read_text())
        if document["findings"]["sha256"] != files.sha256_at(out / made[0]):
            return "findings of another run"
    if code == 0 and not made:
        return "no result"
    return None


def campaign() -> int:
    """Run it."""
    arguments = trials.parser(__doc__, 500).parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from witness.cli.main import main

    codes: Counter[str] = Counter()
    slowest, slowest_own, bad = 0.0, 0.0, 0
    with tempfile.TemporaryDirectory() as base:
        sounds = recordings(Path(base))
        soundfile.write(Path(base, "warm.wav"), np.zeros(16000), 16000)
        with suppress(SystemExit):  # imports everything once
            main([f"{base}/warm.wav", "-q", *OPTIONS[4:], "-o", f"{base}/warm.txt"])
        for run in range(arguments.first, arguments.first + arguments.count):
            chance = random.Random(run)
            folder = Path(tempfile.mkdtemp(dir=base))
            pid = started(run, chance.choice(sounds), folder)
            wait = chance.uniform(0, 3)
            code = ended(pid, wait)
            number = chance.choice(SIGNALS)
            if code is None:
                os.kill(pid, number)
                code, taken, own = left(pid)
                slowest, slowest_own = max(slowest, taken), max(slowest_own, own)
            wrong = complaint(number, code, folder)
            if code is None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            codes[str(code)] += 1
            if wrong is not None:
                bad += 1
                said = (folder / "stderr").read_text("utf-8", "replace")[-2000:]
                sys.stdout.write(f"{run}: {number.name} after {wait:.2f} s: {wrong}\n{said}\n")
            shutil.rmtree(folder)
    summary = {
        "signals": arguments.count,
        "exit_codes": dict(sorted(codes.items())),
        "slowest_seconds": round(slowest, 2),
        "slowest_without_waiting_for_a_core": round(slowest_own, 2),
        "bad": bad,
    }
    sys.stdout.write(json.dumps(summary) + "\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(campaign())
