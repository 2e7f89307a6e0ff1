"""A path -> the bytes of the recording, or an error. Nothing here decodes them."""

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
NEEDED = 16
"""First bytes of a file that tell its ending."""
_BEGINNINGS = {
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"ID3": "mp3",
    b"\x1a\x45\xdf\xa3": "webm",  # and Matroska, which is read in the same way
    b"caff": "caf",
    b"FORM": "aiff",
    b"#!AMR": "amr",
    b"\x30\x26\xb2\x75\x8e\x66\xcf\x11": "wma",
    b"RF64": "wav",
}
ADDRESS = re.compile(r"(?i)[a-z][a-z0-9+.-]+://")
_NO_PLACE = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EINVAL}
"""Errors of a path that leads nowhere, rather than of a disk."""


def possible_paths(path: str, beside: Path | None) -> list[str]:
    """List the possible paths of a recording that was at `path`; `beside`: folder of its transcript."""
    paths = [path]
    if beside is not None:  # made from a folder above, or moved together with the transcript
        near = beside.absolute()
        paths += [str(folder / path) for folder in (near, *near.parents)]
        paths.append(str(near / Path(path).name))
    return paths


def guess_ending(first: bytes) -> str | None:
    """Guess the ending of a file, without its dot, by its first bytes; None: not a recording."""
    if first[:4] == b"RIFF":
        return {b"WAVE": "wav", b"AVI ": "avi"}.get(first[8:12])
    if first[4:8] == b"ftyp":
        return "m4a" if first[8:11] in (b"M4A", b"M4B") else "mp4"
    if len(first) > 1 and first[0] == 0xFF and first[1] & 0xE0 == 0xE0:  # the sync word of MPEG audio
        return "aac" if first[1] & 0x06 == 0 else "mp3"
    return next((ending for begins, ending in _BEGINNINGS.items() if first.startswith(begins)), None)


def refuse_address(path: str) -> None:
    """Raise InputError, which says how to fetch it, if `path` is an address and no file."""
    if ADDRESS.match(path) and not Path(path).exists():
        fix = "copy it to this machine, and give its path"
        if path.lower().startswith(("http", "ftp")):
            fix = f"yt-dlp -x -o 'talk.%(ext)s' {shlex.quote(path)}, then: witness talk.*"
        raise InputError(f"{printable(path)}: is an address, and Witness fetches no recordings; fix: {fix}")


def check(path: str) -> None:
    """Raise InputError if `path` cannot be opened. Reads nothing, so a pipe is not checked."""
    refuse_address(path)
    if path != "-" and not Path(path).is_fifo():
        with opened(path, printable(path)):
            pass


@contextlib.contextmanager
def opened(path: str, name: str) -> Iterator[BinaryIO]:
    """Open the bytes of `path` ("-" is standard input), seekable; a pipe is copied to a file.

    `name` stands in messages. Raises InputError if it cannot be read; reading the bytes of a failing disk
    raises ReadError.
    """
    with contextlib.ExitStack() as stack:
        try:
            if path == "-":
                if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
                    raise InputError(
                        f"{name}: is closed or a terminal; fix: pipe a recording in, or name a file"
                    )
                stdin = sys.stdin.buffer
                with contextlib.suppress(io.UnsupportedOperation):  # stdin may have no file descriptor
                    if stat.S_ISBLK(mode := os.fstat(stdin.fileno()).st_mode) or _endless(mode, stdin):
                        raise InputError(f"{name}: is a device; fix: name a recording")
                # A file given by `<` as well: it may not be at its beginning.
                file = _copied(iter(partial(stdin.read, fifo.PIECE), b""), name, stack)
            elif Path(path).is_dir():
                raise InputError(
                    f"{name}: is a folder; fix: name a recording in it, or for all of them: "
                    f"witness batch {shlex.quote(name)} -o FOLDER"
                )
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
            raise InputError(
                f"{name}: {error.strerror}; fix: start the program that writes into it"
            ) from None
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
    """File that raises ReadError for a failing disk, which no reader takes for damage."""

    def __init__(self, path: str, name: str) -> None:
        super().__init__(path, "rb", opener=files.at_once)
        self._name = name

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise _unreadable(self._name, error) from error


def _unreadable(name: str, error: OSError) -> ReadError:
    return ReadError(
        f"{name}: could not be read ({error.strerror or error}); fix: check the disk or the network drive "
        "that it is on, or copy it to another one"
    )


def _copied(pieces: Iterable[bytes], name: str, stack: contextlib.ExitStack) -> BinaryIO:
    """Copy all of them to a file without a name. Raises ScratchError if there is no room."""
    folder = spool.folder()
    with _room(folder, name):
        copy = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - returned
        stack.enter_context(copy)
    for piece in pieces:
        with _room(folder, name):
            copy.write(piece)
            copy.flush()
    return cast(BinaryIO, copy)


@contextlib.contextmanager
def _room(folder: str, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ScratchError(
            f"{folder}: cannot hold the bytes from {name} ({error.strerror}); fix: free disk space there, "
            "or set TMPDIR to a folder with more"
        ) from error


def _endless(mode: int, file: BinaryIO) -> bool:
    """Return whether a file is a device such as /dev/zero, which never ends; /dev/null ends immediately."""
    return stat.S_ISCHR(mode) and os.fstat(file.fileno()).st_rdev != Path(os.devnull).stat().st_rdev
