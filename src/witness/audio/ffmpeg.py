"""An open file -> the sound that FFmpeg decodes of it, and warnings about lost parts.

FFmpeg, inside PyAV, decodes all that is left of a file, but for most formats does not report a loss, so the
header's promise is compared with the result.
"""

from __future__ import annotations

import contextlib
import math
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, BinaryIO, cast

import av
import av.container
import numpy as np

from witness.audio import frames
from witness.audio.frames import Series, Unpacker
from witness.errors import InputError
from witness.options import Part
from witness.schema import SAMPLE_RATE, Float32
from witness.text import clock

CONTAINERS = """
aa aac ac3 act aea aiff amr amrnb amrwb ape aptx aptx_hd asf asf_o au avi avr caf codec2 dhav dsf dss dts
dtshd dv eac3 flac flv g722 g723_1 g726 g726le g729 gsm gxf iff ircam latm lc3 loas matroska mlp mov mp3 mpc
mpc8 mpeg mpegts mpegtsraw mxf nistsphere nsv nut ogg oma pva qcp rm sbc shn sln sox tak truehd tta voc w64
wav wsd wtv wv xwma
"""
"""FFmpeg's names of formats whose bytes hold the sound. Others make sound of text (SBaGen), name other files
(playlists, image sequences) or belong to games."""

_FREE = 3600.0
"""Seconds of sound that a file may hold whatever its size."""

_LEAST = 16
"""Bytes for each second beyond those. Silence in FLAC at 8 kHz takes 23 or more, speech at least 85."""

_SLACK = 0.1
"""Seconds that a header may promise in excess; that of a whole MP3, M4A or WebM file does so by 0.01."""

_JUMP = 0.25
"""Seconds between time stamps that are a gap; the priming of AAC at 8 kHz (two frames) is shorter."""

_GAPS = 3600.0
"""Seconds of gaps beyond which the time stamps are broken: no recorder paused that long."""

_NOT_SOUND = 8.0
"""Peak, 18 dB over full scale, that no encoder was given: a decoder was fed damaged bytes."""

_TIE = 1e-3
"""Samples before a part that still belong to it: times are sums of many numbers."""

_LARGEST_PACKET = 64 << 20
"""Bytes that FFmpeg may read for a packet. It keeps them in memory, and in zeros it never finds the end."""

_SEEK = 4096
"""Bytes that a seek counts for: in zeros, each 8 bytes are an empty chunk of a WAV file to skip."""

_LARGEST_INDEX = 512 << 20
"""Bytes that it may read to open an MP4 file; the index of a video of a day has about 100 MB."""

_LARGEST_PAGE = 65_307
"""Bytes of the largest Ogg page (RFC 3533)."""

_PAGE_HEADER = 27
"""Bytes of an Ogg page before its table of segment sizes; the last byte is the length of the table."""

_UNDECODABLE = av.FFmpegError, OSError, IndexError, ValueError
"""Errors of PyAV for damage; the last two come from its own checks."""

