"""Where results go, checked before the work; results written whole or not at all; reading; hashes, cache."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from witness._version import install
from witness.errors import OutputError, UsageError, WitnessError
from witness.formats.registry import Format
from witness.text import for_terminal

T = TypeVar("T")

LONGEST = 230
"""Bytes of a file name without its ending; file systems take 255."""
LARGEST = 512 << 20
"""Bytes that are read at once. The findings of a day have 170 MB."""

SCRATCH = ".witness-"
"""Prefix of the names of unfinished files; the machine and the process that write them follow."""
ABANDONED = 24 * 3600.0
"""Seconds after which those of another machine are taken to be left behind."""


@dataclass(frozen=True)
class Targets:
    """Where the results of a run go."""

    files: tuple[tuple[str, Path | None], ...]
    """Each format and its file; None: stdout."""
    made: tuple[Path, ...] = ()
    """The folders that were made for them, the innermost first."""

    @property
    def json(self) -> Path | None:
        """The JSON file; None: there is none."""
        return next((path for form, path in self.files if form == Format.JSON), None)

    def give_up(self) -> None:
        """Remove the folders that were made, as far as they are empty: nothing will be written."""
        for folder in self.made:
            with suppress(OSError):
                folder.rmdir()


def plan(
    recording: str,
    formats: Sequence[str],
    output: str | None,
    *,
    keep: bool = True,
    free: Callable[[Sequence[Path]], bool] | None = None,
) -> Targets:
    """The files for `-f FORMATS -o OUTPUT`, checked by `prepare`.

    In a folder they have the first of the `names` of the recording whose files are `free` to take; None: all
    are. Raises UsageError if the request makes no sense, OutputError if something cannot be written,
    WitnessError if a format needs a library that is not installed.
    """
    formats = tuple(dict.fromkeys(formats))
    check_libraries(formats)
    if output is None or output == "-":
        if len(formats) > 1:
            raise UsageError("several formats need a folder; give one with -o FOLDER")
        if sys.stdout is None:
            raise OutputError("stdout is closed; open it, or write a file with -o")
        unreadable = [form for form in formats if Format(form).about.binary]
        if unreadable and sys.stdout.isatty():
            raise UsageError(
                f"{unreadable[0]} is not text, which a terminal could show; write it to a file with -o"
            )
        return Targets(((formats[0] if formats else "txt", None),))
    if not output:
        raise UsageError("-o is empty; give a folder or a file")
    _check_ending(output)
    try:
        files = _plan_files(recording, formats, output, free)
        source = Path(recording)
        for _, target in files:
            if recording != "-" and target.exists() and source.exists() and target.samefile(source):
                raise UsageError(f"{target}: is the recording itself; change -o")
    except OSError as error:
        raise OutputError(f"{output}: cannot be written ({error.strerror}); change -o") from error
    return prepare(files, keep=keep)


def check_libraries(formats: Sequence[str]) -> None:
    """Raise WitnessError if one of the formats needs a library that is not installed."""
    for form in map(Format, formats):
        if not form.installed:
            about = form.about
            raise WitnessError(f"{form} needs {about.package}; fix: {install(about.extra)}")


def name_of(base: str | os.PathLike[str], form: str) -> str:
    """The file of a format: `base`, which has no ending, with the format's own."""
    return f"{os.fspath(base)}.{Format(form).ending}"


def format_of(name: str) -> Format | None:
    """The format that a file's name stands for: of those whose ending it has, the one with the longest."""
    named = [form for form in Format if name.lstrip(".").lower().endswith(f".{form.ending.lower()}")]
    return max(named, key=lambda form: len(form.ending), default=None)


