"""The command line: options -> Options and Runtime, errors -> exit codes, results -> stdout.

Everything heavy is imported inside the commands, so that `--help` answers in a blink.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from witness import __version__, output
from witness.errors import UsageError, WitnessError

if TYPE_CHECKING:
    from witness import sound
    from witness.batch import Status
    from witness.graphs import Graph
    from witness.models import ModelStatus
    from witness.pipeline import Options
    from witness.schema import Progress, Transcript

INTERRUPTED = 130
SOME_FAILED = 3
SILENCE = 30.0  # seconds between two lines about a batch in a log
MOST = 10_000  # speakers, threads: beyond it is a slip of the finger


_GPU = click.option(
    "--gpu", type=click.IntRange(0), metavar="INDEX", help="Which card, as HIP counts. [default: the best]"
)
_PRECISION = click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16"]),
    default="fp32",
    show_default=True,
    help="On the GPU; fp16 changes the result a little.",
)
_FAST = click.option(
    "--fast", is_flag=True, help="Listen to less: about a third less work, a little less accurate."
)
_LIMIT = click.option(
    "--limit",
    type=click.FloatRange(1),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop compiling after that.",
)
_MODELS = click.option(
    "--models",
    default="auto",
    show_default=True,
    metavar="auto|standard|community-1|builtin|DIR",
    help="The models that tell speakers apart.",
)
_MODEL = click.option(
    "--model", type=click.Path(path_type=Path), help="Another ONNX file with one input, instead of --models."
)
_SHAPE = click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=DIMS", help="Shape of an input: feats=1x998x80."
)
_HTML_AUDIO = click.option(
    "--html-audio",
    type=click.Choice(["embed", "link", "none"]),
    help="The sound of a page: inside, where the recording is, or none. [default: embed under 20 minutes]",
)
_OFFLINE = click.option("--offline", is_flag=True, help="Open no socket; use the models that are here.")


def _help_alone(ctx: click.Context) -> None:
    """A group called without a command shows its help, and that is no error."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


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
    _help_alone(ctx)


@cli.command()
@click.argument("recording", type=click.Path(allow_dash=True))
@click.option(
    "-f",
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(output.FORMATS),
    help="Repeatable. [default: txt]",
)
@click.option(
    "-o",
    "--output",
    "to",
    metavar="PATH",
    help="A folder, a file, or - for stdout. [default: -]",
)
@click.option(
    "--speakers", type=click.IntRange(1, MOST), help="Exactly so many speakers (with split: a channel)."
)
@click.option("--min-speakers", type=click.IntRange(1, MOST), help="At least so many.")
@click.option("--max-speakers", type=click.IntRange(1, MOST), help="At most so many.")
@_MODELS
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
@_GPU
@_PRECISION
@_FAST
@click.option("--threads", type=click.IntRange(1, MOST), help="Cores for the diarizer. [default: all]")
@click.option("--serial", is_flag=True, help="Recognise words after the speakers, not beside them.")
@click.option("--parallel", is_flag=True, help="Beside them, even if the GPU seems too small for both.")
@_OFFLINE
@click.option("--known", metavar="DIR", help="Name the people whose voices `witness enroll` put there.")
@_HTML_AUDIO
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
    from witness import writers

    targets = output.plan(recording, formats, to)
    with _profile(profile):
        try:
            with _progress(quiet) as (progress, note):
                transcript = _transcribe(recording, settings, progress, note)
                if verbose:
                    for count in transcript.counts:
                        note(f"number of speakers: {count}")
                from witness import sound  # not before: it imports what decodes, and whisper starts first

                heard = sound.take(
                    transcript.audio, targets.files, html_audio or "auto", progress=progress, note=note
                )
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
        output.write(trace.document().encode(), path)


def _transcribe(
    recording: str, settings: dict[str, Any], progress: Progress, note: Callable[[str], None]
) -> Transcript:
    from witness.pipeline import transcribe
    from witness.sessions import Runtime

    runtime = Runtime(
        device=settings["device"],
        gpu=settings["gpu"],
        threads=settings["threads"] or 0,
        serial=settings["serial"],
        parallel=settings["parallel"],
    )
    return transcribe(recording, _options(settings), runtime, progress=progress, note=note)


