"""How long a recording takes and where the time goes: one process a run, schedules in turn, medians."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from witness.bench import child, machine
from witness.diarization.fbank import HOP, N_MELS
from witness.diarization.segmentation_cut import BACK
from witness.errors import WitnessError
from witness.options import Options, Runtime
from witness.reporter import Reporter
from witness.schema import SAMPLE_RATE, WINDOW_SAMPLES
from witness.text import clock
from witness.transcript.assemble import STAGES

SCHEMA = "witness-speed/1"


def measure(
    paths: Sequence[Path],
    options: Options,
    runtime: Runtime,
    *,
    repeat: int,
    vs_serial: bool,
    vs_profile: bool,
    reporter: Reporter,
) -> dict[str, Any]:
    """Run every recording `repeat` times in each way that is asked for. Raises WitnessError if one fails."""
    ways: dict[str, Callable[[Path], dict[str, Any]]] = {"run": lambda path: _run(path, options, runtime)}
    if vs_serial:
        ways["serial"] = lambda path: _run(path, options, replace(runtime, serial=True))
    if vs_profile:
        ways["profiled"] = lambda path: _run(path, options, runtime, profile=True)
    load = machine.load()
    total = len(paths) * repeat * len(ways)
    files = []
    for number, path in enumerate(paths):
        replies: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for turn in range(repeat):
            # In turn and in both orders, so that a slow moment of the machine hits all of them.
            for way in list(ways)[:: 1 if turn % 2 == 0 else -1]:
                replies[way].append(ways[way](path))
                done = number * repeat * len(ways) + sum(map(len, replies.values()))
                reporter.progress("runs", done, total)
        if vs_serial and replies["run"][0]["timing"]["mode"] is None:
            reporter.note(f"{path}: without a recogniser there is nothing to run beside the speakers")
        files.append(_summary(path, replies))
    return {
        "schema": SCHEMA,
        "hardware": machine.hardware(),
        "versions": machine.versions(),
        "source_sha256": machine.source_sha256(),
        "runtime": asdict(runtime),
        "options": {name: value for name, value in asdict(options).items() if value is not None},
        "repeat": repeat,
        "load_before": load,
        "files": files,
    }


def _run(path: Path, options: Options, runtime: Runtime, *, profile: bool = False) -> dict[str, Any]:
    reply = child.run(path, options, runtime, profile=profile)
    if "crash" in reply:
        raise WitnessError(f"{path}: {reply['crash']}; try it with `witness run`")
    if message := reply.get("error") or reply["failure"]:
        failure = WitnessError(message)
        failure.exit_code = reply.get("exit_code", failure.exit_code)
        raise failure
    return reply


def _summary(path: Path, replies: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    plain = replies["run"]
    duration = plain[0]["audio"]["duration"]
    walls = {way: [round(reply["wall"], 3) for reply in found] for way, found in replies.items()}
    wall = median(walls["run"])
    result = {
        "name": path.name,
        "duration": duration,
        "models": plain[0]["models"],
        "device": plain[0]["device"],
        "mode": plain[0]["timing"]["mode"],
        "walls": walls,
        "wall": wall,
        "cpu": _median(reply["cpu"]["witness"] + reply["cpu"]["whisper"] for reply in plain),
        "times_real_time": round(duration / wall, 2) if wall else None,
        "real_time_factor": round(wall / duration, 5) if duration else None,
        "peak_memory_mb": _median(reply["peak_memory_mb"] for reply in plain),
        "whisper_peak_memory_mb": _median(reply["whisper_peak_memory_mb"] for reply in plain),
        "windows_per_second": _median(_windows(reply) / duration for reply in plain),
        "trunk_seconds_per_second": _median(_trunk_seconds(reply) / duration for reply in plain),
        "outside_onnxruntime": _median(1 - _busy(reply) / reply["wall"] for reply in plain)
        if plain[0]["timing"]["mode"] is None
        else None,
        "stages": {stage: _stage(plain, stage) for stage in STAGES},
    }
    if "serial" in replies and plain[0]["timing"]["mode"] is not None:
        result["serial"] = _serial(replies["serial"], wall)
    if "profiled" in replies:
        result["profiled"] = {
            "wall": median(walls["profiled"]),
            "cost": round(median(walls["profiled"]) / wall - 1, 4),
        }
    return result


def _stage(replies: Sequence[dict[str, Any]], stage: str) -> dict[str, float | None]:
    """Seconds of the stage, from its beginning to its end: segmentation and embedding go on at the same time.

    Their processor time is that of their models; the recogniser's that of its process, loading its model too.
    """
    wall = _median(reply["timing"][stage] for reply in replies)
    if stage == "transcription":
        cpu = _median(reply["cpu"]["whisper"] for reply in replies)
    elif stage in ("segmentation", "embedding"):
        cpu = _median(sum(call["cpu"] for call in _calls(reply, stage)) for reply in replies)
    else:
        cpu = _median(
            sum(span["cpu"] for span in reply["spans"] if span["stage"] == stage) for reply in replies
        )
    return {"wall": wall, "cpu": None if wall is None else cpu}


def _serial(replies: Sequence[dict[str, Any]], parallel: float) -> dict[str, float | None]:
    """The recogniser after the speakers: what running it beside them saved, of all that it could."""
    wall = median(reply["wall"] for reply in replies)
    words = median(reply["timing"]["transcription"] for reply in replies)
    hidden = min(words, wall - words)  # the shorter engine can vanish behind the longer, and no more
    return {
        "wall": round(wall, 3),
        "saved": round(1 - parallel / wall, 4),
        "overlap": round((wall - parallel) / hidden, 4) if hidden > 0 else None,
    }


def _windows(reply: dict[str, Any]) -> float:
    return sum(
        float(call["shape"][0])
        for call in _calls(reply, "segmentation")
        if call["model"].startswith(BACK) or call["shape"][1:] == [1, WINDOW_SAMPLES]
    )


def _trunk_seconds(reply: dict[str, Any]) -> float:
    """Of features that went through the trunk, context included."""
    frames = sum(
        float(math.prod(call["shape"][:2]))
        for call in _calls(reply, "embedding")
        if call["shape"][2:] == [N_MELS]
    )
    return frames * HOP / SAMPLE_RATE


def _calls(reply: dict[str, Any], stage: str) -> list[dict[str, Any]]:
    """The calls of a stage's models while it was at work: not those that try a model when it is opened."""
    spans = [
        (span["begin"], span["begin"] + span["wall"]) for span in reply["spans"] if span["stage"] == stage
    ]
    return [
        call
        for call in reply["calls"]
        if any(begin <= call["begin"] <= end for begin, end in spans)
        and call["model"].startswith(("trunk of ", "head of ")) == (stage == "embedding")
    ]


