"""SubRip subtitles. The format has no specification; players agree on what VLC and MPC read."""

from __future__ import annotations

from witness.formats import cues
from witness.formats.reading import Reading
from witness.text import clock

SIGNS = str.maketrans("<>{}", "‹›()")
"""What stands for the signs of its markup: players take <b>, {\\an8} and --> for their own, and there is no
way to escape them."""


def write(reading: Reading) -> str:
    """A cue names the speaker if the cue before it has another one, and the style has names in the text."""
    return "\n".join(
        f"{number}\n{clock(cue.start, 3, ',')} --> {clock(cue.end, 3, ',')}\n"
        + "".join(f"{text.translate(SIGNS)}\n" for _, text in cue.parts)
        for number, cue in enumerate(cues.of(reading), start=1)
    )
