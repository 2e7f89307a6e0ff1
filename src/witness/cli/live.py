"""The result on stdout while it is being made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from witness import files
from witness.errors import OutputError
from witness.formats.registry import Format

if TYPE_CHECKING:
    from witness.schema import Transcript

FORMATS = (Format.TXT,)
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
            files.write(content[len(self._printed) :], None)
        self._printed = content