# A tag that is not UTF-8 must not make the sound unreadable. From PyAV 19 on it does not.
_TAGS_IN_ANY_ENCODING: dict[str, Any] = (
    {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
)


@dataclass
class Media:
    """A file that FFmpeg has opened, and the findings of decoding so far. Times are in seconds."""

    file: BinaryIO
    name: str
    container: av.container.InputContainer
    size: int
    """Bytes of the file."""
    reader: _Reader
    """FFmpeg's view of the file."""
    seconds: float = 0.0
    """End of the decoded part of the recording; silence in gaps counts."""
    whole: bool = True
    """False: the end of the part was reached before that of the recording."""
    failed: bool = False
    """The latest packet could not be decoded."""
    damaged: set[float] = field(default_factory=set)
    """Times of packets that could not be decoded, before others that could."""
    gaps: list[float] = field(default_factory=list)
    """Times of inserted silence."""
    silence: float = 0.0
    """Seconds of silence in all gaps."""
    _filled: float = 0.0
    """Seconds of all gaps, with those before the part."""
    _origin: float | None = None
    """Time stamp of the recording's beginning; None: not seen yet."""
    _packets: Iterator[av.Packet[av.AudioStream]] = field(default_factory=lambda: iter(()))
    """Packets not decoded yet."""

    @cached_property
    def stream(self) -> av.AudioStream:
        """The sound track to decode. Raises InputError."""
        stream = self.container.streams.best("audio")
        if not isinstance(stream, av.AudioStream) or stream.codec_context is None:
            raise InputError(
                f"{self.name}: has no sound track that FFmpeg can decode; fix: choose a file with sound"
            )
        return stream

    @property
    def no_sound(self) -> str:
        """The fault of a file without samples."""
        fault = "none of its sound can be decoded" if self.failed else "holds no sound (0 samples)"
        return f"{fault}; fix: copy or export it again"

    @property
    def stated(self) -> float:
        """Seconds of the recording; a guess in formats that do not state it, or 0."""
        return self.container.duration / av.time_base if self.container.duration else 0.0

    @property
    def expected(self) -> float:
        """Seconds of the recording: as stated or, beyond that, by how much of the file was read."""
        position = self.file.tell()
        if self.seconds < self.stated or not position:
            return self.stated
        return self.seconds * max(1.0, self.size / position)

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the file and its sound tracks, by key in lower case."""
        tags = {key.lower(): value for key, value in self.container.metadata.items()}
        for stream in self.container.streams.audio:
            tags |= {key.lower(): value for key, value in stream.metadata.items()}
        return tags

    def frames(
        self, part: Part = Part(), waiting: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[int, Float32]]:
        """Yield (rate, (frames, channels)) of `part`, with silence in gaps between time stamps; call once.

        Browsers, phones and damage leave gaps; without the silence every later time would be too early. It
        comes at SAMPLE_RATE, because resampling it from a high rate would take minutes. `waiting` is called
        for each minute before the part.

        Raises InputError if there is more sound than the bytes of the file can hold.
        """
        for begin, rate, block in self._blocks(part, waiting):
            first, last = frames_of(part, begin, rate, len(block))
            if first < last:
                yield rate, block[first:last]

    def _blocks(self, part: Part, waiting: Callable[[], None]) -> Iterator[tuple[float, int, Float32]]:
        """Yield the start, rate and frames of each block that touches `part`, and maybe more."""
        # These decoders keep floats of any range.
        exact = self.stream.codec_context.name.startswith(("pcm_", "wavpack"))
        unpack, series = Unpacker(), Series()
        self._origin = self.container.start_time and self.container.start_time / av.time_base
        self._packets = self._from(part.start)
        reported, limit = self.seconds, _FREE + self.size / _LEAST
        while self.seconds < part.end:
            try:
                if (packet := next(self._packets, None)) is None:  # also after an error of the demuxer
                    yield from self._joined(series, exact)
                    return
                decoded = packet.decode()
            except _UNDECODABLE:
                self.failed = True
                continue
            if self.seconds > limit:
                raise InputError(
                    f"{self.name}: claims more than {clock(limit)} of sound, which its size cannot hold; "
                    "fix: export it again as WAV or FLAC"
                )
            for frame in decoded:
                rate, gap = frame.sample_rate, self._gap(frame.time)
                lasts = frame.samples / rate
                if self.seconds + gap + lasts <= part.start:
                    self.failed = False
                    self._filled += gap
                    self.seconds += gap + lasts
                    if self.seconds - reported > 60:
                        reported = self.seconds
                        waiting()
                    continue
                try:
                    piece = unpack(frame)
                except _UNDECODABLE:
                    self.failed = True
                    continue
                if gap or not series.takes(piece):
                    yield from self._joined(series, exact)
                    series = Series()
                if self.failed:
                    self.failed = False
                    self.damaged.add(self.seconds)
                if gap:
                    yield from self._silence(gap, piece.channels)
                series.add(piece, self.seconds)
                self.seconds += lasts
        yield from self._joined(series, exact)
        self.whole = False

    def _silence(self, gap: float, channels: int) -> Iterator[tuple[float, int, Float32]]:
        self.gaps.append(self.seconds)
        self.silence += gap
        self._filled += gap
        # In samples of the result, so that no rounding adds up over many gaps.
        first, end = (round(t * SAMPLE_RATE) for t in (self.seconds, self.seconds + gap))
        self.seconds = end / SAMPLE_RATE
        for start in range(first, end, frames.BLOCK):
            shape = (min(frames.BLOCK, end - start), channels)
            yield start / SAMPLE_RATE, SAMPLE_RATE, np.zeros(shape, np.float32)

    def _joined(self, series: Series, exact: bool) -> Iterator[tuple[float, int, Float32]]:
        """Yield the samples of a series as a block, without peaks that no encoder was given."""
        if not series.pieces:
            return
        block = series.floats()
        if not (exact or np.abs(block).max(initial=0.0) < _NOT_SOUND):  # NaN is not less either
            first = 0
            for piece, begin in zip(series.pieces, series.begins, strict=True):
                part = block[first : (first := first + piece.count)]
                if not np.abs(part).max(initial=0.0) < _NOT_SOUND:
                    part[:] = 0
                    self.damaged.add(begin)
        yield series.begins[0], series.rate, block

    def _from(self, start: float) -> Iterator[av.Packet[av.AudioStream]]:
        """Return the packets; if a jump gives the same samples, only those from shortly before `start` on."""
        container, stream = self.container, self.stream
        if start and self._exact_jumps and stream.time_base and start < self.stated:
            origin = self._origin or 0.0
            with contextlib.suppress(av.FFmpegError, OSError, StopIteration):
                container.seek(round((origin + start) / stream.time_base), stream=stream)
                packets = self._demux()
                first = next(packets)
                begin = -1.0 if first.pts is None else float(first.pts * stream.time_base) - origin
                if 0 <= begin <= start:
                    self.seconds = begin
                    return chain([first], packets)
            container.seek(0)
        return self._demux()

    def _demux(self) -> Iterator[av.Packet[av.AudioStream]]:
        """Yield the packets of the track. Those of others show that FFmpeg is not lost in the file."""
        for packet in self.container.demux():
            self.reader.left = _LARGEST_PACKET
            if packet.stream is self.stream:
                yield cast("av.Packet[av.AudioStream]", packet)

    @property
    def _exact_jumps(self) -> bool:
        """The format counts times in samples, and its decoder keeps no state.

        The decoders of lossy formats keep state: after a jump they give slightly different samples.
        """
        form, codec = self.container.format.name, self.stream.codec_context.name
        return form in ("wav", "w64", "aiff", "flac") and codec.startswith(("pcm_", "flac"))

    def _gap(self, time: float | None) -> float:
        """Return the seconds of silence to insert before a frame with that time stamp."""
        if time is None:
            return 0.0
        self._origin = time if self._origin is None else self._origin
        gap = time - self._origin - self.seconds
        if _JUMP < gap < _GAPS - self._filled and self.seconds + gap < (self.stated or math.inf):
            return gap
        if abs(gap) > _JUMP:  # a clock that was set, or the next part of a chained Ogg
            self._origin += gap
        return 0.0

    def duration(self) -> float:
        """Return the seconds of the whole recording, without decoding the rest. Call after `frames`."""
        if self.whole:
            return self.seconds
        stated = self.stated if self._exact_jumps else self._promised(self.stated)
        if not stated:
            with contextlib.suppress(*_UNDECODABLE):
                for packet in self._packets:
                    if packet.pts is not None and packet.duration:
                        self.seconds += self._gap(float(packet.pts * packet.time_base))
                        self.seconds += float(packet.duration * packet.time_base)
        return max(stated or 0.0, self.seconds)

    def _promised(self, seconds: float) -> float | None:
        """Return the seconds that the header states, given those decoded; None: FFmpeg only estimates."""
        stream, form = self.stream, self.container.format.name.split(",")[0]
        if form in ("wav", "aiff"):  # FFmpeg replaces the header's length by the file's
            return _riff_seconds(self.file, seconds)
        if form == "matroska" and not self.container.streams.video:
            return self.stated or None
        if form not in ("mov", "flac", "mp3") or not stream.duration or not stream.time_base:
            return None
        stated = float(stream.duration * stream.time_base)
        if form == "mp3":
            # Up to three hold the encoder's delay and padding, which FFmpeg 7 cuts off but does not subtract.
            frames = max(_mp3_frames(self.file) - 3, 0)
            return min(stated, frames * (1152 if stream.rate >= 32_000 else 576) / stream.rate)
        return stated

    def warnings(self) -> Iterator[str]:
        """Yield warnings about other tracks, a lost end, damage and gaps. Call after `frames`."""
        name, tracks = self.name, self.container.streams.audio
        if len(tracks) > 1:
            yield (
                f"{name}: has {len(tracks)} sound tracks, and only number {tracks.index(self.stream) + 1} "
                "was used; fix: export the others to separate files"
            )
        promised = self._promised(self.seconds)
        held = clock(self.seconds, 1)
        if not self.whole:
            pass  # the part is complete, even if the end of the file is not
        elif promised is not None and promised > self.seconds + _SLACK:
            header = f"the header promises {clock(promised, 1)}, the file holds {held}"
            yield f"{name}: ends early ({header}); the sound up to there was used"
        elif self.reader.lost:
            nothing = f"more than {_LARGEST_PACKET >> 20} MiB in which FFmpeg finds no sound follow"
            yield f"{name}: ends early (at {held}; {nothing}); the sound up to there was used"
        elif self.failed or (self.container.format.name == "ogg" and ends_within_page(self.file)):
            yield f"{name}: ends early (at {held}, within a packet); the sound up to there was used"
        if self.damaged:
            places = f"{len(self.damaged)} place{'s' if len(self.damaged) > 1 else ''}"
            yield f"{name}: is damaged in {places}, first at {clock(min(self.damaged), 1)}; the rest was used"
        if self.gaps:
            missing = f"{self.silence:.1f} s of sound, first at {clock(self.gaps[0], 1)}"
            yield f"{name}: lacks {missing}; silence was put there, so that times agree with a player's"


def frames_of(part: Part, begin: float, rate: int, count: int) -> tuple[int, int]:
    """Return the slice of `count` frames, the first at `begin` seconds, that begin in `part`."""
    first, last = ((time - begin) * rate - _TIE for time in (part.start, part.end))
    return math.ceil(min(max(first, 0.0), count)), math.ceil(min(max(last, 0.0), count))


@contextlib.contextmanager
def opened(file: BinaryIO, name: str) -> Iterator[Media]:
    """Open a file with FFmpeg; `name` stands in messages. Raises InputError."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    reader = _Reader(file)
    with _container(reader, name) as container:
        reader.left, reader.lost = _LARGEST_PACKET, False
        yield Media(file, name, container, size, reader)


class _Reader:
    """File that does not raise if a damaged header seeks to nowhere, and ends where FFmpeg is lost in it.

    FFmpeg continues after such an error, and PyAV, which can hold only one exception, prints the second.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.name = getattr(file, "name", "<none>")
        self.tell, self.seekable = file.tell, file.seekable
        self.is_mp4 = file.read(8)[4:] in _MP4
        self.left = _LARGEST_INDEX if self.is_mp4 else _LARGEST_PACKET
        """Bytes that FFmpeg may read before the next packet."""
        self.lost = False
        """FFmpeg has read that many."""
        file.seek(0)

    def read(self, size: int) -> bytes:
        """Return the next bytes; none after too many without a packet."""
        self.lost = self.lost or self.left <= 0
        content = b"" if self.lost else self._file.read(size)
        self.left -= len(content)
        return content

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Return the new position; -1 if it does not exist."""
        self.left -= _SEEK
        try:
            return self._file.seek(offset, whence)
        except (OSError, ValueError, OverflowError):
            return -1


_MP4 = {b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"}
"""Names of the first box of an MP4 file."""


def _container(reader: _Reader, name: str) -> av.container.InputContainer:
    try:
        # No protocols either: a false recording must not open other files, let alone sockets.
        options = {"format_whitelist": ",".join(CONTAINERS.split()), "protocol_whitelist": ""}
        container: av.container.InputContainer = av.open(
            reader, "r", options=options, buffer_size=1 << 18, **_TAGS_IN_ANY_ENCODING
        )
        return container
    except (av.FFmpegError, OSError, ValueError) as error:
        reason = (
            "is cut short: the index that an MP4 file needs (its moov atom) is missing or damaged"
            if reader.is_mp4
            else "is not in a format of recordings that FFmpeg reads, or is damaged at its beginning"
        )
        raise InputError(f"{name}: {reason}; fix: copy it again, or export it as WAV or FLAC") from error


def ends_within_page(file: BinaryIO) -> bool:
    """Return whether the last page of an Ogg file is incomplete."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(end - _LARGEST_PAGE, 0))
    tail = file.read(_LARGEST_PAGE)
    page = tail[max(tail.rfind(b"OggS\0"), 0) :]
    if len(page) < _PAGE_HEADER:
        return True
    segments = page[_PAGE_HEADER - 1]
    return len(page) < _PAGE_HEADER + segments + sum(page[_PAGE_HEADER : _PAGE_HEADER + segments])


def _riff_seconds(file: BinaryIO, seconds: float) -> float | None:
    """Return the seconds that the header of a WAV or AIFF file promises; `seconds`: decoded ones."""
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    order = {b"RIFF": "<", b"RIFX": ">", b"FORM": ">"}.get(file.read(12)[:4])
    while order and len(header := file.read(8)) == 8:
        chunk, size = struct.unpack(f"{order}4sI", header)
        if chunk in (b"data", b"SSND"):
            # A program that writes to a pipe cannot know the size, and states about 2 or 4 GiB.
            unknown = min(abs(size - 2**31), abs(size - 2**32)) <= 1 << 16
            return None if unknown else seconds * size / max(min(size, end - file.tell()), 1)
        file.seek(size + size % 2, os.SEEK_CUR)
    return None


def _mp3_frames(file: BinaryIO) -> int:
    """Return the number of frames in the Xing header at the beginning of most MP3 files; 0 without it."""
    file.seek(0)
    start = file.read(10)
    tag_size = sum(byte << shift for byte, shift in zip(start[6:], (21, 14, 7, 0), strict=False)) + 10
    file.seek(tag_size if start[:3] == b"ID3" else 0)
    head = file.read(4096)
    xing = max(head.find(b"Xing"), head.find(b"Info"))
    flags, count = struct.unpack(">II", head[xing + 4 : xing + 12].ljust(8, b"\0"))
    return int(count) if xing >= 0 and flags & 1 else 0
