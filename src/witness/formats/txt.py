"""Text for people: `[00:09:32] SPEAKER_01: words`."""

from __future__ import annotations

from witness.formats.reading import Line, Reading
from witness.text import clock


def write(reading: Reading) -> str:
    """Return a line for each utterance; pauses stand in the text, or on a line of their own.

    First come the warnings about unusable parts, for readers of the text alone.
    """
    notes = "".join(f"[{note}]\n" for note in reading.notes)
    return notes + "".join(
        (f"{line.pause}\n" if line.pause else "") + _line(reading, line) + "\n" for line in reading.lines
    )


def _line(reading: Reading, line: Line) -> str:
    if line.text is None:
        return f"[{clock(line.start, 1)} - {clock(line.end, 1)}] {line.speaker}"
    time = f"[{clock(line.start)}] " if reading.timed else ""
    return f"{time}{line.speaker}: {line.text}" if reading.named else f"{time}{line.text}"
