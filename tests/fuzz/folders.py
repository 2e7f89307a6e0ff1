"""Hostile folders through `witness batch`: python tests/fuzz/folders.py [--first 0] [--count 300]

Each folder of recordings has pipes, sockets, links in a circle, names of any length and bytes; each folder of
results has a manifest with lines that are mutated, and a stranger's files in the places of results. The batch
runs in a process of its own, whose recordings are worked on in it. Not allowed: more than a minute, a
traceback, "please report it", an exit code that the README does not name, a file changed that is not the
batch's, a recording without a result or an error. The last line is the sum as JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).parent))

import trials

from witness.work.manifest import Manifest

OPTIONS = ["-f", "json", "-f", "txt", "--models", "builtin", "--offline", "--whisper", "none"]
CODES = {0, 1, 2, 3}
FOREIGN = b"a stranger's"
VALUES: tuple[Any, ...] = (
    *(
        "../esc/pwn",
        "/esc/pwn",
        "a/../../esc/pwn",
        "report",
        "manifest",
        "",
        ".",
        "a\0b",
        "\ud800",
        "\x1b[2J",
    ),
    *(
        "x" * 300,
        "a/" * 200,
        None,
        True,
        [],
        {},
        [[]],
        -1,
        1.5,
        1 << 70,
        10**400,
        "begun",
        "canceled",
        "done",
        "finished",
    ),
    *(float("nan"), float("inf")),
)


def names(chance: random.Random) -> Iterator[bytes]:
    """Of recordings: short, long, with bytes that are no text, with line breaks, all alike but for case."""
    for _ in range(chance.randint(1, 4)):
        stem = chance.choice(
            [
                *(b"a", b"A", b"report", b"manifest", b".hidden", b"-o", b"~", b"a.b", b"a b", b"\xff\xfe"),
                *(b"x" * chance.randint(200, 250), "ü".encode() * chance.randint(90, 125)),
                *(b"line\nbreak", b"\x1b[2J", "\u202e".encode(), b"%03d", b"a*[b]?"),
            ]
        )
        yield stem[:250] + chance.choice([b".wav", b".WAV", b".mp3"])


def recordings(folder: Path, chance: random.Random, sound: bytes) -> None:
    """Fill the folder."""
    (folder / "sub").mkdir(parents=True)
    for name in names(chance):
        path = folder / chance.choice(["", "sub"]) / os.fsdecode(name)
        kind = chance.choice(["sound"] * 4 + ["noise", "pipe", "socket", "loop", "device", "empty", "folder"])
        with suppress(OSError):  # there is one, or the path is too long for a socket
            if kind == "pipe":
                os.mkfifo(path)
            elif kind == "socket":
                with socket.socket(socket.AF_UNIX) as server:
                    server.bind(os.fsencode(path))
            elif kind == "loop":
                path.symlink_to(path.name)
            elif kind == "device":
                path.symlink_to("/dev/zero")
            elif kind == "folder":
                path.mkdir()
            else:
                path.write_bytes({"sound": sound, "noise": chance.randbytes(3000), "empty": b""}[kind])
    (folder / "good.wav").write_bytes(sound)


def results(folder: Path, chance: random.Random, sources: list[str]) -> dict[Path, bytes]:
    """Fill the folder of the results before the batch; return the files that must stay."""
    folder.mkdir()
    kept = {}
    for name in ("good.json", "good.txt", "good.findings.npz", "a.json"):
        if chance.random() < 0.2:
            (folder / name).write_bytes(FOREIGN)
            kept[folder / name] = FOREIGN
        elif chance.random() < 0.1:
            chance.choice([Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.name)])(folder / name)
    if chance.random() < 0.1:
        os.mkfifo(folder / chance.choice(["report.json", "manifest.jsonl"]))
    if not (folder / "manifest.jsonl").exists():
        lines = [_line(chance, sources) for _ in range(chance.randint(0, 6))]
        content = b"\n".join(lines)[: chance.choice([None, None, -3])]
        (folder / "manifest.jsonl").write_bytes(content + chance.choice([b"\n", b""]))
        ours = Manifest(folder / "manifest.jsonl").entries  # what it claims may be replaced
        kept = {path: old for path, old in kept.items() if path.name.partition(".")[0] not in ours}
    return kept


def _line(chance: random.Random, sources: list[str]) -> bytes:
    document: Any = {
        "output": chance.choice(["good", "b", "sub/c"]),
        "source": chance.choice(sources),
        "size": 1,
        "mtime_ns": 1,
        "sha256": "0" * 64,
        "settings": "0" * 64,
        "state": chance.choice(["done", "failed"]),
    }
    for _ in range(chance.randint(0, 3)):
        field = chance.choice([*document, "error", "code", "duration", "seconds", "speakers", "more"])
        document[field] = chance.choice(VALUES)
    if chance.random() < 0.1:
        return b"[" * 100_000
    line = bytearray(json.dumps(document).encode())
    for _ in range(chance.choice([0, 0, 1, 3])):
        line[chance.randrange(len(line))] = chance.randrange(256)
    return bytes(line)


class Here:
    """In the place of `jobs.pool.Pool`: the jobs are done in this process, which has the models open."""

    def __init__(self, _: object) -> None:
        self.workers = 1

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, job: Any, _: object = None) -> Future[Any]:
        """As `Pool.submit`."""
        from witness.work.worker import Job, from_json, perform, to_json

        future: Future[Any] = Future()
        future.set_result(perform(from_json(to_json(job), Job)))
        return future


def batch(work: Path, options: list[str], engine: Any) -> int:
    """A batch from work/in to work/out, in this process, which it ends."""
    from witness.work import pool, worker

    pool.Pool, worker._engine = Here, lambda _: engine  # type: ignore[assignment,misc]
    return trials.command("batch", f"{work}/in", "-o", f"{work}/out", *OPTIONS, *options)


def complaint(work: Path, ended: trials.Ended, kept: dict[Path, bytes]) -> str | None:
    """Return the fault of the outcome; None: there is no fault."""
    if (wrong := trials.complaint(ended, CODES)) is not None:
        return wrong
    if [path.name for path in (work / "esc").iterdir()] or (work / "pwn").exists():
        return "wrote outside its folder"
    for path, content in kept.items():
        if path.read_bytes() != content:
            return f"wrote over {path.name}"
    report = work / "out" / "report.json"
    if ended.code in (0, 3) and report.is_file():
        rows = json.loads(report.read_text())["files"]
        if any(row["state"] == "left" for row in rows):
            return "left a recording"
        good = [row for row in rows if row["source"].endswith("/in/good.wav")]
        if not good or not (good[0]["error"] or (work / "out" / good[0]["files"][0]).exists()):
            return "lost a recording"
    return None


def campaign() -> int:
    """Run it."""
    arguments = trials.parser(__doc__, 300).parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    found = trials.Sum()
    with tempfile.TemporaryDirectory() as base:
        path = Path(base, "seed.wav")
        soundfile.write(path, 0.1 * np.sin(np.arange(8000) / 5), 16000)
        sound = path.read_bytes()
        engine = _engine(path)
        for number in range(arguments.first, arguments.first + arguments.count):
            chance = random.Random(number)
            work = Path(base, str(number))
            (work / "esc").mkdir(parents=True)
            recordings(work / "in", chance, sound)
            kept = results(work / "out", chance, [f"{work}/in/good.wav", f"{work}/in/gone.wav"])
            options = chance.choice([[], [], ["--retry-failed"]])
            action = lambda work=work, options=options: batch(work, options, engine)  # noqa: E731
            ended = trials.alone(action, work / "stderr", both=True)
            found.add("folder", number, ended, complaint(work, ended, kept))
            shutil.rmtree(work, ignore_errors=True)
    return found.finish()


def _engine(recording: Path) -> Any:
    """With everything imported and the models open, once for all processes that are forked."""
    from witness import Engine, Options

    engine = Engine(Options(models="builtin", offline=True, whisper="none"))
    engine.transcribe(recording)
    return engine


if __name__ == "__main__":
    sys.exit(campaign())
