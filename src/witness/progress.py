"""Progress, notes and warnings of a stage, and their receivers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from threading import Event

from witness.errors import CancelledError

Progress = Callable[[str, float, float], None]
"""Called as `progress(stage, done, total)` from any thread; units are the stage's own."""

Note = Callable[[str], None]
"""Called with one line that a person should read, at once."""


class LongNote(str):
    """A note that tells a person so much that its `short` form does when it has been read once."""

    __slots__ = ("short",)
    short: str

    def __new__(cls, whole: str, short: str) -> LongNote:
        """Make a note; readers who do not ask for `short` get `whole`."""
        note = super().__new__(cls, whole)
        note.short = short
        return note


class AboutMachine(str):
    """A warning about this machine, a GPU that failed for instance, and not about the recording."""

    __slots__ = ()


def no_progress(stage: str, done: float, total: float) -> None:
    """For a caller who does not watch."""


def no_note(line: str) -> None:
    """For a caller who does not read along."""


def no_check() -> None:
    """For a caller who never changes their mind."""


@dataclass(frozen=True)
class Reporter:
    """Receivers of a stage's progress, notes and warnings. An error of a callback ends the work."""

    progress: Progress = no_progress
    note: Note = no_note
    """Receives lines for a person now; the result need not have them."""
    warn: Note = no_note
    """Receives lines that belong into the result, too."""
    wrote: Note = no_note
    """Receives the name of each file or folder with results, once it is written."""
    check: Callable[[], None] = no_check
    """Raises CancelledError if the work is not wanted anymore; for loops that wait and report nothing."""
    aside: Callable[[], AbstractContextManager[None]] = nullcontext
    """Clears the terminal of progress meanwhile, so that a result can be printed."""

    @classmethod
    def collect(cls, warnings: list[str], progress: Progress, note: Note, cancel: Event | None) -> Reporter:
        """Return a reporter that adds warnings to a list, and raises CancelledError once `cancel` is set."""

        def check() -> None:
            if cancel is not None and cancel.is_set():
                raise CancelledError("cancelled")

        def warn(line: str) -> None:
            warnings.append(line if isinstance(line, AboutMachine) else str(line))  # whole
            note(line)

        return cls(progress, note, warn, check=check).checking(check)

    def checking(self, check: Callable[[], None]) -> Reporter:
        """Return this reporter with a check before each report of progress."""

        def progress(stage: str, done: float, total: float) -> None:
            check()
            self.progress(stage, done, total)

        return replace(self, progress=progress)

    def of_part(self, number: int, parts: int) -> Reporter:
        """Return a reporter for one of several equally long parts."""

        def progress(stage: str, done: float, total: float) -> None:
            self.progress(stage, number * total + done, parts * total)

        return replace(self, progress=progress)


SILENT = Reporter()
