"""The first bytes of a file -> the ending that its kind of recording has, for files whose name has none."""

from __future__ import annotations

NEEDED = 16
"""Bytes that tell."""
_BEGINNINGS = {
    b"fLaC": "flac",
    b"OggS": "ogg",
    b"ID3": "mp3",
    b"\x1a\x45\xdf\xa3": "webm",  # and Matroska, which is read in the same way
    b"caff": "caf",
    b"FORM": "aiff",
    b"#!AMR": "amr",
    b"\x30\x26\xb2\x75\x8e\x66\xcf\x11": "wma",
    b"RF64": "wav",
}


def ending_of(first: bytes) -> str | None:
    """The ending, without its dot; None: it begins like no recording that we know."""
    if first[:4] == b"RIFF":
        return {b"WAVE": "wav", b"AVI ": "avi"}.get(first[8:12])
    if first[4:8] == b"ftyp":
        return "m4a" if first[8:11] in (b"M4A", b"M4B") else "mp4"
    if len(first) > 1 and first[0] == 0xFF and first[1] & 0xE0 == 0xE0:  # the sync word of MPEG audio
        return "aac" if first[1] & 0x06 == 0 else "mp3"
    return next((ending for begins, ending in _BEGINNINGS.items() if first.startswith(begins)), None)
