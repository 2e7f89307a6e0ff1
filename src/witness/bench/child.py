"""One recording in a process of its own, for the benchmarks.

A crash costs one recording, and memory and processor time are this recording's alone. The child's request and
reply, as `witness.child` carries them:

    {"path", "options", "runtime", "profile"}  ->  {"measured": what was found and what it cost}
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
from typing import Any

from witness import tracing
from witness.bench import machine
from witness.child import Buffer, Child, DiedError, Message, RefusedError, serve
from witness.errors import WitnessError
from witness.options import Options, Runtime
from witness.pipeline import transcribe
from witness.schema import Transcript

MODULE = "witness.bench.child"
"""What the child runs."""


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
    with Child(MODULE) as child:
        try:
            measured: dict[str, Any] = child.ask(request)[0]["measured"]
        except DiedError as error:
            return {"crash": f"the process ended with {error}{error.last_words}"}
        except RefusedError as error:
            return {"crash": f"the process failed ({error})"}
    return measured  # however the process ends: a driver may abort after all is done


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


def _answer(request: Message, _: bytes) -> tuple[Message, Sequence[Buffer]]:
    try:
        measured = _measure(
            request["path"], Options(**request["options"]), Runtime(**request["runtime"]), request["profile"]
        )
    except WitnessError as error:
        measured = {"error": str(error), "exit_code": error.exit_code}
    return {"measured": measured}, ()


if __name__ == "__main__":
    serve(_answer)
