"""Checks of each text, and further tries for texts that cannot be true or leave speech without words.

A piece is decoded at most five more times: whole, and in parts that are cut in two until they are as short as
`chunking.SHORTEST`.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from witness.recognition.chunking import SHORTEST, Loudness, Piece
from witness.recognition.engine import ChunkResult
from witness.recognition.vad import FRAME_RATE
from witness.schema import Word

Recognized = tuple[Piece, ChunkResult]
Recognize = Callable[[Iterable[Piece]], Iterable[Recognized]]
"""Recognizes pieces with more care, in the same order."""

COMPRESSION = 2.4
"""A text that zlib compresses by more repeats itself; openai/whisper's limit."""
LOGPROB = -1.0
"""Mean log probability of the tokens below which a text is improbable; openai/whisper's limit."""
RATE = 30.0
"""Characters a second that are too fast for speech: fast speech has 20."""
WORDS = re.compile(r"\w+(?:['’]\w+)*")
"""Words without punctuation: a loop of "no, no, no." ends with another character."""
GRAM, TIMES, LOOP = 3, 4, 8
"""Up to GRAM words that follow each other more than TIMES times, and are more than LOOP words in all, are a
loop. People say "no" six times, and six equal digits."""
IMPROBABLE = "is improbable"
ENDLESS = "has no end"
DROPPED = "no words: the text never ends, as with music"
SPARSE = "leaves speech without words"
SHARE = 1 / 3
"""Part of a piece's speech without words that makes its text doubtful:
docs/decisions/2026-11-25-words-that-were-lost.md."""
SURE, ENOUGH = 0.65, 12
"""Mean probability of the tokens below which most words may be wrong, and tokens that it takes to say so:
docs/decisions/2026-11-23-not-english.md, "Fluent and improbable"."""
NAMED = 3
"""Stretches that a warning names; it counts the others."""


@dataclass(frozen=True)
class Note:
    """Remark for the reader about a piece."""

    piece: Piece
    text: str
    """"the text is improbable; check it"."""


@dataclass(frozen=True)
class Coverage:
    """Speech in a piece, and the words for it."""

    speech: float
    """Seconds of speech that the diarizer found."""
    uncovered: float
    """Seconds of it in stretches far from all words."""
    longest: float
    """Seconds of the words together, each as slow as is believable."""

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


def check_texts(
    first: Iterable[Recognized],
    again: Recognize,
    loudness: Loudness,
    covers: Covers,
    repeats: Callable[[Piece], bool] = lambda _: False,
) -> Iterator[tuple[list[Recognized], list[Note]]]:
    """Yield the credible texts of all pieces, in order of time, with notes.

    A text that cannot be true is recognized again, then in halves. The last try is kept, with a note; a text
    without an end is dropped, with a note. A text that leaves much of the speech without words is recognized
    again in halves. `repeats`: a second try of the whole piece would give the same text.
    """
    for piece, text in first:
        if flaw(piece, text) is not None:
            best, notes = _try_again(piece, text, again, loudness, repeats=repeats(piece))
        else:
            best, notes = [(piece, _with_letters(text))], _uncertain(piece, text)
        complete = []
        for part, part_text in best:
            parts = [(part, part_text)]
            if part_text.tokens and flaw(part, part_text) is None:
                parts = _complete(part, part_text, again, loudness, covers)
            if len(parts) > 1:
                notes.append(Note(part, f"heard again, because the first text {SPARSE}"))
            complete += parts
        yield complete, notes


def _complete(
    piece: Piece, first: ChunkResult, again: Recognize, loudness: Loudness, covers: Covers
) -> list[Recognized]:
    """Return the piece with its text or, if that is sparse and halves have more words, the halves.

    A short text is spread over all of a piece, so its words also stand at wrong times; those of a half
    lie in the half. A doubtful text of a half does not count.
    """
    before = covers(piece, first)
    if len(piece) <= SHORTEST or not before.sparse:
        return [(piece, first)]
    halves = _in_halves(piece, again, loudness, lambda half, text: covers(half, _trusted(half, text)).sparse)
    parts = [(half, _trusted(half, text)) for half, text in halves]
    enough = sum(_count(text) for _, text in parts) >= _count(first)
    if enough and sum(covers(*part).missing for part in parts) < before.missing:
        return sorted(parts, key=lambda part: part[0].start)
    return [(piece, first)]


def _uncertain(piece: Piece, text: ChunkResult) -> list[Note]:
    """Note a fluent text of improbable words, as of faint speech."""
    values = [token.probability for token in text.tokens if token.probability is not None]
    if len(values) < ENOUGH or sum(values) / len(values) >= SURE:
        return []
    return [Note(piece, "the words are less certain than usual; check them")]


