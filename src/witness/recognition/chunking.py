"""A track -> pieces that fit the recognizer's window, cut where nobody speaks or it is quietest.

What the diarizer knows to be silent is left out of a piece, so that a window holds as much speech as it can
and there is no silence for a recognizer to invent words in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from witness.audio import spool
from witness.recognition.vad import FRAME, FRAME_RATE, Speech
from witness.schema import Bool, Float32, Int, Samples, Word

WINDOW = 30 * FRAME_RATE
"""Frames that Whisper hears at once."""
SHORTEST = WINDOW // 4
"""Frames. A piece whose text cannot be finished is not cut shorter than this."""
QUIET = 10
"""Frames. A cut is in the middle of the 0.2 s with the least energy."""
BREAK = 15
"""Frames, 0.3 s. A pause that long is as good a place to cut as a longer one:
docs/decisions/2026-11-24-time-of-recognition.md."""
PAUSE = 10
"""Frames. The shortest pause in which the language may change."""
BRIEF = FRAME_RATE // 2
"""Frames. Of less nobody can tell the language."""
EDGE = 10
"""Frames of silence that are left around what sounds."""
MARGIN = 25
"""Frames that are left around speech: the edges of the segmentation are that inexact, and a recognizer wants
to hear where a sentence ends. docs/decisions/2026-11-22-words.md, "Silence"."""
REACH = max(EDGE, MARGIN)
SILENCE = 10 / 32768
"""A frame is silent if half the difference between its highest and its lowest sample is less: -70 dBFS, ten
steps of 16-bit audio, where converters and codecs idle. Whisper hears the shape of a spectrum, not its level,
and invents words there."""

LEAST = 15
"""Frames that sound. In 0.3 s or less nobody says a word, and Whisper writes "Thank you."."""
TONE_FROM = 6
"""Bin of 50 Hz from which a frame's spectrum counts; below is the rumble of a room."""
TONE_POWER = 0.95
"""Share of a frame's power in its two highest peaks that makes it a tone, or two as telephones have them."""
TONES = 0.8
"""Share of the frames that sound which are tones where nobody speaks. Speech has 0.47 at most in 21
recordings, tones have 1.0 (docs/decisions/2026-11-23-words-of-all-languages.md, "Tones")."""

UNHEARD = FRAME_RATE
"""Frames of speech without a word, NEAR those around it, that are worth a second look.
docs/decisions/2026-11-22-words.md, "Second look"."""
NEAR = FRAME_RATE // 4
"""Frames around a word that are taken to be part of it: its times are that inexact."""


