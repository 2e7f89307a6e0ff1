"""The languages of a track: what the engine is asked about them, and what is heard again because of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from witness.languages import MULTI, name
from witness.recognition.cached_engine import ResumingEngine
from witness.recognition.chunking import Piece
from witness.recognition.fallback import ENOUGH, Found, flaw
from witness.recognition.language_tracking import PART, Decided, Tracker, among, changes
from witness.recognition.track_input import TrackWork
from witness.schema import Word


def asked(wish: str | None) -> tuple[str, ...]:
    """The languages that may be spoken; empty: all."""
    return () if wish in (None, MULTI) else tuple(str(wish).split(","))


def known(wish: str | None, able: Sequence[str]) -> str | None:
    """The language, or MULTI, if there is nothing to find out; `able` are those of the model."""
    if len(able) == 1:
        return able[0]
    if wish == MULTI:
        return MULTI
    return asked(wish)[0] if len(asked(wish)) == 1 else None


class TrackLanguages:
    """What is known of the languages of a track."""

    def __init__(
        self, track: TrackWork, wish: str | None, engine: ResumingEngine, when: Callable[[Piece], str]
    ) -> None:
        """`when` says for messages where in the recording a piece is."""
        self._track = track
        self._engine = engine
        self._when = when
        self.asked = asked(wish)

    def main(self, first: Sequence[Piece]) -> str | None:
        """That of a track where no other is clear; None: the engine cannot tell, or nothing is there."""
        if (piece := self._track.loudness.most_speech(first)) is None:
            return None
        told = self._told(piece, [piece])
        told_of = told[0] if told else {}
        return max(told_of, key=lambda code: told_of[code], default=next(iter(self.asked), None))

    def decided(
        self, heard: Iterable[Found], main: str, again: Callable[[Iterable[Piece]], Iterator[Found]]
    ) -> Iterator[Found]:
        """What was heard in each piece, in order, in the language that is spoken there.

        Where another language may be spoken than `main`, that of the track, what was heard waits until it is
        clear what is spoken there; `again` hears pieces in the language they have.
        """
        tracker = Tracker(main)

        def settled(items: Sequence[Decided]) -> Iterator[Found]:
            new = again(piece for piece, heard in items if heard is None)
            for piece, heard in items:
                yield next(new) if heard is None else (piece, heard)

        for piece, found in heard:
            if found.unclear:
                parts = piece.parts(self._track.loudness, self._track.speech, PART)
                told = self._told(piece, parts)
                if len(parts) > 1 and changes(parts, told, main):
                    # Each by itself is told better, but has to be encoded by itself.
                    told = [one for part in parts for one in self._told(part, [part])]
                yield from settled(tracker.add((piece, found), parts, told))
            elif tracker.waits:
                yield from settled(tracker.add((piece, found)))
            else:
                yield piece, found
        yield from settled(tracker.rest())

    def _told(self, piece: Piece, parts: Sequence[Piece]) -> list[dict[str, float]]:
        """How probable each language that may be spoken is in each part of a piece."""
        ends = np.cumsum([len(part) for part in parts]).tolist()
        told = self._engine.languages(self._track.part(piece), ends, self._when(piece))
        return [among(one, self.asked) for one in told]


DOUBTED = -0.8
"""Mean log probability of the tokens below which a text of an English-only model is rather not English:
docs/decisions/2026-11-25-english-only.md."""


class Doubts:
    """Share of a track's first texts that an English-only model itself doubts."""

    def __init__(self) -> None:
        self._tokens = 0
        self._frames = {True: 0, False: 0}
        """Of pieces with a text, by whether it has a flaw."""

    def counted(self, heard: Iterable[Found]) -> Iterator[Found]:
        """Pass pieces on and count their flaws."""
        for piece, text in heard:
            if text.tokens:
                improbable = text.logprob is not None and text.logprob < DOUBTED
                self._tokens += len(text.tokens)
                self._frames[improbable or flaw(piece, text) is not None] += len(piece)
            yield piece, text

    @property
    def prevail(self) -> bool:
        """More of the speech has a flawed text than a good one."""
        return self._tokens >= ENOUGH and self._frames[True] > self._frames[False]


def not_english(model: str) -> str:
    """Return the warning about a recording that an English-only model hardly understands."""
    return (
        f"the recording does not seem to be in English, the only language that {model} knows, so its words "
        "may be wrong; fix: --whisper base (or --language en, if it is English)"
    )


def to_line(words: Sequence[Word], clock: Callable[[float], str]) -> Iterator[str]:
    """Of a track in several languages, from when on each is spoken. `clock` writes a time in seconds."""
    first: dict[str, float] = {}
    for word in words:
        if word.language:
            first.setdefault(word.language, word.start)
    if len(first) > 1:
        (code, _), *others = first.items()
        later = ", ".join(f"{name(other)} from {clock(start)}" for other, start in others)
        yield f"languages: {name(code)}, {later}"
