"""WebVTT subtitles: https://www.w3.org/TR/webvtt1/."""

from __future__ import annotations

from witness.formats import cues
from witness.formats.reading import Reading
from witness.text import clock


def write(reading: Reading) -> str:
    """Each speaker of a cue has a voice tag beside the name in the text."""
    return "WEBVTT\n" + "".join(
        f"\n{clock(cue.start, 3)} --> {clock(cue.end, 3)}\n"
        + "".join(f"<v {_escaped(speaker)}>{_escaped(text)}\n" for speaker, text in cue.parts)
        for cue in cues.of(reading)
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
