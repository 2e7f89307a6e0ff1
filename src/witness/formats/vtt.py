"""WebVTT subtitles: https://www.w3.org/TR/webvtt1/."""

from __future__ import annotations

from witness.formats import cues
from witness.formats.reading import Reading
from witness.text import clock


def write(reading: Reading) -> str:
    """Return the subtitles: speakers as voice tags or in the text, by the style; language tags if they
    differ."""
    tagged = reading.transcript.style.speaker_names == "tag"
    several = len({line.language for line in reading.lines if line.words}) > 1

    def part(speaker: str, text: str, language: str | None) -> str:
        voice = f"<v {_escaped(speaker)}>" if tagged else ""
        tongue = f"<lang {language}>" if several and language else ""
        return f"{voice}{tongue}{_escaped(text)}{'</lang>' if tongue else ''}\n"

    return "WEBVTT\n" + "".join(
        f"\n{clock(cue.start, 3)} --> {clock(cue.end, 3)}\n"
        + "".join(part(*said, language) for said, language in zip(cue.parts, cue.languages, strict=True))
        for cue in cues.from_reading(reading)
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
