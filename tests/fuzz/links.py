"""Links in a stranger's folder through every command: python tests/fuzz/links.py [--first 0] [--count 400]

Each folder has a recording, its transcript, and links at some of the names that Witness writes: results,
findings, history, manifest, report, locks, folders of half saved and half moved files, of uploads, takes and
trash, of known people, folders of a tree. They lead to a file, to a folder, to nothing yet. `run`, `batch`,
`convert`, `redo` and the desk then work in it, each in a process of its own. Not allowed: anything outside
changed, made or removed; a traceback, "please report it", more than a line about it, an exit code that the
README does not name. The last line is the sum as JSON, with how many links of each name were planted.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).parent))

import documents
import folders
import trials

from witness.errors import WitnessError
from witness.formats import output_paths
from witness.formats.registry import Format
from witness.options import Options, Runtime
from witness.serve import browser_recordings, uploads
from witness.serve.app_state import KNOWN
from witness.serve.library.library import id_of
from witness.storage import transaction
from witness.transcript import store, trash, vocabulary
from witness.work.batch import REPORT
from witness.work.folder import LOCK, MANIFEST

CODES = {0, 1, 2, 3, 4}
MARK = b"export PATH=/bin\n"
TOKEN = "0123456789abcdef0123456789abcdef"  # noqa: S105 - of no server
OURS = "0123456789abcdef"
"""The name of a request, a take, or what was thrown away."""
QUIET = ("-q", "--offline", "--whisper", "none", "--models", "builtin", "--threads", "1")
SIZE = 5
"""Bytes of the planted take."""


def names(stem: str) -> list[str]:
    """The files that Witness writes for a transcript of that name, hidden ones last."""
    json = Path(f"{stem}.json")
    hidden = [store.history_path(json), store.previous_path(json), store.previous_path(json, findings=True)]
    forms = [output_paths.name_of(stem, form) for form in Format]
    return [*forms, *(path.name for path in (output_paths.beside(json), *hidden))]


def places(stem: str) -> list[str]:
    """Every name in the folder at which a link is planted."""
    saved, moved = f".{stem}{transaction.SAVED}", f".{stem}{transaction.MOVING}"
    inner = [*names(stem), "notes.txt", f"{stem}.wav"]
    words = vocabulary.NAME
    return [
        *names(stem),
        *(f".{name}.lock" for name in (stem, words[1:], "new")),
        *(saved, moved, f".new{transaction.MOVING}"),
        *(f"{saved}/{name}" for name in inner),
        *(f"{moved}/{name}" for name in ("v.json", "v.txt", "h.history", "vx", transaction.ABOUT)),
        *(f"{name}.json" for name in (f"{stem}.again", "new")),
        *(MANIFEST, REPORT, LOCK, words, KNOWN, f"{KNOWN}/Ana.json", "sub", f"sub/{stem}.json"),
        *(uploads.PLACE, f"{uploads.PLACE}/{uploads.LOCK}", f"{uploads.PLACE}/{OURS}"),
        *(browser_recordings.PLACE, f"{browser_recordings.PLACE}/{OURS}"),
        *(f"{browser_recordings.PLACE}/{OURS}/{name}" for name in ("sound", "name")),
        *(trash.TRASH, f"{trash.TRASH}/{OURS}", f"{trash.TRASH}/{OURS}/{transaction.ABOUT}"),
    ]


def plant(folder: Path, outside: Path, chance: random.Random, planted: Counter[str]) -> None:
    """Put links into the folder; what lies beside them is whole, as far as it is there."""
    for name in chance.sample(places("call"), chance.choice([1, 1, 2, 4, 12])):
        path, above = folder / name, Path(name).parts[0]
        if any(one.is_symlink() for one in path.parents) or path.is_dir():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if above.endswith(transaction.SAVED) and chance.random() < 0.5:
            (path.parent / path.name).write_bytes(b"{}")  # a file, whose place is a link
            path = folder / path.name
        elif above == browser_recordings.PLACE:
            (folder / browser_recordings.PLACE / OURS).mkdir(parents=True, exist_ok=True)
            for file, content in (("name", b"take.webm"), ("sound", bytes(SIZE))):
                if not (there := folder / browser_recordings.PLACE / OURS / file).is_symlink():
                    there.write_bytes(content)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        target = chance.choice(["marker", "marker", "folder", "new", f"folder/{path.name}", "other.json"])
        path.symlink_to(outside / target)
        planted[name] += 1


def desk(folder: Path, cache: Path, engine: Any) -> int:
    """Do on a desk over the folder what browsers do, in this process."""
    from starlette.testclient import TestClient

    from witness.serve import queue
    from witness.serve.app_state import AppState
    from witness.serve.library.index import Index
    from witness.serve.library.library import Library
    from witness.serve.server import application
    from witness.work import produce, worker

    queue.Pool, worker._engine = Hands, lambda _: engine  # type: ignore[assignment,misc]
    settings = produce.Settings(Options(models="builtin", offline=True, whisper="none"), Runtime(), {})
    library = Library(folder, Index(cache / "index.sqlite"))
    with uploads.Uploads(folder) as arrived, queue.Queue(folder, lambda _: settings) as waiting:
        state = AppState(folder, TOKEN, library, queue=waiting, uploads=arrived)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with (
            closing(state.editor),
            closing(state.finder),
            library.watched(),
            TestClient(application(state), base_url="http://localhost:8420", headers=headers) as client,
        ):
            browse(client, (folder / "call.wav").read_bytes())
    return 0


def served(folder: Path, cache: Path, engine: Any) -> int:
    """As `desk`, with the exit code of `witness serve` where it cannot begin."""
    try:
        return desk(folder, cache, engine)
    except WitnessError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


class Hands(folders.Here):
    """In the place of the desk's pool."""

    workers = 1

    def stop(self, _: object) -> None:
        """As `Pool.stop`; each job is done when it is given."""


