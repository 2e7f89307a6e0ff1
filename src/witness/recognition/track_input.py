"""A track as the recognizer sees it: its speech, samples for the engine, and words from texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from witness.recognition import chunking, tokens
from witness.recognition.chunking import Loudness, Piece
from witness.recognition.engine import ChunkResult
from witness.recognition.fallback import Coverage, Recognized
from witness.recognition.vad import FRAME_RATE, Speech
from witness.schema import SAMPLE_RATE, Float32, Samples, Word

PADDED = SAMPLE_RATE
"""Least samples for the child: whisper.cpp skips less than 0.1 s, and reads past the end of less."""


@dataclass(frozen=True)
class TrackInput:
    """Track to recognize."""

    number: int
    """Index among the tracks."""
    samples: Samples
    loudness: Loudness
    speech: Speech | None

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.loudness.energy)

    @cached_property
    def spoken(self) -> Sequence[tuple[float, float]]:
        """Stretches of likely speech, in seconds, once the diarizer is done."""
        return () if self.speech is None else tokens.runs(self.speech.likely())

    def part(self, piece: Piece) -> Float32:
        """Return the samples of a piece."""
        cut = piece.cut(self.samples)
        return np.pad(cut, (0, max(0, PADDED - len(cut))))

    def words(self, texts: Sequence[Recognized], after: Sequence[Word] = ()) -> list[Word]:
        """Return the words of some pieces, in order, at times with speech; `after`: the words before."""
        groups = [tokens.piece_tokens(text.tokens, piece, text.language) for piece, text in texts]
        duration = len(self.samples) / SAMPLE_RATE
        before = after[-1].end if after else 0.0
        words = tokens.to_words(groups, first=not after)
        return tokens.place(words, duration, self.spoken, before=before)

    def coverage(self, piece: Piece, text: ChunkResult) -> Coverage:
        """Measure the speech in a piece that its text leaves without words."""
        if self.speech is None:
            return Coverage(0.0, 0.0, 0.0)
        first, last = int(piece.frames[0]), int(piece.frames[-1]) + 1
        spoken = np.isin(np.arange(first, last), piece.frames, assume_unique=True)
        spoken &= self.speech.likely(first, last) & self.loudness.sounding[first:last]
        runs = [(start + piece.start, end + piece.start) for start, end in tokens.runs(spoken)]
        said = tokens.to_words([tokens.piece_tokens(text.tokens, piece)])
        words = tokens.place(said, piece.end, runs, before=piece.start)
        seconds = float(spoken.sum()) / FRAME_RATE
        uncovered = sum(map(len, chunking.without_words(spoken, words, first))) / FRAME_RATE
        return Coverage(seconds, uncovered, sum(map(tokens.longest_time, words)))

    def gaps(self, words: Sequence[Word], start: float) -> Iterator[Piece]:
        """Yield the speech from `start` on that has no words."""
        if self.speech is not None:
            gaps = chunking.gaps(self.speech, self.loudness, words)
            yield from (gap for gap in gaps if gap.start >= start)


def language_near(words: Sequence[Word], piece: Piece) -> str | None:
    """Return the language of the word nearest to a piece."""
    near = min(words, key=lambda word: max(word.start - piece.end, piece.start - word.end), default=None)
    return near.language if near else None
