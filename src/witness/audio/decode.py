"""Any media file -> float32 at 16 kHz: all channels mixed into one track, or one track per channel.

The samples go through memory into a temporary file (`spool`), for a recording may last a day.

FFmpeg, inside PyAV, decodes everything. libsndfile was measured beside it and left out: it is no faster on
WAV and FLAC, loses up to a block at the end of a cut FLAC, reads only the first part of a chained Ogg, in
silence, and its MP3 part prints on stderr. The length of this file is due to recordings that were cut short:
FFmpeg decodes what is there, but for most formats does not say that something is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Literal

import av
import av.container
import numpy as np
import numpy.typing as npt
import soxr

from witness.audio import headers, source, spool, stereo
from witness.errors import InputError
from witness.files import sha256, sha256_of
from witness.options import Channels
from witness.reporter import SILENT, Reporter
from witness.schema import SAMPLE_RATE, Float32, Source
from witness.text import clock, printable

_BLOCK = 1 << 16
"""Source frames mixed and resampled at a time: Python's share is small then, and memory 0.25 MB a channel."""

_SLACK = 0.1
"""Seconds that a header may promise in excess; that of a whole MP3, M4A or WebM file is 0.01 at most."""

_JUMP = 0.25
"""Seconds between time stamps that are a gap: the priming of AAC (two frames) at 8 kHz is not."""

_GAPS = 3600.0
"""Seconds. When gaps between time stamps come to more, the stamps are broken: no recorder paused so long."""

_NOT_SOUND = 8.0
"""Peak, 18 dB over full scale, that no encoder was given: a decoder was fed damaged bytes."""

_INTEGERS_ABOVE = 32.0
"""Peak that no gain explains (30 dB over full scale); 16-bit sound that quiet holds no speech anyway."""

_LARGEST = 2.0**32
"""Peak beyond which samples are not even integers of 32 bits."""

_CANCELLED = 1e-3
"""Power of the mix over that of the channels: 1 / channels if they are unrelated, near 0 if opposite."""

_RATES = (1_000, 1_000_000)
"""Samples per second. Beyond these a header is wrong, and the resampler's filter takes gigabytes."""


