"""The user's own model files: hashed, and called by the catalogue's name if it knows them."""

from __future__ import annotations

import os
from pathlib import Path

from witness.errors import ModelError
from witness.models import catalogue, ct2_header, ggml_header
from witness.options import Recognizer
from witness.schema import ModelFile
from witness.storage import files

FORMATS = (
    "a ggml file for whisper.cpp, a folder with model.bin for CTranslate2, "
    "or one with *.onnx and vocab.txt for onnx-asr"
)
LARGEST_VOCABULARY = 4 << 20
"""Bytes of a vocab.txt; that of Canary, with 16,384 tokens, has 0.3 MB."""


def is_path(choice: str) -> bool:
    # Not Path.exists, which raises for names that no file can have.
    return "/" in choice or os.sep in choice or choice.endswith(".bin") or os.path.exists(choice)  # noqa: PTH110


def read_model(path: Path, name: str) -> ModelFile:
    """Return the model in a file, called `name` unless the catalogue knows its sha256. Raises ModelError."""
    if path.exists() and not path.is_file():  # reading a pipe might never end
        raise ModelError(f"the model {path} is not a file; give one")
    try:
        sha256 = files.sha256_at(path)
    except OSError as error:
        raise ModelError(
            f"cannot read the model {path} ({error.strerror}); give a file that can be read"
        ) from error
    entry = catalogue.find_by_sha256(sha256)
    return ModelFile(entry.name if entry else name, str(path.absolute()), sha256)


def read_recognizer(path: Path) -> ModelFile:
    """Return the speech recognition model at `path`, a file or a folder. Raises ModelError."""
    try:
        if not path.is_dir():
            file = read_model(path, path.name)
            return ModelFile(file.name, file.path, file.sha256, Recognizer.WHISPER_CPP)
        names = {file.name for file in path.iterdir()}
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ModelError(f"cannot read the model {path} ({why}); give one that can be read") from error
    if ct2_header.WEIGHTS in names:
        ct2_header.inspect(path)
        engine, weights = Recognizer.CTRANSLATE2, path / ct2_header.WEIGHTS
    elif "vocab.txt" in names:
        engine, weights = Recognizer.ONNX_ASR, _encoder(path)
    else:
        raise ModelError(f"no model in the folder {path}; give {FORMATS}")
    file = read_model(weights, path.absolute().name)
    return ModelFile(file.name, str(path.absolute()), file.sha256, engine)


def english_only(model: ModelFile) -> bool:
    """Return true if a recognizer's model knows English only. An unreadable file passes: the recognizer that
    loads it reports the fault."""
    if model.engine in (Recognizer.WHISPER_CPP, Recognizer.TRANSCRIBE_CPP):
        header = ggml_header.read_header(model.path)
        return header is not None and header[0].languages == 1
    if model.engine == Recognizer.CTRANSLATE2:
        try:
            return not ct2_header.inspect(Path(model.path)).multilingual
        except ModelError:
            return False
    return False


def _encoder(folder: Path) -> Path:
    _check_vocabulary(folder / "vocab.txt")
    graphs = sorted(path for path in folder.glob("*.onnx") if path.stat().st_size)
    # Quantized to int8 these models lose words (onnx-asr #126, sherpa-onnx #2605).
    whole = [path for path in graphs if "int8" not in path.name]
    if graphs and not whole:
        raise ModelError(f"{folder} has int8 weights only, which lose words; download the other *.onnx files")
    encoders = [path for path in whole if "encoder" in path.name] or [
        path for path in whole if path.stem.startswith("model")
    ]
    if not encoders:
        raise ModelError(f"no encoder in {folder}; download encoder-model.onnx or model.onnx again")
    return min(encoders, key=lambda path: len(path.name))


def _check_vocabulary(path: Path) -> None:
    """Raise ModelError unless every line is a token and its number, all numbers from 0 on."""
    try:
        if path.stat().st_size > LARGEST_VOCABULARY:
            raise ValueError
        lines = files.read(path).decode("utf-8").rstrip("\n").split("\n")
        numbers = sorted(int(line.rpartition(" ")[2]) for line in lines)
        if numbers != list(range(len(numbers))):
            raise ValueError
    except OSError as error:
        raise ModelError(f"cannot read {path} ({error.strerror}); download the model again") from error
    except ValueError as error:
        raise ModelError(
            f"{path} is not a vocabulary of onnx-asr (token and number, one a line); download the model again"
        ) from error
