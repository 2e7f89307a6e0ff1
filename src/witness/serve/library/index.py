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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from witness import caching, files
from witness.errors import InputError, UsageError, WitnessError
from witness.serve.library import passages
from witness.serve.library.passages import CLOSE, OPEN, Passage

VERSION = 2
"""Of the tables and of what is in them; a database of another version is made again."""
MOST = 1 << 17
"""Passages of a transcript; a day has 30,000."""
SAME = 1 << 13
"""Numbers of transcripts for each second of their date. With `MOST` and 2**33 seconds, until the year 2242,
they fill the 63 bits of a row's number."""
COUNTED = 10_000
"""Passages that are counted at most; of more, only that there are more."""
COUNTING = 0.1
"""Seconds after which nothing more is counted."""
LONGEST_QUERY, MOST_TERMS = 500, 32
"""Characters of a query, and words and phrases in it."""
TICK = 1_000_000_000
"""Nanoseconds after a change in which another one may have the same time."""
PATIENCE = 10.0
"""Seconds to wait while another server writes."""

_TABLES = f"""
CREATE TABLE transcripts (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, size INTEGER, mtime_ns INTEGER, seconds REAL,
    speakers TEXT, date REAL, state TEXT, why TEXT,
    until REAL);
CREATE TABLE passages (
    number INTEGER PRIMARY KEY, speaker TEXT, start REAL, finish REAL, words TEXT, begins BLOB);
CREATE VIRTUAL TABLE found USING fts5(
    words, speaker, content=passages, content_rowid=number,
    tokenize="unicode61 remove_diacritics 2", prefix='1 2 3');
PRAGMA user_version = {VERSION};
"""


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


@dataclass(frozen=True)
class Hit:
    """A passage with what was looked for."""

    id: str
    """Of the transcript."""
    speaker: str
    start: float
    end: float
    text: str
    before: str
    after: str


@dataclass(frozen=True)
class Hits:
    """What a search has found."""

    total: int
    """Passages that were counted."""
    more: bool
    """Whether there are more."""
    hits: list[Hit]
    """Those that were asked for."""


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
        return cls(caching.cache_folder() / "serve" / f"{name}.sqlite")

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
                "SELECT id, size, mtime_ns, state, seconds, speakers, date, why, until FROM transcripts"
            ).fetchall()
        entries = tuple(
            IndexEntry(id_, size, mtime, state, seconds, tuple(json.loads(speakers)), date, why, until)
            for id_, size, mtime, state, seconds, speakers, date, why, until in rows
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
                "INSERT INTO transcripts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(number, entry.id, entry.size, entry.mtime_ns, entry.seconds),
                    *(json.dumps(entry.speakers), entry.date, entry.state, entry.why, entry.until),
                ),
            )
            add(db, number, said)

    def drop(self, ids: Iterable[str]) -> None:
        """Remove files that are gone."""
        with self._open() as db:
            for one in ids:
                with _transaction(db):
                    row = db.execute("SELECT number FROM transcripts WHERE id = ?", (one,)).fetchone()
                    if row is not None:
                        _forget(db, row[0])

    def search(self, query: str, speaker: str = "", offset: int = 0, limit: int = 50) -> Hits:
        """Where something was said, by anybody or who is called so. Raises UsageError if it is too long."""
        match = expression(query)
        if match is None:
            return Hits(0, False, [])
        keys = [key(name) for name in self._called(speaker)] if speaker.strip() else []
        late = time.monotonic() + COUNTING
        with self._open() as db:
            if keys:
                match += f" AND speaker : ({' OR '.join(keys)})"
            numbers = []
            rows = db.execute("SELECT rowid FROM found WHERE found MATCH ? ORDER BY rowid DESC", (match,))
            for (number,) in rows:
                numbers.append(number)
                if len(numbers) > COUNTED or (len(numbers) > offset + limit and time.monotonic() > late):
                    break
            more = rows.fetchone() is not None
            page = numbers[offset : offset + limit]
            if not page:
                return Hits(len(numbers), more, [])
            marked = db.execute(
                "SELECT rowid, highlight(found, 0, ?, ?) FROM found WHERE found MATCH ? "
                "AND rowid BETWEEN ? AND ? ORDER BY rowid DESC",
                (OPEN, CLOSE, match, page[-1], page[0]),
            ).fetchall()
            return Hits(len(numbers), more, [hit for row in marked if (hit := _hit(db, *row)) is not None])

    def _called(self, speaker: str) -> list[str]:
        """Names of those who are called so, or else of some of whose names this is a part; or just this."""
        wanted, names = _plain(speaker), self.names()
        if wanted in names.values():
            return [speaker]
        return [name for name, plain in names.items() if wanted in plain][:MOST_TERMS] or [speaker]

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
    first = (number + 1) * MOST - 1
    rows = [
        (first - place, one.speaker, one.start, one.end, one.words, one.begins)
        for place, one in enumerate(said)
    ][::-1]  # SQLite's index grows fastest if the numbers do
    if len(rows) > MOST:
        raise InputError(f"it has more than {MOST} passages, and cannot be searched")
    db.executemany("INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?)", rows)
    db.executemany(
        "INSERT INTO found (rowid, words, speaker) VALUES (?, ?, ?)",
        ((row[0], row[4], key(row[1])) for row in rows),
    )


