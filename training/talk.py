"""Turn-taking of real meetings, for simulated conversations: who speaks when, not what is heard.

    meetings = talk.load(TIMING)                       # RTTM files, a meeting each
    turns = talk.plan(np.random.default_rng(1), meetings, people=3, seconds=60.0)

A plan is a stretch of a meeting as it was, so its gaps, backchannels, interruptions, crosstalk and turns as
short as a laugh are real. Where a meeting has more people than wanted, the time in which only the others
speak is cut out. More people than TOGETHER come and go: stretches follow one another, with people
who stay. The timings that ours rest on are the AMI corpus's (CC BY 4.0; README.md); nothing of them is kept
in the repository.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from witness.formats import rttm

RATE = 100  # frames a second
LONGEST_SILENCE = 800  # frames: what is longer, a break or a drawing on the board, is cut to this
TRIES = 150  # stretches that are looked at before the one is taken in which all are heard best
STRETCH = 120.0  # seconds, about, of a stretch where there are more people than in a meeting
TOGETHER = 4  # people in such a stretch; one of them was in the last
KEPT = 8  # every so many-th meeting is kept from training, to judge by


@dataclass(frozen=True)
class Meeting:
    """A recording's turns, on a grid of 10 ms."""

    name: str
    active: NDArray[np.bool_]
    """(people, frames): who speaks."""


def load(folder: Path) -> list[Meeting]:
    """The meetings of the RTTM files in and under a folder, by name.

    Raises FileNotFoundError if there is none.
    """
    found = []
    for path in sorted(folder.rglob("*.rttm")):
        for name, turns in rttm.parse(path.read_text(), path.name).items():
            people = sorted({turn.speaker for turn in turns})
            active = np.zeros((len(people), round(max(turn.end for turn in turns) * RATE) + 1), bool)
            for turn in turns:
                active[people.index(turn.speaker), round(turn.start * RATE) : round(turn.end * RATE)] = True
            found.append(Meeting(name, active))
    if not found:
        raise FileNotFoundError(f"{folder}: has no RTTM files")
    return found


def divided(meetings: Sequence[Meeting]) -> tuple[list[Meeting], list[Meeting]]:
    """Those to train with, and those to judge by."""
    kept = [number % KEPT == KEPT - 1 for number in range(len(meetings))]
    return (
        [meeting for meeting, aside in zip(meetings, kept, strict=True) if not aside],
        [meeting for meeting, aside in zip(meetings, kept, strict=True) if aside],
    )


def plan(
    rng: np.random.Generator,
    meetings: Sequence[Meeting],
    people: int,
    seconds: float,
    *,
    least: float = 1.5,
) -> list[tuple[int, float, float]]:
    """(speaker, start, end) of each turn in seconds, by start; speakers are 0 to `people` - 1.

    Everybody speaks for `least` seconds, or for a fifth of an even share of the time where that is less, if
    such a stretch is found, else for as long as in the best one seen. The same generator state and meetings
    give the same plan. Raises ValueError if the meetings are too short or too small.
    """
    frames = round(seconds * RATE)
    some = min(TOGETHER, max(len(meeting.active) for meeting in meetings))
    if people <= some:
        return _turns(_stretch(rng, meetings, people, frames, least))
    count = max(-(-people // max(1, some - 1)), round(seconds / STRETCH))
    edges = np.linspace(0, frames, count + 1).round().astype(int)
    waiting: list[int] = []
    stays: list[int] = []
    active = np.zeros((people, frames), bool)
    for first, end in pairwise(edges):
        seats = list(stays)
        while len(seats) < some:
            waiting = waiting or rng.permutation(people).tolist()
            seats.append(next(person for person in waiting if person not in seats))
            waiting.remove(seats[-1])
            waiting = waiting if set(waiting) - set(seats) else []
        active[seats, first:end] = _stretch(rng, meetings, some, end - first, least)
        stays = [int(rng.choice(seats))]
    return _turns(active)


def table(meetings: Sequence[Meeting]) -> NDArray[np.bool_]:
    """(frames, people): all meetings one after another without their breaks, for windows of a few seconds;
    people of the second meeting have the seats of those of the first.
    """
    seats = max(len(meeting.active) for meeting in meetings)
    parts = [_without_breaks(meeting.active) for meeting in meetings]
    return np.concatenate([np.pad(part, ((0, seats - len(part)), (0, 0))).T for part in parts])


def _stretch(
    rng: np.random.Generator, meetings: Sequence[Meeting], people: int, frames: int, least: float
) -> NDArray[np.bool_]:
    """(people, frames) of one meeting, in an order that means nothing."""
    least = min(least, frames / RATE / people / 5)  # to ask for more would choose crosstalk
    large = [meeting for meeting in meetings if len(meeting.active) >= people]
    best, heard = None, -1.0
    for _ in range(TRIES):
        meeting = large[rng.integers(len(large))]
        chosen = rng.permutation(len(meeting.active))[:people]
        # Of a long meeting only as much is looked at as it takes, three times over.
        last = meeting.active.shape[1] - frames
        start = int(rng.integers(last + 1)) if last >= 0 else 0
        part = meeting.active[:, start : start + 3 * frames * len(meeting.active) // people]
        kept = part[chosen][:, part[chosen].any(0) | ~part.any(0)]
        kept = _without_breaks(kept)[:, :frames]
        if kept.shape[1] < frames:
            continue
        shortest = float(kept.sum(1).min()) / RATE
        if shortest > heard:
            best, heard = kept, shortest
        if heard >= least:
            break
    if best is None:
        raise ValueError(f"no meeting has {frames / RATE:.0f} s of {people} people")
    return best


def _without_breaks(active: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The frames but those in which nobody has spoken for longer than LONGEST_SILENCE."""
    frame = np.arange(active.shape[1])
    last = np.maximum.accumulate(np.where(active.any(0), frame, -1))
    return active[:, frame - last <= LONGEST_SILENCE]


def _turns(active: NDArray[np.bool_]) -> list[tuple[int, float, float]]:
    found = []
    for speaker, flags in enumerate(active):
        edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
        found += [(speaker, first / RATE, end / RATE) for first, end in edges.tolist()]
    return sorted(found, key=lambda turn: (turn[1], turn[0]))


def describe(turns: Sequence[tuple[int, float, float]]) -> dict[str, float]:
    """Of a plan: shares of turns under a second, of speech overlapped (as a scorer counts it: each speaker's
    seconds), and of time with three or more voices.
    """
    end = max(turn[2] for turn in turns)
    voices = np.zeros(round(end * RATE) + 1, int)
    for _, start, stop in turns:
        voices[round(start * RATE) : round(stop * RATE)] += 1
    by_voices = Counter(voices.tolist())
    speech = sum(number * count for number, count in by_voices.items())
    return {
        "short": sum(stop - start < 1 for _, start, stop in turns) / len(turns),
        "overlapped": sum(n * c for n, c in by_voices.items() if n > 1) / max(1, speech),
        "three": sum(c for n, c in by_voices.items() if n > 2) / len(voices),
        "silence": by_voices[0] / len(voices),
    }
