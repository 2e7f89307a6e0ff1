"""The transcripts below the folder: their state, search, and the rows that a list shows.

No path ever comes from a request: an id is looked up among the files below the folder.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from datetime import time as clock
from pathlib import Path
from typing import Any

from witness.audio import decode
from witness.audio.source import ENDINGS
from witness.errors import InputError, OtherJsonError, OutputError, UsageError, WitnessError
from witness.formats import reading
from witness.formats.output_paths import names
from witness.progress import SILENT, Reporter
from witness.schema import Transcript
from witness.serve.library.index import DamagedError, Index, IndexEntry, ListedNote
from witness.serve.library.query import Query, folded, parse, plain
from witness.serve.library.search import passages, speaker_names
from witness.serve.worker import EndedError, Worker
from witness.storage import transaction
from witness.text import printable
from witness.transcript import store
from witness.work.folder import MANIFEST
from witness.work.manifest import Manifest

LOOK = 3.0
"""Seconds between two looks at the folder; more if a look takes long."""
AGAIN = 30.0
"""Seconds of reading after which the library looks for newer files."""
MOST_CHOICES = 1000
"""Folders, tags or speakers to choose from."""
STATES = ("working", "waiting", "failed", "canceled", "new", "in progress", "checked")
"""States of recordings; those that need attention first."""
PRIORITY = 10
"""Added to the server's niceness for the process."""
NOT_ENGLISH = "not English, the only language that its model knows; transcribe it with another one"


@dataclass(frozen=True)
class ListedFile:
    """A JSON file below the folder, perhaps a transcript."""

    id: str
    path: Path
    """Relative to the folder."""
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class ListedRecording:
    """A row of the table of contents; its fields are the keys in JSON."""

    id: str
    name: str
    folder: str
    """Relative to the desk's; empty: the desk's own."""
    seconds: float | None = None
    speakers: tuple[str, ...] = ()
    date: float | None = None
    """Seconds since 1970: the recording's own date, or that of its last change."""
    state: str = "new"
    until: float = 0.0
    """Seconds: a person has corrected the recording up to here."""
    notes: tuple[ListedNote, ...] = ()
    """Not in the answer: `routes.notes` lists them."""
    why: str | None = None
    """Reason for the state "failed"."""
    tags: tuple[str, ...] = ()
    not_again: str | None = None
    """Reason why another transcription failed, until a person dismisses it; the transcript is unchanged."""


@dataclass(frozen=True)
class _Batch:
    """The content of a manifest."""

    undone: Mapping[str, tuple[ListedRecording, str]] = field(default_factory=dict)
    """Failed and canceled recordings, and their paths, by the ids that the transcripts would have."""
    not_again: Mapping[str, str] = field(default_factory=dict)
    sources: frozenset[str] = frozenset()
    """Absolute paths of all its recordings."""


def id_of(path: Path) -> str:
    """Return the id of a transcript; `path` is that of its JSON, relative to the folder."""
    return hashlib.sha256(os.fsencode(path.as_posix())).hexdigest()[:16]


def is_recording(name: str) -> bool:
    """Tell whether a name has the ending of a recording."""
    return os.path.splitext(name)[1][1:].lower() in ENDINGS  # noqa: PTH122 - perhaps of another machine


def walk(folder: Path) -> Iterator[ListedFile]:
    """Yield the JSON files, manifests and recordings below a folder; not hidden ones, nor behind links.

    Finish or remove the half-done work of a crash in each folder before.
    """
    left = [""]
    while left:
        above = left.pop()
        try:
            with os.scandir(folder / above) as scan:
                everything = list(scan)
        except OSError:
            continue  # it was removed, or may not be read
        if any(transaction.is_left_over(Path(entry)) for entry in everything):
            transaction.tidy([folder / above])
        visible = (entry for entry in everything if entry.name[0] != ".")
        for entry in sorted(visible, key=lambda entry: entry.name):
            path = f"{above}/{entry.name}" if above else entry.name
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    left.append(path)
                elif entry.name.endswith(".json") or entry.name == MANIFEST or is_recording(entry.name):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield ListedFile(id_of(Path(path)), Path(path), status.st_size, status.st_mtime_ns)


