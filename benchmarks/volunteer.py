"""Results of Witness on one machine with an AMD card, as one JSON document to paste into an issue.

    python benchmarks/volunteer.py > volunteer.json
    python benchmarks/volunteer.py --recording meeting.wav --probe yolo=yolo.onnx=images=1x3x640x640

`scripts/volunteer_amd.sh` installs what it needs and runs it. Every part is a `witness` command in a process
of its own; what fails, hangs or is not there is a line of the result, and the rest goes on. The document has
figures, versions and names of models: no recording, no word, no name of a user or a folder. It uses three
minutes made of the sample call in tests/data, unless there is a --recording.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np

from witness.audio import decode
from witness.gpu import cards
from witness.models import catalogue
from witness.storage import files

CALL = Path(__file__).parent.parent / "tests" / "data" / "call.flac"
SECONDS = 180
REPEATS = 15
RATE = 16_000
TAIL = 2000
"""Characters kept of the error output of a failed part."""
PARTS = ("doctor", "warm", "status", "compare", "speed", "serial", "probe")


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--recording", type=Path, help="instead of the sample call")
    parser.add_argument("--models", default="auto", help="as of `witness run`")
    parser.add_argument("--whisper", default="auto", help="as of `witness run`; none: no words")
    parser.add_argument("--probe", action="append", default=[], metavar="NAME=FILE[=INPUT=SHAPE]...")
    parser.add_argument("--only", action="append", choices=PARTS, help="these parts only")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for each part")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="witness-volunteer-") as folder:
        recording = options.recording or three_minutes(Path(folder))
        report = examine(options, recording)
    text = json.dumps(report, indent=1, ensure_ascii=False).replace(str(Path.home()), "~")
    sys.stdout.write(text + "\n")


def three_minutes(folder: Path) -> Path:
    """The sample call, again and again."""
    samples = np.resize(decode.load(str(CALL)).samples[0][:], SECONDS * RATE)
    path = folder / "three_minutes.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return path


def examine(options: argparse.Namespace, recording: Path) -> dict[str, Any]:
    """Every part that was asked for."""
    wanted = options.only or PARTS
    models = ["--models", options.models]
    repeat = ["--repeat", str(options.repeats), "--json"]

    def run(*arguments: str) -> dict[str, Any]:
        return witness(list(arguments), options.limit, secret=str(recording))

    report: dict[str, Any] = {"schema": "witness-volunteer/1", "device": "migraphx"}
    there = cards.list_cards()
    report["cards"] = [f"{card.name} ({card.gfx}), {card.memory_total / 2**30:.1f} GiB" for card in there]
    if "doctor" in wanted:
        report["doctor"] = run("doctor", "--json")
    if "warm" in wanted:
        report["warm"] = run("gpu", "warm", *models)
    if "status" in wanted:
        report["status"] = run("gpu", "status", "--json")
    if "compare" in wanted:
        report["compare"] = compare(options, recording)
    if "speed" in wanted:
        for device in ("migraphx", "cpu"):
            report[f"speed_{device}"] = run(
                *("bench", "speed", str(recording), "--whisper", "none", "--device", device), *repeat, *models
            )
    if "serial" in wanted and options.whisper != "none":
        report["serial"] = run(
            *("bench", "speed", str(recording), "--whisper", options.whisper, "--device", "migraphx"),
            *("--vs-serial", *repeat, *models),
        )
    if "probe" in wanted:
        report["probe"] = {name: run("probe", *arguments) for name, arguments in probes(options.probe)}
    return report


def witness(arguments: list[str], limit: float, secret: str) -> dict[str, Any]:
    """Run a command of Witness; return its output and its time."""
    shown = ["RECORDING" if argument == secret else Path(argument).name for argument in arguments]
    command = [sys.executable, "-m", "witness", *arguments]
    begun = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"command": shown, "failed": f"not done after {limit:.0f} s"}
    row: dict[str, Any] = {"command": shown, "seconds": round(time.perf_counter() - begun, 2)}
    if done.returncode:
        row["failed"] = {"code": done.returncode, "said": done.stderr.replace(secret, "RECORDING")[-TAIL:]}
    try:
        row["result"] = json.loads(done.stdout)
    except ValueError:
        row["result"] = done.stdout.replace(secret, "RECORDING").splitlines()
    said = done.stderr.replace(secret, "RECORDING").splitlines()
    row["notes"] = [line for line in said if line.startswith("note:")]
    return row


def compare(options: argparse.Namespace, recording: Path) -> dict[str, Any]:
    """The card's turns against the CPU's: figures only."""
    rows: dict[str, Any] = {}
    turns: dict[str, list[Any]] = {}
    for device in ("migraphx", "cpu"):
        arguments = ["run", str(recording), "--whisper", "none", "-f", "json", "--device", device]
        row = witness([*arguments, "--models", options.models], options.limit, str(recording))
        result = row.pop("result")
        if isinstance(result, dict):
            turns[device] = [(turn["start"], turn["end"], turn["speaker"]) for turn in result["turns"]]
            row |= {"ran_on": result["device"], "turns": len(turns[device])}
            row["speakers"] = len({speaker for _, _, speaker in turns[device]})
            row["warnings"] = result["warnings"]
        rows[device] = row
    if len(turns) == 2:
        ours, theirs = turns["migraphx"], turns["cpu"]
        rows["same_turns"] = ours == theirs
        if [speaker for *_, speaker in ours] == [speaker for *_, speaker in theirs]:
            apart = np.array([turn[:2] for turn in ours]) - np.array([turn[:2] for turn in theirs])
            rows["most_seconds_apart"] = float(np.abs(apart).max(initial=0.0))
    return rows


def probes(wished: list[str]) -> list[tuple[str, list[str]]]:
    """Name of a model -> arguments of `witness probe`: the package's own, and those that were named."""
    folder = catalogue.BUILTIN_FOLDER
    found = [
        ("builtin segmentation", [str(folder / "segmentation.onnx"), "--shape", "waveform=1x1x160000"]),
        ("builtin embedding", [str(folder / "embedding.onnx"), "--shape", "feats=1x998x80"]),
    ]
    for wish in wished:
        name, file, *shapes = wish.split("=")
        pairs = [f"{shapes[at]}={shapes[at + 1]}" for at in range(0, len(shapes) - 1, 2)]
        arguments = [file, *(part for pair in pairs for part in ("--shape", pair))]
        found.append((f"{name} {files.sha256_at(Path(file))[:16]}", arguments))
    return found


if __name__ == "__main__":
    main()
