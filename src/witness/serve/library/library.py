"""Which transcripts lie below the folder, what is known of each, and where something was said.

No path ever comes from a request: an id is looked up among the files that were found.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from witness.errors import OutputError, WitnessError
from witness.formats.output_paths import names
from witness.progress import SILENT, Reporter
from witness.serve.library.index import DamagedError, Index, IndexEntry, ListedNote
from witness.serve.library.reader import Reader
from witness.storage import transaction
from witness.work.folder import MANIFEST
from witness.work.manifest import Manifest
from witness.work.recordings import ENDINGS

T = TypeVar("T")

LOOK = 3.0
"""Seconds between two looks at the folder; more if a look takes long."""
AGAIN = 30.0
"""Seconds of reading after which the folder is looked at again, for what is newer."""
MOST_ROWS = 1000
"""Recordings or passages in one answer."""
MOST_NAMED = 50
"""Recordings that are called as what is looked for, in one answer."""


@dataclass(frozen=True)
class ListedFile:
    """A JSON file below the folder, perhaps a transcript."""

    id: str
    path: Path
    """Below the folder."""
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class ListedRecording:
    """A row of the table of contents; its fields are the keys in JSON."""

    id: str
    name: str
    folder: str
    """Below the desk's; empty: in it."""
    seconds: float | None = None
    """None: not known, or not yet."""
    speakers: tuple[str, ...] = ()
    date: float | None = None
    """When the recording was made or last changed, in seconds since 1970."""
    state: str = "new"
    """"new", "in progress", "checked", "failed", "canceled", "working", "waiting"."""
    until: float = 0.0
    """Seconds: what was said before is corrected."""
    notes: tuple[ListedNote, ...] = ()
    """Not in the answer: `routes.notes` gives them."""
    why: str | None = None
    """Why it failed."""
    tags: tuple[str, ...] = ()
    not_again: str | None = None
    """Why it could not be transcribed again, which nobody has answered yet; the transcript is as it was."""


@dataclass(frozen=True)
class _Batch:
    """What a manifest says."""

    undone: Mapping[str, tuple[ListedRecording, str]] = field(default_factory=dict)
    """What failed or was canceled, with the recording's path, by the ids that the transcripts would have."""
    not_again: Mapping[str, str] = field(default_factory=dict)
    """Why some could not be transcribed again, by the ids of their transcripts."""
    sources: frozenset[str] = frozenset()
    """The absolute paths of all its recordings."""


STATES = ("working", "waiting", "failed", "canceled", "new", "in progress", "checked")
"""Of recordings, in the order in which they want somebody's attention."""


def id_of(path: Path) -> str:
    """What a transcript is called in addresses; `path` is that of its JSON below the folder."""
    return hashlib.sha256(os.fsencode(path.as_posix())).hexdigest()[:16]


def is_json(name: str) -> bool:
    """Whether a file may be a transcript."""
    return name.endswith(".json")


def is_recording(name: str) -> bool:
    """Whether a file is one that `witness batch` would take from a folder."""
    return name.rpartition(".")[2].lower() in ENDINGS


def walk(
    folder: Path, wanted: Callable[[str], bool] = is_json, *, tidy: bool = False
) -> Iterator[ListedFile]:
    """The regular files below a folder whose names are wanted, without hidden ones and what links lead to.

    `tidy`: what a crash left half done in a folder is finished before, or removed.
    """
    left = [""]
    while left:
        above = left.pop()
        try:
            with os.scandir(folder / above) as found:
                everything = list(found)
        except OSError:
            continue  # it is gone, or closed to us
        entries = sorted((one for one in everything if one.name[0] != "."), key=lambda one: one.name)
        if tidy and any(transaction.is_left_over(Path(one)) for one in everything):
            transaction.tidy([folder / above])
        for one in entries:
            path = f"{above}/{one.name}" if above else one.name
            with suppress(OSError):
                if one.is_dir(follow_symlinks=False):
                    left.append(path)
                elif wanted(one.name):
                    status = one.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        below = Path(path)
                        yield ListedFile(id_of(below), below, status.st_size, status.st_mtime_ns)