def key(speaker: str) -> str:
    """A speaker's name as one word, so that it is found as a whole and however it is written."""
    return f"s{files.sha256(_plain(speaker).encode('utf-8', 'replace'))[:16]}"


def expression(query: str) -> str | None:
    """A query in SQLite's terms; None: there is no word in it. Raises UsageError if it is too long.

    All words must be there; "in quotes" they must follow each other; one that ends in * may go on. Nothing
    else has a meaning, and nothing gets to SQLite but quoted words.
    """
    if len(query) > LONGEST_QUERY:
        raise UsageError(f"the query is too long; give at most {LONGEST_QUERY} characters")
    terms = []
    for place, part in enumerate(query.replace("“", '"').replace("”", '"').split('"')):
        for term in [part] if place % 2 else part.split():
            words = passages.divided(term).strip()
            if any(map(str.isalnum, words)):
                terms.append(f'"{words}"' + (" *" if words.endswith("*") else ""))
    if not terms:
        return None
    if len(terms) > MOST_TERMS:
        raise UsageError(f"the query has too many words; give at most {MOST_TERMS}")
    return f"words : ({' AND '.join(terms)})"


def _plain(name: str) -> str:
    """Equal for names that are told apart by cases and spaces alone."""
    return " ".join(name.casefold().split())


def _hit(db: sqlite3.Connection, row: int, marked: str) -> Hit | None:
    """The passage of a row, with the words around; None: another server has just removed it."""
    around = {
        number: rest
        for number, *rest in db.execute(
            "SELECT number, speaker, start, finish, words, begins FROM passages WHERE number BETWEEN ? AND ?",
            (row - 1, row + 1),
        )
    }
    found = db.execute("SELECT id FROM transcripts WHERE number = ?", (row // MOST,)).fetchone()
    if found is None or row not in around:
        return None
    speaker, start, finish, _, begins = around[row]
    quoted = passages.quotation(marked, start, finish, begins)
    before, after = quoted.before, quoted.after
    if not before and row + 1 in around and (row + 1) // MOST == row // MOST:
        before = f"{passages.shown(around[row + 1][3], last=True)} –"
    if not after and row - 1 in around and (row - 1) // MOST == row // MOST:
        after = f"– {passages.shown(around[row - 1][3], last=False)}"
    return Hit(found[0], speaker, quoted.start, quoted.end, quoted.text, before, after)


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
    db.execute("PRAGMA journal_mode = WAL")
    with _transaction(db):
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if not version:
            for statement in _TABLES.split(";")[:-1]:
                db.execute(statement)


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
    rows: Sequence[tuple[int, str, str]] = db.execute(
        "SELECT number, words, speaker FROM passages WHERE number BETWEEN ? AND ?",
        (number * MOST, (number + 1) * MOST - 1),
    ).fetchall()
    db.executemany(
        "INSERT INTO found (found, rowid, words, speaker) VALUES ('delete', ?, ?, ?)",
        ((row, words, key(speaker)) for row, words, speaker in rows),
    )
    db.execute("DELETE FROM passages WHERE number BETWEEN ? AND ?", (number * MOST, (number + 1) * MOST - 1))
    db.execute("DELETE FROM transcripts WHERE number = ?", (number,))
