"""Pipes that a path names, as `<(ffmpeg ...)` does in a shell: nobody waits for ever for its writer."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 30.0
"""Seconds without a byte after which nobody seems to write."""
PIECE = 1 << 20
"""Bytes that are read at once."""


class SilentError(TimeoutError):
    """Nobody writes into a pipe."""


def pieces(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """All that is written into a pipe, up to its end.

    Raises OSError; SilentError if nobody writes into it for a while, for which opening a file could wait.
    """
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
    why = f"nobody has written into this pipe for {PATIENCE:g} s"
    raise SilentError(errno.ETIMEDOUT, why, os.fspath(path))


def read(path: Path, largest: int) -> bytes:
    """The first bytes of a pipe, at most so many. Raises OSError as `pieces`."""
    content = b""
    for piece in pieces(path):
        content += piece
        if len(content) >= largest:
            break
    return content[:largest]
