"""Estimates of the time left: of one recording, from its stages, and of a queue, from those before.

The stages of earlier runs on this machine, which the cache keeps, come first; without any, `PRIOR`.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from witness.storage import atomic, cache, files, typed_json

if TYPE_CHECKING:
    from witness.work.manifest import Entry
    from witness.work.produce import Job, Outcome, Settings

STAGES = ("start", "decode", "segmentation", "embedding", "clustering", "transcription")
"""Stages of the work on a recording; "start" is the time before the first result of any other."""
Pace = Mapping[str, float]
"""Seconds that each of `STAGES` takes: "start" once, "segmentation" for a window, the others for a second of
sound, however many tracks there are: people take turns, so together they hold as much speech as one."""
INTERLEAVED = ("segmentation", "embedding")
"""Stages that may run at the same time, and then are measured together, as "speakers"."""
MEASURED = (*INTERLEAVED, "speakers", "transcription")
"""Stages that show how fast this machine is; how long decoding takes depends on the format."""
PIECE = 40.0
"""Seconds of sound that the words of a track take longer than in the middle of a longer one: its first piece
is recognized by itself, its last one is not full, and the language is detected."""
LATEST = 20
"""Recordings of each ending, the latest ones, that others with it are compared with."""
ALIKE = 2.0
"""Largest ratio of their bytes per second of sound; above it, sizes tell nothing about lengths."""
REMEMBERED = 50
"""Workloads that the cache keeps, the latest ones."""
SHORT = 0.25
"""Share of an earlier recording's length below which a recording does not replace its pace."""
FIRST, LATER = 1.0, 2.0
"""Seconds of work that weigh as much as the expected pace: the first time on a machine, and later."""
PRIOR: Mapping[str, Pace] = {
    "campplus": {
        "start": 0.6, "decode": 0.0013, "segmentation": 0.033, "embedding": 0.026, "clustering": 0.0015
    },
    "builtin": {
        "start": 0.1, "decode": 0.0013, "segmentation": 0.058, "embedding": 0.032, "clustering": 0.0017
    },
}  # fmt: skip
"""Paces of sets of models (units: `Pace`), measured on two cores of an AMD EPYC: seconds of the stages
`SINGLE_CORE`, seconds times cores of the others (docs/decisions/2026-11-24-time-left.md). Any other set has
the last one's pace. In "builtin" stages are `INTERLEAVED`; their time is divided as if they were not."""
WORDS, BASE, LARGER = 0.087, 150e6, 1.14
"""Seconds times cores that `base` takes for a second of sound, the bytes of its model, and an exponent: twice
the bytes take 2 ** LARGER times as long."""
SEARCH = 1.3
"""Times as long without `--fast-words`: docs/decisions/2026-11-24-beam.md."""
SINGLE_CORE = ("start", "decode", "clustering")
"""Stages that take as long with more cores."""


# --- one recording ---


class _Round(NamedTuple):
    """Pieces that several cores began together, so that their results arrive together."""

    number: int
    begun: float
    """Seconds that the stage had taken when the round began."""
    first: float
    """Seconds that the stage had taken when the first result of the round arrived."""


