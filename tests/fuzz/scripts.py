"""Texts and pictures that pose as recordings: they make sound of a line, or name other files."""

from __future__ import annotations

import struct
import zlib

SBAGEN = (
    b"-SE\n\nt: 100+5/50\noff: -\nNOW t\n+9999999:00:00 off\n",
    b"## SBaGen\n-SE\nalpha: pink/40 200+10/20 spin:300+4/10\noff: -\n00:00 alpha\n+48:00:00 off\n",
    b"bell: bell+250/90\nw: wave00:440+1/5\nwave00: 0 10 20 0\nNOW w\n+00:00:10 bell\n+1000:00 w\n",
)
PLAYLISTS = {
    "m3u": b"#EXTM3U\n#EXTINF:9999999,x\n/etc/hostname\nhttp://127.0.0.1:9/x.mp3\n",
    "m3u8": b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9999,\nfile:///dev/zero\n#EXT-X-ENDLIST\n",
    "concat": b"ffconcat version 1.0\nfile /dev/zero\nduration 99999999\nfile ../x.wav\ninpoint 3\n",
    "dash": b"<?xml version='1.0'?><MPD xmlns='urn:mpeg:dash:schema:mpd:2011' type='static' "
    b"mediaPresentationDuration='PT99999H'><Period><BaseURL>/dev/zero</BaseURL></Period></MPD>",
    "asx": b"<asx version='3.0'><entry><ref href='http://127.0.0.1:9/x.mp3'/></entry></asx>",
    "pls": b"[playlist]\nFile1=/dev/zero\nLength1=-1\nNumberOfEntries=1\n",
    "sdp": b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 9 RTP/AVP 0\n",
    "redir": b"[Reference]\nRef1=http://127.0.0.1:9/x.asf?MSWMExt=.asf\n",
    "imf": b"<?xml version='1.0'?><CompositionPlaylist xmlns='http://www.smpte-ra.org/schemas/2067-3'/>",
}
TEXTS = {
    "ffmetadata": b";FFMETADATA1\ntitle=x\n[CHAPTER]\nTIMEBASE=1/1\nSTART=0\nEND=99999999999\n",
    "srt": b"1\n00:00:01,000 --> 999999:00:02,000\nhello\n\n",
    "vtt": b"WEBVTT\n\n00:01.000 --> 999999:00:02.000\nhello\n",
    "ass": b"[Script Info]\nScriptType: v4.00+\n[Events]\nDialogue: 0,0:00:00.00,9999:00:00.00,,,0,0,0,,x\n",
    "ted": b'[{"duration":99999999,"content":"x","startOfParagraph":false,"startTime":1}]',
    "lrc": b"[ar:x]\n[99999:00.00]hello\n",
    "lavfi": b"aevalsrc=sin(440*2*PI*t):d=99999999\n",
}


def seeds() -> dict[str, bytes]:
    """Name -> content. Some of the names are patterns of image sequences."""
    found = {f"sbagen{number}.wav": text for number, text in enumerate(SBAGEN)}
    found |= {f"list.{name}": text for name, text in PLAYLISTS.items()}
    found |= {f"text.{name}": text for name, text in TEXTS.items()}
    return found | {
        "image-%03d.png": _png(),
        "image-%d.bmp": b"BM"
        + struct.pack("<IIIIiiHHIIiiII", 58, 0, 54, 40, 1, 1, 1, 24, 0, 4, 1, 1, 0, 0)
        + bytes(4),
        "image*.gif": b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;",
        "image.pgm": b"P5 1 1 255 \0",
        "image.y4m": b"YUV4MPEG2 W2 H2 F1:999999 Ip A1:1 C420\nFRAME\n" + bytes(6),
    }


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
