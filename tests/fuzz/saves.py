"""Three writers of one transcript, killed at random: python tests/fuzz/saves.py [--saves 1000] [--kills 500]

One names its speaker by `witness redo`, one on the desk, and one on the desk with a `witness convert` in
between. Each counts: its speaker is called `redo 17`, and once that is acknowledged, `redo 18`. One of them
is killed (SIGKILL) again and again, and another begins in its place. Not allowed: a name that is older than
one that was acknowledged, a format that says something else than the JSON, steps of the desk that are gone
although the last change was the desk's, anything in the folder that is not a result. The last line is the sum
as JSON; the exit code is 1 if there was any of these.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import documents
import trials

from witness.errors import ConflictError
from witness.formats import writers
from witness.formats.registry import Format
from witness.options import Bounds
from witness.storage import files
from witness.transcript import assemble, corrections, edits, store

WRITERS = ("redo", "desk", "both")
TEXTS = (Format.TXT, Format.SRT, Format.CSV)
TOGETHER = 25
"""Kills between two looks at everything."""


def transcript(folder: Path) -> Path:
    """The JSON of a talk of three people, and what lies beside it."""
    path = folder / "talk.json"
    found = corrections.apply(assemble.make_draft(documents.found(), Bounds(speakers=len(WRITERS))))
    store.save(found, [(form, store.sibling(path, form)) for form in (Format.JSON, *TEXTS)])
    return path


def redo(path: Path, place: int, called: str) -> None:
    """Name a speaker on the command line."""
    try:
        trials.command("redo", "-q", str(path), "--name", f"SPEAKER_{1 + place:02d}={called}")
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(f"redo ended with {stop.code}") from stop


def desk(path: Path, place: int, called: str) -> None:
    """Name a speaker on the desk, on top of what others have done meanwhile."""
    done, version = False, edits.show(path).version
    while not done:
        try:
            edits.name_speaker(path, version, f"SPEAKER_{1 + place:02d}", called)
            done = True
        except ConflictError as error:  # noqa: PERF203
            version = error.version or edits.show(path).version


def writer(place: int, path: Path, acknowledged: Path) -> int:
    """The id of a process that saves until it is killed, and writes down what was acknowledged."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        log = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        kind = WRITERS[place]
        while True:
            number = counted(store.read(path).speakers[place].name) + 1
            if kind == "both" and number % 2:
                with suppress(SystemExit):
                    trials.command("convert", "-q", str(path), *(f"-f{form}" for form in TEXTS))
            save = redo if kind == "redo" else desk
            save(path, place, f"{kind} {number}")
            os.write(log, f"{place} {number}\n".encode())
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def counted(name: str | None) -> int:
    """The number in a speaker's name."""
    return int(name.rpartition(" ")[2]) if name else 0


def complaints(path: Path, acknowledged: Path) -> list[str]:
    """What is not allowed about the folder, while nobody writes."""
    wrong = []
    with store.opened(path):  # which finishes what was begun, as whoever comes next does
        found = store.read(path)
    newest = [0] * len(WRITERS)
    for line in acknowledged.read_text().splitlines():
        place, number = map(int, line.split())
        newest[place] = max(newest[place], number)
    for one, last in zip(found.speakers, newest, strict=True):
        if counted(one.name) < last:
            wrong.append(f"{one.name} is older than {last}, which was acknowledged")
    wrong += [
        f"the {form} differs from the JSON"
        for form in TEXTS
        if store.sibling(path, form).read_bytes() != writers.content(found, form)
    ]
    last_by = (found.corrections[-1].name or "").split()[0] if found.corrections else "redo"
    history = store.history_path(path)
    if last_by != "redo":
        kept = json.loads(history.read_bytes()) if history.exists() else {}
        if kept.get("version") != files.sha256(path.read_bytes()) or not kept.get("steps"):
            wrong.append("the steps of the desk are gone")
    known = {path.name, f"{path.stem}.findings.npz", history.name, *(f"{path.stem}.{form}" for form in TEXTS)}
    if left := {one.name for one in path.parent.iterdir()} - known:
        wrong.append(f"left {sorted(left)}")
    return wrong


def campaign() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--saves", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    chance = random.Random(asked.seed)
    begun, kills, bad, looks, died = time.monotonic(), 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base, "talks")
        folder.mkdir()
        path, acknowledged = transcript(folder), Path(base, "acknowledged")
        acknowledged.touch()
        with suppress(SystemExit):  # imports everything once
            trials.command("convert", "-q", str(path), "-ftxt")
        desk(path, 1, "desk 0")

        def saves() -> int:
            return acknowledged.read_bytes().count(b"\n")

        per_kill = max(1, asked.saves // max(1, asked.kills))
        while kills < asked.kills or saves() < asked.saves:
            running = [writer(place, path, acknowledged) for place in range(len(WRITERS))]
            for _ in range(TOGETHER):
                wanted, late = saves() + chance.randrange(2 * per_kill + 1), time.monotonic() + 3
                while saves() < wanted and time.monotonic() < late:
                    time.sleep(0.005)
                time.sleep(chance.uniform(0, 0.1))  # at any moment of a save
                place = chance.randrange(len(WRITERS))
                if os.waitpid(running[place], os.WNOHANG)[0]:  # nobody has killed it yet
                    died += 1
                else:
                    os.kill(running[place], signal.SIGKILL)
                    os.waitpid(running[place], 0)
                    kills += 1
                running[place] = writer(place, path, acknowledged)
            for pid in running:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                kills += 1
            looks += 1
            for wrong in complaints(path, acknowledged):
                bad += 1
                sys.stdout.write(f"after {kills} kills: {wrong}\n")
            sys.stdout.flush()
        summary = {
            "saves": saves(),
            "kills": kills,
            "looks": looks,
            "seconds": round(time.monotonic() - begun),
            "died": died,
            "bad": bad,
        }
    sys.stdout.write(json.dumps(summary) + "\n")
    return int(bad + died > 0)


if __name__ == "__main__":
    sys.exit(campaign())
