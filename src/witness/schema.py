"""The nouns that every module shares. The limits of their fields are for `documents`, which checks them.

Times are seconds from the start of the recording; in `Findings`, from the start of the part that the models
were given, which `transcript.assemble` knows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from witness.errors import UsageError, WitnessError
from witness.options import Bounds, Layout, Part
from witness.review import Review
from witness.text import printable

if TYPE_CHECKING:
    from pyannote.core import Annotation

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]
Int = npt.NDArray[np.intp]
Counts = npt.NDArray[np.unsignedinteger]

T = TypeVar("T")
R = TypeVar("R")

SAMPLE_RATE = 16_000
"""Samples per second of everything after `audio`; the contracts of both models require it."""

WINDOW_SAMPLES = 160_000
"""Samples in a window, 10 s: what the segmentation model looks at in one call."""
FRAMES = 589
"""Segmentation frames in a window."""
FRAME_STEP = 0.016875
"""Seconds between segmentation frames."""
FRAME_SAMPLES = 270
"""Samples between segmentation frames."""
FRAME_DURATION = 0.0619375
"""Seconds that one segmentation frame sees: 991 samples, so its middle is 0.03096875 s after its start."""
LOCAL_SPEAKERS = 3
"""Speakers that the segmentation model can tell apart in one window."""


LONGEST = 1e7
"""Seconds, about four months: anything beyond is not a time in a recording."""
Time = Annotated[float, Meta(ge=-1, le=LONGEST)]
"""Seconds in a recording; a little below 0 where the edge of a frame or of a word lies there."""
Spans = tuple[tuple[Time, Time], ...]
"""Parts of a recording, each (start, end)."""
Pauses = Annotated[float, Meta(gt=0, le=LONGEST)] | None
"""Seconds: the shortest pause that the formats for reading mark; None: they mark none."""


class Samples(Protocol):
    """(samples,) float32 at SAMPLE_RATE, nominally within [-1, 1]: an array, or a `spool.Spool` on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Float32: ...


class Map(Protocol):
    """The builtin `map`, or one that uses several cores and gives results in the same order.

    Items are drawn in the caller's thread and not long before they are needed, so they may depend on the
    results of another map.
    """

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


