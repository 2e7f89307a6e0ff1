"""SubRip subtitles. The format has no specification; players agree on the dialect of VLC and MPC."""

from __future__ import annotations

from witness.formats import cues
from witness.formats.reading import Reading
from witness.text import clock

SIGNS = str.maketrans("<>{}", "‹›()")
"""Substitutes for the signs of markup: players interpret <b>, {\\an8} and -->, which nothing can escape."""


def write(reading: Reading) -> str:
    """Return the subtitles; a cue names a new speaker if the style has names in the text."""
    return "\n".join(
        f"{number}\n{clock(cue.start, 3, ',')} --> {clock(cue.end, 3, ',')}\n"
        + "".join(f"{text.translate(SIGNS)}\n" for _, text in cue.parts)
        for number, cue in enumerate(cues.from_reading(reading), start=1)
    )
