"""How long the work on many recordings may still take."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable
from pathlib import PurePath

from witness.jobs import pace
from witness.jobs.estimate import Estimate
from witness.jobs.recordings import Item
from witness.jobs.worker import Job, Outcome, Watcher


class Forecast:
    """Knows it by those that are done or begun, and by the sizes of those that wait.

    Only decoding a recording tells how long it is. But those of one device have one ending and about one bit
    rate.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._working: dict[Item, tuple[pace.Kind, Estimate]] = {}
        self._done: dict[str, list[float]] = {}
        """By ending: bytes, and seconds of work on them."""
        self._most = 1
        """Recordings that were worked on at the same time so far."""

    def watcher(self, item: Item, job: Job) -> Watcher:
        """Who is to hear how far the work on a recording is."""
        kind = pace.Kind.of_job(job.settings, job.settings.runtime)
        course = pace.estimate(kind, clock=self._clock)

        def hear(stage: str, done: float, total: float) -> None:
            if item not in self._working:
                self._working[item] = kind, course
            course.hear(stage, done, total)

        return Watcher(hear)

    def done(self, item: Item, outcome: Outcome) -> None:
        """What became of a recording."""
        begun = self._working.pop(item, None)
        if outcome.error is None and begun is not None:
            sums = self._done.setdefault(_ending(item), [0.0, 0.0])
            sums[0] += item.size
            sums[1] += outcome.seconds
            if not outcome.resumed:
                pace.learn(*begun)

    def left(self, open_: Iterable[Item]) -> float | None:
        """Seconds, with these to be done; None: not known yet."""
        working = dict(self._working)
        self._most = max(self._most, len(working))
        known = {ending: list(sums) for ending, sums in self._done.items()}
        for item, (_, course) in working.items():
            if (seconds := course.seconds) is not None:
                sums = known.setdefault(_ending(item), [0.0, 0.0])
                sums[0] += item.size
                sums[1] += seconds
        every = [sum(one) for one in zip(*known.values(), strict=True)]
        if not every or not every[0]:
            return None

        def whole(item: Item) -> float:
            size, seconds = known.get(_ending(item), every)
            return float(item.size * seconds / max(1.0, size))

        free = [0.0] * self._most
        for item in open_:  # each is begun by whoever is free first
            left = working[item][1].left if item in working else None
            heapq.heappush(free, heapq.heappop(free) + (whole(item) if left is None else left))
        return max(free)


def _ending(item: Item) -> str:
    return PurePath(item.source).suffix.lower()
