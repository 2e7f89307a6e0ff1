"""Power cuts while Witness writes: python tests/fuzz/power.py [--count 500] [--way save] [--errors]

Each way of writing (a save, a single file, an upload, a recording of a browser, a journal, the trash) is
done once on a disk that notes every step (`disks.py`); then the power fails at random steps, and unsynced
changes may be lost. Not allowed: a file half written after the next start, some formats old and others new,
anything lost that was acknowledged, anything left behind. With `--errors` the disk answers EIO at one step
after the other instead; then a line must say so, and the same holds. The last line is the sum as JSON; the
exit code is 1 if there was any of these.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import disks
import documents

from witness.errors import InputError, OutputError, WitnessError
from witness.formats import writers
from witness.formats.registry import Format
from witness.options import Bounds
from witness.storage import atomic, checkpoint, transaction
from witness.transcript import assemble, corrections, edits, store, trash
from witness.work.folder import MANIFEST
from witness.work.manifest import Manifest

TEXTS = (Format.TXT, Format.SRT, Format.CSV)
SOUND = bytes(range(256)) * 40


def talk(folder: Path) -> Path:
    """Write the transcript of a talk with text, subtitles and a table; return the path of its JSON."""
    path = folder / "talk.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    transcript = corrections.apply(assemble.make_draft(documents.found(), Bounds(speakers=3)))
    store.save(transcript, [(form, store.sibling(path, form)) for form in (Format.JSON, *TEXTS)])
    return path


def start_again(root: Path) -> None:
    """Do what the next process does first."""
    atomic.unfinished.clear()
    store._hashes.clear()
    transaction.tidy([path for path in [root, *root.rglob("*")] if path.is_dir()])


def left_behind(root: Path) -> str | None:
    ending = (transaction.SAVED, transaction.MOVING)
    left = [p for p in root.rglob(".*") if p.name.startswith(atomic.SCRATCH + "m") or p.name.endswith(ending)]
    return f"left behind: {[path.name for path in left]}" if left else None


def disagreement(path: Path) -> str | None:
    """Return the fault of a transcript with its formats."""
    transcript = store.read(path)
    for form in TEXTS:
        beside = store.sibling(path, form)
        if not beside.is_file() or beside.read_bytes() != writers.content(transcript, form):
            return f"the {form} differs from the JSON"
    if not path.with_name(f"{store.base_name(path)}.findings.npz").is_file():
        return "the findings are gone"
    return None


# --- the ways ---


class Save:
    """Names of a speaker, one after the other."""

    raises: tuple[type[Exception], ...] = ()

    def prepare(self, root: Path) -> None:
        self.path = talk(root)

    def run(self, disk: disks.Disk) -> None:
        for number in range(1, 4):
            edits.name_speaker(self.path, edits.show(self.path).version, "SPEAKER_01", f"Ann {number}")
            disk.promise(number)

    def complaint(self, _: Path, promises: list[Any]) -> str | None:
        name = store.read(self.path).speakers[0].name
        if int((name or "0").split()[-1]) < max(promises, default=0):
            return f"{name} is older than {promises[-1]}, which was acknowledged"
        history = store.history_path(self.path)
        if history.exists() and json.loads(history.read_bytes())["version"] != store.load(self.path).version:
            return "the history is of another version"
        return disagreement(self.path)


class Files:
    """Single files, and several at a time."""

    raises: tuple[type[Exception], ...] = (OSError,)

    def prepare(self, root: Path) -> None:
        for name in "abc":
            (root / name).write_bytes(b"0" * 5000)

    def run(self, disk: disks.Disk) -> None:
        for number in (b"1", b"2"):
            atomic.replace(number * 5000, disk.root / "a")
            disk.promise(("a", number))
            atomic.write_all([(number * 5000, disk.root / name) for name in "bcd"])
            for name in "bcd":
                disk.promise((name, number))

    def complaint(self, root: Path, promises: list[Any]) -> str | None:
        for name in "abcd":
            content = (root / name).read_bytes() if (root / name).exists() else b""
            promised = max((number for file, number in promises if file == name), default=b"")
            if content[:1] < promised:
                return f"{name} is older than {promised!r}, which was acknowledged"
            if content and content != content[:1] * 5000:
                return f"{name} is half written"
        return None


class _Pool:
    """A pool that does no work."""

    workers = 1

    def __init__(self, _: object) -> None: ...

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, *_: object) -> Future[object]:
        return Future()


class Desk:
    """A client of a desk that transcribes nothing."""

    raises: tuple[type[Exception], ...] = ()

    def prepare(self, root: Path) -> None:
        (root / "calls").mkdir()

    def run(self, disk: disks.Disk) -> None:
        from starlette.applications import Starlette
        from starlette.testclient import TestClient

        from witness.serve import browser_recordings, errors, queue
        from witness.serve.app_state import Quotas
        from witness.serve.routes import recordings
        from witness.serve.uploads import Uploads

        queue.Pool = _Pool  # type: ignore[assignment, misc]
        folder = disk.root / "calls"
        with ExitStack() as stack:
            uploads = stack.enter_context(Uploads(folder))
            desk_queue = stack.enter_context(queue.Queue(folder, lambda _: None))  # type: ignore[arg-type, return-value]
            routes = [*recordings.routes(), *browser_recordings.routes()]
            app = Starlette(routes=routes, exception_handlers=errors.HANDLERS)
            limits = Quotas(upload=1 << 20)
            app.state.desk = SimpleNamespace(folder=folder, queue=desk_queue, uploads=uploads, limits=limits)
            self.use(stack.enter_context(TestClient(app)), disk)

    def use(self, client: Any, disk: disks.Disk) -> None:
        raise NotImplementedError

    @staticmethod
    def check(answer: Any) -> None:
        """Raise OutputError for a refusal in a line; 500 is a bug."""
        assert answer.status_code in (200, 201, 422, 507), answer.text
        if answer.status_code > 201:
            raise OutputError(answer.json()["error"]["message"])

    @staticmethod
    def is_kept(root: Path, name: str, content: bytes) -> str | None:
        """Return the fault of a recording that was acknowledged."""
        path = root / "calls" / name
        if not path.is_file() or path.read_bytes() != content:
            return f"{name} is lost or half written"
        entries = Manifest(root / "calls" / MANIFEST).entries
        if path.stem not in entries:
            return f"{name} does not wait anymore"
        return None


class Upload(Desk):
    """Two recordings that are sent."""

    def use(self, client: Any, disk: disks.Disk) -> None:
        for number in (1, 2):
            name, content = f"call{number}.wav", SOUND + bytes([number])
            answer = client.post("/api/recordings", files=[("file", (name, content))])
            self.check(answer)
            disk.promise((name, content))

    def complaint(self, root: Path, promises: list[Any]) -> str | None:
        found = (self.is_kept(root, name, content) for name, content in promises)
        return next(filter(None, found), None)


class Take(Desk):
    """A recording that a browser sends in pieces."""

    def use(self, client: Any, disk: disks.Disk) -> None:
        answer = client.post("/api/takes", json={"name": "talk.webm"})
        self.check(answer)
        take = answer.json()["id"]
        for number in range(3):
            place = f"/api/takes/{take}/pieces/{number * len(SOUND)}"
            answer = client.post(place, content=SOUND)
            self.check(answer)
            disk.promise((take, number + 1))
        answer = client.post(f"/api/takes/{take}/finish")
        self.check(answer)
        disk.promise(("done", 0))

    def complaint(self, root: Path, promises: list[Any]) -> str | None:
        from witness.serve import browser_recordings

        if ("done", 0) in promises:
            return self.is_kept(root, "talk.webm", SOUND * 3)
        for take, pieces in promises[-1:]:
            if (root / "calls" / "talk.webm").exists():  # it was just being finished
                whole = (root / "calls" / "talk.webm").read_bytes() == SOUND * 3
                return None if whole else "talk.webm is half written"
            sound = root / "calls" / browser_recordings.PLACE / take / "sound"
            if not sound.is_file() or sound.read_bytes()[: pieces * len(SOUND)] != SOUND * pieces:
                return f"piece {pieces} is lost"
            if not browser_recordings.unfinished(root / "calls"):
                return "the recording is not offered anymore"
        return None


class Journal:
    """Pieces of a transcription that was interrupted."""

    raises: tuple[type[Exception], ...] = ()

    def prepare(self, root: Path) -> None:
        os.environ["WITNESS_CACHE"] = str(root)

    def run(self, disk: disks.Disk) -> None:
        for facts in (range(4), ["last"]):
            notes: list[str] = []
            with checkpoint.Journal() as journal:
                journal.open("talk", notes.append)
                for fact in facts:
                    journal.add(str(fact), SOUND if fact == "last" else SOUND + bytes([fact]))
                    if not notes:  # nothing is kept after a note
                        disk.promise(fact)

    def complaint(self, _: Path, promises: list[Any]) -> str | None:
        with checkpoint.Journal() as journal:
            journal.open("talk")
            for fact in promises:
                content = SOUND if fact == "last" else SOUND + bytes([fact])
                if journal.get(str(fact)) != content:
                    return f"record {fact} is lost"
        return None


class Trash:
    """A transcript that is thrown away, put back, moved to a new folder, thrown away and deleted."""

    raises: tuple[type[Exception], ...] = ()

    def prepare(self, root: Path) -> None:
        self.path = talk(root / "calls" / "one")
        self.moved = root / "calls" / "two" / "three" / "b.json"

    def run(self, disk: disks.Disk) -> None:
        root = disk.root / "calls"
        thrown = trash.throw(self.path, root)
        disk.promise("thrown")
        trash.restore(root, thrown.id)
        disk.promise("here")
        trash.move(self.path, self.moved)
        disk.promise("moved")
        thrown = trash.throw(self.moved, root)
        disk.promise("thrown")
        trash.delete(root, [thrown.id])
        disk.promise("deleted")

    def complaint(self, root: Path, promises: list[Any]) -> str | None:
        places = {"here": [self.path], "moved": [self.moved]}
        calls = root / "calls"
        places["thrown"] = [calls / trash.TRASH / each.id for each in trash.list_trash(calls)]
        found = [place for place, paths in places.items() for path in paths if path.exists()]
        about = "after " + (promises[-1] if promises else "nothing")
        if "deleted" in promises or (promises[2:3] and not found and "thrown" in promises[3:]):
            return f"{found} {about}" if found else None
        if len(found) != 1:
            return f"it is {found or 'lost'} {about}"
        order = ("here", "thrown", "here", "moved", "thrown")
        if found[0] not in order[len(promises) : len(promises) + 2]:
            return f"it is {found[0]} {about}"
        if found[0] != "thrown":
            return disagreement(places[found[0]][0])
        names = sorted(path.name for path in places["thrown"][0].iterdir())
        whole = {transaction.ABOUT, "v.json", "v.findings.npz", *(f"v.{form}" for form in TEXTS)}
        return None if whole <= {*names} or promises[3:] else f"in the trash are {names}"


WAYS: dict[str, Callable[[], Any]] = {
    "save": Save,
    "files": Files,
    "upload": Upload,
    "take": Take,
    "journal": Journal,
    "trash": Trash,
}


def cuts(name: str, numbers: range, base: Path) -> tuple[int, list[str]]:
    """Return the steps of a way, and a line for each power cut that it does not survive."""
    root = base / name
    root.mkdir()
    way = WAYS[name]()
    way.prepare(root)
    with disks.watched(root) as disk:
        way.run(disk)
    bad = []
    for number in numbers:
        chance = random.Random(f"{name} {number}")
        step = disk.step if number % 5 == 0 else chance.randint(0, disk.step)
        promises = disk.restore(step, chance)
        try:
            start_again(root)
            wrong = way.complaint(root, promises) or left_behind(root)
        except (OSError, InputError, ValueError) as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong is not None:
            bad.append(f"{name} {number}, step {step} of {disk.step}: {wrong}")
    shutil.rmtree(root)
    return disk.step, bad


def errors(name: str, base: Path) -> tuple[int, list[str]]:
    """Return the steps of a way, and a line for each whose failure it does not survive."""
    root, bad, step = base / name, [], 0
    while True:
        step += 1
        root.mkdir()
        atomic.unfinished.clear()
        store._hashes.clear()
        way = WAYS[name]()
        way.prepare(root)
        wrong = None
        with disks.watched(root, step) as disk:
            try:
                way.run(disk)
            except (WitnessError, *way.raises) as error:
                wrong = "more than a line" if "\n" in str(error) else None
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
        if wrong is None:
            try:
                start_again(root)
                wrong = way.complaint(root, [fact for _, fact in disk.promises]) or left_behind(root)
            except (OSError, InputError, ValueError) as error:
                wrong = f"{type(error).__name__}: {error}"
        if wrong is not None:
            bad.append(f"{name}, EIO at step {step} of {disk.step}: {wrong}")
        shutil.rmtree(root)
        if step > disk.step:
            return step, bad


def campaign() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--way", choices=sorted(WAYS))
    parser.add_argument("--errors", action="store_true")
    arguments = parser.parse_args()
    ways = [arguments.way] if arguments.way else list(WAYS)
    each = -(-arguments.count // len(ways))
    steps, bad = {}, 0
    shared = Path("/dev/shm")  # noqa: S108 - a disk in memory
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as base:
        for way in ways:
            if arguments.errors:
                steps[way], lines = errors(way, Path(base))
            else:
                steps[way], lines = cuts(way, range(arguments.first, arguments.first + each), Path(base))
            bad += len(lines)
            sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.write(
        json.dumps({"cuts": 0 if arguments.errors else each * len(ways), "steps": steps, "bad": bad}) + "\n"
    )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(campaign())
