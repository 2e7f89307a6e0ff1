"""How much a recognizer and the diarizer slow each other down: each alone, then both at the same time.

The times are the program's own: "both" is a usual run, in which Whisper gets most of the cores and then all
of them; alone it has all from the start. What an AMD card does meanwhile is read from sysfs, whoever uses it.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from dataclasses import asdict, dataclass, replace
from types import TracebackType

from witness import pipeline
from witness.audio import decode
from witness.errors import UsageError
from witness.gpu import cards
from witness.models import engines, store
from witness.options import Channels, Options, Runtime
from witness.progress import SILENT, Reporter
from witness.recognition import gpus, recognizer
from witness.schema import Transcript
from witness.text import number, table

RUNS = ("diarizer", "whisper", "both")
FIGURES = ("diarizer", "whisper", "wall", "busy", "memory")
"""The fields of `Run` of which there are medians."""
INTERVAL = 0.1
"""Seconds between two looks at the card; the driver averages over about as much."""


@dataclass(frozen=True)
class Run:
    """One run of one or both engines."""

    name: str
    """One of RUNS."""
    wall: float
    """Seconds from the start to the last result, decoding and the loading of models included."""
    diarizer: float | None
    """Seconds of segmentation, embedding and clustering."""
    whisper: float | None
    """Seconds from the audio to the words."""
    busy: float | None
    """Mean percentage of the time in which the card computed; None: no card, or it does not say."""
    memory: int | None
    """Bytes of its memory that all programs used at their peak; None as above."""


@dataclass(frozen=True)
class Contention:
    """What was measured."""

    seconds: float
    """Duration of the recording."""
    recognizer: str
    """Its name, "whisper.cpp"."""
    device: dict[str, str | None]
    """"embedding", "whisper" -> what ran them when both ran."""
    card: str | None
    """Name and architecture of the card that was watched; None: there is none."""
    runs: tuple[Run, ...]
    """In the order in which they were made."""

    def median(self, run: str, what: str) -> float | None:
        """Of one of FIGURES over all rounds; None if it is not known of every round."""
        values = [getattr(one, what) for one in self.runs if one.name == run]
        return statistics.median(values) if values and None not in values else None

    def slowdown(self, engine: str) -> float | None:
        """How many times as long an engine ("diarizer", "whisper") takes beside the other."""
        alone, beside = self.median(engine, engine), self.median("both", engine)
        return beside / alone if alone and beside else None


def measure(
    path: str,
    options: Options,
    runtime: Runtime,
    rounds: int,
    *,
    reporter: Reporter = SILENT,
) -> Contention:
    """Run each engine alone and then both at the same time, `rounds` times.

    Raises UsageError if there is no speech recognizer, and what `pipeline.transcribe` raises.
    """
    model = store.recognizer_model(
        options,
        gpu=gpus.recognizer(),
        available=engines.installed(),
        reporter=reporter,
    )
    if model is None:
        raise UsageError(
            "contention takes two engines, and there is no Whisper model; give one with --whisper"
        )
    recognizer.check_model(model, options.language, translate=options.translate)
    recording = decode.load(path, channels=Channels(options.channels))
    card = cards.pick_card(cards.list_cards(), runtime.gpu)
    runtime = replace(runtime, serial=False, parallel=True)
    runs: list[Run] = []
    devices: dict[str, str | None] = {}
    for round_ in range(rounds):
        reporter.progress("contention", 3 * round_, 3 * rounds)
        with _Watch(card) as watch:
            alone = pipeline.diarize(path, options, runtime)
        runs.append(watch.run("diarizer", _diarizer(alone), None))
        reporter.progress("contention", 3 * round_ + 1, 3 * rounds)
        with _Watch(card) as watch:
            wish = recognizer.TranscribeOptions.from_options(options)
            with recognizer.TrackRecognizer(model, wish, threads=runtime.cores) as engine:
                for samples in recording.samples:
                    engine.send(samples)
                seconds = sum(engine.result().seconds for _ in recording.samples)
        runs.append(watch.run("whisper", None, seconds))
        reporter.progress("contention", 3 * round_ + 2, 3 * rounds)
        with _Watch(card) as watch:
            both = pipeline.transcribe(path, options, runtime)
        if both.failure is not None:
            raise both.failure
        runs.append(watch.run("both", _diarizer(both), _spent(both, "transcription")))
        devices = dict(both.device)
    reporter.progress("contention", 3 * rounds, 3 * rounds)
    name = None if card is None else f"{card.name} ({card.gfx})"
    return Contention(recording.source.duration, str(model.engine), devices, name, tuple(runs))


def to_text(contention: Contention) -> str:
    """A table of medians, and the slowdown of each engine."""
    rows = [["", "diarizer", "whisper", "wall", "GPU busy", "GPU memory"]]
    for run in RUNS:
        diarizer, whisper, wall, busy, memory = (contention.median(run, what) for what in FIGURES)
        gigabytes = None if memory is None else memory / 1e9
        seconds = (number(value, ".2f", " s") for value in (diarizer, whisper, wall))
        rows.append([run, *seconds, number(busy, ".0f", " %"), number(gigabytes, ".2f", " GB")])
    rounds = len(contention.runs) // len(RUNS)
    names = {"embedding": "voice model", "whisper": contention.recognizer}
    ran = ", ".join(f"{names[engine]} on {device}" for engine, device in contention.device.items())
    lines = [
        f"{contention.seconds:.1f} s of audio, medians of {rounds} rounds; {ran}; card: "
        f"{contention.card or 'none'}",
        table(rows, left=()),
    ]
    for engine in RUNS[:2]:
        slowdown = number(contention.slowdown(engine), ".2f", " times")
        lines.append(f"beside the other, {engine} takes {slowdown} as long")
    one, other, both = (contention.median(run, "wall") for run in RUNS)
    if one and other and both:
        lines.append(f"one after the other {one + other:.2f} s, both at the same time {both:.2f} s")
    return "\n".join(lines) + "\n"


def to_json(contention: Contention) -> str:
    """One document with every run, the medians and the slowdowns."""
    document = {
        "schema": "witness-contention/1",
        **asdict(contention),
        "median": {run: {what: contention.median(run, what) for what in FIGURES} for run in RUNS},
        "slowdown": {engine: contention.slowdown(engine) for engine in RUNS[:2]},
    }
    return json.dumps(document, indent=1) + "\n"


def _diarizer(transcript: Transcript) -> float:
    """Seconds of segmentation, embedding and clustering."""
    return _spent(transcript, "embedding", "clustering")  # segmentation runs beside embedding


def _spent(transcript: Transcript, *stages: str) -> float:
    """Seconds; a stage that did not run took none."""
    return sum(float(transcript.timing[stage] or 0.0) for stage in stages)


class _Watch:
    """Looks at a card, if there is one, and at the clock while something runs."""

    def __init__(self, card: cards.Card | None) -> None:
        self._card = card
        self._busy: list[int] = []
        self._memory: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Watch:
        self._begun = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wall = time.perf_counter() - self._begun
        self._over.set()
        self._thread.join()

    def run(self, name: str, diarizer: float | None, whisper: float | None) -> Run:
        """What was seen, and the seconds of the engines."""
        busy = statistics.fmean(self._busy) if self._busy else None
        memory = max(self._memory, default=None)
        return Run(name, self._wall, diarizer, whisper, busy, memory)

    def _look(self) -> None:
        """Until it is over."""
        while self._card is not None:
            if (busy := self._card.busy) is not None:
                self._busy.append(busy)
            if (used := self._card.used()) is not None:
                self._memory.append(used)
            if self._over.wait(INTERVAL):
                return
