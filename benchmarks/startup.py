"""How soon `witness` answers, and how soon it begins to work.

    python benchmarks/startup.py [--runs 15] [--output benchmarks/results/startup_builtin.json]

"help": wall time of `witness --help`. "first_window": from the start of the process until the first window of
a recording of one minute has been segmented; on the way there, when the recognizer's process was started and
the audio decoded. The recording is tests/data/call.flac, the models are the builtin ones. The recognizer's
model is not a real one, because only its process matters. Medians and minimums of all runs; the processor
time up to the first window says how long it would take on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from witness.bench import machine

CALL = Path(__file__).parents[1] / "tests" / "data" / "call.flac"

CHILD = """
import json, subprocess, sys, time
from witness import reporter, tracing

stations = {}

class Popen(subprocess.Popen):
    def __init__(self, command, *args, **kwargs):
        if "witness.recognition.child" in command:
            heavy = {"numpy", "av", "onnx", "onnxruntime", "scipy", "soxr", "rich"} & set(sys.modules)
            stations["recognizer"] = [time.perf_counter(), time.process_time(), sorted(heavy)]
        super().__init__(command, *args, **kwargs)

subprocess.Popen = Popen

def progress(stage, done, total):
    if stage == "segmentation" and done > 0:
        stations.setdefault("first_window", [time.perf_counter(), time.process_time()])

reporter.SILENT = reporter.Reporter(progress)  # which --quiet takes
with tracing.recording() as trace:
    from witness.cli.main import main
    try:
        main(sys.argv[2:])
    except SystemExit:
        pass
for span in trace.spans:
    if span.stage == "decode":
        stations["decoded"] = [span.begin + span.wall]
with open(sys.argv[1], "w") as file:
    json.dump(stations, file)
"""


def first_window(folder: Path) -> dict[str, Any]:
    """Seconds from the start of the process to each station, and the processor time until then."""
    model, out = folder / "model.bin", folder / "stations.json"
    model.write_bytes(b"none")
    command = [sys.executable, "-c", CHILD, str(out), "run", str(CALL), "--models", "builtin", "--offline"]
    command += ["--whisper", str(model), "--device", "cpu", "-q", "-f", "rttm", "-o", str(folder)]
    begun = time.perf_counter()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as cli.main does, before numpy is imported
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return {name: [at - begun, *rest] for name, (at, *rest) in json.loads(out.read_text()).items()}


def help_time() -> float:
    """Wall time of `witness --help`, in seconds."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-m", "witness", "--help"], check=True, capture_output=True)
    return time.perf_counter() - begun


def summary(values: list[float]) -> dict[str, float]:
    """Median and minimum, rounded to milliseconds."""
    return {"median": round(median(values), 3), "least": round(min(values), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    load = machine.load()
    with TemporaryDirectory() as folder:
        helps = [help_time() for _ in range(options.runs)]
        found = [first_window(Path(folder)) for _ in range(options.runs)]
    result = {
        "command": "python benchmarks/startup.py",
        "hardware": asdict(machine.hardware()),
        "versions": machine.versions(),
        "source_sha256": machine.source_sha256(),
        "runs": options.runs,
        "load_before": load,
        "help": summary(helps),
        **{name: summary([run[name][0] for run in found]) for name in found[0]},
        "first_window_cpu": summary([run["first_window"][1] for run in found]),
        "imported_before_the_recognizer": found[0].get("recognizer", [0, 0, None])[2],
    }
    text = json.dumps(result, indent=1) + "\n"
    if options.output:
        options.output.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
