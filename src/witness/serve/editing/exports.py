"""Exports of a transcript: a file of a format, with or without times and names, or its sound."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from witness.audio import sound
from witness.errors import UsageError
from witness.formats import output_paths, writers
from witness.formats.registry import Format
from witness.options import PageAudio
from witness.schema import LONGEST, Spans, Transcript
from witness.transcript import anonymous, store

Choice = Literal["keep", "drop"]


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export; None: as in the transcript."""

    names: Literal["keep", "drop", "anonymous"] = "keep"
    times: Choice | None = None
    fillers: Choice | None = None
    pauses: Annotated[float, Meta(ge=0, le=LONGEST)] | None = None
    """Seconds: the shortest pause that is marked; 0: no marks."""
    hidden: Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=200)] = ()
    """Words to leave out beside names, where these are left out."""

    @property
    def style(self) -> dict[str, Any]:
        """The argument of `Transcript.styled`."""
        names = "none" if self.names == "drop" else None
        rest = {"times": self.times, "fillers": self.fillers, "pauses": self.pauses}
        return {**rest, "speaker_names": names}


UNCHANGED = ExportOptions()
EXCERPT = 4000
"""Characters of a preview."""


def read_options(value: Any) -> ExportOptions:
    """Check the options in a request. Raises UsageError."""
    try:
        return msgspec.convert(value, ExportOptions)
    except msgspec.ValidationError as error:
        raise UsageError(f"these options cannot be used ({error})") from error


def content(path: Path, form: Format, options: ExportOptions = UNCHANGED) -> tuple[str, bytes]:
    """Return name and content of the file of a format; a page has its sound inside if that is short.

    Raises InputError, WitnessError.
    """
    output_paths.check_libraries([form])
    if form == Format.JSON and options == UNCHANGED:
        return output_paths.name_of(store.base_name(path), form), store.load(path).content
    transcript, title, covered = _styled(path, options)
    audio = store.read(path).audio
    how = PageAudio.EMBED if audio.transcribed.duration < sound.EMBEDDED else PageAudio.NONE
    played = sound.take(audio, [(form, None)], how, beside=path.parent, covered=covered)
    name = output_paths.name_of(title, form)
    return name, writers.content(transcript, form, played, path.with_name(name))


def audible(path: Path, options: ExportOptions) -> tuple[str, bytes]:
    """Return name and content of the recording as MP3; a tone covers names that are left out.

    Raises InputError, OutputError.
    """
    audio = store.read(path).audio
    _, title, covered = _styled(path, options)
    recording, _ = sound.located(audio, path.parent)
    return f"{title}.mp3", sound.mp3(recording, audio, covered)


def preview(path: Path, form: Format, options: ExportOptions) -> str:
    """Return the beginning of the file, of Word that of its paragraphs. Raises InputError, WitnessError."""
    if form.about.sound:  # the page on the desk looks the same; the options change its text
        form = Format.TXT
    _, written = content(path, form, options)
    if form == Format.DOCX:
        import docx

        return "\n".join(part.text for part in docx.Document(io.BytesIO(written)).paragraphs)[:EXCERPT]
    return written.decode("utf-8", "replace")[:EXCERPT]


def _styled(path: Path, options: ExportOptions) -> tuple[Transcript, str, Spans]:
    """Return the transcript with the options, its title, and the stretches whose sound a tone covers."""
    transcript = store.read(path).styled(options.style)
    if options.names != "anonymous":
        return transcript, store.base_name(path), ()
    without_names = anonymous.anonymize(transcript, options.hidden)
    return without_names.transcript, without_names.title, without_names.covered
