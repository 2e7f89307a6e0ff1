"""`witness convert`: finished transcripts in other formats."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from witness.cli import options
from witness.errors import InputError, OtherJsonError, PartlyFailedError, UsageError
from witness.formats import output_paths
from witness.formats.registry import Format
from witness.progress import Reporter
from witness.storage import files

NOTHING = "there is no transcript here; name JSON files that Witness wrote, or folders of them"


@click.command("convert", short_help="Write finished transcripts in other formats.")
@click.argument("inputs", nargs=-1, required=True, metavar="TRANSCRIPT...", type=options.LocalPath())
@options.formats("Format to write; repeatable.")
@options.output("Folder, file, or -. [default: beside TRANSCRIPT]")
@options.HTML_AUDIO
@options.STYLE
@options.QUIET
def convert_command(
    inputs: tuple[str, ...],
    formats: tuple[str, ...],
    to: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Write each TRANSCRIPT (a JSON file, a folder of them, or a pattern) in other formats.

    The JSON is all that is needed: no recording and no model. Of several files, those that are not
    transcripts are skipped, and a damaged one does not stop the others (exit code 3). Without -f and -o, the
    text of a single transcript goes to stdout.

    \b
    Examples:
      witness convert out/call.json -f docx
      witness convert out/ -f srt -f vtt -o subtitles/
    """
    from witness.work.produce import Caller, Job, Settings, produce

    settings = Settings(writing=options.writing(asked))
    if Format.JSON in formats and to is None:
        formats = tuple(form for form in formats if form != Format.JSON)  # that is there already
        if not formats:
            raise UsageError("a transcript is JSON already; choose another format, or another folder with -o")
    chosen = find(inputs)
    if not chosen:
        raise UsageError(NOTHING)
    with options.progress(quiet) as reporter:

        def convert(path: Path, to: str | None) -> None:
            files = output_paths.plan(str(path), formats, to)
            produce(Job(str(path), files, settings, transcript=str(path)), Caller(reporter=reporter))

        if len(chosen) == 1 and not Path(inputs[0]).is_dir():
            path = chosen[0].path
            convert(path, f"{path.parent}{os.sep}" if to is None and formats else to)
            return
        if not formats or to == "-" or (to and (Path(to).is_file() or output_paths.format_of(Path(to).name))):
            raise UsageError("several transcripts need a format (-f) and, if not beside them, a folder (-o)")
        _convert_all(chosen, to, convert, reporter)


@dataclass(frozen=True)
class Chosen:
    """A JSON file, perhaps of a transcript."""

    path: Path
    folder: Path
    """Its folder below the folder that was named; "." if it was named itself."""


def find(inputs: Sequence[str]) -> list[Chosen]:
    """Return the files that are named or match patterns, and the JSON below folders that is not hidden.

    Several folders keep their names. No file comes twice.
    """
    several = sum(map(os.path.isdir, inputs)) > 1
    chosen: dict[Path, Chosen] = {}
    for text in inputs:
        path = Path(text)
        if path.is_dir():
            if path.suffix == ".json":  # a link to a folder, under the name of a transcript
                files.refuse_link(path)
            above = Path(path.resolve().name) if several else Path()
            for file in sorted(path.rglob("*.json")):
                below = file.relative_to(path)
                if file.is_file() and not any(part.startswith(".") for part in below.parts):
                    chosen.setdefault(file.resolve(), Chosen(file, above / below.parent))
        else:
            named = path.exists() or not glob.has_magic(text)
            matches = [text] if named else sorted(glob.glob(text, recursive=True))  # noqa: PTH207
            for match in map(Path, matches):
                chosen.setdefault(match.resolve(), Chosen(match, Path()))
    return list(chosen.values())


def _convert_all(
    chosen: Sequence[Chosen], to: str | None, convert: Callable[[Path, str], None], reporter: Reporter
) -> None:
    """Convert files beside themselves or into the same tree in `to`. Raises PartlyFailedError, UsageError."""

    made: dict[tuple[Path, str], Path] = {}
    failed: list[str] = []
    others = 0
    for number, file in enumerate(chosen):
        reporter.progress("transcripts", number, len(chosen))
        folder = file.path.parent if to is None else Path(to) / file.folder
        first = made.setdefault((folder, file.path.stem), file.path)
        try:
            files.refuse_link(folder, file.path.parent if to is None else Path(to))
            if first != file.path:
                raise InputError(f"{file.path}: {first} has the same name; convert them to different folders")
            convert(file.path, f"{folder}{os.sep}")
        except OtherJsonError:
            del made[folder, file.path.stem]
            others += 1
        except InputError as error:
            failed.append(str(error))
            reporter.note(f"failed: {error}")
    if others == len(chosen):
        raise UsageError(NOTHING)
    if others:
        reporter.note(f"{others} other JSON files were skipped")
    if failed:
        raise PartlyFailedError(f"{len(failed)} of {len(chosen) - others} transcripts failed: {failed[0]}")
