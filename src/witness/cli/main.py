"""The command line: options -> Options and Runtime, errors -> exit codes, results -> stdout.

Everything heavy is imported inside the commands, so that `--help` answers in a blink.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from witness import files
from witness._version import __version__
from witness.child import SINGLE_THREADED
from witness.cli import bench, gpu, models, options
from witness.errors import UsageError, WitnessError
from witness.reporter import Reporter

if TYPE_CHECKING:
    from witness.audio import sound
    from witness.batch.batch import Status
    from witness.options import Options
    from witness.schema import Transcript

INTERRUPTED = 130
SOME_FAILED = 3
SILENCE = 30.0  # seconds between two lines about a batch in a log


class _DefaultRun(click.Group):
    """A group that takes whatever is no command of its own as arguments of `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {"--help", "-h", "--version", *self.commands}
        if args and args[0] not in own:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_DefaultRun,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="witness")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A transcript that says who spoke.

    \b
    witness call.wav                          the transcript, on stdout
    witness call.wav -f srt -f json -o out/   out/call.srt and out/call.json
    witness run --help                        all options of the above
    """
    options.help_alone(ctx)


@cli.command()
@click.argument("recording", type=click.Path(allow_dash=True))
@click.option(
    "-f",
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(options.FORMATS),
    help="Repeatable. [default: txt]",
)
@click.option(
    "-o",
    "--output",
    "to",
    metavar="PATH",
    help="A folder, a file, or - for stdout. [default: -]",
)
@options.speakers
@options.MODELS
@click.option(
    "--whisper",
    default="auto",
    show_default=True,
    metavar="auto|none|NAME|FILE",
    help="The model that recognises words; `witness models list` has the names.",
)
@click.option("--language", metavar="CODE", help="en, de, ja, ... [default: found out]")
@click.option(
    "--channels",
    type=click.Choice(["auto", "mix", "split"]),
    default="auto",
    show_default=True,
    help="All channels as one, or speakers of each by themselves; auto: so if they are the sides of a call.",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "migraphx"]),
    default="auto",
    show_default=True,
    help="What runs the voice model; migraphx is strict.",
)
@options.GPU
@options.PRECISION
@options.FAST
@options.THREADS
@click.option("--serial", is_flag=True, help="Recognise words after the speakers, not beside them.")
@click.option("--parallel", is_flag=True, help="Beside them, even if the GPU seems too small for both.")
@options.OFFLINE
@click.option("--known", metavar="DIR", help="Name the people whose voices `witness enroll` put there.")
@options.HTML_AUDIO
@click.option("--no-stages", is_flag=True, help="Keep nothing for `witness redo` beside a JSON file.")
@click.option(
    "--profile",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write where the time went: our stages and onnxruntime's trace, for ui.perfetto.dev.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr; errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Also how sure the number of speakers is, on stderr.")
def run(
    recording: str,
    formats: tuple[str, ...],
    to: str | None,
    profile: Path | None,
    quiet: bool,
    verbose: bool,
    no_stages: bool,
    html_audio: sound.How | None,
    **settings: Any,
) -> None:
    """Transcribe RECORDING (any audio or video file; - for stdin) and say who spoke."""
    from witness.formats import writers

    targets = files.plan(recording, formats, to)
    with _profile(profile):
        try:
            with options.progress(quiet) as reporter:
                transcript = _transcribe(recording, settings, reporter)
                if verbose:
                    for count in transcript.counts:
                        reporter.note(f"number of speakers: {count}")
                from witness.audio import (
                    sound,  # not before: it imports what decodes, and whisper starts first
                )

                heard = sound.take(transcript.audio, targets.files, html_audio or "auto", reporter=reporter)
        except BaseException:
            targets.give_up()
            raise
        writers.save(transcript, targets.files, keep=not no_stages, sound=heard)
    failure = transcript.failure
    code = 0 if failure is None else _complain(f"no words: {failure}", failure.exit_code)
    if code:
        raise SystemExit(code)


@contextmanager
def _profile(path: Path | None) -> Iterator[None]:
    """Write a profile of what is done inside to `path`, if there is one to write."""
    if path is None:
        yield
        return
    from tempfile import TemporaryDirectory

    from witness import tracing

    with TemporaryDirectory(prefix="witness-") as folder, tracing.recording(Path(folder)) as trace:
        yield
        files.write(trace.document().encode(), path)


def _transcribe(recording: str, settings: dict[str, Any], reporter: Reporter) -> Transcript:
    from witness.options import Runtime
    from witness.pipeline import transcribe

    runtime = Runtime(
        device=settings["device"],
        gpu=settings["gpu"],
        threads=settings["threads"] or 0,
        serial=settings["serial"],
        parallel=settings["parallel"],
    )
    return transcribe(recording, _options(settings), runtime, progress=reporter.progress, note=reporter.note)


def _options(settings: dict[str, Any]) -> Options:
    from witness.options import Options

    return Options(
        models=settings["models"],
        whisper=settings["whisper"],
        language=settings["language"],
        speakers=settings["speakers"],
        min_speakers=settings["min_speakers"],
        max_speakers=settings["max_speakers"],
        channels=settings["channels"],
        precision=settings["precision"],
        fast=settings["fast"],
        offline=settings["offline"],
        known=settings["known"],
    )


@cli.command("batch")
@click.argument("inputs", nargs=-1, required=True, metavar="IN...")
@click.option("-o", "--output", "to", required=True, type=click.Path(path_type=Path), help="A folder.")
@click.option(
    "-f",
    "--format",
    "formats",
    multiple=True,
    default=("json", "txt"),
    show_default=True,
    type=click.Choice(options.FORMATS),
    help="Repeatable.",
)
@click.option(
    "--jobs", type=click.IntRange(1, options.MOST), help="Recordings at a time. [default: one a core]"
)
@click.option("--gpu", "gpus", default="0", show_default=True, metavar="0,1,...", help="Which cards.")
@click.option("--force", is_flag=True, help="Also what is done already.")
@click.option("--retry-failed", is_flag=True, help="Also what failed before.")
@click.option("--limit-time", type=click.FloatRange(0, min_open=True), help="Seconds for one recording.")
@click.option("--watch", is_flag=True, help="Go on with recordings that appear, once they stop growing.")
@click.option("--scheduler", metavar="tcp://HOST:PORT", help="Run on a Dask cluster that shares the folders.")
def batch_command(
    inputs: tuple[str, ...],
    to: Path,
    formats: tuple[str, ...],
    jobs: int | None,
    gpus: str,
    force: bool,
    retry_failed: bool,
    limit_time: float | None,
    watch: bool,
    scheduler: str | None,
    no_stages: bool,
    html_audio: sound.How | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Transcribe every recording of IN (files, folders, patterns) into the same tree below a folder.

    What is done already, by content and settings, is left alone: the same command goes on after a break.
    One bad file stops nothing; report.json and the table at the end name it. Exit code 3 if any failed.
    """
    from witness.batch import batch, pool

    cards = _numbers(gpus) if settings["device"] == "migraphx" else []
    with batch.locked(to), options.progress(quiet) as reporter:
        settled = batch.settle(
            _options(settings),
            keep=not no_stages,
            html_audio=html_audio or "auto",
            reporter=reporter,
        )
        work = batch.Batch(
            inputs,
            to,
            formats,
            settled,
            force=force,
            retry_failed=retry_failed,
            limit=limit_time,
            watch=watch,
        )
        tell = _tell(reporter)
        try:
            if scheduler is not None:
                from witness.batch import cluster

                with cluster.connect(scheduler, reporter) as submit:
                    work.run(submit, {"device": settings["device"]}, tell=tell, reporter=reporter)
            else:
                slots = batch.slots(jobs, cards, options.MOST if watch else len(work.todo), pool.memory())
                if jobs is not None and len(slots) < min(jobs, len(work.todo)):
                    reporter.note(f"{len(slots)} at a time: there is memory for no more")
                runtime = batch.runtime(len(slots), settings["device"], settings["threads"])
                with pool.Pool(slots) as workers:
                    work.run(workers.submit, runtime, tell=tell, reporter=reporter)
        except (KeyboardInterrupt, SystemExit):
            reporter.note(f"{work.summary()['left']} recordings are left; the same command goes on with them")
            raise
    files.write(work.table().encode("utf-8", "replace"), None)
    if work.summary()["failed"]:
        raise SystemExit(SOME_FAILED)


def _numbers(given: str) -> list[int]:
    if not all(part.strip().isdigit() for part in given.split(",")):
        raise UsageError(f"--gpu {given}: write it as 0 or 0,1")
    return [int(part) for part in given.split(",")]


def _tell(reporter: Reporter) -> Callable[[Status], None]:
    """How far a batch is: a bar on a terminal, and a line every half minute everywhere."""
    said = time.monotonic()

    def tell(status: Status) -> None:
        nonlocal said
        reporter.progress("recordings", status.files, status.total)
        if time.monotonic() - said > SILENCE:
            said = time.monotonic()
            hours = f"{status.audio / 3600:.2f} h of audio"
            left = "" if status.left is None else f", about {timedelta(seconds=round(status.left))} left"
            line = f"{status.files} of {status.total} recordings, {hours}, {status.failed} failed{left}"
            reporter.note(line)

    return tell


# Whatever else `run` may be told about a recording, `batch` may be told about all of them.
NOT_IN_BATCH = {"recording", "formats", "to", "gpu", "serial", "parallel", "profile", "verbose"}
batch_command.params += [option for option in run.params if option.name not in NOT_IN_BATCH]


@cli.command("enroll")
@click.argument("name")
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
@click.option("--known", default="known", show_default=True, metavar="DIR", help="Where to keep the voice.")
@click.option("--models", default="auto", show_default=True, metavar="auto|builtin|DIR", help="As in run.")
@options.OFFLINE
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr; errors only.")
def enroll_command(
    name: str, recordings: tuple[str, ...], known: str, models: str, offline: bool, quiet: bool
) -> None:
    """Keep the voice of NAME, who alone speaks in RECORDING, for `--known DIR`.

    It takes 10 s of clean speech or more. The voice is a small file; delete it, and it is forgotten.
    """
    from witness.diarization import voices
    from witness.enroll import enroll
    from witness.options import Channels, Options
    from witness.pipeline import Engine

    wanted = Options(models=models, whisper="none", channels=Channels.MIX, offline=offline)
    with options.progress(quiet) as reporter:
        voice = enroll(name, recordings, Engine(wanted, progress=reporter.progress, note=reporter.note))
    click.echo(voices.write(voice, Path(known)))


@cli.command("redo")
@click.argument("transcript", type=click.Path(path_type=Path))
@options.speakers
@click.option("--merge", "merges", multiple=True, metavar="A,B", help="These are one speaker. Repeatable.")
@click.option("--name", "names", multiple=True, metavar="ID=NAME", help="Who a speaker is. Repeatable.")
@click.option(
    "--corrections",
    "saved",
    multiple=True,
    type=click.Path(path_type=Path),
    help="What was corrected in a page and saved there. Repeatable.",
)
@click.option("--forget", is_flag=True, help="Drop all corrections of earlier redos.")
@click.option(
    "-f", "--format", "formats", multiple=True, type=click.Choice(options.FORMATS), help="Also write these."
)
@click.option("-o", "--output", "to", metavar="PATH", help="Where. [default: beside TRANSCRIPT]")
@options.HTML_AUDIO
@click.option("-q", "--quiet", is_flag=True, help="No notes on stderr; errors only.")
def redo_command(
    transcript: Path,
    merges: tuple[str, ...],
    names: tuple[str, ...],
    saved: tuple[Path, ...],
    forget: bool,
    formats: tuple[str, ...],
    to: str | None,
    html_audio: sound.How | None,
    quiet: bool,
    **asked: int | None,
) -> None:
    """Make TRANSCRIPT (a JSON file) anew: other number of speakers, names, merges; nothing is recognised.

    The JSON is replaced, and keeps the corrections for later redos. Without -f and -o the text goes to
    stdout. It needs the file with the stages that lies beside the JSON.
    """
    from witness.audio import sound
    from witness.formats import writers
    from witness.options import Bounds
    from witness.transcript import redo

    kept = redo.read(transcript)
    corrections = [new for file in saved for new in redo.from_file(kept, file)]
    corrections += [new for given in merges for new in redo.merging(kept, given)]
    corrections += [redo.naming(kept, given) for given in names]
    others = tuple(form for form in formats if form != "json" or to is not None)
    if others and to is None:
        to = f"{transcript.parent}{os.sep}"
    targets = files.plan(str(transcript), others, to)
    with options.progress(quiet) as reporter:
        found = redo.redo(kept, Bounds(**asked), corrections, forget=forget, reporter=reporter)
        heard = sound.take(
            found.audio,
            targets.files,
            html_audio or "auto",
            beside=transcript.parent,
            reporter=reporter,
        )
    redo.replace(kept, found)
    if others or not formats:
        writers.save(found, targets.files, sound=heard)


@cli.command()
@click.argument("reference", type=click.Path(path_type=Path))
@click.argument("hypothesis", type=click.Path(path_type=Path))
@click.option("--uem", type=click.Path(path_type=Path), help="Score these parts of the recordings only.")
@click.option("--against", type=click.Path(path_type=Path), help="Another hypothesis, compared in pairs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--csv", "as_csv", is_flag=True, help="A row a recording.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Also write a page.")
def score(
    reference: Path,
    hypothesis: Path,
    uem: Path | None,
    against: Path | None,
    as_json: bool,
    as_csv: bool,
    html: Path | None,
) -> None:
    """Score HYPOTHESIS against REFERENCE: RTTM files, or folders of them.

    DER under every convention by its name, JER and speaker counts, with 95 % intervals over files. A
    recording that the hypothesis lacks counts as all missed. Needs the extra `bench`.
    """
    from witness.bench import score_report, scoring

    if as_json and as_csv:
        raise UsageError("--json or --csv, not both")
    there, found = scoring.read(reference), scoring.read(hypothesis)
    parts = None if uem is None else scoring.read_uem(uem)
    with options.progress(quiet=False) as reporter:
        scores = scoring.score(scoring.pair(there, found), parts, reporter=reporter)
        others = None
        if against is not None:
            others = scoring.score(scoring.pair(there, scoring.read(against)), parts, reporter=reporter)
        if len(there) > 1 or len(found) > 1:
            options.note_unpaired(reporter, set(there) - set(found), "are not in the hypothesis: all missed")
            options.note_unpaired(reporter, set(found) - set(there), "are not in the reference: not scored")
    form = score_report.to_json if as_json else score_report.to_csv if as_csv else score_report.to_text
    if html is not None:
        files.write(score_report.to_html(scores, others).encode("utf-8", "replace"), html)
    files.write(form(scores, others).encode(), None)


@cli.command("doctor")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document, without private data; for bug reports."
)
def doctor_command(as_json: bool) -> None:
    """Every part of this machine that Witness can use: found or not, why not, and the cure.

    Exit code 1 if something is broken that is needed here: what the CPU takes and, with a card that AMD lists
    for MIGraphX, the way to it.
    """
    from witness.doctor import checks

    report = checks.examine()
    files.write((checks.to_json if as_json else checks.to_text)(report).encode(), None)
    if not checks.healthy(report):
        broken = dict.fromkeys(check.name for check in report if check.ok is False)
        raise WitnessError(f"broken: {', '.join(broken)}; the cures are in the report")


for _command in (bench.bench, models.models_group, gpu.gpu_group, gpu.probe):
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and end the process. The one place where errors become exit codes."""
    for name, value in SINGLE_THREADED.items():
        os.environ.setdefault(name, value)
    code = 0
    try:
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), _stop)
        if "_WITNESS_COMPLETE" in os.environ:  # the shell asks for completions
            cli.main(prog_name="witness")
        # Not cli.main: it ends the process for a broken pipe, and prints an empty line for Ctrl-C.
        with cli.make_context("witness", list(sys.argv[1:] if args is None else args)) as context:
            cli.invoke(context)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except WitnessError as error:
        code = _complain(str(error), error.exit_code)
    except click.UsageError as error:
        code = _complain(f"{error.format_message()} (witness --help)", error.exit_code)
    except click.ClickException as error:
        code = _complain(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # once is enough
        code = _complain("interrupted; what was being made was not written", INTERRUPTED)
    except BrokenPipeError:
        # What is left in the buffer must not fail again while the interpreter shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        code = _complain(f"{error.filename or 'stdout'}: {error.strerror}; make room or rights there", 1)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except Exception as error:
        if os.environ.get("WITNESS_DEBUG"):
            raise
        code = _complain(f"{type(error).__name__}: {error}; WITNESS_DEBUG=1 shows where, please report it", 1)
    sys.exit(code)


def _stop(number: int, _frame: object) -> None:
    """SIGTERM and SIGHUP: leave through every `finally`, so that nothing stays behind."""
    raise SystemExit(128 + number)


def _complain(message: str, code: int) -> int:
    line = " ".join(message.split())
    if sys.stderr is not None:  # print would take stdout instead
        with suppress(OSError):
            print(f"witness: {line}", file=sys.stderr)  # noqa: T201
    return code
