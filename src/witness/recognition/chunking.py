"""A track -> pieces that fit the recognizer's window, cut in pauses or at the quietest moment.

A piece leaves out frames that the diarizer finds silent, so that a window holds as much speech as it can, and
no silence, which would make a recognizer invent words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from witness.audio import spool
from witness.recognition.vad import FRAME, FRAME_RATE, Speech
from witness.schema import Bool, Float32, Int, Samples, Word, runs

WINDOW = 30 * FRAME_RATE
"""Frames of Whisper's window."""
SHORTEST = WINDOW // 4
"""Frames. A piece whose text has no end is not cut shorter than this."""
QUIET = 10
"""Frames. A cut is in the middle of the 0.2 s with the least energy."""
BREAK = 15
"""Frames, 0.3 s. A pause that long is as good a place to cut as a longer one:
docs/decisions/2026-11-24-time-of-recognition.md."""
PAUSE = 10
"""Frames of the shortest pause that may change the language."""
BRIEF = FRAME_RATE // 2
"""Frames. Less does not tell its language."""
EDGE = 10
"""Frames of silence that stay around sound."""
MARGIN = 25
"""Frames that stay around speech: the edges of the segmentation are that inexact, and a recognizer needs the
end of a sentence. docs/decisions/2026-11-22-words.md, "Silence"."""
REACH = max(EDGE, MARGIN)
SILENCE = 10 / 32768
"""A frame is silent if half the difference between its highest and its lowest sample is less: -70 dBFS, ten
steps of 16-bit audio, the noise of idle converters and codecs. Whisper depends on the shape of a spectrum,
not on its level, and invents words there."""

LEAST = 15
"""Frames that sound. 0.3 s or less holds no word, and Whisper writes "Thank you."."""
TONE_FROM = 6
"""First bin of 50 Hz that counts in a frame's spectrum; below is the rumble of a room."""
TONE_POWER = 0.95
"""Share of a frame's power in its two highest peaks that makes it a tone, or two as telephones have them."""
TONES = 0.8
"""Share of tones among the sounding frames of a piece without speech. Speech has 0.47 at most in 21
recordings, tones have 1.0 (docs/decisions/2026-11-23-words-of-all-languages.md, "Tones")."""

UNHEARD = FRAME_RATE
"""Frames of speech without a word, NEAR those around it, that are worth a second try.
docs/decisions/2026-11-22-words.md, "Second look"."""
NEAR = FRAME_RATE // 4
"""Frames around a word that count as part of it: its times are that inexact."""


