"""What the header of a recording promises: FFmpeg decodes what is there and rarely says what is missing."""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

import av
import av.container

_LARGEST_PAGE = 65_307
"""Bytes of the largest Ogg page (RFC 3533)."""
_PAGE_HEADER = 27
"""Bytes of an Ogg page before its table of segment sizes; the last of them is the length of the table."""


def promised_seconds(
    file: BinaryIO, container: av.container.InputContainer, stream: av.AudioStream, seconds: float
) -> float | None:
    """Seconds that the header states, given those decoded; None where FFmpeg only estimates them.

    FFmpeg estimates, from the bit rate for instance, where a format states no length.
    """
    kind = container.format.name.split(",")[0]
    if kind in ("wav", "aiff"):  # FFmpeg replaces what the header says by what the file holds
        return _riff_seconds(file, seconds)
    if kind == "matroska" and not container.streams.video:
        return container.duration / av.time_base if container.duration else None
    if kind not in ("mov", "flac", "mp3") or not stream.duration or not stream.time_base:
        return None
    stated = float(stream.duration * stream.time_base)
    if kind == "mp3":
        # Up to three hold the encoder's delay and padding, which FFmpeg 7 cuts off but does not subtract.
        frames = max(_mp3_frames(file) - 3, 0)
        return min(stated, frames * (1152 if stream.rate >= 32_000 else 576) / stream.rate)
    return stated


def ends_within_page(file: BinaryIO) -> bool:
    """Whether the last page of an Ogg file is incomplete."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(end - _LARGEST_PAGE, 0))
    tail = file.read()
    page = tail[max(tail.rfind(b"OggS\0"), 0) :]
    if len(page) < _PAGE_HEADER:
        return True
    segments = page[_PAGE_HEADER - 1]
    return len(page) < _PAGE_HEADER + segments + sum(page[_PAGE_HEADER : _PAGE_HEADER + segments])


def _riff_seconds(file: BinaryIO, seconds: float) -> float | None:
    """Seconds that the header of a WAV or AIFF file promises, given those that were decoded."""
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    order = {b"RIFF": "<", b"RIFX": ">", b"FORM": ">"}.get(file.read(12)[:4])
    while order and len(header := file.read(8)) == 8:
        kind, size = struct.unpack(f"{order}4sI", header)
        if kind in (b"data", b"SSND"):
            # A program that writes to a pipe cannot know the size, and states about 2 or 4 GiB.
            unknown = min(abs(size - 2**31), abs(size - 2**32)) <= 1 << 16
            return None if unknown else seconds * size / max(min(size, end - file.tell()), 1)
        file.seek(size + size % 2, os.SEEK_CUR)
    return None


def _mp3_frames(file: BinaryIO) -> int:
    """The number of frames according to the Xing header that most MP3 files begin with; 0 without one."""
    file.seek(0)
    start = file.read(10)
    tag_size = sum(byte << shift for byte, shift in zip(start[6:], (21, 14, 7, 0), strict=False)) + 10
    file.seek(tag_size if start[:3] == b"ID3" else 0)
    head = file.read(4096)
    place = max(head.find(b"Xing"), head.find(b"Info"))
    flags, frames = struct.unpack(">II", head[place + 4 : place + 12].ljust(8, b"\0"))
    return int(frames) if place >= 0 and flags & 1 else 0
