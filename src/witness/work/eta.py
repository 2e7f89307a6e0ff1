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
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from witness.storage import atomic, cache, files, typed_json

if TYPE_CHECKING:
    from witness.options import Options, Runtime
    from witness.pipeline import Engine
    from witness.work.folder import Item
    from witness.work.produce import Job, Outcome, Settings

STAGES = ("start", "decode", "segmentation", "embedding", "clustering", "transcription")
"""Stages of the work on a recording; "start" is the time before the first result of any other."""
Pace = Mapping[str, float]
"""Seconds that each of `STAGES` takes: "start" once, "segmentation" for a window, the others for a second of
sound, however many tracks there are: people take turns, so together they hold as much speech as one."""
MEASURED = ("segmentation", "embedding", "transcription")
"""Stages that show how fast this machine is; how long decoding takes depends on the format."""
INTERLEAVED = ("segmentation", "embedding")
"""Stages that may run at the same time, so that their seconds cannot be told apart."""
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
        self._spent: dict[str, float] = {}
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
        spent_on = stage if done else "start"
        self._spent[spent_on] = self._spent.get(spent_on, 0.0) + now - self._last
        self._last = now
        self._done[stage] = min(1.0, done / total) if total > 0 else 1.0
        self._total[stage] = total
        if stage != "decode":
            self._done["start"] = 1.0
        if stage == "embedding" and not self._done.get("segmentation"):
            self._interleaved = True
        if not done or (self._interleaved and stage == "embedding"):
            return
        spent = sum(self._spent.get(name, 0.0) for name in self._inseparable(stage))
        if stage not in self._rounds or self._done[stage] < self._first[stage][1]:  # after a worker died
            self._rounds[stage] = _Round(1, 0.0, spent)
        latest = self._rounds[stage]
        if spent - latest.first > (latest.first - latest.begun) / 2:
            latest = self._rounds[stage] = _Round(latest.number + 1, latest.first, spent)
        # Words begin with a single piece; several cores take pieces together only after it.
        if latest.number <= 1 + (stage == "transcription"):
            self._first[stage] = self._spent[stage], self._done[stage]

    def _inseparable(self, stage: str) -> tuple[str, ...]:
        """Return the stages that share their measured time with this one, itself included."""
        return INTERLEAVED if self._interleaved and stage in INTERLEAVED else (stage,)

    def restart(self) -> Estimate:
        """Return an estimate for another recording, at the same expected pace."""
        return Estimate(self._pace, self._step, trust=self._trust, clock=self._clock)

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
        expected = self._expected()
        done = sum(seconds * self._done.get(stage, 0.0) for stage, seconds in expected.items())
        return done / max(1e-9, sum(expected.values()))

    @property
    def left(self) -> float | None:
        """Seconds; None: not known yet."""
        if self.sound is None:
            elapsed = 0.0 if self._begun is None else self._clock() - self._begun
            return None if self._whole is None else max(0.0, self._whole - elapsed)
        expected = self._expected()
        spent, worth = dict.fromkeys(expected, 0.0), dict.fromkeys(expected, 0.0)
        for stage in expected:
            # Several cores finish the pieces of a round together: the first round says too little.
            seconds, done = self._first.get(stage, (0.0, 0.0))
            spent[stage] = self._spent.get(stage, 0.0) - seconds
            worth[stage] = expected[stage] * (self._done.get(stage, 0.0) - done)
        measured = [stage for stage in MEASURED if stage in expected]
        slower = (self._trust + sum(spent[stage] for stage in measured)) / (
            self._trust + sum(worth[stage] for stage in measured)
        )
        left = 0.0
        for stage, seconds in expected.items():
            rate = (self._trust * slower + sum(spent[name] for name in self._inseparable(stage))) / (
                self._trust + sum(worth[name] for name in self._inseparable(stage))
            )
            left += rate * seconds * (1 - self._done.get(stage, 0.0))
        return left

    @property
    def seconds(self) -> float | None:
        """Seconds of the whole work; None: not known yet."""
        elapsed = 0.0 if self._begun is None else self._last - self._begun
        return None if self.left is None else elapsed + self.left

    def pace(self) -> Pace:
        """Return the measured pace, for later recordings."""
        units, spent = self._units(), dict(self._spent)
        if self._interleaved:  # divided in the expected ratio
            expected = self._expected()
            both = sum(spent.get(stage, 0.0) for stage in INTERLEAVED)
            whole = sum(expected[stage] for stage in INTERLEAVED)
            spent |= {stage: both * expected[stage] / whole for stage in INTERLEAVED}
        return {
            stage: max(1e-6, spent.get(stage, 0.0) / max(1e-6, units[stage]))
            for stage in STAGES
            if stage in spent or stage in self._pace
        }

    def _expected(self) -> dict[str, float]:
        """Return the seconds of work expected in each stage."""
        units = self._units()
        return {stage: seconds * units[stage] for stage, seconds in self._pace.items() if stage in units}

    def _units(self) -> dict[str, float]:
        """Return the amount of work in each stage, in the units of `Pace`."""
        sound = self._total.get("decode", 0.0)
        expected = max(1.0, 1 + (sound - 10) / self._step(sound))
        windows = self._total.get("segmentation", expected)
        tracks = max(1, round(windows / expected))
        units = {"start": 1.0, "decode": sound, "segmentation": windows}
        units |= {"embedding": sound, "clustering": sound}
        return {**units, "transcription": sound + PIECE * tracks if sound else 0.0}