def _try_again(
    piece: Piece, first: ChunkResult, again: Recognize, loudness: Loudness, *, repeats: bool
) -> tuple[list[Recognized], list[Note]]:
    """Return the texts and notes for a piece whose first text has a flaw."""
    good: list[Recognized] = []
    notes: list[Note] = []
    best = first
    if first.ended and not repeats:
        ((_, second),) = again([piece])
        best = _best(piece, first, second)
    if flaw(piece, best) in (None, IMPROBABLE):
        good.append((piece, best))
    else:
        for part, text in _in_halves(
            piece, again, loudness, lambda part, text: flaw(part, text) not in (None, IMPROBABLE)
        ):
            if text.ended:
                good.append((part, text))
            else:
                notes.append(Note(part, DROPPED))
    notes += [
        Note(part, f"the text {problem}, even when it is heard again; check it")
        for part, text in good
        if (problem := flaw(part, text)) is not None
    ]
    if not notes:
        notes.append(Note(piece, f"heard again, because the first text {flaw(piece, first)}"))
    notes += [note for part, text in good if flaw(part, text) is None for note in _uncertain(part, text)]
    good.sort(key=lambda part: part[0].start)
    return [(part, _with_letters(text)) for part, text in good], notes


def _in_halves(
    piece: Piece, again: Recognize, loudness: Loudness, bad: Callable[[Piece, ChunkResult], bool]
) -> Iterator[Recognized]:
    """Recognize a piece in halves, and those with a bad text in halves again, down to SHORTEST."""
    waiting = [piece]
    while waiting:
        parts = [
            part
            for whole in waiting
            for part in (whole.halves(loudness) if len(whole) > SHORTEST else [whole])
        ]
        waiting = []
        for part, text in again(parts):
            if len(part) > SHORTEST and bad(part, text):
                waiting.append(part)
            else:
                yield part, text


def recognize_gaps(
    gaps: Iterable[Piece],
    again: Recognize,
    to_words: Callable[[Recognized], Iterable[Word]],
    words: Sequence[Word],
    loudness: Loudness,
    covers: Covers,
) -> list[Word]:
    """Recognize speech without words again, then in halves, and return its words.

    Doubtful words are dropped, and words outside the piece or at the time of one of `words`, which are in
    order.
    """
    return [
        word
        for piece, text in again(gaps)
        for part, part_text in _complete(piece, _trusted(piece, text), again, loudness, covers)
        for word in to_words((part, part_text))
        if part.start <= (word.start + word.end) / 2 <= part.end and not _overlaps(word, words)
    ]


def flaw(piece: Piece, text: ChunkResult) -> str | None:
    """Return the flaw of a text, or None. A text without words has none: the piece may hold no speech."""
    if not text.ended:
        return ENDLESS
    return doubt(_text(text), len(piece) / FRAME_RATE, text.logprob) if _count(text) else None


def doubt(text: str, seconds: float, logprob: float | None) -> str | None:
    """Return the flaw of a text for speech of `seconds`, or None."""
    words = WORDS.findall(text.casefold())
    raw = text.encode()
    if _loops(words) or (raw and len(raw) / len(zlib.compress(raw)) > COMPRESSION):
        return "repeats itself"
    if len(text) > RATE * max(seconds, 1.0):
        return "is too much for the time"
    if logprob is not None and logprob < LOGPROB:
        return IMPROBABLE
    return None


def _loops(words: list[str]) -> bool:
    """Return whether a few words repeat without a break, or a long phrase comes back again and again."""
    for size in range(1, GRAM + 1):
        run = 1
        for start in range(size, len(words) - size + 1, size):
            run = run + 1 if words[start : start + size] == words[start - size : start] else 1
            if run > TIMES and run * size > LOOP:
                return True
    grams = Counter(zip(*(words[shift:] for shift in range(8)), strict=False))
    return max(grams.values(), default=0) >= TIMES


def format_notes(notes: Sequence[Note], clock: Callable[[float], str]) -> Iterator[str]:
    """Yield one warning for all notes with the same text. `clock` formats a time in seconds."""
    ordered = sorted(notes, key=lambda note: (note.text, note.piece.start))
    for text, group in groupby(ordered, key=lambda note: note.text):
        stretches = [f"{clock(note.piece.start)} to {clock(note.piece.end)}" for note in group]
        more = f" and {len(stretches) - NAMED} more" if len(stretches) > NAMED else ""
        yield f"{', '.join(stretches[:NAMED])}{more}: {text}"


def _best(piece: Piece, before: ChunkResult, after: ChunkResult) -> ChunkResult:
    """Return the text without a flaw, or the more probable text."""
    if flaw(piece, after) is None:
        return after
    return after if after.ended and (after.logprob or 0.0) > (before.logprob or 0.0) else before


def _text(result: ChunkResult) -> str:
    return b"".join(token.text.encode("latin-1") for token in result.tokens).decode("utf-8", "replace")


def _trusted(piece: Piece, text: ChunkResult) -> ChunkResult:
    """Drop the tokens of a doubtful text and of a text without words."""
    return _with_letters(text) if flaw(piece, text) is None else replace(text, tokens=())


def _with_letters(text: ChunkResult) -> ChunkResult:
    """Drop the tokens of a text without words: over noise, Whisper likes to write dots."""
    return text if _count(text) else replace(text, tokens=())


def _count(text: ChunkResult) -> int:
    """Count the letters and digits of a text."""
    return sum(map(str.isalnum, _text(text)))


def _overlaps(word: Word, words: Sequence[Word]) -> bool:
    """Return whether a word is at the time of one of some words, which are in order."""
    first = bisect_right(words, word.start, key=lambda other: other.end)
    return first < len(words) and words[first].start < word.end
