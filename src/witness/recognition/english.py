"""Where a model that knows English only was given another language.

It writes English all the same: what sounds alike, improbable to itself, or the same words again and again. So
its own probabilities tell, word by word, and a Viterbi pass decides for all of them together: a change of
language has a cost, so that it takes clear evidence. docs/decisions/2026-11-24-partly-english.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import fmean
from typing import NamedTuple

from witness.recognition.engine_worker import EngineToken
from witness.recognition.fallback import NAMED, Found, flaw
from witness.recognition.hallucination_checks import IMPROBABLE
from witness.recognition.tokens import piece_tokens
from witness.schema import Spans

EVIDENCE = ((-0.02, 1.8), (-0.1, 0.7), (-1.0, -0.3), (-2.0, -1.2), (-math.inf, -2.2))
"""Log probability of a token, and the nats by which tokens of that much and more speak for English."""
CHANGE, END = 12.0, 3.5
"""Nats that it costs to change the language, and to begin or end in another one than English."""
LOOP = 3.0
"""Nats against English where the text of a piece repeats itself, has no end or is too much for the time."""
PHRASE, TIMES = 12, 3
"""The most words that come back one after the other, and how often: what is repeated says nothing new."""
ENOUGH = 6
"""Tokens; of less than that in a row nothing is said."""


class _Word(NamedTuple):
    tokens: tuple[EngineToken, ...]
    evidence: float
    """Nats by which it speaks for English."""


def to_line(
    not_english: Sequence[tuple[float, float]], model: str, clock: Callable[[float], str]
) -> Iterator[str]:
    """What a reader should know about what was not English. `clock` writes a time in seconds."""
    if not_english:
        places = [f"{clock(start)} to {clock(end)}" for start, end in not_english]
        more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
        yield (
            f"[not English], at {', '.join(places[:NAMED])}{more}: {model} knows English only; "
            "fix: --whisper base (or --language en, if it is English)"
        )


class Judge:
    """Decides as the pieces of a track come, in order, and keeps those back that are not decided yet."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []
        self._gaps: list[tuple[float, float]] = []
        self._held: list[tuple[Found, list[_Word]]] = []
        self._english: bool | None = None
        """Whether the last word that is decided is; None: there is none."""

    @property
    def not_english(self) -> Spans:
        """From when to when others last, so far, in seconds."""
        return tuple(sorted([*self._spans, *self._gaps]))

    def believed(self, heard: Iterable[Found]) -> Iterator[Found]:
        """Of what was heard in pieces, in order, what is English.

        A piece waits until nothing that follows can change what is said of it.
        """
        for found in heard:
            self._held.append((found, _words(found)))
            yield from self._decided(last=False)
        yield from self._decided(last=True)

    def undoubted(self, heard: Iterable[Found]) -> Iterator[Found]:
        """What a second look found in gaps, without words where that is rather not English."""
        for piece, found in heard:
            if sum(word.evidence for word in _words((piece, found))) < -END:
                self._gaps.append((piece.start, piece.end))
                yield piece, replace(found, tokens=())
            else:
                yield piece, found

    def _decided(self, *, last: bool) -> list[Found]:
        words = [word for _, own in self._held for word in own]
        english, settled = course([word.evidence for word in words], self._english, last=last)
        settled = _without_short(words, english, settled, goes_on=self._english is False)
        done: list[Found] = []
        while self._held and (last or len(self._held[0][1]) <= settled):
            found, own = self._held.pop(0)
            done += self._parted(found, own, english[: len(own)])
            english, settled = english[len(own) :], settled - len(own)
        return done

    def _parted(self, found: Found, words: Sequence[_Word], english: Sequence[bool]) -> list[Found]:
        """What is English of a piece; the rest becomes a span, from one English word to the next."""
        piece, heard = found
        times = iter(piece_tokens(heard.tokens, piece))
        kept: list[EngineToken] = []
        end = piece.start  # of the English word before, in the track
        last = 0  # the end of the word before, in the piece
        for own, run in groupby(zip(english, words, strict=True), key=lambda one: one[0]):
            tokens = [token for _, word in run for token in word.tokens]
            placed = [next(times) for _ in tokens]
            if own:
                if self._english is False:
                    self._spans[-1] = self._spans[-1][0], max(self._spans[-1][0], placed[0].start)
                first = tokens[0]._replace(start=last) if tokens[0].start is None else tokens[0]
                kept += [first, *tokens[1:]]
                end = placed[-1].end
            elif self._english is not False:
                self._spans.append((end, end))
            self._english = own
            last = tokens[-1].end
        if self._english is False:
            self._spans[-1] = self._spans[-1][0], piece.end
        if len(kept) == len(heard.tokens):
            return [found]
        told = [one for one in map(_logprob, kept) if one is not None]
        logprob = fmean(told) if told else None
        return [(piece, replace(heard, tokens=kept, ended=True, logprob=logprob))] if kept else []


