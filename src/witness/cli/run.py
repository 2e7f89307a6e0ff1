"""`witness run`: one recording."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from witness.cli import options, signals
from witness.errors import OutputError, WitnessError
from witness.formats import output_paths
from witness.formats.registry import Format
from witness.options import Bounds, Options, Runtime
from witness.progress import Reporter
from witness.storage import atomic
from witness.text import count as number

if TYPE_CHECKING:
    from witness.pipeline import Engine
    from witness.schema import Transcript
    from witness.work.eta import Estimate, Workload


LIVE_FORMATS = (Format.TXT, Format.SRT)
"""Formats whose file begins with the beginning of the transcript."""


class LiveText:
    """The final part of a transcript on stdout, each byte once."""

    def __init__(
        self, form: str, style: Mapping[str, Any], aside: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """`style`: as `Transcript.styled` takes it; `aside` clears the terminal of bars meanwhile."""
        self._form, self._style, self._aside = form, style, aside
        self._printed = b""
        self._failed = False

    def hear(self, transcript: Transcript) -> None:
        """Print the new part of a transcript that is not complete; if that fails, wait for the end.

        Raises BrokenPipeError.
        """
        from witness.formats import json_document, writers

        if not self._failed:
            marked = json_document.in_milliseconds(transcript.styled(self._style))
            try:
                self._print(writers.content(marked, self._form))
            except OutputError:
                self._failed = True

    def finish(self, content: bytes, failure: WitnessError | None) -> None:
        """Print the rest of the result, or all of it after a failure. Raises OutputError, BrokenPipeError."""
        if failure is not None:
            self._printed = b""
        self._print(content)

    def _print(self, content: bytes) -> None:
        if not content.startswith(self._printed):
            raise OutputError(
                "the text on stdout is not how the transcript begins; this is a bug, please report it; fix: "
                "transcribe the recording again with -o FOLDER"
            )
        with self._aside():
            atomic.write(content[len(self._printed) :], None)
        self._printed = content


class RunCourse:
    """Progress of a run: its stages weighted by their times in the last run with the same workload."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        """Set before the run begins."""
        self._workload: Workload | None = None
        self._estimate: Estimate | None = None

    def hear(self, stage: str, done: float, total: float) -> options.Left | None:
        from witness.work import eta, produce

        if self.engine is None or stage not in eta.STAGES:
            return None
        if self._estimate is None:
            self._workload = eta.Workload(produce.settings_of(self.engine), warm=False)
            self._estimate = eta.start_estimate(self._workload)
        self._estimate.update(stage, done, total)
        return options.Left(self._estimate.share, self._estimate.left)

    def learn(self) -> None:
        """Remember the times of a run without interruption."""
        from witness.work import eta

        if self._workload is not None and self._estimate is not None:
            eta.remember(self._workload, self._estimate)


class NoWordsError(WitnessError):
    """The speakers were delivered, but the words failed; the exit code is that of the failure."""

    def __init__(self, failure: WitnessError) -> None:
        super().__init__(f"no words: {failure}")
        self.exit_code = failure.exit_code


class _OneRecording(options.Command):
    """A command that refuses a second recording, or a misspelled command, with advice."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        words = " ".join(shlex.quote(arg) for arg in args)
        super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            first = ctx.params["recording"]
            if not os.path.exists(first):  # noqa: PTH110 - Path raises for names that no file can have
                ctx.fail(f"{first!r} is neither a command nor a recording that is there")
            where = " -o FOLDER" if ctx.params["to"] is None else ""
            ctx.fail(f"this takes one recording; for several: witness batch {words}{where}")
        return ctx.args


@click.command(cls=_OneRecording, short_help="Transcribe a recording and say who spoke.")
@click.argument("recording", type=click.Path(allow_dash=True))
@options.formats("Format to write; repeatable. [default: txt]")
@options.output("Folder, file, or - for stdout. [default: -]")
@options.transcript
@options.DEVICE
@options.GPU
@options.THREADS
@options.flag("--serial", "Recognize words after the speakers, not at the same time.")
@options.flag(
    "--parallel", "Do both at the same time, even on the same cores or on a GPU with little memory."
)
@options.HTML_AUDIO
@options.STYLE
@options.NO_STAGES
@options.flag("--force", "Replace files that are in the way, corrected transcripts included.")
@click.option(
    "--profile",
    type=options.LocalPath(path_type=Path, dir_okay=False),
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
    force: bool,
    profile: Path | None,
    quiet: bool,
    verbose: bool,
    **asked: Any,
) -> None:
    """Transcribe RECORDING (any audio or video file, or - for stdin) and say who spoke.

    \b
    Examples:
      witness call.wav --speakers 2
      witness call.wav --whisper small -f docx -f json -o out/
    """
    writing, runtime = options.writing(asked), options.take(Runtime, asked)
    choices = Options(**asked)
    targets = output_paths.plan(recording, formats, to, spare=not force)
    failure: WitnessError | None = None
    with _profile(profile):
        with options.progress(quiet, verbose, course := RunCourse()) as reporter:
            if not force and (line := output_paths.unusual_name(recording, to, targets)) is not None:
                reporter.note(line)
            from witness.pipeline import Engine
            from witness.work.produce import Caller, Job, Settings, produce

            engine = course.engine = Engine(
                choices, runtime, progress=reporter.progress, note=reporter.note, cancel=signals.arrived
            )
            (form, file), *_ = targets
            live = (
                LiveText(form, writing.style, reporter.aside)
                if file is None and form in LIVE_FORMATS
                else None
            )

            def recognized(transcript: Transcript) -> None:
                nonlocal failure
                failure = transcript.failure
                if transcript.turns and not transcript.utterances:  # a beep, or a cough
                    reporter.note("no words were found in this recording")
                json = next((file for form, file in targets if form == Format.JSON), None)
                _note_tie(transcript, json if writing.keep_findings else None, reporter)
                if verbose:
                    for count in transcript.counts:
                        reporter.note(f"number of speakers: {count}")

            job = Job(recording, targets, Settings(choices, runtime, writing=writing), force=force)
            caller = Caller(lambda: engine, reporter, recognized=recognized)
            if live is not None:
                caller = replace(caller, heard=live.hear, show=lambda content: live.finish(content, failure))
            outcome = produce(job, caller)
        if failure is None and not outcome.resumed:
            course.learn()
    if failure is not None:
        raise NoWordsError(failure)


def _note_tie(transcript: Transcript, kept: Path | None, reporter: Reporter) -> None:
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
    """Write a trace of the body to `path`, if there is one."""
    if path is None:
        yield
        return
    from tempfile import TemporaryDirectory

    from witness import tracing

    with TemporaryDirectory(prefix="witness-") as folder, tracing.recording(Path(folder)) as trace:
        yield
        atomic.write(trace.document().encode(), path)
