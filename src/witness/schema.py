"""The types that every module shares. The JSON decoder enforces the limits of their fields.

Times are seconds from the start of the recording; in `Findings`, from the start of the transcribed part:
`transcript.assemble` adds its offset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from witness._version import pip_install
from witness.errors import WitnessError
from witness.options import Bounds, Layout, Part
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
"""Samples in a window, 10 s: the input of one call of the segmentation model."""
FRAMES = 589
"""Segmentation frames in a window."""
FRAME_STEP = 0.016875
"""Seconds between segmentation frames."""
FRAME_SAMPLES = 270
"""Samples between segmentation frames."""
FRAME_DURATION = 0.0619375
"""Seconds that one segmentation frame covers: 991 samples, so its middle is 0.03096875 s after its start."""
LOCAL_SPEAKERS = 3
"""Speakers that the segmentation model can tell apart in one window."""


LONGEST = 1e7
"""Seconds, about four months: anything beyond is not a time in a recording."""
Time = Annotated[float, Meta(ge=-1, le=LONGEST)]
"""Seconds in a recording; a little below 0 where the edge of a frame or of a word lies there."""
Spans = tuple[tuple[Time, Time], ...]
"""Parts of a recording, each (start, end)."""
Pauses = Annotated[float, Meta(gt=0, le=LONGEST)] | None
"""Seconds: the shortest pause that the formats for reading mark; None: they mark no pause."""


class Samples(Protocol):
    """(samples,) float32 at SAMPLE_RATE, nominally within [-1, 1]: an array, or a `spool.Spool` on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Float32: ...


class Map(Protocol):
    """The builtin `map`, or a parallel one that yields results in the same order.

    Draws items in the caller's thread shortly before it needs them, so they may depend on the results of
    another map.
    """

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