def browse(client: Any, sound: bytes) -> None:
    """Ask for everything that writes. A refusal is an answer, which says no more than a line."""
    call = f"/t/{id_of(Path('call.json'))}"

    def ask(path: str, method: str = "POST", **more: Any) -> Any:
        answer = client.request(method, path, **more)
        if answer.status_code >= 400:
            sys.stderr.write(f"{path}: {answer.text}\n")
        return answer.json() if answer.headers.get("content-type") == "application/json" else {}

    listed = ask("/api/library", "GET")
    ask(f"{call}/", "GET")
    version = ask(f"{call}/version", "GET").get("version", "")
    ask(f"{call}/name", json={"version": version, "speaker": "SPEAKER_01", "name": "Ana"})
    ask("/api/vocabulary", json={"take": ["Witness"], "drop": []})
    ask(f"{call}/voice", json={"speaker": "SPEAKER_01", "name": "Ana"})
    ask("/api/people/forget", json={"name": "Ana"})
    ask(f"/api/takes/{OURS}/pieces/{SIZE}", content=MARK)
    ask(f"/api/takes/{OURS}/finish", json={})
    if "id" in (take := ask("/api/takes", json={"name": "take.webm"})):
        ask(f"/api/takes/{take['id']}/pieces/0", content=MARK)
        ask(f"/api/takes/{take['id']}/discard")
    ask("/api/recordings", files=[("file", ("sent.wav", sound))])
    ask(f"/api/trash/{OURS}/restore")
    ask("/api/trash/empty", json={"ids": [OURS]})
    for row in listed.get("recordings", [])[:3]:
        recording = f"/api/recordings/{row['id']}"
        ask(f"{recording}/tags", json={"add": ["one"], "remove": []})
        ask(f"{recording}/move", json={"name": "new", "folder": "sub"})
        ask(f"{recording}/delete")
    for thrown in ask("/api/trash", "GET").get("trash", []):
        ask(f"/api/trash/{thrown['id']}/restore")


def commands(work: Path, engine: Any) -> dict[str, Callable[[], int]]:
    """The ways to work in the folder, each of which ends its process."""
    folder, sound, json = str(work / "F"), str(work / "in" / "call.wav"), str(work / "F" / "call.json")
    run = ("-f", "json", "-f", "txt", "-f", "html", "-o", f"{folder}/")
    return {
        "run": lambda: trials.command("run", sound, *QUIET, *run),
        "run-file": lambda: trials.command("run", sound, *QUIET, "-o", f"{folder}/call.txt"),
        "batch-here": lambda: batch(engine, folder, folder),
        "batch": lambda: batch(engine, str(work / "in"), folder),
        "convert": lambda: trials.command("convert", json, "-f", "srt", "-f", "txt"),
        "convert-tree": lambda: trials.command("convert", str(work / "texts"), "-f", "srt", "-o", folder),
        "redo": lambda: trials.command("redo", "-q", json, "-f", "json", "-f", "txt"),
        "desk": lambda: served(work / "F", work / "cache", engine),
    }


