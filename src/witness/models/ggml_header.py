"""The header of a Whisper model in ggml format, read without whisper.cpp."""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from witness.storage import files

MAGIC = b"lmgg"
"""The first four bytes of a file: 0x67676d6c ("ggml") in little-endian order."""
FIELDS = struct.Struct("<11i")
"""The fields after the magic number; see `GgmlHeader`."""
ENGLISH_ONLY, MULTILINGUAL = 51864, 51865
"""Sizes of the vocabulary. whisper.cpp derives the ids of the special tokens from them."""
MOST_TOKENS = 60_000
"""Texts of tokens, above those of every Whisper model."""
ALIGNMENT_HEADS = {
    (4, 4, 6): "TINY",
    (6, 6, 8): "BASE",
    (12, 12, 12): "SMALL",
    (24, 24, 16): "MEDIUM",
    (32, 32, 20): "LARGE_V2",
    (32, 4, 20): "LARGE_V3_TURBO",
}
"""Encoder layers, decoder layers and decoder heads -> whisper.cpp's name of the set of alignment heads.
large-v1 looks like large-v2, and is rare."""
BLOCKS = {
    0: (4, 1),
    1: (2, 1),
    **{number: (size, 32) for number, size in ((2, 18), (3, 20), (6, 22), (7, 24), (8, 34))},
    **{number: (size, 256) for number, size in ((10, 84), (11, 110), (12, 144), (13, 176), (14, 210))},
}
"""ggml's number of a tensor type -> bytes and weights of a block."""


@dataclass(frozen=True)
class GgmlHeader:
    """The sizes of a Whisper model, in the order of its ggml file."""

    vocabulary: int
    audio_context: int
    audio_state: int
    audio_heads: int
    audio_layers: int
    text_context: int
    text_state: int
    text_heads: int
    text_layers: int
    bands: int
    weights: int

    @property
    def plausible(self) -> bool:
        heads, layers = (self.audio_heads, self.text_heads), (self.audio_layers, self.text_layers)
        sizes = self.vocabulary, self.bands, self.text_state, self.text_context
        audio = self.audio_context == 1500 and self.audio_state == self.text_state
        return audio and plausible(*sizes, heads, layers)

    @property
    def languages(self) -> int:
        """The number of Whisper's languages that the model knows; 1: English only."""
        return 1 if self.vocabulary == ENGLISH_ONLY else 99 + self.vocabulary - MULTILINGUAL

    @property
    def alignment_heads(self) -> str:
        """whisper.cpp's name for the set of attention heads that follow the words."""
        shape = self.audio_layers, self.text_layers, self.text_heads
        name = ALIGNMENT_HEADS.get(shape, "N_TOP_MOST")
        if name == "LARGE_V2" and self.vocabulary > MULTILINGUAL:
            return "LARGE_V3"
        return f"{name}_EN" if self.vocabulary == ENGLISH_ONLY and shape in ALIGNMENT_HEADS else name


def plausible(
    tokens: int, bands: int, width: int, text_context: int, heads: Sequence[int], layers: Sequence[int]
) -> bool:
    """Return true if a Whisper model may have these sizes, in a file of any format."""
    return (
        ENGLISH_ONLY <= tokens < MOST_TOKENS
        and bands in (80, 128)
        and 0 < width <= 8192
        and 8 <= text_context <= 4096
        and all(0 < number <= 128 and width % number == 0 for number in heads)
        and all(0 < number <= 128 for number in layers)
    )


def inspect(path: str) -> GgmlHeader:
    """Return the header of a Whisper model in ggml format, after a walk through the whole file.

    whisper.cpp checks nothing: a wrong number can crash it, and a truncated file may load. Raises
    RuntimeError if the file cannot be read, has another format, or is damaged.
    """
    try:
        with files.opened(path) as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise RuntimeError("it is not a Whisper model in ggml format")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                header = GgmlHeader(*FIELDS.unpack_from(data, len(MAGIC)))
                if header.plausible and _end(data) == len(data):
                    return header
    except OSError as error:
        raise RuntimeError(f"it cannot be read: {error.strerror}") from error
    except struct.error:
        pass
    raise RuntimeError("the file is damaged or incomplete")


def _end(data: mmap.mmap) -> int:
    """Return the end of the last tensor; -1 if the file contradicts itself. Raises struct.error."""
    position = len(MAGIC) + FIELDS.size
    bands, bins = struct.unpack_from("<2I", data, position)
    position += 8 + 4 * bands * bins
    (tokens,) = struct.unpack_from("<I", data, position)
    if tokens > MOST_TOKENS:  # walking through them would take a minute
        return -1
    position += 4
    for _ in range(tokens):
        position += 4 + struct.unpack_from("<I", data, position)[0]
    tensors = 0
    while position < len(data):
        dimensions, name, number = struct.unpack_from("<3I", data, position)
        if not 1 <= dimensions <= 4 or not 0 < name < 256 or number not in BLOCKS:
            return -1
        weights = math.prod(struct.unpack_from(f"<{dimensions}I", data, position + 12))
        size, per_block = BLOCKS[number]
        position += 12 + 4 * dimensions + name + weights // per_block * size
        tensors += 1
    return position if tensors else -1


def read_header(path: str) -> tuple[GgmlHeader, int] | None:
    """Return the unverified header of a file, and its size; None: no Whisper model in ggml format."""
    try:
        with files.opened(path) as file:
            if file.read(len(MAGIC)) != MAGIC:
                return None
            return GgmlHeader(*FIELDS.unpack(file.read(FIELDS.size))), file.seek(0, os.SEEK_END)
    except (OSError, struct.error):
        return None
