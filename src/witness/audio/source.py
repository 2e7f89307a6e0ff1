"""A path -> the bytes of the recording, or why there are none. Nothing here decodes them."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shlex
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from witness.audio import fifo, spool
from witness.errors import InputError, ReadError, ScratchError
from witness.storage import files
from witness.text import printable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_ENDINGS = """
3ga 3gp 8svx aa aac aax ac3 adts aif aifc aiff amr ape asf au avi awb caf dsf dss dts eac3 f4v flac flv gsm
iff m2ts m4a m4b m4r m4v mka mkv mov mp2 mp3 mp4 mpa mpc mpeg mpg mpga mts oga ogg ogm ogv opus qcp ra rm rmvb
sd2 shn snd spx tta ts vob voc vox w64 wav wave weba webm wma wmv wv
"""
ENDINGS = frozenset(_ENDINGS.split())
"""Endings of recordings in a folder; a file that is named may have any."""
ADDRESS = re.compile(r"(?i)(https?|ftp)://")
_NO_PLACE = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EINVAL}
"""Errors of a path that leads nowhere, rather than of a disk."""


def places(path: str, beside: Path | None) -> list[str]:
    """Where a recording may be now that was at `path`; `beside` is the folder of its transcript."""
    found = [path]
    if beside is not None:  # made from a folder above, or moved together with the transcript
        near = beside.absolute()
        found += [str(folder / path) for folder in (near, *near.parents)]
        found.append(str(near / Path(path).name))
    return found


def refuse_address(path: str) -> None:
    """Raise InputError, which names the command that fetches it, if `path` is an address of the network."""
    if ADDRESS.match(path) and not Path(path).exists():
        raise InputError(
            f"{printable(path)}: is an address, and Witness fetches no recordings; fix: "
            f"yt-dlp -x -o 'talk.%(ext)s' {shlex.quote(path)}, then: witness talk.*"
        )


def check(path: str) -> None:
    """Raise InputError if `path` cannot be opened. Reads nothing, so a pipe is not checked."""
    refuse_address(path)
    if path != "-" and not Path(path).is_fifo():
        with opened(path, printable(path)):
            pass


@contextlib.contextmanager
def opened(path: str, name: str) -> Iterator[BinaryIO]:
    """The bytes of `path` ("-" is standard input) from the beginning, seekable; a pipe is copied to a file.

    `name` is what messages call it. Raises InputError if it cannot be read; so does reading the bytes, with
    ReadError, where the disk fails.
    """
    with contextlib.ExitStack() as stack:
        try:
            if path == "-":
                if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
                    raise InputError(
                        f"{name}: is closed or a terminal; fix: pipe a recording in, or name a file"
                    )
                given = sys.stdin.buffer
                with contextlib.suppress(io.UnsupportedOperation):  # stdin may have no file descriptor
                    if stat.S_ISBLK(kind := os.fstat(given.fileno()).st_mode) or _endless(kind, given):
                        raise InputError(f"{name}: is a device; fix: name a recording")
                # A file given by `<` as well: it may not be at its beginning.
                file = _copied(iter(partial(given.read, fifo.PIECE), b""), name, stack)
            elif Path(path).is_dir():
                raise InputError(f"{name}: is a folder; fix: name a recording in it")
            elif Path(path).is_fifo():
                file = _copied(fifo.pieces(path), name, stack)
            else:
                file = stack.enter_context(io.BufferedReader(_File(path, name)))
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
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
        except fifo.SilentError as error:
            raise InputError(f"{name}: {error.strerror}; fix: start what is to write into it") from None
        except OSError as error:
            if error.errno in _NO_PLACE:
                raise InputError(
                    f"{name}: could not be read ({error.strerror}); fix: check the path"
                ) from None
            raise _unreadable(name, error) from error
        except ValueError as error:  # a zero byte in the name
            raise InputError(f"{name}: could not be read ({error}); fix: check the path") from error
        yield file


class _File(io.FileIO):
    """A file whose failing disk is told as a ReadError, which none of its readers takes for damage."""

    def __init__(self, path: str, name: str) -> None:
        super().__init__(path, "rb", opener=files.at_once)
        self._called = name

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """As io.FileIO does. Raises ReadError."""
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise _unreadable(self._called, error) from error

    def readall(self) -> bytes:
        """As io.FileIO does. Raises ReadError."""
        try:
            return super().readall()
        except OSError as error:
            raise _unreadable(self._called, error) from error


def _unreadable(name: str, error: OSError) -> ReadError:
    return ReadError(
        f"{name}: could not be read ({error.strerror or error}); fix: check the disk or the network drive "
        "that it is on, or copy it to another one"
    )


def _copied(pieces: Iterable[bytes], name: str, stack: contextlib.ExitStack) -> BinaryIO:
    """A file without a name that holds all of them. Raises ScratchError if it has no room."""
    place = spool.folder()
    with _room(place, name):
        copy = tempfile.TemporaryFile(dir=place)  # noqa: SIM115 - returned
        stack.enter_context(copy)
    for piece in pieces:
        with _room(place, name):
            copy.write(piece)
            copy.flush()
    return cast(BinaryIO, copy)


@contextlib.contextmanager
def _room(place: str, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ScratchError(
            f"{place}: cannot hold what comes through {name} ({error.strerror}); fix: free disk space there, "
            "or set TMPDIR to a folder with more"
        ) from error


def _endless(mode: int, file: BinaryIO) -> bool:
    """Whether it is a device such as /dev/zero, which never ends; /dev/null ends immediately."""
    return stat.S_ISCHR(mode) and os.fstat(file.fileno()).st_rdev != Path(os.devnull).stat().st_rdev