class Library:
    """The transcripts below a folder. All its methods may be called from any thread."""

    def __init__(self, folder: Path, index: Index | None = None) -> None:
        """Open the index of a folder. Raises OutputError if it cannot be written."""
        self.folder = folder.resolve()
        try:
            self.index = index or Index.of(self.folder)
        except OSError as error:
            raise OutputError(
                f"{error.filename}: cannot be written ({error.strerror}); fix: free disk space, fix the "
                "folder's permissions or set WITNESS_CACHE to another folder"
            ) from error
        self._files: dict[str, ListedFile] = {}
        self._undone: dict[str, ListedRecording] = {}
        self._not_again: dict[str, str] = {}
        self._moved: dict[str, str] = {}
        self._deleted: set[str] = set()
        self._manifests: dict[Path, tuple[ListedFile, _Batch]] = {}
        self._untranscribed: tuple[Path, ...] = ()
        self._reader = Worker(lower_priority)
        self._joined: tuple[tuple[object, ...] | None, dict[str, ListedRecording], int] = (None, {}, 0)
        self._wake, self._end = threading.Event(), threading.Event()
        self._looking = threading.Lock()
        self._looked = 0.0  # seconds that the latest look took

    def find(self, transcript: str) -> Path | None:
        """Return the absolute path of the transcript with an id, also after a move; None: it is gone."""
        while transcript not in self._files and transcript in self._moved:
            transcript = self._moved[transcript]
        if transcript not in self._files:
            self.look()  # it may be new
        file = self._files.get(transcript)
        if file is None:
            return None
        path = self.folder / file.path
        # A folder on the way may have become a link since.
        return path if path.resolve() == path and path.is_file() else None

    def recordings(self, states: Mapping[str, str] | None = None) -> tuple[list[ListedRecording], int]:
        """Return all recordings, with the queue's states by id, and the number that needs no more reading.

        Raises DamagedError, sqlite3.Error.
        """
        source = self.index.entries(), self._files, self._undone
        before, joined, read = self._joined
        if before is None or any(old is not new for old, new in zip(before, source, strict=True)):
            joined, read = _join(*source)
            self._joined = source, joined, read
        rows = dict(joined)
        for id_, why in self._not_again.items():
            if id_ in rows:
                rows[id_] = replace(rows[id_], not_again=why)
        for id_, state in (states or {}).items():
            if id_ in rows:
                rows[id_] = replace(rows[id_], state=state, why=None, not_again=None)
        return list(rows.values()), read

    def row(self, recording: str) -> ListedRecording | None:
        """Return the recording with an id, also after a move; None: it is gone. Raises as `recordings`."""
        self.find(recording)  # looks again if it may be new
        rows = {row.id: row for row in self.recordings()[0]}
        while recording not in rows and recording in self._moved:
            recording = self._moved[recording]
        return rows.get(recording)

    def not_again(self, recording: str) -> str | None:
        """Return the reason why another transcription failed, until a person dismisses it."""
        return self._not_again.get(recording)

    def path_of(self, row: ListedRecording) -> tuple[Path, Path | None]:
        """Return the path of a row's JSON, which may be missing, and that of an undone recording."""
        undone = [batch.undone.get(row.id) for _, batch in self._manifests.values()]
        source = next((Path(entry[1]) for entry in undone if entry is not None), None)
        return self.folder / row.folder / f"{row.name}.json", source

    def is_read(self, path: Path) -> bool:
        """Tell whether the index has this state of the transcript at `path`."""
        try:
            status = path.stat()
        except OSError:
            return False
        return self.index.is_current(id_of(path.relative_to(self.folder)), status.st_size, status.st_mtime_ns)

    def moved(self, path: Path, target: Path, *, was_read: bool) -> str:
        """Let the id of `path` lead to the transcript at `target`; return its new id.

        Unless it `was_read` just before the move, its entry in the index is old, and it is read again.
        """
        before, now = (id_of(moved.relative_to(self.folder)) for moved in (path, target))
        self._moved.pop(now, None)
        if before != now:
            self._moved[before] = now
            with suppress(OSError):
                status = target.stat()
                if was_read:
                    self.index.rename(before, now, status.st_size, status.st_mtime_ns)
                else:
                    self.changed()
        self.look()
        return now

    def forget(self, deleted: Iterable[Path]) -> None:
        """Remove transcripts that were deleted for good, with all their words; paths below the folder.

        Raises DamagedError, sqlite3.Error.
        """
        self.look()
        ids = {id_of(path) for path in deleted} - self._files.keys()
        self._deleted |= ids
        self.index.drop(ids)
        self.index.scrub()

    def untranscribed(self) -> tuple[Path, ...]:
        """Return recordings without a transcript and outside of batches, relative to the folder."""
        return self._untranscribed

    def changed(self) -> None:
        """Wake the thread that looks at the folder."""
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
            self._reader.close()  # it reads the rest the next time
            thread.join(0.5)

    def update(self) -> bool:
        """Look at the folder, and read the changed files, the latest first.

        False: some are left, because it is time for another look. Raises DamagedError, sqlite3.Error.
        """
        self.look()
        looked = time.monotonic()
        files = self._files
        indexed = {entry.id: (entry.size, entry.mtime_ns) for entry in self.index.entries()}
        gone = indexed.keys() - files.keys()
        self.index.drop(gone)
        if gone & self._deleted:  # it was being read while it was deleted
            self.index.scrub()
        for file in sorted(files.values(), key=lambda file: -file.mtime_ns):
            if self._wake.is_set() or time.monotonic() - looked > AGAIN:
                return False
            if indexed.get(file.id) == (file.size, file.mtime_ns):
                continue
            if self.index.is_current(file.id, file.size, file.mtime_ns):
                continue  # another server has read it meanwhile
            entry = IndexEntry(file.id, file.size, file.mtime_ns, "other", date=file.mtime_ns / 1e9)
            self._read(self.folder / file.path, entry)
        return True

    def _read(self, path: Path, entry: IndexEntry) -> None:
        """Read a file into the index; one that ends the process twice gets the state "failed".

        Raises DamagedError, WitnessError.
        """
        why = ""
        for _ in range(2):
            try:
                self._reader.call(put_file, path, self.index.path, entry)
            except EndedError as error:  # noqa: PERF203 - twice
                if self._end.is_set():
                    return
                why = str(error)
            else:
                return
        self.index.put(replace(entry, state="failed", why=printable(why)))

    def _watch(self, reporter: Reporter) -> None:
        reported = ""
        while not self._end.is_set():
            self._wake.clear()
            try:
                if not self.update():
                    continue
                reported = ""
            except DamagedError:
                continue  # the next round builds it again
            except (sqlite3.Error, OSError, WitnessError) as error:
                line = f"{self.index.path}: cannot be written ({error}); search does not know all transcripts"
                if line != reported:
                    reporter.note(line)
                reported = line
            self._wake.wait(max(LOOK, 20 * self._looked))

    def look(self) -> None:
        """List the files below the folder."""
        with self._looking:
            begun = time.monotonic()
            files: dict[str, ListedFile] = {}
            manifests: dict[Path, tuple[ListedFile, _Batch]] = {}
            recordings = []
            for file in walk(self.folder):
                if file.path.name == MANIFEST:
                    before = self._manifests.get(file.path)
                    unchanged = before is not None and before[0] == file
                    manifests[file.path] = before if before and unchanged else (file, self._batch(file))
                elif file.path.suffix == ".json":
                    files[file.id] = file
                else:
                    recordings.append(file.path)
            batches = [batch for _, batch in manifests.values()]
            sources = frozenset[str]().union(*(batch.sources for batch in batches))
            self._untranscribed = tuple(
                path
                for path in recordings
                if (source := str(self.folder / path)) not in sources
                and not any(id_of(Path(f"{name}.json")) in files for name in names(str(path), source))
            )
            self._looked = time.monotonic() - begun
            if files != self._files:
                self._files = files
            self._manifests = manifests
            present = {str(self.folder / path) for path in recordings}
            undone = {
                id_: row
                for batch in batches
                for id_, (row, source) in batch.undone.items()
                # A person removes a row by deleting its recording; on another drive it may be out of reach.
                if source in present or not Path(source).is_relative_to(self.folder)
            }
            if undone != self._undone:
                self._undone = undone
            self._not_again = {id_: why for batch in batches for id_, why in batch.not_again.items()}

    def _batch(self, file: ListedFile) -> _Batch:
        """Read a manifest."""
        try:
            manifest = Manifest(self.folder / file.path)
        except OutputError:
            return _Batch()
        undone, not_again = {}, {}
        for entry in manifest.entries.values():
            path = file.path.parent / f"{entry.output}.json"
            if entry.again and entry.state == "failed":
                not_again[id_of(path)] = entry.why or ""
            elif entry.state in ("failed", "canceled") and not entry.again:
                row = ListedRecording(
                    *(id_of(path), Path(entry.output).name, _folder(path), entry.duration),
                    date=entry.mtime_ns / 1e9 or None,
                    state=entry.state,
                    why=entry.why,
                )
                undone[row.id] = row, entry.source
        return _Batch(undone, not_again, frozenset(manifest.sources))


