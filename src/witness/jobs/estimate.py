"""How far the work on one recording is, and how long it and those that wait may still take."""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from witness.jobs.recordings import Item
from witness.jobs.worker import Outcome

Pace = Mapping[str, float]
"""Seconds of work in each stage."""

USUAL: Pace = {"decode": 0.1, "segmentation": 0.5, "embedding": 0.5, "transcription": 5.0}
"""Before any recording is done: in proportion, what Whisper base takes on a CPU. Each recording that is done
says better."""
SOON = 2.0
"""Seconds of work before which it says nothing about the end."""
LITTLE = 0.02
"""Share of the work before which it says nothing about the end."""
LATEST = 20
"""Recordings of one kind by which others are judged."""
ALIKE = 2.0
"""Most that their bytes per second of sound may differ, as a ratio: else sizes say nothing of lengths."""


class Estimate:
    """What the stages of one recording have told."""

    def __init__(self, pace: Pace = USUAL, whole: float | None = None) -> None:
        """`pace` is that of the recording before; `whole`: seconds, as `Rates` expects, None if it cannot."""
        self._expected = pace or USUAL
        self._whole = whole
        self._begun: float | None = None  # a worker may be busy with something else before
        self._last = 0.0
        self._done: dict[str, float] = {}
        self._spent: dict[str, float] = {}

    def hear(self, stage: str, done: float, total: float) -> None:
        """As `reporter.Progress`."""
        now = time.monotonic()
        if self._begun is None:
            self._begun = self._last = now
        self._spent[stage] = self._spent.get(stage, 0.0) + now - self._last
        self._last = now
        self._done[stage] = min(1.0, done / total) if total > 0 else 1.0

    @property
    def share(self) -> float:
        """Of the work that is done, by the times of the stages."""
        done = sum(seconds * self._done.get(stage, 0.0) for stage, seconds in self._expected.items())
        return done / sum(self._expected.values())

    @property
    def left(self) -> float | None:
        """Seconds; None: not known yet."""
        gone = 0.0 if self._begun is None else time.monotonic() - self._begun
        if gone < SOON or self.share < LITTLE:
            return None if self._whole is None else max(0.0, self._whole - gone)
        return gone / self.share * (1 - self.share)

    def pace(self) -> Pace:
        """What the stages took, for the recording after this one."""
        return {stage: max(seconds, 1e-3) for stage, seconds in self._spent.items()}


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
