"""What a person knows better than the machine, applied to a draft.

A speaker's number means nothing once clustering has run again, so a correction holds places where the speaker
talks, and applies to whoever talks there most. Names, merges and moved words all work this way; a corrected
text and a speaker who was missing are tied to the words in a place, and a text that the recognizer missed to
the speech without words that is there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from witness.schema import BREATH, Correction, Spans, Turn, Utterance, Word

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


def whose(spans: Spans, turns: Iterable[Turn]) -> str | None:
    """The speaker who talks most within `spans`; None: nobody does.

    Of several who talk there all the time, the one who talks least elsewhere.
    """
    seconds: dict[str, float] = {}
    total: dict[str, float] = {}
    for turn in turns:
        total[turn.speaker] = total.get(turn.speaker, 0.0) + turn.duration
        for start, end in spans:
            if (shared := min(end, turn.end) - max(start, turn.start)) > 0:
                seconds[turn.speaker] = seconds.get(turn.speaker, 0.0) + shared
    enough = TIE * max(seconds.values(), default=0.0)
    most = [speaker for speaker in sorted(seconds) if seconds[speaker] >= enough]
    return min(most, key=lambda speaker: total[speaker], default=None)


def merges(corrections: Iterable[Correction], turns: Sequence[Turn]) -> dict[str, str]:
    """Speaker -> the speaker they were merged into, for all who were merged."""
    same: dict[str, str] = {}

    def last(speaker: str) -> str:
        return last(same[speaker]) if speaker in same else speaker

    for correction in corrections:
        if correction.kind == "merge":
            stays, goes = whose(correction.speaker, turns), whose(correction.other, turns)
            if stays is not None and goes is not None and last(stays) != last(goes):
                same[last(goes)] = last(stays)
    return {speaker: last(speaker) for speaker in same}


def names(corrections: Iterable[Correction], turns: Sequence[Turn]) -> dict[str, list[str]]:
    """Speaker -> the names given, the latest last; several where two named speakers became one."""
    given: dict[str, list[str]] = {}
    for correction in corrections:
        speaker = whose(correction.speaker, turns) if correction.kind == "name" else None
        if speaker is not None and correction.name is not None:
            others = [name for name in given.get(speaker, []) if name != correction.name]
            given[speaker] = [*others, correction.name]
    return given


def fill(
    tracks: Sequence[Sequence[Word]],
    unheard: Sequence[Sequence[Utterance]],
    corrections: Iterable[Correction],
) -> list[list[Word]]:
    """The words of each track with those that a person heard in its utterances without words, `unheard`.

    What was heard becomes one word, which takes as long as the utterance.
    """
    found: dict[tuple[int, Utterance], str] = {}
    for correction in corrections:
        if correction.kind == "fill":
            alike = ((_alike(correction.other, one), n, one) for n, own in enumerate(unheard) for one in own)
            share, number, utterance = max(alike, key=lambda item: item[0], default=(0.0, 0, None))
            if utterance is not None and share > SAME:
                found[number, utterance] = correction.text or ""
    filled = [list(words) for words in tracks]
    for (number, utterance), text in found.items():
        word = Word(utterance.start, utterance.end, f" {text}", utterance.speaker)
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
        for run in _runs(given, places):
            start, before = given[run[0]].start, given[run[0]].speaker
            end = max(given[run[-1]].end, start + INSTANT)
            turns = [
                part
                for turn in turns
                for part in (_without(turn, start, end) if turn.speaker == before else (turn,))
            ]
            turns.append(Turn(start, end, added[correction]))
        for place in places:
            given[place] = _said_by(added[correction], given[place])
    return given, sorted(turns)


def move(words: Sequence[Word], corrections: Iterable[Correction], turns: Sequence[Turn]) -> list[Word]:
    """The same words; those whose middle lies in a moved part now belong to the speaker of the correction.

    A word that a person assigned was said, whether the diarizer heard it or not.
    """
    moved = list(words)
    for correction, places in _places(words, corrections, "move"):
        if (speaker := whose(correction.speaker, turns)) is not None:
            for place in places:
                moved[place] = _said_by(speaker, moved[place])
    return moved


def spell(words: Sequence[Word], corrections: Iterable[Correction]) -> list[Word]:
    """The words as a person heard them: the first word of a corrected part gets its text, the others go.

    So does the first if the text is empty.
    """
    texts = [word.text for word in words]
    for correction, places in _places(words, corrections, "text"):
        for place in places:
            texts[place] = ""
        if correction.text and places:
            before = words[places[0]].text
            space = before[: len(before) - len(before.lstrip())]
            texts[places[0]] = space + correction.text
    return [
        word if word.text == text else replace(word, text=text)
        for word, text in zip(words, texts, strict=True)
        if text or not word.text
    ]


def _said_by(speaker: str, word: Word) -> Word:
    return replace(word, speaker=speaker, speaker_confidence=None, supported=True)


def _alike(spans: Spans, utterance: Utterance) -> float:
    """Seconds that both take, as a share of those that either takes."""
    shared = sum(max(0.0, min(end, utterance.end) - max(start, utterance.start)) for start, end in spans)
    either = sum(end - start for start, end in spans) + utterance.end - utterance.start - shared
    return shared / max(either, 1e-9)


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


def _without(turn: Turn, start: float, end: float) -> Iterator[Turn]:
    """What is left of a turn before and after a time."""
    if turn.start < min(start, turn.end):
        yield replace(turn, end=min(start, turn.end))
    if turn.end > max(end, turn.start):
        yield replace(turn, start=max(end, turn.start))


def _places(
    words: Sequence[Word], corrections: Iterable[Correction], kind: str
) -> Iterator[tuple[Correction, list[int]]]:
    """Each correction of a kind, and the indexes of the words whose middle lies in its part."""
    middles = sorted(((word.start + word.end) / 2, place) for place, word in enumerate(words))
    times = [middle for middle, _ in middles]
    for correction in corrections:
        if correction.kind == kind:
            inside = {
                place
                for start, end in correction.other
                for _, place in middles[bisect_left(times, start) : bisect_right(times, end)]
            }
            yield correction, sorted(inside)
