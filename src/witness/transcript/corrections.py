"""What a person knows better than the machine, applied to a draft.

A speaker's number means nothing once clustering has run again, so a correction holds places where the speaker
talks, and applies to whoever talks there most. Names, merges and moved words all work this way; a corrected
text applies to the words in a place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from witness.schema import Correction, Spans, Turn, Word

ANCHORS = 10
"""Turns that identify a speaker: the longest, which another clustering is least likely to split."""


def anchor(speaker: str, turns: Iterable[Turn]) -> Spans:
    """Where to find `speaker` again: the longest turns, in order, rounded to milliseconds."""
    own = sorted((turn for turn in turns if turn.speaker == speaker), key=lambda turn: -turn.duration)
    return tuple(sorted((round(turn.start, 3), round(turn.end, 3)) for turn in own[:ANCHORS]))


def whose(spans: Spans, turns: Iterable[Turn]) -> str | None:
    """The speaker who talks most within `spans`; None: nobody does."""
    seconds: dict[str, float] = {}
    for turn in turns:
        for start, end in spans:
            if (shared := min(end, turn.end) - max(start, turn.start)) > 0:
                seconds[turn.speaker] = seconds.get(turn.speaker, 0.0) + shared
    return max(sorted(seconds), key=lambda speaker: seconds[speaker], default=None)


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


def move(words: Sequence[Word], corrections: Iterable[Correction], turns: Sequence[Turn]) -> list[Word]:
    """The same words; those whose middle lies in a moved part now belong to the speaker of the correction.

    A word that a person assigned was said, whether the diarizer heard it or not.
    """
    moved = list(words)
    for correction, places in _places(words, corrections, "move"):
        if (speaker := whose(correction.speaker, turns)) is not None:
            for place in places:
                moved[place] = replace(moved[place], speaker=speaker, speaker_confidence=None, supported=True)
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