# Tags that are not UTF-8 are no reason to refuse the sound. PyAV 19 no longer has to be told.
_TAGS_IN_ANY_ENCODING: dict[str, Any] = (
    {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
)


Recording = str | os.PathLike[str] | tuple[npt.NDArray[Any], int]
"""A path ("-" is standard input), or samples and how many of them make a second."""


@dataclass(frozen=True)
class Audio:
    """A decoded recording."""

    samples: tuple[spool.Spool, ...]
    """One a track, of one length, nominally within [-1, 1]; to be read in pieces, for they may be days."""
    source: Source
    """Its duration is that of `samples`: what was decoded, and silence for gaps between the time stamps."""
    warnings: tuple[str, ...]
    """One line each, naming the file: what is missing or damaged, what was corrected."""
    channels: Literal["mix", "split", "call"] = "mix"
    """What the tracks are; "call": the two sides of one, each without the other's voice."""


@dataclass
class _Findings:
    """What decoding notices on its way; times in seconds."""

    seconds: float = 0.0
    failed: bool = False  # the latest piece could not be decoded
    damaged: list[float] = field(default_factory=list)  # where pieces failed and later ones did not
    gaps: list[float] = field(default_factory=list)  # where silence was put
    silent: float = 0.0  # of it, in all
    channels: int = 0
    peak: float = 0.0
    channel_power: float = 0.0
    mixed_power: float = 0.0
    levels: stereo.Levels | None = None  # of two channels that may be the sides of a call


def load(recording: Recording, *, channels: Channels = Channels.MIX, reporter: Reporter = SILENT) -> Audio:
    """Decode a file of any format, sample rate and number of channels ("-" is standard input), or samples.

    `mix` averages the channels into one track, `split` makes each a track; `auto` does so with the two sides
    of a call, and says it in a warning, and mixes all others. Reports ("decode", seconds, seconds in all),
    the latter being a guess in formats that do not state it. Of a file that is damaged or cut short, what is
    there is used, with a warning. The same bytes always give the same samples.

    Raises InputError if the file cannot be opened, nothing in it can be decoded, or its samples are nonsense.
    """
    if isinstance(recording, tuple):
        array, rate = recording
        return _as_asked(_Samples(array, rate), channels, reporter)
    path = os.fspath(recording)
    name = "standard input" if path == "-" else printable(path)
    with source.opened(path, name) as file:
        return _as_asked(_File(path, name, file), channels, reporter)


def _as_asked(origin: _File | _Samples, channels: Channels, reporter: Reporter) -> Audio:
    if channels != Channels.AUTO:
        return origin.decode("split" if channels == Channels.SPLIT else "mix", _Findings(), reporter)
    found = _Findings(levels=stereo.Levels())
    mixed = origin.decode("mix", found, reporter)
    if found.channels != 2 or found.levels is None or not stereo.is_call(found.levels.powers):
        return mixed
    del mixed
    call = origin.decode("split", _Findings(), reporter)
    stereo.silence_bleed(call.samples)
    line = (
        f"{origin.name}: its channels are the two sides of a call, each taken by itself; "
        "--channels mix undoes it"
    )
    return replace(call, channels="call", warnings=(line, *call.warnings))


@dataclass(frozen=True)
class _Samples:
    """A recording that is in memory already."""

    array: npt.NDArray[Any]
    """(samples,) or (samples, channels), floats or integers of full scale."""
    rate: int
    name: str = "<samples>"

    def decode(self, channels: Literal["mix", "split"], found: _Findings, reporter: Reporter) -> Audio:
        array = np.asarray(self.array)
        if array.ndim not in (1, 2) or array.dtype.kind not in "fi" or not array.size:
            raise InputError(
                f"{self.name}: {list(array.shape)} of {array.dtype} is not a recording; "
                "give floats within [-1, 1], or integers, shaped (samples,) or (samples, channels)"
            )
        scale = 1.0 if array.dtype.kind == "f" else float(np.iinfo(array.dtype).max) + 1.0
        frames = (array / scale).astype(np.float32).reshape(len(array), -1)
        pieces = ((self.rate, frames[start : start + _BLOCK]) for start in range(0, len(frames), _BLOCK))
        parts = _resampled(_tracks(pieces, channels, found, self.name), self.name)
        total = len(frames) / self.rate
        samples = _collected(parts, lambda: reporter.progress("decode", total, total))
        digest = sha256(np.ascontiguousarray(array).tobytes())
        origin = Source(self.name, len(samples[0]) / SAMPLE_RATE, found.channels, digest)
        return Audio(samples, origin, tuple(_level(samples, found, self.name)), channels)


def blocks(path: str) -> Iterator[Float32]:
    """The samples that `load` mixes, at the level of the file and in pieces, so that memory stays small.

    Raises InputError.
    """
    name = printable(path)
    with source.opened(path, name) as file, _container(file, name) as container:
        stream = _sound_track(container, name)
        found = _Findings()
        for part in _resampled(_tracks(_frames(container, stream, found), "mix", found, name), name):
            yield part[:, 0]


def about(path: str) -> tuple[str, str | None]:
    """The sha256 of the file, and when it was recorded as its tags have it. Raises InputError."""
    name = printable(path)
    with source.opened(path, name) as file, _container(file, name) as container:
        tags = {key.lower(): value for key, value in container.metadata.items()}
        for stream in container.streams.audio:
            tags |= {key.lower(): value for key, value in stream.metadata.items()}
        return sha256_of(file), tags.get("creation_time") or tags.get("date") or None


@dataclass(frozen=True)
class _File:
    """A recording in a file, or what came through a pipe."""

    path: str
    name: str
    file: BinaryIO

    def decode(self, channels: Literal["mix", "split"], found: _Findings, reporter: Reporter) -> Audio:
        file, name = self.file, self.name
        file.seek(0)
        with _container(file, name) as container:
            stream = _sound_track(container, name)
            stated = container.duration / av.time_base if container.duration else 0.0
            parts = _resampled(_tracks(_frames(container, stream, found), channels, found, name), name)
            samples = _collected(
                parts, lambda: reporter.progress("decode", found.seconds, max(stated, found.seconds))
            )
            if not samples or not len(samples[0]):
                trouble = (
                    "none of its sound can be decoded" if found.failed else "it holds no sound (0 samples)"
                )
                raise InputError(f"{name}: {trouble}; copy or export it again")
            warnings = (*_level(samples, found, name), *_gone(file, container, stream, found, name))
            origin = Source(self.path, len(samples[0]) / SAMPLE_RATE, found.channels, sha256_of(file))
        return Audio(samples, origin, warnings, channels)


def _sound_track(container: av.container.InputContainer, name: str) -> av.AudioStream:
    stream = container.streams.best("audio")
    if not isinstance(stream, av.AudioStream) or stream.codec_context is None:
        raise InputError(f"{name} has no sound track that FFmpeg can decode; choose a file with sound")
    return stream


class _Patient:
    """A file that does not raise where a damaged header seeks to nowhere.

    FFmpeg goes on after such an error, and PyAV, which can hold one exception only, prints the second.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.name = getattr(file, "name", "<none>")
        self.read, self.tell, self.seekable = file.read, file.tell, file.seekable

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """The new place; -1 if there is none such."""
        try:
            return self._file.seek(offset, whence)
        except (OSError, ValueError, OverflowError):
            return -1


def _container(file: BinaryIO, name: str) -> av.container.InputContainer:
    try:
        # No protocols: a playlist that poses as a recording must not open other files, let alone sockets.
        options = {"protocol_whitelist": ""}
        container: av.container.InputContainer = av.open(
            _Patient(file), "r", options=options, buffer_size=1 << 18, **_TAGS_IN_ANY_ENCODING
        )
        return container
    except (av.FFmpegError, OSError, ValueError) as error:
        file.seek(4)
        reason = (
            "is cut short: the index that an MP4 file needs (its moov atom) is missing or damaged"
            if file.read(4) == b"ftyp"
            else "is in no format that FFmpeg reads, or damaged at its beginning"
        )
        raise InputError(f"{name} {reason}; copy it again, or export it as WAV or FLAC") from error


def _frames(
    container: av.container.InputContainer, stream: av.AudioStream, found: _Findings
) -> Iterator[tuple[int, Float32]]:
    """(rate, (frames, channels)) as decoded, with silence where the time stamps leave a gap.

    Browsers, phones and damage leave gaps; without the silence every later time would be too early.
    """
    origin = container.start_time / av.time_base if container.start_time is not None else None
    end = container.duration / av.time_base if container.duration else float("inf")
    exact = stream.codec_context.name.startswith(("pcm_", "wavpack"))  # floats as written, of any range
    converters: dict[tuple[str, str, int], av.AudioResampler] = {}
    packets = container.demux(stream)
    while True:
        try:
            if (packet := next(packets, None)) is None:  # as it is after an error of its own
                return
            blocks = [(frame, _floats(frame, converters)) for frame in packet.decode()]
        except (av.FFmpegError, OSError, IndexError, ValueError):  # PyAV's own checks raise the last two
            found.failed = True
            continue
        for frame, block in blocks:
            if not (exact or np.abs(block).max(initial=0.0) < _NOT_SOUND):  # not-a-number is not less
                block[:] = 0
                found.failed = True
            if found.failed:
                found.failed = False
                found.damaged.append(found.seconds)
            if frame.time is not None:
                origin = frame.time if origin is None else origin
                gap = frame.time - origin - found.seconds
                if _JUMP < gap < _GAPS - found.silent and found.seconds + gap < end:
                    found.gaps.append(found.seconds)
                    found.silent += gap
                    silent = round(gap * frame.sample_rate)
                    for start in range(0, silent, _BLOCK):
                        shape = (min(_BLOCK, silent - start), block.shape[1])
                        yield frame.sample_rate, np.zeros(shape, np.float32)
                    found.seconds += gap
                elif abs(gap) > _JUMP:  # a clock that was set, or the next part of a chained Ogg
                    origin += gap
            found.seconds += len(block) / frame.sample_rate
            yield frame.sample_rate, block


def _floats(frame: av.AudioFrame, converters: dict[tuple[str, str, int], av.AudioResampler]) -> Float32:
    """(frames, channels), full scale 1; floats keep whatever range they have."""
    # Through a filter, since PyAV 18 reads past the end of a planar frame of 8 channels and crashes. A filter
    # takes frames of one kind only, and kinds may change on the way.
    kind = (frame.format.name, frame.layout.name, frame.sample_rate)
    if kind not in converters:
        converters[kind] = av.AudioResampler("flt")
    pieces = [piece.to_ndarray() for piece in converters[kind].resample(frame)]
    floats: Float32 = np.concatenate(pieces, axis=1, dtype=np.float32)
    return floats.reshape(-1, frame.layout.nb_channels)


def _gathered(frames: Iterator[tuple[int, Float32]]) -> Iterator[tuple[int, Float32]]:
    """The same in blocks of at least _BLOCK frames, if neither the rate nor the channels change."""
    held: list[Float32] = []
    held_rate = 0
    for rate, block in frames:
        full = sum(map(len, held)) >= _BLOCK
        if held and (full or rate != held_rate or block.shape[1] != held[0].shape[1]):
            yield held_rate, np.concatenate(held)
            held = []
        held.append(block)
        held_rate = rate
    if held:
        yield held_rate, np.concatenate(held)


def _tracks(
    frames: Iterator[tuple[int, Float32]], channels: str, found: _Findings, name: str
) -> Iterator[tuple[int, Float32]]:
    """(rate, (frames, tracks)): checked, and mixed if asked for."""
    done = 0.0
    for rate, block in _gathered(frames):
        n_frames, n_channels = block.shape
        peak = float(np.abs(block).max())
        if not peak <= _LARGEST:  # nor is not-a-number
            row = int(np.argmin(np.abs(block).max(axis=1) <= _LARGEST))
            at, value = clock(done + row / rate, 1), np.abs(block[row]).max()
            raise InputError(
                f"{name}: a sample at {at} is {value:.3g}, by a fault of the program that wrote it; "
                "export it again as 16-bit WAV or FLAC"
            )
        found.peak = max(found.peak, peak)
        found.channels = found.channels or n_channels
        if channels == "split" and n_channels != found.channels:
            change = f"from {found.channels} to {n_channels} channels at {clock(done, 1)}"
            raise InputError(f"{name} changes {change}; use --channels mix")
        if found.levels is not None and n_channels == 2:
            found.levels.add(rate, block)
        if channels == "mix" and n_channels > 1:
            # One by one: the order in which numpy's own sum adds may depend on the shape of the block.
            mixed = block[:, :1].copy()
            for channel in range(1, n_channels):
                mixed += block[:, channel : channel + 1]
            mixed /= n_channels
            found.channel_power += float(np.vdot(block, block)) / n_channels
            found.mixed_power += float(np.vdot(mixed, mixed))
            block = mixed
        done += n_frames / rate
        yield rate, block


def _resampled(blocks: Iterator[tuple[int, Float32]], name: str) -> Iterator[Float32]:
    """(samples, tracks) at SAMPLE_RATE; soxr's stream gives the same bytes however its input is cut up."""
    rate, resampler = 0, None
    for block_rate, block in blocks:
        if block_rate != rate:
            if resampler is not None:
                yield resampler.resample_chunk(block[:0], last=True)
            if not _RATES[0] <= block_rate <= _RATES[1]:
                raise InputError(f"{name} states {block_rate} samples per second; export it again at 16000")
            rate, shape = block_rate, (block_rate, SAMPLE_RATE, block.shape[1])
            resampler = soxr.ResampleStream(*shape, dtype="float32") if rate != SAMPLE_RATE else None
        yield block if resampler is None else resampler.resample_chunk(block)
    if resampler is not None:
        yield resampler.resample_chunk(block[:0], last=True)


def _collected(parts: Iterator[Float32], tell: Callable[[], None]) -> tuple[spool.Spool, ...]:
    """A track each from pieces of (samples, tracks)."""
    tracks: tuple[spool.Spool, ...] = ()
    for part in parts:
        tracks = tracks or tuple(spool.Spool() for _ in range(part.shape[1]))
        for track, samples in zip(tracks, part.T, strict=True):
            track.append(samples)
        tell()
    return tracks


def _level(tracks: Sequence[spool.Spool], found: _Findings, name: str) -> Iterator[str]:
    """Bring integers stored as floats to full scale 1, in place, and say so; tell of channels that cancel."""
    if found.peak > _INTEGERS_ABOVE:
        bits = next(bits for bits in (16, 24, 32) if found.peak <= 2.0**bits)  # twice full scale, for overs
        for track in tracks:
            for start, samples in spool.pieces(track):
                track[start : start + len(samples)] = samples / np.float32(2.0 ** (bits - 1))
        yield (
            f"{name}: its samples reach {found.peak:.0f} where full scale is 1; taken for {bits}-bit "
            "integers stored as floats, they were scaled down"
        )
    if found.mixed_power < _CANCELLED * found.channel_power:
        yield f"{name}: its channels cancel each other when mixed; use --channels split"


def _gone(
    file: BinaryIO,
    container: av.container.InputContainer,
    stream: av.AudioStream,
    found: _Findings,
    name: str,
) -> Iterator[str]:
    """What of the recording was not used: other tracks, a lost end, damage, gaps."""
    tracks = container.streams.audio
    if len(tracks) > 1:
        yield (
            f"{name} has {len(tracks)} sound tracks; only number {tracks.index(stream) + 1} was used; "
            "export the others to files of their own"
        )
    promised = headers.promised_seconds(file, container, stream, found.seconds)
    held = clock(found.seconds, 1)
    if promised is not None and promised > found.seconds + _SLACK:
        header = f"the header promises {clock(promised, 1)}, the file holds {held}"
        yield f"{name} ends early: {header}; only what is there was used"
    elif found.failed or (container.format.name == "ogg" and headers.ends_within_page(file)):
        yield f"{name} ends early, within a piece of sound, at {held}; only what is there was used"
    if found.damaged:
        places = f"{len(found.damaged)} place{'s' if len(found.damaged) > 1 else ''}"
        yield f"{name} is damaged in {places}, first at {clock(found.damaged[0], 1)}; the rest was used"
    if found.gaps:
        lost = f"{found.silent:.1f} s, first at {clock(found.gaps[0], 1)}"
        yield f"{name} lacks sound for {lost}; silence stands there, so that times agree with a player's"
