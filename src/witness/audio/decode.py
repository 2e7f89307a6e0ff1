"""A recording -> float32 at 16 kHz: all channels mixed into one track, or one track per channel.

The samples pass through memory into a temporary file (`spool`), for a recording may last a day. Why FFmpeg
alone decodes: docs/decisions/2026-11-22-constants.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt
import soxr

from witness.audio import ffmpeg, frames, mixing, source, spool
from witness.audio.mixing import Mixer
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
    channels: Literal["mix", "split", "call"] = "mix"
    """As `mixing.Mixed.layout`."""


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
    with opened(recording, part) as source_:
        return decoded(source_, channels, reporter)


@contextmanager
def opened(recording: Recording, part: Part = Part()) -> Iterator[Opened]:
    """Open a recording for `decoded`, and check that it has sound. Raises InputError."""
    if isinstance(recording, tuple):
        array, rate = recording
        samples = _Samples(np.asarray(array), rate, part)
        samples.check()
        yield samples
        return
    path = os.fspath(recording)
    name = display_name(path)
    with source.opened(path, name) as file:
        with ffmpeg.opened(file, name) as media:
            _ = media.stream
        yield _OpenFile(path, name, file, part)


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


@dataclass(frozen=True)
class _OpenFile:
    """A recording in an open file, or the copy of a pipe."""

    path: str
    name: str
    file: BinaryIO
    part: Part

    def decode(self, mixer: Mixer, reporter: Reporter) -> Audio:
        with ffmpeg.opened(self.file, self.name) as media:

            def tell() -> None:
                done = min(media.seconds, self.part.end)
                reporter.progress("decode", done, max(min(media.expected, self.part.end), done))

            samples = _spooled(_resampled(mixer.tracks(media.frames(self.part, tell)), self.name), tell)
            duration = media.duration()
            if duration:
                _check_start(self.part, duration, self.name)
            if not samples or not len(samples[0]):
                reason = "none of its sound can be decoded" if media.failed else "holds no sound (0 samples)"
                raise InputError(f"{self.name}: {reason}; fix: copy or export it again")
            origin = Source(self.path, duration, mixer.channels, sha256_of(self.file), self.part)
            return _audio(mixer.finished(samples), origin, media.warnings())


@dataclass(frozen=True)
class _Samples:
    """A recording in memory."""

    array: npt.NDArray[Any]
    rate: int
    part: Part
    name: str = SAMPLES

    def decode(self, mixer: Mixer, reporter: Reporter) -> Audio:
        duration = len(self.array) / self.rate
        _check_start(self.part, duration, self.name)
        array = self.array[slice(*ffmpeg.frames_of(self.part, 0.0, self.rate, len(self.array)))]
        done, total = 0.0, len(array) / self.rate

        def blocks() -> Iterator[tuple[int, Float32]]:
            nonlocal done
            for start in range(0, len(array), frames.BLOCK):
                block = array[start : start + frames.BLOCK]
                done = (start + len(block)) / self.rate
                yield self.rate, _full_scale(block)

        samples = _spooled(
            _resampled(mixer.tracks(blocks()), self.name),
            lambda: reporter.progress("decode", done, total),
        )
        if not samples or not len(samples[0]):
            raise InputError(f"{self.name}: less than one sample at 16 kHz; fix: give more of the recording")
        origin = Source(self.name, duration, mixer.channels, sha256(self.array.tobytes()), self.part)
        return _audio(mixer.finished(samples), origin)

    def check(self) -> None:
        """Raise InputError if this cannot be a recording."""
        array = self.array
        transposed = array.ndim == 2 and array.shape[0] < array.shape[1]
        if array.dtype.kind not in "fi" or array.ndim not in (1, 2) or not array.size or transposed:
            raise InputError(
                f"{self.name}: an array of {array.dtype} of shape {array.shape} is not a recording; fix: "
                "give floats within [-1, 1] or signed integers, of shape (samples,) or (samples, channels)"
            )
        _check_rate(self.rate, self.name)


Opened = _OpenFile | _Samples
"""An open recording."""


def decoded(recording: Opened, channels: Channels, reporter: Reporter) -> Audio:
    """As `load`."""
    return recording.decode(Mixer(recording.name, channels, start=recording.part.start), reporter)


def _audio(mixed: mixing.Mixed, origin: Source, warnings: Iterable[str] = ()) -> Audio:
    """Combine the tracks and the recording; its part may be longer than the tracks."""
    seconds = len(mixed.tracks[0]) / SAMPLE_RATE
    start = origin.transcribed.start
    if origin.part == Part():
        origin = replace(origin, duration=seconds, part=None)
    else:
        part = Part(start, start + seconds)
        origin = replace(origin, duration=max(origin.duration, part.end), part=part)
    return Audio(mixed.tracks, origin, (*mixed.warnings, *warnings), mixed.layout)


def _check_start(part: Part, duration: float, name: str) -> None:
    if part.start >= duration:
        raise InputError(
            f"{name}: lasts {clock(duration, 1)} and has nothing from {clock(part.start, 1)} on; "
            "fix: choose an earlier start (--from)"
        )


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
