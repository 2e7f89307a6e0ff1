"""On-disk checkpoints that let an interrupted run resume.

A journal is a file in Witness's cache that only its user can read. Records are only ever added to it, each
synced, so that a power cut costs the last one at most:

    size of the content, 8 bytes    sha256 of key and content, 32    key, 32    content

Where a record is not whole, the file ends; it is cut there. One process at a time has a journal, under a lock
that the system gives back when it ends. A journal is deleted once the results are written, or when it is old.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from witness.errors import ForeignError
from witness.progress import Note, no_note
from witness.storage import atomic, cache, transaction

OLD = 7 * 86_400.0
"""Seconds that a journal is kept after its last record."""
LARGEST = 1 << 30
"""Bytes of a journal that are read; the pieces of an hour take 0.5 MB, its findings 2 MB."""
_HEAD = struct.Struct("<Q32s32s")


class Journal:
    """Records by key. Until `open` is called, and where nothing can be kept, it keeps nothing.

    A context manager; leaving it closes the file, which `forget` deletes.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._file: int | None = None
        self._records: dict[bytes, bytes] = {}
        self._note: Note = no_note
        self._resumed = False

    def open(self, name: str, note: Note = no_note, recording: str = "") -> bool:
        """Open the journal of that name, or begin it; return whether it has records.

        The name of its file begins with the sha256 of the `recording`, for `cache.forget_recording`.
        `note` is called once if nothing can be kept. A journal that another process has open stays closed
        here.
        """
        self._note = note
        folder = cache.cache_folder() / cache.UNFINISHED
        self._path = path = folder / f"{recording}-{key(name).hex()}.journal"
        try:
            atomic.make_folder(folder, 0o700)
            _sweep(folder)
            self._file = transaction.lock_file(path, mode=0o600)
            if self._file is not None:
                self._read(self._file)
                atomic.sync(folder)
        except (OSError, ForeignError) as error:
            self._give_up(error)
        self._resumed = bool(self._records)
        return self._resumed

    @property
    def resumed(self) -> bool:
        """True if it had records when it was opened."""
        return self._resumed

    def get(self, name: str) -> bytes | None:
        """Return the content that was added under that name."""
        return self._records.get(key(name))

    def add(self, name: str, content: bytes) -> None:
        """Keep `content`, also through a power cut from now on."""
        if self._file is None:
            return
        record = key(name)
        head = _HEAD.pack(len(content), sha256(record + content).digest(), record)
        rest = memoryview(head + content)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as error:
            self._give_up(error)

    def forget(self) -> None:
        """Delete the file: it is not needed anymore."""
        if self._file is not None and self._path is not None:
            transaction.unlock_file(self._path, self._file)
            self._file = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            empty = not os.fstat(self._file).st_size
            if empty:
                self.forget()
            else:
                os.close(self._file)
            self._file = None

    def _read(self, file: int) -> None:
        """Take in the records that are whole, and cut the file after them. Raises OSError."""
        with os.fdopen(os.dup(file), "rb") as reader:
            content = reader.read(LARGEST)
        end = 0
        for record, kept in records(content):
            self._records[record] = kept
            end += _HEAD.size + len(kept)
        os.ftruncate(file, end)
        os.lseek(file, end, os.SEEK_SET)

    def _give_up(self, error: OSError | ForeignError) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None
        reason = error.strerror if isinstance(error, OSError) else error
        where = cache.cache_folder() / cache.UNFINISHED
        self._note(f"if this is interrupted, it begins again: nothing is kept in {where} ({reason})")


def records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Key and content of the records of a journal, up to the first that is not whole."""
    offset = 0
    while offset + _HEAD.size <= len(content):
        size, checksum, record = _HEAD.unpack_from(content, offset)
        offset += _HEAD.size
        kept = content[offset : offset + size]
        if len(kept) != size or sha256(record + kept).digest() != checksum:
            return
        yield record, kept
        offset += size


def key(name: str) -> bytes:
    """Return the key of a record or a journal."""
    return sha256(name.encode("utf-8", "surrogateescape")).digest()


def _sweep(folder: Path) -> None:
    """Delete the old journals that no process has open."""
    for path in folder.glob("*.journal"):
        with suppress(OSError):
            if (
                time.time() - path.lstat().st_mtime > OLD
                and (file := transaction.lock_file(path)) is not None
            ):
                transaction.unlock_file(path, file)
