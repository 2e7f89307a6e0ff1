"""Which recognizers there are, which of them are installed, and which one is used."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec

from witness.errors import UsageError
from witness.options import Recognizer

MODULES = {
    Recognizer.WHISPER_CPP: "pywhispercpp",
    Recognizer.CTRANSLATE2: "ctranslate2",
    Recognizer.ONNX_ASR: "onnx_asr",
}
"""Recognizer -> the Python module that it needs."""
INSTALL = {
    Recognizer.WHISPER_CPP: "pip install pywhispercpp",
    Recognizer.CTRANSLATE2: "pip install 'witness[words]'",
    Recognizer.ONNX_ASR: "pip install 'witness[parakeet]'",
}
"""Recognizer -> what installs it."""


def installed() -> tuple[Recognizer, ...]:
    """The recognizers whose modules are installed; none of them is imported."""
    return tuple(engine for engine, module in MODULES.items() if find_spec(module))


def usual(gpu: bool, available: Collection[str]) -> Recognizer:
    """What `--recognizer auto` stands for where `available` can run.

    `gpu` means that whisper.cpp was built for a GPU.
    """
    if Recognizer.CTRANSLATE2 in available and not gpu:
        return Recognizer.CTRANSLATE2
    return Recognizer.WHISPER_CPP


def require(engine: Recognizer, available: Collection[str], who: str) -> None:
    """Raise UsageError, saying who asks for it and how to install it, if a recognizer cannot run."""
    if engine not in available:
        raise UsageError(f"{who} asks for {engine}, which is not installed; run: {INSTALL[engine]}")