def batch(engine: Any, source: str, folder: str) -> int:
    """A batch whose recordings are worked on in this process."""
    from witness.work import pool, worker

    pool.Pool, worker._engine = folders.Here, lambda _: engine  # type: ignore[assignment,misc]
    options = ("--models", "builtin", "--offline", "--whisper", "none", "--force")
    return trials.command("batch", source, "-o", folder, "-f", "json", "-f", "txt", *options)


def strangers(outside: Path, json: bytes) -> None:
    """Fill the folder that nothing may touch, with what Witness would take for its own."""
    inner = outside / "folder"
    (inner / OURS).mkdir(parents=True)
    about = f'{{"id": "{OURS}", "name": "call", "folder": "", "at": 1.0}}'.encode()
    for path in (outside / "marker", inner / "marker", inner / "call.wav", inner / OURS / "letter"):
        path.write_bytes(MARK)
    for path in (outside / "other.json", inner / "call.json", inner / "v.json"):
        path.write_bytes(json)
    for path in (inner / OURS / transaction.ABOUT, inner / transaction.ABOUT):
        path.write_bytes(about)
    for path in (inner / "sound", inner / OURS / "sound"):
        path.write_bytes(bytes(SIZE))
    for path in (inner / "name", inner / OURS / "name"):
        path.write_text("take.webm")


def state(outside: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return the permissions, time and content of each path."""
    return {
        str(path.relative_to(outside)): (
            path.lstat().st_mode,
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (outside, *sorted(outside.rglob("*")))
    }


def complaint(way: str, ended: trials.Ended, before: dict[str, Any], after: dict[str, Any]) -> str | None:
    """Return the fault of an outcome; None: the outcome is allowed."""
    if before != after:
        changed = sorted(name for name in before | after if before.get(name) != after.get(name))
        return f"outside: {', '.join(changed)}"
    if (wrong := trials.complaint(ended, CODES)) is not None:
        return wrong
    refusals = [line for line in ended.said.splitlines() if "is a symbolic link" in line]
    if ended.code and way in ("run", "run-file", "convert", "redo"):
        said = [line for line in ended.said.splitlines() if not line.startswith("note: ")]
        if len(said) != 1 or (refusals and ended.code != 4):
            return f"{len(said)} lines, exit code {ended.code}"
    if refusals and not all("; remove it" in line for line in refusals):
        return "no cure"
    return None


def campaign() -> int:
    """Run it."""
    arguments = trials.parser(__doc__, 400).parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    found, planted, refused = trials.Sum(), Counter[str](), 0
    with tempfile.TemporaryDirectory() as base:
        os.environ["WITNESS_CACHE"] = f"{base}/cache"
        whole = Path(base, "whole")
        whole.mkdir()
        papers = documents.Papers(whole)
        soundfile.write(whole / "call.wav", 0.1 * np.sin(np.arange(8000) / 5), 16000)
        engine = folders._engine(whole / "call.wav")
        for number in range(arguments.first, arguments.first + arguments.count):
            chance = random.Random(number)
            work = Path(base, str(number))
            for name in ("F", "texts/sub"):
                shutil.copytree(whole, work / name)
            for name in ("in", "in/sub"):
                (work / name).mkdir()
                shutil.copy(whole / "call.wav", work / name)
            strangers(work / "outside", papers.json.read_bytes())
            plant(work / "F", work / "outside", chance, planted)
            before = state(work / "outside")
            ways = commands(work, engine)
            way = list(ways)[number % len(ways)]
            ended = trials.alone(ways[way], work / "stderr", both=way.startswith("batch"))
            refused += "is a symbolic link" in ended.said
            found.add(way, number, ended, complaint(way, ended, before, state(work / "outside")))
            shutil.rmtree(work, ignore_errors=True)
    return found.finish(links=planted.total(), names=len(planted), of=len(places("call")), refused=refused)


if __name__ == "__main__":
    sys.exit(campaign())