class Estimate:
    """The time that one recording takes, as its stages progress."""

    def __init__(
        self,
        pace: Pace,
        step: Callable[[float], float] = lambda _: 1.0,
        *,
        trust: float = 1.0,
        whole: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Expect a pace, which weighs as much as `trust` seconds of measured work.

        `step` returns the seconds between two windows in a recording of so many seconds. `whole` is the time
        expected before the length of the recording is known, if there is any.
        """
        self._pace = pace
        self._step = step
        self._trust = trust
        self._whole = whole
        self._clock = clock
        self._begun: float | None = None  # at the first update: a worker may be busy with another job before
        self._last = 0.0
        self._done: dict[str, float] = {}
        self._total: dict[str, float] = {}
        # The rest is by the names of `_measured_as`.
        self._spent: dict[str, float] = defaultdict(float)
        self._first: dict[str, tuple[float, float]] = {}
        """Seconds spent on a stage, and the share of it done, at the end of its first round."""
        self._rounds: dict[str, _Round] = {}
        """The latest round of each stage."""
        self._interleaved = False

    def update(self, stage: str, done: float, total: float) -> None:
        """Take the progress of a stage, as a `progress.Progress`."""
        now = self._clock()
        if self._begun is None:
            self._begun = self._last = now
        if stage == "embedding" and not self._done.get("segmentation"):
            self._interleaved = True
        self._spent[self._measured_as(stage) if done else "start"] += now - self._last
        self._last = now
        self._done[stage] = min(1.0, done / total) if total > 0 else 1.0
        self._total[stage] = total
        if stage != "decode":
            self._done["start"] = 1.0
        if done:
            self._end_round(self._measured_as(stage))

    def _end_round(self, name: str) -> None:
        """Take note of a result: it may be the first of a round."""
        spent, (whole, done) = self._spent[name], self._work().get(name, (0.0, 0.0))
        share = done / max(1e-9, whole)
        if name not in self._rounds or share < self._first[name][1]:  # after a worker died
            self._rounds[name] = _Round(1, 0.0, spent)
        latest = self._rounds[name]
        if spent - latest.first > (latest.first - latest.begun) / 2:
            latest = self._rounds[name] = _Round(latest.number + 1, latest.first, spent)
        # Words begin with a single piece; several cores take pieces together only after it.
        if latest.number <= 1 + (name == "transcription"):
            self._first[name] = spent, share

    @property
    def begun(self) -> bool:
        return self._begun is not None

    @property
    def sound(self) -> float | None:
        """Seconds of the recording; None: not known yet."""
        if len(self._done) == 1 and self._done.get("decode", 1.0) >= 1.0:
            return None  # it may be a stream that has not ended
        return self._total.get("decode")

    @property
    def share(self) -> float:
        """Share of the work that is done, weighted by the times of the stages."""
        work = self._work().values()
        return sum(done for _, done in work) / max(1e-9, sum(whole for whole, _ in work))

    @property
    def left(self) -> float | None:
        """Seconds; None: not known yet."""
        if self.sound is None:
            elapsed = 0.0 if self._begun is None else self._clock() - self._begun
            return None if self._whole is None else max(0.0, self._whole - elapsed)
        work = self._work()
        spent, worth = {}, {}  # since the first round, which says too little: its pieces end together
        for name, (whole, done) in work.items():
            seconds, share = self._first.get(name, (0.0, 0.0))
            spent[name], worth[name] = self._spent[name] - seconds, done - share * whole
        measured = [name for name in MEASURED if name in work]
        slower = (self._trust + sum(spent[name] for name in measured)) / (
            self._trust + sum(worth[name] for name in measured)
        )
        return sum(
            (self._trust * slower + spent[name]) / (self._trust + worth[name]) * (whole - done)
            for name, (whole, done) in work.items()
        )

    @property
    def seconds(self) -> float | None:
        """Seconds of the whole work; None: not known yet."""
        elapsed = 0.0 if self._begun is None else self._last - self._begun
        return None if self.left is None else elapsed + self.left

    def pace(self) -> Pace:
        """Return the measured pace, for later recordings."""
        work = self._work()
        slower = {name: self._spent[name] / max(1e-12, whole) for name, (whole, _) in work.items()}
        return {
            stage: max(1e-6, each * slower[self._measured_as(stage)]) for stage, each in self._pace.items()
        }

    def _work(self) -> dict[str, tuple[float, float]]:
        """Return the seconds of work expected, and how many of them are done, by `_measured_as`."""
        sound = self._total.get("decode", 0.0)
        units = work_units(sound, self._step(sound), self._total.get("segmentation"))
        work: dict[str, tuple[float, float]] = {}
        for stage, each in self._pace.items():
            whole, done = work.get(self._measured_as(stage), (0.0, 0.0))
            seconds = each * units[stage]
            work[self._measured_as(stage)] = whole + seconds, done + seconds * self._done.get(stage, 0.0)
        return work

    def _measured_as(self, stage: str) -> str:
        """Return the name for a stage's time, which may include that of another."""
        return "speakers" if self._interleaved and stage in INTERLEAVED else stage


def work_units(sound: float, step: float, windows: float | None = None) -> Pace:
    """Return the amount of work in each stage, in the units of `Pace`.

    `windows` None: as many as one track of so many seconds has.
    """
    expected = max(1.0, 1 + (sound - 10) / step)
    windows = expected if windows is None else windows
    tracks = max(1, round(windows / expected))
    units = {"start": 1.0, "decode": sound, "segmentation": windows, "embedding": sound, "clustering": sound}
    return {**units, "transcription": sound + PIECE * tracks if sound else 0.0}


# --- earlier runs on this machine ---


@dataclass(frozen=True)
class Workload:
    """Everything but the recording that changes the time it takes."""

    settings: Settings
    """Resolved ones."""
    warm: bool = True
    """Models stay open from one recording to the next."""

    def step(self, sound: float) -> float:
        """Return the seconds between two windows in a recording of so many seconds."""
        from witness.diarization import segmentation
        from witness.schema import SAMPLE_RATE

        options = self.settings.options
        stretches = options.models == "campplus"
        return segmentation.step_of(round(sound * SAMPLE_RATE), fast=options.fast, stretches=stretches)

    @property
    def prior(self) -> Pace:
        """The pace expected before the first recording of this workload."""
        options, cores = self.settings.options, self.settings.runtime.cores
        pace = dict(PRIOR.get(options.models, PRIOR["builtin"]))
        if self.settings.weights:
            longer = 1.0 if options.fast_words else SEARCH
            pace["transcription"] = WORDS * longer * (self.settings.weights / BASE) ** LARGER
        return {stage: each / (1 if stage in SINGLE_CORE else cores) for stage, each in pace.items()}

    @property
    def key(self) -> str:
        """Its name in the cache."""
        settings, options = self.settings, self.settings.options
        models = [sha256 and sha256[:16] for role, sha256 in settings.models.items() if role != "known"]
        machine = [settings.runtime.device, settings.runtime.cores]
        return json.dumps([models, *machine, options.fast, options.fast_words, self.warm])


def start_estimate(
    workload: Workload, whole: float | None = None, clock: Callable[[], float] = time.monotonic
) -> Estimate:
    """Return the estimate of a recording at the pace of the last one with this workload, else the prior.

    `whole` is as in `Estimate`.
    """
    pace, trust = _expected_pace(workload)
    return Estimate(pace, workload.step, trust=trust, whole=whole, clock=clock)


def _expected_pace(workload: Workload) -> tuple[Pace, float]:
    """Return the pace of the last recording with this workload, else the prior, and its weight."""
    kept = kept_paces().get(workload.key, {})
    if kept.keys() >= workload.prior.keys():
        return {stage: kept[stage] for stage in workload.prior}, LATER
    return workload.prior, FIRST


def remember(workload: Workload, done: Estimate) -> None:
    """Keep the pace of a whole recording in the cache, unless a much longer one is there."""
    kept = kept_paces()
    before = kept.pop(workload.key, {})
    sound = done.sound or 0.0
    if sound < SHORT * before.get("sound", 0.0):
        return
    kept[workload.key] = {**done.pace(), "sound": sound}
    latest = dict(list(kept.items())[-REMEMBERED:])
    with suppress(OSError):
        path = cache.cache_folder() / "paces.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.replace(json.dumps(latest).encode(), path)


def kept_paces() -> dict[str, dict[str, float]]:
    """Return the paces in the cache by `Workload.key`; none from a damaged file."""
    with suppress(OSError, ValueError):
        return typed_json.decode(files.read(cache.cache_folder() / "paces.json"), dict[str, dict[str, float]])
    return {}


def model_size(path: Path) -> int:
    """Return the bytes of a model's file, or of the files in its folder."""
    return sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else (path,)))


