"""What a person knows better than the machine, applied to a draft.

A speaker's number means nothing once clustering has run again, so a correction holds places where the speaker
talks, and applies to whoever talks there most. Names, merges and moved words all work this way; a corrected
text and a speaker who was missing are tied to the words in a place, and a text that the recognizer missed to
the speech without words that is there.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from witness.schema import BREATH, Correction, Float64, Int, Spans, Turn, Utterance, Word, WordIndex

ANCHORS = 10
"""Turns that identify a speaker: the longest, which another clustering is least likely to split."""
TIE = 0.99
"""Share of the most speech in a place at which a speaker talks as much there: places are rounded."""
INSTANT = 0.001
"""Seconds: the least that the formats can express."""
SAME = 0.5
"""Share of the time that a place and an utterance take together that they must share to be the same."""


def anchor(speaker: str, turns: Iterable[Turn]) -> Spans:
    """Where to find `speaker` again: the longest turns, in order, rounded to milliseconds."""
    own = sorted((turn for turn in turns if turn.speaker == speaker), key=lambda turn: -turn.duration)
    return tuple(sorted((round(turn.start, 3), round(turn.end, 3)) for turn in own[:ANCHORS]))


class Talk:
    """Turns that can be asked many times who talks in a place."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        ordered = sorted(turns)
        self._names: list[str] = sorted({turn.speaker for turn in ordered})
        number = {name: place for place, name in enumerate(self._names)}
        self._starts = np.array([turn.start for turn in ordered])
        self._ends = np.array([turn.end for turn in ordered])
        self._owners = np.array([number[turn.speaker] for turn in ordered], np.intp)
        self._total = self._summed(self._ends - self._starts)
        self._known: dict[Spans, str | None] = {}

    def whose(self, spans: Spans) -> str | None:
        """The speaker who talks most within `spans`; None: nobody does.

        Of several who talk there all the time, the one who talks least elsewhere.
        """
        if spans not in self._known:
            self._known[spans] = self._look(spans)
        return self._known[spans]

    def _look(self, spans: Spans) -> str | None:
        seconds = np.zeros(len(self._names))
        for start, end in spans:
            count = int(np.searchsorted(self._starts, end))  # the others begin later
            shared = np.minimum(end, self._ends[:count]) - np.maximum(start, self._starts[:count])
            seconds += self._summed(np.maximum(shared, 0))
        if not seconds.any():
            return None
        most = np.flatnonzero(seconds >= TIE * seconds.max())
        return self._names[int(most[self._total[most].argmin()])]

    def _summed(self, seconds: Float64) -> Float64:
        """(speakers,): the sum of what is given for the first turns."""
        return np.bincount(self._owners[: len(seconds)], seconds, len(self._names)).astype(np.float64)


def merges(corrections: Iterable[Correction], talk: Talk) -> dict[str, str]:
    """Speaker -> the speaker they were merged into, for all who were merged."""
    same: dict[str, str] = {}

    def last(speaker: str) -> str:
        while speaker in same:
            speaker = same[speaker]
        return speaker

    for correction in corrections:
        if correction.kind == "merge":
            stays, goes = talk.whose(correction.speaker), talk.whose(correction.other)
            if stays is not None and goes is not None and last(stays) != last(goes):
                same[last(goes)] = last(stays)
    return {speaker: last(speaker) for speaker in same}


def names(corrections: Iterable[Correction], talk: Talk) -> dict[str, list[str]]:
    """Speaker -> the names given, the latest last; several where two named speakers became one."""
    given: dict[str, dict[str, None]] = {}
    for correction in corrections:
        speaker = talk.whose(correction.speaker) if correction.kind == "name" else None
        if speaker is not None and correction.name is not None:
            own = given.setdefault(speaker, {})
            own.pop(correction.name, None)
            own[correction.name] = None
    return {speaker: list(own) for speaker, own in given.items()}


def fill(
    tracks: Sequence[Sequence[Word]],
    unheard: Sequence[Sequence[Utterance]],
    corrections: Iterable[Correction],
) -> list[list[Word]]:
    """The words of each track with those that a person heard in its utterances without words, `unheard`.

    What was heard becomes one word, which takes as long as the utterance.
    """
    places = [(number, utterance) for number, own in enumerate(unheard) for utterance in own]
    times = np.array([(one.start, one.end) for _, one in places]).reshape(-1, 2)
    found: dict[int, str] = {}
    for correction in corrections:
        if correction.kind == "fill" and places:
            alike = _alike(correction.other, times)
            if alike.max() > SAME:
                found[int(alike.argmax())] = correction.text or ""
    filled = [list(words) for words in tracks]
    for place, text in found.items():
        number, utterance = places[place]
        word = Word(utterance.start, utterance.end, f" {text}", utterance.speaker, corrected=True)
        insort(filled[number], word, key=lambda other: other.start)
    return filled


def add(
    words: Sequence[Word], turns: Sequence[Turn], added: Mapping[Correction, str]
) -> tuple[list[Word], list[Turn]]:
    """The words of a track and the turns, with the speakers whom a person added: correction -> speaker.

    They talk where their words are, and whoever had these words before does not.
    """
    given, turns = list(words), list(turns)
    for correction, places in _places(words, added, "new"):
        lost: dict[str | None, list[tuple[float, float]]] = {}
        for run in _runs(given, places.tolist()):
            start = given[run[0]].start
            end = max(given[run[-1]].end, start + INSTANT)
            lost.setdefault(given[run[0]].speaker, []).append((start, end))
        holes = {speaker: sorted(times) for speaker, times in lost.items()}
        turns = [
            *(part for turn in turns for part in _without(turn, holes.get(turn.speaker, ()))),
            *(Turn(start, end, added[correction]) for times in lost.values() for start, end in times),
        ]
        for place in places:
            given[place] = _said_by(added[correction], given[place])
    return given, sorted(turns)


