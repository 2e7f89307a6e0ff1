"""The page for reading, listening and correcting, in one file."""

from __future__ import annotations

from witness.formats import page
from witness.formats.reading import Reading
from witness.schema import Sound


def write(reading: Reading, sound: Sound | None = None) -> str:
    """Without `sound` it is silent."""
    return page.transcript_page(reading.transcript, reading.title, sound)
