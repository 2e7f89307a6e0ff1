"""How long the work on many recordings may still take."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import PurePath

from witness.work import pace
from witness.work.eta import LATEST, Estimate
from witness.work.produce import Job, Outcome, Watcher
from witness.work.recordings import Item


class Forecast:
    """Knows it by those that are done or begun, and by the sizes of those that wait.

    Only decoding a recording tells how long it is. But those of one device have one ending and about one bit
    rate. A short one takes longer for a second of sound, so not seconds of work go by the size, but of sound.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._working: dict[Item, tuple[pace.Kind, Estimate]] = {}
        self._sizes: dict[str, list[float]] = {}
        """By ending: bytes, and seconds of sound in them."""
        self._done: deque[tuple[float, float]] = deque(maxlen=LATEST)
        """Seconds of sound, and of work on them."""
        self._pace: Estimate | None = None
        """Of nothing: what is expected of a recording before anything is known but its length."""
        self._expected: dict[float, float] = {}
        """Seconds of work by seconds of sound, as `_pace` has it."""
        self._most = 1
        """Recordings that were worked on at the same time so far."""

    def watcher(self, item: Item, job: Job) -> Watcher:
        """Who is to hear how far the work on a recording is."""
        kind = pace.Kind.of_job(job.settings, job.settings.runtime)

        def hear(stage: str, done: float, total: float) -> None:
            if item not in self._working:
                self._working[item] = kind, self._estimate(kind)
            self._working[item][1].hear(stage, done, total)

        return Watcher(hear)

    def done(self, item: Item, outcome: Outcome) -> None:
        """What became of a recording."""
        begun = self._working.pop(item, None)
        if outcome.error is None and begun is not None and (sound := outcome.duration):
            sums = self._sizes.setdefault(_ending(item), [0.0, 0.0])
            sums[0] += item.size
            sums[1] += sound
            self._done.append((sound, outcome.seconds))
            if not outcome.resumed:
                pace.learn(*begun)
                self._estimate(begun[0])

    def left(self, open_: Iterable[Item]) -> float | None:
        """Seconds, with these to be done; None: not known yet."""
        working = dict(self._working)
        self._most = max(self._most, len(working))
        sizes = {ending: list(sums) for ending, sums in self._sizes.items()}
        worked = list(self._done)
        for item, (_, course) in working.items():
            if course.sound and (seconds := course.seconds) is not None:
                sums = sizes.setdefault(_ending(item), [0.0, 0.0])
                sums[0] += item.size
                sums[1] += course.sound
                worked.append((course.sound, seconds))
        every = [sum(one) for one in zip(*sizes.values(), strict=True)]
        if not worked or not every[0]:
            return None
        slower = sum(seconds for _, seconds in worked) / sum(self._seconds(sound) for sound, _ in worked)

        def whole(item: Item) -> float:
            size, sound = sizes.get(_ending(item), every)
            return slower * self._seconds(item.size * sound / max(1.0, size))

        free = [0.0] * self._most
        for item in open_:  # each is begun by whoever is free first
            left = working[item][1].left if item in working else None
            heapq.heappush(free, heapq.heappop(free) + (whole(item) if left is None else left))
        return max(free)

    def _estimate(self, kind: pace.Kind) -> Estimate:
        """Of a recording that is begun now."""
        self._pace = pace.estimate(kind, clock=self._clock)
        self._expected = {}
        return self._pace.anew()

    def _seconds(self, sound: float) -> float:
        """Of work that are expected for so many of sound."""
        if sound not in self._expected and self._pace is not None:
            course = self._pace.anew()
            course.hear("decode", 0.0, sound)
            self._expected[sound] = course.left or 1e-6
        return self._expected.get(sound, 1e-6)


def _ending(item: Item) -> str:
    return PurePath(item.source).suffix.lower()
