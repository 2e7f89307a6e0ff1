"""JSON and archives from elsewhere: what passes here is what a type says, down to the last number.

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
"""What reading a zip archive raises if it is damaged, or if a document or an array in it is."""


class NotJsonError(ValueError):
    """What was read is no JSON document of any kind."""


def from_json(content: bytes, kind: type[T]) -> T:
    """A JSON document as `kind`. Raises ValueError that names the place where it is not, or NotJsonError.

    What is not JSON is refused, though Python's own reader takes it: NaN, infinity, half a surrogate pair.
    So are numbers that no double holds and brackets nested too deeply.
    """
    try:
        return msgspec.json.decode(content.removeprefix(codecs.BOM_UTF8), type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise NotJsonError(str(error)) from error
    except RecursionError:
        raise NotJsonError("it is nested too deeply") from None
