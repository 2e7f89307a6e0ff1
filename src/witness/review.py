"""How far a person has got with a transcript."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True)
class Review:
    """What a person says of their own work on a transcript."""

    checked: bool = False
    """They are done with it."""
    until: Annotated[float, Meta(ge=0, le=1e7)] = 0.0
    """Seconds: what was said before is corrected."""
