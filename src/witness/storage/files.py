"""Regular files read at once, and their SHA-256."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

LARGEST = 512 << 20
"""Bytes that are read at once. The findings of a day have 170 MB."""

LONGEST_NAME = 230
"""Bytes of a file name without its ending; file systems take 255."""


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """The regular file at `path`, open for reading; for a pipe one could wait for ever. Raises OSError."""
    file = open(path, "rb", opener=at_once)  # noqa: SIM115 - Path.open takes no opener; returned
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return file


def at_once(path: str, flags: int) -> int:
    """The opener for `open` that does not wait for somebody at the other end of a pipe or a device."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read(path: str | os.PathLike[str], largest: int = LARGEST) -> bytes:
    """The content of the regular file at `path`, of at most so many bytes. Raises OSError."""
    content = read_some(path, largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"more than {largest >> 20} MiB", os.fspath(path))
    return content


def read_some(path: str | os.PathLike[str], most: int) -> bytes:
    """The first bytes of the regular file at `path`. Raises OSError."""
    with opened(path) as file, _named(path):
        there = os.fstat(file.fileno()).st_size
        content = file.read(min(most, there + 1))  # memory that is not needed takes time, too
        if len(content) > there:  # it grows, or is made when it is read, and says 0
            content += file.read(most - len(content))
        return content


def sha256(content: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def sha256_of(file: BinaryIO) -> str:
    """The SHA-256 of a whole file, which need not fit into memory. Raises OSError."""
    digest = hashlib.sha256()
    file.seek(0)
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


def sha256_at(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of the regular file at `path`. Raises OSError."""
    with opened(path) as file, _named(path):
        return sha256_of(file)


@contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Have an error of the disk name the file, which Python does only for one that cannot be opened."""
    try:
        yield
    except OSError as error:
        error.filename = os.fspath(path)
        raise
