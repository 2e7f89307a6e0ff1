"""The words of all transcripts, in an SQLite database that can be made again at any time.

It lies in the user's cache folder, so that nothing is added to the recordings' folder. Several servers may
use it at the same time. One that is damaged, or was removed, is made again.

A transcript has a number that begins with its date, and its passages have row numbers in a range of their
own, of which the first passage has the highest. So what was found is listed, without sorting, with the latest
recording first and each in the order of time.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from witness.errors import InputError, WitnessError
from witness.serve.library import search
from witness.serve.library.folding import folded
from witness.serve.library.passages import Passage
from witness.serve.library.query import MOST_TERMS, parse
from witness.serve.library.search import MOST, Found, rows_of
from witness.storage import cache, files

VERSION = 5
"""Of the tables and of what is in them; a database of another version is made again."""
SAME = 1 << 13
"""Numbers of transcripts for each second of their date. With `MOST` and 2**33 seconds, until the year 2242,
they fill the 63 bits of a row's number."""
TICK = 1_000_000_000
"""Nanoseconds after a change in which another one may have the same time."""
PATIENCE = 10.0
"""Seconds to wait while another server writes."""

_TABLES = f"""
CREATE TABLE transcripts (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, size INTEGER, mtime_ns INTEGER, seconds REAL,
    speakers TEXT, date REAL, state TEXT, why TEXT,
    until REAL, tags TEXT, notes TEXT);
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
    """What the table of contents says of a JSON file."""

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
    """Seconds: what was said before is corrected."""
    tags: tuple[str, ...] = ()
    notes: tuple[ListedNote, ...] = ()


class DamagedError(WitnessError):
    """The index is damaged; it was removed, and is being made again."""


class Index:
    """The database of a folder."""

    def __init__(self, path: Path) -> None:
        """At `path`, whose folder is made for this user alone: it holds what people said. Raises OSError."""
        self.path = path
        self._entries: tuple[object, Sequence[IndexEntry]] = (None, ())
        self._names: tuple[object, Mapping[str, str]] = (None, {})
        self._make_folder()

    @classmethod
    def of(cls, folder: Path) -> Index:
        """The index of the transcripts below an absolute folder, in the user's cache folder."""
        name = files.sha256(str(folder).encode("utf-8", "surrogateescape"))[:16]
        return cls(cache.cache_folder() / "serve" / f"{name}.sqlite")

    def is_known(self, entry: str, size: int, mtime_ns: int) -> bool:
        """Whether a file is in the index as it is."""
        with self._open() as db:
            row = db.execute("SELECT size, mtime_ns FROM transcripts WHERE id = ?", (entry,)).fetchone()
        return bool(row == (size, mtime_ns))

    def entries(self) -> Sequence[IndexEntry]:
        """Of all files that were read; the same object while nothing has changed."""
        now = self._state()
        before, entries = self._entries
        if before == now:
            return entries
        with self._open() as db:
            rows = db.execute(
                "SELECT id, size, mtime_ns, state, seconds, speakers, date, why, until, tags, notes "
                "FROM transcripts"
            ).fetchall()
        entries = tuple(
            IndexEntry(
                *(id_, size, mtime, state, seconds, tuple(json.loads(speakers)), date, why, until),
                tags=tuple(json.loads(tags)),
                notes=tuple(ListedNote(**{**one, "codes": tuple(one["codes"])}) for one in json.loads(notes)),
            )
            for id_, size, mtime, state, seconds, speakers, date, why, until, tags, notes in rows
        )
        if all(time.time_ns() - changed > TICK for _, changed, _ in now):
            self._entries = now, entries
        return entries

    def names(self) -> Mapping[str, str]:
        """What all speakers are called, and the same without cases and spaces that tell nobody apart."""
        entries = self.entries()
        before, names = self._names
        if before is not entries:
            names = {name: _plain(name) for one in entries for name in one.speakers}
            self._names = entries, names
        return names

    def _state(self) -> tuple[tuple[int, int, int], ...]:
        """Inode, time and size of the database and of what waits to be written into it."""
        found = []
        for path in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            with suppress(OSError):
                status = path.stat()
                if status.st_size:
                    found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)

    def put(self, entry: IndexEntry, said: Iterable[Passage] = ()) -> None:
        """Add a file, or replace what is known of it. Raises sqlite3.Error if it cannot be written."""
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
                "INSERT INTO transcripts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(number, entry.id, entry.size, entry.mtime_ns, entry.seconds),
                    *(json.dumps(entry.speakers), entry.date, entry.state, entry.why, entry.until),
                    json.dumps(entry.tags),
                    json.dumps([vars(one) for one in entry.notes]),
                ),
            )
            add(db, number, said)

    def rename(self, before: str, now: str, size: int, mtime_ns: int) -> None:
        """A file has another id, and what is said in it is the same."""
        with self._open() as db, _transaction(db):
            known = db.execute("SELECT 1 FROM transcripts WHERE id = ?", (now,)).fetchone()
            if known is None:
                db.execute(
                    "UPDATE transcripts SET id = ?, size = ?, mtime_ns = ? WHERE id = ?",
                    (now, size, mtime_ns, before),
                )

    def drop(self, ids: Iterable[str]) -> None:
        """Remove files that are gone."""
        with self._open() as db:
            for one in ids:
                with _transaction(db):
                    row = db.execute("SELECT number FROM transcripts WHERE id = ?", (one,)).fetchone()
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
        """Where something was said, by anybody or who is called so; without words, all that they said.

        `offset` and `limit` count recordings, of each of which `each` passages are given; or passages of the
        transcript `within`. Where nothing is found, words that are spelled nearly so are looked for.
        Raises UsageError if the query cannot be.
        """
        wanted = parse(query)
        speakers = [key(name) for name in self._called(speaker)] if speaker.strip() else []
        if wanted.expression(speakers) is None:
            return Found()
        with self._open() as db:
            rows = range(1 << 63)
            if within is not None:
                number = db.execute("SELECT number FROM transcripts WHERE id = ?", (within,)).fetchone()
                rows = rows_of(number[0]) if number else range(0)
            part = search.Excerpt(rows, offset, limit, each, within is not None)
            found = search.find(db, wanted, speakers, part)
            return found if found.total else search.find(db, wanted, speakers, part, everything=True)

    def _called(self, speaker: str) -> list[str]:
        """Names of those who are called so, or else of some of whose names this is a part; or just this."""
        wanted, names = _plain(speaker), self.names()
        if wanted in names.values():
            return [speaker]
        parts = {" ".join(words) for words in folded(speaker)}
        called = [
            name
            for name in names
            if any(part and part in " ".join(words) for part in parts for words in folded(name))
        ]
        return called[:MOST_TERMS] or [speaker]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one request. Raises DamagedError, after removing what is damaged."""
        self._make_folder()  # it may have been removed
        self._make_way()
        try:
            db = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
            try:
                _prepare(db)
                yield db
            finally:
                db.close()
        except sqlite3.DatabaseError as error:
            # Those that say what else went wrong (locked, full, no permission) are of classes below it.
            if type(error) is not sqlite3.DatabaseError:
                raise
            self.remove()
            raise DamagedError("the index of words was damaged and is being made again") from error

    def _make_folder(self) -> None:
        self.path.parent.mkdir(0o700, parents=True, exist_ok=True)

    def _make_way(self) -> None:
        """Move aside what lies in the place of the database and is no file: a folder, or a pipe."""
        for place in self._places:
            if os.path.lexists(place) and not place.is_file():
                with suppress(FileNotFoundError):  # another server was faster
                    place.rename(place.with_name(f"{place.name}.{secrets.token_hex(4)}.aside"))

    def remove(self) -> None:
        """Delete the database."""
        for place in self._places:
            with suppress(OSError):
                place.unlink()

    @property
    def _places(self) -> list[Path]:
        return [self.path.with_name(f"{self.path.name}{ending}") for ending in ("", "-wal", "-shm")]


def add(db: sqlite3.Connection, number: int, said: Iterable[Passage]) -> None:
    """Add the passages of a transcript with that number. Raises InputError if there are too many."""
    last = rows_of(number)[-1]
    rows = [(last - place, one) for place, one in enumerate(said)][::-1]  # the index grows fastest so
    if len(rows) > MOST:
        raise InputError(f"it has more than {MOST} passages, and cannot be searched")
    db.executemany(
        "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?)",
        ((row, one.speaker, one.start, one.end, one.words, one.begins) for row, one in rows),
    )
    compared = [(row, *one.spellings, key(one.speaker)) for row, one in rows]
    db.executemany("INSERT INTO found (rowid, words, spelled, speaker) VALUES (?, ?, ?, ?)", compared)
    db.executemany(
        "INSERT INTO vocabulary VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET said = said + excluded.said",
        ((len(word), word, said) for word, said in sorted(_vocabulary(compared).items())),
    )


def key(speaker: str) -> str:
    """A speaker's name as one word, so that it is found as a whole and however it is written."""
    return f"s{files.sha256(_plain(speaker).encode('utf-8', 'replace'))[:16]}"


