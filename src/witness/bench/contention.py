"""How much the two engines slow each other down: each alone, then both at once, on one recording.

The times are the program's own: "both" is a usual run, in which whisper gets most of the cores and then all
of them; alone it has all from the start. What a GPU does meanwhile is read from sysfs, so any card will do.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from dataclasses import asdict, dataclass, replace
from types import TracebackType

from witness import pipeline
from witness.amd import cards
from witness.audio import decode
from witness.errors import UsageError
from witness.models import store
from witness.options import Options, Runtime
from witness.recognition import recognizer
from witness.reporter import SILENT, Reporter
from witness.schema import Transcript

RUNS = ("diarizer", "whisper", "both")
INTERVAL = 0.1  # seconds between two looks at the card; the driver averages over about as much


@dataclass(frozen=True)
class Run:
    """One run of one or both engines."""

    name: str
    """One of RUNS."""
    wall: float
    """Seconds from the start to the last result, with decoding and the loading of models."""
    diarizer: float | None
    """Seconds of segmentation, embedding and clustering."""
    whisper: float | None
    """Seconds from the audio to the words."""
    busy: float | None
    """Mean per cent in which the card computed; None: no card, or it does not say."""
    memory: int | None
    """The most bytes of its memory in use, by all programs."""


@dataclass(frozen=True)
class Contention:
    """What was measured."""

    seconds: float
    """Length of the recording."""
    device: dict[str, str | None]
    """What ran the engines when both did."""
    card: str | None
    runs: tuple[Run, ...]
    """In the order in which they were made."""

    def median(self, run: str, what: str) -> float | None:
        """Of one figure over all rounds."""
        found = [getattr(one, what) for one in self.runs if one.name == run]
        return statistics.median(found) if found and None not in found else None

    def slowdown(self, engine: str) -> float | None:
        """How many times as long an engine takes beside the other."""
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
    """Run each engine alone and both at once, `rounds` times in turn.

    Raises UsageError if there is no speech recogniser, and what `pipeline.transcribe` raises.
    """
    model = store.whisper_model(
        options.whisper,
        offline=options.offline,
        gpu=recognizer.has_gpu_backend(),
        reporter=reporter,
    )
    if model is None:
        raise UsageError(
            "contention takes two engines, and there is no whisper model; give one with --whisper"
        )
    recording = decode.load(path, channels=options.channels)
    card = cards.pick(cards.cards(), runtime.gpu)
    runtime = replace(runtime, serial=False, parallel=True)
    runs: list[Run] = []
    devices: dict[str, str | None] = {}
    for number in range(rounds):
        reporter.progress("contention", 3 * number, 3 * rounds)
        with _Watch(card) as watch:
            alone = pipeline.diarize(path, options, runtime)
        runs.append(watch.run("diarizer", _diarizer(alone), None))
        reporter.progress("contention", 3 * number + 1, 3 * rounds)
        with _Watch(card) as watch:
            threads = runtime.cores
            language = options.language
            with recognizer.Recognizer(model, language=language, threads=threads) as engine:
                for samples in recording.samples:
                    engine.send(samples)
                seconds = sum(engine.result().seconds for _ in recording.samples)
        runs.append(watch.run("whisper", None, seconds))
        reporter.progress("contention", 3 * number + 2, 3 * rounds)
        with _Watch(card) as watch:
            both = pipeline.transcribe(path, options, runtime)
        if both.failure is not None:
            raise both.failure
        runs.append(watch.run("both", _diarizer(both), _spent(both, "transcription")))
        devices = dict(both.device)
    reporter.progress("contention", 3 * rounds, 3 * rounds)
    name = None if card is None else f"{card.name} ({card.gfx})"
    return Contention(recording.source.duration, devices, name, tuple(runs))


def to_text(found: Contention) -> str:
    """A table of medians, and the slowdown of each engine."""
    rows = [["", "diarizer", "whisper", "wall", "GPU busy", "GPU memory"]]
    for run in RUNS:
        busy, memory = found.median(run, "busy"), found.median(run, "memory")
        rows.append(
            [
                run,
                *(_seconds(found.median(run, what)) for what in ("diarizer", "whisper", "wall")),
                "-" if busy is None else f"{busy:.0f} %",
                "-" if memory is None else f"{memory / 1e9:.2f} GB",
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    rounds = len(found.runs) // len(RUNS)
    what = ", ".join(f"{engine} on {device}" for engine, device in found.device.items())
    lines = [
        f"{found.seconds:.1f} s of audio, medians of {rounds} rounds; {what}; card: {found.card}",
        *lines,
    ]
    for engine in RUNS[:2]:
        slowdown = found.slowdown(engine)
        lines.append(f"beside the other, {engine} takes {_times(slowdown)} as long")
    one, other, both = (found.median(run, "wall") for run in RUNS)
    if one and other and both:
        lines.append(f"one after the other {one + other:.2f} s, both at once {both:.2f} s")
    return "\n".join(lines) + "\n"


def to_json(found: Contention) -> str:
    """Every run, and the medians."""
    medians = {
        run: {what: found.median(run, what) for what in ("diarizer", "whisper", "wall", "busy", "memory")}
        for run in RUNS
    }
    slowdown = {engine: found.slowdown(engine) for engine in RUNS[:2]}
    document = {"schema": "witness-contention/1", **asdict(found), "median": medians, "slowdown": slowdown}
    return json.dumps(document, indent=1) + "\n"


def _diarizer(transcript: Transcript) -> float:
    return _spent(transcript, "embedding", "clustering")  # segmentation goes on beside embedding


def _spent(transcript: Transcript, *stages: str) -> float:
    """Seconds; a stage that did not run took none."""
    return sum(float(transcript.timing[stage] or 0.0) for stage in stages)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} times"


class _Watch:
    """Looks at a card while something runs, and at the clock."""

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
        busy = statistics.fmean(self._busy) if self._busy else None
        memory = max(self._memory, default=None)
        return Run(name, self._wall, diarizer, whisper, busy, memory)

    def _look(self) -> None:
        while self._card is not None:
            if (busy := self._card.busy) is not None:
                self._busy.append(busy)
            if (used := self._card.used()) is not None:
                self._memory.append(used)
            if self._over.wait(INTERVAL):
                return
