"""What is found in the database of all words (`index`), by recording."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from witness.serve.library import near
from witness.serve.library.passages import Passage, quotation
from witness.serve.library.query import Query, Term

MOST = 1 << 17
"""Passages of a transcript; a day has 30,000."""
COUNTED = 10_000
"""Passages that are counted at most; of more, only that there are more."""
COUNTING = 0.1
"""Seconds after which nothing more is counted."""
NEAR = 8
"""Words that are taken for one that is spelled nearly so; those that are said most."""


@dataclass(frozen=True)
class Hit:
    """A passage with what was looked for."""

    speaker: str
    start: float
    end: float
    pieces: tuple[str, ...]
    """As `passages.Quotation` has them."""


@dataclass(frozen=True)
class Hits:
    """What was found in one recording."""

    id: str
    """Of the transcript."""
    total: int
    """Passages that were counted."""
    hits: list[Hit]
    """The first of them, or those that were asked for."""


@dataclass(frozen=True)
class Found:
    """What a search has found."""

    total: int = 0
    """Passages that were counted."""
    more: bool = False
    """Whether there are more."""
    recordings: int = 0
    """In how many they are."""
    groups: Sequence[Hits] = ()
    """By recording, those that were asked for, the latest first."""
    near: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Each word that was taken for others which are spelled nearly so, and those."""


def rows_of(number: int) -> range:
    """The numbers of the passages of the transcript with that number."""
    return range(number * MOST, (number + 1) * MOST)


@dataclass(frozen=True)
class Excerpt:
    """Which part of what is found is given."""

    rows: range
    """Of the passages in which is searched."""
    offset: int
    limit: int
    """How many recordings, or passages if it is `flat`, are left out first, and how many are given."""
    each: int
    """Passages of each recording, unless it is `flat`."""
    flat: bool = False


def find(
    db: sqlite3.Connection, query: Query, speakers: Sequence[str], part: Excerpt, *, everything: bool = False
) -> Found:
    """Where something was said by one of these speakers, or by anybody.

    `everything`: words that are spelled nearly so will do, too, whether they are asked for or not.
    """
    meant, words = _with_near(db, query, everything)
    if everything and not any(words.values()):
        return Found()
    match = meant.expression(speakers)
    found = _found(db, meant, match, part) if match else Found()
    return replace(found, near={word: others for word, others in words.items() if others})


def _found(db: sqlite3.Connection, query: Query, match: str, part: Excerpt) -> Found:
    rows, offset, limit, flat = part.rows, part.offset, part.limit, part.flat
    late = time.monotonic() + COUNTING
    groups: dict[int, list[int]] = {}
    count = 0
    found = db.execute(
        "SELECT rowid FROM found WHERE found MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC",
        (match, rows.start, rows.stop - 1),
    )
    for (row,) in found:
        groups.setdefault(row // MOST, []).append(row)
        count += 1
        enough = (count if flat else len(groups)) > offset + limit
        if count > COUNTED or (enough and time.monotonic() > late):
            break
    more = found.fetchone() is not None
    if flat:
        chosen = {number: own[offset : offset + limit] for number, own in groups.items()}
    else:
        chosen = {number: groups[number][: part.each] for number in [*groups][offset : offset + limit]}
    given = []
    for number, own in chosen.items():
        id_ = db.execute("SELECT id FROM transcripts WHERE number = ?", (number,)).fetchone()
        if id_ is not None:  # else another server has just removed it
            hits = [hit for row in own if (hit := _hit(db, row, query)) is not None]
            given.append(Hits(id_[0], len(groups[number]), hits))
    return Found(count, more, len(groups), given)


def _with_near(
    db: sqlite3.Connection, query: Query, everything: bool
) -> tuple[Query, dict[str, Sequence[str]]]:
    """The query with words near to those that ask for it, or to all, and which they are."""
    words: dict[str, Sequence[str]] = {}

    def change(term: Term) -> Term:
        if (word := term.word) is None or not (term.near or everything):
            return term
        words[word] = _near(db, word)
        return replace(term, spellings=(*term.spellings, *((one,) for one in words[word])))

    return query.each(change), words


def _near(db: sqlite3.Connection, word: str) -> list[str]:
    """The words that are spelled nearly so, the nearest and most frequent first."""
    limit = near.allowed(word)
    rows = db.execute(
        "SELECT word, said FROM vocabulary WHERE size BETWEEN ? AND ?",
        (len(word) - limit, len(word) + limit),
    ).fetchall()
    if not limit or not rows:
        return []
    far = near.distances(word, [one for one, _ in rows], limit)
    close = [(int(far[place]), *rows[place]) for place in np.flatnonzero((far > 0) & (far <= limit))]
    found = sorted((distance, -said, one) for distance, one, said in close)
    return [one for *_, one in found[:NEAR]]


def _hit(db: sqlite3.Connection, row: int, query: Query) -> Hit | None:
    """The passage of a row, with the words around; None: another server has just removed it."""
    around = {
        number: Passage(*rest)
        for number, *rest in db.execute(
            "SELECT number, speaker, start, finish, words, begins FROM passages WHERE number BETWEEN ? AND ?",
            (row - 1, row + 1),
        )
        if number // MOST == row // MOST
    }
    if row not in around:
        return None
    before, after = (around[one].words if one in around else "" for one in (row + 1, row - 1))
    quoted = quotation(around[row], query, before, after)
    return Hit(around[row].speaker, quoted.start, quoted.end, quoted.pieces)
