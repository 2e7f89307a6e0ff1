"""The JSON that whisperX writes with speakers: https://github.com/m-bain/whisperX, schema.py and diarize.py.

What Witness does not know is not there: `score`, which is how well whisperX aligned a word.
"""

from __future__ import annotations

from typing import Any

from witness.formats.reading import Reading, ms, single, to_json


def write(reading: Reading) -> str:
    """A segment for each line, with its words; all words once more after them."""
    segments: list[dict[str, Any]] = [
        {
            "start": ms(line.start),
            "end": ms(line.end),
            "text": line.text or "",
            "words": [_word(word.start, word.end, word.text, line.speaker) for word in single(line.words)],
            "speaker": line.speaker,
        }
        for line in reading.said
    ]
    words = [word for segment in segments for word in segment["words"]]
    return to_json({"segments": segments, "word_segments": words, "language": reading.transcript.language})


def _word(start: float, end: float, text: str, speaker: str) -> dict[str, Any]:
    return {"word": text, "start": ms(start), "end": ms(end), "speaker": speaker}
