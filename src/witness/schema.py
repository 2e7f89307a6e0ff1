"""The nouns that every module shares. Times are seconds from the start of the recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from witness.errors import WitnessError
from witness.options import Bounds

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
T = TypeVar("T")
R = TypeVar("R")

Bool = npt.NDArray[np.bool_]
Int = npt.NDArray[np.intp]
Counts = npt.NDArray[np.unsignedinteger]

SAMPLE_RATE = 16_000
"""Samples per second of everything after `audio`; both model contracts are fixed to it."""

WINDOW_SAMPLES = 160_000
"""What the segmentation model looks at in one go: 10 s."""
FRAMES = 589
"""Segmentation frames in a window."""
FRAME_STEP = 0.016875
"""Seconds between segmentation frames."""
FRAME_SAMPLES = 270
"""Samples between segmentation frames."""
FRAME_DURATION = 0.0619375
"""Seconds that one segmentation frame sees: 991 samples, so its middle lies 0.03096875 s after its start."""
LOCAL_SPEAKERS = 3
"""Speakers that the segmentation model can tell apart within one window."""


class Samples(Protocol):
    """(samples,) float32 at SAMPLE_RATE, nominally within [-1, 1]: an array, or `spool.Spool` on the disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Float32: ...


class Map(Protocol):
    """The builtin `map`, or one that does the same on several cores: results in the order of the items.

    Items are drawn in the caller's thread and not long before they are needed, so they may be made of the
    results of another map.
    """

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


