"""Language of each part of a track, from the languages that a recognizer detects in the parts.

Whisper detects the language of a piece of up to 30 s; of a piece in two languages it detects a mixture. But
its decoder can attend to a part of the piece alone, which costs next to nothing. If another language may be
spoken, pieces are cut in pauses and at changes of the speaker, and a Viterbi pass decides for all parts
together: a change of language has a cost, so that it takes clear evidence. Before a language changes, each
part is encoded by itself, which tells its language better. docs/decisions/2026-11-24-languages-in-turn.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import TYPE_CHECKING

import numpy as np

from witness.languages import MULTI, name
from witness.recognition.chunking import Piece
from witness.recognition.engine import ChunkResult
from witness.recognition.fallback import ENOUGH, Recognized, flaw
from witness.recognition.vad import FRAME_RATE
from witness.schema import Int, Word

if TYPE_CHECKING:  # a child process needs neither
    from witness.recognition.engine_client import RemoteEngine
    from witness.recognition.track_input import TrackInput

SAMPLED = 3 * FRAME_RATE
"""Frames of a part that tell its language."""
SUSPECTED = 0.5
"""Probability of another language than that of the track that makes a part unclear."""
PART = 6 * FRAME_RATE
"""Most frames of a part."""
CHANGE = 3.0
"""Cost of a change of language, in nats."""
LEAST = 1e-4
"""Least probability that counts for a language, so that no part alone outweighs all others."""
SHORT = 3.0
"""Seconds; the evidence of a shorter part counts in proportion."""
CANDIDATE = 0.8
"""Probability that another language must reach in some part."""
DOUBTED = -0.8
"""Mean log probability of the tokens below which a text of an English-only model is rather not English:
docs/decisions/2026-11-25-english-only.md."""

Probabilities = Mapping[str, float]
"""Language code -> probability."""
Decided = tuple[Piece, ChunkResult | None]
"""A piece in one language and its text; None: it must be recognized."""


def requested(languages: str | None) -> tuple[str, ...]:
    """Split the option; empty: all languages."""
    return () if languages in (None, MULTI) else tuple(str(languages).split(","))


def fixed_language(languages: str | None, supported: Sequence[str]) -> str | None:
    """Return the language of every track, or MULTI; None: it must be detected."""
    if len(supported) == 1:
        return supported[0]
    if languages == MULTI:
        return MULTI
    return requested(languages)[0] if len(requested(languages)) == 1 else None


def keep_allowed(probabilities: Probabilities, allowed: Sequence[str]) -> dict[str, float]:
    """Keep the allowed languages (empty: all) and scale their probabilities to a sum of 1."""
    kept = {
        code: probability for code, probability in probabilities.items() if not allowed or code in allowed
    }
    whole = sum(kept.values())
    return {code: probability / whole for code, probability in kept.items()} if whole > 0 else {}


def may_change(parts: Sequence[Probabilities], main: str) -> bool:
    """Return whether another language than `main` may be spoken in some part."""
    return any(
        probability >= SUSPECTED for part in parts for code, probability in part.items() if code != main
    )


class TrackLanguages:
    """Languages of a track, as an engine detects them."""

    def __init__(
        self, track: TrackInput, languages: str | None, engine: RemoteEngine, when: Callable[[Piece], str]
    ) -> None:
        """Use `engine`, which must compare languages; `when` names a piece in messages."""
        self._track = track
        self._engine = engine
        self._when = when
        self.requested = requested(languages)

    def main(self, first: Sequence[Piece]) -> str | None:
        """Detect the language of the track in its first pieces; None: no speech, or the engine cannot."""
        if (piece := self._track.loudness.most_speech(first)) is None:
            return None
        parts = self._detect(piece, [piece])
        languages = parts[0] if parts else {}
        return max(languages, key=lambda code: languages[code], default=next(iter(self.requested), None))

    def decide(
        self, texts: Iterable[Recognized], main: str, again: Callable[[Iterable[Piece]], Iterator[Recognized]]
    ) -> Iterator[Recognized]:
        """Yield the text of each piece, in order, in the language spoken there.

        Pieces that may hold another language than `main` wait until their language is certain; `again`
        recognizes pieces in the language they have.
        """
        tracker = Tracker(main)

        def recognized(decided: Sequence[Decided]) -> Iterator[Recognized]:
            missing = again(piece for piece, text in decided if text is None)
            for piece, text in decided:
                yield next(missing) if text is None else (piece, text)

        for piece, text in texts:
            if text.unclear:
                parts = piece.parts(self._track.loudness, self._track.speech, PART)
                languages = self._detect(piece, parts)
                if len(parts) > 1 and _changes(parts, languages, main):
                    languages = [language for part in parts for language in self._detect(part, [part])]
                yield from recognized(tracker.add((piece, text), parts, languages))
            elif tracker.held:
                yield from recognized(tracker.add((piece, text)))
            else:
                yield piece, text
        yield from recognized(tracker.finish())

    def _detect(self, piece: Piece, parts: Sequence[Piece]) -> list[dict[str, float]]:
        ends = np.cumsum([len(part) for part in parts]).tolist()
        languages = self._engine.languages(self._track.part(piece), ends, self._when(piece))
        return [keep_allowed(part, self.requested) for part in languages]


class Tracker:
    """Decides as the pieces of a track come, in order, and holds pieces until they are certain."""

    def __init__(self, main: str) -> None:
        """Track a recording in `main`, which stays while no other language is clear."""
        self._main = self._before = main
        self.held: list[tuple[Recognized, list[Piece], list[Probabilities]]] = []
        """Pieces that are not certain yet, with their parts and the languages of these."""

    def add(
        self, recognized: Recognized, parts: Sequence[Piece] = (), languages: Sequence[Probabilities] = ()
    ) -> list[Decided]:
        """Add a piece, and return all that are certain now.

        A piece with an unclear text has `parts` with their `languages`; it comes back in the largest parts
        with one language each.
        """
        self.held.append((recognized, list(parts) or [recognized[0]], list(languages) or [{self._main: 1.0}]))
        return self._decide(last=False)

    def finish(self) -> list[Decided]:
        """Return the remaining pieces at the end of the track."""
        return self._decide(last=True)

    def _decide(self, *, last: bool) -> list[Decided]:
        measured = [
            (len(part) / FRAME_RATE, languages)
            for _, parts, of_parts in self.held
            for part, languages in zip(parts, of_parts, strict=True)
        ]
        path, settled = decide(measured, self._main, self._before)
        if self.held and not last and self.held[-1][0][1].unclear:
            settled = min(settled, len(measured) - 1)  # the next piece may make the end of this one clear
        rest = iter(path)
        decided: list[Decided] = []
        while self.held and (last or len(self.held[0][1]) <= settled):
            (piece, text), parts, _ = self.held.pop(0)
            settled -= len(parts)
            languages = list(islice(rest, len(parts)))
            self._before = languages[-1]
            if not text.unclear:
                decided.append((piece, text))
                continue
            for language, run in groupby(zip(languages, parts, strict=True), key=lambda pair: pair[0]):
                frames = np.concatenate([part.frames for _, part in run])
                decided.append((replace(piece, frames=frames, language=language), None))
        return decided


def decide(
    parts: Sequence[tuple[float, Probabilities]], main: str, before: str | None = None
) -> tuple[list[str], int]:
    """Return the language of each part, and the number of first parts that keep theirs whatever follows.

    `parts`: seconds and probabilities of each; `main`: language of the track, which stays while no other is
    clear; `before`: language before the first part, if any.
    """
    candidates = {
        code for _, languages in parts for code, probability in languages.items() if probability >= CANDIDATE
    }
    codes = [main, *sorted({*candidates, before or main} - {main})]
    scores = np.array(
        [
            [min(1.0, seconds / SHORT) * math.log(max(languages.get(code, 0.0), LEAST)) for code in codes]
            for seconds, languages in parts
        ]
    )
    best = np.array([0.0 if before in (None, code) else -CHANGE for code in codes])
    ways: list[Int] = []
    for score in scores:
        leader = int(best.argmax())
        ways.append(np.where(best >= best[leader] - CHANGE, np.arange(len(codes)), leader))
        best = np.maximum(best, best[leader] - CHANGE) + score
    state, path = int(best.argmax()), []
    ends, settled = set(np.flatnonzero(best >= best.max() - CHANGE).tolist()), 0
    for number, way in reversed(list(enumerate(ways, start=1))):
        if len(ends) == 1:
            settled = max(settled, number)
        path.append(codes[state])
        state = int(way[state])
        ends = {int(way[end]) for end in ends}
    return path[::-1], settled


def _changes(parts: Sequence[Piece], languages: Sequence[Probabilities], main: str) -> bool:
    """Return whether another language than `main` seems to be spoken in some part."""
    measured = [(len(part) / FRAME_RATE, language) for part, language in zip(parts, languages, strict=True)]
    return set(decide(measured, main)[0]) != {main}


class Doubts:
    """Share of a track's first texts that an English-only model itself doubts."""

    def __init__(self) -> None:
        self._tokens = 0
        self._frames = {True: 0, False: 0}
        """Frames of pieces with a text, by whether it has a flaw."""

    def counted(self, texts: Iterable[Recognized]) -> Iterator[Recognized]:
        """Pass pieces on and count their flaws."""
        for piece, text in texts:
            if text.tokens and text.ended:
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


def several_languages(words: Sequence[Word], clock: Callable[[float], str]) -> Iterator[str]:
    """Yield a line about a track in several languages: the start of each, which `clock` formats."""
    first: dict[str, float] = {}
    for word in words:
        if word.language:
            first.setdefault(word.language, word.start)
    if len(first) > 1:
        (code, _), *others = first.items()
        later = ", ".join(f"{name(other)} from {clock(start)}" for other, start in others)
        yield f"languages: {name(code)}, {later}"
