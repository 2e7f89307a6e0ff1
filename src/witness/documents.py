"""JSON and archives from elsewhere: what passes here is what a type says, down to the last number.

The types are frozen dataclasses whose fields may have limits (`msgspec.Meta`). Why msgspec:
docs/decisions/2026-11-22-documents.md.
"""

from __future__ import annotations

import codecs
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

T = TypeVar("T")

LARGEST = 128 << 20
"""Bytes of a document. The JSON of an hour of talk has 2 MB."""

DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    *(ValueError, KeyError, IndexError, OverflowError, RuntimeError),
    *(SyntaxError, tokenize.TokenError),  # by numpy's reader of the heads of arrays
)
"""What reading a zip archive raises if it is damaged, or if a document or an array in it is."""


def read(path: Path, largest: int = LARGEST) -> bytes:
    """The content of a regular file of at most `largest` bytes. Raises OSError, ValueError."""
    with opened(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"it has more than {largest >> 20} MiB")
    return content


def opened(path: Path) -> BinaryIO:
    """A regular file, open for reading; a pipe is not waited for. Raises OSError, ValueError."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise ValueError("it is not a regular file")
    return file


def decode(content: bytes, kind: type[T]) -> T:
    """A JSON document as `kind`. Raises ValueError that names the place where it is not.

    What is not JSON is refused, though Python's own reader takes it: NaN, infinity, half a surrogate pair.
    So are numbers that no double holds and brackets nested too deeply.
    """
    try:
        return msgspec.json.decode(content.removeprefix(codecs.BOM_UTF8), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
