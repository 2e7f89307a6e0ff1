"""The JSON that whisperX writes with speakers: https://github.com/m-bain/whisperX, schema.py and diarize.py.

`score`, which whisperX takes from its alignment, is the recognizer's probability; missing without one.
"""

from __future__ import annotations

from typing import Any

from witness.formats.reading import Reading, ms, single, to_json
from witness.schema import Word


def write(reading: Reading) -> str:
    """Return a segment for each line, with its words; all words follow once more."""
    segments: list[dict[str, Any]] = [
        {
            "start": ms(line.start),
            "end": ms(line.end),
            "text": line.text or "",
            "words": [_word(word, line.speaker) for word in single(line.words)],
            "speaker": line.speaker,
        }
        for line in reading.said
    ]
    words = [word for segment in segments for word in segment["words"]]
    return to_json({"segments": segments, "word_segments": words, "language": reading.transcript.language})


def _word(word: Word, speaker: str) -> dict[str, Any]:
    score = {} if word.probability is None else {"score": word.probability}
    return {"word": word.text, "start": ms(word.start), "end": ms(word.end), **score, "speaker": speaker}
