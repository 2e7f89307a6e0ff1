"""Which recognizer can use a GPU here.

As a child process (`python -m witness.recognition.gpus`) it lists transcribe.cpp's devices, for a driver can
end the process that asks it: {} -> {"version": text, "devices": [{"name", "kind", "type"}, ...]}.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from witness.child import Buffer, Child, ChildError, Limits, Message, serve
from witness.models import engines
from witness.options import Recognizer

LIMIT = 20.0
"""Seconds; a driver takes less than one."""


@cache
def recognizer() -> Recognizer | None:
    """The recognizer that `--recognizer auto` runs on a GPU of this machine; None: there is none."""
    if has_gpu_backend():
        return Recognizer.WHISPER_CPP
    if Recognizer.TRANSCRIBE_CPP not in engines.installed():
        return None
    able = [device for device in devices().get("devices", ()) if not _crashes(device)]
    kinds = {device["type"] for device in able if device["kind"] == "vulkan"}
    asked = bool(os.environ.get("GGML_VK_VISIBLE_DEVICES"))
    return Recognizer.TRANSCRIBE_CPP if kinds & {"gpu", "igpu"} or (kinds and asked) else None


def _crashes(device: dict[str, str]) -> bool:
    """Whether AMD's own driver for Windows is known to crash with it: on the graphics of its processors.

    Reported with its versions 31.0.21925.1001 (Ryzen 3 4300U: handy-computer/transcribe.cpp#163, 2026-09-15)
    and 32.0.21045.5002 (cjpais/Handy#2007, 2026-09-03), and on a 780M (modelscope/FunASR#3479, 2026-08-29).
    """
    amd = re.search(r"AMD|Radeon", device["name"], re.IGNORECASE)
    return sys.platform == "win32" and device["type"] == "igpu" and amd is not None


def has_gpu_backend() -> bool:
    """Whether this whisper.cpp was built to use a GPU, be there one or not. Loads nothing."""
    spec = find_spec("_pywhispercpp")
    if spec is None or spec.origin is None:
        return False
    if sys.platform == "darwin" and os.uname().machine == "arm64":
        return True  # Metal is built in, without a file of its own
    home = Path(spec.origin).parent
    libraries = [path for folder in (home, home / "pywhispercpp.libs") for path in folder.glob("*ggml-*")]
    return any(re.search(r"ggml-(vulkan|cuda|hip|sycl|metal)", path.name) for path in libraries)


def devices() -> dict[str, Any]:
    """What transcribe.cpp finds, as the child says it; {"error": line} whatever goes wrong."""
    try:
        with Child(__name__) as child:
            return child.ask({}, limits=Limits(LIMIT))[0]
    except (ChildError, OSError) as error:
        return {"error": str(error)}


def _answer(_request: Message, _payload: bytes) -> tuple[Message, Sequence[Buffer]]:
    import transcribe_cpp

    found = [
        {"name": device.description, "kind": device.kind, "type": device.device_type}
        for device in transcribe_cpp.backends()
    ]
    return {"version": transcribe_cpp.native_version(), "devices": found}, ()


if __name__ == "__main__":
    serve(_answer)
