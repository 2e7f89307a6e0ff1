"""The recognizers: their modules, their installation, and the choice of `--recognizer auto`."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec

from witness._version import install, pip_install
from witness.errors import UsageError
from witness.options import Recognizer

MODULES = {
    Recognizer.WHISPER_CPP: ("pywhispercpp",),
    Recognizer.CTRANSLATE2: ("ctranslate2",),
    Recognizer.ONNX_ASR: ("onnx_asr",),
    Recognizer.TRANSCRIBE_CPP: ("transcribe_cpp", "ctranslate2", "tokenizers"),
}
"""Recognizer -> the Python modules that it needs."""
EXTRAS = {
    Recognizer.CTRANSLATE2: "words",
    Recognizer.ONNX_ASR: "parakeet",
    Recognizer.TRANSCRIBE_CPP: "vulkan",
}
"""Recognizer -> the extra that brings it; whisper.cpp needs none."""


def installed() -> tuple[Recognizer, ...]:
    """Return the recognizers whose modules are installed, without importing them."""
    return tuple(engine for engine, modules in MODULES.items() if all(map(find_spec, modules)))


def install_command(engine: Recognizer, *flags: str) -> str:
    extra = EXTRAS.get(engine)
    return install(extra, *flags) if extra else pip_install(*flags, "pywhispercpp")


def choose_recognizer(gpu: str | None, available: Collection[str]) -> Recognizer:
    """Return the recognizer of `--recognizer auto` if `available` can run.

    `gpu` is the recognizer that can use a GPU here, if any (`recognition.gpus.recognizer`).
    """
    if gpu:
        return Recognizer(gpu)
    if Recognizer.CTRANSLATE2 in available:
        return Recognizer.CTRANSLATE2
    return Recognizer.WHISPER_CPP


def format_of(engine: str) -> Recognizer:
    """Return the recognizer whose model files `engine` reads."""
    return Recognizer.WHISPER_CPP if engine == Recognizer.TRANSCRIBE_CPP else Recognizer(engine)


def require(engine: Recognizer, available: Collection[str], asker: str) -> None:
    """Raise UsageError, naming the asker and the installing command, if a recognizer cannot run."""
    if engine not in available:
        raise UsageError(f"{asker} asks for {engine}, which is not installed; run: {install_command(engine)}")
