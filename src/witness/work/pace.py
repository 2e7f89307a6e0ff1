"""How long each stage takes on this machine: as measured in earlier runs, which the cache keeps, or else as
on the machine where `PRIOR` was measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from witness.storage import atomic, cache, decode, files
from witness.work.eta import Estimate, Pace

if TYPE_CHECKING:
    from witness.options import Options, Runtime
    from witness.pipeline import Engine
    from witness.work.produce import Settings

MOST = 50
"""Kinds of runs that are remembered, the latest ones."""
SHORT = 0.25
"""Share of another recording's length below which what a recording took says less."""
FIRST, LATER = 1.0, 2.0
"""Seconds of work that weigh as much as what is expected: the first time on a machine, and later."""
PRIOR: Mapping[str, Pace] = {
    "campplus": {
        "start": 0.6, "decode": 0.0013, "segmentation": 0.033, "embedding": 0.026, "clustering": 0.0015
    },
    "builtin": {
        "start": 0.1, "decode": 0.0013, "segmentation": 0.058, "embedding": 0.032, "clustering": 0.0017
    },
}  # fmt: skip
"""Of sets of models (units: `Pace`), by `benchmarks/estimates.py` on two cores of an AMD EPYC: seconds of the
stages `ALONE`, and seconds times cores of the others; for any other set, that of the last. Built in, voices
are heard between the windows: the time of both is divided as if they were not."""
WORDS, BASE, LARGER = 0.087, 150e6, 1.14
"""Seconds times cores of `base` for a second of sound; the bytes of its model; and the power of the bytes by
which a larger one takes longer."""
SEARCH = 1.3
"""Times as long without `--fast-words`: docs/decisions/2026-11-24-beam.md."""
ALONE = ("start", "decode", "clustering")
"""Stages that more cores make no shorter; the others take what there is."""


@dataclass(frozen=True)
class Kind:
    """What makes a difference to how long a recording takes."""

    models: tuple[str | None, ...]
    """Their sha256."""
    pair: str
    """The name of the diarizer's set of models."""
    weights: int
    """Bytes of the recognizer's model; 0: there is none."""
    device: str
    cores: int
    fast: bool
    fast_words: bool
    warm: bool
    """Models stay open from one recording to the next."""

    @classmethod
    def of(cls, engine: Engine) -> Kind:
        """That of a run. Raises what choosing the models does."""
        models = {role: model.sha256 if model else None for role, model in engine.files.items()}
        whisper = engine.whisper[0]
        size = weights(Path(whisper.path)) if whisper else 0
        return cls._of(models, engine.chosen.name, size, engine.options, engine.runtime, warm=False)

    @classmethod
    def of_job(cls, settings: Settings, runtime: Runtime) -> Kind:
        """That of the recordings of a batch or of the desk."""
        options = settings.options
        return cls._of(settings.models, options.models, settings.weights, options, runtime, warm=True)

    @classmethod
    def _of(
        cls,
        models: Mapping[str, str | None],
        pair: str,
        size: int,
        options: Options,
        runtime: Runtime,
        *,
        warm: bool,
    ) -> Kind:
        short = tuple(sha256 and sha256[:16] for role, sha256 in models.items() if role != "known")
        device, cores = str(runtime.device), runtime.cores
        return cls(short, pair, size, device, cores, options.fast, options.fast_words, warm)

    def step(self, sound: float) -> float:
        """Seconds between two windows."""
        from witness.diarization import segmentation
        from witness.schema import SAMPLE_RATE

        stretches = self.pair == "campplus"
        return segmentation.step_of(round(sound * SAMPLE_RATE), fast=self.fast, stretches=stretches)

    @property
    def prior(self) -> Pace:
        """Before any recording of this kind was done here."""
        *_, other = PRIOR.values()
        pace = dict(PRIOR.get(self.pair, other))
        if self.weights:
            longer = 1.0 if self.fast_words else SEARCH
            pace["transcription"] = WORDS * longer * (self.weights / BASE) ** LARGER
        return {stage: one / (1 if stage in ALONE else self.cores) for stage, one in pace.items()}


def estimate(kind: Kind, whole: float | None = None, clock: Callable[[], float] = time.monotonic) -> Estimate:
    """Of a recording of this kind: by the last one, or else as everywhere."""
    kept = _kept().get(_name(kind))
    known = kept is not None and "start" in kept
    pace, trust = (kept, LATER) if known and kept is not None else (kind.prior, FIRST)
    return Estimate(pace, kind.step, trust=trust, whole=whole, clock=clock)


def learn(kind: Kind, done: Estimate) -> None:
    """Remember what the stages of a whole recording took, unless a much longer one says better."""
    kept, name = _kept(), _name(kind)
    before = kept.pop(name, {})
    sound = done.sound or 0.0
    if sound < SHORT * before.get("sound", 0.0):
        return
    kept[name] = {**done.pace(), "sound": sound}
    latest = dict(list(kept.items())[-MOST:])
    with suppress(OSError):
        path = cache.cache_folder() / "paces.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.replace(json.dumps(latest).encode(), path)


def weights(path: Path) -> int:
    """Bytes of a model: of its file, or of those in its folder."""
    return sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else (path,)))


def _kept() -> dict[str, dict[str, float]]:
    with suppress(OSError, ValueError):
        return decode.from_json(files.read(cache.cache_folder() / "paces.json"), dict[str, dict[str, float]])
    return {}


def _name(kind: Kind) -> str:
    return json.dumps(asdict(kind))