def _plain(name: str) -> str:
    """Equal for names that are told apart by cases and spaces alone."""
    return " ".join(name.casefold().split())


def _vocabulary(compared: Iterable[tuple[int, str, str, str]]) -> Counter[str]:
    return Counter(word for _, words, _, _ in compared for word in words.split())


def _free_number(db: sqlite3.Connection, entry: IndexEntry) -> int:
    """The number of a transcript: by its date, and among those of the same second by its id."""
    second = min(max(0, int(entry.date or 0.0)), (1 << 33) - 2)
    number = second * SAME + int(entry.id[:8], 16) % SAME
    while db.execute("SELECT 1 FROM transcripts WHERE number = ?", (number,)).fetchone():
        number += 1
    return number


def _prepare(db: sqlite3.Connection) -> None:
    """Make the tables, if this version's are not there."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    db.execute("PRAGMA synchronous = NORMAL")  # it can be made again
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
    """Let others read while one writes. SQLite's own patience does not count where two ask for it at once."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with suppress(sqlite3.OperationalError):
            db.execute("PRAGMA journal_mode = WAL")
            return
        time.sleep(0.01)
    db.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing; nobody else writes meanwhile."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _forget(db: sqlite3.Connection, number: int) -> None:
    """Remove a transcript."""
    own = rows_of(number)
    rows: Sequence[tuple[int, str, str]] = db.execute(
        "SELECT number, words, speaker FROM passages WHERE number BETWEEN ? AND ?", (own[0], own[-1])
    ).fetchall()
    compared = [
        (row, *Passage(speaker, 0.0, 0.0, words, b"").spellings, key(speaker)) for row, words, speaker in rows
    ]
    db.executemany(
        "INSERT INTO found (found, rowid, words, spelled, speaker) VALUES ('delete', ?, ?, ?, ?)", compared
    )
    gone = [(said, len(word), word) for word, said in _vocabulary(compared).items()]
    db.executemany("UPDATE vocabulary SET said = said - ? WHERE size = ? AND word = ?", gone)
    db.executemany(
        "DELETE FROM vocabulary WHERE said <= 0 AND size = ? AND word = ?", [place for _, *place in gone]
    )
    db.execute("DELETE FROM passages WHERE number BETWEEN ? AND ?", (own[0], own[-1]))
    db.execute("DELETE FROM transcripts WHERE number = ?", (number,))
