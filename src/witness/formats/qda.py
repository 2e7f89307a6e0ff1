"""Text for MAXQDA, NVivo and ATLAS.ti: the speaker on a line, `[HH:MM:SS]` and the words on the next.

All three turn the times of such a text into links into the recording. aTrain gives them the same text:
https://github.com/JuergenFleiss/atrain_core, outputs.py. With notes and codes: `qdpx`.
"""

from __future__ import annotations

from collections.abc import Iterator

from witness.formats.reading import Line, Reading
from witness.text import clock


def write(reading: Reading) -> str:
    """Return a paragraph for each line, with an empty line after it; first, the recording's unused parts."""
    return "".join(text for text, _ in parts(reading))


def parts(reading: Reading) -> Iterator[tuple[str, Line | None]]:
    """Yield the parts of the text, each with the line of the transcript that it ends with, but for spaces."""
    for note in reading.notes:
        yield f"[{note}]\n\n", None
    for line in reading.lines:
        pause = f"{line.pause}\n\n" if line.pause else ""
        said = f"[{clock(line.start)}] {line.text or ''}".rstrip()
        yield f"{pause}{line.speaker}\n{said}\n\n", line
