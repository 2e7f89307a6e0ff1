"""Answers in the shapes of OpenAI's interface, from the files of a transcript.

In the package openai, the classes Transcription, TranscriptionVerbose, TranscriptionDiarized, Translation,
TranslationVerbose and the events TranscriptionText...; tests/test_serve_openai.py holds them against these.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from witness import languages
from witness.models import recognizers, store
from witness.models.ct2_header import TOKENIZER
from witness.options import Options
from witness.serve.openai.schema import TranscriptionRequest
from witness.storage.files import read

TYPES = {"text": "text/plain; charset=utf-8", "srt": "text/plain; charset=utf-8", "vtt": "text/vtt"}
"""Media types of answers other than JSON."""
LEAST_PROBABILITY = 0.0005
"""Stands for a probability that was rounded to 0."""
FRAMES = 100
"""Frames of Whisper in a second; `seek` counts them."""
POSITIONS = 50
"""Positions of Whisper's encoder in a second: the input tokens."""
UNKNOWN = "unknown"
"""Stands for the language of a recording without speech: clients need a string."""

Tokens = Callable[[str], Sequence[int]]
"""Returns the numbers of a text's tokens."""


@lru_cache(maxsize=1)
def tokens(options: Options) -> Tokens:
    """Return the model's tokenizer; without one, all texts have no tokens. Raises ModelError."""
    model = store.recognizer_model(options, gpu=None, available=recognizers.installed())
    path = Path(model.path) / TOKENIZER if model is not None else Path()
    if not path.is_file():
        return lambda _: ()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    return lambda text: tokenizer.encode(f" {text.strip()}", add_special_tokens=False).ids if text else ()


def counts(asked: TranscriptionRequest) -> bool:
    """Tell whether the answer needs the numbers of tokens."""
    return asked.stream or (asked.response == "verbose_json" and "segment" in asked.granularities)


def body(asked: TranscriptionRequest, paths: Sequence[Path], tokens: Tokens) -> str:
    """Return the answer; `paths` are the files of the request's formats. Raises OSError."""
    texts = [read(path).decode() for path in paths]
    if asked.response in ("srt", "vtt"):
        return texts[0]
    document, *words = map(json.loads, texts)
    if asked.response == "text":
        return f"{document['text']}\n"
    content = {"text": document["text"]}
    if asked.response == "diarized_json":
        content = document
    elif asked.response == "verbose_json":
        content = _verbose(asked, document, words[0], tokens)
    elif asked.logprobs:
        content["logprobs"] = _logprobs(words[0])
    usage = {"usage": {"type": "duration", "seconds": document["duration"]}}
    return json.dumps({**content, **usage}, ensure_ascii=False)


def events(
    asked: TranscriptionRequest, segments: Sequence[Mapping[str, Any]], sent: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a stream for segments after the first `sent`."""
    diarized = asked.response == "diarized_json"
    before = " " if any(segment["text"] for segment in segments[:sent]) else ""
    for segment in segments[sent:]:
        if segment["text"]:
            delta = {"type": "transcript.text.delta", "delta": before + segment["text"]}
            yield {**delta, "segment_id": segment["id"]} if diarized else delta
            before = " "
        if diarized:
            yield segment


def last_events(
    asked: TranscriptionRequest, paths: Sequence[Path], sent: int, tokens: Tokens
) -> Iterator[Mapping[str, Any]]:
    """Yield the events after the end of the work; `paths` as in `body`. Raises OSError."""
    document, *words = (json.loads(read(path)) for path in paths)
    yield from events(asked, document["segments"], sent)
    # The answer without a stream has seconds; typed clients expect tokens here.
    came, went = round(POSITIONS * document["duration"]), len(tokens(document["text"]))
    usage = {"type": "tokens", "input_tokens": came, "output_tokens": went, "total_tokens": came + went}
    done = {"type": "transcript.text.done", "text": document["text"], "usage": usage}
    yield {**done, "logprobs": _logprobs(words[0])} if words else done


def _verbose(
    asked: TranscriptionRequest, document: dict[str, Any], words: dict[str, Any], tokens: Tokens
) -> dict[str, Any]:
    """Return OpenAI's fields, and the speakers.

    `temperature` is 0 because the search is deterministic, and `no_speech_prob` because clients need a number
    and recognizers know it of windows only. `avg_logprob` is the mean over words.
    """
    spoken = "en" if asked.options.translate else words["language"]
    content: dict[str, Any] = {
        "task": "translate" if asked.options.translate else "transcribe",
        "language": languages.NAMES.get(spoken, UNKNOWN),
        "duration": document["duration"],
        "text": document["text"],
    }
    if "segment" in asked.granularities:
        content["segments"] = [
            {
                "id": number,
                "seek": round(segment["start"] * FRAMES),
                "start": segment["start"],
                "end": segment["end"],
                "text": segment["text"],
                "tokens": list(tokens(segment["text"])),
                "temperature": 0.0,
                "avg_logprob": _mean_logprob(segment["words"]),
                "compression_ratio": _compression(segment["text"]),
                "no_speech_prob": 0.0,
                "speaker": segment["speaker"],
            }
            for number, segment in enumerate(words["segments"])
        ]
    if "word" in asked.granularities:
        named = {"score": "probability"}
        content["words"] = [
            {named.get(key, key): value for key, value in word.items()} for word in words["word_segments"]
        ]
    return content


def _logprobs(words: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_logprob(word) for word in words["word_segments"] if "score" in word]


def _logprob(word: Mapping[str, Any]) -> dict[str, Any]:
    """Return a word's probability, where OpenAI has those of tokens."""
    text = f" {word['word']}"
    value = math.log(max(word["score"], LEAST_PROBABILITY))
    return {"token": text, "bytes": list(text.encode()), "logprob": round(value, 4)}


def _mean_logprob(words: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean of the words' log probabilities; 0 without any, because clients need a number."""
    values = [math.log(max(word["score"], LEAST_PROBABILITY)) for word in words if "score" in word]
    return round(sum(values) / len(values), 3) if values else 0.0


def _compression(text: str) -> float:
    """Return the ratio of openai/whisper, utils.py, compression_ratio."""
    content = text.encode()
    return round(len(content) / len(zlib.compress(content)), 3) if content else 0.0