def course(evidence: Sequence[float], before: bool | None, *, last: bool) -> tuple[list[bool], int]:
    """Whether each word is English, and how many of them, from the first on, are so whatever follows.

    `before` says it of the word before them; None: there is none. `last`: nothing follows.
    """
    start = {None: (0.0, -END), True: (0.0, -math.inf), False: (-math.inf, 0.0)}
    english, other = start[before]
    ways: list[tuple[bool, bool]] = []  # from where each is reached best: from English?
    for one in evidence:
        ways.append((english >= other - CHANGE, english - CHANGE > other))
        english, other = max(english, other - CHANGE), max(other, english - CHANGE) - one
    if last:
        other -= END
    path, settled = [False] * len(ways), len(ways) if last else 0
    ends = {True, False}
    if abs(english - other) > CHANGE:  # nothing is won by a change at the last word instead of the next
        ends = {english > other}
    state = english >= other
    for place in range(len(ways) - 1, -1, -1):
        if len(ends) == 1:
            settled = max(settled, place + 1)
        path[place] = state
        state = ways[place][not state]
        ends = {ways[place][not end] for end in ends}
    return path, settled


def _without_short(words: Sequence[_Word], english: list[bool], settled: int, *, goes_on: bool) -> int:
    """Make short runs that are not English so; how many words are settled then. `goes_on`: the first run does
    so with words before."""
    place = 0
    for own, run in groupby(list(english)):
        start, place = place, place + len(list(run))
        known = sum(len(word.tokens) for word in words[start : min(place, settled)])
        if own or start >= settled or known >= ENOUGH or (start == 0 and goes_on):
            continue
        if place > settled:
            return start
        english[start:place] = [True] * (place - start)
    return settled


def _words(found: Found) -> list[_Word]:
    piece, heard = found
    words: list[list[EngineToken]] = []
    for token in heard.tokens:
        if token.text[:1].isspace() or not words:
            words.append([])
        words[-1].append(token)
    again = _repeated(["".join(token.text for token in word) for word in words])
    evidence = [0.0 if said else sum(map(_told, word)) for word, said in zip(words, again, strict=True)]
    if flaw(piece, heard) not in (None, IMPROBABLE):
        places = [place for place, said in enumerate(again) if said] or list(range(len(words)))
        for place in places:
            evidence[place] -= LOOP / len(places)
    return [_Word(tuple(word), one) for word, one in zip(words, evidence, strict=True)]


def _told(token: EngineToken) -> float:
    logprob = _logprob(token)
    return 0.0 if logprob is None else next(nats for least, nats in EVIDENCE if logprob >= least)


def _logprob(token: EngineToken) -> float | None:
    return None if token.probability is None else math.log(max(token.probability, 1e-9))


def _repeated(words: Sequence[str]) -> list[bool]:
    """Whether each word is of a phrase that comes back TIMES times and more, after it came first."""
    plain = [word.casefold().strip(" .,!?\"'") for word in words]
    found = [False] * len(words)
    for size in range(1, PHRASE + 1):
        for start in range(len(words) - TIMES * size + 1):
            phrases = [tuple(plain[start + size * time :][:size]) for time in range(TIMES)]
            if len(set(phrases)) == 1:
                found[start + size : start + TIMES * size] = [True] * (size * (TIMES - 1))
    return found
