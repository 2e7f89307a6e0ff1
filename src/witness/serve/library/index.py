"""The words of all transcripts, in an SQLite database that can be built again at any time.

It lies in the user's cache folder, so that nothing is added to the recordings' folder. Several servers may
use it at the same time. They build it again if it is damaged or missing.

A transcript has a number that begins with its date, and its passages have row numbers in a range of their
own; the first passage has the highest. So a search lists matches without sorting, the latest
recording first and each in the order of time.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from witness.errors import InputError, WitnessError
from witness.serve.library import search
from witness.serve.library.query import MOST_TERMS, folded, parse
from witness.serve.library.search import MOST, Found, Passage, rows_of
from witness.storage import cache, files

VERSION = 7
"""Version of the tables and their content; a database of another version is built again."""
SAME = 1 << 13
"""Numbers of transcripts for each second of their date. With `MOST` and 2**33 seconds, until the year 2242,
they fill the 63 bits of a row's number."""
TICK = 1_000_000_000
"""Nanoseconds: a second change within them may have the same time."""
PATIENCE = 10.0
"""Seconds to wait while another server writes."""

_TABLES = f"""
CREATE TABLE transcripts (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, size INTEGER, mtime_ns INTEGER, entry BLOB);
CREATE TABLE passages (
    number INTEGER PRIMARY KEY, speaker TEXT, start REAL, finish REAL, words TEXT, begins BLOB);
CREATE VIRTUAL TABLE found USING fts5(
    words, spelled, speaker, content='', tokenize=ascii, prefix='1 2 3');
CREATE TABLE vocabulary (
    size INTEGER, word TEXT, said INTEGER, PRIMARY KEY (size, word)) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""


@dataclass(frozen=True)
class ListedNote:
    """A note on a passage; its fields are the keys in JSON."""

    start: float
    quote: str
    speaker: str
    text: str
    codes: tuple[str, ...]


@dataclass(frozen=True)
class IndexEntry:
    """A JSON file in the table of contents."""

    id: str
    size: int
    mtime_ns: int
    state: str
    """"new", "in progress", "checked", "failed" (it is damaged), or "other": it is not a transcript."""
    seconds: float | None = None
    speakers: tuple[str, ...] = ()
    date: float | None = None
    """Seconds since 1970."""
    why: str | None = None
    until: float = 0.0
    """Seconds: a person has corrected the recording up to here."""
    tags: tuple[str, ...] = ()
    notes: tuple[ListedNote, ...] = ()


class DamagedError(WitnessError):
    """The index is damaged; it was removed, and is being built again."""


class Index:
    """The database of a folder."""

    def __init__(self, path: Path) -> None:
        """Make the folder of `path` for this user alone: it holds what people said. Raises OSError."""
        self.path = path
        self._entries: tuple[object, Sequence[IndexEntry]] = (None, ())
        self._make_folder()

    @classmethod
    def of(cls, folder: Path) -> Index:
        """Return the index of the transcripts below an absolute folder, in the user's cache folder."""
        name = files.sha256(str(folder).encode("utf-8", "surrogateescape"))[:16]
        return cls(cache.cache_folder() / "serve" / f"{name}.sqlite")

    def is_current(self, id_: str, size: int, mtime_ns: int) -> bool:
        """Tell whether the index has read this state of a file."""
        with self._open() as db:
            row = db.execute("SELECT size, mtime_ns FROM transcripts WHERE id = ?", (id_,)).fetchone()
        return bool(row == (size, mtime_ns))

    def entries(self) -> Sequence[IndexEntry]:
        """Return all entries; the same object while nothing has changed."""
        now = self._state()
        before, entries = self._entries
        if before == now:
            return entries
        with self._open() as db:
            rows = db.execute("SELECT entry FROM transcripts").fetchall()
        decoder = msgspec.json.Decoder(IndexEntry)
        entries = tuple(decoder.decode(entry) for (entry,) in rows)
        if all(time.time_ns() - changed > TICK for _, changed, _ in now):
            self._entries = now, entries
        return entries

    def _state(self) -> tuple[tuple[int, int, int], ...]:
        """Return inode, time and size of the database and of its write-ahead log."""
        states = []
        for path in self._files[:2]:
            with suppress(OSError):
                status = path.stat()
                if status.st_size:
                    states.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(states)

    def put(self, entry: IndexEntry, passages: Iterable[Passage] = ()) -> None:
        """Add a file, or replace its entry. Raises InputError, sqlite3.Error."""
        with self._open() as db, _transaction(db):
            row = db.execute(
                "SELECT number, size, mtime_ns FROM transcripts WHERE id = ?", (entry.id,)
            ).fetchone()
            if row is not None and row[1:] == (entry.size, entry.mtime_ns):
                return  # another server was faster
            if row is not None:
                _forget(db, row[0])
            number = _free_number(db, entry)
            db.execute(
                "INSERT INTO transcripts VALUES (?, ?, ?, ?, ?)",
                (number, entry.id, entry.size, entry.mtime_ns, msgspec.json.encode(entry)),
            )
            add(db, number, passages)

    def rename(self, before: str, now: str, size: int, mtime_ns: int) -> None:
        """Give a moved file its new id."""
        with self._open() as db, _transaction(db):
            if db.execute("SELECT 1 FROM transcripts WHERE id = ?", (now,)).fetchone():
                return
            row = db.execute("SELECT entry FROM transcripts WHERE id = ?", (before,)).fetchone()
            if row is not None:
                entry = {**msgspec.json.decode(row[0]), "id": now, "size": size, "mtime_ns": mtime_ns}
                db.execute(
                    "UPDATE transcripts SET id = ?, size = ?, mtime_ns = ?, entry = ? WHERE id = ?",
                    (now, size, mtime_ns, msgspec.json.encode(entry), before),
                )

    def scrub(self) -> None:
        """Overwrite the words of dropped files in the database and its log."""
        with self._open() as db:
            db.execute(
                "INSERT INTO found (found) VALUES ('optimize')"
            )  # else words stay until the next merge
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def drop(self, ids: Iterable[str]) -> None:
        """Remove deleted files."""
        with self._open() as db:
            for id_ in ids:
                with _transaction(db):
                    row = db.execute("SELECT number FROM transcripts WHERE id = ?", (id_,)).fetchone()
                    if row is not None:
                        _forget(db, row[0])

    def search(
        self,
        query: str,
        speaker: str = "",
        *,
        offset: int = 0,
        limit: int = 20,
        each: int = 3,
        within: str | None = None,
    ) -> Found:
        """Search passages, of all speakers or of those with a name; without words, all their passages.

        `offset` and `limit` count recordings, with `each` passages of each; or passages of the transcript
        `within`. Without any match, words with a similar spelling match. Raises UsageError for a bad query.
        """
        parsed = parse(query)
        speakers = [key(name) for name in self._matching_names(speaker)] if speaker.strip() else []
        if parsed.expression(speakers) is None:
            return Found()
        with self._open() as db:
            rows = range(1 << 63)
            if within is not None:
                number = db.execute("SELECT number FROM transcripts WHERE id = ?", (within,)).fetchone()
                rows = rows_of(number[0]) if number else range(0)
            excerpt = search.Excerpt(rows, offset, limit, each, within is not None)
            matches = search.find(db, parsed, speakers, excerpt)
            return matches if matches.total else search.find(db, parsed, speakers, excerpt, everything=True)

    def _matching_names(self, speaker: str) -> list[str]:
        """Return the name if a speaker has it, or else the names that contain it; or just the name."""
        names = {name for entry in self.entries() for name in entry.speakers}
        if _plain(speaker) in map(_plain, names):
            return [speaker]
        parts = {" ".join(words) for words in folded(speaker)}
        matches = [
            name
            for name in sorted(names)
            if any(part and part in " ".join(words) for part in parts for words in folded(name))
        ]
        return matches[:MOST_TERMS] or [speaker]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Connect for one request. Raises DamagedError, after removing a damaged database."""
        self._make_folder()  # a person may have removed it
        self._move_aside()
        try:
            with suppress(OSError):  # SQLite itself makes files that others can read
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            db = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
            try:
                _prepare(db)
                yield db
            finally:
                db.close()
        except sqlite3.DatabaseError as error:
            # Errors about another cause (locked, full, no permission) are of classes below it.
            if type(error) is not sqlite3.DatabaseError:
                raise
            self.remove()
            message = "the index of words was damaged and is being made again; try again in a while"
            raise DamagedError(message) from error

    def _make_folder(self) -> None:
        cache.make_private(self.path.parent)

    def _move_aside(self) -> None:
        """Rename folders and pipes that have the name of the database or its logs."""
        for path in self._files:
            if os.path.lexists(path) and not path.is_file():
                with suppress(FileNotFoundError):  # another server was faster
                    path.rename(path.with_name(f"{path.name}.{secrets.token_hex(4)}.aside"))

    def remove(self) -> None:
        """Delete the database."""
        for path in self._files:
            with suppress(OSError):
                path.unlink()

    @property
    def _files(self) -> list[Path]:
        return [self.path.with_name(f"{self.path.name}{ending}") for ending in ("", "-wal", "-shm")]


def add(db: sqlite3.Connection, number: int, passages: Iterable[Passage]) -> None:
    """Add the passages of a transcript with that number. Raises InputError if there are too many."""
    last = rows_of(number)[-1]
    # From the last to the first: the index grows fastest so.
    rows = [(last - position, passage) for position, passage in enumerate(passages)][::-1]
    if len(rows) > MOST:
        raise InputError(f"it has more than {MOST} passages, and cannot be searched")
    db.executemany(
        "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?)",
        ((row, said.speaker, said.start, said.end, said.words, said.begins) for row, said in rows),
    )
    compared = [(row, *said.spellings, key(said.speaker)) for row, said in rows]
    db.executemany("INSERT INTO found (rowid, words, spelled, speaker) VALUES (?, ?, ?, ?)", compared)
    db.executemany(
        "INSERT INTO vocabulary VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET said = said + excluded.said",
        ((len(word), word, said) for word, said in sorted(_vocabulary(compared).items())),
    )


def key(speaker: str) -> str:
    """Return a speaker's name as one word, so that it matches as a whole and in any case."""
    return f"s{files.sha256(_plain(speaker).encode('utf-8', 'replace'))[:16]}"


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())


