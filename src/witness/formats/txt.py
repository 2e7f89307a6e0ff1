"""Text for people: `[00:09:32] SPEAKER_01: words`."""

from __future__ import annotations

from witness.formats.reading import Line, Reading
from witness.text import clock


def write(reading: Reading) -> str:
    """A line for each utterance; pauses in the text, or on a line of their own.

    First comes what of the recording could not be used: whoever gets the text alone would not know.
    """
    notes = "".join(f"[{note}]\n" for note in reading.notes)
    return notes + "".join(
        (f"{line.pause}\n" if line.pause else "") + _line(line) + "\n" for line in reading.lines
    )


def _line(line: Line) -> str:
    if line.text is None:
        return f"[{clock(line.start, 1)} - {clock(line.end, 1)}] {line.speaker}"
    return f"[{clock(line.start)}] {line.speaker}: {line.text}"
