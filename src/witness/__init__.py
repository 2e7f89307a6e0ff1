"""Witness: a transcript that says who spoke.

    recording ─ audio ─┬─ segmentation ─ embedding ─ clustering ─ reconstruction ─┐
                       └─ transcription (whisper.cpp, in a child process) ────────┴─ merging ─ writers

`diarize` finds the speakers of a recording, `transcribe` their words as well; both give a `Transcript`.
Nothing heavy is imported before one of them is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from witness._version import __version__

if TYPE_CHECKING:
    from witness.pipeline import Options as Options
    from witness.pipeline import diarize as diarize
    from witness.pipeline import transcribe as transcribe
    from witness.schema import Transcript as Transcript
    from witness.sessions import Runtime as Runtime

__all__ = ["Options", "Runtime", "Transcript", "__version__", "diarize", "transcribe"]

_HOMES = {
    "Options": "witness.pipeline",
    "Runtime": "witness.sessions",
    "Transcript": "witness.schema",
    "diarize": "witness.pipeline",
    "transcribe": "witness.pipeline",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'witness' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
