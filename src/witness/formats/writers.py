"""Transcript -> files: each format by its own module, JSON with the findings beside it.

What was said and what things are called is data: in no format can it become markup, a line or a formula.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from witness.formats import document, reading
from witness.formats.registry import Format
from witness.schema import Sound, Transcript


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
