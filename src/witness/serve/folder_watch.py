"""A watched folder: recordings that appear in it are transcribed without anybody asking."""

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
from witness.work.recordings import size_and_mtime

PACE = 5.0
"""Seconds between two looks; what has not changed from one to the next is whole."""


class Arrivals:
    """What lies below a folder without a transcript, from look to look."""

    def __init__(self, library: Library, queue: Queue, reporter: Reporter) -> None:
        self._library, self._queue, self._reporter = library, queue, reporter
        self._before: dict[Path, tuple[int, int]] = {}

    def look(self) -> None:
        """Have what is new, and as it was at the last look, transcribed."""
        now: dict[Path, tuple[int, int]] = {}
        for path in self._library.untranscribed():
            with suppress(OSError):  # it is gone, or being replaced
                now[path] = size_and_mtime(str(self._library.folder / path))
        whole = [path for path, looks in now.items() if looks[0] and self._before.get(path) == looks]
        self._before = now
        if not whole:
            return
        try:
            self._queue.transcribe(whole)
        except BusyError:
            return  # the queue is full: at a later look
        except WitnessError as error:
            self._reporter.note(f"what appeared in the folder could not be taken: {error}")
        self._library.changed()


@contextmanager
def watched(library: Library, queue: Queue, reporter: Reporter) -> Iterator[None]:
    """Take what appears meanwhile, in a thread."""
    end = threading.Event()
    arrivals = Arrivals(library, queue, reporter)

    def look() -> None:
        while not end.wait(PACE):
            arrivals.look()

    thread = threading.Thread(target=look, name="arrivals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(1.0)
