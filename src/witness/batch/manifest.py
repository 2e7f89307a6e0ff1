"""What a batch has done, in a file that is only ever appended to: a JSON line per recording.

A process that is killed leaves at most one torn line, at the end; it is skipped, and the next line begins on
its own. A line counts when all of it is there, so the file is true after every byte.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from witness.errors import OutputError


@dataclass(frozen=True)
class Entry:
    """What became of one recording. Its fields are the keys of a line."""

    output: str
    """Its files below the manifest's folder, without their endings."""
    source: str
    """Where it was, absolute."""
    size: int
    mtime_ns: int
    """Size and time when it was read; while both are unchanged, it need not be hashed again."""
    sha256: str | None
    settings: str
    """Hash of everything that changes the result."""
    state: Literal["done", "failed"]
    error: str | None = None
    code: int = 0
    """The exit code for the error."""
    duration: float | None = None
    """Seconds of audio."""
    seconds: float = 0.0
    """Seconds of work."""
    speakers: int | None = None
    """How many were found."""


class Manifest:
    """The latest entry of each output, and the file behind it."""

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one. Raises OutputError if it cannot be read."""
        self.path = path
        self.entries: dict[str, Entry] = {}
        self.sources: dict[str, str] = {}
        """Source -> output."""
        try:
            content = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise OutputError(
                f"{path}: cannot be read ({error.strerror}); delete it to start from scratch"
            ) from error
        self._torn = not content.endswith(b"\n") and bool(content)
        for line in content.split(b"\n"):
            with suppress(ValueError, TypeError):  # torn, or of another version
                self._take(Entry(**json.loads(line)))

    def append(self, entry: Entry) -> None:
        """Add a line. Raises OutputError if the disk is full."""
        line = (b"\n" if self._torn else b"") + json.dumps(asdict(entry)).encode() + b"\n"
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                self._torn = True  # until all of it is written
                while line:
                    line = line[os.write(descriptor, line) :]
                self._torn = False
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OutputError(
                f"{self.path}: cannot be written ({error.strerror}); fix: free disk space or fix the "
                "folder's permissions"
            ) from error
        self._take(entry)

    def _take(self, entry: Entry) -> None:
        self.entries[entry.output] = entry
        self.sources[entry.source] = entry.output
