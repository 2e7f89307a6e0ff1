"""Which recognizers there are, which of them are installed, and which one is used."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec

from witness._version import install
from witness.errors import UsageError
from witness.options import Recognizer

MODULES = {
    Recognizer.WHISPER_CPP: ("pywhispercpp",),
    Recognizer.CTRANSLATE2: ("ctranslate2",),
    Recognizer.ONNX_ASR: ("onnx_asr",),
    Recognizer.TRANSCRIBE_CPP: ("transcribe_cpp", "ctranslate2", "tokenizers"),
}
"""Recognizer -> the Python modules that it needs."""
INSTALL = {
    Recognizer.WHISPER_CPP: "pip install pywhispercpp",
    Recognizer.CTRANSLATE2: install("words"),
    Recognizer.ONNX_ASR: install("parakeet"),
    Recognizer.TRANSCRIBE_CPP: install("vulkan"),
}
"""Recognizer -> what installs it."""


def installed() -> tuple[Recognizer, ...]:
    """The recognizers whose modules are installed; none of them is imported."""
    return tuple(engine for engine, modules in MODULES.items() if all(map(find_spec, modules)))


def usual(gpu: str | None, available: Collection[str]) -> Recognizer:
    """What `--recognizer auto` stands for where `available` can run.

    `gpu` is the recognizer that can use a GPU here, if any (`recognition.gpus.recognizer`).
    """
    if gpu:
        return Recognizer(gpu)
    if Recognizer.CTRANSLATE2 in available:
        return Recognizer.CTRANSLATE2
    return Recognizer.WHISPER_CPP


def format_of(engine: str) -> Recognizer:
    """The recognizer whose model files this one reads."""
    return Recognizer.WHISPER_CPP if engine == Recognizer.TRANSCRIBE_CPP else Recognizer(engine)


def require(engine: Recognizer, available: Collection[str], who: str) -> None:
    """Raise UsageError, saying who asks for it and how to install it, if a recognizer cannot run."""
    if engine not in available:
        raise UsageError(f"{who} asks for {engine}, which is not installed; run: {INSTALL[engine]}")
