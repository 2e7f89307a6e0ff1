"""A disk that loses at a power cut what was not synced.

`Disk` watches a folder while this process works in it. Before each step that changes names, at each fsync and
at each write of a descriptor it notes what changed since the step before. After a power cut any step may be
lost that is not synced: names as long as their folder is not, contents
as long as their file is not (all of it, its end, or zeros in its place). A rename is lost or kept as a whole,
and is synced with either of its folders.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass
class Node:
    """A file or a folder, whatever its name."""

    is_folder: bool
    link: str | None = None
    contents: list[tuple[int, bytes]] = field(default_factory=list)
    """Step and content since then."""
    synced: list[tuple[int, bytes]] = field(default_factory=list)
    """Step and content that survives a power cut from then on."""
    state: tuple[int, int] | None = None
    """Size and time when it was read."""

    def at(self, step: int, *, synced: bool = False) -> bytes:
        """Return the content at a step, or as much of it as surely survives."""
        known = self.synced if synced else self.contents
        return next((content for when, content in reversed(known) if when <= step), b"")


@dataclass
class Change:
    """Names that change together."""

    step: int
    names: list[tuple[int, str, int | None]]
    """Folder, name, and the node that it has now."""

    @property
    def folders(self) -> set[int]:
        return {folder for folder, _, _ in self.names}


class Disk:
    """A record of the folder `root`; `fails` is a step that the disk refuses."""

    def __init__(self, root: Path, fails: int | None = None) -> None:
        self.root = root
        self.step = 0
        self.promises: list[tuple[int, Any]] = []
        """Step and promise that holds from then on."""
        self.failed = False
        self._fails = fails
        self._lock = threading.RLock()
        self._busy = False
        self.nodes: list[Node] = []
        self._numbers: dict[int, int] = {}  # inode -> node
        self._names: dict[tuple[int, str], int] = {}
        self.changes: list[Change] = []
        self.folder_syncs: list[tuple[int, int]] = []
        self._look()
        self._first = dict(self._names)
        self.changes.clear()
        for node in self.nodes:
            node.synced = list(node.contents)

    def promise(self, fact: Any) -> None:
        """Note that a caller was told of a success."""
        with self._lock:
            self.note()
            self.promises.append((self.step, fact))

    def note(self, *, may_fail: bool = False) -> None:
        """Take in what changed since the last step; raise EIO at the step that fails."""
        with self._lock:
            if self._busy:
                return
            self._busy = True
            try:
                self._look()
                self.step += 1
                if may_fail and self.step == self._fails:
                    self.failed = True
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            finally:
                self._busy = False

    def sync(self, descriptor: int) -> None:
        """Take in an fsync."""
        with self._lock:
            self.note(may_fail=True)
            number = self._numbers.get(os.fstat(descriptor).st_ino)
            if number is None:
                return
            node = self.nodes[number]
            if node.is_folder:
                self.folder_syncs.append((self.step, number))
            else:
                node.synced.append((self.step, node.at(self.step)))

    def _look(self) -> None:
        """Find what changed in the folder, whose state is that before the next step."""
        names: dict[tuple[int, str], int] = {}
        seen: dict[int, int] = {}
        self._visit(self.root, names, seen)
        self._numbers = seen
        before, self._names = self._names, names
        gone = {key: number for key, number in before.items() if names.get(key) != number}
        for key, number in names.items():
            if before.get(key) == number:
                continue
            made = [(*key, number)]
            source = next((old for old, moved in gone.items() if moved == number and old not in names), None)
            if source is not None:
                del gone[source]
                made.append((*source, None))
            gone.pop(key, None)  # replaced
            self.changes.append(Change(self.step, made))
        for key in gone:
            if key not in names:
                self.changes.append(Change(self.step, [(*key, None)]))

    def _visit(self, path: Path, names: dict[tuple[int, str], int], seen: dict[int, int]) -> int:
        status = path.lstat()
        number = seen.get(status.st_ino, self._numbers.get(status.st_ino))
        is_folder = stat.S_ISDIR(status.st_mode)
        if number is None or self.nodes[number].is_folder != is_folder:
            number = len(self.nodes)
            link = str(path.readlink()) if stat.S_ISLNK(status.st_mode) else None
            self.nodes.append(Node(is_folder, link))
        node = self.nodes[number]
        if status.st_ino in seen:
            return number
        seen[status.st_ino] = number
        if is_folder:
            for entry in sorted(os.listdir(path)):  # noqa: PTH208 - names alone
                try:
                    names[number, entry] = self._visit(path / entry, names, seen)
                except FileNotFoundError:  # noqa: PERF203
                    continue
        elif stat.S_ISREG(status.st_mode) and node.state != (status.st_size, status.st_mtime_ns):
            content = path.read_bytes()
            node.state = status.st_size, status.st_mtime_ns
            if not node.contents or node.contents[-1][1] != content:
                node.contents.append((self.step, content))
        return number

    # --- the power cut ---

    def survivors(self, step: int, chance: random.Random) -> dict[tuple[int, str], int]:
        """Return the names after a power cut at a step.

        Of the unsynced changes of each folder the first survive, or, on a disk that keeps no order, any.
        """
        changes = [change for change in self.changes if change.step < step]
        syncs = [(when, folder) for when, folder in self.folder_syncs if when <= step]
        keeps_order = chance.random() < 0.5

        def parts(change: Change) -> set[Any]:
            return change.folders if keeps_order else {(folder, name) for folder, name, _ in change.names}

        needed: set[Any] = set()
        durable = set()
        for number in reversed(range(len(changes))):
            change = changes[number]
            synced = any(folder in change.folders and when > change.step for when, folder in syncs)
            if synced or parts(change) & needed:
                durable.add(number)
                needed |= parts(change)
        counts = Counter(
            folder
            for number, change in enumerate(changes)
            if number not in durable
            for folder in change.folders
        )
        left = {
            folder: chance.choice([0, count, chance.randint(0, count)]) for folder, count in counts.items()
        }
        names, lost = dict(self._first), set()
        for number, change in enumerate(changes):
            if number not in durable:
                lasts = all(left[folder] > 0 for folder in change.folders)
                if not keeps_order:
                    lasts = chance.random() < 0.5
                if not lasts or parts(change) & lost:
                    lost |= parts(change)
                    continue
                for folder in change.folders:
                    left[folder] -= 1
            for folder, name, node in change.names:
                if node is None:
                    names.pop((folder, name), None)
                else:
                    names[folder, name] = node
        return names

    def restore(self, step: int, chance: random.Random) -> list[Any]:
        """Put the folder into a state after a power cut at a step; return the promises made before."""
        luck = chance.choice([0.0, 0.5, 1.0])
        names = self.survivors(step, chance)
        shutil.rmtree(self.root)
        contents: dict[int, bytes] = {}
        inside: dict[int, list[tuple[str, int]]] = {}
        for (folder, name), number in names.items():
            inside.setdefault(folder, []).append((name, number))
        made: dict[int, Path] = {}

        def build(path: Path, number: int) -> None:
            node = self.nodes[number]
            if node.is_folder:
                path.mkdir(0o700)
                for name, child in inside.get(number, ()):
                    build(path / name, child)
            elif node.link is not None:
                path.symlink_to(node.link)
            elif number in made:
                os.link(made[number], path)
            else:
                if number not in contents:
                    contents[number] = self._content(node, step, chance, luck)
                path.write_bytes(contents[number])
                made[number] = path

        build(self.root, 0)
        return [fact for when, fact in self.promises if when <= step]

    def _content(self, node: Node, step: int, chance: random.Random, luck: float) -> bytes:
        """Return the content of a file after a power cut."""
        now, sure = node.at(step), node.at(step, synced=True)
        if now == sure or chance.random() < luck:
            return now
        same = len(sure) if now.startswith(sure) else 0
        half = now[: chance.randint(same, len(now))]
        return chance.choice([sure, half, now[:same] + bytes(len(now) - same)])


_active: list[Disk] = []
_own = os.fsync, os.write


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _active:
        return
    disk = _active[-1]
    if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING):
        path = arguments[0]
        if isinstance(path, str | bytes | os.PathLike):
            full = Path(os.fsdecode(path))
            if full.is_absolute() and not full.is_relative_to(disk.root):
                return
        disk.note(may_fail=not isinstance(path, int))


@contextmanager
def watched(root: Path, fails: int | None = None) -> Iterator[Disk]:
    """Record what this process does in a folder; the disk refuses the step `fails`."""
    if not hasattr(_hook, "added"):
        sys.addaudithook(_hook)
        _hook.added = True  # type: ignore[attr-defined]
    disk = Disk(root, fails)

    def fsync(descriptor: int) -> None:
        disk.sync(descriptor)

    def write(descriptor: int, content: bytes) -> int:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            disk.note(may_fail=True)
        return _own[1](descriptor, content)

    _active.append(disk)
    os.fsync, os.write = fsync, write
    try:
        yield disk
    finally:
        os.fsync, os.write = _own
        _active.remove(disk)
        disk.note()
