"""The header of a Whisper model in CTranslate2's format, read and checked without CTranslate2.

CTranslate2 checks nothing: a wrong number makes it allocate any amount of memory, or read past the end. So
every folder goes through `inspect` before an engine sees it.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from witness.errors import ModelError
from witness.models.ggml_header import ENGLISH_ONLY, plausible
from witness.storage import files

WEIGHTS, CONFIG, TOKENIZER = "model.bin", "config.json", "tokenizer.json"
VOCABULARIES = ("vocabulary.json", "vocabulary.txt")
"""A folder has one of them, the former if it was made by a newer converter."""
END_OF_TEXT = "<|endoftext|>"
"""The first special token of the vocabulary."""
LARGEST = {CONFIG: 1 << 20, TOKENIZER: 64 << 20, **dict.fromkeys(VOCABULARIES, 64 << 20)}
"""Bytes of the small files; the largest published ones are 16 times smaller."""

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BYTES = {chr(byte): byte for byte in _PRINTABLE}
"""Character -> byte, in the tokens of GPT-2 and Whisper: printable bytes stand for themselves, the others are
the characters from U+0100 on, in order."""
BYTES |= {chr(256 + number): byte for number, byte in enumerate(sorted({*range(256)} - {*_PRINTABLE}))}

SPEC = "WhisperSpec"
VERSION = 6
"""Of the file format: every CTranslate2 that knows Whisper writes it, up to 4.8."""
SIZES = (4, 1, 2, 4, 2, 2)
"""CTranslate2's number of a type -> bytes of an element: float32, int8, int16, int32, float16, bfloat16."""
MOST_VARIABLES = 20_000
"""The largest published model, large-v3, has 2,000 when it is quantized."""


@dataclass(frozen=True)
class Variable:
    """An array in a file: its shape, CTranslate2's number of its type, and the position of its bytes."""

    shape: tuple[int, ...]
    type: int
    start: int

    @property
    def size(self) -> int:
        """In bytes."""
        return SIZES[self.type] * math.prod(self.shape)


