"""A track on its way to words: where somebody speaks, what the engine is given, and the words of pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice

import numpy as np

from witness.recognition import chunking, tokens
from witness.recognition.chunking import Loudness, Piece
from witness.recognition.engine_worker import ChunkResult, EngineToken
from witness.recognition.fallback import Coverage, Found
from witness.recognition.vad import FRAME_RATE, Speech
from witness.schema import SAMPLE_RATE, Float32, Samples, Word

PADDED = SAMPLE_RATE
"""Samples that the child gets at least: whisper.cpp skips less than 0.1 s, and reads past the end of less."""


@dataclass(frozen=True)
class TrackWork:
    """What there is to recognize."""

    number: int
    """Of the track, counted from 0."""
    samples: Samples
    loudness: Loudness
    speech: Speech | None

    def __len__(self) -> int:
        """In frames."""
        return len(self.loudness.energy)

    @cached_property
    def spoken(self) -> Sequence[tuple[float, float]]:
        """From when to when somebody is likely to speak, in seconds, once the diarizer is done."""
        return () if self.speech is None else tokens.runs(self.speech.likely())

    def part(self, piece: Piece) -> Float32:
        """The samples of a piece."""
        cut = piece.cut(self.samples)
        return np.pad(cut, (0, max(0, PADDED - len(cut))))

    def words(self, heard: Sequence[Found], after: Sequence[Word] = ()) -> list[Word]:
        """The words of some pieces, in order, at the times when somebody speaks; `after` the words before."""
        found = [tokens.piece_tokens(one.tokens, piece, one.language) for piece, one in heard]
        duration = len(self.samples) / SAMPLE_RATE
        before = after[-1].end if after else 0.0
        words = tokens.to_words(found, first=not after)
        return tokens.place(words, duration, self.spoken, before=before)

    def coverage(self, piece: Piece, heard: ChunkResult) -> Coverage:
        """How much of the speech in a piece its text leaves without words."""
        if self.speech is None:
            return Coverage(0.0, 0.0, 0.0)
        first, last = int(piece.frames[0]), int(piece.frames[-1]) + 1
        spoken = np.isin(np.arange(first, last), piece.frames, assume_unique=True)
        spoken &= self.speech.likely(first, last) & self.loudness.sounding[first:last]
        runs = [(start + piece.start, end + piece.start) for start, end in tokens.runs(spoken)]
        said = tokens.to_words([tokens.piece_tokens(heard.tokens, piece)])
        words = tokens.place(said, piece.end, runs, before=piece.start)
        seconds = float(spoken.sum()) / FRAME_RATE
        uncovered = sum(map(len, chunking.without_words(spoken, words, first))) / FRAME_RATE
        return Coverage(seconds, uncovered, sum(map(tokens.longest_time, words)))

    def gaps(self, words: Sequence[Word], start: float) -> Iterator[Piece]:
        """Yield the speech from `start` on that has no words."""
        if self.speech is not None:
            gaps = chunking.gaps(self.speech, self.loudness, words)
            yield from (gap for gap in gaps if gap.start >= start)


def ends_inside(heard: Sequence[EngineToken]) -> bool:
    """Whether the last character of a piece is not complete: the next piece has the rest of it."""
    return tokens.ends_inside(b"".join(token.text.encode("latin-1") for token in heard))


def in_order(words: Sequence[Word], found: Sequence[Word]) -> list[Word]:
    """The words of the first and of the second look."""
    return sorted([*words, *found], key=lambda word: word.start)


def groups(some: Iterable[Piece], size: int) -> Iterator[list[Piece]]:
    """Pieces that follow each other in one language, at most `size` together."""
    for _, alike in groupby(some, key=lambda piece: piece.language):
        while group := list(islice(alike, size)):
            yield group


def evenly(pieces: int, workers: int, most: int) -> int:
    """How many of some pieces to a group of at most `most`, so that all workers end at about the same time.

    Pieces together save work, but only once every worker has some do they save time.
    """
    rounds = -(-pieces // (workers * most))
    return max(1, min(most, -(-pieces // max(1, rounds * workers))))


def language_near(words: Sequence[Word], piece: Piece) -> str | None:
    """The language of the word that is nearest to a piece."""
    near = min(words, key=lambda word: max(word.start - piece.end, piece.start - word.end), default=None)
    return near.language if near else None