@dataclass(frozen=True)
class Piece:
    """Some frames of a track, in order; frames between them have no speech."""

    frames: Int
    """(n,) increasing, at least one."""
    language: str | None = None
    """None: the language of the track."""

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
        """Return the samples of the piece: (up to n * FRAME,), at 16 kHz."""
        runs = np.split(self.frames, np.flatnonzero(np.diff(self.frames) > 1) + 1)
        parts = [samples[int(run[0]) * FRAME : (int(run[-1]) + 1) * FRAME] for run in runs]
        return np.ascontiguousarray(np.concatenate(parts), np.float32)

    def begins(self, seconds: float) -> float:
        """Convert the beginning of a token, in seconds of the result of `cut`, to seconds of the track."""
        frame = min(max(int(seconds * FRAME_RATE + 1e-6), 0), len(self.frames) - 1)
        return (float(self.frames[frame]) + max(0.0, seconds * FRAME_RATE - frame)) / FRAME_RATE

    def ends(self, seconds: float) -> float:
        """Convert the end of a token, in seconds of the result of `cut`, to seconds of the track."""
        frame = min(max(int(np.ceil(seconds * FRAME_RATE - 1e-6)) - 1, 0), len(self.frames) - 1)
        return (float(self.frames[frame]) + min(1.0, seconds * FRAME_RATE - frame)) / FRAME_RATE

    def halves(self, loudness: Loudness) -> tuple[Piece, Piece]:
        """Split it in a pause of its middle third, or at the quietest moment there."""
        middle = _cut(self.frames, loudness, len(self) // 3, 2 * len(self) // 3)
        return Piece(self.frames[:middle], self.language), Piece(self.frames[middle:], self.language)

    def parts(self, loudness: Loudness, speech: Speech | None, longest: int) -> list[Piece]:
        """Split it at changes of the speaker and in all pauses, and longer parts at quiet moments."""
        parts: list[Piece] = []
        start = 0
        for end in (*_boundaries(self.frames, loudness, speech), len(self)):
            parts += _cut_up(self.frames[start:end], loudness, (longest // 3, longest), speech)
            start = end
        return parts


@dataclass(frozen=True)
class Loudness:
    """Loudness of each frame of a track."""

    sounding: Bool
    """(frames,): not silent."""
    energy: Float32
    """(frames,): sum of the squared samples."""
    tone: Bool
    """(frames,): a tone, or two at a time."""

    @staticmethod
    def of(samples: Samples) -> Loudness:
        """Measure a track, (n,) at 16 kHz, in parts: it may be larger than memory."""
        count = -(-len(samples) // FRAME)
        sounding, energy, tone = (
            np.empty(count, np.bool_),
            np.empty(count, np.float32),
            np.empty(count, np.bool_),
        )
        for start, part in spool.pieces(samples, WINDOW * FRAME):
            frames = np.pad(part, (0, -len(part) % FRAME)).reshape(-1, FRAME)
            where = slice(start // FRAME, start // FRAME + len(frames))
            sounding[where] = np.ptp(frames, axis=1) / 2 >= SILENCE
            energy[where] = np.einsum("ij,ij->i", frames, frames)
            tone[where] = _tones(frames)
        return Loudness(sounding, energy, tone)

    def may_be_speech(self, piece: Piece) -> bool:
        """Return whether enough of a piece sounds, and not like a dial tone or a beep."""
        sounding = piece.frames[self.sounding[piece.frames]]
        return len(sounding) > LEAST and float(self.tone[sounding].mean()) < TONES

    def most_speech(self, pieces: Sequence[Piece]) -> Piece | None:
        """Return the piece with the largest number of loud frames; None: there are no pieces."""
        if not pieces:
            return None
        loud = self.energy > float(np.percentile(self.energy[self.sounding], 95)) * 10**-2.5
        return max(pieces, key=lambda piece: int(loud[piece.frames].sum()))


def pieces(
    loudness: Loudness,
    speech: Speech | None = None,
    check: Callable[[], None] = lambda: None,
    *,
    longest: int = WINDOW,
) -> Iterator[Piece]:
    """Yield everything worth recognizing in a track, in pieces of at most `longest` frames, in order.

    Without `speech`, all that sounds; with it, all that sounds near possible speech. Each piece waits only
    for the speech that it needs; `check` is called meanwhile and may raise.
    """
    count = len(loudness.energy)
    done, held = 0, np.empty(0, np.intp)
    while done < count or len(held):
        while len(held) <= longest and done < count:
            final = count if speech is None else speech.wait_for(min(done + longest + REACH, count), check)
            last = count if final == count else final - REACH  # later frames may be near speech
            held = np.append(held, done + np.flatnonzero(_worth_recognizing(loudness, speech, done, last)))
            done = last
        longer = len(held) > longest
        end = _cut(held, loudness, 2 * longest // 3, longest, speech) if longer else len(held)
        if end and loudness.may_be_speech(piece := Piece(held[:end])):
            yield piece
        held = held[end:]


def gaps(speech: Speech, loudness: Loudness, words: Sequence[Word]) -> Iterator[Piece]:
    """Yield stretches of UNHEARD frames or more of likely speech without any of `words`."""
    spoken = speech.likely() & loudness.sounding
    for run in without_words(spoken, words):
        frames = np.arange(max(0, run[0] - NEAR), min(run[-1] + 1 + NEAR, len(spoken)))
        *first, last = _cut_up(frames, loudness, (2 * WINDOW // 3, WINDOW), speech)
        yield from first
        if loudness.may_be_speech(last):
            yield last


def without_words(spoken: Bool, words: Sequence[Word], first: int = 0) -> list[Int]:
    """Return runs of UNHEARD frames or more of `spoken`, which begins at `first`, far from all words."""
    left = spoken.copy()
    for word in words:
        start, end = int(word.start * FRAME_RATE) - NEAR, int(word.end * FRAME_RATE) + NEAR
        left[max(0, start - first) : max(0, end - first)] = False
    frames = first + np.flatnonzero(left)
    parts = np.split(frames, np.flatnonzero(np.diff(frames) > 2 * NEAR) + 1)
    return [part for part in parts if len(part) >= UNHEARD]


def _tones(frames: Float32) -> Bool:
    """(n, FRAME) samples -> (n,): the frames that are a tone."""
    power = np.abs(np.fft.rfft(frames * np.hanning(FRAME).astype(np.float32), axis=1)) ** 2
    power[:, :TONE_FROM] = 0
    whole = power.sum(axis=1)
    for _ in range(2):
        peak = power.argmax(axis=1)[:, None] + np.arange(-2, 3)  # as wide as the window makes it
        np.put_along_axis(power, np.clip(peak, 0, power.shape[1] - 1), 0, axis=1)
    tones: Bool = power.sum(axis=1) <= (1 - TONE_POWER) * whole
    return tones


def _worth_recognizing(loudness: Loudness, speech: Speech | None, first: int, last: int) -> Bool:
    """(last - first,): frames worth recognizing; depends on nothing that is REACH frames or more away."""
    around = slice(max(0, first - REACH), min(len(loudness.energy), last + REACH))
    worth = _widened(loudness.sounding[around], EDGE)
    if speech is not None:
        worth &= _widened(speech.possible(around.start, around.stop), MARGIN)
    return worth[first - around.start :][: last - first]


def _widened(mask: Bool, margin: int) -> Bool:
    """Set so many frames before and after each that is set."""
    wide: Bool = np.convolve(mask, np.ones(2 * margin + 1))[margin : margin + len(mask)] > 0.5
    return wide


def _boundaries(frames: Int, loudness: Loudness, speech: Speech | None) -> list[int]:
    """Return positions in `frames` at changes of the speaker and in the middle of pauses."""
    whole = slice(int(frames[0]), int(frames[-1]) + 1)
    quiet = ~loudness.sounding[whole]
    if speech is not None:
        quiet |= ~speech.likely(whole.start, whole.stop)
    edges = runs(quiet)
    pauses = edges[edges[:, 1] - edges[:, 0] >= PAUSE].mean(axis=1).astype(np.intp)
    changes = np.empty(0, np.intp) if speech is None else speech.changes(whole.start, whole.stop)
    boundaries: list[int] = []
    for boundary in np.searchsorted(frames, np.union1d(whole.start + pauses, changes)).tolist():
        last = boundaries[-1] if boundaries else 0
        if boundary - last >= BRIEF and len(frames) - boundary >= BRIEF:
            boundaries.append(boundary)
    return boundaries


def _cut_up(
    frames: Int, loudness: Loudness, limits: tuple[int, int], speech: Speech | None
) -> Iterator[Piece]:
    """Yield `frames` in pieces, cut between the `limits` while they are longer than the second."""
    while len(frames) > limits[1]:
        end = _cut(frames, loudness, *limits, speech)
        yield Piece(frames[:end])
        frames = frames[end:]
    yield Piece(frames)


def _cut(frames: Int, loudness: Loudness, first: int, last: int, speech: Speech | None = None) -> int:
    """Return a cut of `frames` between `first` and `last`: the last good pause, the longest, or the quietest.

    A window costs the same however full it is.
    """
    part = frames[first:last]
    # With the frames that were left out: a pause keeps its length.
    whole = slice(int(part[0]), int(part[-1]) + 1)
    silent = ~loudness.sounding[whole]
    if speech is not None:
        silent |= ~speech.possible(whole.start, whole.stop)
    starts, ends = runs(silent).T
    if len(starts):
        lengths = np.minimum(ends - starts, BREAK)
        best = len(lengths) - 1 - int(np.argmax(lengths[::-1]))
        middle = whole.start + (int(starts[best]) + int(ends[best])) // 2
        return first + int(np.searchsorted(part, middle))
    quiet = np.convolve(loudness.energy[part], np.ones(min(QUIET, len(part))), "valid")
    return first + int(quiet.argmin()) + QUIET // 2