def _join(
    entries: Sequence[IndexEntry], files: Mapping[str, ListedFile], undone: Mapping[str, ListedRecording]
) -> tuple[dict[str, ListedRecording], int]:
    """Join files, index and manifests into rows, by id; return the number that needs no more reading, too."""
    indexed = {entry.id: entry for entry in entries}
    rows = {
        file.id: _row(file, indexed.get(file.id))
        for file in files.values()
        if file.id not in indexed or indexed[file.id].state != "other"
    }
    for row in undone.values():
        if row.id not in rows or (rows[row.id].state == "new" and row.state == "failed"):
            rows[row.id] = replace(rows.get(row.id, row), state=row.state, why=row.why)
    return rows, sum(id_ in indexed or id_ not in files for id_ in rows)


def _row(file: ListedFile, entry: IndexEntry | None) -> ListedRecording:
    row = ListedRecording(file.id, file.path.name.removesuffix(".json"), _folder(file.path))
    if entry is None:
        return replace(row, date=file.mtime_ns / 1e9)
    shared = ("seconds", "speakers", "date", "state", "until", "notes", "why", "tags")
    return replace(row, **{name: getattr(entry, name) for name in shared})


def _folder(path: Path) -> str:
    return "" if path.parent == Path() else path.parent.as_posix()


