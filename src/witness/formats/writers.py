"""Transcript -> content of a file: each format by its own module.

Speech and file names are data: in no format can they become markup, a line or a formula.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from witness.formats import json_document, reading
from witness.formats.registry import READ, Format
from witness.schema import Sound, Transcript


def content(transcript: Transcript, form: str, sound: Sound | None = None, path: Path | None = None) -> bytes:
    """Return the file of a format for `path`; pass a transcript from `in_milliseconds`.

    `sound` is for a page.
    """
    text = render(transcript, form, sound, path)
    return encode(text) if isinstance(text, str) else text


def render(
    transcript: Transcript, form: str, sound: Sound | None = None, path: Path | None = None
) -> str | bytes:
    """Return the text or the bytes of a format, by the module of its name; `sound` is for a page."""
    form = Format(form)
    if form == Format.JSON:
        return json_document.encode(json_document.from_transcript(transcript)).decode()
    write = import_module(f"witness.formats.{form}").write
    about = form.about
    joined = about.purpose == READ
    read = reading.read(transcript, path, smooth=about.smooth, labels=about.labels, joined=joined)
    text: str | bytes = write(read, sound) if about.sound else write(read)
    return text


def encode(text: str) -> bytes:
    """Encode as UTF-8; bytes of a file name that are not UTF-8 become U+FFFD instead of an error."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode("utf-8")
