"""The way of a recording into the folder and its manifest."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path

from witness.errors import OutputError
from witness.work.folder import begun
from witness.work.manifest import Manifest
from witness.work.overrides import JobOverrides
from witness.work.recordings import Item, assign, size_and_mtime


def take(folder: Path, manifest: Manifest, scratch: Path, name: str, overrides: JobOverrides) -> Item:
    """Move a file on the same disk into the folder, under this name or a free one. Raises OutputError."""
    try:
        path = folder / free_name(name, os.listdir(folder))  # noqa: PTH208 - names alone
        ((source, output),) = assign([(str(path), path.name)], manifest)
        item = Item(source, output, *size_and_mtime(str(scratch)), overrides)
        # Before the file is there: the manifest must not miss it after a kill.
        manifest.append(begun(item))
        _move(scratch, path)
    except OSError as error:
        raise OutputError(
            f"{name}: cannot be kept ({error.strerror}); fix: free disk space or fix the folder's permissions"
        ) from error
    return item


def note_move(manifest: Manifest, folder: Path, path: Path, target: Path) -> None:
    """Note in the manifest that a transcript was moved, and its recording with it. Raises OutputError."""
    before, now = (json.as_posix().removesuffix(".json") for json in (path, target))
    entry = manifest.entries.get(before)
    if entry is not None:
        source = (folder / now).with_name(f"{Path(now).name}{Path(entry.source).suffix}")
        manifest.append(replace(entry, output=now, source=str(source if source.exists() else entry.source)))


def note_deletion(manifest: Manifest, path: Path) -> None:
    """Note in the manifest that a transcript was thrown away. Raises OutputError."""
    entry = manifest.entries.get(path.as_posix().removesuffix(".json"))
    if entry is not None:
        manifest.append(replace(entry, state="canceled", error=None))


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return the name, with a number if a file or results of a recording with that name exist."""
    stem, ending = os.path.splitext(name)  # noqa: PTH122
    names = [other.casefold() for other in taken]
    for number in count(1):
        free = stem if number == 1 else f"{stem}-{number}"
        if not any(other.startswith(f"{free.casefold()}.") for other in names):
            return free + ending
    raise AssertionError


def _move(scratch: Path, path: Path) -> None:
    """Rename a file to a name that must be free. Raises OSError."""
    try:
        os.link(scratch, path)
    except FileExistsError:
        raise
    except OSError:  # a disk without hard links
        scratch.rename(path)
    else:
        scratch.unlink()
