"""What each speaker says as a tier of its own, for programs that annotate speech."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from witness.formats.reading import Line, Reading, single


@dataclass(frozen=True)
class Interval:
    """A part of a tier, in milliseconds: at least one, because an instant is no interval."""

    start: int
    end: int
    text: str


Tier = list[Line]
"""Lines that do not overlap."""


def tiers(reading: Reading) -> dict[str, Tier]:
    """Name -> tier, in the order of the speakers.

    A tier cannot hold two things at a time: a speaker who talks in two channels at once has a second one,
    "Anna (2)". If nobody listened for words the tiers hold the turns, which overlap where people do.
    """
    transcript = reading.transcript
    lines = reading.lines
    if all(line.text is None for line in lines):
        names = {speaker.id: transcript.name(speaker.id) or speaker.id for speaker in transcript.speakers}
        lines = [
            Line(turn.start, turn.end, names[turn.speaker], names[turn.speaker]) for turn in transcript.turns
        ]
    found: dict[str, Tier] = {transcript.name(one.id) or one.id: [] for one in transcript.speakers}
    for line in lines:
        for name in _names(line.speaker):
            tier = found.setdefault(name, [])
            if not tier or interval(tier[-1]).end <= interval(line).start:
                tier.append(line)
                break
    return {name: tier for name, tier in found.items() if tier}


def interval(line: Line) -> Interval:
    """The whole line."""
    start = round(1000 * line.start)
    return Interval(start, max(start + 1, round(1000 * line.end)), line.text or "")


def words(tier: Sequence[Line]) -> Iterator[Interval]:
    """The words of a tier; one that takes no time is given a millisecond, which the next ones wait for."""
    end = 0
    for word in single([word for line in tier for word in line.words]):
        start = max(end, round(1000 * word.start))
        end = max(start + 1, round(1000 * word.end))
        yield Interval(start, end, word.text)


def _names(speaker: str) -> Iterator[str]:
    yield speaker
    number = 2
    while True:
        yield f"{speaker} ({number})"
        number += 1