class _HeaderReader:
    """Numbers and strings of a file, one after the other. Raises ValueError if they do not fit."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data = data
        self.position = 0

    def numbers(self, form: str) -> tuple[int, ...]:
        try:
            values: tuple[int, ...] = struct.unpack_from(f"<{form}", self.data, self.position)
        except struct.error as error:
            raise ValueError("the file ends too early") from error
        self.position += struct.calcsize(f"<{form}")
        return values

    def string(self) -> str:
        (length,) = self.numbers("H")
        raw = self.data[self.position : self.position + length]
        if len(raw) < length or not raw.endswith(b"\0"):
            raise ValueError("a name has no end")
        self.position += length
        return raw[:-1].decode("ascii")  # UnicodeDecodeError is a ValueError


def read_variables(data: bytes | mmap.mmap) -> Mapping[str, Variable]:
    """Return every variable of a model.bin by its name, after a walk through the whole file.

    Raises ValueError naming the fault: another format, or numbers that contradict each other.
    """
    reader = _HeaderReader(data)
    (version,) = reader.numbers("I")
    if version != VERSION:
        raise ValueError("it is not a Whisper model in CTranslate2's format")
    if (spec := reader.string()) != SPEC:
        raise ValueError(f"it holds a {spec!r}, not a Whisper model")
    _, count = reader.numbers("2I")
    if not 0 < count <= MOST_VARIABLES:
        raise ValueError(f"it claims to hold {count} variables")
    variables = {}
    for _ in range(count):
        name = reader.string()
        (rank,) = reader.numbers("B")
        if rank > 4:
            raise ValueError(f"{name} has {rank} dimensions")
        shape = reader.numbers(f"{rank}I")
        type_, size = reader.numbers("BI")
        if type_ >= len(SIZES):
            raise ValueError(f"{name} has an unknown type")
        variable = Variable(shape, type_, reader.position)
        if variable.size != size:
            raise ValueError(f"{name} has the wrong size")
        reader.position += size
        if reader.position > len(data):
            raise ValueError("the file ends too early")
        variables[name] = variable
    (aliases,) = reader.numbers("I")
    for _ in range(min(aliases, MOST_VARIABLES)):
        alias, name = reader.string(), reader.string()
        if name not in variables:
            raise ValueError(f"{alias} stands for something that is missing")
        variables[alias] = variables[name]
    if reader.position != len(data):
        raise ValueError("there is something after its end")
    return variables


def open_weights(path: Path) -> mmap.mmap:
    with files.opened(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


# --- whole folders ---


@dataclass(frozen=True)
class Ct2Header:
    """The sizes of a Whisper model."""

    tokens: int
    """In the vocabulary; 51864: the model knows English only."""
    bands: int
    """Of the log-mel spectrogram: 80 or 128."""
    width: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    text_context: int
    """The largest number of tokens that the decoder sees at a time."""

    @property
    def multilingual(self) -> bool:
        return self.tokens != ENGLISH_ONLY


def missing_files(folder: Path) -> list[str]:
    # Not Path.is_file, which raises in a folder that may not be read.
    here = {name for name in (WEIGHTS, CONFIG, *VOCABULARIES) if os.path.isfile(folder / name)}  # noqa: PTH113
    lacks = [name for name in (WEIGHTS, CONFIG) if name not in here]
    return lacks if here & set(VOCABULARIES) else [*lacks, VOCABULARIES[0]]


def inspect(folder: Path) -> Ct2Header:
    """Return the sizes of the model in a folder, after checking all its files. Raises ModelError.

    The weights must be a Whisper model's, with every array in its shape; the vocabulary must have as many
    tokens as they; config.json must not point beyond them. tokenizer.json may be missing.
    """
    if lacks := missing_files(folder):
        raise ModelError(f"no Whisper model in {folder}: {', '.join(lacks)} is missing; download it again")
    name = WEIGHTS
    try:
        with open_weights(folder / WEIGHTS) as data:
            header = _header(data, read_variables(data))
        name = "the vocabulary"
        tokens = read_vocabulary(folder)
        if len(tokens) != header.tokens:
            raise ValueError(f"it has {len(tokens)} tokens, and the weights have {header.tokens}")
        name = CONFIG
        _check_config(_json(folder / CONFIG), header)
        name = TOKENIZER
        if (folder / TOKENIZER).exists():
            _json(folder / TOKENIZER)["model"]["vocab"]
    except OSError as error:
        raise ModelError(f"cannot read {name} in {folder} ({error.strerror}); download it again") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else "it has another form"
        raise ModelError(
            f"{name} in {folder} is damaged or no Whisper model's ({why}); download it again"
        ) from error
    return header


def read_vocabulary(folder: Path) -> list[str]:
    """Return the tokens of a model, unchanged and in order. Raises OSError, ValueError."""
    path = next(
        (folder / name for name in VOCABULARIES if (folder / name).exists()), folder / VOCABULARIES[0]
    )
    words = _json(path) if path.suffix == ".json" else _text(path).removesuffix("\n").split("\n")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{path.name} is not a list of tokens")
    if END_OF_TEXT not in words:
        raise ValueError(f"{path.name} lacks {END_OF_TEXT}")
    return words


def _text(path: Path) -> str:
    if path.stat().st_size > LARGEST[path.name]:
        raise ValueError(f"{path.name} is larger than any of its kind")
    return files.read(path).decode("utf-8")


def _json(path: Path) -> Any:
    return json.loads(_text(path))


def _check_config(config: Any, header: Ct2Header) -> None:
    """Raise ValueError or TypeError if CTranslate2 would index its arrays out of their bounds."""
    if not isinstance(config, dict):
        raise TypeError
    for name in ("suppress_ids", "suppress_ids_begin", "lang_ids"):
        _check_numbers(config.get(name) or [], header.tokens)
    for pair in config.get("alignment_heads") or []:
        layer, head = pair
        _check_numbers([layer], header.decoder_layers)
        _check_numbers([head], header.heads)


def _check_numbers(numbers: object, end: int) -> None:
    if not isinstance(numbers, list) or not all(
        type(number) is int and 0 <= number < end for number in numbers
    ):
        raise ValueError(f"it has numbers that are not from 0 to {end - 1}")


def _header(data: mmap.mmap, variables: Mapping[str, Variable]) -> Ct2Header:
    def shape(name: str, rank: int) -> Sequence[int]:
        variable = variables.get(name)
        if variable is None or len(variable.shape) != rank or not all(variable.shape):
            raise ValueError(f"{name} is missing or has another form")
        return variable.shape

    tokens, width = shape("decoder/embeddings/weight", 2)
    bands = shape("encoder/conv1/weight", 3)[1]
    text_context = shape("decoder/position_encodings/encodings", 2)[0]
    heads = variables.get("decoder/num_heads")
    if heads is None or heads.shape or SIZES[heads.type] > 4 or heads.type in (0, 4, 5):
        raise ValueError("decoder/num_heads is missing or has another form")
    number = int.from_bytes(data[heads.start : heads.start + heads.size], "little")
    layers = []
    for part in ("encoder", "decoder"):
        weights = (f"{part}/layer_{layer}/ffn/linear_0/weight" for layer in count())
        layers.append(next(layer for layer, weight in enumerate(weights) if weight not in variables))
        if not layers[-1]:
            raise ValueError(f"the {part} has no layers")
    header = Ct2Header(tokens, bands, width, number, layers[0], layers[1], text_context)
    if not plausible(tokens, bands, width, text_context, [number], layers):
        raise ValueError("no Whisper model has these sizes")
    for name, expected in _shapes(header):
        variable = variables.get(name)
        if variable is None or variable.shape != expected:
            raise ValueError(f"{name} is missing or has another shape")
        scale = variables.get(f"{name}_scale")
        if variable.type in (1, 2) and (scale is None or scale.type or scale.shape not in ((), expected[:1])):
            raise ValueError(f"{name} has no scale")
    return header


def _shapes(header: Ct2Header) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Give every array of a Whisper model and its shape; query, key and value lie in one array."""
    width = header.width

    def linear(name: str, rows: int, columns: int = width) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}/weight", (rows, columns)
        yield f"{name}/bias", (rows,)

    def norm(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield f"{name}/gamma", (width,)
        yield f"{name}/beta", (width,)

    yield "encoder/conv1/weight", (width, header.bands, 3)
    yield "encoder/conv2/weight", (width, width, 3)
    yield "encoder/conv1/bias", (width,)
    yield "encoder/conv2/bias", (width,)
    yield "encoder/position_encodings/encodings", (1500, width)
    yield "decoder/position_encodings/encodings", (header.text_context, width)
    yield "decoder/projection/weight", (header.tokens, width)
    for part, layers in (("encoder", header.encoder_layers), ("decoder", header.decoder_layers)):
        yield from norm(f"{part}/layer_norm")
        for layer in (f"{part}/layer_{number}" for number in range(layers)):
            yield from norm(f"{layer}/self_attention/layer_norm")
            yield from linear(f"{layer}/self_attention/linear_0", 3 * width)
            yield from linear(f"{layer}/self_attention/linear_1", width)
            if part == "decoder":
                yield from norm(f"{layer}/attention/layer_norm")
                yield from linear(f"{layer}/attention/linear_0", width)
                yield from linear(f"{layer}/attention/linear_1", 2 * width)
                yield from linear(f"{layer}/attention/linear_2", width)
            yield from norm(f"{layer}/ffn/layer_norm")
            yield from linear(f"{layer}/ffn/linear_0", 4 * width)
            yield from linear(f"{layer}/ffn/linear_1", width, 4 * width)
