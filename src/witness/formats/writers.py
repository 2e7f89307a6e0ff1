"""Transcript -> files: each format by its own module, JSON with the findings beside it.

What was said and what things are called is data: in no format can it become markup, a line or a formula.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from witness.formats import document, findings, output_paths, reading
from witness.formats.registry import Format
from witness.schema import Sound, Transcript
from witness.storage import atomic, files


def save(
    transcript: Transcript,
    targets: Iterable[tuple[str, Path | None]],
    *,
    keep: bool = True,
    sound: Sound | None = None,
) -> None:
    """Write each format to its file; None is stdout.

    All are written from the numbers that JSON has, so that the transcript in it gives the same bytes again.
    Beside a JSON file (not beside a pipe) go the findings, unless `keep` is false. `sound` is for a page.
    Raises OutputError and BrokenPipeError.
    """
    transcript = document.in_milliseconds(transcript)
    contents: list[tuple[bytes, Path | None]] = []
    voices: list[Path] = []
    for form, path in targets:
        link = None
        if form == Format.JSON and keep and path and output_paths.is_regular(path) and transcript.findings:
            found = findings.encode(transcript.findings)
            voices.append(output_paths.beside(path))
            contents.append((found, voices[-1]))
            link = {"file": voices[-1].name, "sha256": files.sha256(found)}
        if form == Format.JSON:
            contents.append((document.encode(document.of(transcript, link)), path))
        else:
            contents.append((content(transcript, form, sound, path), path))
    atomic.write_all(contents, private=voices)


def content(
    transcript: Transcript, form: str, sound: Sound | None = None, place: Path | None = None
) -> bytes:
    """The file of a format at `place`; `transcript` is one `in_milliseconds`, and `sound` is as in `save`."""
    text = written(transcript, form, sound, place)
    return encode(text) if isinstance(text, str) else text


def written(
    transcript: Transcript, form: str, sound: Sound | None = None, place: Path | None = None
) -> str | bytes:
    """The text or the bytes of a format, by the module of its name. `sound` is for what can hold it."""
    form = Format(form)
    if form == Format.JSON:
        return document.encode(document.of(transcript)).decode()
    write = import_module(f"witness.formats.{form}").write
    read = reading.read(transcript, place, smooth=form.about.smooth)
    text: str | bytes = write(read, sound) if form.about.sound else write(read)
    return text


def encode(text: str) -> bytes:
    """UTF-8; bytes of a file name that are not UTF-8 become U+FFFD, so that they do not cost the result."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode("utf-8")
