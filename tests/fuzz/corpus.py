"""Damaged recordings of every kind: the same number always gives the same bytes.

`seeds` encodes two seconds of sound in each container and codec that this FFmpeg can write, and has the texts
and pictures of `scripts`, which make no recording. `mutated` breaks one of them: bits, lengths, lost, doubled
and foreign parts, cut ends, headers of one kind before another.
"""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable
from contextlib import suppress

import av
import numpy as np
import scripts
import soundfile

SECONDS = 2
KINDS = (  # container, codec, samples per second, channels
    ("wav", "pcm_s16le", 16000, 1),
    ("wav", "pcm_f32le", 44100, 2),
    ("wav", "pcm_mulaw", 8000, 1),
    ("wav", "adpcm_ms", 22050, 1),
    ("w64", "pcm_s24le", 48000, 2),
    ("aiff", "pcm_s16be", 44100, 2),
    ("au", "pcm_alaw", 8000, 1),
    ("caf", "pcm_s16be", 16000, 1),
    ("flac", "flac", 16000, 1),
    ("ogg", "libopus", 48000, 1),
    ("mp3", "libmp3lame", 44100, 2),
    ("mp2", "mp2", 44100, 1),
    ("adts", "aac", 44100, 2),
    ("ipod", "aac", 44100, 1),
    ("mp4", "aac", 48000, 2),
    ("mov", "pcm_s16le", 48000, 1),
    ("matroska", "libopus", 48000, 2),
    ("webm", "libopus", 48000, 1),
    ("avi", "libmp3lame", 44100, 2),
    ("asf", "wmav2", 44100, 1),
    ("mpegts", "mp2", 48000, 2),
    ("ac3", "ac3", 48000, 2),
    ("eac3", "eac3", 48000, 2),
    ("flv", "aac", 44100, 1),
    ("wv", "wavpack", 44100, 2),
    ("tta", "tta", 44100, 1),
)


def seeds() -> dict[str, bytes]:
    """Name -> a whole recording of that kind; kinds that this FFmpeg cannot write are left out."""
    found = {}
    for container, codec, rate, channels in KINDS:
        with suppress(av.FFmpegError, ValueError):
            found[f"{container}-{codec}"] = _encoded(container, codec, rate, channels)
    file = io.BytesIO()  # FFmpeg's own encoder of Vorbis is an experiment
    soundfile.write(file, _sound(44100, 2).T, 44100, format="OGG", subtype="VORBIS")
    return {**found, "ogg-vorbis": file.getvalue(), **scripts.seeds()}


def _sound(rate: int, channels: int) -> np.ndarray:
    """(channels, samples)"""
    chance = np.random.default_rng(rate + channels)
    time = np.arange(SECONDS * rate) / rate
    tone = 0.3 * np.sin(2 * np.pi * 220 * time) * (np.sin(2 * np.pi * 3 * time) > 0)
    return (tone + chance.normal(0, 0.01, tone.size))[None].repeat(channels, 0).astype(np.float32)


def _encoded(container: str, codec: str, rate: int, channels: int) -> bytes:
    sound = _sound(rate, channels)
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream = out.add_stream(codec, rate=rate, layout="mono" if channels == 1 else "stereo")
        if codec == "wmav2":
            stream.bit_rate = 64_000
        resampler = av.AudioResampler(
            format=stream.codec_context.format,
            layout=stream.layout,
            rate=rate,
            frame_size=stream.frame_size or 1024,
        )
        frame = av.AudioFrame.from_ndarray(sound, format="fltp", layout=stream.layout.name)
        frame.sample_rate = rate
        for part in (*resampler.resample(frame), *resampler.resample(None)):
            out.mux(stream.encode(part))
        out.mux(stream.encode(None))
    return file.getvalue()


def _bits(data: bytearray, chance: random.Random, _: bytes) -> bytes:
    for _ in range(chance.choice([1, 3, 10, 100])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _header(data: bytearray, chance: random.Random, _: bytes) -> bytes:
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(min(len(data), 256))] = chance.randrange(256)
    return bytes(data)


def _lengths(data: bytearray, chance: random.Random, _: bytes) -> bytes:
    extreme = chance.choice([0, 1, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE])
    form = chance.choice(["<I", ">I", "<H", ">H"])
    value = struct.pack(form, extreme & (0xFFFFFFFF if "I" in form else 0xFFFF))
    place = chance.randrange(min(len(data), chance.choice([64, 512, len(data)])))
    data[place : place + len(value)] = value
    return bytes(data)


def _cut(data: bytearray, chance: random.Random, _: bytes) -> bytes:
    return bytes(data[: chance.randrange(len(data))])


def _headless(data: bytearray, chance: random.Random, _: bytes) -> bytes:
    return bytes(data[chance.randrange(1, len(data)) :])


def _lost(data: bytearray, chance: random.Random, _: bytes) -> bytes:
    first = chance.randrange(len(data))
    del data[first : first + chance.randrange(1, len(data))]
    return bytes(data)


def _doubled(data: bytearray, chance: random.Random, _: bytes) -> bytes:
    first = chance.randrange(len(data))
    part = data[first : first + chance.randrange(1, 4096)]
    return bytes(data[:first] + part * chance.choice([2, 2, 50]) + data[first:])


def _zeros(data: bytearray, chance: random.Random, _: bytes) -> bytes:
    first = chance.randrange(len(data))
    size = chance.randrange(1, len(data))
    data[first : first + size] = bytes([chance.choice([0, 255])]) * len(data[first : first + size])
    return bytes(data)


def _spliced(data: bytearray, chance: random.Random, other: bytes) -> bytes:
    return bytes(data[: chance.randrange(len(data))]) + other[chance.randrange(len(other)) :]


def _noise(data: bytearray, chance: random.Random, _: bytes) -> bytes:
    first = chance.randrange(len(data))
    size = chance.randrange(1, 4096)
    data[first : first + size] = chance.randbytes(size)
    return bytes(data)


MUTATIONS: tuple[Callable[[bytearray, random.Random, bytes], bytes], ...] = (
    *(_bits, _header, _lengths, _cut, _headless, _lost, _doubled, _zeros, _spliced, _noise),
)


def mutated(number: int, found: dict[str, bytes]) -> tuple[str, bytes]:
    """The damaged recording of that number, and what it was made from; each kind in turn."""
    names = sorted(found)
    name = names[number % len(names)]
    chance = random.Random(number)
    data = found[name]
    done = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        if len(data) == 1:  # nothing is left to damage
            break
        mutation = chance.choice(MUTATIONS)
        other = found[chance.choice(names)]
        data = mutation(bytearray(data), chance, other) or b"\0"
        done.append(mutation.__name__)
    return f"{number:05d}{''.join(done)}.{name}", data
