"""The nouns that every module shares. Times are seconds from the start of the recording."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
Int = npt.NDArray[np.intp]

SAMPLE_RATE = 16_000
"""Samples per second of everything after `audio`; both model contracts are fixed to it."""

Progress = Callable[[str, float, float], None]
"""Called as `progress(stage, done, total)` from any thread; units are the stage's own."""


def no_progress(stage: str, done: float, total: float) -> None:
    """The `Progress` of a caller who does not want to know."""


@dataclass(frozen=True, order=True)
class Turn:
    """One speaker talking without a break."""

    start: float
    end: float
    speaker: str

    @property
    def duration(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Word:
    """A recognised word, and who said it once `merging` has looked at it."""

    start: float
    end: float
    text: str
    """As the recogniser spells it, with a leading space where the script puts one."""
    speaker: str | None = None
    """None: nobody was heard speaking then, or the speakers are not known yet."""
    speaker_confidence: float | None = None
    """Share of the evidence around the word that is this speaker's, 0 to 1."""
    overlap: bool = False
    """Another speaker talks during most of the word."""
    supported: bool = True
    """False: the diarizer hears no speech here, so the word may be invented by the recogniser."""


@dataclass(frozen=True)
class Utterance:
    """Consecutive words of one speaker; without a recogniser, a turn whose text is unknown."""

    start: float
    end: float
    speaker: str | None
    text: str | None


@dataclass(frozen=True)
class Recognition:
    """What the speech recogniser heard in one track."""

    words: tuple[Word, ...]
    language: str | None
    """ISO 639-1 code, given or detected; None if there was nothing to detect it from."""
    device: str
    """What ran it: "cpu", or the GPU's name as the backend reports it."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """The recording a transcript was made from."""

    path: str
    duration: float
    channels: int
    sha256: str


@dataclass(frozen=True)
class ModelFile:
    """One weights file, verified."""

    name: str
    path: str
    sha256: str


@dataclass(frozen=True)
class Speaker:
    """One voice: `seconds` of speech, `share` of all speech (the shares of all speakers sum to 1)."""

    id: str
    seconds: float
    share: float
    name: str | None = None


@dataclass(frozen=True)
class Transcript:
    """The result: everything that the writers print."""

    audio: Source
    models: dict[str, ModelFile | None]
    device: dict[str, str | None]
    timing: dict[str, float | str | None]
    language: str | None
    speakers: tuple[Speaker, ...]
    turns: tuple[Turn, ...]
    utterances: tuple[Utterance, ...]
    words: tuple[Word, ...]
    warnings: tuple[str, ...] = field(default=())
