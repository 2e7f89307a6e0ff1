"""What can be said of a recognizer's model before it is loaded: the languages, and the memory of a GPU."""

from __future__ import annotations

from witness.errors import UsageError
from witness.languages import MULTI
from witness.models import ggml, own
from witness.options import Recognizer
from witness.schema import ModelFile

TRANSCRIBE_CPP = 160_000_000
"""Bytes that transcribe.cpp takes on a GPU beyond what whisper.cpp takes: 151 MB more were measured with
large-v3-turbo (docs/decisions/2026-11-22-vulkan.md)."""


def check(model: ModelFile, language: str | None, *, translate: bool) -> None:
    """Raise UsageError if a model knows English only and something else is asked for.

    A file that cannot be read passes: whoever loads it says what is wrong with it.
    """
    other = language not in (None, "en", MULTI) and "en" not in (language or "").split(",")
    if (other or translate) and own.english_only(model):
        problem = f"does not know the language {language!r}" if other else "cannot translate"
        raise UsageError(f"{model.name} {problem} (it knows only English); --whisper chooses another model")


def gpu_memory(model: ModelFile) -> int | None:
    """Bytes that the model's recognizer takes on a GPU, 0 if it uses none; None if the file tells nothing.

    whisper.cpp's follow the sizes that version 1.8.5 prints while it loads models of the six published
    shapes: keys and values (16 bits; 1536 positions of audio, and 512 of text, times 7 once a text must be
    tried again with five candidates), and buffers that grow with the width.
    """
    if model.engine in (Recognizer.CTRANSLATE2, Recognizer.ONNX_ASR):
        return 0
    if (found := ggml.read_header(model.path)) is None:
        return None
    header, size = found
    width, layers = header.text_state, header.text_layers
    needed = int(size + 4 * width * layers * (1536 + 7 * 512) + 100_000_000 + 340_000 * width)
    return needed + (TRANSCRIBE_CPP if model.engine == Recognizer.TRANSCRIBE_CPP else 0)
