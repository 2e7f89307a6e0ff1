"""The result on stdout while it is being made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from witness.cli.options import Left
from witness.errors import OutputError
from witness.formats.registry import Format
from witness.storage import atomic

if TYPE_CHECKING:
    from witness.pipeline import Engine
    from witness.schema import Transcript
    from witness.work.eta import Estimate, Workload

FORMATS = (Format.TXT, Format.SRT)
"""Those of which the beginning of a transcript is the beginning of the whole."""


class LiveText:
    """Prints what is final of a transcript, each byte once."""

    def __init__(
        self, form: str, style: Mapping[str, Any], aside: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """`style`: as `Transcript.styled` takes it; `aside` clears the terminal of bars meanwhile."""
        self._form, self._style, self._aside = form, style, aside
        self._printed = b""
        self._failed = False

    @property
    def begun(self) -> bool:
        """Whether something was printed."""
        return bool(self._printed)

    def hear(self, transcript: Transcript) -> None:
        """Print what is new of a transcript that is not complete; what cannot be printed has time to the end.

        Raises BrokenPipeError.
        """
        if not self._failed:
            try:
                self.show(transcript)
            except OutputError:
                self._failed = True

    def show(self, transcript: Transcript) -> None:
        """Print what is new of it. Raises OutputError, BrokenPipeError."""
        from witness.formats import document, writers

        marked = document.in_milliseconds(transcript.styled(self._style))
        content = writers.content(marked, self._form)
        if not content.startswith(self._printed):
            raise OutputError(
                "the text on stdout is not how the transcript begins; this is a bug, please report it; fix: "
                "transcribe the recording again with -o FOLDER"
            )
        with self._aside():
            atomic.write(content[len(self._printed) :], None)
        self._printed = content


class RunCourse:
    """How far a run is: its stages weighted by what they took in the last run of this kind."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        """Set before the run begins."""
        self._workload: Workload | None = None
        self._estimate: Estimate | None = None

    def hear(self, stage: str, done: float, total: float) -> Left | None:
        """As `options.Course`; the models are chosen once a stage of the recording has begun."""
        from witness.work import eta

        if self.engine is None or stage not in eta.STAGES:
            return None
        if self._estimate is None:
            self._workload = eta.Workload.of_engine(self.engine)
            self._estimate = eta.start_estimate(self._workload)
        self._estimate.update(stage, done, total)
        return Left(self._estimate.share, self._estimate.left)

    def learn(self) -> None:
        """The run was whole."""
        from witness.work import eta

        if self._workload is not None and self._estimate is not None:
            eta.remember(self._workload, self._estimate)


class BatchCourse:
    """How far a batch is, with the estimate that its lines have."""

    def __init__(self) -> None:
        self.left: float | None = None
        """Seconds."""

    def hear(self, stage: str, done: float, total: float) -> Left | None:
        """As `options.Course`."""
        return Left(done / max(1.0, total), self.left) if stage == "recordings" else None
