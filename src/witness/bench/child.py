"""One recording in a process of its own, for the benchmarks.

A crash costs one recording, and memory and processor time are this recording's alone. The child gets a JSON
document with "path", "options", "runtime" and "profile" on stdin, and gives one with what was found and what
it cost, or with "error" and its "exit_code", on stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from witness import tracing
from witness.bench import machine
from witness.errors import WitnessError
from witness.options import Options, Runtime
from witness.pipeline import transcribe
from witness.schema import Transcript

COMMAND = [sys.executable, "-m", "witness.bench.child"]


def run(path: Path, options: Options, runtime: Runtime, *, profile: bool = False) -> dict[str, Any]:
    """What `_measure` gives, from a child; with `profile`, onnxruntime traces meanwhile.

    If `transcribe` raised an error of ours, "error" and "exit_code"; if the child died, "crash" says how.
    """
    request = {
        "path": str(path.absolute()),
        "options": asdict(options),
        "runtime": asdict(runtime),
        "profile": profile,
    }
    pipe = subprocess.PIPE
    # As in cli.main, which this child does not go through.
    environment = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **os.environ}
    # `python -m` looks for modules in the current folder first: not in the user's, who may have a queue.py.
    home = Path(__file__).parents[2]
    with subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, stderr=pipe, cwd=home, env=environment) as child:
        try:
            out, err = child.communicate(json.dumps(request).encode())
        except BaseException:
            child.kill()
            raise
    try:
        reply: dict[str, Any] = json.loads(out)
    except ValueError:
        last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it printed nothing"]
        return {"crash": f"the process ended with code {child.returncode} ({last[0][:200]})"}
    return reply  # whatever its exit code: a driver may abort after all is done


def _measure(path: str, options: Options, runtime: Runtime, profile: bool) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) if profile else None
        trace = stack.enter_context(tracing.recording(folder))
        begun = time.perf_counter()
        transcript = transcribe(path, options, runtime)
        if profile:
            trace.document()
        wall = time.perf_counter() - begun
    used = os.times()
    return {
        **_found(transcript),
        "wall": wall,
        "cpu": {"witness": time.process_time(), "whisper": used.children_user + used.children_system},
        "peak_memory_mb": machine.peak_memory(),
        "whisper_peak_memory_mb": machine.peak_memory(children=True) if transcript.words else None,
        "spans": [asdict(span) for span in trace.spans],
        "calls": [asdict(call) for call in trace.calls],
    }


def _found(transcript: Transcript) -> dict[str, Any]:
    return {
        "audio": asdict(transcript.audio),
        "models": {role: model and model.sha256 for role, model in transcript.models.items()},
        "device": transcript.device,
        "timing": transcript.timing,
        "turns": [[turn.start, turn.end, turn.speaker] for turn in transcript.turns],
        "words": len(transcript.words),
        "warnings": list(transcript.warnings),
        "failure": None if transcript.failure is None else str(transcript.failure),
    }


def main() -> None:
    request = json.load(sys.stdin)
    try:
        reply = _measure(
            request["path"], Options(**request["options"]), Runtime(**request["runtime"]), request["profile"]
        )
    except WitnessError as error:
        reply = {"error": str(error), "exit_code": error.exit_code}
    json.dump(reply, sys.stdout)
    sys.stdout.flush()  # a driver may abort while it is torn down


if __name__ == "__main__":
    main()
