"""A path -> the bytes of the recording, or why there are none. Nothing here decodes them."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from witness import files
from witness.audio import spool
from witness.errors import InputError
from witness.text import printable


def check(path: str) -> None:
    """Raise InputError if `path` cannot be opened. Reads nothing, so a pipe is not checked."""
    if path != "-" and not Path(path).is_fifo():
        with opened(path, printable(path)):
            pass


@contextlib.contextmanager
def opened(path: str, name: str) -> Iterator[BinaryIO]:
    """The bytes of `path` ("-" is standard input) from the beginning, seekable; a pipe is copied to a file.

    `name` is what messages call it. Raises InputError if it cannot be read.
    """
    with contextlib.ExitStack() as stack:
        try:
            if path == "-":
                if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
                    raise InputError(
                        f"{name}: is closed or a terminal; fix: pipe a recording in, or name a file"
                    )
                file: BinaryIO = sys.stdin.buffer
                mode = stat.S_IFIFO  # for a file given by `<` as well, which may not be at its beginning
                with contextlib.suppress(OSError):  # stdin may have no file descriptor
                    if stat.S_ISBLK(kind := os.fstat(file.fileno()).st_mode) or _endless(kind, file):
                        mode = kind
            elif Path(path).is_dir():
                raise InputError(f"{name}: is a folder; fix: name a recording in it")
            else:
                file = stack.enter_context(_open(path))
                mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISFIFO(mode):
                copy = stack.enter_context(tempfile.TemporaryFile(dir=spool.folder()))
                shutil.copyfileobj(file, copy, 1 << 20)
                file = cast(BinaryIO, copy)
            elif not stat.S_ISREG(mode):
                raise InputError(f"{name}: is a device; fix: name a recording")
            if file.seek(0, os.SEEK_END) == 0:
                raise InputError(f"{name}: is empty (0 bytes); fix: record or copy it again")
            file.seek(0)
        except FileNotFoundError:
            raise InputError(f"{name}: no such file; fix: check the path") from None
        except PermissionError:
            raise InputError(
                f"{name}: could not be read (permission denied); fix: change its permissions or owner"
            ) from None
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"{name}: could not be read ({reason}); fix: check the path, or copy it to a disk with room"
            ) from error
        yield file


def _open(path: str) -> BinaryIO:
    """The file, or the pipe once somebody writes into it; a device is not waited for."""
    if Path(path).is_fifo():
        return Path(path).open("rb")
    return open(path, "rb", opener=files.at_once)


def _endless(mode: int, file: BinaryIO) -> bool:
    """Whether it is a device such as /dev/zero, which never ends; /dev/null ends immediately."""
    return stat.S_ISCHR(mode) and os.fstat(file.fileno()).st_rdev != Path(os.devnull).stat().st_rdev
