"""A transcript as somebody wants to take it away: a format, with or without times and names, or its sound."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from witness.audio import sound
from witness.formats import output_paths, writers
from witness.formats.registry import Format
from witness.options import PageAudio
from witness.schema import Spans, Transcript
from witness.serve.editing.export_options import ExportOptions
from witness.transcript import anonymous, store

AS_IT_IS = ExportOptions()
EXCERPT = 4000
"""Characters of a preview."""


@dataclass(frozen=True)
class _Taken:
    transcript: Transcript
    title: str
    covered: Spans = ()


def _take(path: Path, wanted: ExportOptions) -> _Taken:
    transcript = store.read(path).styled(wanted.style)
    if wanted.names != "anonymous":
        return _Taken(transcript, store.name(path))
    found = anonymous.anonymous(transcript, wanted.hidden)
    return _Taken(found.transcript, found.title, found.covered)


def content(path: Path, form: Format, wanted: ExportOptions) -> tuple[str, bytes]:
    """Name and content of the file of a format; a page has its sound inside if it is short.

    Raises InputError, WitnessError.
    """
    output_paths.check_libraries([form])
    if form == Format.JSON and wanted == AS_IT_IS:
        return output_paths.name_of(store.name(path), form), store.content(path)
    taken = _take(path, wanted)
    audio = store.read(path).audio
    short = audio.transcribed.duration < sound.EMBEDDED
    how = PageAudio.EMBED if short else PageAudio.NONE
    heard = sound.take(audio, [(form, None)], how, beside=path.parent, covered=taken.covered)
    called = output_paths.name_of(taken.title, form)
    return called, writers.content(taken.transcript, form, heard, path.with_name(called))


def audible(path: Path, wanted: ExportOptions) -> tuple[str, bytes]:
    """Name and content of the recording as MP3; a tone covers names if they are left out.

    Raises InputError, OutputError.
    """
    audio = store.read(path).audio
    taken = _take(path, wanted)
    there, _ = sound.located(audio, path.parent)
    return f"{taken.title}.mp3", sound.mp3(there, audio, taken.covered)


def preview(path: Path, form: Format, wanted: ExportOptions) -> str:
    """How the file begins; of Word the text of its paragraphs. Raises InputError, WitnessError."""
    if form.about.sound:  # the page looks as on the desk; its text is what the options change
        form = Format.TXT
    _, written = content(path, form, wanted)
    if form == Format.DOCX:
        import docx

        return "\n".join(part.text for part in docx.Document(io.BytesIO(written)).paragraphs)[:EXCERPT]
    return written.decode("utf-8", "replace")[:EXCERPT]
