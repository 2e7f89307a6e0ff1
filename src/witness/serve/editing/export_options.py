"""What somebody may choose of an export; the server reads it, and the process that exports does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from witness.errors import UsageError
from witness.schema import LONGEST

Choice = Literal["keep", "drop"]


@dataclass(frozen=True)
class ExportOptions:
    """What somebody chose; None: as the transcript is."""

    names: Literal["keep", "drop", "anonymous"] = "keep"
    times: Choice | None = None
    fillers: Choice | None = None
    pauses: Annotated[float, Meta(ge=0, le=LONGEST)] | None = None
    """Seconds: the shortest pause that is marked; 0: none is."""
    hidden: Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=200)] = ()
    """Words to leave out beside names, where these are left out."""

    @property
    def style(self) -> dict[str, Any]:
        """As `Transcript.styled` takes it."""
        names = "none" if self.names == "drop" else None
        rest = {"times": self.times, "fillers": self.fillers, "pauses": self.pauses}
        return {**rest, "speaker_names": names}


def read(given: Any) -> ExportOptions:
    """The options of a request. Raises UsageError."""
    try:
        return msgspec.convert(given, ExportOptions)
    except msgspec.ValidationError as error:
        raise UsageError(f"these options cannot be used ({error})") from error
