"""A watched folder: the recordings that appear in it are transcribed at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from witness.errors import WitnessError
from witness.progress import Reporter
from witness.serve.library.library import Library
from witness.serve.queue import Queue
from witness.serve.status import BusyError
from witness.work.folder import size_and_mtime

PAUSE = 5.0
"""Seconds between two scans; a file that has not changed from one to the next is complete."""


class FolderWatch:
    """The recordings below a folder without a transcript, from scan to scan."""

    def __init__(self, library: Library, queue: Queue, reporter: Reporter) -> None:
        self._library, self._queue, self._reporter = library, queue, reporter
        self._before: dict[Path, tuple[int, int]] = {}

    def scan(self) -> None:
        """Queue the recordings that have not changed since the last scan."""
        now: dict[Path, tuple[int, int]] = {}
        for path in self._library.untranscribed():
            with suppress(OSError):  # it is being deleted or replaced
                now[path] = size_and_mtime(str(self._library.folder / path))
        complete = [path for path, state in now.items() if state[0] and self._before.get(path) == state]
        self._before = now
        if not complete:
            return
        try:
            self._queue.transcribe(complete)
        except BusyError:
            return  # the queue is full: at a later scan
        except WitnessError as error:
            self._reporter.note(f"recordings that appeared in the folder could not be queued: {error}")
        self._library.changed()


@contextmanager
def watched(library: Library, queue: Queue, reporter: Reporter) -> Iterator[None]:
    """Queue recordings that appear meanwhile, in a thread."""
    end = threading.Event()
    watch = FolderWatch(library, queue, reporter)

    def scan() -> None:
        while not end.wait(PAUSE):
            watch.scan()

    thread = threading.Thread(target=scan, name="folder-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(1.0)
