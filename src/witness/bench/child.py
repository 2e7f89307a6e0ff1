"""One recording in a child process, for the benchmarks.

A crash costs one recording, and memory and processor time are this recording's alone. The child's request and
reply, as `witness.child` carries them:

    {"path", "options", "runtime", "profile"}  ->  {"measured": a Measurement}
                                                   {"measured": {"error": line, "exit_code": n}}
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from witness import tracing
from witness.bench import machine
from witness.bench.measurement import Failure, Measurement, ProcessorTime
from witness.child import Buffer, Child, DiedError, Message, RefusedError, serve
from witness.errors import WitnessError
from witness.options import Options, Runtime
from witness.pipeline import transcribe

MODULE = "witness.bench.child"
"""What the child runs."""


def run(path: Path, options: Options, runtime: Runtime, *, profile: bool = False) -> Measurement | Failure:
    """Transcribe the recording at `path` in a child; with `profile`, onnxruntime writes its traces, too."""
    request = {
        "path": str(path.absolute()),
        "options": asdict(options),
        "runtime": asdict(runtime),
        "profile": profile,
    }
    with Child(MODULE) as child:
        try:
            reply = child.ask(request)[0]["measured"]
        except DiedError as error:
            return Failure(f"the process ended with {error}{error.last_words}")
        except RefusedError as error:
            return Failure(f"the process failed ({error})")
    # However the process ends: a driver may abort after all is done.
    if "error" in reply:
        return Failure(reply["error"], reply["exit_code"])
    return Measurement.from_json(reply)


def _measure(path: str, options: Options, runtime: Runtime, profile: bool) -> Measurement:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory())) if profile else None
        trace = stack.enter_context(tracing.recording(folder))
        begun = time.perf_counter()
        transcript = transcribe(path, options, runtime)
        if profile:
            trace.document()
        wall = time.perf_counter() - begun
    used = os.times()
    return Measurement(
        audio=transcript.audio,
        models={role: model.sha256 if model else None for role, model in transcript.models.items()},
        device=transcript.device,
        timing=transcript.timing,
        turns=transcript.turns,
        words=len(transcript.words),
        warnings=transcript.warnings,
        failure=None if transcript.failure is None else str(transcript.failure),
        wall=wall,
        cpu=ProcessorTime(time.process_time(), used.children_user + used.children_system),
        peak_memory_mb=machine.peak_memory(),
        whisper_peak_memory_mb=machine.peak_memory(children=True) if transcript.words else None,
        spans=tuple(trace.spans),
        calls=tuple(trace.calls),
    )


def _answer(request: Message, _: bytes) -> tuple[Message, Sequence[Buffer]]:
    try:
        options, runtime = Options(**request["options"]), Runtime(**request["runtime"])
        measured = _measure(request["path"], options, runtime, request["profile"]).to_json()
    except WitnessError as error:
        measured = {"error": str(error), "exit_code": error.exit_code}
    return {"measured": measured}, ()


if __name__ == "__main__":
    serve(_answer)