# --- reading files, in a process of its own ---
#
# The transcript of a day takes 200 MB while it is read, and the interpreter for seconds: not the server's.


def lower_priority() -> None:
    """Leave the processor to others."""
    if hasattr(os, "nice"):
        os.nice(PRIORITY)


def put_file(path: Path, index: Path, entry: IndexEntry) -> None:
    """Read the file at `path` into the index; `entry` has its id, size and time. Raises WitnessError."""
    entry, transcript = _entry_of(path, entry)
    try:
        Index(index).put(entry, passages(transcript) if transcript else ())
    except InputError as error:
        Index(index).put(replace(entry, state="failed", why=printable(f"{path}: {error}")))
    except sqlite3.Error as error:
        raise WitnessError(str(error)) from error


def _entry_of(path: Path, entry: IndexEntry) -> tuple[IndexEntry, Transcript | None]:
    """Return the entry of a file, and the transcript in it; None: it has none."""
    try:
        transcript = store.read(path)
    except OtherJsonError:
        return replace(entry, state="other"), None
    except InputError as error:
        return replace(entry, state="failed", why=printable(str(error))), None
    said = sum(utterance.end - utterance.start for utterance in transcript.utterances)
    missed = sum(
        utterance.end - utterance.start for utterance in transcript.utterances if utterance.not_english
    )
    entry = replace(
        entry,
        state=transcript.state,
        until=transcript.review.until,
        notes=tuple(_notes(transcript)),
        seconds=transcript.audio.duration,
        speakers=tuple(speaker_names(transcript).values()),
        date=_date(Path(transcript.audio.path), path.parent) or entry.date,
        tags=transcript.tags,
        why=NOT_ENGLISH if missed > said / 2 else None,
    )
    return entry, transcript


