"""An open file -> the sound that FFmpeg decodes of it, and what of the recording was not used.

FFmpeg, inside PyAV, decodes what is there, but for most formats does not say that something is missing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO

import av
import av.container
import numpy as np

from witness.audio import headers
from witness.errors import InputError
from witness.schema import Float32
from witness.text import clock

_SILENCE = 1 << 16
"""Frames of silence made at a time."""

_SLACK = 0.1
"""Seconds that a header may promise in excess; that of a whole MP3, M4A or WebM file does so by 0.01."""

_JUMP = 0.25
"""Seconds between time stamps that are a gap; the priming of AAC at 8 kHz (two frames) is shorter."""

_GAPS = 3600.0
"""Seconds of gaps beyond which the time stamps are broken: no recorder paused that long."""

_NOT_SOUND = 8.0
"""Peak, 18 dB over full scale, that no encoder was given: a decoder was fed damaged bytes."""

# A tag that is not UTF-8 must not make the sound unreadable. From PyAV 19 on it does not.
_TAGS_IN_ANY_ENCODING: dict[str, Any] = (
    {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}
)


@dataclass
class Media:
    """A file that FFmpeg has opened, and what decoding has noticed so far. Times are in seconds."""

    file: BinaryIO
    name: str
    container: av.container.InputContainer
    seconds: float = 0.0
    """Decoded so far, silence in gaps included."""
    failed: bool = False
    """The latest packet could not be decoded."""
    damaged: list[float] = field(default_factory=list)
    """Where packets could not be decoded and later ones could."""
    gaps: list[float] = field(default_factory=list)
    """Where silence was put."""
    silence: float = 0.0
    """Put into all gaps together."""

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
    def stated(self) -> float:
        """Seconds of the recording; a guess in formats that do not state it, 0 if there is none."""
        return self.container.duration / av.time_base if self.container.duration else 0.0

    @property
    def tags(self) -> dict[str, str]:
        """Of the file and its sound tracks, by key in lower case."""
        tags = {key.lower(): value for key, value in self.container.metadata.items()}
        for stream in self.container.streams.audio:
            tags |= {key.lower(): value for key, value in stream.metadata.items()}
        return tags

    def frames(self) -> Iterator[tuple[int, Float32]]:
        """(rate, (frames, channels)) as decoded, with silence where the time stamps leave a gap.

        Browsers, phones and damage leave gaps; without the silence every later time would be too early.
        """
        container, stream = self.container, self.stream
        origin = container.start_time / av.time_base if container.start_time is not None else None
        end = container.duration / av.time_base if container.duration else float("inf")
        exact = stream.codec_context.name.startswith(("pcm_", "wavpack"))  # floats as written, of any range
        converters: dict[tuple[str, str, int], av.AudioResampler] = {}
        packets = container.demux(stream)
        while True:
            try:
                if (packet := next(packets, None)) is None:  # also after an error of the demuxer
                    return
                blocks = [(frame, _floats(frame, converters)) for frame in packet.decode()]
            except (av.FFmpegError, OSError, IndexError, ValueError):  # PyAV's own checks raise the last two
                self.failed = True
                continue
            for frame, block in blocks:
                if not (exact or np.abs(block).max(initial=0.0) < _NOT_SOUND):  # NaN is not less either
                    block[:] = 0
                    self.failed = True
                if self.failed:
                    self.failed = False
                    self.damaged.append(self.seconds)
                if frame.time is not None:
                    origin = frame.time if origin is None else origin
                    gap = frame.time - origin - self.seconds
                    if _JUMP < gap < _GAPS - self.silence and self.seconds + gap < end:
                        self.gaps.append(self.seconds)
                        self.silence += gap
                        missing = round(gap * frame.sample_rate)
                        for start in range(0, missing, _SILENCE):
                            shape = (min(_SILENCE, missing - start), block.shape[1])
                            yield frame.sample_rate, np.zeros(shape, np.float32)
                        self.seconds += gap
                    elif abs(gap) > _JUMP:  # a clock that was set, or the next part of a chained Ogg
                        origin += gap
                self.seconds += len(block) / frame.sample_rate
                yield frame.sample_rate, block

    def warnings(self) -> Iterator[str]:
        """What of the recording was not used: other tracks, a lost end, damage, gaps. Call after `frames`."""
        name, tracks = self.name, self.container.streams.audio
        if len(tracks) > 1:
            yield (
                f"{name}: has {len(tracks)} sound tracks, and only number {tracks.index(self.stream) + 1} "
                "was used; fix: export the others to separate files"
            )
        promised = headers.promised_seconds(self.file, self.container, self.stream, self.seconds)
        held = clock(self.seconds, 1)
        if promised is not None and promised > self.seconds + _SLACK:
            header = f"the header promises {clock(promised, 1)}, the file holds {held}"
            yield f"{name}: ends early ({header}); the sound up to there was used"
        elif self.failed or (self.container.format.name == "ogg" and headers.ends_within_page(self.file)):
            yield f"{name}: ends early (at {held}, within a packet); the sound up to there was used"
        if self.damaged:
            places = f"{len(self.damaged)} place{'s' if len(self.damaged) > 1 else ''}"
            yield f"{name}: is damaged in {places}, first at {clock(self.damaged[0], 1)}; the rest was used"
        if self.gaps:
            missing = f"{self.silence:.1f} s of sound, first at {clock(self.gaps[0], 1)}"
            yield f"{name}: lacks {missing}; silence was put there, so that times agree with a player's"


@contextlib.contextmanager
def opened(file: BinaryIO, name: str) -> Iterator[Media]:
    """The file, opened by FFmpeg; `name` is what messages call it. Raises InputError."""
    file.seek(0)
    with _container(file, name) as container:
        yield Media(file, name, container)


class _Patient:
    """A file that does not raise where a damaged header seeks to nowhere.

    FFmpeg continues after such an error, and PyAV, which can hold only one exception, prints the second.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.name = getattr(file, "name", "<none>")
        self.read, self.tell, self.seekable = file.read, file.tell, file.seekable

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """The new place; -1 if it does not exist."""
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
            else "is not in a format that FFmpeg reads, or is damaged at its beginning"
        )
        raise InputError(f"{name}: {reason}; fix: copy it again, or export it as WAV or FLAC") from error


def _floats(frame: av.AudioFrame, converters: dict[tuple[str, str, int], av.AudioResampler]) -> Float32:
    """(frames, channels), full scale 1; floats keep whatever range they have."""
    # Through a filter, since PyAV 18 reads past the end of a planar frame of 8 channels and crashes. A filter
    # takes frames of one kind only, and the kind may change within a file.
    kind = (frame.format.name, frame.layout.name, frame.sample_rate)
    if kind not in converters:
        converters[kind] = av.AudioResampler("flt")
    pieces = [piece.to_ndarray() for piece in converters[kind].resample(frame)]
    floats: Float32 = np.concatenate(pieces, axis=1, dtype=np.float32)
    return floats.reshape(-1, frame.layout.nb_channels)