def map_serially(function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
    """Apply `function` to one item after the other: the serial `Map`."""
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
    """Speaker activity, window by window. Local speaker 0 of one window is not speaker 0 of the next."""

    active: Bool
    """(windows, 589, 3)"""
    starts: Int
    """(windows,) increasing: the first sample of each window, at SAMPLE_RATE."""

    @property
    def step(self) -> float:
        """Median number of seconds from one window to the next; 1 if there are fewer than two windows."""
        return float(np.median(np.diff(self.starts))) / SAMPLE_RATE if len(self.starts) > 1 else 1.0

    @property
    def frame_starts(self) -> Int:
        """(windows,): the first frame of each window in the recording."""
        frames: Int = np.rint(self.starts / FRAME_SAMPLES).astype(np.intp)
        return frames

    @staticmethod
    def regular(active: Bool, step: float = 1.0) -> Segmentation:
        """Place windows `step` seconds apart, the first at the beginning of the recording."""
        return Segmentation(active, np.arange(len(active)) * round(step * SAMPLE_RATE))

    @staticmethod
    def joined(pieces: Iterable[Segmentation]) -> Segmentation:
        """Join the windows of all pieces, in order."""
        parts = list(pieces)
        empty = np.zeros((0, FRAMES, LOCAL_SPEAKERS), np.bool_)
        return Segmentation(
            np.concatenate([empty, *(part.active for part in parts)]),
            np.concatenate([np.zeros(0, np.intp), *(part.starts for part in parts)]),
        )


def sole_speech(active: Bool) -> Bool:
    """Reduce activity, (..., frames, speakers), to clean speech: frames with exactly one active speaker."""
    clean: Bool = active & (active.sum(axis=-1, keepdims=True, dtype=np.uint8) == 1)
    return clean


def runs(mask: Bool) -> Int:
    """(frames,) -> (n, 2): first frame of each run of set frames, and the frame after its last."""
    edges: Int = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    return edges.reshape(-1, 2)


@dataclass(frozen=True)
class Evidence:
    """Votes for each speaker's activity, by frame. Integers: a day of floats would fill the memory."""

    votes: Counts
    """(frames, speakers): the number of windows over a frame that hear the speaker."""
    windows: Counts
    """(frames,): the number of windows over a frame."""

    def __getitem__(self, frames: slice) -> Float32:
        """Return (frames, speakers): the share of windows that hear the speaker, 0 to 1."""
        windows = np.maximum(self.windows[frames], 1)[:, None]
        return np.divide(self.votes[frames], windows, dtype=np.float32)


class Word(Struct, frozen=True, gc=False):
    """A recognized word, and its speaker once `assemble` has labeled it.

    A Struct: an hour has ten thousand words, and a frozen dataclass takes thirty times as long to make.
    """

    start: Time
    end: Time
    text: str
    """As the recognizer spells it, with a leading space where the script uses spaces."""
    speaker: str | None = None
    """None: the diarizer hears no speaker at that time, or the word is not labeled yet."""
    speaker_confidence: float | None = None
    """This speaker's share of the evidence around the word, 0 to 1."""
    overlap: bool = False
    """Another speaker is active during most of the word."""
    supported: bool = True
    """False: the diarizer hears no speech here, so the recognizer may have invented the word."""
    corrected: bool = False
    """A person wrote it or chose its speaker."""
    begins: bool | None = None
    """A person's decision: True, a paragraph begins with it; False, none does; None, no decision."""
    probability: float | None = None
    """The recognizer's probability, 0 to 1; None: it gives none, or a person wrote the word."""
    language: str | None = None
    """Code; None: unknown."""


@dataclass(frozen=True)
class Utterance:
    """Consecutive words of one speaker; or speech whose words are unknown or were not asked for."""

    start: float
    end: float
    speaker: str | None
    words: tuple[Word, ...] = ()
    track: int = 0
    """Index into `Findings.tracks`."""
    corrected: bool = False
    """A person wrote some of its words or chose its speaker."""
    not_english: bool = False
    """It has no words because the recognizer knows English only, and this is another language."""

    @property
    def language(self) -> str | None:
        """Most frequent language of its words; of equally frequent ones the first."""
        languages = [word.language for word in self.words if word.language]
        return max(dict.fromkeys(languages), key=languages.count, default=None)

    @property
    def text(self) -> str | None:
        """The written words; None if they are unknown."""
        return "".join(word.text for word in self.words).strip() if self.words else None


@dataclass(frozen=True)
class Recognition:
    """Result of the speech recognizer for one track."""

    words: tuple[Word, ...]
    language: str | None
    """ISO 639-1 code, given or detected; None if the track has no speech."""
    device: str
    """Device that ran the model: "cpu", or the GPU's name as the backend reports it."""
    warnings: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    """Wall time, in seconds."""


SIDES = "its channels are the two sides of a call, and each became a track; --channels mix combines them"
"""Warning that reports a layout, not a problem."""
NO_SPEECH = "no speech was found in this recording"


def display_name(path: str) -> str:
    """Return the name of the recording at a path for messages."""
    return "standard input" if path == "-" else printable(path)


@dataclass(frozen=True)
class Source:
    """The recording of a transcript."""

    path: str
    duration: Annotated[float, Meta(ge=0, le=LONGEST)]
    """Seconds of the whole recording."""
    channels: Annotated[int, Meta(ge=1, le=1 << 16)]
    sha256: str
    part: Part | None = None
    """The transcribed part; None: the whole recording."""

    @property
    def transcribed(self) -> Part:
        return self.part or Part(0.0, self.duration)


@dataclass(frozen=True)
class ModelFile:
    """Weights whose sha256 was checked."""

    name: str
    path: str
    """Path of the file, or of the folder of a model with several files."""
    sha256: str
    """Digest of the file, or of the largest file in the folder: model.bin, or the encoder."""
    engine: str | None = None
    """Name of its recognizer in `options.Recognizer`; None: a speaker model."""
    aligner: str | None = None
    """Folder of a CTranslate2 model that times the words, if this model does not."""


@dataclass(frozen=True)
class Sound:
    """The recording in an HTML page: its waveform and its audio."""

    peaks: bytes
    """Outline of `Source.transcribed`: peaks of equally long stretches, 0 to 255, relative to the largest."""
    opus: bytes | None = None
    """`Source.transcribed` as a WebM file; None: not embedded."""
    link: str | None = None
    """URL of the whole recording, relative to the page; None: no link."""
    recorded: str | None = None
    """Date of the recording from its tags."""


FIRST_SPEAKER = 1
"""Number in the id of a new transcript's first speaker; transcripts of earlier versions begin with 0."""
_SPEAKER = re.compile(r"(?:CH\d+_)?SPEAKER_(\d+)")


def speaker_id(number: int, prefix: str = "") -> str:
    """Return the id of a speaker; a recording with several tracks has a prefix, such as `CH1_`."""
    return f"{prefix}SPEAKER_{number:02d}"


def speaker_number(speaker: str) -> int | None:
    """Return the number in an id; None: it is another name."""
    match = _SPEAKER.fullmatch(speaker)
    return int(match[1]) if match else None


PARAGRAPH_PAUSE = 2.0
"""Seconds of silence that end an utterance."""
PHRASE_PAUSE = 0.4
"""Seconds of silence that end a phrase; another speaker may follow."""
PARAGRAPH = 30.0
"""Seconds of an utterance after which a new one may begin if it is longer than LONG_PARAGRAPH."""
LONG_PARAGRAPH = 60.0
"""Most seconds of an utterance."""
BREATH = 0.5
"""Seconds of silence that do not interrupt a stretch of speech without words."""
SENTENCE_ENDS = ".?!…。？！؟।"
"""Characters that end a sentence."""
CLOSING = "\"'»”’)」』 "
"""Characters that may follow the end of a sentence: closing quotes, brackets, spaces."""

Linkage = Literal["average", "centroid"]


@dataclass(frozen=True)
class Rule:
    """Parameters that turn windows and voice vectors into speakers and turns, for one set of models."""

    linkage: Linkage
    """"average" (of the squared distances between two clusters) or "centroid"."""
    threshold: Annotated[float, Meta(gt=0, le=2)]
    """Euclidean distance of unit vectors, at most 2: closer clusters are one speaker. The middle of the
    thresholds that vote on the number of speakers."""
    smallest: Annotated[int, Meta(ge=1, le=1_000_000)] = 8
    """Vectors of windows 1 s apart (half as many if they are 2 s apart), or a twentieth of all vectors if
    that is less: a smaller cluster is not a speaker, and its vectors join other clusters."""
    shortest: Annotated[float, Meta(gt=0, le=1)] = 0.1
    """Share of a window that must be clean speech for its vector to take part in clustering."""
    pause: Annotated[float, Meta(ge=0, le=LONGEST)] = 0.8
    """Seconds of silence within a speaker's speech that still belong to the turn."""
    faint: Annotated[float, Meta(ge=0, le=1000)] | None = None
    """dB below the loud parts of the recording; fainter sound is not speech. None: no limit."""


CLOSE = 0.6
"""Share of the votes; at or below it the number of speakers is more often wrong than right:
docs/decisions/2026-11-23-one-rule.md."""


@dataclass(frozen=True)
class Count:
    """The number of speakers and the votes for it."""

    found: int
    runner_up: int | None = None
    """The number with most of the other votes; None: no other candidate."""
    share: float | None = None
    """Share of the votes for `found`, 0 to 1; None: no vote took place."""

    @property
    def close(self) -> bool:
        """True if `runner_up` is nearly as likely."""
        return self.runner_up is not None and self.share is not None and self.share <= CLOSE

    def __str__(self) -> str:
        if self.share is None:
            return f"{self.found}"
        rest = "" if self.runner_up is None else f", {self.runner_up} with most others"
        return f"{self.found} with {self.share:.0%} of the votes{rest}"


@dataclass(frozen=True)
class Track:
    """Results of the models for one track, sufficient for every later stage."""

    windows: Segmentation
    vectors: Float32
    """(windows, 3, 256): a voice vector per local speaker, NaN where there is too little speech."""
    recognition: Recognition | None = None
    """None: no recognizer ran, or it failed."""


@dataclass(frozen=True)
class Findings:
    """Results of the models. `assemble` makes a transcript of them in seconds, without the models."""

    audio: Source
    models: dict[str, ModelFile | None]
    """"segmentation", "embedding", "whisper"."""
    device: dict[str, str | None]
    """Devices that ran "embedding" and "whisper"."""
    rule: Rule
    """The clustering rule that belongs to the models."""
    plda: dict[str, Float64]
    """Arrays for `vbx.from_parameters`; empty for a clustering without a PLDA."""
    channels: Layout
    tracks: tuple[Track, ...]
    fast: bool = False
    """Value of `Options.fast`."""
    warnings: tuple[str, ...] = ()
    machine: tuple[str, ...] = ()
    """The subset of `warnings` about this machine and its models, irrelevant to readers of the transcript."""


@dataclass(frozen=True)
class Correction:
    """A person's correction. It survives another clustering, because it names a speaker by their speech."""

    kind: Literal["name", "merge", "move", "new", "text", "fill", "split", "join", "start", "end", "note"]
    """"new": the words belong to a new speaker. "fill": text for speech without words. "split": a paragraph
    begins with the word; "join": no paragraph does. "start", "end": the time of the paragraph with this first
    or last word. "note": a remark on the words."""
    speaker: Spans
    """Speech of the speaker who gets the name, absorbs the other one, or gets the words; else empty."""
    name: str | None = None
    """The name, for "name"."""
    other: Spans = ()
    """For "merge": speech of the same person under another id. For "fill": the speech. Else: the words."""
    text: str | None = None
    """For "text" and "fill": the right words; empty for "text": the words go. For "note": the note, possibly
    empty; None removes the earlier note on the same words."""
    codes: tuple[str, ...] = ()
    """Codes of a "note"."""
    at: Time | None = None
    """Time for "start" and "end"."""


@dataclass(frozen=True)
class Speaker:
    """One voice: `seconds` of speech, and its `share` of all speech (the shares sum to 1)."""

    id: str
    seconds: float
    share: float
    name: str | None = None


@dataclass(frozen=True)
class Style:
    """Presentation of a transcript in the formats for reading."""

    pauses: Pauses = None
    fillers: Literal["keep", "drop"] = "keep"
    """Treatment of "um" and "ähm" in subtitles and documents."""
    line_width: Annotated[int, Meta(ge=10, le=1000)] = 42
    """Most columns of a line of a subtitle; a Chinese character takes two. This and two lines are common
    practice of broadcasters."""
    lines: Annotated[int, Meta(ge=1, le=10)] = 2
    """Most lines of a subtitle."""
    words: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Most words of a subtitle; None: as many as fit."""
    speaker_names: Literal["text", "tag", "none"] = "text"
    """Position of speaker names in subtitles: in the text, in the voice tags of VTT, or nowhere; "none" also
    holds for txt, md and docx."""
    times: Literal["keep", "drop"] = "keep"
    """Start times of lines in txt, md and docx."""


@dataclass(frozen=True)
class Review:
    """A person's progress with a transcript, by their own account."""

    checked: bool = False
    """They are done."""
    until: Annotated[float, Meta(ge=0, le=LONGEST)] = 0.0
    """Seconds: everything before is corrected."""


@dataclass(frozen=True)
class Transcript:
    """The result, with everything that a format writes."""

    audio: Source
    models: dict[str, ModelFile | None]
    """"segmentation", "embedding", "whisper"."""
    device: dict[str, str | None]
    """Devices that ran "embedding" and "whisper"."""
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
    """Number of speakers of each track."""
    first_speaker: int = FIRST_SPEAKER
    """As FIRST_SPEAKER, or 0 in a transcript of an earlier version."""
    failure: WitnessError | None = None
    """Reason for missing words that the caller asked for; the speakers are complete all the same."""
    findings: Findings | None = field(default=None, repr=False, compare=False)
    """Results of the models, for `assemble.make_draft`."""
    fast: bool = False
    """As in `Findings`."""
    asked: Bounds = field(default_factory=Bounds)
    corrections: tuple[Correction, ...] = ()
    """All corrections, including ones that no longer apply to anything."""
    partial: bool = False
    """Recognition continues, and more utterances will follow."""
    corrected: bool = False
    """A person made some of the corrections; a run itself adds the names of known voices."""
    style: Style = Style()
    review: Review = field(default_factory=Review)
    tags: tuple[str, ...] = ()
    """A person's tags."""

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Transcript:
        """`witness.load`."""
        import witness

        return witness.load(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """`witness.save`."""
        import witness

        witness.save(self, path)

    @overload
    def to(self, form: Literal["docx", "qdpx"]) -> bytes: ...  # type: ignore[overload-overlap] # the binary ones

    @overload
    def to(self, form: str) -> str: ...

    def to(self, form: str) -> str | bytes:
        """`witness.render`."""
        import witness

        return witness.render(self, form)

    def styled(self, changes: Mapping[str, Any]) -> Transcript:
        """Change fields of `style`. None keeps a field; 0 marks no pauses, or removes a limit."""
        fields: dict[str, Any] = {name: value or None for name, value in changes.items() if value is not None}
        return replace(self, style=replace(self.style, **fields))

    @property
    def state(self) -> Literal["new", "in progress", "checked"]:
        """Progress of a person's work on it."""
        begun = self.corrected or self.review.until
        return "checked" if self.review.checked else "in progress" if begun else "new"

    @property
    def about_recording(self) -> tuple[str, ...]:
        """Warnings for the reader of the transcript."""
        return tuple(line for line in self.warnings if line not in self.machine)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Warnings that call for a look at the recording."""
        return tuple(line for line in self.about_recording if not line.endswith(SIDES))

    @property
    def about_sound(self) -> tuple[str, ...]:
        """Doubts about the sound, not about the words."""
        name = f"{display_name(self.audio.path)}: "
        return tuple(line for line in self.doubts if line.startswith(name) or line == NO_SPEECH)

    def name(self, speaker: str | None) -> str | None:
        """Return the name of the speaker with this id, or else the id."""
        names = (each.name for each in self.speakers if each.id == speaker and each.name)
        return next(names, speaker)

    def label(self, speaker: str | None) -> str | None:
        """Return the name that documents show: `Speaker 1` for SPEAKER_01.

        An id of an earlier version, whose numbers begin with 0, stays.
        """
        name = self.name(speaker)
        number = speaker_number(name) if name is not None and self.first_speaker else None
        return name if number is None else f"Speaker {number}"

    def labeled(self, text: str) -> str:
        """Return a text with the labels of speakers in place of their ids."""
        return _SPEAKER.sub(lambda match: self.label(match[0]) or match[0], text)

    @property
    def next_speaker(self) -> int:
        """Number of the next speaker that a person adds."""
        numbers = (speaker_number(turn.speaker) for turn in self.turns)
        recognized = self.first_speaker + sum(count.found for count in self.counts)
        return max(recognized, 1 + max((number for number in numbers if number is not None), default=-1))

    def to_annotation(self) -> Annotation:
        """Return the turns as an `Annotation`, labeled with names or ids. Needs pyannote.core."""
        try:
            from pyannote.core import Annotation, Segment
        except ImportError as error:
            fix = pip_install("pyannote.core")
            raise WitnessError(f"to_annotation() needs pyannote.core; fix: {fix}") from error
        annotation = Annotation(uri=PurePath(self.audio.path).stem)
        for number, turn in enumerate(self.turns):
            annotation[Segment(turn.start, turn.end), number] = self.name(turn.speaker)
        return annotation


class WordIndex:
    """Words by time. Corrections and notes refer to the words whose middles lie in their spans."""

    def __init__(self, words: Sequence[Word]) -> None:
        middles = np.array([(word.start + word.end) / 2 for word in words])
        self._order = np.argsort(middles, kind="stable")
        self._times = middles[self._order]

    def within(self, spans: Spans) -> Int:
        """Return the rising indexes of the words whose middle lies in one of `spans`."""
        starts, ends = np.array(spans).reshape(-1, 2).T
        first, last = np.searchsorted(self._times, starts), np.searchsorted(self._times, ends, "right")
        parts = [self._order[a:b] for a, b in zip(first, last, strict=True)]
        indexes: Int = np.unique(np.concatenate([self._order[:0], *parts]))
        return indexes
