"""What a request to OpenAI's transcription interface asks for, and the answer to it.

https://platform.openai.com/docs/api-reference/audio/createTranscription; in the package openai, the module
types.audio.transcription_create_params and the types beside it. What cannot be honored is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from witness.errors import UsageError
from witness.files import read
from witness.formats.registry import Format
from witness.jobs.worker import Settings
from witness.options import MOST_SPEAKERS, Options

ALIASES = ("whisper-1", "gpt-4o-transcribe-diarize")
"""What programs that were written for OpenAI's own server send; here, the model of this one."""
RESPONSES = {
    "json": (Format.OPENAI,),
    "text": (Format.OPENAI,),
    "srt": (Format.SRT,),
    "vtt": (Format.VTT,),
    "verbose_json": (Format.OPENAI, Format.WHISPERX),
    "diarized_json": (Format.OPENAI,),
}
"""Each response_format, and the formats of Witness that it is made of."""
TYPES = {"text": "text/plain; charset=utf-8", "srt": "text/plain; charset=utf-8", "vtt": "text/vtt"}
"""Of those that are no JSON."""


@dataclass(frozen=True)
class TranscriptionRequest:
    """A request, without its recording."""

    options: Options
    response: str
    """One of RESPONSES."""
    granularities: frozenset[str]
    stream: bool
    keep: bool
    """Whether the recording and its transcript go into the folder."""

    @property
    def formats(self) -> tuple[Format, ...]:
        """What the worker is to write."""
        return RESPONSES[self.response]


def models(settings: Settings) -> tuple[str, ...]:
    """The names that a request may give as its model, the model's own first; none: nothing hears words."""
    name = settings.options.whisper
    return () if name == "none" else (Path(name).name, *ALIASES)


def wish(fields: Sequence[tuple[str, str]], settings: Settings) -> TranscriptionRequest:
    """The request of a form's fields. Raises UsageError naming the field that cannot be honored."""
    asked: dict[str, list[str]] = {}
    for name, value in fields:
        asked.setdefault(name.removesuffix("[]"), []).append(value)
    _refuse(asked, settings)
    options = settings.options
    if language := _one(asked, "language", ""):
        options = replace(options, language=language)
    if prompt := _one(asked, "prompt", ""):
        options = replace(options, prompt=prompt)
    if keywords := tuple(word.strip() for word in asked.get("keywords", ()) if word.strip()):
        options = replace(options, vocabulary=(*options.vocabulary, *keywords))
    if (speakers := _one(asked, "speakers", "")) != "":
        if not speakers.isascii() or not speakers.isdigit() or not 0 < int(speakers) <= MOST_SPEAKERS:
            raise UsageError(f"speakers: is not a number from 1 to {MOST_SPEAKERS}")
        options = replace(options, speakers=int(speakers), min_speakers=None, max_speakers=None)
    response = _choice(asked, "response_format", tuple(RESPONSES), "json")
    stream = _choice(asked, "stream", ("true", "false"), "false") == "true"
    granularities = frozenset(asked.get("timestamp_granularities", ()))
    if granularities and response != "verbose_json":
        raise UsageError("timestamp_granularities: needs response_format verbose_json")
    if not granularities <= {"word", "segment"}:
        raise UsageError("timestamp_granularities: is not word or segment")
    if stream and response not in ("json", "text", "diarized_json"):
        raise UsageError(f"stream: there is no {response} of a stream; ask for json or diarized_json")
    keep = _choice(asked, "keep", ("true", "false"), "false") == "true"
    if keep and options != settings.options:
        own = "language, prompt, keywords and speakers"
        raise UsageError(f"keep: what is kept has the options of the server; leave out {own}")
    return TranscriptionRequest(options, response, granularities or frozenset({"segment"}), stream, keep)


