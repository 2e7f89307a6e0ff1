"""Times of each stage of a recording: each run in a child process, ways in turn, medians."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from msgspec import Struct, structs, to_builtins

from witness.bench import measurement
from witness.bench.measurement import Failure, Hardware, Measurement
from witness.diarization.fbank import HOP, N_MELS
from witness.diarization.segmentation_cut import BACK
from witness.errors import WitnessError
from witness.options import Mode, Options, Runtime
from witness.progress import Reporter
from witness.schema import SAMPLE_RATE, WINDOW_SAMPLES
from witness.text import clock, number, table
from witness.tracing import Call
from witness.transcript.assemble import STAGES

Way = Literal["run", "serial", "profiled"]
"""As usual; with the words after the speakers; with onnxruntime's profiler on."""


@dataclass(frozen=True)
class SpeedPlan:
    """Settings and number of the runs of each recording."""

    options: Options = field(default_factory=Options)
    runtime: Runtime = field(default_factory=Runtime)
    repeat: int = 3
    """Runs in each way."""
    ways: tuple[Way, ...] = ("run",)
    """"run" always is one of them: the others are compared with it."""


@dataclass(frozen=True)
class StageTime:
    """Seconds that a stage took, or None if it did not run.

    `wall` is from its beginning to its end, though segmentation and embedding run at the same time. `cpu` is
    the processor time of their models; the recognizer's is that of its process, loading its model included.
    """

    wall: float | None
    cpu: float | None


@dataclass(frozen=True)
class Serial:
    """The recognizer after the diarizer, against both at the same time."""

    wall: float
    """Seconds."""
    saved: float
    """By running them at the same time, as a share of `wall`."""
    overlap: float | None
    """As a share of the shorter engine's time, which is all that can be saved; None if it took none."""


@dataclass(frozen=True)
class Profiled:
    """Runs with onnxruntime's profiler on."""

    wall: float
    """Seconds."""
    cost: float
    """Additional time, as a share of the usual time."""


class FileSpeed(Struct, frozen=True, omit_defaults=True):
    """Speed of one recording. Everything but the walls is a median over the runs; times are seconds."""

    name: str
    duration: float
    models: Mapping[str, str | None]
    """"segmentation", "embedding", "whisper" -> sha256."""
    device: Mapping[str, str | None]
    """"embedding", "whisper" -> what ran them."""
    mode: Mode | None
    """None if no words were recognized."""
    walls: Mapping[Way, tuple[float, ...]]
    """Of every run, by its way."""
    wall: float
    cpu: float | None
    """Processor time of all processes."""
    times_real_time: float | None
    real_time_factor: float | None
    peak_memory_mb: float | None
    whisper_peak_memory_mb: float | None
    windows_per_second: float | None
    """Windows that were segmented, per second of audio."""
    trunk_seconds_per_second: float | None
    """Seconds of features that went through the trunk, context included, per second of audio."""
    outside_onnxruntime: float | None
    """Share of the wall time without a model at work; None if words were recognized."""
    stages: Mapping[str, StageTime]
    serial: Serial | None = None
    profiled: Profiled | None = None


class Timings(Struct, frozen=True, tag_field="schema", tag="witness-speed/1"):
    """Speeds of all recordings and the machine that measured them, as in the JSON."""

    hardware: Hardware
    versions: Mapping[str, str]
    source_sha256: str
    runtime: Runtime
    options: Mapping[str, Any]
    """The options that have a value."""
    repeat: int
    load_before: float | None
    """Value of `measurement.load`."""
    files: tuple[FileSpeed, ...]


