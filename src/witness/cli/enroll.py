"""`witness enroll`: a voice to recognize later."""

from __future__ import annotations

from pathlib import Path

import click

from witness.cli import options
from witness.options import Channels, Options


@click.command("enroll", short_help="Keep the voice of a person, to name them later.")
@click.argument("name")
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
@click.option(
    "--known", default="known", show_default=True, metavar="DIR", help="Folder to keep the voice in."
)
@options.MODELS
@options.OFFLINE
@options.QUIET
def enroll_command(
    name: str, recordings: tuple[str, ...], known: str, models: str, offline: bool, quiet: bool
) -> None:
    """Keep the voice of NAME, the only speaker of each RECORDING, for `--known DIR`.

    It takes 10 s or more of clean speech. The voice is a small file; delete it to forget the person.
    """
    from witness.diarization import voices
    from witness.enroll import enroll
    from witness.pipeline import Engine

    wanted = Options(models=models, whisper="none", channels=Channels.MIX, offline=offline)
    voices.place(voices.check_name(name), Path(known))  # refused before the work
    with options.progress(quiet) as reporter:
        engine = Engine(wanted, progress=reporter.progress, note=reporter.note)
        voice = enroll(name, recordings, engine, reporter)
    options.say(str(voices.write(voice, Path(known))))
