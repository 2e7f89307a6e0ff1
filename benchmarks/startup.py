"""How soon `witness` answers, and how soon it begins to work.

    python benchmarks/startup.py [--runs 15] [--json benchmarks/results/startup_builtin.json]

"help": wall time of `witness --help`. "first_window": from the start of the process until the first window of
a recording of one minute has been segmented; on the way there, when the recognizer's process was started and
the audio decoded. The recording is tests/data/call.flac, the models are the builtin ones. The recognizer's
model is not a real one, because only its process matters. Medians, lowest and highest of all runs; the
processor time up to the first window says how long it would take on an idle machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harness

CHILD = """
import json, subprocess, sys, time
from contextlib import contextmanager
from witness import tracing
from witness.progress import Reporter
from witness.cli import options

stations = {}

class Popen(subprocess.Popen):
    def __init__(self, command, *args, **kwargs):
        if "witness.recognition.whisper_cpp" in command:
            heavy = {"numpy", "av", "onnx", "onnxruntime", "scipy", "soxr", "rich"} & set(sys.modules)
            stations["recognizer"] = [time.perf_counter(), time.process_time(), sorted(heavy)]
        super().__init__(command, *args, **kwargs)

subprocess.Popen = Popen

def progress(stage, done, total):
    if stage == "segmentation" and done > 0:
        stations.setdefault("first_window", [time.perf_counter(), time.process_time()])

@contextmanager
def heard(quiet):
    yield Reporter(progress)

options.progress = heard
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
    command = [
        sys.executable,
        "-c",
        CHILD,
        str(out),
        "run",
        str(harness.CALL),
        "--models",
        "builtin",
        "--offline",
    ]
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


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        helps = [help_time() for _ in range(options.runs)]
        found = [first_window(Path(folder)) for _ in range(options.runs)]
    result = {
        "command": "python benchmarks/startup.py",
        "runs": options.runs,
        "help": harness.spread(helps, 3),
        **{name: harness.spread([run[name][0] for run in found], 3) for name in found[0]},
        "first_window_cpu": harness.spread([run["first_window"][1] for run in found], 3),
        "imported_before_the_recognizer": found[0].get("recognizer", [0, 0, None])[2],
    }
    harness.show(result, options.json)


if __name__ == "__main__":
    main()
