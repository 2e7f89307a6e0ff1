"""Several files of one name in a folder, replaced in one act that a crash cannot leave half done.

1. The new files are written into a hidden folder of this process, that only its user can read, and synced.
2. That folder is renamed to `.NAME.saving`: from here on the new files are the truth.
3. Each moves to its place; then the folder goes, and the call returns.

A crash before 2 leaves the old files and a folder of a dead process, which is swept. A crash after 2 leaves
`.NAME.saving`, and the next process finishes 3 first. All of it happens under a lock, `.NAME.lock`, which
the system gives back when a process ends: docs/decisions/2026-11-23-one-store.md.

Any of these folders may come from a stranger: only files that Witness writes under that name are put in their
places, links are replaced or refused, never followed.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from witness.errors import ForeignError, OutputError
from witness.formats.registry import Format
from witness.storage import atomic, files

SAVED = ".saving"
"""Ending of a folder of saved files that may not be in their places yet."""
MOVING = ".moving"
"""Ending of a folder of files that are on their way to another name or folder."""
HISTORY, EARLIER, EARLIER_FINDINGS = ".history", ".earlier", ".earlier.npz"
"""Endings of the names of the hidden files of a transcript."""
ENDINGS = ("findings.npz", *(form.ending for form in Format))
"""Endings of a transcript's other files."""
PATIENCE = 120.0
"""Seconds to wait for another process that works on the same files; a redo of a day takes less."""
SOON = 0.2
"""Seconds to wait for a lock that another process holds for as long as it works."""
LOOK = 0.01
"""Seconds between two attempts to take a lock."""
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
"""Errors of a drive without locks. There, an existing file is the lock."""
GIVEN_UP = 600.0
"""Seconds after which such a lock file counts as left behind by another machine."""


@contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """Lock the files of that name for this process, and finish or sweep the remains of a crash.

    Raises OutputError.
    """
    lock = folder / f".{name}.lock"
    try:
        descriptor = _acquire(lock, PATIENCE, GIVEN_UP)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be written ({error.strerror}); fix the folder's permissions"
        ) from error
    if descriptor is None:
        raise OutputError(
            f"{folder / name}: another program has been working on it for {PATIENCE:.0f} s; end it, or wait"
        )
    try:
        settle(folder, name)
        finish(folder, name)
        sweep(folder)
        yield
    finally:
        unlock_file(lock, descriptor)


@contextmanager
def held(lock: Path) -> Iterator[bool]:
    """Hold a lock while a process works; false: another process has it. Raises ForeignError, OSError."""
    descriptor = _acquire(lock, SOON, atomic.ABANDONED)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            unlock_file(lock, descriptor)