def _vocabulary(compared: Iterable[tuple[int, str, str, str]]) -> Counter[str]:
    return Counter(word for _, words, _, _ in compared for word in words.split())


def _free_number(db: sqlite3.Connection, entry: IndexEntry) -> int:
    """Return a number for a transcript: by its date, and within a second by its id."""
    second = min(max(0, int(entry.date or 0.0)), (1 << 33) - 2)
    number = second * SAME + int(entry.id[:8], 16) % SAME
    while db.execute("SELECT 1 FROM transcripts WHERE number = ?", (number,)).fetchone():
        number += 1
    return number


def _prepare(db: sqlite3.Connection) -> None:
    """Make the tables of this version, unless they exist."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    db.execute("PRAGMA synchronous = NORMAL")  # after a power cut it is built again
    db.execute("PRAGMA secure_delete = ON")  # deleted words are overwritten
    if version == VERSION:
        return
    if version:
        raise sqlite3.DatabaseError("of another version")
    _write_ahead(db)
    with _transaction(db):
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if not version:
            for statement in _TABLES.split(";")[:-1]:
                db.execute(statement)


def _write_ahead(db: sqlite3.Connection) -> None:
    """Let others read while one writes. SQLite's own timeout fails if two ask for it at once."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
        time.sleep(0.01)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Write all or nothing, while no other server writes."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _forget(db: sqlite3.Connection, number: int) -> None:
    """Remove a transcript."""
    rows = rows_of(number)
    passages: Sequence[tuple[int, str, str]] = db.execute(
        "SELECT number, words, speaker FROM passages WHERE number BETWEEN ? AND ?", (rows[0], rows[-1])
    ).fetchall()
    compared = [
        (row, *Passage(speaker, 0.0, 0.0, words, b"").spellings, key(speaker))
        for row, words, speaker in passages
    ]
    db.executemany(
        "INSERT INTO found (found, rowid, words, spelled, speaker) VALUES ('delete', ?, ?, ?, ?)", compared
    )
    vocabulary = _vocabulary(compared)
    counts = [(said, len(word), word) for word, said in vocabulary.items()]
    db.executemany("UPDATE vocabulary SET said = said - ? WHERE size = ? AND word = ?", counts)
    db.executemany(
        "DELETE FROM vocabulary WHERE said <= 0 AND size = ? AND word = ?", [c[1:] for c in counts]
    )
    db.execute("DELETE FROM passages WHERE number BETWEEN ? AND ?", (rows[0], rows[-1]))
    db.execute("DELETE FROM transcripts WHERE number = ?", (number,))
