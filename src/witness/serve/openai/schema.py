"""What a request to OpenAI's transcription interface asks for.

https://platform.openai.com/docs/api-reference/audio/createTranscription; in the package openai, the modules
types.audio.transcription_create_params and translation_create_params. What OpenAI's servers take without an
effect is taken so here: `temperature`, `chunking_strategy`, `timestamp_granularities` of an answer without
times, fields that do not exist.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote_to_bytes

from witness import languages
from witness.errors import UsageError
from witness.formats.registry import Format
from witness.options import MOST_SPEAKERS, Options
from witness.serve.errors import FieldError
from witness.work.produce import Settings

ALIASES = (
    "whisper-1",
    "gpt-transcribe",
    "gpt-4o-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-4o-transcribe-diarize",
)
"""What programs that were written for OpenAI's own server send; here, the model of this one."""
AUTO = "auto"
"""The model that is here, or the language that is spoken."""
OF_WHISPER = re.compile(
    r"(?:.*[/-])?(?:whisper|transcribe)(?:-.*)?"
    r"|(?:[\w.-]+/)?(?:distil-|ggml-)?(?:tiny|base|small|medium|large|turbo)(?:[.-].*)?",
    re.ASCII,
)
"""A model that recognizes speech, as OpenAI, Groq and other servers call theirs (`gpt-4o-transcribe`,
`distil-whisper-large-v3-en`, `Systran/faster-whisper-small`), or a size of Whisper: `base`, `large-v3`."""
LISTED = re.compile(r"\[\d*\]$")
"""The end of the name of a field that may be there several times."""
RESPONSES = {
    "json": (Format.OPENAI,),
    "text": (Format.OPENAI,),
    "srt": (Format.SRT,),
    "vtt": (Format.VTT,),
    "verbose_json": (Format.OPENAI, Format.WHISPERX),
    "diarized_json": (Format.OPENAI,),
}
"""Each response_format, and the formats of Witness that it is made of."""
MOST_KNOWN = 4
"""Speakers of whom a request may send a sample, as OpenAI's servers have it."""


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
    logprobs: bool = False
    """Whether each word's log probability is asked for."""
    known: tuple[tuple[str, bytes], ...] = ()
    """Names of people, and a recording of each."""

    @property
    def formats(self) -> tuple[Format, ...]:
        """What the worker is to write."""
        more = (Format.WHISPERX,) if self.response == "json" and self.logprobs else ()
        return RESPONSES[self.response] + more


def models(settings: Settings) -> tuple[str, ...]:
    """The names that a client may choose from, the model's own first; none: nothing hears words."""
    name = settings.options.whisper
    return () if name == "none" else (Path(name).name, *ALIASES)


def is_model(name: str, settings: Settings) -> bool:
    """Whether a request may give this as its model: any of Whisper's and OpenAI's stand for the one here."""
    return (
        name in ("", AUTO, settings.options.whisper, *models(settings))
        or OF_WHISPER.fullmatch(name) is not None
    )


def wish(
    fields: Sequence[tuple[str, str]], settings: Settings, *, translate: bool = False
) -> TranscriptionRequest:
    """The request of a form's fields. Raises UsageError, FieldError for what cannot be honored."""
    asked: dict[str, list[str]] = {}
    for name, value in fields:
        asked.setdefault(LISTED.sub("", name), []).append(value)
    _refuse(asked, settings)
    options = replace(settings.options, translate=True) if translate else settings.options
    if spoken := [*filter(None, (_one(asked, "language", ""), *asked.get("languages", ())))]:
        options = replace(options, language=_languages(spoken))
    if prompt := _one(asked, "prompt", ""):
        options = replace(options, prompt=prompt)
    if keywords := tuple(word.strip() for word in asked.get("keywords", ()) if word.strip()):
        options = replace(options, vocabulary=(*options.vocabulary, *keywords))
    if (speakers := _one(asked, "speakers", "")) != "":
        if not speakers.isascii() or not speakers.isdigit() or not 0 < int(speakers) <= MOST_SPEAKERS:
            raise FieldError("speakers", f"is not a number from 1 to {MOST_SPEAKERS}")
        options = replace(options, speakers=int(speakers), min_speakers=None, max_speakers=None)
    response = _choice(asked, "response_format", tuple(RESPONSES), "json")
    stream = _is_set(asked, "stream")
    granularities = frozenset(asked.get("timestamp_granularities", ()))
    if not granularities <= {"word", "segment"}:
        raise FieldError("timestamp_granularities", "is not word or segment")
    if stream and response not in ("json", "text", "diarized_json"):
        raise FieldError("stream", f"there is no {response} of a stream; ask for json or diarized_json")
    known = _known(asked)
    keep = _is_set(asked, "keep")
    if keep and (options != settings.options or known):
        own = "language, prompt, keywords, known speakers and speakers"
        raise FieldError("keep", f"what is kept has the options of the server; leave out {own}")
    return TranscriptionRequest(
        options,
        response,
        granularities or frozenset({"segment"}),
        stream,
        keep,
        "logprobs" in asked.get("include", ()),
        known,
    )


