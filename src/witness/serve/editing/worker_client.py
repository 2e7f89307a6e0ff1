"""The process that works on transcripts, from the server's side.

Clustering an hour of voices takes more memory than the server may have, and a damaged file may end the
process that reads it. What it can do is in `transcript_worker.ACTIONS`.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from witness import errors
from witness.child import Child, ChildError, DiedError, Limits, Message, RefusedError

LIMITS = Limits(seconds=600.0)
"""What one piece of work may take; the outline of a day of sound takes a few minutes."""


def _looks(*paths: Path) -> list[int]:
    """What changes when a file does; empty if one is gone."""
    try:
        return [number for path in paths for number in (path.stat().st_size, path.stat().st_mtime_ns)]
    except OSError:
        return []


class WorkerClient:
    """The process; it starts when it is needed, and does one thing at a time. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._recordings: dict[Path, tuple[Path, list[int]]] = {}

    def start(self) -> None:
        """Start the process before it is needed: that takes half a second."""
        with self._lock:
            self._started()

    def recording(self, path: Path) -> Path:
        """Where the recording of a transcript is; it is the one that was transcribed. Raises InputError."""
        known, looks = self._recordings.get(path, (None, []))
        if known is None or _looks(path, known) != looks:
            known = Path(self.ask("recording", path)[0]["recording"])
            self._recordings[path] = known, _looks(path, known)
        return known

    def ask(self, do: str, path: Path, **more: Any) -> tuple[Message, bytes]:
        """What `transcript_worker.ACTIONS[do]` answers, and its bytes. Raises WitnessError as it does."""
        with self._lock:
            child = self._started()
            try:
                reply, content = child.ask({"do": do, "path": str(path), **more}, limits=LIMITS)
            except RefusedError as error:
                raise errors.WitnessError(f"{path.name}: {error}; this is a bug, please report it") from error
            except ChildError as error:
                self._child = None
                words = error.last_words if isinstance(error, DiedError) else ""
                raise errors.WitnessError(
                    f"{path.name}: the process that works on it ended ({error}){words}; try again"
                ) from error
        if "refused" in reply:
            if "version" in reply:
                raise errors.ConflictError(reply["refused"], reply["version"])
            raise getattr(errors, reply["kind"])(reply["refused"])
        return reply, content

    def _started(self) -> Child:
        if self._child is None:
            self._child = Child("witness.serve.editing.transcript_worker")
        return self._child

    def close(self) -> None:
        """End the process."""
        with self._lock, suppress(OSError):
            if self._child is not None:
                self._child.kill()
            self._child = None