@dataclass(frozen=True)
class Piece:
    """Some frames of a track, in order; where frames are left out nobody speaks."""

    frames: Int
    """(n,) increasing, at least one."""
    language: str | None = None
    """That is spoken there; None: that of the track."""

    @property
    def start(self) -> float:
        """Seconds from the beginning of the track."""
        return float(self.frames[0]) / FRAME_RATE

    @property
    def end(self) -> float:
        """Seconds from the beginning of the track."""
        return float(self.frames[-1] + 1) / FRAME_RATE

    def __len__(self) -> int:
        return len(self.frames)

    def cut(self, samples: Samples) -> Float32:
        """What is heard in the piece: (up to n * FRAME,), at 16 kHz."""
        edges = np.flatnonzero(np.diff(self.frames) > 1) + 1
        runs = np.split(self.frames, edges)
        parts = [samples[int(run[0]) * FRAME : (int(run[-1]) + 1) * FRAME] for run in runs]
        return np.ascontiguousarray(np.concatenate(parts), np.float32)

    def begins(self, seconds: float) -> float:
        """When in the track something begins that begins so many seconds into what `cut` gives."""
        frame = min(max(int(seconds * FRAME_RATE + 1e-6), 0), len(self.frames) - 1)
        return (float(self.frames[frame]) + max(0.0, seconds * FRAME_RATE - frame)) / FRAME_RATE

    def ends(self, seconds: float) -> float:
        """When in the track something ends that ends so many seconds into what `cut` gives."""
        frame = min(max(int(np.ceil(seconds * FRAME_RATE - 1e-6)) - 1, 0), len(self.frames) - 1)
        return (float(self.frames[frame]) + min(1.0, seconds * FRAME_RATE - frame)) / FRAME_RATE

    def halves(self, loudness: Loudness) -> tuple[Piece, Piece]:
        """The same in two parts, cut in a pause of the middle third, or where that is quietest."""
        middle = _cut(self.frames, loudness, len(self) // 3, 2 * len(self) // 3)
        return Piece(self.frames[:middle], self.language), Piece(self.frames[middle:], self.language)

    def parts(self, loudness: Loudness, speech: Speech | None, longest: int) -> list[Piece]:
        """The same in parts of at most `longest` frames: cut where another person begins to speak, in all
        pauses, and, what is still longer, where that is quietest."""
        found, start = [], 0
        for end in (*_places(self.frames, loudness, speech), len(self)):
            frames = self.frames[start:end]
            while len(frames) > longest:
                cut = _cut(frames, loudness, longest // 3, longest, speech)
                found.append(Piece(frames[:cut]))
                frames = frames[cut:]
            found.append(Piece(frames))
            start = end
        return found


@dataclass(frozen=True)
class Loudness:
    """How loud each frame of a track is."""

    sounding: Bool
    """(frames,): not silent."""
    energy: Float32
    """(frames,): sum of the squared samples."""
    tone: Bool
    """(frames,): a tone, or two at a time."""

    @staticmethod
    def of(samples: Samples) -> Loudness:
        """Of a track, (n,) at 16 kHz. Reads it in parts: it may be larger than memory."""
        count = -(-len(samples) // FRAME)
        sounding, energy, tone = (
            np.empty(count, np.bool_),
            np.empty(count, np.float32),
            np.empty(count, np.bool_),
        )
        for start, part in spool.pieces(samples, WINDOW * FRAME):
            frames = np.pad(part, (0, -len(part) % FRAME)).reshape(-1, FRAME)
            there = slice(start // FRAME, start // FRAME + len(frames))
            sounding[there] = np.ptp(frames, axis=1) / 2 >= SILENCE
            energy[there] = np.einsum("ij,ij->i", frames, frames)
            tone[there] = _tones(frames)
        return Loudness(sounding, energy, tone)

    def may_be_speech(self, piece: Piece) -> bool:
        """Whether enough of a piece sounds, and not like a dial tone or a beep."""
        heard = piece.frames[self.sounding[piece.frames]]
        return len(heard) > LEAST and float(self.tone[heard].mean()) < TONES

    def most_speech(self, some: Sequence[Piece]) -> Piece | None:
        """That of some pieces with the most frames nearly as loud as the loudest; None: there are none."""
        if not some:
            return None
        loud = self.energy > float(np.percentile(self.energy[self.sounding], 95)) * 10**-2.5
        return max(some, key=lambda piece: int(loud[piece.frames].sum()))


def pieces(
    loudness: Loudness,
    speech: Speech | None = None,
    check: Callable[[], None] = lambda: None,
    *,
    longest: int = WINDOW,
) -> Iterator[Piece]:
    """All of a track that is worth recognizing, in pieces of at most `longest` frames, in order.

    Without `speech`, everything that sounds; with it, what sounds near to where somebody may speak. It is
    waited for no longer than each piece needs; `check` is called meanwhile and may raise.
    """
    cut = _pieces(loudness, speech, check, longest)
    return (piece for piece in cut if loudness.may_be_speech(piece))


def _pieces(
    loudness: Loudness, speech: Speech | None, check: Callable[[], None], longest: int
) -> Iterator[Piece]:
    count = len(loudness.energy)
    place, known, held = 0, 0, np.empty(0, np.intp)
    while place < count or len(held):
        while len(held) <= longest and place < count:
            known = count if speech is None else speech.known(min(place + longest + REACH, count), check)
            last = count if known == count else known - REACH  # what comes next may be near to speech
            held = np.append(held, place + np.flatnonzero(_wanted(loudness, speech, place, last)))
            place = last
        if len(held) <= longest:
            if len(held):
                yield Piece(held)
            return
        end = _cut(held, loudness, 2 * longest // 3, longest, speech)
        yield Piece(held[:end])
        held = held[end:]


def gaps(speech: Speech, loudness: Loudness, words: Sequence[Word]) -> Iterator[Piece]:
    """Where somebody is likely to speak for UNHEARD frames or more, and none of `words` is said."""
    spoken = speech.likely() & loudness.sounding
    for run in without_words(spoken, words):
        frames = np.arange(max(0, run[0] - NEAR), min(run[-1] + 1 + NEAR, len(spoken)))
        while len(frames) > WINDOW:
            end = _cut(frames, loudness, 2 * WINDOW // 3, WINDOW, speech)
            yield Piece(frames[:end])
            frames = frames[end:]
        if loudness.may_be_speech(Piece(frames)):
            yield Piece(frames)


def without_words(spoken: Bool, words: Sequence[Word], first: int = 0) -> list[Int]:
    """The frames of `spoken` that no word is near, in runs of UNHEARD or more; `first`: where it begins."""
    left = spoken.copy()
    for word in words:
        start, end = int(word.start * FRAME_RATE) - NEAR, int(word.end * FRAME_RATE) + NEAR
        left[max(0, start - first) : max(0, end - first)] = False
    frames = first + np.flatnonzero(left)
    runs = np.split(frames, np.flatnonzero(np.diff(frames) > 2 * NEAR) + 1)
    return [run for run in runs if len(run) >= UNHEARD]


def _tones(frames: Float32) -> Bool:
    """(n,): which of (n, FRAME) samples are a tone."""
    power = np.abs(np.fft.rfft(frames * np.hanning(FRAME).astype(np.float32), axis=1)) ** 2
    power[:, :TONE_FROM] = 0
    whole = power.sum(axis=1)
    for _ in range(2):
        peak = power.argmax(axis=1)[:, None] + np.arange(-2, 3)  # as wide as the window makes it
        np.put_along_axis(power, np.clip(peak, 0, power.shape[1] - 1), 0, axis=1)
    tones: Bool = power.sum(axis=1) <= (1 - TONE_POWER) * whole
    return tones


def _wanted(loudness: Loudness, speech: Speech | None, first: int, last: int) -> Bool:
    """(last - first,): what is worth recognizing; depends on nothing that is REACH frames or more away."""
    around = slice(max(0, first - REACH), min(len(loudness.energy), last + REACH))
    wanted = _near(loudness.sounding[around], EDGE)
    if speech is not None:
        wanted &= _near(speech.possible(around.start, around.stop), MARGIN)
    return wanted[first - around.start :][: last - first]


def _near(there: Bool, margin: int) -> Bool:
    """Where it is, and so many frames before and after."""
    near: Bool = np.convolve(there, np.ones(2 * margin + 1))[margin : margin + len(there)] > 0.5
    return near


def _places(frames: Int, loudness: Loudness, speech: Speech | None) -> list[int]:
    """Where `frames` can be cut: where another person begins to speak, and in the middle of pauses."""
    whole = slice(int(frames[0]), int(frames[-1]) + 1)
    quiet = ~loudness.sounding[whole]
    if speech is not None:
        quiet |= ~speech.likely(whole.start, whole.stop)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], quiet, [False])).astype(np.int8))).reshape(-1, 2)
    pauses = edges[edges[:, 1] - edges[:, 0] >= PAUSE].mean(axis=1).astype(np.intp)
    changes = np.empty(0, np.intp) if speech is None else speech.changes(whole.start, whole.stop)
    places: list[int] = []
    for place in np.searchsorted(frames, np.union1d(whole.start + pauses, changes)).tolist():
        if place - (places[-1] if places else 0) >= BRIEF and len(frames) - place >= BRIEF:
            places.append(place)
    return places


def _cut(frames: Int, loudness: Loudness, first: int, last: int, speech: Speech | None = None) -> int:
    """Where to cut `frames` between `first` and `last`: in the last good pause, or the longest, or where it
    is quietest. A window costs the same however full it is."""
    part = frames[first:last]
    # With what was left out: a pause is as long as it was.
    whole = slice(int(part[0]), int(part[-1]) + 1)
    silent = ~loudness.sounding[whole]
    if speech is not None:
        silent |= ~speech.possible(whole.start, whole.stop)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], silent, [False])).astype(np.int8)))
    if len(edges):
        starts, ends = edges[::2], edges[1::2]
        lengths = np.minimum(ends - starts, BREAK)
        best = len(lengths) - 1 - int(np.argmax(lengths[::-1]))
        middle = whole.start + (int(starts[best]) + int(ends[best])) // 2
        return first + int(np.searchsorted(part, middle))
    quiet = np.convolve(loudness.energy[part], np.ones(min(QUIET, len(part))), "valid")
    return first + int(quiet.argmin()) + QUIET // 2