# --- earlier runs on this machine ---


@dataclass(frozen=True)
class Workload:
    """Everything but the recording that changes the time it takes."""

    models: tuple[str | None, ...]
    """The first digits of their SHA-256."""
    pair: str
    """The name of the diarizer's set of models."""
    weights: int
    """Bytes of the recognizer's model; 0 without words."""
    device: str
    cores: int
    fast: bool
    fast_words: bool
    warm: bool
    """Models stay open from one recording to the next."""

    @classmethod
    def of_engine(cls, engine: Engine) -> Workload:
        """Return the workload of a single run. Raises the errors of choosing models."""
        whisper = engine.whisper[0]
        weights = model_size(Path(whisper.path)) if whisper else 0
        hashes = {role: model.sha256 if model else None for role, model in engine.files.items()}
        return cls._of(hashes, engine.chosen.name, weights, engine.runtime, engine.options, warm=False)

    @classmethod
    def of_settings(cls, settings: Settings) -> Workload:
        """Return the workload of recordings of a batch or of the desk."""
        options, weights = settings.options, settings.weights
        return cls._of(settings.models, options.models, weights, settings.runtime, options, warm=True)

    @classmethod
    def _of(
        cls,
        hashes: Mapping[str, str | None],
        pair: str,
        weights: int,
        runtime: Runtime,
        options: Options,
        *,
        warm: bool,
    ) -> Workload:
        models = tuple(sha256 and sha256[:16] for role, sha256 in hashes.items() if role != "known")
        device, cores = str(runtime.device), runtime.cores
        return cls(models, pair, weights, device, cores, options.fast, options.fast_words, warm)

    def step(self, sound: float) -> float:
        """Return the seconds between two windows in a recording of so many seconds."""
        from witness.diarization import segmentation
        from witness.schema import SAMPLE_RATE

        stretches = self.pair == "campplus"
        return segmentation.step_of(round(sound * SAMPLE_RATE), fast=self.fast, stretches=stretches)

    @property
    def prior(self) -> Pace:
        """The pace expected before the first recording of this workload."""
        *_, other = PRIOR.values()
        pace = dict(PRIOR.get(self.pair, other))
        if self.weights:
            longer = 1.0 if self.fast_words else SEARCH
            pace["transcription"] = WORDS * longer * (self.weights / BASE) ** LARGER
        return {stage: each / (1 if stage in SINGLE_CORE else self.cores) for stage, each in pace.items()}

    @property
    def key(self) -> str:
        """Its name in the cache."""
        return json.dumps(asdict(self))


def start_estimate(
    workload: Workload, whole: float | None = None, clock: Callable[[], float] = time.monotonic
) -> Estimate:
    """Return the estimate of a recording at the pace of the last one with this workload, else the prior.

    `whole` is as in `Estimate`.
    """
    kept = kept_paces().get(workload.key)
    if kept is not None and "start" in kept:
        return Estimate(kept, workload.step, trust=LATER, whole=whole, clock=clock)
    return Estimate(workload.prior, workload.step, trust=FIRST, whole=whole, clock=clock)


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
        self._working: dict[str, tuple[Item, Workload, Estimate]] = {}  # by output
        self._done: dict[str, deque[_Done]] = defaultdict(lambda: deque(maxlen=LATEST))  # by ending
        self._blank: Estimate | None = None
        """The estimate of a recording without any progress."""
        self._work: dict[float, float] = {}
        """Seconds of work by seconds of sound, as `_blank` expects."""
        self._most_at_once = 1

    def begin(self, item: Item, job: Job) -> Estimate:
        """Return the estimate of a recording that is worked on from now on."""
        workload = Workload.of_settings(job.settings)
        estimate = self._start(workload, self.expect([item]))
        self._working[item.output] = item, workload, estimate
        return estimate

    def end(self, item: Item, outcome: Outcome | None) -> None:
        """Learn from a recording with an outcome; None: it has none."""
        _, workload, estimate = self._working.pop(item.output)
        if outcome is None or outcome.error is not None or outcome.twin or outcome.formatted:
            return
        if outcome.duration:
            self._done[_ending(item)].append(_Done(item.size, outcome.duration, outcome.seconds))
            if estimate.begun and not outcome.resumed:
                remember(workload, estimate)
                self._start(workload)

    def expect(self, items: Iterable[Item]) -> float | None:
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

    def left(self, items: Iterable[Item]) -> float | None:
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

    def _start(self, workload: Workload, whole: float | None = None) -> Estimate:
        estimate = start_estimate(workload, whole, self._clock)
        self._blank = estimate.restart()
        self._work = {}
        return estimate

    def _expected(self, sound: float) -> float:
        """Return the seconds of work on a recording of so many seconds at the pace of earlier runs."""
        if sound not in self._work and self._blank is not None:
            estimate = self._blank.restart()
            estimate.update("decode", 0.0, sound)
            self._work[sound] = estimate.left or 1e-6
        return self._work.get(sound, 1e-6)


def _bytes_per_second(done: Iterable[_Done]) -> float:
    done = list(done)
    return max(1.0, sum(each.size for each in done)) / max(1e-6, sum(each.sound for each in done))


def _ending(item: Item) -> str:
    return PurePath(item.source).suffix.lower()