def move(words: Sequence[Word], corrections: Iterable[Correction], talk: Talk) -> list[Word]:
    """The same words; those whose middle lies in a moved part now belong to the speaker of the correction.

    A word that a person assigned was said, whether the diarizer heard it or not.
    """
    owners: list[str] = []
    owner = np.full(len(words), -1, np.intp)
    for correction, places in _places(words, corrections, "move"):
        if (speaker := talk.whose(correction.speaker)) is not None:
            owner[places] = len(owners)
            owners.append(speaker)
    return [
        word if which < 0 else _said_by(owners[which], word)
        for word, which in zip(words, owner.tolist(), strict=True)
    ]


def spell(words: Sequence[Word], corrections: Iterable[Correction]) -> list[Word]:
    """The words as a person heard them: the first word of a corrected part gets its text, the others go.

    So does the first if the text is empty; then the speaker's word before or after it is marked as corrected.
    """
    said: list[tuple[int, str]] = []  # the place of the first word, and the text
    last = np.full(len(words), -1, np.intp)
    for correction, places in _places(words, corrections, "text"):
        if len(places):
            last[places] = len(said)
            said.append((int(places[0]), correction.text or ""))
    spelled: list[Word] = []
    erased: list[str | None] = []  # the speaker of a word that went, until there is a word to mark
    for place, (word, which) in enumerate(zip(words, last.tolist(), strict=True)):
        text = word.text
        if which >= 0:
            first, heard = said[which]
            space = text[: len(text) - len(text.lstrip())]
            text = space + heard if heard and place == first else ""
        if text or not word.text:
            if which >= 0 or word.speaker in erased:
                sure = word.probability if text == word.text else None
                word = structs.replace(word, text=text, corrected=True, probability=sure)
            spelled.append(word)
            erased = []
        elif spelled and spelled[-1].speaker == word.speaker:
            spelled[-1] = structs.replace(spelled[-1], corrected=True)
        else:
            erased = [word.speaker]
    return spelled


def divide(words: Sequence[Word], corrections: Iterable[Correction]) -> list[Word]:
    """The same words, with what a person said of where paragraphs begin."""
    begins = [word.begins for word in words]
    for correction, places in _places(words, corrections, "split", "join"):
        if len(places):
            begins[int(places[0])] = correction.kind == "split"
    return [
        word if word.begins == said else structs.replace(word, begins=said)
        for word, said in zip(words, begins, strict=True)
    ]


def timed(utterances: Sequence[Utterance], corrections: Iterable[Correction]) -> list[Utterance]:
    """The utterances, which begin and end where a person said; their words keep their times."""
    given = [one for one in corrections if one.kind in ("start", "end")]
    if not given:
        return list(utterances)
    found = list(utterances)
    spoken = [number for number, one in enumerate(found) if one.words]
    for kind, edge in (("start", 0), ("end", -1)):
        spoken.sort(key=lambda number: (found[number].words[edge].start, found[number].track))
        edges = [found[number].words[edge] for number in spoken]
        for correction, places in _places(edges, given, kind):
            if not len(places) or correction.at is None:
                continue
            number = spoken[int(places[0])]
            one, at = found[number], round(correction.at, 3)
            times = (min(at, one.end), one.end) if kind == "start" else (one.start, max(at, one.start))
            found[number] = replace(one, start=times[0], end=times[1], corrected=True)
    return found


def touched(words: Sequence[Word], corrections: Sequence[Correction]) -> set[int]:
    """The places of the words in what a person wrote or gave to somebody."""
    found = (places for _, places in _places(words, corrections, "fill", "new", "move", "text"))
    return {int(place) for places in found for place in places}


def _said_by(speaker: str, word: Word) -> Word:
    return structs.replace(word, speaker=speaker, speaker_confidence=None, supported=True, corrected=True)


def _alike(spans: Spans, times: Float64) -> Float64:
    """(times,): seconds that the spans and each of `times` (times, 2) take, over those that either takes."""
    starts, ends = times.T
    shared = np.zeros(len(times))
    for start, end in spans:
        shared += np.maximum(0.0, np.minimum(end, ends) - np.maximum(start, starts))
    either = sum(end - start for start, end in spans) + ends - starts - shared
    alike: Float64 = shared / np.maximum(either, 1e-9)
    return alike


def _runs(words: Sequence[Word], places: Sequence[int]) -> list[list[int]]:
    """The places of words that one speaker said in one breath, together."""
    runs: list[list[int]] = []
    for place in places:
        before = runs[-1][-1] if runs else -2
        if (
            place == before + 1
            and words[place].speaker == words[before].speaker
            and words[place].start - words[before].end < BREATH
        ):
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _without(turn: Turn, holes: Sequence[tuple[float, float]]) -> Iterator[Turn]:
    """What is left of a turn between `holes`, whose starts rise."""
    start = turn.start
    for first, last in holes:
        if first >= turn.end:
            break
        if first > start:
            yield replace(turn, start=start, end=first)
        start = max(start, last)
    if start < turn.end:
        yield replace(turn, start=start)


def _places(
    words: Sequence[Word], corrections: Iterable[Correction], *kinds: str
) -> Iterator[tuple[Correction, Int]]:
    """Each correction of some kinds, and the rising indexes of the words whose middle lies in its part."""
    there = WordIndex(words)
    for correction in corrections:
        if correction.kind in kinds:
            yield correction, there.within(correction.other)
