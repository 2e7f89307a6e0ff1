"""A transcript -> the answer to a request, in the shapes of OpenAI's interface.

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
from witness.models import engines, store
from witness.models.ct2 import TOKENIZER
from witness.options import Options
from witness.serve.openai.schema import TranscriptionRequest
from witness.storage.files import read

TYPES = {"text": "text/plain; charset=utf-8", "srt": "text/plain; charset=utf-8", "vtt": "text/vtt"}
"""Of those that are no JSON."""
LEAST_PROBABILITY = 0.0005
"""What one that was rounded to 0 may have been."""
FRAMES = 100
"""Of Whisper in a second; `seek` counts them."""
POSITIONS = 50
"""In a second, of what Whisper's encoder makes of a recording: the tokens that come in."""
UNKNOWN = "unknown"
"""In the place of a language: nobody speaks, and a string is wanted."""

Tokens = Callable[[str], Sequence[int]]
"""A text -> the numbers of its tokens."""


@lru_cache(maxsize=1)
def tokens(options: Options) -> Tokens:
    """Of the model's own; a model without the list of them gives none. Raises ModelError."""
    model = store.recognizer_model(options, gpu=None, available=engines.installed())
    path = Path(model.path) / TOKENIZER if model is not None else Path()
    if not path.is_file():
        return lambda _: ()
    from tokenizers import Tokenizer

    known = Tokenizer.from_file(str(path))
    return lambda text: known.encode(f" {text.strip()}", add_special_tokens=False).ids if text else ()


def counts(wish: TranscriptionRequest) -> bool:
    """Whether the answer needs the numbers of tokens."""
    return wish.stream or (wish.response == "verbose_json" and "segment" in wish.granularities)


def answer(wish: TranscriptionRequest, written: Sequence[Path], tokens: Tokens) -> str:
    """The body of the answer; `written` are the files of the wish's formats. Raises OSError."""
    texts = [read(path).decode() for path in written]
    if wish.response in ("srt", "vtt"):
        return texts[0]
    document, *words = map(json.loads, texts)
    if wish.response == "text":
        return f"{document['text']}\n"
    found = {"text": document["text"]}
    if wish.response == "diarized_json":
        found = document
    elif wish.response == "verbose_json":
        found = _verbose(wish, document, words[0], tokens)
    elif wish.logprobs:
        found["logprobs"] = _logprobs(words[0])
    usage = {"usage": {"type": "duration", "seconds": document["duration"]}}
    return json.dumps({**found, **usage}, ensure_ascii=False)


def said(
    wish: TranscriptionRequest, segments: Sequence[Mapping[str, Any]], told: int
) -> Iterator[Mapping[str, Any]]:
    """The events of a stream about segments, of which so many were told before."""
    diarized = wish.response == "diarized_json"
    before = " " if any(segment["text"] for segment in segments[:told]) else ""
    for segment in segments[told:]:
        if segment["text"]:
            delta = {"type": "transcript.text.delta", "delta": before + segment["text"]}
            yield {**delta, "segment_id": segment["id"]} if diarized else delta
            before = " "
        if diarized:
            yield segment


def rest(
    wish: TranscriptionRequest, written: Sequence[Path], told: int, tokens: Tokens
) -> Iterator[Mapping[str, Any]]:
    """The events once everything is known; `written` as of `answer`. Raises OSError."""
    document, *words = (json.loads(read(path)) for path in written)
    yield from said(wish, document["segments"], told)
    # The answer without a stream has seconds; typed clients want tokens here.
    came, went = round(POSITIONS * document["duration"]), len(tokens(document["text"]))
    usage = {"type": "tokens", "input_tokens": came, "output_tokens": went, "total_tokens": came + went}
    done = {"type": "transcript.text.done", "text": document["text"], "usage": usage}
    yield {**done, "logprobs": _logprobs(words[0])} if words else done


def _verbose(
    wish: TranscriptionRequest, document: dict[str, Any], words: dict[str, Any], tokens: Tokens
) -> dict[str, Any]:
    """As OpenAI's, and with the speakers.

    `temperature` is 0 because the search is without chance, and `no_speech_prob` because it is not known: a
    number is wanted, and recognizers tell it of windows, which are no segments. `avg_logprob` is of words, of
    which each has its `probability`.
    """
    spoken = "en" if wish.options.translate else words["language"]
    found: dict[str, Any] = {
        "task": "translate" if wish.options.translate else "transcribe",
        "language": languages.NAMES.get(spoken, UNKNOWN),
        "duration": document["duration"],
        "text": document["text"],
    }
    if "segment" in wish.granularities:
        found["segments"] = [
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
    if "word" in wish.granularities:
        named = {"score": "probability"}
        found["words"] = [
            {named.get(key, key): value for key, value in word.items()} for word in words["word_segments"]
        ]
    return found


def _logprobs(words: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_logprob(word) for word in words["word_segments"] if "score" in word]


def _logprob(word: Mapping[str, Any]) -> dict[str, Any]:
    """Of a word, where OpenAI has those of tokens."""
    text = f" {word['word']}"
    value = math.log(max(word["score"], LEAST_PROBABILITY))
    return {"token": text, "bytes": list(text.encode()), "logprob": round(value, 4)}


def _mean_logprob(words: Sequence[Mapping[str, Any]]) -> float:
    """The mean of the words' log probabilities; 0 if the recognizer told none, because a number is wanted."""
    told = [math.log(max(word["score"], LEAST_PROBABILITY)) for word in words if "score" in word]
    return round(sum(told) / len(told), 3) if told else 0.0


def _compression(text: str) -> float:
    """As openai/whisper, utils.py, compression_ratio."""
    content = text.encode()
    return round(len(content) / len(zlib.compress(content)), 3) if content else 0.0