def _plan_files(
    recording: str, formats: tuple[str, ...], output: str, free: Callable[[Sequence[Path]], bool] | None
) -> tuple[tuple[str, Path], ...]:
    path = Path(output)
    named = format_of(path.name)
    is_folder = path.is_dir() or output.endswith(("/", os.sep))
    if not is_folder and (named or path.exists()):
        if len(formats) > 1 or (formats and named and not _may_be_called(formats[0], path)):
            raise UsageError(
                f"-o {output} is one file, but -f says {', '.join(formats)}; give a folder with -o"
            )
        name = formats[0] if formats else named or Format.TXT
        check_libraries([name])
        return ((name, path),)
    stems = ("stdin",) if recording == "-" else names(Path(recording).name, os.path.abspath(recording))  # noqa: PTH100
    forms = formats or (Format.TXT,)
    choices = [tuple((form, Path(name_of(path / stem, form))) for form in forms) for stem in stems]
    if free is None:
        return choices[0]
    return next((files for files in choices if free([target for _, target in files])), choices[-1])


def names(place: str, source: str) -> tuple[str, str, str]:
    """What the results of a recording may be called, without their endings, the usual one first.

    `place` is its name, or its path in a tree of results, `source` its absolute path. All are short enough
    for any ending; the last belongs to no other recording.
    """
    digest = hashlib.sha256(os.fsencode(source)).hexdigest()[:8]
    whole = _shortened(place)
    return _shortened(os.path.splitext(place)[0]), whole, f"{whole}~{digest}"  # noqa: PTH122


def _shortened(path: str) -> str:
    """The path with a last part that leaves room for endings."""
    folder, name = os.path.split(path)
    if len(os.fsencode(name)) > LONGEST:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
        name = f"{os.fsencode(name)[: LONGEST - 9].decode('utf-8', 'ignore')}~{digest}"
    return os.path.join(folder, name)  # noqa: PTH118


def beside(path: Path) -> Path:
    """Where the findings of a JSON file at `path` lie."""
    return path.with_name(f"{path.stem if path.suffix == '.json' else path.name}.findings.npz")


def prepare(files: Sequence[tuple[str, Path]], *, keep: bool = True, pipes: bool = True) -> Targets:
    """The formats and their files, which can be written: nothing is in their way, their folder is there.

    With `keep` the findings beside a JSON file are checked, too. A new folder for them is the user's
    alone, because they hold voices. Without `pipes`, what is no regular file is refused; otherwise it is
    written into. Raises OutputError.
    """
    folder = files[0][1].parent
    targets = Targets(tuple(files))
    try:
        findings = [beside(path) for form, path in files if form == Format.JSON and keep and is_regular(path)]
        missing = tuple(parent for parent in (folder, *folder.parents) if not parent.exists())
        targets = Targets(tuple(files), missing)
        _made.update(missing)
        folder.mkdir(0o700 if findings else 0o777, parents=True, exist_ok=True)
        for path in [target for _, target in files]:
            _check(path, pipes)
        for path in findings:
            _check(path, False)
    except BaseException as error:
        targets.give_up()
        if isinstance(error, OSError):
            raise OutputError(f"{folder}: cannot be written ({error.strerror}); change -o") from error
        raise
    return targets


def _check_ending(output: str) -> None:
    """Raise UsageError for what looks like a file of a format that there is not."""
    path = Path(output)
    looks = re.fullmatch(r"\.[a-z][a-z0-9]{1,4}", path.suffix, re.IGNORECASE | re.ASCII)
    if looks and format_of(path.name) is None and not path.exists() and not output.endswith(("/", os.sep)):
        known = ", ".join(Format)
        raise UsageError(
            f"-o {output}: there is no format {path.suffix[1:]}; change -o to one of {known}, or to "
            f"{output}{os.sep} for a folder"
        )


def _may_be_called(form: str, path: Path) -> bool:
    """Whether files of the format have this file's last ending."""
    return path.suffix.lower() == Path(name_of("x", form)).suffix.lower()


def _check(path: Path, pipes: bool) -> None:
    """Raise OutputError unless a file can be written at `path`."""
    try:
        mode = path.stat().st_mode  # raises for a name that is too long and for a loop of links
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror}); change -o") from error
    if stat.S_ISDIR(mode):
        raise OutputError(f"{path}: is a folder; change -o")
    if not stat.S_ISREG(mode):
        if not pipes:
            raise OutputError(f"{path}: is not a regular file; remove it, or change -o")
        return
    folder = path.resolve().parent
    if not os.access(folder, os.W_OK | os.X_OK):
        reason = "no permission" if folder.exists() else "its link leads to a missing folder"
        raise OutputError(f"{path}: cannot be written ({reason}); change -o")


