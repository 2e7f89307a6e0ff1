"""Regular files read at once, their SHA-256, and Witness's own files in folders that may come from strangers.

A stranger's folder may have a link at any name that Witness writes. `atomic` replaces links as it replaces
files; this module opens growing files, locks and folders, and refuses links.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from witness.errors import ForeignError
from witness.storage import atomic

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
    """Open a file for `open` without waiting for the other end of a pipe or a device."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read(path: str | os.PathLike[str], largest: int = LARGEST) -> bytes:
    """The content of the regular file at `path`, of at most so many bytes. Raises OSError."""
    content = read_some(path, largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"more than {largest >> 20} MiB", os.fspath(path))
    return content


def read_some(path: str | os.PathLike[str], size: int) -> bytes:
    """Read the first bytes of the regular file at `path`. Raises OSError."""
    with opened(path) as file, _named(path):
        stated = os.fstat(file.fileno()).st_size
        content = file.read(min(size, stated + 1))  # memory that is not needed takes time, too
        if len(content) > stated:  # it grows, or is made when it is read, and says 0
            content += file.read(size - len(content))
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


# --- Witness's own files ---

_HELD = os.open in os.supports_dir_fd and os.listdir in os.supports_fd and hasattr(os, "O_NOFOLLOW")
"""Support of this system for names in a folder that is held open."""


def refuse_link(path: Path, root: Path | None = None) -> None:
    """Raise ForeignError if there is a link at `path`, or at a folder between it and `root`."""
    steps = [path]
    if root is not None:
        steps = [path, *path.parents][: len(path.relative_to(root).parts)]
    for step in reversed(steps):
        if step.is_symlink() or getattr(os.path, "isjunction", _never)(step):
            raise ForeignError(f"{step}: is a symbolic link, which Witness does not follow here; remove it")


def own(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open one of Witness's own files, which is a regular one. Raises ForeignError, OSError."""
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    if not hasattr(os, "O_NOFOLLOW"):
        refuse_link(path)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), mode)
    except OSError:
        refuse_link(path)  # systems differ in the number of that error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return descriptor


def own_folder(path: Path) -> None:
    """Make one of Witness's own folders, unless it is there. Raises ForeignError, OSError."""
    refuse_link(path)
    atomic.make_folder(path, 0o700)


class OpenFolder:
    """A folder held open, whose names lead nowhere else; a context manager.

    Raises ForeignError unless `follow`, OSError.
    """

    def __init__(self, path: Path, *, follow: bool = False) -> None:
        self.path = path
        self._descriptor: int | None = None
        if not follow and not _HELD:
            refuse_link(path)
        if _HELD:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
            try:
                self._descriptor = os.open(path, flags)
            except OSError:
                if not follow:
                    refuse_link(path)
                raise

    def __enter__(self) -> OpenFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def names(self) -> list[str]:
        """Return the names in it, sorted. Raises OSError."""
        return sorted(os.listdir(self.path if self._descriptor is None else self._descriptor))  # noqa: PTH208

    def mode(self, name: str) -> int | None:
        """Return the type and permissions under a name, of a link itself; None: there is nothing."""
        try:
            return os.stat(self._at(name), dir_fd=self._descriptor, follow_symlinks=False).st_mode
        except OSError:
            return None

    def place(self, name: str, folder: OpenFolder, new: str) -> None:
        """Move a name into another folder, where it replaces a file or a link. Raises OSError."""
        source, target = self._descriptor, folder._descriptor
        os.replace(self._at(name), folder._at(new), src_dir_fd=source, dst_dir_fd=target)

    def remove(self, name: str) -> None:
        """Remove a file or a link. Raises OSError."""
        os.unlink(self._at(name), dir_fd=self._descriptor)

    def _at(self, name: str) -> str:
        return name if self._descriptor is not None else os.path.join(self.path, name)  # noqa: PTH118


def _never(_: object) -> bool:
    """Stand in for `os.path.isjunction` before Python 3.12."""
    return False
