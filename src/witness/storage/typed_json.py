"""Decoder of JSON from elsewhere, which checks it against a type, down to the last number.

The types are frozen dataclasses whose fields may have limits (`msgspec.Meta`). Why msgspec:
docs/decisions/2026-11-22-documents.md.
"""

from __future__ import annotations

import codecs
import struct
import tokenize
import zipfile
import zlib
from typing import TypeVar

import msgspec

T = TypeVar("T")

DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    *(ValueError, KeyError, IndexError, OverflowError, RuntimeError),
    *(SyntaxError, tokenize.TokenError),  # by numpy's reader of the heads of arrays
)
"""Errors of reading a zip archive that is damaged, or has a damaged document or array in it."""


class NotJsonError(ValueError):
    """The bytes are not a JSON document."""


def decode(content: bytes, type_: type[T]) -> T:
    """Decode a JSON document as `type_`. Raises ValueError that names the place where it is not, or
    NotJsonError.

    Values that only Python's own reader takes for JSON are refused: NaN, infinity, half a surrogate pair. So
    are numbers that no double holds and brackets nested too deeply.
    """
    try:
        return msgspec.json.decode(content.removeprefix(codecs.BOM_UTF8), type=type_)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotJsonError(str(error)) from error
    except RecursionError:
        raise NotJsonError("it is nested too deeply") from None
