"""Text for MAXQDA, NVivo and ATLAS.ti: the speaker on a line, `[HH:MM:SS]` and what was said on the next.

All three take the times of such a text for links into the recording. aTrain gives them the same text:
https://github.com/JuergenFleiss/atrain_core, outputs.py.
"""

from __future__ import annotations

from witness.formats.reading import Reading
from witness.text import clock


def write(reading: Reading) -> str:
    """A paragraph for each line, with an empty line after it; first, what of the recording was not used."""
    return "".join(f"[{note}]\n\n" for note in reading.notes) + "".join(
        (f"{line.pause}\n\n" if line.pause else "")
        + f"{line.speaker}\n"
        + f"[{clock(line.start)}] {line.text or ''}".rstrip()
        + "\n\n"
        for line in reading.lines
    )