def _options(settings: dict[str, Any]) -> Options:
    from witness.pipeline import Options

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
    type=click.Choice(output.FORMATS),
    help="Repeatable.",
)
@click.option("--jobs", type=click.IntRange(1, MOST), help="Recordings at a time. [default: one a core]")
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
    from witness import batch, pool

    cards = _numbers(gpus) if settings["device"] == "migraphx" else []
    with batch.locked(to), _progress(quiet) as (progress, note):
        settled = batch.settle(
            _options(settings),
            keep=not no_stages,
            html_audio=html_audio or "auto",
            progress=progress,
            note=note,
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
        tell = _tell(progress, note)
        try:
            if scheduler is not None:
                from witness import cluster

                with cluster.connect(scheduler, note) as submit:
                    work.run(submit, {"device": settings["device"]}, tell=tell, note=note)
            else:
                slots = batch.slots(jobs, cards, MOST if watch else len(work.todo), pool.memory())
                if jobs is not None and len(slots) < min(jobs, len(work.todo)):
                    note(f"{len(slots)} at a time: there is memory for no more")
                runtime = batch.runtime(len(slots), settings["device"], settings["threads"])
                with pool.Pool(slots) as workers:
                    work.run(workers.submit, runtime, tell=tell, note=note)
        except (KeyboardInterrupt, SystemExit):
            note(f"{work.summary()['left']} recordings are left; the same command goes on with them")
            raise
    output.write(work.table().encode("utf-8", "replace"), None)
    if work.summary()["failed"]:
        raise SystemExit(SOME_FAILED)


def _numbers(given: str) -> list[int]:
    if not all(part.strip().isdigit() for part in given.split(",")):
        raise UsageError(f"--gpu {given}: write it as 0 or 0,1")
    return [int(part) for part in given.split(",")]


def _tell(progress: Progress, note: Callable[[str], None]) -> Callable[[Status], None]:
    """How far a batch is: a bar on a terminal, and a line every half minute everywhere."""
    said = time.monotonic()

    def tell(status: Status) -> None:
        nonlocal said
        progress("recordings", status.files, status.total)
        if time.monotonic() - said > SILENCE:
            said = time.monotonic()
            hours = f"{status.audio / 3600:.2f} h of audio"
            left = "" if status.left is None else f", about {timedelta(seconds=round(status.left))} left"
            note(f"{status.files} of {status.total} recordings, {hours}, {status.failed} failed{left}")

    return tell


# Whatever else `run` may be told about a recording, `batch` may be told about all of them.
NOT_IN_BATCH = {"recording", "formats", "to", "gpu", "serial", "parallel", "profile", "verbose"}
batch_command.params += [option for option in run.params if option.name not in NOT_IN_BATCH]


@cli.command("enroll")
@click.argument("name")
@click.argument("recordings", nargs=-1, required=True, metavar="RECORDING...")
@click.option("--known", default="known", show_default=True, metavar="DIR", help="Where to keep the voice.")
@click.option("--models", default="auto", show_default=True, metavar="auto|builtin|DIR", help="As in run.")
@_OFFLINE
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr; errors only.")
def enroll_command(
    name: str, recordings: tuple[str, ...], known: str, models: str, offline: bool, quiet: bool
) -> None:
    """Keep the voice of NAME, who alone speaks in RECORDING, for `--known DIR`.

    It takes 10 s of clean speech or more. The voice is a small file; delete it, and it is forgotten.
    """
    from witness import voices
    from witness.enroll import enroll
    from witness.pipeline import Engine, Options

    options = Options(models=models, whisper="none", channels="mix", offline=offline)
    with _progress(quiet) as (progress, note):
        voice = enroll(name, recordings, Engine(options, progress=progress, note=note))
    click.echo(voices.write(voice, Path(known)))


@cli.command("redo")
@click.argument("transcript", type=click.Path(path_type=Path))
@click.option("--speakers", type=click.IntRange(1, MOST), help="Exactly so many speakers.")
@click.option("--min-speakers", type=click.IntRange(1, MOST), help="At least so many.")
@click.option("--max-speakers", type=click.IntRange(1, MOST), help="At most so many.")
@click.option("--merge", "merges", multiple=True, metavar="A,B", help="These are one speaker. Repeatable.")
@click.option("--name", "names", multiple=True, metavar="ID=NAME", help="Who a speaker is. Repeatable.")
@click.option(
    "--corrections",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="What was corrected in a page and saved there. Repeatable.",
)
@click.option("--forget", is_flag=True, help="Drop all corrections of earlier redos.")
@click.option(
    "-f", "--format", "formats", multiple=True, type=click.Choice(output.FORMATS), help="Also write these."
)
@click.option("-o", "--output", "to", metavar="PATH", help="Where. [default: beside TRANSCRIPT]")
@_HTML_AUDIO
@click.option("-q", "--quiet", is_flag=True, help="No notes on stderr; errors only.")
def redo_command(
    transcript: Path,
    merges: tuple[str, ...],
    names: tuple[str, ...],
    files: tuple[Path, ...],
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
    from witness import redo, sound, writers
    from witness.schema import Bounds

    kept = redo.read(transcript)
    corrections = [new for file in files for new in redo.from_file(kept, file)]
    corrections += [new for given in merges for new in redo.merging(kept, given)]
    corrections += [redo.naming(kept, given) for given in names]
    others = tuple(form for form in formats if form != "json" or to is not None)
    if others and to is None:
        to = f"{transcript.parent}{os.sep}"
    targets = output.plan(str(transcript), others, to)
    with _progress(quiet) as (progress, note):
        found = redo.redo(kept, Bounds(**asked), corrections, forget=forget, note=note)
        heard = sound.take(
            found.audio,
            targets.files,
            html_audio or "auto",
            beside=transcript.parent,
            progress=progress,
            note=note,
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
    from witness import report, scoring

    if as_json and as_csv:
        raise UsageError("--json or --csv, not both")
    there, found = scoring.read(reference), scoring.read(hypothesis)
    parts = None if uem is None else scoring.read_uem(uem)
    with _progress(quiet=False) as (progress, note):
        scores = scoring.score(scoring.pair(there, found), parts, progress=progress)
        others = None
        if against is not None:
            others = scoring.score(scoring.pair(there, scoring.read(against)), parts, progress=progress)
        if len(there) > 1 or len(found) > 1:
            _note_unpaired(note, set(there) - set(found), "are not in the hypothesis: all missed")
            _note_unpaired(note, set(found) - set(there), "are not in the reference: not scored")
    form = report.to_json if as_json else report.to_csv if as_csv else report.to_text
    if html is not None:
        output.write(report.to_html(scores, others).encode("utf-8", "replace"), html)
    output.write(form(scores, others).encode(), None)


def _note_unpaired(note: Callable[[str], None], uris: set[str], what: str) -> None:
    if uris:
        some = ", ".join(sorted(uris)[:5]) + (", ..." if len(uris) > 5 else "")
        note(f"{len(uris)} recordings {what} ({some})")


@cli.command("doctor")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document, without private data; for bug reports."
)
def doctor_command(as_json: bool) -> None:
    """Every part of this machine that Witness can use: found or not, why not, and the cure.

    Exit code 1 if something is broken that is needed here: what the CPU takes and, with a card that AMD lists
    for MIGraphX, the way to it.
    """
    from witness import doctor

    checks = doctor.examine()
    output.write((doctor.to_json if as_json else doctor.to_text)(checks).encode(), None)
    if not doctor.healthy(checks):
        broken = dict.fromkeys(check.name for check in checks if check.ok is False)
        raise WitnessError(f"broken: {', '.join(broken)}; the cures are in the report")


@cli.group(invoke_without_command=True)
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Measure: how right, how fast."""
    _help_alone(ctx)


@bench.command("voxconverse")
@click.option("--audio", type=click.Path(path_type=Path), required=True, help="The folder of recordings.")
@click.option("--rttm", type=click.Path(path_type=Path), required=True, help="The folder of references.")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), required=True, help="A folder.")
@click.option("--split", type=click.Choice(["dev", "test"]), help="What it is; on test nothing is tuned.")
@click.option(
    "--tuned-on", type=click.Path(path_type=Path), help="The DEV run that settings on test are from."
)
@click.option(
    "--models",
    default="auto",
    show_default=True,
    metavar="auto|standard|community-1|builtin|DIR",
    help="As in run.",
)
@click.option("--speakers", type=click.IntRange(1, MOST), help="Exactly so many in each recording.")
@click.option("--min-speakers", type=click.IntRange(1, MOST), help="At least so many.")
@click.option("--max-speakers", type=click.IntRange(1, MOST), help="At most so many.")
@click.option("--device", type=click.Choice(["auto", "cpu", "migraphx"]), default="auto", help="As in run.")
@click.option("--threads", type=click.IntRange(1, MOST), help="Cores for the diarizer. [default: all]")
@_FAST
@_OFFLINE
def bench_voxconverse(
    audio: Path, rttm: Path, out: Path, split: str | None, tuned_on: Path | None, **settings: Any
) -> None:
    """Diarize a folder of recordings, score it, and write a report: VoxConverse, or any pair of folders.

    Stopped in the middle, the same command goes on. stdout has the scores, OUTPUT the hypotheses, what every
    recording cost, report.html, report.md, report.json and two pictures. Needs the extra `bench`.
    """
    from witness import benchmark, report
    from witness.pipeline import Options
    from witness.sessions import Runtime

    runtime = Runtime(device=settings.pop("device"), threads=settings.pop("threads") or 0)
    cases, missing = benchmark.find(audio, rttm)
    with _progress(quiet=False) as (progress, note):
        _note_unpaired(note, set(missing), "have no audio and are not scored")
        scores = benchmark.run(
            cases,
            out,
            Options(**settings),
            runtime,
            split=split,
            tuned_on=tuned_on,
            missing=missing,
            progress=progress,
            note=note,
        )
    output.write(report.to_text(scores).encode(), None)


@bench.command("speed")
@click.argument(
    "recordings", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--repeat", type=click.IntRange(1, 1000), default=3, show_default=True, help="Runs of each way."
)
@click.option("--vs-serial", is_flag=True, help="Also with the words after the speakers.")
@click.option("--vs-profile", is_flag=True, help="Also with onnxruntime's profiler on.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option(
    "--models",
    default="auto",
    show_default=True,
    metavar="auto|standard|community-1|builtin|DIR",
    help="As in run.",
)
@click.option(
    "--whisper", default="auto", show_default=True, metavar="auto|none|NAME|FILE", help="As in run."
)
@click.option("--device", type=click.Choice(["auto", "cpu", "migraphx"]), default="auto", help="As in run.")
@click.option("--threads", type=click.IntRange(1, MOST), help="Cores for the diarizer. [default: all]")
@_FAST
@_OFFLINE
def bench_speed(
    recordings: tuple[Path, ...],
    repeat: int,
    vs_serial: bool,
    vs_profile: bool,
    as_json: bool,
    device: Any,
    threads: int | None,
    **settings: Any,
) -> None:
    """Time each FILE stage by stage, in a process of its own each time. The table is on stderr."""
    from witness import speed
    from witness.pipeline import Options
    from witness.sessions import Runtime

    # Paths of models, as of a --whisper FILE: the processes work elsewhere.
    for name in ("models", "whisper"):
        if Path(settings[name]).exists():
            settings[name] = str(Path(settings[name]).absolute())
    with _progress(quiet=False) as (progress, note):
        result = speed.measure(
            recordings,
            Options(**settings),
            Runtime(device=device, threads=threads or 0),
            repeat=repeat,
            vs_serial=vs_serial,
            vs_profile=vs_profile,
            progress=progress,
            note=note,
        )
    click.echo(speed.to_text(result), err=True, nl=False)
    if as_json:
        output.write((json.dumps(result, indent=1) + "\n").encode(), None)


@bench.command("contention")
@click.argument("recording", type=click.Path())
@click.option("--models", default="auto", show_default=True, help="As in `witness run`.")
@click.option("--whisper", default="auto", show_default=True, help="As in `witness run`.")
@click.option("--language", metavar="CODE", help="As in `witness run`.")
@click.option("--device", type=click.Choice(["auto", "cpu", "migraphx"]), default="auto", help="As in `run`.")
@click.option(
    "--gpu", type=click.IntRange(0), metavar="INDEX", help="The card to use and watch. [default: the best]"
)
@click.option("--threads", type=click.IntRange(1, MOST), help="Cores for each engine. [default: all]")
@click.option("--offline", is_flag=True, help="Open no socket.")
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="How often.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with every run.")
def bench_contention(recording: str, rounds: int, as_json: bool, **settings: Any) -> None:
    """How much diarizer and whisper slow each other down on RECORDING: each alone, then both at once.

    With the time of each, and how busy an AMD card was and what memory it had in use.
    """
    from witness import contention
    from witness.pipeline import Options
    from witness.sessions import Runtime

    options = Options(
        models=settings["models"],
        whisper=settings["whisper"],
        language=settings["language"],
        offline=settings["offline"],
    )
    runtime = Runtime(device=settings["device"], gpu=settings["gpu"], threads=settings["threads"] or 0)
    with _progress(quiet=False) as (progress, note):
        found = contention.measure(recording, options, runtime, rounds, progress=progress, note=note)
    output.write((contention.to_json if as_json else contention.to_text)(found).encode(), None)


@cli.group("models", invoke_without_command=True)
@click.pass_context
def models_group(ctx: click.Context) -> None:
    """The model files: which there are, fetch them, check them."""
    _help_alone(ctx)


@models_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def models_list(as_json: bool) -> None:
    """Every file that Witness knows: name, role, size, licence, sha256, and where it lies."""
    from witness import models

    _print_models(models.list_models(), as_json)


@models_group.command("fetch")
@click.argument("names", nargs=-1)
@click.option("--force", is_flag=True, help="Also what is here already; for damaged files.")
@click.option("--offline", is_flag=True, help="Open no socket; say what is missing.")
def models_fetch(names: tuple[str, ...], force: bool, offline: bool) -> None:
    """Download NAMES (of files, or "standard"), or what a first run would, and verify them."""
    from witness import models, transcription

    gpu = transcription.has_gpu_backend()
    with _progress(quiet=False) as (progress, _):
        found = models.fetch_models(names, gpu=gpu, offline=offline, force=force, progress=progress)
    for file in found:
        click.echo(f"{file.name}\t{file.path}")


@models_group.command("verify")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def models_verify(as_json: bool) -> None:
    """Hash every file that is here. Exit code 5 if one is damaged."""
    from witness import models
    from witness.errors import ModelError

    found = models.list_models(verify=True)
    _print_models(found, as_json)
    damaged = [status.file.name for status in found if status.state == "damaged"]
    if damaged:
        cure = f"witness models fetch --force {' '.join(damaged)}"
        raise ModelError(f"damaged: {', '.join(damaged)}; cure: {cure}")


def _print_models(found: Sequence[ModelStatus], as_json: bool) -> None:
    """A line a file, or JSON."""
    rows = [{**asdict(status.file), "state": status.state, "path": status.path} for status in found]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        size = f"{row['size'] / 1e6:,.1f} MB"
        head = f"{row['name']:25} {row['role']:13}{size:>11}  {row['licence']:10} {row['state']:8}"
        click.echo(f"{head} {row['sha256']}  {row['path'] or '-'}")


@cli.group("gpu", invoke_without_command=True)
@click.pass_context
def gpu_group(ctx: click.Context) -> None:
    """The graphs that MIGraphX compiled for an AMD GPU: which there are, make them, move them."""
    _help_alone(ctx)


@gpu_group.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
def gpu_status(as_json: bool) -> None:
    """The AMD cards, and every compiled graph: for what it is, what it saves, whether it is used here."""
    from witness import warmup

    found = warmup.status()
    if as_json:
        click.echo(json.dumps(asdict(found), indent=1, default=str))
        return
    for card in found.cards:
        memory = f"{card.memory_total / 2**30:.1f} GiB"
        click.echo(f"GPU {card.index}  {card.name}  {card.gfx}  {memory}  {card.supported} for MIGraphX")
    if found.trouble:
        click.echo(found.trouble)
    for graph in found.graphs:
        click.echo(f"{graph.name}  {graph.state}")
        if graph.graph is not None:
            click.echo(f"    {_measured(graph.graph)}")
    if not found.graphs:
        click.echo("no compiled graphs; `witness gpu warm` makes them")


@gpu_group.command("warm")
@_MODELS
@_MODEL
@_SHAPE
@_GPU
@_PRECISION
@click.option("--exhaustive", is_flag=True, help="Have MIGraphX try all kernels, which takes long.")
@_LIMIT
@_OFFLINE
def gpu_warm(limit: float, exhaustive: bool, **settings: Any) -> None:
    """Compile the voice model for a card, check it against the CPU, measure both, and keep it."""
    from witness import warmup

    wanted = warmup.Wanted(**settings, tuning="exhaustive" if exhaustive else "default")
    with _progress(quiet=False) as (progress, note):
        graph = warmup.warm(wanted, limit, progress=progress, note=note)
    click.echo(f"{graph.folder.name}  ready\n    {_measured(graph)}")


@gpu_group.command("clear")
def gpu_clear() -> None:
    """Remove all compiled graphs."""
    from witness import graphs

    click.echo(f"{graphs.clear() / 1e6:,.1f} MB freed")


@gpu_group.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("graph", required=False)
def gpu_export(file: Path, graph: str | None) -> None:
    """Write one compiled graph to FILE (zip). GRAPH: the beginning of its name, if there are several."""
    from witness import warmup

    found = warmup.export(file, graph)
    click.echo(f"{file}\n    {_measured(found)}")


@gpu_group.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@_MODELS
@_MODEL
@_GPU
@_OFFLINE
def gpu_import(file: Path, **settings: Any) -> None:
    """Take a compiled graph from FILE, if it is for this very machine and passes the check on it."""
    from witness import warmup

    with _progress(quiet=False) as (progress, note):
        graph = warmup.import_(file, warmup.Wanted(**settings), progress=progress, note=note)
    click.echo(f"{graph.folder.name}  ready\n    {_measured(graph)}")


def _measured(graph: Graph) -> str:
    """What a compiled graph is for, and what was measured with it, in one line."""
    key, measured = graph.key, graph.measured
    how = "imported" if measured.compile_s is None else f"compiled in {measured.compile_s:.1f} s"
    shape = "x".join(map(str, key.shape))
    return (
        f"{graph.name}, {shape}, {key.precision}, {key.gfx}, MIGraphX {graph.version}, "
        f"{graph.size / 1e6:.1f} MB, {how}, loads in {measured.load_s:.1f} s, GPU {measured.gpu_ms:.1f} ms, "
        f"CPU {measured.cpu_ms:.1f} ms ({measured.cpu_cores} cores), cosine {measured.cosine:.6f}"
    )


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
@_SHAPE
@_GPU
@_LIMIT
def probe(model: Path, shapes: tuple[str, ...], gpu: int | None, limit: float) -> None:
    """Try an ONNX MODEL on MIGraphX: which nodes it takes, times, numbers against the CPU's.

    Prints a row for docs/verified-models.md.
    """
    from witness import warmup

    with _progress(quiet=False) as (progress, note):
        found = warmup.probe(model, warmup.parse_shapes(shapes), gpu, limit, progress=progress, note=note)
    click.echo(found.markdown(), nl=False)


@contextmanager
def _progress(quiet: bool) -> Iterator[tuple[Progress, Callable[[str], None]]]:
    """A progress bar a stage and the notes, on stderr; the bars on a terminal only."""
    from witness.schema import no_note, no_progress

    if quiet:
        yield no_progress, no_note
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    # FORCE_COLOR makes rich take a log file for a terminal.
    console = Console(stderr=True, force_terminal=bool(sys.stderr and sys.stderr.isatty()))
    columns = (TextColumn("{task.description:>13}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}

    def note(line: str) -> None:
        with suppress(OSError):  # a full log must not cost the result
            console.print(f"note: {line}", markup=False, highlight=False, soft_wrap=True)

    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:

        def show(stage: str, done: float, total: float) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
                if stage == "download" and not console.is_terminal:  # where no bar shows what takes so long
                    note(f"fetching {total / 1e6:,.0f} MB of models")
            bars.update(tasks[stage], completed=done, total=total)

        yield show, note


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and end the process. The one place where errors become exit codes."""
    # Before numpy is imported: sums must not depend on the number of cores, and the stages bring their own
    # threads. Not OMP_NUM_THREADS, which whisper.cpp's child would inherit.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("MKL_NUM_THREADS", "1")
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
