"""The recognizer that can use a GPU here, and the memory that it takes.

As a child process (`python -m witness.recognition.gpus`) it lists transcribe.cpp's devices, for a driver can
kill the process that asks it: {} -> {"version": text, "devices": [{"name", "kind", "type"}, ...]}.
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

from witness.child import Buffer, Message, ask_once, serve
from witness.models import ggml_header, recognizers
from witness.options import Recognizer
from witness.schema import ModelFile

LIMIT = 20.0
"""Seconds; a driver takes less than one."""
TRANSCRIBE_CPP = 160_000_000
"""Bytes on a GPU of transcribe.cpp beyond those of whisper.cpp: 151 MB more were measured with large-v3-turbo
(docs/decisions/2026-11-22-vulkan.md)."""


@cache
def recognizer() -> Recognizer | None:
    """Return the recognizer that `--recognizer auto` runs on a GPU of this machine; None: the CPU."""
    if has_gpu_backend():
        return Recognizer.WHISPER_CPP
    if Recognizer.TRANSCRIBE_CPP not in recognizers.installed():
        return None
    usable = [device for device in devices().get("devices", ()) if not _crashes(device)]
    types = {device["type"] for device in usable if device["kind"] == "vulkan"}
    named = bool(os.environ.get("GGML_VK_VISIBLE_DEVICES"))
    return Recognizer.TRANSCRIBE_CPP if types & {"gpu", "igpu"} or (types and named) else None


def _crashes(device: dict[str, str]) -> bool:
    """Return whether AMD's own driver for Windows crashes with a device: the graphics of its processors.

    Reported with its versions 31.0.21925.1001 (Ryzen 3 4300U: handy-computer/transcribe.cpp#163, 2026-09-15)
    and 32.0.21045.5002 (cjpais/Handy#2007, 2026-09-03), and on a 780M (modelscope/FunASR#3479, 2026-08-29).
    """
    amd = re.search(r"AMD|Radeon", device["name"], re.IGNORECASE)
    return sys.platform == "win32" and device["type"] == "igpu" and amd is not None


def has_gpu_backend() -> bool:
    """Return whether this whisper.cpp was built with a GPU backend. Loads nothing."""
    spec = find_spec("_pywhispercpp")
    if spec is None or spec.origin is None:
        return False
    if sys.platform == "darwin" and os.uname().machine == "arm64":
        return True  # Metal is built in, without a file of its own
    home = Path(spec.origin).parent
    libraries = [path for folder in (home, home / "pywhispercpp.libs") for path in folder.glob("*ggml-*")]
    return any(re.search(r"ggml-(vulkan|cuda|hip|sycl|metal)", path.name) for path in libraries)


def devices() -> dict[str, Any]:
    """Return transcribe.cpp's devices as the child lists them; {"error": line} after any failure."""
    return ask_once(__name__, {}, LIMIT)


def memory(model: ModelFile) -> int | None:
    """Return the bytes that the model's recognizer takes on a GPU, 0 if it uses none; None: unknown.

    whisper.cpp's follow the sizes that version 1.8.5 prints while it loads models of the six published
    shapes: keys and values (16 bits; 1536 positions of audio, and 512 of text, times 7 once a text must be
    tried again with five candidates), and buffers that grow with the width.
    """
    if model.engine in (Recognizer.CTRANSLATE2, Recognizer.ONNX_ASR):
        return 0
    if (header := ggml_header.read_header(model.path)) is None:
        return None
    shape, size = header
    width, layers = shape.text_state, shape.text_layers
    needed = int(size + 4 * width * layers * (1536 + 7 * 512) + 100_000_000 + 340_000 * width)
    return needed + (TRANSCRIBE_CPP if model.engine == Recognizer.TRANSCRIBE_CPP else 0)


def _answer(_request: Message, _payload: bytes) -> tuple[Message, Sequence[Buffer]]:
    import transcribe_cpp

    listed = [
        {"name": device.description, "kind": device.kind, "type": device.device_type}
        for device in transcribe_cpp.backends()
    ]
    return {"version": transcribe_cpp.native_version(), "devices": listed}, ()


if __name__ == "__main__":
    serve(_answer)
