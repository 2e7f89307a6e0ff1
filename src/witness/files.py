"""Where results go, checked before the work; results written whole or not at all; hashes; the cache."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from witness.errors import OutputError, UsageError
from witness.options import Format
from witness.text import for_terminal

T = TypeVar("T")

SCRATCH = ".witness-"
"""Prefix of the names of unfinished files; the id of the process that writes them follows."""


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


def plan(recording: str, formats: Sequence[str], output: str | None) -> Targets:
    """The files for `-f FORMATS -o OUTPUT`; their folder is made, and can be written.

    Raises UsageError if the request makes no sense, OutputError if the folder cannot be written.
    """
    formats = tuple(dict.fromkeys(formats))
    if output is None or output == "-":
        if len(formats) > 1:
            raise UsageError("several formats need a folder; give one with -o FOLDER")
        if sys.stdout is None:
            raise OutputError("stdout is closed; open it, or write a file with -o")
        return Targets(((formats[0] if formats else "txt", None),))
    if not output:
        raise UsageError("-o is empty; give a folder or a file")
    try:
        return _plan_files(recording, formats, output)
    except OSError as error:
        raise OutputError(f"{output}: cannot be written ({error.strerror}); change -o") from error


def _plan_files(recording: str, formats: tuple[str, ...], output: str) -> Targets:
    path = Path(output)
    ending = path.suffix[1:].lower()
    is_folder = path.is_dir() or output.endswith(("/", os.sep))
    if not is_folder and (ending in set(Format) or path.exists()):
        if len(formats) > 1 or (formats and ending in set(Format) and formats != (ending,)):
            raise UsageError(
                f"-o {output} is one file, but -f says {', '.join(formats)}; give a folder with -o"
            )
        name = formats[0] if formats else ending if ending in set(Format) else "txt"
        files: tuple[tuple[str, Path], ...] = ((name, path),)
    else:
        stem = "stdin" if recording == "-" else Path(recording).stem
        files = tuple((name, path / f"{stem}.{name}") for name in formats or ("txt",))
    source = Path(recording)
    for _, target in files:
        if target.is_dir():
            raise OutputError(f"{target}: is a folder; change -o")
        if recording != "-" and target.exists() and source.exists() and target.samefile(source):
            raise UsageError(f"{target}: is the recording itself; change -o")
    folder = files[0][1].parent
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK) and not files[0][1].exists():
        raise OutputError(f"{folder}: cannot be written (no permission); change -o")
    return Targets(files, tuple(missing))


def write(content: bytes, path: Path | None) -> None:
    """Write the whole file or nothing: under another name in its folder, synced, then renamed. None: stdout.

    A link is followed; what is not a regular file (a pipe, a terminal) is written as it is. Raises
    OutputError, and BrokenPipeError if the reader of stdout is gone.
    """
    write_all([(content, path)])


def write_all(files: Sequence[tuple[bytes, Path | None]]) -> None:
    """As `write`, for several files: all are on the disk before the first of them takes its place."""
    for content, path in files:
        if path is None:
            _to_stdout(content)
    targets = [(content, path.resolve()) for content, path in files if path is not None]
    if not targets:
        return
    waiting: list[tuple[Path, Future[Path | None]]] = []
    try:
        # At the same time, so that the disk syncs them in one go: docs/decisions/2026-11-22-constants.md.
        with ThreadPoolExecutor(len(targets)) as pool:
            for content, path in targets:
                waiting.append((path, pool.submit(_prepare, content, path)))
        ready = [(path, _told(path, future.result)) for path, future in waiting]
        for path, scratch in ready:
            if scratch is not None:
                _told(path, partial(scratch.replace, path))
    finally:
        for _, future in waiting:
            if future.exception() is None and (left := future.result()) is not None:
                left.unlink(missing_ok=True)


def _told(path: Path, step: Callable[[], T]) -> T:
    """The result of `step`, whose OSError becomes an OutputError about `path`."""
    try:
        return step()
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); fix: free disk space or fix the folder's "
            "permissions, or change -o"
        ) from error


def _prepare(content: bytes, path: Path) -> Path | None:
    """The unfinished file with the content; None: it was written, because `path` is not a regular file."""
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        with path.open("wb") as file:
            file.write(content)
        return None
    return _scratch(content, path)


def replace(content: bytes, path: Path) -> None:
    """Put `content` at `path` so that no reader ever sees half of it. Raises OSError."""
    scratch = _scratch(content, path)
    try:
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _scratch(content: bytes, path: Path) -> Path:
    """A synced file with the content, in the folder of `path`, under a name of its own. Raises OSError."""
    scratch = path.with_name(f"{SCRATCH}{os.getpid()}-{secrets.token_hex(8)}")
    # Made with the mode that any new file gets, which only the system knows without a race.
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    return scratch


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


# --- hashes ---


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
    """The SHA-256 of the file at `path`. Raises OSError."""
    with Path(path).open("rb") as file:
        return sha256_of(file)


# --- what can be made again ---


def cache_folder() -> Path:
    """Where Witness keeps what it can make again: WITNESS_CACHE, otherwise the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("WITNESS_CACHE") or platformdirs.user_cache_dir("witness", appauthor=False))


def cached(folder: Path, names: Sequence[str], make: Callable[[], Sequence[bytes]]) -> Sequence[bytes]:
    """What `make` returns: from files of these names in `folder` if they are whole, otherwise made and kept.

    Their sha256 are kept beside them. Where nothing can be kept, everything is made each time.
    """
    manifest = folder / "sha256.json"
    try:
        contents = [(folder / name).read_bytes() for name in names]
        if json.loads(manifest.read_text()) == [sha256(content) for content in contents]:
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
