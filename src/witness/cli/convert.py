"""`witness convert`: finished transcripts in other formats."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from witness import files
from witness.cli import options
from witness.errors import InputError, PartlyFailedError, UsageError
from witness.formats.registry import Format
from witness.options import PageAudio
from witness.reporter import Reporter

if TYPE_CHECKING:
    from witness.transcript.document import Found

NOTHING = "there is no transcript here; name JSON files that Witness wrote, or folders of them"


@click.command("convert", short_help="Write finished transcripts in other formats.")
@click.argument("inputs", nargs=-1, required=True, metavar="TRANSCRIPT...")
@options.formats("Format to write; repeatable.")
@click.option("-o", "--output", "to", metavar="PATH", help="Folder, file, or -. [default: beside TRANSCRIPT]")
@options.HTML_AUDIO
@options.PAUSES
@options.QUIET
def convert_command(
    inputs: tuple[str, ...],
    formats: tuple[str, ...],
    to: str | None,
    html_audio: str,
    pauses: float | None,
    quiet: bool,
) -> None:
    """Write each TRANSCRIPT (a JSON file, a folder of them, or a pattern) in other formats.

    The JSON is all that is needed: no recording and no model. Of several files, those that are not
    transcripts are skipped, and a damaged one does not stop the others (exit code 3). Without -f and -o, the
    text of a single transcript goes to stdout.
    """
    from witness.transcript import document

    if Format.JSON in formats and to is None:
        raise UsageError("a transcript is JSON already; choose another format, or another folder with -o")
    found = document.find(inputs)
    if not found:
        raise UsageError(NOTHING)
    with options.progress(quiet) as reporter:
        convert = partial(
            _convert, formats=formats, html_audio=PageAudio(html_audio), pauses=pauses, reporter=reporter
        )
        if len(found) == 1 and not Path(inputs[0]).is_dir():
            path = found[0].path
            convert(path, f"{path.parent}{os.sep}" if to is None and formats else to)
            return
        if not formats or to == "-" or (to and (Path(to).is_file() or files.format_of(Path(to).name))):
            raise UsageError("several transcripts need a format (-f) and, if not beside them, a folder (-o)")
        _convert_all(found, to, convert, reporter)


def _convert_all(
    found: Sequence[Found], to: str | None, convert: Callable[[Path, str], None], reporter: Reporter
) -> None:
    """Convert what is found, beside it or in the same tree in `to`. Raises PartlyFailedError, UsageError."""
    from witness.transcript.document import OtherJsonError

    made: dict[tuple[Path, str], Path] = {}
    failed: list[str] = []
    others = 0
    for number, one in enumerate(found):
        reporter.progress("transcripts", number, len(found))
        folder = one.path.parent if to is None else Path(to) / one.folder
        first = made.setdefault((folder, one.path.stem), one.path)
        try:
            if first != one.path:
                raise InputError(f"{one.path}: {first} has the same name; convert them to different folders")
            convert(one.path, f"{folder}{os.sep}")
        except OtherJsonError:
            del made[folder, one.path.stem]
            others += 1
        except InputError as error:
            failed.append(str(error))
            reporter.note(f"failed: {error}")
    if others == len(found):
        raise UsageError(NOTHING)
    if others:
        reporter.note(f"{others} other JSON files were skipped")
    if failed:
        raise PartlyFailedError(f"{len(failed)} of {len(found) - others} transcripts failed: {failed[0]}")


def _convert(
    path: Path,
    to: str | None,
    *,
    formats: tuple[str, ...],
    html_audio: PageAudio,
    pauses: float | None,
    reporter: Reporter,
) -> None:
    """Write one transcript to its files."""
    from witness.audio import sound
    from witness.formats import writers
    from witness.transcript import document

    transcript = document.read(path).marking(pauses)
    targets = files.plan(str(path), formats, to)
    heard = sound.take(transcript.audio, targets.files, html_audio, beside=path.parent, reporter=reporter)
    writers.save(transcript, targets.files, sound=heard)
