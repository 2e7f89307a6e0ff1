"""Passages of a transcript as rows of the index, with words and times as people read them; their search."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from witness.schema import Transcript, Utterance
from witness.serve.library.query import Query, Term, folded
from witness.text import one_line

GLUE = "\u2060"
"""Between two words without a space between them. It is invisible, and is taken out for people."""
AROUND = 12
"""Words before and after a match."""
WIDEST = 24
"""Words from the first to the last match in one quotation."""

_BETWEEN = re.compile(f"[ {GLUE}]")


@dataclass(frozen=True)
class Passage:
    """Consecutive words of one speaker."""

    speaker: str
    """Empty: unknown."""
    start: float
    end: float
    words: str
    begins: bytes
    """Start of each word, in milliseconds after `start`: unsigned, of 4 bytes, little-endian."""

    @property
    def spellings(self) -> tuple[str, str]:
        """The words of `folded`: plain, and spelled, which is empty if it is the same."""
        plain, spelled = (" ".join(words) for words in folded_all(self.words)[1:])
        return plain, "" if spelled == plain else spelled


@dataclass(frozen=True)
class Hit:
    """A part of a passage with matches."""

    speaker: str
    start: float
    end: float
    pieces: tuple[str, ...]
    """The text, cut at the ends of matches: the second, the fourth and so on are matches."""


def speaker_names(transcript: Transcript) -> dict[str, str]:
    """Return each speaker's name or label, by id, in the order of their first turns."""
    first = {turn.speaker: turn.start for turn in reversed(transcript.turns)}
    ordered = sorted(transcript.speakers, key=lambda person: (first.get(person.id, float("inf")), person.id))
    return {person.id: transcript.label(person.id) or person.id for person in ordered}


def passages(transcript: Transcript) -> Iterator[Passage]:
    """Yield the utterances with words, in the order of time."""
    called = speaker_names(transcript)
    for utterance in transcript.utterances:
        if utterance.words:
            yield _passage(utterance, called.get(utterance.speaker or "", ""))


def _passage(utterance: Utterance, speaker: str) -> Passage:
    text = ""
    begins: list[int] = []
    for word in utterance.words:
        piece = one_line(word.text.strip()).replace(GLUE, "").replace(" ", "\u00a0")
        if begins:
            text += " " if word.text[:1].isspace() else GLUE
        text += piece
        begins.append(max(0, round(1000 * (word.start - utterance.start))))
    return Passage(speaker, utterance.start, utterance.end, text, np.array(begins, "<u4").tobytes())


def folded_all(words: str) -> tuple[list[int], list[str], list[str]]:
    """Return the folded words of a passage, plain and spelled, and before them each one's position in it."""
    owners: list[int] = []
    plain: list[str] = []
    spelled: list[str] = []
    for position, word in enumerate(_BETWEEN.split(words)):
        plain_parts, spelled_parts = folded(word)
        owners += [position] * len(plain_parts)
        plain += plain_parts
        spelled += spelled_parts
    return owners, plain, spelled


def quotation(passage: Passage, query: Query, before: str = "", after: str = "") -> Hit:
    """Quote the matches in a passage with the words around, or its beginning.

    `before` and `after` are the words of the neighbors, for a match at an end of the passage.
    """
    words = _words(passage.words)
    owners, *spellings = folded_all(passage.words)
    matches = sorted(
        {owners[part] for term in query.terms for each in spellings for part in term.positions(each)}
    )
    first = matches[0] if matches else 0
    last = max((position for position in matches if position - first < WIDEST), default=WIDEST)
    last = min(last, len(words) - 1)
    begin, end = max(0, first - AROUND), min(len(words), last + 1 + AROUND)
    pieces = [""]
    for position in range(begin, end):
        gap, word = words[position]
        gap = "" if position == begin else gap.replace(GLUE, "")
        if (position in matches) == (len(pieces) % 2 == 0):
            pieces[-1] += gap + word
        elif len(pieces) % 2:  # a match begins
            pieces[-1] += gap
            pieces.append(word)
        else:
            pieces.append(gap + word)
    if not len(pieces) % 2:
        pieces.append("")
    if matches and first == 0 and before:
        pieces[0] = f"{_readable(_words(before)[-AROUND:])} – {pieces[0]}"
    if matches and last + 1 == len(words) and after:
        pieces[-1] = f"{pieces[-1]} – {_readable(_words(after)[:AROUND])}"
    times = [passage.start + late / 1000 for late in np.frombuffer(passage.begins, "<u4").tolist()]
    until = times[last + 1] if last + 1 < len(times) else passage.end
    return Hit(
        passage.speaker,
        start=round(times[first], 3),
        end=round(max(until, times[first]), 3),
        pieces=tuple(piece.replace("\u00a0", " ") for piece in pieces),
    )