def replace_all(
    folder: Path, name: str, contents: Mapping[str, bytes], private: Collection[str] = ()
) -> list[str]:
    """Put files of these names into the folder, all or none, while `alone`.

    A replaced file keeps its mode; only the user can read a `private` one. Links are replaced. Returns the
    names of the files that another program holds open (on Windows): the next call puts them in place. Raises
    OutputError; then nothing was replaced.
    """
    scratch = folder / atomic.scratch_name()
    try:
        atomic.unfinished.add(scratch)
        scratch.mkdir(0o700)
        with ThreadPoolExecutor(len(contents) or 1) as pool:  # so that the disk syncs them in one go
            for written in [
                pool.submit(
                    atomic.create, content, scratch / file, atomic.mode_for(folder / file, file in private)
                )
                for file, content in contents.items()
            ]:
                written.result()
            atomic.sync(scratch)
            # Not in this thread: Ctrl-C would come between two of them.
            return pool.submit(_commit, scratch, folder, name).result()
    except OSError as error:
        raise OutputError(
            f"{folder / name}: cannot be written ({error.strerror}); fix: free disk space, fix the folder's "
            "permissions, or write to another place"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        atomic.unfinished.discard(scratch)


def finish(folder: Path, name: str) -> list[str]:
    """Put saved files in their places, while `alone`; returns the names of those that cannot be put there.

    Raises ForeignError if there is something else, or a link; then nothing is moved.
    """
    saved = _saved(folder, name)
    try:
        with files.OpenFolder(saved) as source, files.OpenFolder(folder, follow=True) as target:
            waiting = source.names()
            for file in waiting:
                files.refuse_link(saved / file)
                if not (stat.S_ISREG(source.mode(file) or 0) and _is_of(file, name)):
                    raise ForeignError(f"{saved / file}: is nothing that Witness writes there; remove it")
            for file in waiting:
                with suppress(OSError):
                    source.place(file, target, file)
            left = [file for file in waiting if source.mode(file) is not None]
    except (FileNotFoundError, NotADirectoryError):
        return []
    atomic.sync(folder)
    if not left:
        with suppress(OSError):
            saved.rmdir()
    return left


def _is_of(file: str, name: str) -> bool:
    """Tell whether Witness writes a file called so beside the transcript of that name."""
    hidden = [f".{name}{ending}" for ending in (HISTORY, EARLIER, EARLIER_FINDINGS)]
    return file in (name, *hidden, *(f"{name}.{ending}" for ending in ENDINGS))


def carry(belongings: Collection[Path], folder: Path, name: str, target: Path, about: bytes = b"") -> None:
    """Move the files `belongings` of a name in a folder into a new folder, `target`, while `alone`.

    If `target` is named by `moving`, the next `settle` puts the files in place under their new name. All
    files move or none: until the folder that gathers the files is called `target`, they are put back. `about`
    goes with them, as `ABOUT`, until they are in place. Raises OSError; then all files are in their old
    places.
    """
    gathered = moving(folder, name)
    try:
        gathered.mkdir(0o700)
        if about:
            atomic.create(about, gathered / ABOUT, 0o600)
        atomic.sync(folder)
        for file in belongings:
            file.rename(gathered / _ending(file.name, name))
        atomic.sync(gathered)
        gathered.rename(target)
    except BaseException:
        settle(folder, name)
        raise
    atomic.sync(folder)
    atomic.sync(target.parent)


def settle(folder: Path, name: str) -> None:
    """Put the files on their way to this name into their places, while `alone`; nothing is replaced.

    Raises ForeignError.
    """
    arrived = moving(folder, name)
    with (
        suppress(FileNotFoundError, NotADirectoryError),
        files.OpenFolder(arrived) as source,
        files.OpenFolder(folder, follow=True) as target,
    ):
        for file in source.names():
            if file == ABOUT:
                source.remove(file)
                continue
            arrival = f"{'.' if file[0] == _HIDDEN else ''}{name}{file[1:]}"
            ours = file[0] in (_HIDDEN, _SEEN) and file[1:2] in ("", ".")
            if ours and not stat.S_ISDIR(source.mode(file) or 0) and target.mode(arrival) is None:
                with suppress(OSError):
                    source.place(file, target, arrival)
        atomic.sync(folder)
        with suppress(OSError):  # something is in the way of a file, which stays
            arrived.rmdir()


def moving(folder: Path, name: str) -> Path:
    """Return the folder of the files that are on their way to a name."""
    return folder / f".{name}{MOVING}"


ABOUT = "about"
"""Name of a file that describes the others on their way."""
_SEEN, _HIDDEN = "v", "h"
"""Letters that stand for the name in those of files on their way, visible or hidden."""


def _ending(file: str, name: str) -> str:
    """Return the name of a file on its way, which fits any new name of the transcript."""
    hidden = file.startswith(f".{name}")
    if not hidden and not file.startswith(name):  # the recording call.wav of call.again
        return f"{_SEEN}{Path(file).suffix}"
    return f"{_HIDDEN if hidden else _SEEN}{file[len(name) + hidden :]}"


def is_waiting(folder: Path, name: str, file: str) -> bool:
    """Tell whether a newer version of a file has been saved and is not in its place yet."""
    return (_saved(folder, name) / file).exists() or moving(folder, name).exists()


def is_left_over(path: Path) -> bool:
    """Tell whether a crash left this path to finish or remove."""
    if path.name.startswith(atomic.SCRATCH):
        return atomic.is_abandoned(path)
    return path.name.startswith(".") and path.name.endswith((SAVED, MOVING))


def sweep(folder: Path) -> None:
    """Remove the unfinished files of dead processes."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name.startswith(atomic.SCRATCH) and atomic.is_abandoned(path):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    with suppress(OSError):
                        path.unlink()


def tidy(folders: Iterable[Path]) -> None:
    """Finish and sweep the remains of crashes in folders, under any name."""
    for folder in folders:
        sweep(folder)
        for ending in (SAVED, MOVING):
            for path in folder.glob(f".*{ending}"):
                with suppress(OutputError), alone(folder, path.name[1:].removesuffix(ending)):
                    pass


def _saved(folder: Path, name: str) -> Path:
    return folder / f".{name}{SAVED}"


def _commit(scratch: Path, folder: Path, name: str) -> list[str]:
    saved = _saved(folder, name)
    with atomic.placing:
        if saved.exists():  # files that never reached their places and have newer versions now
            shutil.rmtree(saved)
        scratch.rename(saved)
        atomic.unfinished.discard(scratch)
        atomic.sync(folder)
        return finish(folder, name)


# --- the lock ---

without_locks: set[Path] = set()
"""Folders on drives without locks that this process has worked in."""
_owners: dict[int, Path] = {}
"""Open lock files of this process -> the name in them."""


def _acquire(path: Path, patience: float, given_up: float) -> int | None:
    """Return the open file of a lock; None: another process has it. Raises ForeignError, OSError."""
    try:
        return lock_file(path, patience)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        return _acquire_by_name(path, time.monotonic() + patience, given_up)


def lock_file(path: Path, patience: float = 0.0, mode: int = 0o666) -> int | None:
    """Open and lock a file of Witness; None: another process has it. Raises ForeignError, OSError."""
    end = time.monotonic() + patience
    while True:
        descriptor = files.own(path, os.O_RDWR | os.O_CREAT, mode)
        try:
            taken = try_lock(descriptor)
            # The last owner may have removed it: another file of that name may be the lock by now.
            if taken and is_there(descriptor, path):
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if not taken and time.monotonic() > end:
            return None
        time.sleep(0 if taken else LOOK)


def unlock_file(path: Path, descriptor: int) -> None:
    """Remove and close the open file of a lock."""
    atomic.unfinished.discard(_owners.pop(descriptor, path))
    with suppress(OSError):  # Windows removes no open file
        path.unlink()
    with suppress(OSError):
        os.close(descriptor)
    if os.name == "nt":
        with suppress(OSError):
            path.unlink()


def try_lock(descriptor: int) -> bool:
    """Lock an open file, unless another process has. Raises OSError, also where there are no locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        raise
    return True


def is_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _acquire_by_name(lock: Path, end: float, given_up: float) -> int | None:
    """Acquire a lock as `_acquire` does, on a drive without locks: the process that makes the file has it."""
    without_locks.add(lock.parent)
    with suppress(OSError):
        if not lock.lstat().st_size:  # the attempt to lock has made it
            lock.unlink()
    owner = lock.with_name(atomic.scratch_name())
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            atomic.unfinished.add(owner)
            _owners[descriptor] = owner
            os.write(descriptor, owner.name.encode())
            return descriptor
        except FileExistsError:
            with suppress(OSError):
                if (name := _left_behind(lock, given_up)) is not None and _removed(lock, name):
                    continue
        if time.monotonic() > end:
            return None
        time.sleep(LOOK)


def _left_behind(lock: Path, given_up: float) -> str | None:
    """Return the content of a lock whose process seems to have ended, or None. Raises OSError."""
    name = lock.read_text()
    old = time.time() - lock.lstat().st_mtime > given_up
    return name if old or atomic.is_abandoned(lock.with_name(name)) else None


def _removed(lock: Path, name: str) -> bool:
    """Remove a lock with this content only: another process may have taken it over since it was read.

    The process that makes a second file, named after the content of the lock, may do so. Raises OSError.
    """
    leave = lock.with_name(f"{lock.name}.{files.sha256(name.encode())[:16]}")
    try:
        os.close(os.open(leave, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if time.time() - leave.stat().st_mtime > GIVEN_UP:  # its maker has died, too
            leave.unlink()
        return False
    try:
        same = lock.read_text() == name
        if same:
            lock.unlink()
        return same
    finally:
        leave.unlink()
