"""`witness enroll`: a voice to recognize later. Refuses recordings of several people, and guesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from witness.cli import options
from witness.errors import InputError, UsageError
from witness.options import Bounds, Channels, Options
from witness.progress import SILENT, Reporter
from witness.storage import files

if TYPE_CHECKING:
    from witness.diarization.voices import Print, Voice
    from witness.pipeline import Engine


@click.command("enroll", cls=options.Command, short_help="Keep the voice of a person, to name them later.")
@click.argument("name", required=False)
@click.argument("recordings", nargs=-1, metavar="[RECORDING...]")
@options.text("--known", "DIR", "Folder to keep the voice in.", "known", type=options.LocalPath())
@options.flag("--again", "Make the voices of other models in the folder again, from their recordings.")
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

    \b
    Examples:
      witness enroll Anna anna.wav
      witness enroll --again --known voices/
    """
    from witness.diarization import voices
    from witness.pipeline import Engine

    if again == (name is not None) or (name is not None and not recordings):
        raise UsageError("give NAME and RECORDING..., or --again without them")
    choice = Options(models=models, whisper="none", channels=Channels.MIX, offline=offline)
    folder = Path(known)
    if name is not None:
        voices.path_of(voices.check_name(name), folder)  # refused before the work
    with options.progress(quiet) as reporter:
        engine = Engine(choice, progress=reporter.progress, note=reporter.note)
        made = (
            enroll_again(folder, engine, reporter)
            if name is None
            else [enroll(name, recordings, engine, reporter)]
        )
        for voice in made:
            file = str(voices.write(voice, folder))
            options.say(file)
            reporter.wrote(file)


def enroll(name: str, recordings: Sequence[str], engine: Engine, reporter: Reporter = SILENT) -> Voice:
    """Return the voice of the one person who speaks in all the recordings.

    Note a recording that may have two. Raises InputError if a recording has several speakers, too
    little speech or another voice than the first; ModelError.
    """
    from witness.diarization import voices

    name = voices.check_name(name)
    whole: Print | None = None
    for path in recordings:
        part = _only_speaker(path, engine, reporter)
        if whole is not None and engine.cohort.score(part.vector, whole.vector) < voices.THRESHOLD:
            raise InputError(f"{path} sounds like a different person than {recordings[0]}; enroll one person")
        whole = part if whole is None else whole + part
    sources = [voices.VoiceSource(str(Path(path).absolute()), files.sha256_at(path)) for path in recordings]
    return voices.enrolled(name, engine.chosen.embedding, whole, tuple(sources))


def enroll_again(folder: Path, engine: Engine, reporter: Reporter) -> Iterator[Voice]:
    """Make the voices in `folder` that are of another voice model again, from their recordings.

    Raises InputError as `voices.read_all`, and in the end for the voices that failed.
    """
    from witness.diarization import voices

    failed = []
    for voice in voices.read_all(folder):
        if voice.embedding == engine.chosen.embedding.sha256:
            continue
        try:
            yield enroll(voice.name, _unchanged(voice), engine, reporter)
        except InputError as error:
            failed.append(f"{voice.name} ({error})")
    if failed:
        raise InputError(f"{folder}: not made again: {', '.join(failed)}; fix: enroll them by name")


def _unchanged(voice: Voice) -> list[str]:
    """Return the recordings of a voice. Raises InputError if one is missing or has changed."""
    if not voice.recordings:
        raise InputError("was enrolled from a transcript, so its speech is not available here")
    for recording in voice.recordings:
        try:
            same = files.sha256_at(recording.path) == recording.sha256
        except OSError as error:
            raise InputError(f"{recording.path} cannot be read ({error.strerror})") from error
        if not same:
            raise InputError(f"{recording.path} has changed")
    return [recording.path for recording in voice.recordings]


def _only_speaker(path: str, engine: Engine, reporter: Reporter) -> Print:
    """Return the voiceprint of the only speaker of a recording. Raises InputError for none or several."""
    from witness.diarization import voices
    from witness.transcript import assemble

    transcript = engine.transcribe(path)
    speakers = sorted(transcript.speakers, key=lambda speaker: -speaker.seconds)
    if not speakers or transcript.findings is None:
        raise InputError(f"{path}: no speech was found; record the person again")
    if others := voices.others(speaker.seconds for speaker in speakers):
        raise InputError(
            f"{path}: {len(speakers)} speakers, and {others:.1f} s are not the main speaker's; "
            "cut out where the person speaks alone"
        )
    halves = list(assemble.diarize(transcript.findings, Bounds(speakers=2)).voiceprints().values())
    if len(halves) == 2 and all(half.seconds >= voices.LEAST_TO_NAME for half in halves):
        alike = engine.cohort.score(halves[0].vector, halves[1].vector)
        if alike < voices.THRESHOLD:
            raise InputError(
                f"{path}: sounds like two people (score {alike:.1f}, {voices.THRESHOLD} needed); cut out "
                "where the person speaks alone"
            )
        if any(count.close and count.runner_up == 2 for count in transcript.counts):
            reporter.note(
                f"{path}: there may be two people in it; listen, and cut out where one speaks alone"
            )
    voiceprint = assemble.diarize(transcript.findings, transcript.asked).voiceprints()[speakers[0].id]
    if not voiceprint.total.any():
        raise InputError(f"{path}: no clean speech of 1 s or more at a time; record the person again")
    return voiceprint
