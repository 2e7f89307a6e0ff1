"""SegLST, speech by speaker for scorers, as JSON: https://github.com/fgnt/meeteval, "File Formats"."""

from __future__ import annotations

from witness.formats.reading import Reading, ms, to_json


def write(reading: Reading) -> str:
    """Return a segment for each line; without words if no recognizer ran."""
    return to_json(
        [
            {
                "session_id": reading.title,
                "speaker": line.speaker,
                "start_time": ms(line.start),
                "end_time": ms(line.end),
                "words": line.text or "",
            }
            for line in reading.said
        ]
    )
