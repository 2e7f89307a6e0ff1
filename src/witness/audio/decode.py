"""A recording -> float32 at 16 kHz: all channels mixed into one track, or one track per channel.

The samples pass through memory into a temporary file (`spool`), for a recording may last a day. Why FFmpeg
alone decodes: docs/decisions/2026-11-22-constants.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import soxr

from witness.audio import ffmpeg, frames, source, spool
from witness.audio.mixing import Layout, Mixer
from witness.errors import InputError
from witness.options import Channels, Part
from witness.progress import SILENT, Reporter
from witness.schema import SAMPLE_RATE, Float32, Source, display_name
from witness.storage.files import sha256, sha256_of
from witness.text import clock, printable

SAMPLES = "<samples>"
"""Name of a recording that is an array of samples, in `Source.path` and messages."""

OLDEST = 315_532_800.0
"""Seconds from 1970 to 1980: a clock that says less was never set."""
_RATES = (1_000, 1_000_000)
"""Samples per second. Beyond these a header is wrong, and the resampler's filter takes gigabytes."""

Recording = str | os.PathLike[str] | tuple[npt.NDArray[Any], int]
"""A path ("-" is standard input); or samples, (samples,) or (samples, channels), and their rate in Hz."""


@dataclass(frozen=True)
class Audio:
    """A decoded recording."""

    samples: tuple[spool.Spool, ...]
    """One per track, all of the same length, nominally within [-1, 1]; read them in pieces."""
    source: Source
    """Its duration is that of `samples`: the decoded sound, and silence for gaps between time stamps."""
    warnings: tuple[str, ...]
    """One line each with the file's name, about lost or damaged parts and corrections."""
    channels: Layout = "mix"


def load(
    recording: Recording,
    *,
    channels: Channels = Channels.MIX,
    part: Part = Part(),
    reporter: Reporter = SILENT,
) -> Audio:
    """Decode a file of any format, sample rate and number of channels ("-" is standard input), or samples.

    `mix` averages the channels into one track, `split` makes a track of each, `auto` splits the two sides of
    a call, with a warning, and mixes everything else. Samples are floats within [-1, 1] or signed integers
    that use the range of their type. Progress is ("decode", seconds, total); the total is a guess in formats
    that do not state it. The rest of a damaged or cut file is used, with a warning. The
    same bytes always give the same samples; a `part` has those of a file that was cut there.

    Raises InputError if the file cannot be opened, nothing in it can be decoded, its samples are not those of
    a recording, or it ends before the part begins; OutputError if there is no room for the decoded sound.
    """
    with opened(recording, part) as open_recording:
        return decoded(open_recording, channels, reporter)


@contextmanager
def opened(recording: Recording, part: Part = Part()) -> Iterator[Opened]:
    """Open a recording for `decoded`, and check that it has sound. Raises InputError."""
    if isinstance(recording, tuple):
        array = _Array(np.asarray(recording[0]), recording[1])
        array.check()
        yield Opened(SAMPLES, part, array, lambda: sha256(array.samples.tobytes()))
        return
    path = os.fspath(recording)
    name = display_name(path)
    with source.opened(path, name) as file, ffmpeg.opened(file, name) as media:
        _ = media.stream
        yield Opened(path, part, media, partial(sha256_of, file))


def blocks(path: str, part: Part = Part()) -> Iterator[Float32]:
    """Yield the mixed samples of `load` as (n,) pieces, with their original level. Raises InputError."""
    name = printable(path)
    with source.opened(path, name) as file, ffmpeg.opened(file, name) as media:
        for block in _resampled(Mixer(name, Channels.MIX).tracks(media.frames(part)), name):
            yield block[:, 0]


def about(path: str) -> tuple[str, str | None]:
    """Return the sha256 of the file, and its date according to its tags. Raises InputError."""
    name = printable(path)
    with source.opened(path, name) as file, ffmpeg.opened(file, name) as media:
        return sha256_of(file), media.tags.get("creation_time") or media.tags.get("date") or None


def recorded(path: str) -> float | None:
    """Return the time of a recording, in seconds since 1970, according to its tags; None: not stated.

    A time without a zone is local. Raises InputError.
    """
    name = printable(path)
    with source.opened(path, name) as file, ffmpeg.opened(file, name) as media:
        tags = media.tags
    day, at = tags.get("date", ""), tags.get("creation_time", "")
    # A broadcast WAV has the day in one tag and the time in the other.
    for text in (f"{day}T{at}" if ":" in at and "-" not in at else at, day):
        with suppress(ValueError, OverflowError, OSError):
            made = datetime.fromisoformat(text.strip().replace("Z", "+00:00")).timestamp()
            if OLDEST < made < time.time() + 86400:
                return made
    return None


