"""How far the work on one recording is, and how long it and those that wait may still take."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import NamedTuple

from witness.work.produce import Outcome
from witness.work.recordings import Item

STAGES = ("start", "decode", "segmentation", "embedding", "clustering", "transcription")
"""What the work on a recording consists of; "start" is what is done before a stage has anything to show."""
Pace = Mapping[str, float]
"""Seconds that each of `STAGES` takes: "start" once, "segmentation" for a window, the others for a second of
sound, however many tracks there are: people take turns, so together they hold as much speech as one."""
TELLING = ("segmentation", "embedding", "transcription")
"""Stages that tell how fast this machine is; how long decoding takes depends on the format."""
BOTH = ("segmentation", "embedding")
"""Stages that may be at work at the same time: then what is told of one is not what its seconds were for."""
ALONE_FIRST = ("transcription",)
"""Stages that begin with one piece by itself: only what follows is begun by several cores together."""
PIECE = 40.0
"""Seconds of sound that the words of a track take longer than in the middle of a longer one: its first piece
is heard by itself, its last one is not full, and the language is found."""
LATEST = 20
"""Recordings of one kind by which others are judged."""
ALIKE = 2.0
"""Most that their bytes per second of sound may differ, as a ratio: else sizes say nothing of lengths."""


class _Round(NamedTuple):
    """What several cores have begun together, of which what is done is told soon after each other."""

    number: int
    begun: float
    """Seconds that the stage had taken, as is `first`, when the first of it was told."""
    first: float


class Estimate:
    """What the stages of one recording have told."""

    def __init__(
        self,
        pace: Pace,
        step: Callable[[float], float] = lambda _: 1.0,
        *,
        trust: float = 1.0,
        whole: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`pace` is what is expected: as much as so many seconds of work are, `trust`, it counts against what
        is measured now. `step`: seconds between two windows in a recording of so many seconds. `whole`:
        seconds, as `Rates` expects, None if it cannot.
        """
        self._pace = pace
        self._step = step
        self._trust = trust
        self._whole = whole
        self._clock = clock
        self._begun: float | None = None  # a worker may be busy with something else before
        self._last = 0.0
        self._done: dict[str, float] = {}
        self._total: dict[str, float] = {}
        self._spent: dict[str, float] = {}
        self._first: dict[str, tuple[float, float]] = {}
        """Of each stage, the seconds that were spent when several cores had begun, and how much was done."""
        self._rounds: dict[str, _Round] = {}
        """The latest of each stage."""
        self._mixed = False
        """Whether voices are heard between the windows, as with the built-in models."""

    def hear(self, stage: str, done: float, total: float) -> None:
        """As `reporter.Progress`."""
        now = self._clock()
        if self._begun is None:
            self._begun = self._last = now
        spent_on = stage if done else "start"
        self._spent[spent_on] = self._spent.get(spent_on, 0.0) + now - self._last
        self._last = now
        self._done[stage] = min(1.0, done / total) if total > 0 else 1.0
        self._total[stage] = total
        if stage != "decode":
            self._done["start"] = 1.0
        if stage == "embedding" and not self._done.get("segmentation"):
            self._mixed = True
        if not done or (self._mixed and stage == "embedding"):
            return
        spent = sum(self._spent.get(one, 0.0) for one in self._with(stage))
        if stage not in self._rounds or self._done[stage] < self._first[stage][1]:  # after a worker died
            self._rounds[stage] = _Round(1, 0.0, spent)
        latest = self._rounds[stage]
        if spent - latest.first > (latest.first - latest.begun) / 2:
            latest = self._rounds[stage] = _Round(latest.number + 1, latest.first, spent)
        if latest.number <= 1 + (stage in ALONE_FIRST):
            self._first[stage] = self._spent[stage], self._done[stage]

    def _with(self, stage: str) -> tuple[str, ...]:
        """The stages whose time cannot be told from that of this one, itself included."""
        return BOTH if self._mixed and stage in BOTH else (stage,)

    def anew(self) -> Estimate:
        """One of another recording, by the same pace."""
        return Estimate(self._pace, self._step, trust=self._trust, clock=self._clock)

    @property
    def sound(self) -> float | None:
        """Seconds of the recording; None: not known yet."""
        if len(self._done) == 1 and self._done.get("decode", 1.0) >= 1.0:
            return None  # it may be a stream that has not ended
        return self._total.get("decode")

    @property
    def share(self) -> float:
        """Of the work that is done, by the times of the stages."""
        expected = self._expected()
        done = sum(seconds * self._done.get(stage, 0.0) for stage, seconds in expected.items())
        return done / max(1e-9, sum(expected.values()))

    @property
    def left(self) -> float | None:
        """Seconds; None: not known yet."""
        if self.sound is None:
            gone = 0.0 if self._begun is None else self._clock() - self._begun
            return None if self._whole is None else max(0.0, self._whole - gone)
        expected = self._expected()
        spent, worth = dict.fromkeys(expected, 0.0), dict.fromkeys(expected, 0.0)
        for stage in expected:
            # What several cores have begun together is done together: the beginning says too little.
            seconds, done = self._first.get(stage, (0.0, 0.0))
            spent[stage] = self._spent.get(stage, 0.0) - seconds
            worth[stage] = expected[stage] * (self._done.get(stage, 0.0) - done)
        telling = [stage for stage in TELLING if stage in expected]
        slower = (self._trust + sum(spent[stage] for stage in telling)) / (
            self._trust + sum(worth[stage] for stage in telling)
        )
        left = 0.0
        for stage, seconds in expected.items():
            rate = (self._trust * slower + sum(spent[one] for one in self._with(stage))) / (
                self._trust + sum(worth[one] for one in self._with(stage))
            )
            left += rate * seconds * (1 - self._done.get(stage, 0.0))
        return left

    @property
    def seconds(self) -> float | None:
        """Of the whole work; None: not known yet."""
        gone = 0.0 if self._begun is None else self._last - self._begun
        return None if self.left is None else gone + self.left

    def pace(self) -> Pace:
        """What the stages took, for the recordings after this one."""
        units, spent = self._units(), dict(self._spent)
        if self._mixed:  # divided as was expected
            expected = self._expected()
            both = sum(spent.get(stage, 0.0) for stage in BOTH)
            spent |= {stage: both * expected[stage] / sum(expected[one] for one in BOTH) for stage in BOTH}
        return {
            stage: max(1e-6, spent.get(stage, 0.0) / max(1e-6, units[stage]))
            for stage in STAGES
            if stage in spent or stage in self._pace
        }

    def _expected(self) -> dict[str, float]:
        """Seconds of work in each stage, as was expected."""
        units = self._units()
        return {stage: seconds * units[stage] for stage, seconds in self._pace.items() if stage in units}

    def _units(self) -> dict[str, float]:
        """How much there is to do in each stage."""
        sound = self._total.get("decode", 0.0)
        expected = max(1.0, 1 + (sound - 10) / self._step(sound))
        windows = self._total.get("segmentation", expected)
        tracks = max(1, round(windows / expected))
        units = {"start": 1.0, "decode": sound, "segmentation": windows}
        units |= {"embedding": sound, "clustering": sound}
        return {**units, "transcription": sound + PIECE * tracks if sound else 0.0}


class Rates:
    """How long the work on recordings takes by their sizes: from those that are done, of the same kind.

    Only decoding a recording tells how long it is. But those of one device have one ending and about one bit
    rate.
    """

    def __init__(self) -> None:
        self._known: dict[str, deque[tuple[int, float, float]]] = defaultdict(lambda: deque(maxlen=LATEST))

    def learn(self, item: Item, outcome: Outcome) -> None:
        """What became of a recording."""
        if outcome.duration:
            self._known[_kind(item)].append((item.size, outcome.duration, outcome.seconds))

    def together(self, items: Iterable[Item]) -> float | None:
        """Seconds of work on recordings; None: one is of a kind of which too little is known."""
        sizes: Counter[str] = Counter()
        for item in items:
            sizes[_kind(item)] += item.size
        seconds = 0.0
        for kind, size in sizes.items():
            known = self._known.get(kind, ())
            rates = [bytes_ / sound for bytes_, sound, _ in known]
            if len(rates) < 2 or max(rates) > ALIKE * min(rates):
                return None
            seconds += size * sum(work for *_, work in known) / sum(bytes_ for bytes_, *_ in known)
        return seconds


def _kind(item: Item) -> str:
    return PurePath(item.source).suffix.lower()