def _date(recording: Path, folder: Path) -> float | None:
    """Return the date in the recording, or else that of its last change."""
    for path in (folder / recording.name, recording):
        with suppress(OSError, ValueError):
            changed = path.stat().st_mtime
            with suppress(InputError):
                return decode.recorded(str(path)) or changed
            return changed
    return None


def _notes(transcript: Transcript) -> Iterator[ListedNote]:
    called = speaker_names(transcript)
    for note in reading.noted_passages(transcript):
        speaker = ", ".join(called.get(speaker, speaker) for speaker in note.speakers)
        yield ListedNote(note.start, note.quote, speaker, note.text, note.codes)


# --- the rows that a list shows ---


SORTS: Mapping[str, Callable[[ListedRecording], Any]] = {
    "name": lambda row: (plain(row.name), plain(row.folder)),
    "folder": lambda row: (plain(row.folder), plain(row.name)),
    "date": lambda row: row.date or 0.0,
    "seconds": lambda row: row.seconds or 0.0,
    "speakers": lambda row: (len(row.speakers), [name.casefold() for name in row.speakers]),
    "state": lambda row: STATES.index(row.state),
    "tag": lambda row: [plain(tag) for tag in row.tags] or ["\U0010ffff"],
}


@dataclass(frozen=True)
class Selection:
    """Filters of a list; empty ones match every recording."""

    name: str = ""
    """A query over the words of the name and of the folder's, and their beginnings."""
    folder: str | None = None
    """This folder, or one below; empty: the desk's own alone."""
    state: str = ""
    tag: str = ""
    speaker: str = ""
    since: str = ""
    """The first day, as 2026-11-24."""
    until: str = ""
    """The last day."""

    def select(self, rows: Iterable[ListedRecording]) -> list[ListedRecording]:
        """Return the matching rows. Raises UsageError for a bad day or query."""
        query = parse(self.name)
        first, last = _begin(self.since), _begin(self.until, days=1)

        def matches(row: ListedRecording) -> bool:
            return (
                (self.folder is None or _is_below(row.folder, self.folder))
                and self.state in ("", row.state)
                and (not self.tag or self.tag in row.tags)
                and (not self.speaker or self.speaker in row.speakers)
                and (first is None or (row.date or 0.0) >= first)
                and (last is None or (row.date or 0.0) < last)
                and (not self.name or has_name(row, query))
            )

        return [row for row in rows if matches(row)]


def has_name(row: ListedRecording, query: Query) -> bool:
    """Tell whether words in the name, or in the folder's, begin like the words of a query."""
    begun = query.each(lambda term: replace(term, goes_on=True))
    return bool(query.groups) and begun.matches(folded(f"{row.folder}/{row.name}"))


def choices(rows: Sequence[ListedRecording]) -> dict[str, Sequence[str]]:
    """Return the folders, tags, speakers and states of the rows."""
    folders = {row.folder for row in rows}
    for folder in list(folders):  # the folders above may hold no recording themselves
        folders.update(folder[:position] for position, sign in enumerate(folder) if sign == "/")
    named = {
        "folders": folders - {""},
        "tags": {tag for row in rows for tag in row.tags},
        "speakers": {speaker for row in rows for speaker in row.speakers},
    }
    states = {row.state for row in rows}
    return {
        **{
            field: sorted(values, key=lambda name: (plain(name), name))[:MOST_CHOICES]
            for field, values in named.items()
        },
        "states": [state for state in STATES if state in states],
    }


def _is_below(folder: str, above: str) -> bool:
    return folder == above or bool(above and folder.startswith(f"{above}/"))


def _begin(day: str, days: int = 0) -> float | None:
    """Return the beginning of a day on this machine, or of a later one. Raises UsageError."""
    if not day:
        return None
    try:
        return datetime.combine(date.fromisoformat(day) + timedelta(days), clock()).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{day[:20]!r} is not a day; write it as 2026-11-24") from error
