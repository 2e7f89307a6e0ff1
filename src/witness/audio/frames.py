"""Frames as FFmpeg decodes them -> float32, many together.

A packet is often 20 ms. Converting each by itself, by FFmpeg's filter, took longer than decoding it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from witness.schema import Float32

BLOCK = 1 << 16
"""Frames that are converted, mixed and resampled together: little work for Python, 0.25 MB per channel."""

_TYPES = {"u8": "u1", "s16": "i2", "s32": "i4", "flt": "f4", "dbl": "f8"}
"""FFmpeg's name of a type of samples -> NumPy's; with a p if each channel has a plane of its own."""

_SCALES = {"u1": 2.0**-7, "i2": 2.0**-15, "i4": 2.0**-31}
"""Factor that makes full scale 1; floats keep their range."""

_PLANES = 7
"""Most planes: PyAV 18 looks for the end of a list without one and crashes at 8."""


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Samples of one of FFmpeg's frames, in FFmpeg's memory."""

    layout: tuple[str, str, int]
    """Type of samples, layout of channels, and rate; these may change within a file."""
    planes: tuple[npt.NDArray[Any], ...]
    """(frames,) for each channel, or one (frames * channels,) for all."""
    channels: int
    count: int
    """Frames."""


@dataclass
class Unpacker:
    """Conversion of FFmpeg's frames to their samples."""

    _packers: dict[tuple[str, str, int], av.AudioResampler] = field(default_factory=dict)
    """Filters by layout, for each takes frames of one layout only."""

    def __call__(self, frame: av.AudioFrame) -> Unpacked:
        """Return the samples of a frame. Raises av.FFmpegError, OSError or ValueError for a damaged frame."""
        layout = frame.format.name, frame.layout.name, frame.sample_rate
        channels, count = frame.layout.nb_channels, frame.samples
        name = layout[0]
        planar = name.endswith("p")
        if name.removesuffix("p") not in _TYPES or (planar and channels > _PLANES):
            if layout not in self._packers:
                self._packers[layout] = av.AudioResampler("flt")
            (frame,) = self._packers[layout].resample(frame)
            name, planar = "flt", False
        size = count if planar else count * channels
        dtype = _TYPES[name.removesuffix("p")]
        planes = tuple([np.frombuffer(memoryview(plane), dtype, size) for plane in frame.planes])
        return Unpacked(layout, planes, channels, count)


@dataclass
class Series:
    """Successive frames of one layout."""

    pieces: list[Unpacked] = field(default_factory=list)
    begins: list[float] = field(default_factory=list)
    """Second at which each begins."""
    _count: int = 0

    @property
    def rate(self) -> int:
        """Frames per second."""
        return self.pieces[0].layout[2]

    def takes(self, piece: Unpacked) -> bool:
        """Return whether a piece has the same layout and fits."""
        return not self.pieces or (self._count < BLOCK and piece.layout == self.pieces[0].layout)

    def add(self, piece: Unpacked, begin: float) -> None:
        self.pieces.append(piece)
        self.begins.append(begin)
        self._count += piece.count

    def floats(self) -> Float32:
        """(frames, channels), full scale 1."""
        channels = self.pieces[0].channels
        floats = np.empty((self._count, channels), np.float32)
        columns = floats.reshape(1, -1) if len(self.pieces[0].planes) == 1 else floats.T
        planes = zip(*(piece.planes for piece in self.pieces), strict=True)
        with np.errstate(over="ignore"):  # what becomes infinite is refused with its time
            for column, parts in zip(columns, planes, strict=True):
                np.concatenate(parts, out=column, casting="unsafe")
        dtype = self.pieces[0].planes[0].dtype.str[1:]
        if dtype == "u1":  # its zero is in the middle
            floats -= 128
        if dtype in _SCALES:
            floats *= np.float32(_SCALES[dtype])
        return floats
