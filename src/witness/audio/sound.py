"""Sound of a recording for a page: its outline, and the sound as Opus or as a link."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import av
import av.container
import numpy as np

from witness.audio import decode
from witness.audio.source import possible_paths
from witness.errors import InputError, OutputError
from witness.options import PageAudio, Part
from witness.progress import SILENT, Reporter
from witness.schema import SAMPLE_RATE, Float32, Sound, Source, Spans
from witness.storage.files import sha256_at

EMBEDDED = 20 * 60.0
"""Seconds of the longest recording that "auto" embeds: 3.6 MB of Opus, 4.8 MB in the page."""
BITS = 24_000
"""Bits per second of Opus; speech of 8 kHz bandwidth is clear."""
MP3_BITS = 48_000
"""Bits per second of MP3, for other programs."""
PEAKS = 20
"""Peaks per second of a short recording: a pixel each in a timeline of a minute."""
MOST_PEAKS = 40_000
"""Peaks of a long recording; one per second of eleven hours."""

PITCH, LEVEL = 1000.0, 0.1
"""Hertz of the tone over covered parts, as broadcasters have it, and its share of full scale."""


def take(
    source: Source,
    files: Iterable[tuple[str, Path | None]],
    how: PageAudio = PageAudio.AUTO,
    *,
    beside: Path | None = None,
    covered: Spans = (),
    reporter: Reporter = SILENT,
) -> Sound | None:
    """Make the sound for the page among `files`: formats and their paths, None for stdout.

    `beside`: folder of the JSON that the page shows; a tone covers the `covered` spans of the sound.
    Return None without a page or without sound in it, and, with a note, if the recording cannot be used.
    """
    pages = [path for form, path in files if form == "html"]
    if how == PageAudio.NONE or not pages:
        return None
    page = pages[0]
    try:
        path, recorded = located(source, beside)
        # Rounded as in JSON, which can make the same page later.
        part = Part(round(source.transcribed.start, 3), round(source.transcribed.end, 3))
        embed = how == PageAudio.EMBED or (how == PageAudio.AUTO and part.duration < EMBEDDED)
        # One pass for its outline and, more slowly, another one for its sound.
        total = part.duration * (2 if embed else 1)

        def tell(seconds: float) -> None:
            reporter.progress("sound", seconds, total)

        loudest, peaks = _peaks(path, part, tell, covered)
        encode = partial(_opus, covered=covered) if covered else _opus
        return Sound(
            peaks,
            encode(path, part, loudest, lambda done: tell(part.duration + done)) if embed else None,
            None if embed else _link(path, page),
            recorded,
        )
    except (InputError, av.FFmpegError, OSError, ValueError) as error:  # the transcript is good without it
        reporter.note(f"the page has no sound: {error}")
        return None


def located(source: Source, beside: Path | None) -> tuple[str, str | None]:
    """Find the recording with the sha256 of the transcribed one; return its path and its date.

    It may have another name in the folder `beside`, that of the transcript. Raises InputError.
    """
    if source.path in ("-", decode.SAMPLES):
        origin = "standard input" if source.path == "-" else "an array"
        raise InputError(f"the recording came from {origin}; fix: transcribe a file")
    paths = dict.fromkeys(possible_paths(source.path, beside))
    files = [path for path in paths if Path(path).is_file()]  # a pipe is empty by now
    for file in files:
        sha256, recorded = decode.about(file)
        if sha256 == source.sha256:
            return file, recorded
    if beside is not None and (renamed := _renamed(source, beside)) is not None:
        return renamed, decode.about(renamed)[1]
    if not files:
        raise InputError(f"{source.path}: no such file; fix: put it back, or beside the JSON")
    raise InputError(
        f"{files[0]}: is not the transcribed recording (sha256 differs); fix: put the original back"
    )


def _renamed(source: Source, beside: Path) -> str | None:
    """Find a file in a folder with the contents and the ending of the recording.

    Files beside a transcript with their name are skipped.
    """
    ending = Path(source.path).suffix.lower()
    try:
        files = sorted(beside.iterdir())
    except OSError:
        return None
    for file in files:
        if file.suffix.lower() != ending or not file.is_file() or file.with_suffix(".json").exists():
            continue
        with suppress(OSError):
            status = file.stat()
            if _sha256(str(file), status.st_size, status.st_mtime_ns) == source.sha256:
                return str(file)
    return None


@lru_cache(maxsize=4096)
def _sha256(path: str, size: int, mtime_ns: int) -> str:  # noqa: ARG001 - another size or time, another file
    return sha256_at(path)


def _peaks(path: str, part: Part, tell: Callable[[float], None], covered: Spans) -> tuple[float, bytes]:
    """Return the largest magnitude of a sample, and `Sound.peaks`."""
    total = max(1, round(part.duration * SAMPLE_RATE))
    parts = max(1, min(MOST_PEAKS, round(part.duration * PEAKS)))
    heights = np.zeros(parts, np.float32)
    done = 0
    for block in cover(decode.blocks(path, part), covered, part.start):
        places = np.minimum(np.arange(done, done + len(block), dtype=np.int64) * parts // total, parts - 1)
        np.maximum.at(heights, places, np.abs(block))
        done += len(block)
        tell(done / SAMPLE_RATE)
    loudest = float(heights.max())
    return loudest, np.rint(heights / (loudest or 1.0) * 255).astype(np.uint8).tobytes()


def _opus(path: str, part: Part, loudest: float, tell: Callable[[float], None], covered: Spans = ()) -> bytes:
    """Encode a part as WebM, which more versions of Safari play than Ogg; same samples, same bytes."""
    blocks = cover(decode.blocks(path, part), covered, part.start)
    return _encoded("webm", "libopus", BITS, _frames(blocks, 1.0 / max(1.0, loudest)), tell)


def mp3(path: str, source: Source, covered: Spans) -> bytes:
    """Encode the whole recording at `path` as MP3, silent outside its transcribed part.

    A tone covers the `covered` spans; all times stay the same. Raises InputError, OutputError.
    """
    part = source.transcribed
    silent = ((0.0, part.start), (part.end, source.duration + 1.0))
    whole = decode.blocks(path, Part(0.0, source.duration))
    blocks = cover(cover(whole, silent, level=0.0), covered)
    try:
        return _encoded("mp3", "libmp3lame", MP3_BITS, _frames(blocks, 1.0), lambda _: None)
    except av.FFmpegError as error:
        raise OutputError(f"{path}: its sound cannot be written as MP3 ({error.strerror})") from error


def _encoded(
    container: str,
    codec: Literal["libopus", "libmp3lame"],
    bits: int,
    frames: Iterable[av.AudioFrame],
    tell: Callable[[float], None],
) -> bytes:
    """Encode frames to a file; `tell` is called with the seconds done."""
    file = io.BytesIO()
    # Without "bitexact" the file would hold a random number and the version of the library.
    with av.open(file, "w", format=container, options={"fflags": "+bitexact"}) as written:
        options = {"flags": "+bitexact", **({"application": "voip"} if codec == "libopus" else {})}
        stream = written.add_stream(codec, rate=SAMPLE_RATE, layout="mono", options=options)
        stream.bit_rate = bits
        done = 0
        for frame in frames:
            written.mux(stream.encode(frame))
            done += frame.samples
            tell(done / SAMPLE_RATE)
        written.mux(stream.encode(None))
    return file.getvalue()


def _frames(blocks: Iterable[Float32], gain: float) -> Iterator[av.AudioFrame]:
    """Yield samples in frames for an encoder, times `gain`."""
    done = 0
    for block in blocks:
        samples: Float32 = np.ascontiguousarray(block[None] * np.float32(gain))
        if samples.size:
            frame = av.AudioFrame.from_ndarray(samples, format="flt", layout="mono")
            frame.sample_rate, frame.pts = SAMPLE_RATE, done
            yield frame
            done += samples.size


def cover(
    blocks: Iterable[Float32], spans: Spans, begin: float = 0.0, level: float = LEVEL
) -> Iterator[Float32]:
    """Replace samples (blocks of (samples,) at SAMPLE_RATE) by a tone within `spans`, in seconds.

    The first sample is at `begin`; `level`: of the tone, 0 for silence.
    """
    edges = [tuple(round((edge - begin) * SAMPLE_RATE) for edge in span) for span in spans]
    done = 0
    for block in blocks:
        covered = block
        for first, last in edges:
            first, last = max(0, first - done), min(len(block), last - done)
            if first < last:
                if covered is block:
                    covered = block.copy()
                times = np.arange(done + first, done + last) / SAMPLE_RATE
                covered[first:last] = level * np.sin(2 * np.pi * PITCH * times)
        yield covered
        done += len(block)


def _link(path: str, page: Path | None) -> str:
    """Return a URL relative to the page, which still holds after both were moved together."""
    target = os.path.abspath(path)  # noqa: PTH100 - links are not followed
    folder = os.path.abspath(page.parent if page is not None else ".")  # noqa: PTH100
    try:
        relative = os.path.relpath(target, folder)
    except ValueError:  # another drive
        return Path(target).as_uri()
    url = quote(os.fsencode(relative.replace(os.sep, "/")))
    return url if "/" in url else f"./{url}"  # "a:b.wav" would be a scheme
