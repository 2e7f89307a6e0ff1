"""Recordings that a browser makes: they come piece by piece while they are made, and survive whatever ends.

A take lies in a hidden folder below the desk's, as what has arrived of its sound and its name. It leaves when
it is finished, by whoever finds it: the page that made it, or the next one.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from witness.errors import InputError, OutputError
from witness.serve.uploads import ROOM
from witness.storage import files

PLACE = ".witness-takes"
OURS = re.compile(r"[0-9a-f]{16}")
MOST = 50
"""Takes that are not finished."""
IDLE = 15.0
"""Seconds without a piece after which nobody seems to record it anymore."""


class OtherPlaceError(Exception):
    """A piece does not follow what is there; `size` is how much that is."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the next piece begins at {size}")
        self.size = size


@dataclass(frozen=True)
class Take:
    """A recording that is not finished."""

    id: str
    name: str
    """Of the file that it will be."""
    size: int
    """Bytes that have arrived."""
    changed: float
    """When the last did, in seconds since 1970."""

    @property
    def idle(self) -> bool:
        """Whether nobody seems to record it anymore."""
        return time.time() - self.changed > IDLE


class Takes:
    """Those of a folder. Any thread may ask."""

    def __init__(self, folder: Path, largest: int) -> None:
        """`folder` is the desk's; `largest` is how many bytes a take may have."""
        self._place, self._largest = folder / PLACE, largest
        self._lock = threading.Lock()

    def begin(self, name: str) -> Take:
        """A new take; `name` is that of a recording. Raises OutputError, InputError if there are too many."""
        with self._lock:
            if len(self.unfinished()) >= MOST:
                raise InputError(f"{MOST} recordings are not finished; finish or discard some first")
            take = secrets.token_hex(8)
            try:
                files.own_folder(self._place)
                (self._place / take).mkdir(0o700)
                self._sound(take).touch(0o600)
                (self._place / take / "name").write_text(name, "utf-8")
            except OSError as error:
                raise OutputError(f"{self._place}: cannot be written ({error.strerror})") from error
            return self._read(take)

    def add(self, take: str, place: int, piece: bytes) -> Take:
        """Write a piece to the disk, which begins at `place`, in bytes.

        Raises OtherPlaceError if that is not the end of what is there, InputError, OutputError.
        """
        with self._lock:
            before = self._read(take)
            if place != before.size:
                raise OtherPlaceError(before.size)
            if before.size + len(piece) > self._largest:
                raise InputError("the recording is too long; finish it, and begin another one")
            try:
                if shutil.disk_usage(self._place).free - ROOM < len(piece):
                    raise OutputError("the disk is full; free some space; the recording continues meanwhile")
                with os.fdopen(files.own(self._sound(take), os.O_WRONLY | os.O_APPEND), "ab") as file:
                    file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise OutputError(f"the recording cannot be written ({error.strerror})") from error
            return self._read(take)

    def unfinished(self) -> list[Take]:
        """All takes, the latest last."""
        try:
            names = [one.name for one in self._place.iterdir() if OURS.fullmatch(one.name)]
        except OSError:
            return []
        found = []
        for name in names:
            with suppress(InputError):  # it was finished meanwhile, or is just begun
                found.append(self._read(name))
        return sorted(found, key=lambda take: take.changed)

    def sound(self, take: str) -> tuple[Path, str]:
        """The file of a take, and the name that it shall have. Raises InputError if nothing has arrived."""
        found = self._read(take)
        if not found.size:
            raise InputError("nothing was recorded; discard it, and record again")
        return self._sound(take), found.name

    def discard(self, take: str) -> None:
        """Remove what is left of a take. Raises InputError if there is none."""
        with self._lock:
            self._read(take, gone=True)
            shutil.rmtree(self._place / take, ignore_errors=True)

    def _sound(self, take: str) -> Path:
        return self._place / take / "sound"

    def _read(self, take: str, *, gone: bool = False) -> Take:
        """Raises InputError if there is none; `gone`: its sound may have been taken away."""
        folder = self._place / take
        try:
            if not OURS.fullmatch(take):
                raise FileNotFoundError
            for path in (folder / "name", self._sound(take)):
                files.refuse_link(path, self._place.parent)
            name = files.read(folder / "name").decode()
            status = folder.stat() if gone else self._sound(take).stat()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("there is no such recording anymore") from error
        return Take(take, name, 0 if gone else status.st_size, status.st_mtime)
