"""What was heard in each piece -> what can be believed, after a second and a third try where it cannot.

What a piece holds is heard at most five more times: whole, and in parts that are cut in two until they are as
short as `pieces.SHORTEST`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from witness.recognition.chunking import SHORTEST, Loudness, Piece
from witness.recognition.engine_worker import ChunkResult
from witness.recognition.hallucination_checks import IMPROBABLE, doubt
from witness.recognition.vad import FRAME_RATE
from witness.schema import Word

Found = tuple[Piece, ChunkResult]
HearAgain = Callable[[Iterable[Piece]], Iterable[Found]]
"""Hears pieces with more care; the results are in the same order."""

ENDLESS = "has no end"
SPARSE = "leaves speech without words"
SHARE = 1 / 3
"""Part of a piece's speech without words from which on its text is doubted:
docs/decisions/2026-11-25-words-that-were-lost.md."""
SURE, ENOUGH = 0.65, 12
"""Mean probability of the tokens below which most words may be wrong, and tokens that it takes to say so:
docs/decisions/2026-11-23-not-english.md, "Fluent and improbable"."""
NAMED = 3
"""Places that a warning names; it counts the others."""


@dataclass(frozen=True)
class Note:
    """What a reader should know about a piece."""

    piece: Piece
    what: str
    """"the text is improbable; check it"."""


@dataclass(frozen=True)
class Coverage:
    """How much of the speech in a piece has words."""

    speech: float
    """Seconds of speech that the diarizer found."""
    uncovered: float
    """Seconds of it in stretches that no word is near."""
    longest: float
    """Seconds that the words take together if people say each as slowly as is believed."""

    @property
    def missing(self) -> float:
        """Seconds of speech that the words do not cover, or could not, wherever they are."""
        return max(self.uncovered, self.speech - self.longest)

    @property
    def sparse(self) -> bool:
        """Words are probably missing."""
        return self.uncovered > SHARE * self.speech or self.longest < self.speech


Covers = Callable[[Piece, ChunkResult], Coverage]
"""Compares a text with the speech in its piece."""


def convincing(
    first: Iterable[Found], again: HearAgain, loudness: Loudness, covers: Covers
) -> Iterator[tuple[list[Found], list[Note]]]:
    """What was heard in all pieces, in order of time, and what is to be said about it, as it becomes certain.

    What cannot be true is heard again, then in halves. What is no better then is kept, with a note; a text
    without an end is left out, with a note. A text that leaves much of the speech without words is heard
    again in halves.
    """
    for piece, heard in first:
        if flaw(piece, heard) is not None:
            best, notes = _heard_again(piece, heard, again, loudness)
        else:
            best, notes = [(piece, _with_letters(heard))], _doubts(piece, heard)
        complete = []
        for part, text in best:
            parts = [(part, text)]
            if text.tokens and flaw(part, text) is None:
                parts = _completed(part, text, again, loudness, covers)
            if len(parts) > 1:
                notes.append(Note(part, f"heard again, because the first text {SPARSE}"))
            complete += parts
        yield complete, notes


def _completed(
    piece: Piece, first: ChunkResult, again: HearAgain, loudness: Loudness, covers: Covers
) -> list[Found]:
    """The piece with its text or, if that is sparse and more words are found in halves, the halves.

    A short text is spread over all of a piece, so its words also stand at wrong times; those of a half
    lie in the half. A doubtful text of a half does not count.
    """
    before = covers(piece, first)
    if len(piece) <= SHORTEST or not before.sparse:
        return [(piece, first)]
    parts: list[Found] = []
    halved = [piece]
    while halved:
        halves = [half for whole in halved for half in whole.halves(loudness)]
        halved = []
        for half, heard in again(halves):
            trusted = _with_letters(heard) if flaw(half, heard) is None else replace(heard, tokens=())
            if len(half) > SHORTEST and covers(half, trusted).sparse:
                halved.append(half)
            else:
                parts.append((half, trusted))
    enough = sum(_count(text) for _, text in parts) >= _count(first)
    if enough and sum(covers(*part).missing for part in parts) < before.missing:
        return sorted(parts, key=lambda part: part[0].start)
    return [(piece, first)]


def _doubts(piece: Piece, heard: ChunkResult) -> list[Note]:
    """That a text is fluent, and its words are improbable all the same, as of faint speech."""
    told = [one for *_, one in heard.tokens if one is not None]
    if len(told) < ENOUGH or sum(told) / len(told) >= SURE:
        return []
    return [Note(piece, "the words are less certain than usual; check them")]


def _heard_again(
    piece: Piece, first: ChunkResult, again: HearAgain, loudness: Loudness
) -> tuple[list[Found], list[Note]]:
    """What becomes of a piece whose first text has a flaw."""
    good: list[Found] = []
    notes: list[Note] = []
    halved: list[Piece] = []
    if first.ended:
        ((_, second),) = again([piece])
        best = _best(piece, first, second)
        if flaw(piece, best) in (None, IMPROBABLE):
            good.append((piece, best))
        else:
            halved.append(piece)
    else:
        halved.append(piece)
    while halved:
        parts = [part for whole in halved for part in _halves(whole, loudness)]
        halved = []
        for part, heard in again(parts):
            if flaw(part, heard) in (None, IMPROBABLE):
                good.append((part, heard))
            elif len(part) > SHORTEST:
                halved.append(part)
            elif heard.ended:
                good.append((part, heard))
            else:
                notes.append(Note(part, "no words: the text never ends, as with music"))
    notes += [
        Note(part, f"the text {why}, even when it is heard again; check it")
        for part, heard in good
        if (why := flaw(part, heard)) is not None
    ]
    if not notes:
        notes.append(Note(piece, f"heard again, because the first text {flaw(piece, first)}"))
    notes += [note for one in good if flaw(*one) is None for note in _doubts(*one)]
    good.sort(key=lambda one: one[0].start)
    return [(part, _with_letters(heard)) for part, heard in good], notes


def second_look(
    missing: Iterable[Piece],
    again: HearAgain,
    say: Callable[[Found], Iterable[Word]],
    words: Sequence[Word],
    loudness: Loudness,
    covers: Covers,
) -> list[Word]:
    """The words of the pieces in which none was found, heard again, then in halves. `say` makes words of what
    was heard.

    What is doubtful is left out, and so is what lies outside the piece or where one of `words` is said; they
    are in order.
    """
    found: list[Word] = []
    for piece, heard in again(missing):
        trusted = _with_letters(heard) if flaw(piece, heard) is None else replace(heard, tokens=())
        for part, text in _completed(piece, trusted, again, loudness, covers):
            found += [
                word
                for word in say((part, text))
                if part.start <= (word.start + word.end) / 2 <= part.end and not _said(word, words)
            ]
    return found


def flaw(piece: Piece, heard: ChunkResult) -> str | None:
    """What is wrong with what was heard; None: nothing. No words are nothing wrong: perhaps nobody speaks."""
    if not heard.ended:
        return ENDLESS
    return doubt(_text(heard), len(piece) / FRAME_RATE, heard.logprob) if _letters(heard) else None


def to_lines(notes: Sequence[Note], clock: Callable[[float], str]) -> Iterator[str]:
    """One warning for all that is said in the same words. `clock` writes a time in seconds."""
    ordered = sorted(notes, key=lambda note: (note.what, note.piece.start))
    for what, group in groupby(ordered, key=lambda note: note.what):
        places = [f"{clock(note.piece.start)} to {clock(note.piece.end)}" for note in group]
        more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
        yield f"{', '.join(places[:NAMED])}{more}: {what}"


def _best(piece: Piece, before: ChunkResult, after: ChunkResult) -> ChunkResult:
    """The one without a flaw, or the more probable one."""
    if flaw(piece, after) is None:
        return after
    return after if after.ended and _logprob(after) > _logprob(before) else before


def _halves(piece: Piece, loudness: Loudness) -> Sequence[Piece]:
    return piece.halves(loudness) if len(piece) > SHORTEST else [piece]


def _text(heard: ChunkResult) -> str:
    return b"".join(text.encode("latin-1") for text, *_ in heard.tokens).decode("utf-8", "replace")


def _with_letters(heard: ChunkResult) -> ChunkResult:
    """The same, if there is a word in it; else without any text."""
    return heard if _letters(heard) else replace(heard, tokens=())


def _letters(heard: ChunkResult) -> bool:
    """Whether there is a word in it: over noise, Whisper likes to write dots."""
    return any(map(str.isalnum, _text(heard)))


def _count(heard: ChunkResult) -> int:
    """The letters and digits of a text."""
    return sum(map(str.isalnum, _text(heard)))


def _logprob(heard: ChunkResult) -> float:
    return 0.0 if heard.logprob is None else heard.logprob


def _said(word: Word, words: Sequence[Word]) -> bool:
    """Whether one of some words, which are in order, is said at the same time."""
    first = bisect_right(words, word.start, key=lambda old: old.end)
    return first < len(words) and words[first].start < word.end
