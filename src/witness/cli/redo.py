"""`witness redo`: a transcript made again from its findings."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from witness.cli import options
from witness.errors import InputError
from witness.formats import output_paths
from witness.formats.registry import Format
from witness.options import Bounds, Changes
from witness.text import printable


@click.command("redo", short_help="Correct the speakers of a transcript, in seconds.")
@click.argument("transcript", type=options.PATH)
@options.speakers
@options.several("--merge", "merges", "A,B", "Make these one speaker; repeatable.")
@options.several("--name", "names", "SPEAKER=NAME", "Name a speaker: 1=Anna; repeatable.")
@options.several(
    *("--corrections", "saved", "FILE"),
    "Apply corrections that were saved from an HTML page; repeatable.",
    type=options.PATH,
)
@options.flag("--forget", "Drop corrections (not notes) and the number of speakers.")
@options.formats("Also write this format; repeatable.")
@options.output("Folder, file, or -. [default: beside TRANSCRIPT]")
@options.HTML_AUDIO
@options.REPLACE
@options.STYLE
@options.QUIET
def redo_command(
    transcript: Path,
    formats: tuple[str, ...],
    to: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Make TRANSCRIPT (a JSON file) again with another number of speakers, names or merges.

    Nothing is recognized again. The number of speakers and --forget need the .findings.npz file beside the
    JSON. The JSON is replaced and keeps the corrections for later redos. Without -f and -o, the text goes to
    stdout.

    \b
    Examples:
      witness redo out/call.json --speakers 3
      witness redo out/call.json --name SPEAKER_01=Anna -f docx
    """
    from witness.transcript import store
    from witness.work.produce import Caller, Job, Settings, produce

    writing, changes = options.writing(asked), options.take(Changes, asked)
    if (json := json_of(transcript)) != transcript:
        click.echo(f"note: the transcript is {printable(str(json))}", err=True)
        transcript = json
    store.load(transcript)  # or it does not exist
    others = tuple(form for form in formats if form != "json" or to is not None)
    if others and to is None:
        to = f"{transcript.parent}{os.sep}"
    json_alone = formats and not others
    targets = () if json_alone else output_paths.plan(str(transcript), others, to)
    job = Job(
        str(transcript),
        targets,
        Settings(writing=writing),
        transcript=str(transcript),
        changes=replace(changes, asked=Bounds(**asked)),
    )
    with options.progress(quiet) as reporter:
        produce(job, Caller(reporter=reporter))


def json_of(path: Path) -> Path:
    """Return the JSON beside another format or a recording; the path itself if it may be JSON.

    Raises InputError if there is no JSON.
    """
    from witness.audio.source import ENDINGS

    form = output_paths.format_of(path.name)
    if form == Format.JSON or not path.is_file() or (form is None and path.suffix == ""):
        return path
    stem = path.name[: -len(form.ending) - 1] if form is not None else path.stem
    near = [path.with_name(f"{name}.json") for name in dict.fromkeys((stem, path.name))]
    json = next((file for file in near if file.is_file()), None)
    if json is None and (form is not None or path.suffix[1:].lower() in ENDINGS):
        subject = "a transcript in another format" if form is not None else "a recording"
        raise InputError(
            f"{path} is {subject}, and there is no {near[0].name} beside it; give the JSON that Witness wrote"
        )
    return json or path
