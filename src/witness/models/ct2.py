"""What a Whisper model in CTranslate2's format says about itself, read without CTranslate2.

CTranslate2 trusts what it reads: a wrong number in a model makes it allocate any amount of memory, or read past
the end. So every folder goes through `inspect` before an engine sees it.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SPEC = "WhisperSpec"
VERSIONS = (5, 6)
"""Of the file format: what CTranslate2 from 2.0 (2022) to 4.8 writes."""
SIZES = (4, 1, 2, 4, 2, 2)
"""CTranslate2's number of a type -> bytes of an element: float32, int8, int16, int32, float16, bfloat16."""
MOST_VARIABLES = 20_000
"""The largest published model, large-v3, has 2,000 when it is quantized."""


@dataclass(frozen=True)
class Variable:
    """One array in a file: its shape, CTranslate2's number of its type, and where its bytes begin."""

    shape: tuple[int, ...]
    type: int
    place: int

    @property
    def size(self) -> int:
        """In bytes."""
        return SIZES[self.type] * math.prod(self.shape)


class _Reader:
    """Numbers and strings of a file, one after the other. Raises ValueError where they cannot be."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data = data
        self.place = 0

    def numbers(self, form: str) -> tuple[int, ...]:
        try:
            values: tuple[int, ...] = struct.unpack_from(f"<{form}", self.data, self.place)
        except struct.error as error:
            raise ValueError("the file ends too early") from error
        self.place += struct.calcsize(f"<{form}")
        return values

    def string(self) -> str:
        (length,) = self.numbers("H")
        raw = self.data[self.place : self.place + length]
        if len(raw) < length or not raw.endswith(b"\0"):
            raise ValueError("a name has no end")
        self.place += length
        return raw[:-1].decode("ascii")  # UnicodeDecodeError is a ValueError


def walk(data: bytes | mmap.mmap) -> Mapping[str, Variable]:
    """Every variable of a model.bin by its name, after a walk through the structure of the whole file.

    Raises ValueError saying what is wrong: another kind of file, or numbers that contradict each other.
    """
    reader = _Reader(data)
    (version,) = reader.numbers("I")
    if version not in VERSIONS:
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
        variable = Variable(shape, type_, reader.place)
        if variable.size != size:
            raise ValueError(f"{name} has the wrong size")
        reader.place += size
        if reader.place > len(data):
            raise ValueError("the file ends too early")
        variables[name] = variable
    (aliases,) = reader.numbers("I")
    for _ in range(min(aliases, MOST_VARIABLES)):
        alias, name = reader.string(), reader.string()
        if name not in variables:
            raise ValueError(f"{alias} stands for something that is not there")
        variables[alias] = variables[name]
    if reader.place != len(data):
        raise ValueError("there is something after its end")
    return variables


def open_weights(path: Path) -> mmap.mmap:
    """A file as bytes that are read when they are needed. Raises OSError, and ValueError if it is empty."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