def _refuse(asked: Mapping[str, Sequence[str]], settings: Settings) -> None:
    """Raise UsageError for a model that is not here, and for values that OpenAI's servers refuse."""
    if not models(settings):
        raise UsageError("this server recognizes no words; start it without --whisper none")
    if not is_model(model := _one(asked, "model", ""), settings):
        some = " or ".join(models(settings)[:2])
        raise FieldError("model", f"{model[:80]!r} is not here; use {some}", "model_not_found")
    try:
        temperature = float(_one(asked, "temperature", "0") or 0)
    except ValueError:
        temperature = math.nan
    if not 0 <= temperature <= 1:
        raise FieldError("temperature", "is not a number from 0 to 1")


def _languages(given: Sequence[str]) -> str | None:
    """Codes or names, also with a region: `en-US`, `german`; `auto`: any. Raises FieldError."""
    words = [word for text in given for word in text.split(",")]
    if [word.strip().casefold() for word in words] == [AUTO]:
        return None
    plain = [word if word.casefold() in languages.NAMES else re.split("[-_]", word)[0] for word in words]
    try:
        return languages.parse(",".join(plain))
    except UsageError as error:
        raise FieldError("language", str(error)) from None


def _known(asked: Mapping[str, Sequence[str]]) -> tuple[tuple[str, bytes], ...]:
    """The people that a request knows. Raises FieldError."""
    names, samples = asked.get("known_speaker_names", ()), asked.get("known_speaker_references", ())
    if len(names) != len(samples):
        raise FieldError("known_speaker_references", "there must be one for each of known_speaker_names")
    if len(names) > MOST_KNOWN:
        raise FieldError("known_speaker_names", f"there are more than {MOST_KNOWN}")
    if len(set(names)) < len(names) or not all(name.strip() for name in names):
        raise FieldError("known_speaker_names", "a name is empty or there twice")
    return tuple(zip(names, map(_sample, samples), strict=True))


def _sample(url: str) -> bytes:
    """What a data URL holds. Raises FieldError."""
    head, comma, content = url.partition(",")
    if not head.startswith("data:") or not comma:
        raise FieldError("known_speaker_references", "is not a data URL (data:audio/wav;base64,...)")
    try:
        return (
            base64.b64decode(content, validate=True)
            if head.endswith(";base64")
            else unquote_to_bytes(content)
        )
    except (binascii.Error, ValueError):
        raise FieldError("known_speaker_references", "is not valid base64") from None


def _one(asked: Mapping[str, Sequence[str]], name: str, usual: str) -> str:
    """The only value of a field. Raises FieldError if there are several."""
    values = asked.get(name, (usual,))
    if len(values) > 1:
        raise FieldError(name, "is there more than once")
    return values[0]


def _is_set(asked: Mapping[str, Sequence[str]], name: str) -> bool:
    return _choice(asked, name, ("true", "false", "1", "0"), "false") in ("true", "1")


def _choice(asked: Mapping[str, Sequence[str]], name: str, choices: Sequence[str], usual: str) -> str:
    value = _one(asked, name, usual).lower() or usual
    if value not in choices:
        raise FieldError(name, f"{value[:40]!r} is not one of {', '.join(choices)}")
    return value
