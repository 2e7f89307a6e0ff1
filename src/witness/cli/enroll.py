"""`witness enroll`: a voice to recognize later."""

from __future__ import annotations

from pathlib import Path

import click

from witness.cli import options
from witness.errors import UsageError
from witness.options import Channels, Options


@click.command("enroll", short_help="Keep the voice of a person, to name them later.")
@click.argument("name", required=False)
@click.argument("recordings", nargs=-1, metavar="[RECORDING...]")
@click.option(
    "--known", default="known", show_default=True, metavar="DIR", help="Folder to keep the voice in."
)
@click.option(
    "--again",
    is_flag=True,
    help="Make the voices of other models in the folder again, from their recordings.",
)
@options.MODELS
@options.OFFLINE
@options.QUIET
def enroll_command(
    name: str | None,
    recordings: tuple[str, ...],
    known: str,
    again: bool,
    models: str,
    offline: bool,
    quiet: bool,
) -> None:
    """Keep the voice of NAME, the only speaker of each RECORDING, for `--known DIR`.

    It takes 10 s or more of clean speech. The voice is a small file; delete it to forget the person.

    A voice belongs to the models that made it. After a change of models, `witness enroll --again --known DIR`
    makes the voices again from their recordings.
    """
    from witness import enroll
    from witness.diarization import voices
    from witness.pipeline import Engine

    if again == (name is not None) or (name is not None and not recordings):
        raise UsageError("give NAME and RECORDING..., or --again without them")
    wanted = Options(models=models, whisper="none", channels=Channels.MIX, offline=offline)
    folder = Path(known)
    if name is not None:
        voices.path_of(voices.check_name(name), folder)  # refused before the work
    with options.progress(quiet) as reporter:
        engine = Engine(wanted, progress=reporter.progress, note=reporter.note)
        made = (
            enroll.again(folder, engine, reporter)
            if name is None
            else [enroll.enroll(name, recordings, engine, reporter)]
        )
        for voice in made:
            options.say(str(voices.write(voice, folder)))
