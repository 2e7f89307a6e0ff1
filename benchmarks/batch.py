"""What a batch costs besides its models, and how well it keeps the cores busy.

    python benchmarks/batch.py busy [--recordings 200] [--seconds 20]
    python benchmarks/batch.py tiny [--recordings 10000]

`busy`: many short recordings, cut from tests/data/call.flac. The share of the cores that was used after
startup, from the first finished recording to the last: processor time of all processes of the batch divided
by wall time and cores. On a machine that is busy with other things this says little; `wanted` is the share of
the cores for which the batch had a thread that was running or ready to run, sampled every 20 ms.

`tiny`: recordings of 0.1 s. The time of each outside the models (wall time minus that inside onnxruntime, one
worker), and the peak memory and most open files of the worker and its parent in the first tenth and in all.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import harness
import numpy as np
import soundfile

CALL = Path(__file__).parents[1] / "tests" / "data" / "call.flac"
CORES = len(os.sched_getaffinity(0))

COUNT_MODELS = """
import sys
if "witness.work.worker" in sys.orig_argv:
    import os, threading, time
    import onnxruntime
    spent, lock = 0.0, threading.Lock()
    file = os.open(os.environ["WITNESS_MODELS_TIME"], os.O_WRONLY | os.O_CREAT)
    class Session(onnxruntime.InferenceSession):
        def run(self, *args, **kwargs):
            global spent
            begun = time.perf_counter()
            try:
                return super().run(*args, **kwargs)
            finally:
                with lock:
                    spent += time.perf_counter() - begun
                    os.pwrite(file, f"{spent:20.6f}".encode(), 0)
    onnxruntime.InferenceSession = Session
"""


def main() -> None:
    """Run one of the two and print its figures as JSON."""
    parser = harness.options(__doc__)
    parser.add_argument("what", choices=["busy", "tiny"])
    parser.add_argument("--recordings", type=int)
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what == "busy":
            found = busy(Path(folder), arguments.recordings or 200, arguments.seconds)
        else:
            found = tiny(Path(folder), arguments.recordings or 10_000)
    document = {"machine": platform.processor() or platform.machine(), "cores": CORES, **found}
    harness.show(document, arguments.json)


def busy(folder: Path, count: int, seconds: float) -> dict[str, Any]:
    """Share of the cores that a batch uses."""
    samples, rate = soundfile.read(CALL, dtype="float32")
    length = int(seconds * rate)
    (folder / "in").mkdir()
    for number in range(count):
        first = int(number * 0.173 * rate) % (len(samples) - length)
        soundfile.write(folder / "in" / f"{number:04d}.flac", samples[first : first + length], rate)
    process = start(folder, [], {})
    manifest = folder / "out" / "manifest.jsonl"
    marks: list[tuple[int, float, float]] = []  # recordings, wall, processor
    wanted: list[int] = []
    while process.poll() is None:
        if len(wanted) % 10 == 0:
            done = manifest.read_bytes().count(b"\n") if manifest.exists() else 0
            marks.append((done, time.perf_counter(), used(process.pid)))
        wanted.append(min(CORES, runnable(process.pid)) if 1 <= marks[-1][0] < count - 1 else -1)
        time.sleep(0.02)
    first = next(mark for mark in marks if mark[0] >= 1)
    # The last recordings do not keep all cores busy.
    last = [mark for mark in marks if mark[0] < count - CORES][-1]
    wall, processor = (after - before for before, after in zip(first[1:], last[1:], strict=True))
    return {
        "recordings": count,
        "seconds_of_each": seconds,
        "wall": round(wall, 2),
        "share_of_cores": round(processor / wall / CORES, 3),
        "wanted": round(float(np.mean([n for n in wanted if n >= 0])) / CORES, 3),
        "times_real_time": round((last[0] - first[0]) * seconds / wall, 1),
        "load_of_machine": os.getloadavg()[0],
    }


def tiny(folder: Path, count: int) -> dict[str, Any]:
    """Time of a recording outside the models, and memory."""
    (folder / "in").mkdir()
    noise = np.random.default_rng(0).normal(0, 0.05, 800 + count)
    for number in range(count):
        soundfile.write(folder / "in" / f"{number:05d}.wav", noise[number : number + 800], 8000)
    (folder / "injected").mkdir()
    (folder / "injected" / "sitecustomize.py").write_text(COUNT_MODELS)
    path = os.pathsep.join([str(folder / "injected"), os.environ.get("PYTHONPATH", "")])
    clock = folder / "models"
    process = start(folder, ["--jobs", "1"], {"PYTHONPATH": path, "WITNESS_MODELS_TIME": str(clock)})
    manifest = folder / "out" / "manifest.jsonl"
    memory: list[tuple[int, int]] = []
    opened: list[tuple[int, int]] = []
    begun, first = (0.0, 0.0, 0.0), 0
    while process.poll() is None:
        done = manifest.read_bytes().count(b"\n") if manifest.exists() else 0
        if done and not first:
            begun, first = (time.perf_counter(), used(process.pid), spent(clock)), done
        if done:
            memory.append((done, harness.resident(process.pid)))
            opened.append((done, harness.open_files(process.pid)))
            if done < count:  # or the worker is gone already, and its processor time with it
                end = (time.perf_counter(), used(process.pid), spent(clock)), done
        time.sleep(0.5)
    wall, processor, models = (after - before for before, after in zip(begun, end[0], strict=True))
    done = end[1] - first

    def most(samples: list[tuple[int, int]], until: int) -> int:
        return max(size for at, size in samples if at <= max(until, samples[0][0]))

    return {
        "recordings": count,
        "ms_of_each": round(1000 * wall / done, 2),
        "ms_outside_models": round(1000 * (wall - models) / done, 2),
        "ms_processor": round(1000 * processor / done, 2),
        "peak_mb_first_tenth": round(most(memory, count // 10) / 1e6, 1),
        "peak_mb": round(most(memory, count) / 1e6, 1),
        "open_files_first_tenth": most(opened, count // 10),
        "open_files": most(opened, count),
        "load_of_machine": os.getloadavg()[0],
    }


def start(folder: Path, more: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "witness", "batch", "in", "-o", "out", "--whisper", "none", "-q"]
    command += ["--models", "builtin", "--offline", *more]
    return subprocess.Popen(command, cwd=folder, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)


def used(pid: int) -> float:
    """Seconds of processor time that a process and its descendants have used so far."""
    processor = 0.0
    for member in harness.family(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
            processor += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return processor


def runnable(pid: int) -> int:
    """Threads of a process and its descendants that are running or ready to run."""
    count = 0
    for member in harness.family(pid):
        for task in Path(f"/proc/{member}/task").glob("*/stat"):
            with suppress(OSError):
                count += task.read_text().rsplit(")", 1)[1].split()[0] == "R"
    return count


def spent(clock: Path) -> float:
    """Seconds inside onnxruntime by the worker's own count."""
    try:
        return float(clock.read_text())
    except (OSError, ValueError):
        return 0.0


if __name__ == "__main__":
    main()
