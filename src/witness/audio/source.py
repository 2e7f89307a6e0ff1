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

from witness.audio import spool
from witness.errors import InputError
from witness.text import printable


def check(path: str) -> None:
    """Raise InputError if `path` cannot be opened at all. Cheap, and says nothing of what is in the file."""
    if path != "-" and not Path(path).is_fifo():  # which can be read only once
        with opened(path, printable(path)):
            pass


def _endless(mode: int, file: BinaryIO) -> bool:
    """Whether it is a device like /dev/zero, which a spool would never hold; /dev/null ends at once."""
    return stat.S_ISCHR(mode) and os.fstat(file.fileno()).st_rdev != Path(os.devnull).stat().st_rdev


@contextlib.contextmanager
def opened(path: str, name: str) -> Iterator[BinaryIO]:
    """The bytes of `path`, seekable; what comes through a pipe is kept in a temporary file."""
    with contextlib.ExitStack() as stack:
        try:
            if path == "-":
                if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
                    raise InputError(f"{name} is closed or a terminal; pipe a recording in, or name a file")
                file: BinaryIO = sys.stdin.buffer
                mode = stat.S_IFIFO  # also a file given by `<`, which need not stand at its beginning
                with contextlib.suppress(OSError):  # it may be no file of the system's at all
                    if stat.S_ISBLK(kind := os.fstat(file.fileno()).st_mode) or _endless(kind, file):
                        mode = kind
            elif Path(path).is_dir():
                raise InputError(f"{name} is a folder; name a recording in it")
            else:
                file = stack.enter_context(Path(path).open("rb"))
                mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISFIFO(mode):
                copy = stack.enter_context(tempfile.TemporaryFile(dir=spool.folder()))
                shutil.copyfileobj(file, copy, 1 << 20)
                file = cast(BinaryIO, copy)
            elif not stat.S_ISREG(mode):
                raise InputError(f"{name} is a device; name a recording")
            if file.seek(0, os.SEEK_END) == 0:
                raise InputError(f"{name} is empty (0 bytes); record or copy it again")
            file.seek(0)
        except FileNotFoundError:
            raise InputError(f"{name}: there is no such file; check the path") from None
        except PermissionError:
            raise InputError(f"{name}: no permission to read it; change its mode or owner") from None
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{name} cannot be read ({reason}); copy it to a disk with room") from error
        yield file