def is_regular(path: Path) -> bool:
    """Whether what is written there will be a regular file: it is one, or nothing yet."""
    return path.is_file() or not path.exists()


def write(content: bytes, path: Path | None, *, private: bool = False) -> None:
    """Write the whole file or nothing: under another name in its folder, synced, then renamed. None: stdout.

    It keeps the mode of the file that it replaces. One that is `private` can be read by nobody else, or, if
    it replaces one, by its group at most. A link is followed; what is not a regular file (a pipe, a terminal)
    is written as it is. Raises OutputError, and BrokenPipeError if the reader of stdout is gone.
    """
    write_all([(content, path)], private=[path] if private and path is not None else [])


def write_all(files: Sequence[tuple[bytes, Path | None]], *, private: Collection[Path] = ()) -> None:
    """As `write`, for several files: all are on the disk before the first of them takes its place."""
    for content, path in files:
        if path is None:
            _to_stdout(content)
    targets = [(content, path.resolve(), path in private) for content, path in files if path is not None]
    if not targets:
        return
    waiting: list[tuple[Path, Future[_Scratch | None]]] = []
    try:
        # At the same time, so that the disk syncs them in one go: docs/decisions/2026-11-22-constants.md.
        with ThreadPoolExecutor(len(targets)) as pool:
            for content, path, secret in targets:
                waiting.append((path, pool.submit(_prepare, content, path, secret)))
            ready = [(path, _told(path, future.result)) for path, future in waiting]
            # Not in this thread: Ctrl-C would come between two of them.
            pool.submit(_place, ready).result()
    finally:
        for _, future in waiting:
            if future.exception() is None and (left := future.result()) is not None:
                _remove(left.path)


def _place(ready: Sequence[tuple[Path, _Scratch | None]]) -> None:
    """Put unfinished files, which are whole by now, in their places."""
    with placing:
        for path, scratch in ready:
            if scratch is not None:
                _told(path, partial(scratch.place, path))
    for folder in {path.parent for path, scratch in ready if scratch is not None}:
        sync(folder)


def _told(path: Path, step: Callable[[], T]) -> T:
    """The result of `step`, whose OSError becomes an OutputError about `path`."""
    try:
        return step()
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); fix: free disk space, fix the folder's "
            "permissions, or write to another place"
        ) from error


def _prepare(content: bytes, path: Path, private: bool) -> _Scratch | None:
    """The unfinished file with the content; None: it was written, because `path` is not a regular file."""
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        with path.open("wb") as file:
            file.write(content)
        return None
    return _scratch(content, path, private)


def replace(content: bytes, path: Path) -> None:
    """Put `content` at `path` so that no reader ever sees half of it. Raises OSError."""
    scratch = _scratch(content, path)
    try:
        scratch.place(path)
    finally:
        _remove(scratch.path)
    sync(path.parent)


@dataclass(frozen=True)
class _Scratch:
    """An unfinished file, which nobody else can read."""

    path: Path
    mode: int
    """What it gets in its place."""

    def place(self, path: Path) -> None:
        """Put it there. Raises OSError."""
        if os.name != "nt":
            self.path.chmod(self.mode)
        self.path.replace(path)


def _scratch(content: bytes, path: Path, private: bool = False) -> _Scratch:
    """A synced file with the content, in the folder of `path`, under a name of its own. Raises OSError."""
    scratch = path.with_name(scratch_name())
    mode = mode_for(path, private)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    # A new file gets the mode that any new file gets, which only the system knows without a race.
    descriptor = os.open(scratch, flags, 0o666 if mode is None else 0o600)
    unfinished.add(scratch)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is None:
                mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if hasattr(os, "fchmod"):  # Windows has none before Python 3.13
                os.fchmod(descriptor, 0o600)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        _remove(scratch)
        raise
    return _Scratch(scratch, mode)


