"""`witness run`: one recording."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from witness import files
from witness.cli import options
from witness.errors import WitnessError
from witness.options import Bounds, Device, Options, PageAudio, Runtime
from witness.reporter import Reporter
from witness.text import count as number

if TYPE_CHECKING:
    from witness.schema import Transcript


class NoWordsError(WitnessError):
    """The speakers were delivered, but the words failed; the exit code is that of the failure."""

    def __init__(self, failure: WitnessError) -> None:
        super().__init__(f"no words: {failure}")
        self.exit_code = failure.exit_code


@click.command()
@click.argument("recording", type=click.Path(allow_dash=True))
@options.formats("Format to write; repeatable. [default: txt]")
@click.option("-o", "--output", "to", metavar="PATH", help="Folder, file, or - for stdout. [default: -]")
@options.transcript
@options.DEVICE
@options.GPU
@options.THREADS
@click.option("--serial", is_flag=True, help="Recognize words after the speakers, not at the same time.")
@click.option(
    "--parallel",
    is_flag=True,
    help="Do both at the same time, even on the same cores or on a GPU with little memory.",
)
@options.HTML_AUDIO
@options.PAUSES
@options.NO_STAGES
@click.option(
    "--profile",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a trace of where the time went, for ui.perfetto.dev.",
)
@options.QUIET
@click.option("-v", "--verbose", is_flag=True, help="Also print how certain the number of speakers is.")
def run(
    recording: str,
    formats: tuple[str, ...],
    to: str | None,
    device: str,
    gpu: int | None,
    threads: int | None,
    serial: bool,
    parallel: bool,
    html_audio: str,
    pauses: float | None,
    no_stages: bool,
    profile: Path | None,
    quiet: bool,
    verbose: bool,
    **asked: Any,
) -> None:
    """Transcribe RECORDING (any audio or video file, or - for stdin) and say who spoke."""
    wanted = Options(**asked)
    runtime = Runtime(Device(device), gpu, threads or 0, serial, parallel)
    targets = files.plan(recording, formats, to)
    with _profile(profile):
        try:
            with options.progress(quiet) as reporter:
                from witness.pipeline import transcribe

                transcript = transcribe(
                    recording, wanted, runtime, progress=reporter.progress, note=reporter.note
                )
                _tell_of_a_tie(transcript, None if no_stages else targets.json, reporter)
                if verbose:
                    for count in transcript.counts:
                        reporter.note(f"number of speakers: {count}")
                # Not before: it imports what decodes, and whisper starts first.
                from witness.audio import sound

                audio = PageAudio(html_audio)
                heard = sound.take(transcript.audio, targets.files, audio, reporter=reporter)
        except BaseException:
            targets.give_up()
            raise
        from witness.formats import writers

        writers.save(transcript, targets.files, keep=not no_stages, sound=heard, pauses=pauses)
    if transcript.failure is not None:
        raise NoWordsError(transcript.failure)


def _tell_of_a_tie(transcript: Transcript, kept: Path | None, reporter: Reporter) -> None:
    """Note the number of speakers that is nearly as likely. `kept`: the JSON file that redo can work from."""
    if transcript.asked != Bounds() or len(transcript.counts) != 1:
        return  # it was asked for, or each side of a call has its own
    (count,) = transcript.counts
    if count.close:
        again = "" if kept is None else f"witness redo {shlex.quote(str(kept))} "
        other = count.runner_up
        reporter.note(f"{number(count.found, 'speaker')}, or perhaps {other}: `{again}--speakers {other}`")


@contextmanager
def _profile(path: Path | None) -> Iterator[None]:
    """Write a trace of what is done inside to `path`, if there is one."""
    if path is None:
        yield
        return
    from tempfile import TemporaryDirectory

    from witness import tracing

    with TemporaryDirectory(prefix="witness-") as folder, tracing.recording(Path(folder)) as trace:
        yield
        files.write(trace.document().encode(), path)
