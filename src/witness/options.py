"""Choices of a person: `Options` change the result, `Runtime` changes the speed and nothing else.

Only the standard library is imported here, so that `--help` answers in a blink.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from witness import languages, machine_limits
from witness.errors import UsageError


class Choice(str, Enum):
    """One of a few words; equal to the word itself, and written as it."""

    __str__ = str.__str__


class Device(Choice):
    """The processor of the voice model."""

    AUTO = "auto"
    """A GPU if it works here and saves time."""
    CPU = "cpu"
    MIGRAPHX = "migraphx"
    """An AMD GPU with ROCm, or an error."""


class Channels(Choice):
    """Treatment of several channels."""

    AUTO = "auto"
    """Split if they are the two sides of a call, else mixed."""
    MIX = "mix"
    SPLIT = "split"


class Layout(Choice):
    """Origin of the tracks of a recording."""

    MIX = "mix"
    """One track: all channels, mixed."""
    SPLIT = "split"
    """One track per channel."""
    CALL = "call"
    """One track per channel, and they are the two sides of a call."""


class Mode(Choice):
    """Schedule of the speech recognizer."""

    PARALLEL = "parallel"
    """Beside the diarizer."""
    SERIAL = "serial"
    """After it."""


class Precision(Choice):
    """Of the voice model on a GPU; the CPU's is always fp32."""

    FP32 = "fp32"
    FP16 = "fp16"


class Recognizer(Choice):
    """The program that recognizes words."""

    AUTO = "auto"
    """A GPU engine if one works here, whisper.cpp before transcribe-cpp; otherwise CTranslate2 if it is
    installed, else whisper.cpp."""
    WHISPER_CPP = "whisper.cpp"
    CTRANSLATE2 = "ctranslate2"
    ONNX_ASR = "onnx-asr"
    TRANSCRIBE_CPP = "transcribe-cpp"
    """Reads the models of whisper.cpp; a small model of CTranslate2 times its words."""


class PageAudio(Choice):
    """The sound of an HTML page."""

    AUTO = "auto"
    """Embedded in short recordings, linked in long ones."""
    EMBED = "embed"
    LINK = "link"
    NONE = "none"


C = TypeVar("C", bound=Choice)


def chosen(choices: type[C], value: str) -> C:
    """Return the choice for a word. Raises UsageError that lists the choices."""
    try:
        return choices(value)
    except ValueError:
        words = ", ".join(choices)
        raise UsageError(f"{value!r} is not a {choices.__name__.lower()}; choose one of {words}") from None


MOST_SPEAKERS = 10_000
"""Maximum number of speakers that can be asked for."""


@dataclass(frozen=True)
class Bounds:
    """The number of speakers that a person asked for."""

    speakers: int | None = None
    """Exactly this many; excludes the other two."""
    min_speakers: int | None = None
    max_speakers: int | None = None


@dataclass(frozen=True)
class Changes:
    """A person's changes to a transcript, as `witness redo` takes them."""

    asked: Bounds = Bounds()
    forget: bool = False
    """Drop earlier corrections, except notes, and the number of speakers."""
    merges: tuple[str, ...] = ()
    """Arguments of `transcript.rebuild.merge_speakers`."""
    names: tuple[str, ...] = ()
    """Arguments of `transcript.rebuild.name_speaker`."""
    saved: tuple[Path, ...] = ()
    """Files of corrections that a page saved."""
    replaced: tuple[tuple[str, str], ...] = ()
    """Replacement rules."""


@dataclass(frozen=True)
class Part:
    """A part of a recording, in seconds from the recording's beginning; all of it by default."""

    start: float = 0.0
    end: float = math.inf

    @property
    def duration(self) -> float:
        """In seconds."""
        return self.end - self.start


@dataclass(frozen=True)
class Options:
    """Choices that change the result."""

    models: str = "auto"
    """"auto", a name of `models.catalogue.SETS`, or a folder with segmentation.onnx and embedding.onnx."""
    whisper: str = "auto"
    """"auto", "none", the name or the size of a model, or the path of a ggml file or of a model's folder."""
    recognizer: str = Recognizer.AUTO
    language: str | None = None
    """A code or a name ("de", "german"), or several with commas between them: those that may be spoken. None:
    any."""
    translate: bool = False
    """Write the words in English, whatever language is spoken."""
    fast_words: bool = False
    """Search the words greedily: less time, more errors."""
    prompt: str = ""
    """A text that could have been said before; the recognizer follows its names, terms and spelling."""
    vocabulary: Sequence[str] = ()
    """Names and terms that may occur."""
    replaced: Sequence[tuple[str, str]] = ()
    """Pairs of recognized words and the words to write in their place."""
    speakers: int | None = None
    """Exactly this many; in each channel with channels="split", in both sides of a call together."""
    min_speakers: int | None = None
    max_speakers: int | None = None
    channels: str = Channels.AUTO
    precision: str = Precision.FP32
    fast: bool = False
    """Windows further apart, and voices from speech without the pauses around it: a little less accurate."""
    offline: bool = False
    """Open no socket: use the model files that are here."""
    known: str | None = None
    """A folder of voiceprints to recognize; None: no recognition of people."""
    start: float = 0.0
    """Seconds of the recording that are left out at its beginning; times stay those of the whole."""
    end: float | None = None
    """Seconds from the beginning of the recording to the end of the part; None: the end of the recording."""

    def __post_init__(self) -> None:
        if isinstance(self.vocabulary, str):
            raise UsageError("the vocabulary is a text; give a list of names and terms")
        object.__setattr__(self, "vocabulary", tuple(self.vocabulary))  # from JSON it is a list
        object.__setattr__(self, "replaced", tuple((spoken, written) for spoken, written in self.replaced))
        object.__setattr__(self, "recognizer", chosen(Recognizer, self.recognizer))
        if self.language is not None:
            object.__setattr__(self, "language", languages.parse(self.language))
        if not 0 <= self.part.start < self.part.end:  # nor is not-a-number
            end = "its end" if self.end is None else f"{self.end:g} s"
            raise UsageError(
                f"from {self.start:g} s to {end} is not a part of a recording; give times of 0 or more, the "
                "earlier one as the start (--from)"
            )
        object.__setattr__(self, "channels", chosen(Channels, self.channels))
        object.__setattr__(self, "precision", chosen(Precision, self.precision))

    @property
    def asked(self) -> Bounds:
        return Bounds(self.speakers, self.min_speakers, self.max_speakers)

    @property
    def part(self) -> Part:
        return Part(self.start, math.inf if self.end is None else self.end)


@dataclass(frozen=True)
class Runtime:
    """Choices that change the speed of a run and nothing else."""

    device: str = Device.AUTO
    gpu: int | None = None
    """HIP's ordinal of the card; None: the best one."""
    threads: int = 0
    """Cores for the diarizer, and for a recognizer on the CPU; 0 means all that this process may use."""
    serial: bool = False
    """Run the speech recognizer after the diarizer, even on a GPU."""
    parallel: bool = False
    """Beside it, even on the same cores or on a GPU that seems to have too little memory for both."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", chosen(Device, self.device))

    @property
    def cores(self) -> int:
        return self.threads or machine_limits.cores()