def measure(paths: Sequence[Path], plan: SpeedPlan, reporter: Reporter) -> Timings:
    """Run every recording as often and in as many ways as planned. Raises WitnessError if a run fails."""
    load = measurement.load()
    each = plan.repeat * len(plan.ways)
    speeds = []
    for index, path in enumerate(paths):
        runs: dict[Way, list[Measurement]] = {way: [] for way in plan.ways}
        for turn in range(plan.repeat):
            # In turn and in both orders, so that a slow moment of the machine affects all of them.
            for way in plan.ways[:: 1 if turn % 2 == 0 else -1]:
                runs[way].append(_run(path, plan, way))
                reporter.progress("runs", index * each + sum(map(len, runs.values())), len(paths) * each)
        if "serial" in runs and runs["run"][0].mode is None:
            reporter.note(f"{path}: without a recognizer there is nothing to run beside the diarizer")
        speeds.append(_summary(path.name, runs))
    return Timings(
        measurement.hardware(),
        measurement.versions(),
        measurement.source_sha256(),
        plan.runtime,
        {name: value for name, value in asdict(plan.options).items() if value is not None},
        plan.repeat,
        load,
        tuple(speeds),
    )


def _run(path: Path, plan: SpeedPlan, way: Way) -> Measurement:
    """Run a recording once in a child. Raises WitnessError if it fails or finds no words although it
    should."""
    runtime = replace(plan.runtime, serial=True) if way == "serial" else plan.runtime
    result = measurement.run(path, plan.options, runtime, profile=way == "profiled")
    if isinstance(result, Failure):
        raise result.error(f"{path}: ", "; try it with `witness run`") if result.crashed else result.error()
    if result.failure is not None:
        raise WitnessError(result.failure)
    return result


def _summary(name: str, runs: Mapping[Way, Sequence[Measurement]]) -> FileSpeed:
    plain = runs["run"]
    first, duration = plain[0], plain[0].audio.duration
    wall = median(round(run.wall, 3) for run in plain)
    speed = FileSpeed(
        name=name,
        duration=duration,
        models=first.models,
        device=first.device,
        mode=first.mode,
        walls={way: tuple(round(run.wall, 3) for run in measured) for way, measured in runs.items()},
        wall=wall,
        cpu=_median(run.cpu.witness + run.cpu.whisper for run in plain),
        times_real_time=round(duration / wall, 2) if wall else None,
        real_time_factor=round(wall / duration, 5) if duration else None,
        peak_memory_mb=_median(run.peak_memory_mb for run in plain),
        whisper_peak_memory_mb=_median(run.whisper_peak_memory_mb for run in plain),
        windows_per_second=_median(_windows(run) / duration for run in plain),
        trunk_seconds_per_second=_median(_trunk_seconds(run) / duration for run in plain),
        outside_onnxruntime=_median(1 - busy(run.calls) / run.wall for run in plain)
        if first.mode is None
        else None,
        stages={stage: _stage(plain, stage) for stage in STAGES},
    )
    if "serial" in runs and first.mode is not None:
        words = median(run.seconds("transcription") or 0.0 for run in runs["serial"])
        speed = structs.replace(speed, serial=serial(median(run.wall for run in runs["serial"]), words, wall))
    if "profiled" in runs:
        profiled = median(speed.walls["profiled"])
        speed = structs.replace(speed, profiled=Profiled(profiled, round(profiled / wall - 1, 4)))
    return speed


def _stage(runs: Sequence[Measurement], stage: str) -> StageTime:
    wall = _median(run.seconds(stage) for run in runs)
    if wall is None:
        return StageTime(None, None)
    if stage == "transcription":
        return StageTime(wall, _median(run.cpu.whisper for run in runs))
    if stage in ("segmentation", "embedding"):
        return StageTime(wall, _median(sum(call.cpu for call in _calls(run, stage)) for run in runs))
    spent = (sum(span.cpu for span in run.spans if span.stage == stage) for run in runs)
    return StageTime(wall, _median(spent))


def serial(wall: float, words: float, parallel: float) -> Serial:
    """Compare the seconds of a serial run, of its words alone, and of a run with both at the same time."""
    hidden = min(words, wall - words)  # the shorter engine can vanish behind the longer, and no more
    return Serial(
        wall=round(wall, 3),
        saved=round(1 - parallel / wall, 4),
        overlap=round((wall - parallel) / hidden, 4) if hidden > 0 else None,
    )


