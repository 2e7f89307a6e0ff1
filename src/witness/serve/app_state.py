"""State that all requests share, and their limits."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.types import Receive

from witness.options import Options
from witness.serve import editing
from witness.serve.library.library import Library
from witness.serve.queue import Queue
from witness.serve.worker import Worker
from witness.storage import files

if TYPE_CHECKING:
    from witness.serve.uploads import Uploads

LINGER = 1.0
"""Seconds to read the rest of a refused request."""
KNOWN = "known"
"""The folder of the voices of known people, below the desk's."""


@dataclass(frozen=True)
class Quotas:
    """Limits of each request."""

    body: int = 8 << 20
    """Bytes of a request without recordings; the corrections of a day are smaller."""
    upload: int = 8 << 30
    """Bytes of a request with recordings."""
    patience: float = 30.0
    """Seconds without a byte after which a request is given up."""
    slowest: int = 1000
    """Bytes per second that a request must have on average, after `patience`."""


@dataclass(frozen=True)
class AppState:
    """The desk's folder, and the parts of the desk that work in it."""

    folder: Path
    """Absolute, without symbolic links."""
    token: str
    """Grants full access."""
    library: Library
    options: Options = field(default_factory=Options)
    """For new recordings."""
    limits: Quotas = field(default_factory=Quotas)
    queue: Queue | None = None
    """None, like `uploads`: the desk takes no recordings."""
    uploads: Uploads | None = None
    editor: Worker = field(default_factory=partial(Worker, editing.prepare))
    """Works on the transcript of an open page."""
    finder: Worker = field(default_factory=partial(Worker, editing.prepare))
    """Reads recordings and searches all transcripts for a voice, which takes longer."""
    recordings: dict[Path, tuple[Path, list[int]]] = field(default_factory=dict)
    """Recordings that were checked, by their transcripts, and the states of both."""

    @property
    def known(self) -> Path:
        """The folder of the voices of known people, which may be missing. Raises ForeignError."""
        if self.options.known:
            return Path(self.options.known)
        files.refuse_link(self.folder / KNOWN)
        return self.folder / KNOWN

    def recording(self, path: Path) -> Path:
        """Return the path of a transcript's recording, checked by its sha256. Raises InputError."""
        recording, state = self.recordings.get(path, (None, []))
        if recording is None or _file_state(path, recording) != state:
            recording = self.finder.call(editing.recording, path)
            self.recordings[path] = recording, _file_state(path, recording)
        return recording


def _file_state(*paths: Path) -> list[int]:
    """Return numbers that change when a file does; none if a file is missing."""
    try:
        return [number for path in paths for number in (path.stat().st_size, path.stat().st_mtime_ns)]
    except OSError:
        return []


async def discard(receive: Receive, limit: float = math.inf) -> None:
    """Read at most so many bytes that a client still sends, for a moment, so that it reads a refusal."""

    async def read() -> None:
        left = limit
        while left > 0 and (message := await receive()).get("more_body", False):
            left -= len(message.get("body", b""))

    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(read(), LINGER)
