"""Files written whole or not at all, and the cleanup of unfinished ones."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

from witness.errors import OutputError
from witness.text import for_terminal

SCRATCH = ".witness-"
"""Prefix of the names of unfinished files; the machine and the process that write them follow."""
ABANDONED = 24 * 3600.0
"""Seconds after which those of another machine, and all on Windows, are taken to be left behind."""


def write(content: bytes, path: Path | None, *, private: bool = False) -> None:
    """Write the whole file or nothing: under another name in its folder, synced, then renamed. None: stdout.

    It keeps the mode of the file that it replaces. Only the user can read a `private` file, and its group
    where it replaces one. A link is replaced, and the file that it leads to stays; a path that `is_special`
    is written into. Raises OutputError, and BrokenPipeError if the reader of stdout is gone.
    """
    write_all([(content, path)], private=[path] if private and path is not None else [])


def write_all(files: Sequence[tuple[bytes, Path | None]], *, private: Collection[Path] = ()) -> None:
    """As `write`, for several files: all are on the disk before the first of them takes its place."""
    for content, path in files:
        if path is None:
            _to_stdout(content)
    drafts = [
        _Draft(content, path.absolute(), path in private) for content, path in files if path is not None
    ]
    try:
        # At the same time, so that the disk syncs them in one go: docs/decisions/2026-11-22-constants.md.
        with ThreadPoolExecutor(len(drafts) or 1) as pool:
            for written in [pool.submit(_report, draft.write, draft.path) for draft in drafts]:
                written.result()
            # Not in this thread: Ctrl-C would come between two of them.
            pool.submit(_place, drafts).result()
    finally:
        for draft in drafts:
            draft.discard()


def _place(drafts: Sequence[_Draft]) -> None:
    """Put unfinished files, which are whole by now, in their places."""
    with placing:
        for draft in drafts:
            _report(draft.place, draft.path)
    for folder in {draft.path.parent for draft in drafts}:
        sync(folder)


def _report(step: Callable[[], None], path: Path) -> None:
    """Run a step, whose OSError becomes an OutputError about `path`."""
    try:
        step()
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); fix: free disk space, fix the folder's "
            "permissions, or write to another place"
        ) from error


def is_special(path: Path) -> bool:
    """Tell whether nothing can take this place, so that it is written into: a pipe, /dev/stdout."""
    folder = path.parent.resolve()
    if folder == Path("/dev") or folder.parts[1:2] == ("proc",):
        return True
    try:
        mode = path.lstat().st_mode
    except OSError:  # nothing there
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))


def replace(content: bytes, path: Path, *, private: bool = False) -> None:
    """Put `content` at `path` so that no reader ever sees half of it. Raises OSError."""
    draft = _Draft(content, path, private)
    try:
        draft.write()
        draft.place()
    finally:
        draft.discard()
    sync(path.parent)


class _Draft:
    """A file that is written under another name, which only its user can read, before it takes its place."""

    def __init__(self, content: bytes, path: Path, private: bool = False) -> None:
        self.path = path
        self._content, self._private = content, private
        self._scratch = None if is_special(path) else path.with_name(scratch_name())
        self._mode = 0

    def write(self) -> None:
        """Write and sync the file; a path that `is_special` is written at once. Raises OSError."""
        if self._scratch is None:
            with self.path.open("wb") as file:
                file.write(self._content)
            return
        unfinished.add(self._scratch)
        self._mode = create(self._content, self._scratch, mode_for(self.path, self._private), 0o600)

    def place(self) -> None:
        if self._scratch is not None:
            if os.name != "nt":
                self._scratch.chmod(self._mode)
            self._scratch.replace(self.path)

    def discard(self) -> None:
        """Remove the file if it has not taken its place."""
        if self._scratch is not None:
            self._scratch.unlink(missing_ok=True)
            unfinished.discard(self._scratch)


def create(content: bytes, path: Path, mode: int | None, first: int | None = None) -> int:
    """Write a new, synced file, and return its mode; None: that of any new file, which only the system knows.

    Until it is in its place, the file has the mode `first`, if any. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o666 if mode is None else 0o600), "wb") as file:
        if mode is None:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if hasattr(os, "fchmod"):  # Windows has none before Python 3.13
            os.fchmod(file.fileno(), mode if first is None else first)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return mode


def sync(folder: Path) -> None:
    """Sync the names in a folder to the disk; some systems and drives do so by themselves."""
    if os.name == "nt":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make a folder and its parents, unless they are there; a power cut does not undo it. Raises OSError."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode, parents=True, exist_ok=True)
    for folder in made:
        sync(folder.parent)


def scratch_name() -> str:
    """A name for something unfinished, which says who works on it."""
    return f"{SCRATCH}{_machine()}-{os.getpid()}-{secrets.token_hex(8)}"


def is_abandoned(scratch: Path) -> bool:
    """Tell whether the process behind a `scratch_name` seems to have ended."""
    machine, _, rest = scratch.name.removeprefix(SCRATCH).partition("-")
    pid = rest.partition("-")[0]
    if not pid.isdigit():
        return False
    ours = machine == _machine()
    if (
        ours and int(pid) == os.getpid()
    ):  # or a process that had this number before, as the first of a container
        return scratch not in unfinished
    if ours and os.name != "nt":  # to ask for a process would end it there
        return not _alive(int(pid))
    with suppress(OSError):
        return time.time() - scratch.lstat().st_mtime > ABANDONED
    return False


@cache
def _machine() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:6]


def _alive(pid: int) -> bool:
    """Tell whether a process with this id seems to run, without disturbing it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def mode_for(path: Path, private: bool) -> int | None:
    """Return the permissions for a file that replaces `path`; None: the usual ones."""
    try:
        replaced = path.lstat().st_mode
    except OSError:  # nothing there
        replaced = 0
    if not replaced or stat.S_ISLNK(replaced):
        return 0o600 if private else None
    mode = stat.S_IMODE(replaced) & 0o777
    return mode & 0o770 if private else mode


placing = threading.Lock()
"""Held while whole files are put in their places, one after the other; a process that ends waits for it."""
PATIENCE = 1.0
"""Seconds that it waits."""
unfinished: set[Path] = set()
"""Scratch files of this process that may still be there."""
new_folders: set[Path] = set()
"""Folders that this process made for results."""


def abandon() -> None:
    """Remove unfinished files and empty new folders, in a process that ends at once."""
    finished = placing.acquire(timeout=PATIENCE)  # files that are being put in place come first
    try:
        for scratch in list(unfinished):
            if scratch.is_dir():
                shutil.rmtree(scratch, ignore_errors=True)
            with suppress(OSError):
                scratch.unlink()
    finally:
        if finished:
            placing.release()
    for folder in sorted(new_folders, key=lambda folder: -len(folder.parts)):
        with suppress(OSError):
            folder.rmdir()


def _to_stdout(content: bytes) -> None:
    if sys.stdout is None:
        raise OutputError("stdout is closed; open it, or write a file with -o")
    try:
        if sys.stdout.isatty():  # as `ls` does: a pipe or a file gets the bytes unchanged
            text = for_terminal(content.decode("utf-8", "surrogateescape"))
            content = text.encode("utf-8", "surrogateescape")
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise  # as in `| head`; the command line ends quietly
    except OSError as error:
        raise OutputError(
            f"stdout: cannot be written ({error.strerror}); fix: free disk space, or write a file with -o"
        ) from error
