"""The `diarized_json` of OpenAI's transcription interface.

https://platform.openai.com/docs/api-reference/audio/diarized-json-object; in the package openai, the class
TranscriptionDiarized.
"""

from __future__ import annotations

from witness.formats.reading import Reading, ms, to_json


def write(reading: Reading) -> str:
    """Return a segment for each line, with an empty text if no recognizer ran."""
    lines = list(reading.said)
    return to_json(
        {
            "task": "transcribe",
            "duration": ms(reading.transcript.audio.duration),
            "text": " ".join(line.text for line in lines if line.text),
            "segments": [
                {
                    "type": "transcript.text.segment",
                    "id": f"seg_{number}",
                    "start": ms(line.start),
                    "end": ms(line.end),
                    "speaker": line.speaker,
                    "text": line.text or "",
                }
                for number, line in enumerate(lines)
            ],
        }
    )