def in_turn(function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
    """The `Map` that does nothing at the same time."""
    return map(function, items)


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
class Segmentation:
    """Who is active when, window by window; local speaker 0 of one window is nobody's 0 in the next."""

    active: Bool
    """(windows, 589, 3)"""
    starts: Int
    """(windows,), rising: the sample of the recording, at SAMPLE_RATE, at which each window begins."""

    @property
    def step(self) -> float:
        """Seconds from one window to the next, as most of them lie; 1 if there are no two."""
        return float(np.median(np.diff(self.starts))) / SAMPLE_RATE if len(self.starts) > 1 else 1.0

    @property
    def frame_starts(self) -> Int:
        """(windows,): the frame of the recording at which each window begins."""
        frames: Int = np.rint(self.starts / FRAME_SAMPLES).astype(np.intp)
        return frames

    @staticmethod
    def regular(active: Bool, step: float = 1.0) -> Segmentation:
        """With windows `step` seconds apart, the first at the beginning."""
        return Segmentation(active, np.arange(len(active)) * round(step * SAMPLE_RATE))

    @staticmethod
    def joined(pieces: Iterable[Segmentation]) -> Segmentation:
        """All windows of the pieces."""
        parts = list(pieces)
        none = np.zeros((0, FRAMES, LOCAL_SPEAKERS), np.bool_)
        return Segmentation(
            np.concatenate([none, *(part.active for part in parts)]),
            np.concatenate([np.zeros(0, np.intp), *(part.starts for part in parts)]),
        )


def alone(active: Bool) -> Bool:
    """(..., frames, speakers) activity -> where a speaker is active and no other is: clean speech."""
    clean: Bool = active & (active.sum(axis=-1, keepdims=True, dtype=np.uint8) == 1)
    return clean


@dataclass(frozen=True)
class Evidence:
    """How sure it is that a speaker speaks, by frames. In bytes: floats would fill the memory in a day."""

    votes: Counts
    """(frames, speakers): in how many windows over a frame the speaker is active."""
    windows: Counts
    """(frames,): how many there are."""

    def __getitem__(self, frames: slice) -> Float32:
        """(frames, speakers): the share of the windows, 0 to 1."""
        windows = np.maximum(self.windows[frames], 1)[:, None]
        return np.divide(self.votes[frames], windows, dtype=np.float32)


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
    """Consecutive words of one speaker; or speech whose words are not known, for want of a recogniser too."""

    start: float
    end: float
    speaker: str | None
    words: tuple[Word, ...] = ()
    track: int = 0
    """Which of the `Findings.tracks` it was heard in."""

    @property
    def text(self) -> str | None:
        """The words as they are written; None if they are not known."""
        return "".join(word.text for word in self.words).strip() if self.words else None


@dataclass(frozen=True)
class Recognition:
    """What the speech recogniser heard in one track."""

    words: tuple[Word, ...]
    language: str | None
    """ISO 639-1 code, given or detected; None if there was nothing to detect it from."""
    device: str
    """What ran it: "cpu", or the GPU's name as the backend reports it."""
    warnings: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    """Wall time that this took."""


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
class Sound:
    """What a page needs of the recording, for people to see and hear."""

    peaks: bytes
    """The loudest of each of as many equal parts of the recording, 0 to 255 of the loudest of all."""
    opus: bytes | None = None
    """All of it, as a WebM file."""
    link: str | None = None
    """Where the page finds the recording itself, as a URL relative to the page."""
    recorded: str | None = None
    """When it was made, as the file itself says."""


PARAGRAPH_PAUSE = 2.0
"""Seconds of silence that end an utterance."""
PARAGRAPH = 60.0
"""Seconds after which the next sentence end does."""
BREATH = 0.5
"""Seconds of silence that a stretch of speech without words goes on over."""
SENTENCE_ENDS = ".?!…。？！؟।"
"""What a sentence ends with, closing quotes and brackets aside."""
CLOSING = "\"'»”’)」』 "
"""What may stand between the end of a sentence and the next one: closing quotes, brackets, spaces."""

Linkage = Literal["average", "centroid"]


@dataclass(frozen=True)
class Rule:
    """How windows and voice vectors are made into speakers and turns; the numbers belong to the models."""

    linkage: Linkage
    """"average" (of the squared distances between two clusters) or "centroid"."""
    threshold: float
    """Euclidean distance of unit vectors, above 0 to 2: clusters nearer than this are one speaker."""
    reach: float = 0.0
    """How far the threshold goes from there to the top of the recording's own tree, 0 to 1."""
    smallest: int = 12
    """Vectors of windows 1 s apart (half as many of those 2 s apart), or a tenth of all if that is less: a
    smaller cluster is no speaker of its own."""
    shortest: float = 0.2
    """Share of a window that must be clean speech for its vector to have a say."""
    apart: bool = False
    """Two local speakers of one window are two people, whatever they sound like."""
    balanced: bool = False
    """That linkage gives the number of speakers only; who is who, a tree does that minds how much there is of
    each voice."""
    distinct: float = 0.0
    """Squared distance by which two clusters are further apart if every vector of the smaller one shares its
    window with one of the other that is beyond the threshold; less if fewer do. 0: windows do not matter."""
    pause: float = 0.0
    """Seconds: so long a silence within what one speaker says still belongs to the turn."""
    faint: float | None = None
    """dB below the loud parts of the recording: nobody speaks who is fainter. None: nobody is too faint."""


@dataclass(frozen=True)
class Count:
    """How sure the number of speakers is."""

    found: int
    runner_up: int | None = None
    """The number that the least other threshold would give; None: nothing but `found` was considered."""
    margin: float | None = None
    """By how much the threshold (of about 1) would have to be another for `runner_up`."""

    def __str__(self) -> str:
        if self.runner_up is None or self.margin is None:
            return f"{self.found}"
        way = "lower" if self.runner_up > self.found else "higher"
        return f"{self.found}; {self.runner_up} if the threshold were {self.margin:.3f} {way}"


@dataclass(frozen=True)
class Track:
    """What the models found in one track; every later stage needs no more than this."""

    windows: Segmentation
    vectors: Float32
    """(windows, 3, 256): a voice each, NaN where there is too little speech."""
    recognition: Recognition | None = None
    """None: there was no recogniser, or it failed."""


@dataclass(frozen=True)
class Findings:
    """Everything that took a model: from here a transcript is made in seconds, and made anew."""

    audio: Source
    models: dict[str, ModelFile | None]
    """"segmentation", "embedding", "whisper"."""
    device: dict[str, str | None]
    """"embedding", "whisper": what ran them."""
    rule: Rule
    """The clustering that belongs to the voice model."""
    plda: dict[str, Float64]
    """Arrays of that clustering, as `vbx.from_parameters` takes them; empty for one without."""
    channels: str
    """"mix": one track. "split": one a channel. "call": so too, and they are the two sides of a call."""
    tracks: tuple[Track, ...]
    fast: bool = False
    """Found with less work, as `Options.fast` says."""
    warnings: tuple[str, ...] = ()


Spans = tuple[tuple[float, float], ...]
"""Pieces of a recording, (start, end) each."""


@dataclass(frozen=True)
class Correction:
    """What somebody knows better. It outlives another clustering: speakers are told by where they speak."""

    kind: Literal["name", "merge", "move", "text"]
    speaker: Spans
    """Speech of the speaker who is named, stays, or gets the words; nothing for "text"."""
    name: str | None = None
    """"name": what the speaker is called."""
    other: Spans = ()
    """"merge": speech of the speaker who is the same one. "move", "text": the words."""
    text: str | None = None
    """"text": what was said instead of them; empty: nothing was."""


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
    """"segmentation", "embedding", "whisper"."""
    device: dict[str, str | None]
    """"embedding", "whisper": what ran them."""
    timing: dict[str, float | str | None]
    """Seconds of each stage and of the whole ("wall"), and "mode": "parallel" or "serial"."""
    language: str | None
    speakers: tuple[Speaker, ...]
    turns: tuple[Turn, ...]
    utterances: tuple[Utterance, ...]
    words: tuple[Word, ...]
    warnings: tuple[str, ...] = ()
    counts: tuple[Count, ...] = ()
    """How sure the number of speakers is, for each track."""
    failure: WitnessError | None = None
    """Why there are no words although they were asked for; everything else in here is good."""
    findings: Findings | None = field(default=None, repr=False, compare=False)
    """What it was made from, for `assemble.redo`."""
    fast: bool = False
    """As in `Findings`."""
    asked: Bounds = field(default_factory=Bounds)
    corrections: tuple[Correction, ...] = ()
    """Those that were applied, and those that found nothing to apply to."""

    def name(self, speaker: str | None) -> str | None:
        """What to call a speaker: the name, or the id while there is none."""
        return next((known.name for known in self.speakers if known.id == speaker and known.name), speaker)