# --- a queue ---


class _Done(NamedTuple):
    """A recording that is done."""

    size: int
    """Bytes."""
    sound: float
    """Seconds."""
    work: float
    """Seconds."""


class Forecast:
    """The time that the recordings of a queue may still take.

    Only decoding tells the length of a recording. But those of one device share an ending and about a bit
    rate, so their sizes stand for their lengths.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._working: dict[str, tuple[Entry, Workload, Estimate]] = {}  # by output
        self._done: dict[str, deque[_Done]] = defaultdict(lambda: deque(maxlen=LATEST))  # by ending
        self._latest: tuple[Workload, Pace] | None = None
        """The workload of the latest recording, and the pace expected of it."""
        self._most_at_once = 1

    def begin(self, item: Entry, job: Job) -> Estimate:
        """Return the estimate of a recording that is worked on from now on."""
        workload = Workload(job.settings)
        self._latest = workload, _expected_pace(workload)[0]
        estimate = start_estimate(workload, self.expect([item]), self._clock)
        self._working[item.output] = item, workload, estimate
        return estimate

    def end(self, item: Entry, outcome: Outcome | None) -> None:
        """Learn from a recording with an outcome; None: it has none."""
        _, workload, estimate = self._working.pop(item.output)
        if outcome is None or outcome.error is not None or outcome.twin or outcome.formatted:
            return
        if outcome.duration:
            self._done[_ending(item)].append(_Done(item.size, outcome.duration, outcome.seconds))
            if estimate.begun and not outcome.resumed:
                remember(workload, estimate)
                self._latest = workload, _expected_pace(workload)[0]

    def expect(self, items: Iterable[Entry]) -> float | None:
        """Return the seconds of work on recordings whose lengths are unknown.

        None: fewer than two with the ending of one of them are done, or their bit rates differ too much.
        """
        sizes: Counter[str] = Counter()
        for item in items:
            sizes[_ending(item)] += item.size
        seconds = 0.0
        for ending, size in sizes.items():
            done = self._done.get(ending, ())
            rates = [each.size / each.sound for each in done]
            if len(rates) < 2 or max(rates) > ALIKE * min(rates):
                return None
            seconds += size * sum(each.work for each in done) / sum(each.size for each in done)
        return seconds

    def left(self, items: Iterable[Entry]) -> float | None:
        """Return the seconds until these recordings, at work or waiting, are done; None: not known yet."""
        working = {output: at_work for output, at_work in self._working.items() if at_work[2].begun}
        self._most_at_once = max(self._most_at_once, len(working))
        measured = {ending: list(done) for ending, done in self._done.items()}
        for item, _, estimate in working.values():
            if estimate.sound and (seconds := estimate.seconds) is not None:
                measured.setdefault(_ending(item), []).append(_Done(item.size, estimate.sound, seconds))
        every = [done for group in measured.values() for done in group]
        if not sum(done.size for done in every):
            return None
        slower = sum(done.work for done in every) / sum(self._expected(done.sound) for done in every)
        # A short recording takes longer for a second of sound, so sizes give seconds of sound, not of work.
        density = {ending: _bytes_per_second(group) for ending, group in measured.items()}
        average = _bytes_per_second(every)
        free = [0.0] * self._most_at_once
        for item in items:  # each goes to the worker that is free first
            left = working[item.output][2].left if item.output in working else None
            if left is None:
                left = slower * self._expected(item.size / density.get(_ending(item), average))
            heapq.heappush(free, heapq.heappop(free) + left)
        return max(free)

    def _expected(self, sound: float) -> float:
        """Return the seconds of work on a recording of so many seconds at the pace of earlier runs."""
        assert self._latest is not None  # noqa: S101 - for mypy: a recording has begun
        workload, pace = self._latest
        units = work_units(sound, workload.step(sound))
        return max(1e-6, sum(each * units[stage] for stage, each in pace.items()))


def _bytes_per_second(done: Iterable[_Done]) -> float:
    done = list(done)
    return max(1.0, sum(each.size for each in done)) / max(1e-6, sum(each.sound for each in done))


def _ending(item: Entry) -> str:
    return PurePath(item.source).suffix.lower()