def _refuse(asked: Mapping[str, Sequence[str]], settings: Settings) -> None:
    """Raise UsageError for what cannot be honored."""
    known = models(settings)
    if not known:
        raise UsageError("this server recognizes no words; start it without --whisper none")
    if (model := _one(asked, "model", "")) not in known:
        raise UsageError(f"model: {model[:80]!r} is not here; use {' or '.join(known)}")
    try:
        warm = float(_one(asked, "temperature", "0")) != 0
    except ValueError:
        raise UsageError("temperature: is not a number") from None
    if warm:
        raise UsageError("temperature: only 0 can be honored, the same recording gives the same words")
    if _one(asked, "chunking_strategy", "auto") != "auto":
        raise UsageError("chunking_strategy: only auto can be honored; pieces end in pauses")
    for name, why in _NOT_HERE.items():
        if asked.get(name):
            raise UsageError(f"{name}: {why}")
    if unknown := sorted(set(asked) - _KNOWN - set(_NOT_HERE)):
        raise UsageError(f"{unknown[0][:80]!r} is not a field of this interface")


_KNOWN = {
    *("model", "language", "prompt", "keywords", "response_format", "temperature", "stream", "speakers"),
    *("timestamp_granularities", "chunking_strategy", "keep"),
}
_NOT_HERE = {
    "include": "log probabilities are not kept",
    "languages": "give one as language, or none to have it detected",
    "known_speaker_names": "enroll people and start the server with --known",
    "known_speaker_references": "enroll people and start the server with --known",
}


LEAST_PROBABILITY = 0.0005
"""What one that was rounded to 0 may have been."""


def _one(asked: Mapping[str, Sequence[str]], name: str, usual: str) -> str:
    """The only value of a field. Raises UsageError if there are several."""
    values = asked.get(name, (usual,))
    if len(values) > 1:
        raise UsageError(f"{name}: is there more than once")
    return values[0]


def _choice(asked: Mapping[str, Sequence[str]], name: str, choices: Sequence[str], usual: str) -> str:
    value = _one(asked, name, usual).lower()
    if value not in choices:
        raise UsageError(f"{name}: {value[:40]!r} is not one of {', '.join(choices)}")
    return value


# --- answers ---


def answer(wish: TranscriptionRequest, written: Sequence[Path]) -> str:
    """The body of the answer; `written` are the files of the wish's formats. Raises OSError."""
    texts = [read(path).decode() for path in written]
    if wish.response in ("srt", "vtt"):
        return texts[0]
    document, *words = map(json.loads, texts)
    if wish.response == "text":
        return f"{document['text']}\n"
    usage = {"usage": _usage(document["duration"])}
    found = {"text": document["text"]}
    if wish.response == "diarized_json":
        found = document
    elif wish.response == "verbose_json":
        found = _verbose(wish, document, words[0])
    return json.dumps({**found, **usage}, ensure_ascii=False)


def events(wish: TranscriptionRequest, written: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The events of a stream, once everything is known; arguments as of `answer`. Raises OSError."""
    document = json.loads(read(written[0]))
    diarized = wish.response == "diarized_json"
    before = ""
    for segment in document["segments"]:
        if segment["text"]:
            delta = {"type": "transcript.text.delta", "delta": before + segment["text"]}
            yield {**delta, "segment_id": segment["id"]} if diarized else delta
            before = " "
        if diarized:
            yield segment
    yield {"type": "transcript.text.done", "text": document["text"], "usage": _usage(document["duration"])}


def _verbose(wish: TranscriptionRequest, document: dict[str, Any], words: dict[str, Any]) -> dict[str, Any]:
    """As OpenAI's, without what Witness does not keep (tokens), and with the speakers.

    `avg_logprob` is of words, of which each has its own probability, too.
    """
    found: dict[str, Any] = {
        "task": "translate" if wish.options.translate else "transcribe",
        "language": words["language"],
        "duration": document["duration"],
        "text": document["text"],
    }
    if "segment" in wish.granularities:
        parts = ("start", "end", "text", "speaker")
        segments = [
            {part: segment[part] for part in parts} | _logprob(segment["words"])
            for segment in words["segments"]
        ]
        found["segments"] = [{"id": number, **segment} for number, segment in enumerate(segments)]
    if "word" in wish.granularities:
        named = {"score": "probability"}
        found["words"] = [
            {named.get(key, key): value for key, value in word.items()} for word in words["word_segments"]
        ]
    return found


def _logprob(words: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of the words' log probabilities; empty if the recognizer told none."""
    told = [math.log(max(word["score"], LEAST_PROBABILITY)) for word in words if "score" in word]
    return {"avg_logprob": round(sum(told) / len(told), 3)} if told else {}


def _usage(seconds: float) -> dict[str, Any]:
    return {"type": "duration", "seconds": seconds}