def _words(text: str) -> list[tuple[str, str]]:
    """Return each word after the gap before it."""
    gaps = ["", *_BETWEEN.findall(text)]
    return list(zip(gaps, _BETWEEN.split(text), strict=True))


def _readable(words: list[tuple[str, str]]) -> str:
    text = "".join(gap + word for gap, word in words)
    return text.replace(GLUE, "").replace("\u00a0", " ").strip()


# --- search, by recording ---

MOST = 1 << 17
"""Passages of a transcript; a day has 30,000."""
COUNTED = 10_000
"""Passages that are counted; beyond, `Found.more` is set."""
COUNTING = 0.1
"""Seconds after which the count ends."""
NEAR = 8
"""Words that a misspelled one may stand for, the most frequent first."""
SHORTEST = 4
"""Letters of a word that others are near to; below, every word is."""
LONG = 8
"""Letters of the shortest word with two wrong ones."""


@dataclass(frozen=True)
class Hits:
    """The matches in one recording."""

    id: str
    total: int
    """Passages that were counted."""
    hits: list[Hit]


@dataclass(frozen=True)
class Found:
    """The result of a search."""

    total: int = 0
    """Passages that were counted."""
    more: bool = False
    recordings: int = 0
    groups: Sequence[Hits] = ()
    """By recording, the latest first."""
    near: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Misspelled words, and the words that they stand for."""


def rows_of(number: int) -> range:
    """Return the row numbers for the passages of the transcript with that number."""
    return range(number * MOST, (number + 1) * MOST)


@dataclass(frozen=True)
class Excerpt:
    """The part of the matches to return."""

    rows: range
    """Passages to search."""
    offset: int
    limit: int
    """Recordings, or passages if it is `flat`."""
    each: int
    """Passages of each recording, unless it is `flat`."""
    flat: bool = False


def find(
    db: sqlite3.Connection, query: Query, speakers: Sequence[str], part: Excerpt, *, everything: bool = False
) -> Found:
    """Find passages of these speakers, or of all; `everything`: each word may be misspelled."""
    corrected, similar = _with_similar_words(db, query, everything)
    if everything and not any(similar.values()):
        return Found()
    match = corrected.expression(speakers)
    matches = _find(db, corrected, match, part) if match else Found()
    return replace(matches, near={word: others for word, others in similar.items() if others})


def _find(db: sqlite3.Connection, query: Query, match: str, part: Excerpt) -> Found:
    late = time.monotonic() + COUNTING
    groups: dict[int, list[int]] = {}
    count = 0
    cursor = db.execute(
        "SELECT rowid FROM found WHERE found MATCH ? AND rowid BETWEEN ? AND ? ORDER BY rowid DESC",
        (match, part.rows.start, part.rows.stop - 1),
    )
    for (row,) in cursor:
        groups.setdefault(row // MOST, []).append(row)
        count += 1
        enough = (count if part.flat else len(groups)) > part.offset + part.limit
        if count > COUNTED or (enough and time.monotonic() > late):
            break
    more = cursor.fetchone() is not None
    window = slice(part.offset, part.offset + part.limit)
    if part.flat:
        chosen = {number: rows[window] for number, rows in groups.items()}
    else:
        chosen = {number: groups[number][: part.each] for number in [*groups][window]}
    results = []
    for number, rows in chosen.items():
        id_ = db.execute("SELECT id FROM transcripts WHERE number = ?", (number,)).fetchone()
        if id_ is not None:  # else another server has just removed it
            hits = [hit for row in rows if (hit := _hit(db, row, query)) is not None]
            results.append(Hits(id_[0], len(groups[number]), hits))
    return Found(count, more, len(groups), results)


def _hit(db: sqlite3.Connection, row: int, query: Query) -> Hit | None:
    """Return the passage of a row, with the words around; None: another server has just removed it."""
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
    before, after = (around[number].words if number in around else "" for number in (row + 1, row - 1))
    return quotation(around[row], query, before, after)


# --- misspelled words ---


def _with_similar_words(
    db: sqlite3.Connection, query: Query, everything: bool
) -> tuple[Query, dict[str, Sequence[str]]]:
    """Add similar words to the terms that ask for them, or to all; and return the similar words."""
    similar: dict[str, Sequence[str]] = {}

    def add(term: Term) -> Term:
        if (word := term.word) is None or not (term.near or everything):
            return term
        similar[word] = _similar_words(db, word)
        return replace(term, spellings=(*term.spellings, *((other,) for other in similar[word])))

    return query.each(add), similar


def _similar_words(db: sqlite3.Connection, word: str) -> list[str]:
    """Return similar words, the nearest and most frequent first."""
    limit = 0 if len(word) < SHORTEST else 1 if len(word) < LONG else 2
    rows = db.execute(
        "SELECT word, said FROM vocabulary WHERE size BETWEEN ? AND ?",
        (len(word) - limit, len(word) + limit),
    ).fetchall()
    if not limit or not rows:
        return []
    far = distances(word, [other for other, _ in rows], limit)
    near = [(int(far[row]), *rows[row]) for row in np.flatnonzero((far > 0) & (far <= limit))]
    ordered = sorted((distance, -said, other) for distance, other, said in near)
    return [other for *_, other in ordered[:NEAR]]


def distances(word: str, others: Sequence[str], limit: int) -> npt.NDArray[np.int16]:
    """(others,): the letters that are wrong, missing, too many, or swapped with their neighbor.

    A distance above `limit` is `limit` + 1. Optimal string alignment, for all at once, with only the
    cells near the diagonal: https://doi.org/10.1145/363958.363994. Not rapidfuzz, which would be one more
    compiled dependency for these 25 lines.
    """
    lengths = np.array([len(other) for other in others], np.intp)
    longest, beyond = int(lengths.max(initial=0)), limit + 1
    padded = "".join(other.ljust(longest, "\0") for other in others).encode("utf-32-le", "surrogatepass")
    letters = np.ascontiguousarray(np.frombuffer(padded, np.uint32).reshape(len(others), longest).T)
    small = np.int8 if beyond + 1 < 127 else np.int16  # the smaller, the faster
    far = np.full((longest + 1, len(others)), beyond, small)
    earlier = before = far.copy()
    for column in range(min(limit, longest) + 1):
        before[column] = column
    for row, letter in enumerate(word, start=1):
        now = far.copy()
        if row <= limit:
            now[0] = row
        for column in range(max(1, row - limit), min(longest, row + limit) + 1):
            same = letters[column - 1] == ord(letter)
            cost = np.minimum(before[column], now[column - 1]) + small(1)
            cost = np.minimum(cost, before[column - 1] + ~same)
            if row > 1 and column > 1:
                swapped = (letters[column - 2] == ord(letter)) & (letters[column - 1] == ord(word[row - 2]))
                cost = np.where(swapped, np.minimum(cost, earlier[column - 2] + small(1)), cost)
            now[column] = np.minimum(cost, small(beyond))
        earlier, before = before, now
    return before[lengths, np.arange(len(others))].astype(np.int16)
