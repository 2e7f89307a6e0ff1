"""Witness: a transcript that says who spoke.

    recording ─ audio ─┬─ diarization ─────────────────────────────────────────────────┬─ transcript ─ formats
                       │  (segmentation ─ embedding ─ clustering ─ reconstruction)     │
                       └─ recognition (whisper.cpp, in a child process) ───────────────┘

`diarize` finds the speakers of a recording, `transcribe` their words as well; both give a `Transcript`.
Nothing heavy is imported before one of them is asked for.
"""

TYPE_CHECKING = False  # nothing is imported here at once: Ctrl-C meanwhile would print a traceback
if TYPE_CHECKING:
    from witness._version import __version__ as __version__
    from witness.errors import CancelledError as CancelledError
    from witness.errors import DeviceError as DeviceError
    from witness.errors import InputError as InputError
    from witness.errors import ModelError as ModelError
    from witness.errors import UsageError as UsageError
    from witness.errors import WitnessError as WitnessError
    from witness.options import Options as Options
    from witness.options import Runtime as Runtime
    from witness.pipeline import Engine as Engine
    from witness.pipeline import diarize as diarize
    from witness.pipeline import transcribe as transcribe
    from witness.schema import Transcript as Transcript
    from witness.work.produce import load as load
    from witness.work.produce import render as render
    from witness.work.produce import save as save

_HOMES = {
    "__version__": "witness._version",
    **dict.fromkeys(("diarize", "transcribe", "Engine"), "witness.pipeline"),
    **dict.fromkeys(("Options", "Runtime"), "witness.options"),
    "Transcript": "witness.schema",
    **dict.fromkeys(("load", "render", "save"), "witness.work.produce"),
    **dict.fromkeys(
        ("CancelledError", "DeviceError", "InputError", "ModelError", "UsageError", "WitnessError"),
        "witness.errors",
    ),
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'witness' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
