"""How a recording that was sent gets into the folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path

from witness.errors import OutputError
from witness.work.manifest import Entry, Manifest
from witness.work.overrides import RecordingWish
from witness.work.recordings import Item, assign, size_and_mtime


def begun(item: Item) -> Entry:
    """It waits; with what settings it will be worked on is not known yet."""
    place = item.output, item.source, item.size, item.mtime_ns
    return Entry(*place, None, "", "begun", wish=item.wish.told(), again=item.again)


def take(folder: Path, manifest: Manifest, scratch: Path, name: str, wish: RecordingWish) -> Item:
    """Move a file on the same disk into the folder, under this name or a free one. Raises OutputError."""
    try:
        path = folder / free_name(name, os.listdir(folder))  # noqa: PTH208 - names alone
        ((source, output),) = assign([(str(path), path.name)], manifest)
        item = Item(source, output, *size_and_mtime(str(scratch)), wish)
        # Before it is there: what is there and is no batch's own was not uploaded.
        manifest.append(begun(item))
        _move(scratch, path)
    except OSError as error:
        raise OutputError(
            f"{name}: cannot be kept ({error.strerror}); fix: free disk space or fix the folder's permissions"
        ) from error
    return item


def moved(manifest: Manifest, folder: Path, path: Path, place: Path) -> None:
    """Have the manifest say that a transcript is elsewhere, and its recording with it. Raises OutputError."""
    before, now = (one.as_posix().removesuffix(".json") for one in (path, place))
    entry = manifest.entries.get(before)
    if entry is not None:
        source = (folder / now).with_name(f"{Path(now).name}{Path(entry.source).suffix}")
        manifest.append(replace(entry, output=now, source=str(source if source.exists() else entry.source)))


def gone(manifest: Manifest, path: Path) -> None:
    """Have the manifest say that a transcript was thrown away. Raises OutputError."""
    entry = manifest.entries.get(path.as_posix().removesuffix(".json"))
    if entry is not None:
        manifest.append(replace(entry, state="canceled", error=None))


def free_name(name: str, taken: Iterable[str]) -> str:
    """The name, with a number if a file of that name lies there, or results of a recording of that name."""
    stem, ending = os.path.splitext(name)  # noqa: PTH122
    there = [one.casefold() for one in taken]
    for number in count(1):
        free = stem if number == 1 else f"{stem}-{number}"
        if not any(one.startswith(f"{free.casefold()}.") for one in there):
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
