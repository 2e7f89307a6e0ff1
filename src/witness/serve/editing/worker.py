"""Child process that shows and changes transcripts, and its client.

Clustering an hour of voices takes more memory than the server may have, and a damaged file may end the
process that reads it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from witness.child import Child, ChildError, DiedError, Limits, RefusedError
from witness.errors import WitnessError
from witness.formats import html
from witness.serve.calls import Calls
from witness.serve.editing import exports, views
from witness.transcript import edits, previous, trash

P = ParamSpec("P")
R = TypeVar("R")

LIMITS = Limits(seconds=600.0)
"""Limits of one call; the outline of a day of sound takes a few minutes."""
CALLS = Calls(
    *(
        edits.save,
        edits.add_corrections,
        edits.name_speaker,
        edits.add_notes,
        edits.rewrite_words,
        edits.change_tags,
        edits.recount_speakers,
        edits.restore_original,
    ),
    *(previous.mark_seen, previous.swap, trash.move, trash.throw, trash.restore),
    *(exports.content, exports.audible, exports.preview, views.project),
    *(views.page, views.saved_steps, views.occurrences_of, views.differences, views.folder_words),
    *(views.peaks, views.recording, views.source),
    *(views.enroll, views.find_voice, views.suggest),
)


class Worker:
    """The child process; it starts at the first call, and runs one at a time. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._recordings: dict[Path, tuple[Path, list[int]]] = {}

    def start(self) -> None:
        """Start the process before the first call: that takes half a second."""
        with self._lock:
            self._started()

    def recording(self, path: Path) -> Path:
        """Return the path of a transcript's recording, checked by its sha256. Raises InputError."""
        recording, state = self._recordings.get(path, (None, []))
        if recording is None or _file_state(path, recording) != state:
            recording = self.call(views.recording, path)
            self._recordings[path] = recording, _file_state(path, recording)
        return recording

    async def run(
        self, function: Callable[Concatenate[Path, P], R], path: Path, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call in a thread."""
        from starlette.concurrency import run_in_threadpool  # the child needs none of it

        return await run_in_threadpool(lambda: self.call(function, path, *args, **kwargs))

    def call(
        self, function: Callable[Concatenate[Path, P], R], path: Path, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return `function(path, ...)`, from the child. Raises WitnessError as the function does."""
        with self._lock:
            child = self._started()
            try:
                return CALLS.call(child, LIMITS, function, path, *args, **kwargs)
            except RefusedError as error:
                raise WitnessError(f"{path.name}: {error}; this is a bug, please report it") from error
            except ChildError as error:
                self._child = None
                words = error.last_words if isinstance(error, DiedError) else ""
                raise WitnessError(
                    f"{path.name}: the process that works on it ended ({error}){words}; try again"
                ) from error

    def _started(self) -> Child:
        if self._child is None:
            self._child = Child("witness.serve.editing.worker")
        return self._child

    def close(self) -> None:
        """End the process."""
        with self._lock, suppress(OSError):
            if self._child is not None:
                self._child.kill()
            self._child = None


def _file_state(*paths: Path) -> list[int]:
    """Return numbers that change when a file does; none if a file is missing."""
    try:
        return [number for path in paths for number in (path.stat().st_size, path.stat().st_mtime_ns)]
    except OSError:
        return []


if __name__ == "__main__":
    html.prepare()
    gc.freeze()  # the imported modules stay; to look through them took a fifth of an hour's page
    CALLS.serve()