def _busy(reply: dict[str, Any]) -> float:
    """Seconds in which at least one model was running."""
    total, place = 0.0, 0.0
    for begin, end in sorted((call["begin"], call["begin"] + call["wall"]) for call in reply["calls"]):
        total += max(0.0, end - max(begin, place))
        place = max(place, end)
    return total


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 4) if known else None


def to_text(result: Mapping[str, Any]) -> str:
    """A table a recording."""
    threads = result["runtime"]["threads"] or result["hardware"]["cores"]
    lines = [
        f"{result['hardware']['processor']}, {threads} threads, median of {result['repeat']}, "
        f"load before it {_number(result['load_before'], '.1f')}"
    ]
    for file in result["files"]:
        lines += ["", f"{file['name']}  {clock(file['duration'])}", *_table(file)]
        lines.append(
            f"{_number(file['times_real_time'], '.1f')} times real time (factor "
            f"{_number(file['real_time_factor'], '.4f')})"
        )
        memory = f"peak memory {_number(file['peak_memory_mb'], '.0f')} MB"
        if file["whisper_peak_memory_mb"] is not None:
            memory += f", whisper's {file['whisper_peak_memory_mb']:.0f} MB"
        lines.append(memory)
        work = (
            f"{_number(file['windows_per_second'], '.2f')} windows and "
            f"{_number(file['trunk_seconds_per_second'], '.2f')} s of trunk per second of audio"
        )
        if file["outside_onnxruntime"] is not None:
            work += f", {file['outside_onnxruntime']:.1%} of the wall time outside onnxruntime"
        lines.append(work)
        if serial := file.get("serial"):
            lines.append(
                f"serial {serial['wall']:.2f} s, parallel {file['wall']:.2f} s: {serial['saved']:.1%} saved, "
                f"{_number(serial['overlap'], '.0%')} of the shorter engine's time hidden"
            )
        if profiled := file.get("profiled"):
            lines.append(
                f"profiled {profiled['wall']:.2f} s, plain {file['wall']:.2f} s: {profiled['cost']:+.1%}"
            )
    return "\n".join(lines) + "\n"


def _table(file: Mapping[str, Any]) -> list[str]:
    rows = [(stage, times["wall"], times["cpu"]) for stage, times in file["stages"].items()]
    rows.append(("all", file["wall"], file["cpu"]))
    lines = [f"{'':14}{'wall s':>9}{'cpu s':>9}"]
    lines += [
        f"{stage:14}{_number(wall, '.2f'):>9}{_number(cpu, '.2f'):>9}"
        for stage, wall, cpu in rows
        if wall is not None
    ]
    return lines


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
