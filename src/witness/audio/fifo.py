"""Named pipes such as `<(ffmpeg ...)` of a shell, read with a limit on the silence of their writers."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 30.0
"""Seconds without a byte after which a pipe counts as silent."""
PIECE = 1 << 20
"""Bytes of one read."""


class SilentError(TimeoutError):
    """A pipe without a writer."""


def pieces(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield the bytes of a pipe up to its end. Raises OSError; SilentError after PATIENCE without a byte."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while select.select([descriptor], [], [], PATIENCE)[0]:
            try:
                piece = os.read(descriptor, PIECE)
            except BlockingIOError:  # another reader was faster
                continue
            if not piece:
                return
            yield piece
    finally:
        os.close(descriptor)
    problem = f"no program has written into this pipe for {PATIENCE:g} s"
    raise SilentError(errno.ETIMEDOUT, problem, os.fspath(path))


def read(path: Path, largest: int) -> bytes:
    """Return at most `largest` first bytes of a pipe. Raises OSError as `pieces` does."""
    content = b""
    for piece in pieces(path):
        content += piece
        if len(content) >= largest:
            break
    return content[:largest]
