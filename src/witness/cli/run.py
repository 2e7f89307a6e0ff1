"""`witness run`: one recording."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from witness.cli import options, signals
from witness.cli.live import FORMATS, LiveText, RunCourse
from witness.errors import UsageError, WitnessError
from witness.formats import output_paths
from witness.options import Bounds, Device, Options, PageAudio, Runtime
from witness.progress import Reporter
from witness.storage import atomic
from witness.storage.checkpoint import Journal
from witness.text import count as number

if TYPE_CHECKING:
    from witness.schema import Transcript


class NoWordsError(WitnessError):
    """The speakers were delivered, but the words failed; the exit code is that of the failure."""

    def __init__(self, failure: WitnessError) -> None:
        super().__init__(f"no words: {failure}")
        self.exit_code = failure.exit_code


class _OneRecording(options.Command):
    """It says what is for several recordings, and that a first word may be a command written wrongly."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        given = " ".join(shlex.quote(arg) for arg in args)
        super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            first = ctx.params["recording"]
            if not os.path.exists(first):  # noqa: PTH110 - Path raises for names that no file can have
                ctx.fail(f"{first!r} is neither a command nor a recording that is there")
            where = " -o FOLDER" if ctx.params["to"] is None else ""
            ctx.fail(f"this takes one recording; for several: witness batch {given}{where}")
        return ctx.args


@click.command(cls=_OneRecording, short_help="Transcribe a recording and say who spoke.")
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
@options.STYLE
@options.NO_STAGES
@click.option("--force", is_flag=True, help="Replace what is in the way, corrected transcripts included.")
@click.option(
    "--profile",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    callback=lambda _, __, path: options.can_be_written(path),
    help="Write a trace of where the time went, for ui.perfetto.dev.",
)
@options.QUIET
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also print how certain the number of speakers is, and every note whole.",
)
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
    no_findings: bool,
    force: bool,
    profile: Path | None,
    quiet: bool,
    verbose: bool,
    **asked: Any,
) -> None:
    """Transcribe RECORDING (any audio or video file, or - for stdin) and say who spoke."""
    style = options.style(asked)
    wanted = Options(**asked)
    runtime = Runtime(Device(device), gpu, threads or 0, serial, parallel)
    targets, remark = _planned(recording, formats, to, keep=not no_findings, force=force)
    with _profile(profile), Journal() as journal:
        try:
            live: LiveText | None = None
            with options.progress(quiet, verbose, course := RunCourse()) as reporter:
                if remark is not None:
                    reporter.note(remark)
                from witness.pipeline import Engine

                if (printed := _printed(targets)) is not None:
                    live = LiveText(printed, style, reporter.aside)
                engine = Engine(
                    wanted,
                    runtime,
                    progress=reporter.progress,
                    note=reporter.note,
                    cancel=signals.arrived,
                )
                course.engine = engine
                transcript = engine.transcribe(
                    recording, heard=None if live is None else live.hear, journal=journal
                )
                if transcript.turns and not transcript.utterances:  # a beep, or a cough
                    reporter.note("no words were found in this recording")
                _tell_of_a_tie(transcript, None if no_findings else targets.json, reporter)
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
        from witness.transcript import store

        places = targets.files
        if live is not None and not (live.begun and transcript.failure):
            live.show(transcript)
            places = tuple(place for place in places if place[1] is not None)
        left = store.save(
            transcript.styled(style), places, keep=not no_findings, sound=heard, fresh=True, force=force
        )
        if transcript.failure is None:
            journal.forget()
            if not journal.resumed:
                course.learn()
        for line in left:
            click.echo(f"note: {line}", err=True)
    if transcript.failure is not None:
        raise NoWordsError(transcript.failure)


def _printed(targets: output_paths.Targets) -> str | None:
    """The format that stdout gets, if it can be printed as it comes."""
    return next((form for form, path in targets.files if path is None and form in FORMATS), None)


def _planned(
    recording: str, formats: tuple[str, ...], to: str | None, *, keep: bool, force: bool
) -> tuple[output_paths.Targets, str | None]:
    """Where the results go, and what to say about their names. Raises UsageError, OutputError."""
    from witness.work import existing_outputs

    def free(paths: Sequence[Path]) -> bool:
        return existing_outputs.free(paths, recording)

    targets = output_paths.plan(recording, formats, to, keep=keep, free=None if force else free)
    paths = [path for _, path in targets.files if path is not None]
    if paths and not force and (loss := existing_outputs.loss(paths)) is not None:
        targets.give_up()
        raise UsageError(loss)
    usual = "stdin" if recording == "-" else output_paths.names(Path(recording).name, recording)[0]
    if not paths or not to or Path(to) in paths or paths[0].stem == usual:
        return targets, None
    taken = paths[0].with_name(f"{usual}{paths[0].suffix}")
    return targets, f"{taken} is not of this recording; this is {paths[0].name} (--force replaces it)"


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
        atomic.write(trace.document().encode(), path)