def in_turn(function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
    """The `Map` that works on one item after the other."""
    return map(function, items)


@dataclass(frozen=True, order=True)
class Turn:
    """One speaker talking without a break."""

    start: Time
    end: Time
    speaker: str

    @property
    def duration(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Segmentation:
    """Who is active when, window by window. Local speaker 0 of one window is not speaker 0 of the next."""

    active: Bool
    """(windows, 589, 3)"""
    starts: Int
    """(windows,) increasing: the sample, at SAMPLE_RATE, at which each window begins."""

    @property
    def step(self) -> float:
        """Median number of seconds from one window to the next; 1 if there are fewer than two windows."""
        return float(np.median(np.diff(self.starts))) / SAMPLE_RATE if len(self.starts) > 1 else 1.0

    @property
    def frame_starts(self) -> Int:
        """(windows,): the frame of the recording at which each window begins."""
        frames: Int = np.rint(self.starts / FRAME_SAMPLES).astype(np.intp)
        return frames

    @staticmethod
    def regular(active: Bool, step: float = 1.0) -> Segmentation:
        """Windows `step` seconds apart, the first at the beginning of the recording."""
        return Segmentation(active, np.arange(len(active)) * round(step * SAMPLE_RATE))

    @staticmethod
    def joined(pieces: Iterable[Segmentation]) -> Segmentation:
        """The windows of all pieces, in order."""
        parts = list(pieces)
        none = np.zeros((0, FRAMES, LOCAL_SPEAKERS), np.bool_)
        return Segmentation(
            np.concatenate([none, *(part.active for part in parts)]),
            np.concatenate([np.zeros(0, np.intp), *(part.starts for part in parts)]),
        )


def alone(active: Bool) -> Bool:
    """Clean speech: (..., frames, speakers) activity -> where a speaker is active and nobody else is."""
    clean: Bool = active & (active.sum(axis=-1, keepdims=True, dtype=np.uint8) == 1)
    return clean


@dataclass(frozen=True)
class Evidence:
    """How sure it is that a speaker is active, by frame. Integers: a day of floats would fill the memory."""

    votes: Counts
    """(frames, speakers): the number of windows over a frame in which the speaker is active."""
    windows: Counts
    """(frames,): the number of windows over a frame."""

    def __getitem__(self, frames: slice) -> Float32:
        """(frames, speakers): the share of windows in which the speaker is active, 0 to 1."""
        windows = np.maximum(self.windows[frames], 1)[:, None]
        return np.divide(self.votes[frames], windows, dtype=np.float32)


class Word(Struct, frozen=True, gc=False):
    """A recognized word, and once `merging` has labeled it, who said it.

    There are ten thousand in an hour: a frozen dataclass takes thirty times as long to make.
    """

    start: Time
    end: Time
    text: str
    """As the recognizer spells it, with a leading space where the script uses spaces."""
    speaker: str | None = None
    """None: nobody was heard speaking at that time, or words have not been labeled yet."""
    speaker_confidence: float | None = None
    """This speaker's share of the evidence around the word, 0 to 1."""
    overlap: bool = False
    """Another speaker is active during most of the word."""
    supported: bool = True
    """False: the diarizer hears no speech here, so the recognizer may have invented the word."""
    corrected: bool = False
    """A person said what it is, or whose."""
    begins: bool | None = None
    """What a person said of whether a paragraph begins with it; None: nothing."""
    probability: float | None = None
    """The recognizer's own, 0 to 1; None: it tells none, or a person wrote the word."""
    language: str | None = None
    """Code; None: not known."""


@dataclass(frozen=True)
class Utterance:
    """Consecutive words of one speaker; or speech whose words are unknown or were not asked for."""

    start: float
    end: float
    speaker: str | None
    words: tuple[Word, ...] = ()
    track: int = 0
    """Index into `Findings.tracks`: where it was heard."""
    corrected: bool = False
    """A person said what its words are, or whose."""
    not_english: bool = False
    """It has no words because the recognizer knows English only, and it is in another language."""

    @property
    def language(self) -> str | None:
        """Of most of its words; of two as frequent the first."""
        told = [word.language for word in self.words if word.language]
        return max(dict.fromkeys(told), key=told.count, default=None)

    @property
    def text(self) -> str | None:
        """The words as they are written; None if they are unknown."""
        return "".join(word.text for word in self.words).strip() if self.words else None


@dataclass(frozen=True)
class Recognition:
    """What the speech recognizer heard in one track."""

    words: tuple[Word, ...]
    language: str | None
    """ISO 639-1 code, given or detected; None if there was no speech to detect it from."""
    device: str
    """What ran the model: "cpu", or the GPU's name as the backend reports it."""
    warnings: tuple[str, ...] = ()
    not_english: Spans = ()
    """Where another language is spoken than the one that an English model knows, in seconds."""
    seconds: float = field(default=0.0, compare=False)
    """Wall time, in seconds."""


SIDES = "its channels are the two sides of a call, and each became a track; --channels mix combines them"
"""A warning about a recording with which all is well."""
NO_SPEECH = "no speech was found in this recording"


def called(path: str) -> str:
    """How messages name the recording at a path."""
    return "standard input" if path == "-" else printable(path)


@dataclass(frozen=True)
class Source:
    """The recording that a transcript was made from."""

    path: str
    duration: Annotated[float, Meta(ge=0, le=LONGEST)]
    """Of the whole recording, in seconds."""
    channels: Annotated[int, Meta(ge=1, le=1 << 16)]
    sha256: str
    part: Part | None = None
    """What was transcribed; None: all of it."""

    @property
    def heard(self) -> Part:
        """What was transcribed."""
        return self.part or Part(0.0, self.duration)


@dataclass(frozen=True)
class ModelFile:
    """Weights whose sha256 was checked."""

    name: str
    path: str
    """Of the file, or of the folder of a model that has several."""
    sha256: str
    """Of the file, or of the largest in the folder: model.bin, or the encoder."""
    engine: str | None = None
    """The recognizer that reads it, as `options.Recognizer` names it; None: a speaker model."""
    aligner: str | None = None
    """The folder of a CTranslate2 model that tells when the words are said, if this one does not."""


@dataclass(frozen=True)
class Sound:
    """What an HTML page shows and plays of the recording."""

    peaks: bytes
    """Outline of `Source.heard`: the peaks of equally long stretches, relative to the largest, 0 to 255."""
    opus: bytes | None = None
    """`Source.heard` as a WebM file; None: it is not embedded."""
    link: str | None = None
    """URL of the whole recording, relative to the page; None: the page is not linked to it."""
    recorded: str | None = None
    """When it was recorded, as its tags say."""


PARAGRAPH_PAUSE = 2.0
"""Seconds of silence that end an utterance."""
PHRASE_PAUSE = 0.4
"""Seconds of silence that end a phrase, after which somebody else may have the word."""
PARAGRAPH = 30.0
"""Seconds of an utterance after which a new one may begin if it is longer than LONG_PARAGRAPH."""
LONG_PARAGRAPH = 60.0
"""Most seconds of an utterance."""
BREATH = 0.5
"""Seconds of silence that do not interrupt a stretch of speech without words."""
SENTENCE_ENDS = ".?!…。？！؟।"
"""What a sentence ends with, apart from closing quotes and brackets."""
CLOSING = "\"'»”’)」』 "
"""What may stand between the end of a sentence and the next one: closing quotes, brackets, spaces."""

Linkage = Literal["average", "centroid"]


@dataclass(frozen=True)
class Rule:
    """How windows and voice vectors become speakers and turns. The numbers belong to a set of models."""

    linkage: Linkage
    """"average" (of the squared distances between two clusters) or "centroid"."""
    threshold: Annotated[float, Meta(gt=0, le=2)]
    """Euclidean distance of unit vectors, which is 2 at most: closer clusters are one speaker. It is the
    middle of those at which the number of speakers is voted on."""
    smallest: Annotated[int, Meta(ge=1, le=1_000_000)] = 8
    """Vectors of windows 1 s apart (half as many if they are 2 s apart), or a twentieth of all vectors if
    that is less: a smaller cluster is not a speaker, and its vectors join other clusters."""
    shortest: Annotated[float, Meta(gt=0, le=1)] = 0.1
    """Share of a window that must be clean speech for its vector to take part in clustering."""
    pause: Annotated[float, Meta(ge=0, le=LONGEST)] = 0.8
    """Seconds of silence within a speaker's speech that still belong to the turn."""
    faint: Annotated[float, Meta(ge=0, le=1000)] | None = None
    """dB below the loud parts of the recording; what is fainter is not speech. None: no limit."""


CLOSE = 0.6
"""Share of the votes up to which the number of speakers is more often wrong than right:
docs/decisions/2026-11-23-one-rule.md."""


@dataclass(frozen=True)
class Count:
    """How sure the number of speakers is."""

    found: int
    runner_up: int | None = None
    """The number with most of the other votes; None: there was no other candidate."""
    share: float | None = None
    """Of all votes, those for `found`, 0 to 1; None: there was no vote."""

    @property
    def close(self) -> bool:
        """Whether `runner_up` is nearly as likely."""
        return self.runner_up is not None and self.share is not None and self.share <= CLOSE

    def __str__(self) -> str:
        if self.share is None:
            return f"{self.found}"
        rest = "" if self.runner_up is None else f", {self.runner_up} with most others"
        return f"{self.found} with {self.share:.0%} of the votes{rest}"


@dataclass(frozen=True)
class Track:
    """What the models found in one track; every later stage needs no more than this."""

    windows: Segmentation
    vectors: Float32
    """(windows, 3, 256): a voice vector per local speaker, NaN where there is too little speech."""
    recognition: Recognition | None = None
    """None: there was no recognizer, or it failed."""


@dataclass(frozen=True)
class Findings:
    """What the models found. From here a transcript is made in seconds, as often as needed, without them."""

    audio: Source
    models: dict[str, ModelFile | None]
    """"segmentation", "embedding", "whisper"."""
    device: dict[str, str | None]
    """"embedding", "whisper": what ran them."""
    rule: Rule
    """The clustering rule that belongs to the models."""
    plda: dict[str, Float64]
    """Arrays of the PLDA, as `vbx.from_parameters` takes them; empty for a clustering without one."""
    channels: Layout
    """What the tracks are."""
    tracks: tuple[Track, ...]
    fast: bool = False
    """Whether `Options.fast` was set."""
    warnings: tuple[str, ...] = ()
    machine: tuple[str, ...] = ()
    """Those of the warnings that are about this machine and its models, which no reader of the transcript
    needs."""


@dataclass(frozen=True)
class Correction:
    """What a person knows better. It survives another clustering: a speaker is named by where they speak."""

    kind: Literal["name", "merge", "move", "new", "text", "fill", "split", "join", "start", "end", "note"]
    """"new": the words are those of somebody who is not yet a speaker. "fill": speech without words. "split":
    a paragraph begins with the word, "join": none does. "start", "end": when the paragraph begins whose first
    word it is, or ends whose last. "note": what a person thinks of the words."""
    speaker: Spans
    """Speech of the speaker who is named, who stays, or who gets the words; empty for the other kinds."""
    name: str | None = None
    """For "name": what the speaker is called."""
    other: Spans = ()
    """For "merge": speech of the speaker who is the same person. For "move", "new" and "text": the words. For
    "fill": the speech."""
    text: str | None = None
    """For "text" and "fill": what was said; for "text" it may be empty: nothing. For "note": the note, which
    may be empty; None takes the earlier one on the same words away."""
    codes: tuple[str, ...] = ()
    """For "note"."""
    at: Time | None = None
    """For "start" and "end"."""


@dataclass(frozen=True)
class Speaker:
    """One voice: `seconds` of speech, and its `share` of all speech (the shares sum to 1)."""

    id: str
    seconds: float
    share: float
    name: str | None = None


@dataclass(frozen=True)
class Style:
    """How the formats for reading show a transcript."""

    pauses: Pauses = None
    fillers: Literal["keep", "drop"] = "keep"
    """What becomes of "um" and "ähm" in subtitles and documents."""
    line_width: Annotated[int, Meta(ge=10, le=1000)] = 42
    """Most columns of a line of a subtitle; a Chinese character takes two. This and two lines are common
    practice of broadcasters."""
    lines: Annotated[int, Meta(ge=1, le=10)] = 2
    """Most lines of a subtitle."""
    words: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Most words of a subtitle; None: as many as fit."""
    speaker_names: Literal["text", "tag", "none"] = "text"
    """Where subtitles name the speakers: in the text, in the voice tags of VTT, or not at all; "none" holds
    for txt, md and docx, too."""
    times: Literal["keep", "drop"] = "keep"
    """Whether txt, md and docx say when a line begins."""


@dataclass(frozen=True)
class Transcript:
    """The result: everything that the writers write."""

    audio: Source
    models: dict[str, ModelFile | None]
    """"segmentation", "embedding", "whisper"."""
    device: dict[str, str | None]
    """"embedding", "whisper": what ran them."""
    timing: dict[str, float | str | None]
    """Seconds of each stage and of the whole run ("wall"), and "mode": "parallel" or "serial"."""
    language: str | None
    speakers: tuple[Speaker, ...]
    turns: tuple[Turn, ...]
    utterances: tuple[Utterance, ...]
    words: tuple[Word, ...]
    warnings: tuple[str, ...] = ()
    machine: tuple[str, ...] = ()
    """As in `Findings`."""
    counts: tuple[Count, ...] = ()
    """How sure the number of speakers is, for each track."""
    failure: WitnessError | None = None
    """Why there are no words although they were asked for; the speakers are complete all the same."""
    findings: Findings | None = field(default=None, repr=False, compare=False)
    """What it was made from, for `assemble.redo`."""
    fast: bool = False
    """As in `Findings`."""
    asked: Bounds = field(default_factory=Bounds)
    corrections: tuple[Correction, ...] = ()
    """All that were given, including those that no longer apply to anything."""
    partial: bool = False
    """Whether words are still being recognized, and utterances will follow."""
    corrected: bool = False
    """A person gave some of them; a run itself gives the names of known voices."""
    style: Style = Style()
    review: Review = field(default_factory=Review)
    tags: tuple[str, ...] = ()
    """What a person has sorted it under."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Transcript:
        """The transcript in a JSON file that Witness wrote, without its `findings`. Raises InputError."""
        found: Transcript = _above("transcript.store").read(Path(path))
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole or not at all, in the format that its ending names.

        Raises UsageError for another ending, and OutputError.
        """
        place = Path(path)
        form = _above("formats.output_paths").format_of(place.name)
        if form is None:
            raise UsageError(f"{place}: names no format; end it with .json, .srt, .docx or the like")
        _above("formats.output_paths").check_libraries([form])
        _above("transcript.store").save(self, [(form, place)])

    @overload
    def to(self, form: Literal["docx", "qdpx"]) -> bytes: ...  # type: ignore[overload-overlap] # the binary ones

    @overload
    def to(self, form: str) -> str: ...

    def to(self, form: str) -> str | bytes:
        """It in a format: a text, or bytes if the format is not text. Raises UsageError, WitnessError."""
        known = _above("options").chosen(_above("formats.registry").Format, form)
        _above("formats.output_paths").check_libraries([known])
        content: bytes = _above("formats.writers").content(
            _above("formats.document").in_milliseconds(self), known
        )
        return content if known.about.binary else content.decode()

    def styled(self, given: Mapping[str, Any]) -> Transcript:
        """The same with some fields of `style` as given; None: as it is, 0: no pause is marked, no limit."""
        kept: dict[str, Any] = {name: value or None for name, value in given.items() if value is not None}
        return replace(self, style=replace(self.style, **kept))

    @property
    def state(self) -> Literal["new", "in progress", "checked"]:
        """What a person has done to it."""
        begun = self.corrected or self.review.until
        return "checked" if self.review.checked else "in progress" if begun else "new"

    @property
    def about_recording(self) -> tuple[str, ...]:
        """The warnings for whoever reads the transcript."""
        return tuple(line for line in self.warnings if line not in self.machine)

    @property
    def doubts(self) -> tuple[str, ...]:
        """The warnings after which somebody should look at the recording."""
        return tuple(line for line in self.about_recording if not line.endswith(SIDES))

    @property
    def about_sound(self) -> tuple[str, ...]:
        """Those of the doubts that concern what of the recording could be used, and not the words."""
        name = f"{called(self.audio.path)}: "
        return tuple(line for line in self.doubts if line.startswith(name) or line == NO_SPEECH)

    def name(self, speaker: str | None) -> str | None:
        """What to call the speaker with this id: the name if there is one, else the id."""
        return next((one.name for one in self.speakers if one.id == speaker and one.name), speaker)

    def to_annotation(self) -> Annotation:
        """The turns as a `pyannote.core.Annotation`, labeled with names or ids. Needs pyannote.core."""
        try:
            from pyannote.core import Annotation, Segment
        except ImportError as error:
            raise WitnessError(
                "to_annotation() needs pyannote.core; fix: pip install pyannote.core"
            ) from error
        annotation = Annotation(uri=PurePath(self.audio.path).stem)
        for number, turn in enumerate(self.turns):
            annotation[Segment(turn.start, turn.end), number] = self.name(turn.speaker)
        return annotation


def _above(module: str) -> ModuleType:
    """A module from above this one, for the methods that are the way in and out for programs in Python.

    By its name, and when it is needed, as the front door does it.
    """
    return import_module(f"witness.{module}")
