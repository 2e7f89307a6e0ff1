"""Requests of OpenAI's transcription interface.

https://platform.openai.com/docs/api-reference/audio/createTranscription; in the package openai, the modules
types.audio.transcription_create_params and translation_create_params. Fields without an effect on OpenAI's
servers have none here: `temperature`, `chunking_strategy`, `timestamp_granularities` of an answer without
times, unknown fields.
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
"""Names that programs send to OpenAI's own server; here, the desk's model."""
AUTO = "auto"
"""The desk's model, or the spoken language."""
OF_WHISPER = re.compile(
    r"(?:.*[/-])?(?:whisper|transcribe)(?:-.*)?"
    r"|(?:[\w.-]+/)?(?:distil-|ggml-)?(?:tiny|base|small|medium|large|turbo)(?:[.-].*)?",
    re.ASCII,
)
"""A model that recognizes speech, as OpenAI, Groq and other servers call theirs (`gpt-4o-transcribe`,
`distil-whisper-large-v3-en`, `Systran/faster-whisper-small`), or a size of Whisper: `base`, `large-v3`."""
LISTED = re.compile(r"\[\d*\]$")
"""The end of the name of a field that a form may repeat."""
RESPONSES = {
    "json": (Format.OPENAI,),
    "text": (Format.OPENAI,),
    "srt": (Format.SRT,),
    "vtt": (Format.VTT,),
    "verbose_json": (Format.OPENAI, Format.WHISPERX),
    "diarized_json": (Format.OPENAI,),
}
"""The formats of Witness that each response_format is made of."""
MOST_KNOWN = 4
"""Speakers with samples in one request, as on OpenAI's servers."""


@dataclass(frozen=True)
class TranscriptionRequest:
    """A request, without its recording."""

    options: Options
    response: str
    """One of RESPONSES."""
    granularities: frozenset[str]
    stream: bool
    keep: bool
    """Keep the recording and its transcript in the folder."""
    logprobs: bool = False
    """Return each word's log probability."""
    known: tuple[tuple[str, bytes], ...] = ()
    """Names and voice samples."""

    @property
    def formats(self) -> tuple[Format, ...]:
        """The formats that the worker writes."""
        more = (Format.WHISPERX,) if self.response == "json" and self.logprobs else ()
        return RESPONSES[self.response] + more


def models(settings: Settings) -> tuple[str, ...]:
    """Return the names of the model, its own first; empty: the desk recognizes no words."""
    name = settings.options.whisper
    return () if name == "none" else (Path(name).name, *ALIASES)


def is_model(name: str, settings: Settings) -> bool:
    """Tell whether a name stands for the desk's model, as all names of Whisper and OpenAI do."""
    return (
        name in ("", AUTO, settings.options.whisper, *models(settings))
        or OF_WHISPER.fullmatch(name) is not None
    )


def parse(
    fields: Sequence[tuple[str, str]], settings: Settings, *, translate: bool = False
) -> TranscriptionRequest:
    """Parse the fields of a form. Raises UsageError, FieldError."""
    asked: dict[str, list[str]] = {}
    for name, value in fields:
        asked.setdefault(LISTED.sub("", name), []).append(value)
    _refuse(asked, settings)
    options = replace(settings.options, translate=True) if translate else settings.options
    if spoken := [*filter(None, (_single(asked, "language", ""), *asked.get("languages", ())))]:
        options = replace(options, language=_languages(spoken))
    if prompt := _single(asked, "prompt", ""):
        options = replace(options, prompt=prompt)
    if keywords := tuple(word.strip() for word in asked.get("keywords", ()) if word.strip()):
        options = replace(options, vocabulary=(*options.vocabulary, *keywords))
    if (speakers := _single(asked, "speakers", "")) != "":
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
    samples = _known(asked)
    keep = _is_set(asked, "keep")
    if keep and (options != settings.options or samples):
        fixed = "language, prompt, keywords, known speakers and speakers"
        raise FieldError("keep", f"a kept recording has the options of the server; leave out {fixed}")
    return TranscriptionRequest(
        options,
        response,
        granularities or frozenset({"segment"}),
        stream,
        keep,
        "logprobs" in asked.get("include", ()),
        samples,
    )


def _refuse(asked: Mapping[str, Sequence[str]], settings: Settings) -> None:
    """Raise UsageError for another model, and for values that OpenAI's servers refuse."""
    if not models(settings):
        raise UsageError("this server recognizes no words; start it without --whisper none")
    if not is_model(model := _single(asked, "model", ""), settings):
        some = " or ".join(models(settings)[:2])
        raise FieldError("model", f"{model[:80]!r} is not here; use {some}", "model_not_found")
    try:
        temperature = float(_single(asked, "temperature", "0") or 0)
    except ValueError:
        temperature = math.nan
    if not 0 <= temperature <= 1:
        raise FieldError("temperature", "is not a number from 0 to 1")


def _languages(texts: Sequence[str]) -> str | None:
    """Parse codes or names, also with a region: `en-US`, `german`; `auto`: any. Raises FieldError."""
    words = [word for text in texts for word in text.split(",")]
    if [word.strip().casefold() for word in words] == [AUTO]:
        return None
    plain = [word if word.casefold() in languages.NAMES else re.split("[-_]", word)[0] for word in words]
    try:
        return languages.parse(",".join(plain))
    except UsageError as error:
        raise FieldError("language", str(error)) from None


def _known(asked: Mapping[str, Sequence[str]]) -> tuple[tuple[str, bytes], ...]:
    """Return names and samples of known speakers. Raises FieldError."""
    names, samples = asked.get("known_speaker_names", ()), asked.get("known_speaker_references", ())
    if len(names) != len(samples):
        raise FieldError("known_speaker_references", "there must be one for each of known_speaker_names")
    if len(names) > MOST_KNOWN:
        raise FieldError("known_speaker_names", f"there are more than {MOST_KNOWN}")
    if len(set(names)) < len(names) or not all(name.strip() for name in names):
        raise FieldError("known_speaker_names", "a name is empty or there twice")
    return tuple(zip(names, map(_sample, samples), strict=True))


def _sample(url: str) -> bytes:
    """Return the content of a data URL. Raises FieldError."""
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


def _single(asked: Mapping[str, Sequence[str]], name: str, usual: str) -> str:
    """Return the value of a field. Raises FieldError if it is repeated."""
    values = asked.get(name, (usual,))
    if len(values) > 1:
        raise FieldError(name, "is there more than once")
    return values[0]


def _is_set(asked: Mapping[str, Sequence[str]], name: str) -> bool:
    return _choice(asked, name, ("true", "false", "1", "0"), "false") in ("true", "1")


def _choice(asked: Mapping[str, Sequence[str]], name: str, choices: Sequence[str], usual: str) -> str:
    value = _single(asked, name, usual).lower() or usual
    if value not in choices:
        raise FieldError(name, f"{value[:40]!r} is not one of {', '.join(choices)}")
    return value