def sync(folder: Path) -> None:
    """Have the disk keep what was renamed in a folder; some systems and drives do so by themselves."""
    if os.name == "nt":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def scratch_name() -> str:
    """A name for something unfinished, which says who works on it."""
    return f"{SCRATCH}{_machine()}-{os.getpid()}-{secrets.token_hex(8)}"


def is_abandoned(scratch: Path) -> bool:
    """Whether a file with a `scratch_name` is of a process that has ended, as far as can be told."""
    machine, _, rest = scratch.name.removeprefix(SCRATCH).partition("-")
    pid = rest.partition("-")[0]
    if not pid.isdigit():
        return False
    if machine != _machine():
        with suppress(OSError):
            return time.time() - scratch.lstat().st_mtime > ABANDONED
        return False
    if int(pid) == os.getpid():  # or a process that had this number before, as the first of a container
        return scratch not in unfinished
    return not _alive(int(pid))


@cache
def _machine() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:6]


def _alive(pid: int) -> bool:
    """Whether there is a process with this id, as far as can be told without harm."""
    if os.name == "nt":  # where this call would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def mode_for(path: Path, private: bool) -> int | None:
    """The permissions for what takes the place of `path`; None: the usual ones."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode) & 0o777
    except OSError:  # nothing there
        return 0o600 if private else None
    return mode & 0o770 if private else mode


placing = threading.Lock()
"""Held while whole files are put in their places, one after the other; a process that ends waits for it."""
PATIENCE = 1.0
"""Seconds that it waits."""
unfinished: set[Path] = set()
"""Scratch files of this process that may still be there."""
_made: set[Path] = set()
"""Folders that this process made for results."""


def _remove(scratch: Path) -> None:
    scratch.unlink(missing_ok=True)
    unfinished.discard(scratch)


def abandon() -> None:
    """Remove what is half written, and new folders that are empty; for a process that ends at once."""
    finished = placing.acquire(timeout=PATIENCE)  # what is being put in place right now comes first
    try:
        for scratch in list(unfinished):
            if scratch.is_dir():
                shutil.rmtree(scratch, ignore_errors=True)
            with suppress(OSError):
                scratch.unlink()
    finally:
        if finished:
            placing.release()
    for folder in sorted(_made, key=lambda one: -len(one.parts)):
        with suppress(OSError):
            folder.rmdir()


def _to_stdout(content: bytes) -> None:
    if sys.stdout is None:
        raise OutputError("stdout is closed; open it, or write a file with -o")
    try:
        if sys.stdout.isatty():  # as `ls` does: a pipe or a file gets the bytes as they are
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


# --- reading, hashes ---


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
        return file.read(most)


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


# --- what can be made again ---


def cache_folder() -> Path:
    """Where Witness keeps what it can make again: WITNESS_CACHE, otherwise the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("WITNESS_CACHE") or platformdirs.user_cache_dir("witness", appauthor=False))


def told_before(what: str) -> bool:
    """Whether a person on this machine has been told this; from now on they have."""
    place = cache_folder() / "told" / sha256(what.encode())[:16]
    if place.exists():
        return True
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    return False


def cached(folder: Path, names: Sequence[str], make: Callable[[], Sequence[bytes]]) -> Sequence[bytes]:
    """What `make` returns: from files of these names in `folder` if they are whole, otherwise made and kept.

    Their sha256 are kept beside them. Where nothing can be kept, everything is made each time.
    """
    manifest = folder / "sha256.json"
    try:
        contents = [read(folder / name) for name in names]
        if json.loads(read(manifest)) == [sha256(content) for content in contents]:
            return contents
    except (OSError, ValueError):
        pass  # not made yet, or damaged; all are made again
    made = make()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in zip(names, made, strict=True):
            replace(content, folder / name)
        replace(json.dumps([sha256(content) for content in made]).encode(), manifest)
    return made