def _windows(run: Measurement) -> float:
    """Count the windows that were segmented."""
    return sum(
        float(call.shape[0])
        for call in _calls(run, "segmentation")
        if call.model.startswith(BACK) or call.shape[1:] == (1, WINDOW_SAMPLES)
    )


def _trunk_seconds(run: Measurement) -> float:
    """Sum the seconds of features that went through the trunk, context included."""
    frames = sum(
        float(math.prod(call.shape[:2])) for call in _calls(run, "embedding") if call.shape[2:] == (N_MELS,)
    )
    return frames * HOP / SAMPLE_RATE


def _calls(run: Measurement, stage: str) -> list[Call]:
    """Select the calls of a stage's models while it was at work, without those that try a model at its
    opening."""
    spans = [(span.begin, span.begin + span.wall) for span in run.spans if span.stage == stage]
    return [
        call
        for call in run.calls
        if any(begin <= call.begin <= end for begin, end in spans)
        and call.model.startswith(("trunk of ", "head of ")) == (stage == "embedding")
    ]


def busy(calls: Iterable[Call]) -> float:
    """Sum the seconds with at least one of the calls running."""
    total, last_end = 0.0, 0.0
    for begin, end in sorted((call.begin, call.begin + call.wall) for call in calls):
        total += max(0.0, end - max(begin, last_end))
        last_end = max(last_end, end)
    return total


def _median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are not None; None without any."""
    present = [value for value in values if value is not None]
    return round(median(present), 4) if present else None


def to_json(speed: Timings) -> str:
    """Serialize every run in one document; without serial or profiled runs it lacks their key."""
    return json.dumps(to_builtins(speed), indent=1) + "\n"


def to_text(speed: Timings) -> str:
    """Render a table per recording."""
    head = (
        f"{speed.hardware.processor}, {speed.runtime.threads or speed.hardware.cores} threads, median of "
        f"{speed.repeat}, load before it {number(speed.load_before, '.1f')}"
    )
    return "\n\n".join([head, *("\n".join(_lines(file)) for file in speed.files)]) + "\n"


def _lines(file: FileSpeed) -> Iterable[str]:
    times = {**file.stages, "all": StageTime(file.wall, file.cpu)}
    rows = [
        [stage, number(time.wall, ".2f"), number(time.cpu, ".2f")]
        for stage, time in times.items()
        if time.wall is not None
    ]
    yield f"{file.name}  {clock(file.duration)}"
    yield table([["", "wall s", "cpu s"], *rows])
    yield (
        f"{number(file.times_real_time, '.1f')} times real time (factor "
        f"{number(file.real_time_factor, '.4f')})"
    )
    memory = f"peak memory {number(file.peak_memory_mb, '.0f', ' MB')}"
    if file.whisper_peak_memory_mb is not None:
        memory += f", whisper's {file.whisper_peak_memory_mb:.0f} MB"
    yield memory
    work = (
        f"{number(file.windows_per_second, '.2f')} windows and "
        f"{number(file.trunk_seconds_per_second, '.2f')} s of trunk per second of audio"
    )
    if file.outside_onnxruntime is not None:
        work += f", {file.outside_onnxruntime:.1%} of the wall time outside onnxruntime"
    yield work
    if file.serial is not None:
        overlap = number(file.serial.overlap, ".0%")
        yield (
            f"serial {file.serial.wall:.2f} s, parallel {file.wall:.2f} s: {file.serial.saved:.1%} saved, "
            f"{overlap} of the shorter engine's time hidden"
        )
    if file.profiled is not None:
        yield f"profiled {file.profiled.wall:.2f} s, plain {file.wall:.2f} s: {file.profiled.cost:+.1%}"
