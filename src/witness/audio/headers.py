"""What the header of a recording promises: most decoders use what is there and do not say what is missing."""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

import av
import av.container


def promised_seconds(
    file: BinaryIO, container: av.container.InputContainer, stream: av.AudioStream, seconds: float
) -> float | None:
    """Seconds that the header states; None where FFmpeg only estimates them, from the bit rate say."""
    kind = container.format.name.split(",")[0]
    if kind in ("wav", "aiff"):  # FFmpeg puts what the file holds in place of what the header says
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


def _riff_seconds(file: BinaryIO, seconds: float) -> float | None:
    """Seconds that the header of a WAV or AIFF file promises, given those decoded from what is there."""
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    order = {b"RIFF": "<", b"RIFX": ">", b"FORM": ">"}.get(file.read(12)[:4])
    while order and len(header := file.read(8)) == 8:
        kind, size = struct.unpack(f"{order}4sI", header)
        if kind in (b"data", b"SSND"):
            # Who writes to a pipe cannot know the size, and puts about 2 or 4 GiB.
            unknown = min(abs(size - 2**31), abs(size - 2**32)) <= 1 << 16
            return None if unknown else seconds * size / max(min(size, end - file.tell()), 1)
        file.seek(size + size % 2, os.SEEK_CUR)
    return None


def _mp3_frames(file: BinaryIO) -> int:
    """The number of frames by the Xing header, with which most MP3 files begin; 0 without one."""
    file.seek(0)
    start = file.read(10)
    tag = sum(byte << shift for byte, shift in zip(start[6:], (21, 14, 7, 0), strict=False)) + 10
    file.seek(tag if start[:3] == b"ID3" else 0)
    head = file.read(4096)
    at = max(head.find(b"Xing"), head.find(b"Info"))
    flags, frames = struct.unpack(">II", head[at + 4 : at + 12].ljust(8, b"\0"))
    return int(frames) if at >= 0 and flags & 1 else 0


def ends_within_page(file: BinaryIO) -> bool:
    """Whether the last page of an Ogg file (27 bytes, sizes of segments, segments) is incomplete."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(end - 65_307, 0))  # the largest page
    tail = file.read()
    page = tail[max(tail.rfind(b"OggS\0"), 0) :]
    return len(page) < 27 or len(page) < 27 + page[26] + sum(page[27 : 27 + page[26]])