class Library:
    """The transcripts below a folder. All its methods may be called from any thread."""

    def __init__(self, folder: Path, index: Index | None = None) -> None:
        """Raises OutputError if the index cannot be kept."""
        self.folder = folder.resolve()
        try:
            self.index = index or Index.of(self.folder)
        except OSError as error:
            raise OutputError(
                f"{error.filename}: cannot be written ({error.strerror}); fix: free disk space, fix the "
                "folder's permissions or set WITNESS_CACHE to another folder"
            ) from error
        self._places: dict[str, ListedFile] = {}
        self._undone: dict[str, ListedRecording] = {}
        self._not_again: dict[str, str] = {}
        self._moved: dict[str, str] = {}
        self._manifests: dict[Path, tuple[ListedFile, _Batch]] = {}
        self._untranscribed: tuple[Path, ...] = ()
        self._reader = Reader()
        self._known: tuple[tuple[object, ...] | None, dict[str, ListedRecording], int] = (None, {}, 0)
        self._wake, self._end = threading.Event(), threading.Event()
        self._looking = threading.Lock()
        self._looked = 0.0  # seconds that the latest look took

    def find(self, transcript: str) -> Path | None:
        """The absolute path of the transcript with that id, wherever it was moved; None: there is none."""
        while transcript not in self._places and transcript in self._moved:
            transcript = self._moved[transcript]
        place = self._places.get(transcript)
        if place is None:
            self.look()  # it may have been written a moment ago
            place = self._places.get(transcript)
        if place is None:
            return None
        path = self.folder / place.path
        # A folder on the way may have become a link since.
        return path if path.resolve() == path and path.is_file() else None

    def recordings(self, states: Mapping[str, str] | None = None) -> tuple[list[ListedRecording], int]:
        """All recordings, and how many of them need no more reading. `states` are those of the queue, by id.

        Raises DamagedError, sqlite3.Error.
        """
        source = self.index.entries(), self._places, self._undone
        before, known, read = self._known
        if before is None or any(one is not other for one, other in zip(before, source, strict=True)):
            known, read = self._joined(*source)
            self._known = source, known, read
        rows = dict(known)
        for id_, why in self._not_again.items():
            if id_ in rows:
                rows[id_] = replace(rows[id_], not_again=why)
        for id_, state in (states or {}).items():
            if id_ in rows:
                rows[id_] = replace(rows[id_], state=state, why=None, not_again=None)
        return list(rows.values()), read

    def _joined(
        self,
        entries: Sequence[IndexEntry],
        places: Mapping[str, ListedFile],
        undone: Mapping[str, ListedRecording],
    ) -> tuple[dict[str, ListedRecording], int]:
        """What is known of each recording, by its id, and how many need no more reading."""
        known = {one.id: one for one in entries}
        rows = {
            one.id: self._row(one, known.get(one.id))
            for one in places.values()
            if one.id not in known or known[one.id].state != "other"
        }
        for one in undone.values():
            if one.id not in rows or (rows[one.id].state == "new" and one.state == "failed"):
                rows[one.id] = replace(rows.get(one.id, one), state=one.state, why=one.why)
        return rows, sum(id_ in known or id_ not in places for id_ in rows)

    def row(self, recording: str) -> ListedRecording | None:
        """The recording with that id, wherever it was moved; None: there is none. Raises as `recordings`."""
        self.find(recording)  # it may have been written a moment ago
        rows = {one.id: one for one in self.recordings()[0]}
        while recording not in rows and recording in self._moved:
            recording = self._moved[recording]
        return rows.get(recording)

    def not_again(self, recording: str) -> str | None:
        """Why it could not be transcribed again, until somebody has answered that."""
        return self._not_again.get(recording)

    def path_of(self, row: ListedRecording) -> tuple[Path, Path | None]:
        """Where the JSON of a row is or would be, and its recording, if that alone is there."""
        undone = [batch.undone.get(row.id) for _, batch in self._manifests.values()]
        source = next((Path(found[1]) for found in undone if found is not None), None)
        return self.folder / row.folder / f"{row.name}.json", source

    def is_read(self, path: Path) -> bool:
        """Whether the index knows the transcript at `path` as it is now."""
        try:
            status = path.stat()
        except OSError:
            return False
        return self.index.is_known(id_of(path.relative_to(self.folder)), status.st_size, status.st_mtime_ns)

    def moved(self, path: Path, place: Path, *, was_read: bool) -> str:
        """Whoever asks for the transcript that was at `path` gets the one at `place`; returns its id.

        Unless it `was_read` just before, what the index has of it is older, or that it could not be read.
        """
        before, now = (id_of(one.relative_to(self.folder)) for one in (path, place))
        self._moved.pop(now, None)
        if before != now:
            self._moved[before] = now
            with suppress(OSError):
                status = place.stat()
                if was_read:
                    self.index.rename(before, now, status.st_size, status.st_mtime_ns)
                else:
                    self.changed()
        self.look()
        return now

    def untranscribed(self) -> tuple[Path, ...]:
        """Recordings, below the folder, that no batch knows and that have no transcript beside them."""
        return self._untranscribed

    def name(self, transcript: str) -> str:
        """What people call it; empty: it is gone."""
        place = self._places.get(transcript)
        return "" if place is None else place.path.name.removesuffix(".json")

    def changed(self) -> None:
        """Have the folder looked at now."""
        self._wake.set()

    @contextmanager
    def watched(self, reporter: Reporter = SILENT) -> Iterator[None]:
        """Keep the index up to date meanwhile, in a thread."""
        thread = threading.Thread(target=self._watch, args=(reporter,), name="index", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            self._wake.set()
            self._reader.close()  # what it has not written is written the next time
            thread.join(0.5)

    def update(self) -> bool:
        """Look at the folder, and read what has changed since, the latest first.

        False: not all was read, because it is time to look again. Raises DamagedError, sqlite3.Error.
        """
        self.look()
        looked = time.monotonic()
        here = self._places
        known = {one.id: (one.size, one.mtime_ns) for one in self.index.entries()}
        self.index.drop(known.keys() - here.keys())
        for place in sorted(here.values(), key=lambda one: -one.mtime_ns):
            if self._wake.is_set() or time.monotonic() - looked > AGAIN:
                return False
            if known.get(place.id) == (place.size, place.mtime_ns):
                continue
            if self.index.is_known(place.id, place.size, place.mtime_ns):
                continue  # another server has read it meanwhile
            entry = IndexEntry(place.id, place.size, place.mtime_ns, "other", date=place.mtime_ns / 1e9)
            self._reader.take(self.index, self.folder / place.path, entry)
        return True

    def _watch(self, reporter: Reporter) -> None:
        told = ""
        while not self._end.is_set():
            self._wake.clear()
            try:
                if not self.update():
                    continue
                told = ""
            except DamagedError:
                continue  # it is made again
            except (sqlite3.Error, OSError, WitnessError) as error:
                line = f"{self.index.path}: cannot be written ({error}); search does not know all transcripts"
                if line != told:
                    reporter.note(line)
                told = line
            self._wake.wait(max(LOOK, 20 * self._looked))

    def look(self) -> None:
        """Find out which files there are."""
        with self._looking:
            begun = time.monotonic()
            places: dict[str, ListedFile] = {}
            manifests: dict[Path, tuple[ListedFile, _Batch]] = {}
            recordings = []
            for one in walk(
                self.folder,
                lambda name: is_json(name) or name == MANIFEST or is_recording(name),
                tidy=True,
            ):
                if one.path.name == MANIFEST:
                    before = self._manifests.get(one.path)
                    manifests[one.path] = before if before and before[0] == one else (one, self._batch(one))
                elif is_json(one.path.name):
                    places[one.id] = one
                else:
                    recordings.append(one.path)
            known = frozenset[str]().union(*(batch.sources for _, batch in manifests.values()))
            self._untranscribed = tuple(
                path
                for path in recordings
                if (source := str(self.folder / path)) not in known
                and not any(id_of(Path(f"{name}.json")) in places for name in names(str(path), source))
            )
            self._looked = time.monotonic() - begun
            if places != self._places:
                self._places = places
            self._manifests = manifests
            here = {str(self.folder / path) for path in recordings}
            undone = {
                id_: row
                for _, batch in manifests.values()
                for id_, (row, source) in batch.undone.items()
                # To be rid of one, delete the recording; one elsewhere may only be out of reach.
                if source in here or not Path(source).is_relative_to(self.folder)
            }
            if undone != self._undone:
                self._undone = undone
            self._not_again = {
                id_: why for _, batch in manifests.values() for id_, why in batch.not_again.items()
            }

    def _batch(self, place: ListedFile) -> _Batch:
        """What a manifest says."""
        try:
            manifest = Manifest(self.folder / place.path)
        except OutputError:
            return _Batch()
        found, not_again = {}, {}
        for entry in manifest.entries.values():
            path = place.path.parent / f"{entry.output}.json"
            if entry.again and entry.state == "failed":
                not_again[id_of(path)] = entry.why or ""
            elif entry.state in ("failed", "canceled") and not entry.again:
                row = ListedRecording(id_of(path), Path(entry.output).name, _folder(path))
                date = entry.mtime_ns / 1e9 or None
                row = replace(row, seconds=entry.duration, date=date, state=entry.state, why=entry.why)
                found[row.id] = row, entry.source
        return _Batch(found, not_again, frozenset(manifest.sources))

    def _row(self, place: ListedFile, entry: IndexEntry | None) -> ListedRecording:
        row = ListedRecording(place.id, place.path.name.removesuffix(".json"), _folder(place.path))
        if entry is None:
            return replace(row, date=place.mtime_ns / 1e9)
        return replace(
            row,
            seconds=entry.seconds,
            speakers=entry.speakers,
            date=entry.date,
            state=entry.state,
            until=entry.until,
            notes=entry.notes,
            why=entry.why,
            tags=entry.tags,
        )


def _folder(path: Path) -> str:
    return "" if path.parent == Path() else path.parent.as_posix()
