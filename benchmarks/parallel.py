"""What it costs to find the speakers and the words at the same time.

    python benchmarks/parallel.py RECORDING [--rounds 3] [--output benchmarks/results/parallel_builtin.json]

Three ways in turn, each in a process of its own: the speakers alone, the words alone by one thread of
whisper.cpp, and both at once as `witness run` does it. "ratio" is the wall time of both over that of the
slower one alone. No schedule can be better than "bound": the slower one alone, or all the processor time of
the two alone shared out evenly among the cores. "cpu_ratio" is the processor time of both over the sum of the
two alone, which other programs on the machine hardly change. The words come from a model of tests/ggml.py, of
the width and layers of the published whisper models; it says at most a word a second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from witness.bench import child, machine
from witness.options import Options, Runtime

TESTS = Path(__file__).parents[1] / "tests"
SHAPES = {"tiny": (384, 4), "base": (512, 6), "small": (768, 12)}  # width, layers of encoder and decoder

WORDS = """
import sys, time
from witness.audio import decode
from witness.schema import ModelFile
from witness.recognition.recognizer import Recognizer

with Recognizer(ModelFile("m", sys.argv[2], ""), language="en", threads=1) as recognizer:
    (samples,) = audio.load(sys.argv[1]).samples
    recognizer.send(samples)
    recognizer.result()
"""


def words(recording: Path, model: Path) -> dict[str, float]:
    """whisper.cpp alone, with one thread."""
    begun = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", WORDS, str(recording), str(model)]) as child:
        _, status, used = os.wait4(child.pid, 0)  # with what it used through its own child
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"whisper.cpp ended with code {child.returncode}")
    return {"wall": time.perf_counter() - begun, "cpu": used.ru_utime + used.ru_stime}


def run(recording: Path, whisper: str, threads: int) -> dict[str, float]:
    """`witness` on the recording."""
    options = Options(models="builtin", whisper=whisper, language="en", offline=True, channels="mix")
    begun = time.perf_counter()
    reply = child.run(recording, options, Runtime(device="cpu", threads=threads))
    wall = time.perf_counter() - begun
    if problem := reply.get("crash") or reply.get("error") or reply["failure"]:
        sys.exit(f"{recording}: {problem}")
    return {"wall": wall, "cpu": reply["cpu"]["witness"] + reply["cpu"]["whisper"]}


def compare(recording: Path, model: Path, rounds: int, threads: int) -> dict[str, Any]:
    """Medians over the rounds, and what follows from them."""
    ways = {
        "speakers": lambda: run(recording, "none", threads),
        "words": lambda: words(recording, model),
        "both": lambda: run(recording, str(model), threads),
    }
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for turn in range(rounds):
        for way in list(ways)[:: 1 if turn % 2 == 0 else -1]:
            found[way].append(ways[way]())
    middle = {
        way: {what: round(median(one[what] for one in each), 2) for what in ("wall", "cpu")}
        for way, each in found.items()
    }
    slower = max(middle["speakers"]["wall"], middle["words"]["wall"])
    shared = (middle["speakers"]["cpu"] + middle["words"]["cpu"]) / threads
    return {
        **middle,
        "ratio": round(middle["both"]["wall"] / slower, 3),
        "bound": round(max(slower, shared) / slower, 3),
        "cpu_ratio": round(middle["both"]["cpu"] / shared / threads, 3),
        "walls": {way: [round(one["wall"], 2) for one in each] for way, each in found.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["tiny", "base"])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    import ggml

    result: dict[str, Any] = {
        "command": "python benchmarks/parallel.py RECORDING",
        "hardware": machine.hardware(),
        "versions": machine.versions(),
        "source_sha256": machine.source_sha256(),
        "threads": options.threads,
        "rounds": options.rounds,
        "load_before": machine.load(),
    }
    with TemporaryDirectory() as folder:
        for shape in options.shapes:
            width, layers = SHAPES[shape]
            model = ggml.write(Path(folder) / f"{shape}.bin", width=width, layers=layers)
            result[shape] = compare(options.recording, model, options.rounds, options.threads)
            model.unlink()
    result["load_after"] = machine.load()
    text = json.dumps(result, indent=1) + "\n"
    if options.output:
        options.output.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
