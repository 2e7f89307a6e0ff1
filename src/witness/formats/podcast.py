"""The JSON of a podcast's transcript (Podcasting 2.0).

https://github.com/Podcastindex-org/podcast-namespace/blob/main/transcripts/transcripts.md
"""

from __future__ import annotations

from witness.formats.reading import Reading, ms, to_json


def write(reading: Reading) -> str:
    """Return a segment for each line."""
    return to_json(
        {
            "version": "1.0.0",
            "segments": [
                {
                    "speaker": line.speaker,
                    "startTime": ms(line.start),
                    "endTime": ms(line.end),
                    "body": line.text or "",
                }
                for line in reading.lines
            ],
        }
    )