@dataclass
class _Array:
    """A recording in memory, read as `ffmpeg.Media` is."""

    samples: npt.NDArray[Any]
    rate: int
    name: str = SAMPLES
    seconds: float = 0.0
    """End of the part that was read."""
    no_sound: str = "less than one sample at 16 kHz; fix: give more of the recording"

    @property
    def expected(self) -> float:
        return len(self.samples) / self.rate

    def frames(self, part: Part, _waiting: Callable[[], None]) -> Iterator[tuple[int, Float32]]:
        first, last = ffmpeg.frames_of(part, 0.0, self.rate, len(self.samples))
        for start in range(first, last, frames.BLOCK):
            end = min(start + frames.BLOCK, last)
            self.seconds = end / self.rate
            yield self.rate, _full_scale(self.samples[start:end])

    def duration(self) -> float:
        return self.expected

    def warnings(self) -> Iterable[str]:
        return ()

    def check(self) -> None:
        """Raise InputError if this cannot be a recording."""
        array = self.samples
        transposed = array.ndim == 2 and array.shape[0] < array.shape[1]
        if array.dtype.kind not in "fi" or array.ndim not in (1, 2) or not array.size or transposed:
            raise InputError(
                f"{self.name}: an array of {array.dtype} of shape {array.shape} is not a recording; fix: "
                "give floats within [-1, 1] or signed integers, of shape (samples,) or (samples, channels)"
            )
        _check_rate(self.rate, self.name)


@dataclass(frozen=True)
class Opened:
    """An open recording."""

    path: str
    part: Part
    media: ffmpeg.Media | _Array
    sha256: Callable[[], str]


def decoded(recording: Opened, channels: Channels, reporter: Reporter) -> Audio:
    """As `load`."""
    media, part = recording.media, recording.part
    mixer = Mixer(media.name, channels, start=part.start)

    def tell() -> None:
        done = min(media.seconds, part.end)
        reporter.progress("decode", done, max(min(media.expected, part.end), done))

    samples = _spooled(_resampled(mixer.tracks(media.frames(part, tell)), media.name), tell)
    duration = media.duration()
    if duration and part.start >= duration:
        raise InputError(
            f"{media.name}: lasts {clock(duration, 1)} and has nothing from {clock(part.start, 1)} on; "
            "fix: choose an earlier start (--from)"
        )
    if not samples or not len(samples[0]):
        raise InputError(f"{media.name}: {media.no_sound}")
    tracks, layout, corrections = mixer.finished(samples)
    end = part.start + len(tracks[0]) / SAMPLE_RATE
    taken = None if part == Part() else Part(part.start, end)
    seconds = max(duration, end) if taken else end
    origin = Source(recording.path, seconds, mixer.channels, recording.sha256(), taken)
    return Audio(tracks, origin, (*corrections, *media.warnings()), layout)


def _full_scale(part: npt.NDArray[Any]) -> Float32:
    """(n,) or (n, channels) floats or integers -> (n, channels) with full scale 1."""
    scale = 1.0 if part.dtype.kind == "f" else float(np.iinfo(part.dtype).max) + 1.0
    with np.errstate(over="ignore"):  # `Mixer` refuses infinite samples with their time
        floats: Float32 = (part / scale).astype(np.float32)
    return floats.reshape(len(part), -1)


def _check_rate(rate: float, name: str) -> None:
    if not _RATES[0] <= rate <= _RATES[1]:
        raise InputError(f"{name}: states {rate} samples per second; fix: export it again at 16000")


def _resampled(blocks: Iterator[tuple[int, Float32]], name: str) -> Iterator[Float32]:
    """(samples, tracks) at SAMPLE_RATE; soxr's stream gives the same bytes however its input is cut up."""
    rate, resampler = 0, None
    for block_rate, block in blocks:
        if block_rate != rate:
            if resampler is not None:
                yield resampler.resample_chunk(block[:0], last=True)
            _check_rate(block_rate, name)
            rate, shape = block_rate, (block_rate, SAMPLE_RATE, block.shape[1])
            resampler = soxr.ResampleStream(*shape, dtype="float32") if rate != SAMPLE_RATE else None
        yield block if resampler is None else resampler.resample_chunk(block)
    if resampler is not None:
        yield resampler.resample_chunk(block[:0], last=True)


def _spooled(parts: Iterator[Float32], tell: Callable[[], None]) -> tuple[spool.Spool, ...]:
    """(n, tracks) parts -> a spool per track; `tell` is called after each part. Without parts, empty."""
    tracks: tuple[spool.Spool, ...] = ()
    for part in parts:
        tracks = tracks or tuple(spool.Spool() for _ in range(part.shape[1]))
        for track, samples in zip(tracks, part.T, strict=True):
            track.append(samples)
        tell()
    return tracks
