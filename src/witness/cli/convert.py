"""`witness convert`: finished transcripts in other formats."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from witness.cli import options
from witness.errors import InputError, PartlyFailedError, UsageError
from witness.formats import output_paths
from witness.formats.registry import Format
from witness.options import PageAudio
from witness.progress import Reporter
from witness.storage import files

NOTHING = "there is no transcript here; name JSON files that Witness wrote, or folders of them"


@click.command("convert", short_help="Write finished transcripts in other formats.")
@click.argument("inputs", nargs=-1, required=True, metavar="TRANSCRIPT...")
@options.formats("Format to write; repeatable.")
@click.option("-o", "--output", "to", metavar="PATH", help="Folder, file, or -. [default: beside TRANSCRIPT]")
@options.HTML_AUDIO
@options.STYLE
@options.QUIET
def convert_command(
    inputs: tuple[str, ...],
    formats: tuple[str, ...],
    to: str | None,
    html_audio: str,
    quiet: bool,
    **style: Any,
) -> None:
    """Write each TRANSCRIPT (a JSON file, a folder of them, or a pattern) in other formats.

    The JSON is all that is needed: no recording and no model. Of several files, those that are not
    transcripts are skipped, and a damaged one does not stop the others (exit code 3). Without -f and -o, the
    text of a single transcript goes to stdout.
    """
    if Format.JSON in formats and to is None:
        formats = tuple(form for form in formats if form != Format.JSON)  # that is there already
        if not formats:
            raise UsageError("a transcript is JSON already; choose another format, or another folder with -o")
    found = find(inputs)
    if not found:
        raise UsageError(NOTHING)
    with options.progress(quiet) as reporter:
        convert = partial(
            _convert, formats=formats, html_audio=PageAudio(html_audio), style=style, reporter=reporter
        )
        if len(found) == 1 and not Path(inputs[0]).is_dir():
            path = found[0].path
            convert(path, f"{path.parent}{os.sep}" if to is None and formats else to)
            return
        if not formats or to == "-" or (to and (Path(to).is_file() or output_paths.format_of(Path(to).name))):
            raise UsageError("several transcripts need a format (-f) and, if not beside them, a folder (-o)")
        _convert_all(found, to, convert, reporter)


@dataclass(frozen=True)
class Chosen:
    """A JSON file, perhaps of a transcript."""

    path: Path
    folder: Path
    """Where it lies below the folder that was named; "." if it was named itself."""


def find(inputs: Sequence[str]) -> list[Chosen]:
    """The files that are named, those that patterns match, and the JSON below folders that is not hidden.

    Several folders keep their names. No file comes twice.
    """
    folders = [Path(given) for given in inputs if Path(given).is_dir()]
    found: dict[Path, Chosen] = {}
    for given in inputs:
        path = Path(given)
        if path.is_dir():
            if path.suffix == ".json":  # a link to a folder, under the name of a transcript
                files.refuse_link(path)
            above = Path(path.resolve().name) if len(folders) > 1 else Path()
            for file in sorted(path.rglob("*.json")):
                below = file.relative_to(path)
                if file.is_file() and not any(part.startswith(".") for part in below.parts):
                    found.setdefault(file.resolve(), Chosen(file, above / below.parent))
        else:
            named = path.exists() or not glob.has_magic(given)
            matches = [path] if named else [Path(one) for one in sorted(glob.glob(given, recursive=True))]  # noqa: PTH207
            for match in matches:
                found.setdefault(match.resolve(), Chosen(match, Path()))
    return list(found.values())


def _convert_all(
    found: Sequence[Chosen], to: str | None, convert: Callable[[Path, str], None], reporter: Reporter
) -> None:
    """Convert what is found, beside it or in the same tree in `to`. Raises PartlyFailedError, UsageError."""
    from witness.transcript.store import OtherJsonError

    made: dict[tuple[Path, str], Path] = {}
    failed: list[str] = []
    others = 0
    for number, one in enumerate(found):
        reporter.progress("transcripts", number, len(found))
        folder = one.path.parent if to is None else Path(to) / one.folder
        first = made.setdefault((folder, one.path.stem), one.path)
        try:
            files.refuse_link(folder, one.path.parent if to is None else Path(to))
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
    style: Mapping[str, Any],
    reporter: Reporter,
) -> None:
    """Write one transcript to its files."""
    from witness.work.produce import Caller, Job, Settings, job_files, produce

    targets = output_paths.plan(str(path), formats, to)
    job = Job(
        str(path),
        job_files(targets),
        Settings(html_audio=html_audio, style=style),
        transcript=str(path),
    )
    for line in produce(job, Caller(reporter=reporter)).left:
        reporter.note(line)
