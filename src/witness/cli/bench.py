"""`witness bench`: accuracy and speed on recordings of your own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from witness.cli import options
from witness.errors import UsageError
from witness.storage import atomic

if TYPE_CHECKING:
    pass


@click.group(cls=options.Group, invoke_without_command=True)
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Measure accuracy and speed."""
    options.help_alone(ctx)


@bench.command("accuracy")
@click.option("--audio", type=options.PATH, required=True, help="The folder of recordings.")
@click.option("--rttm", type=options.PATH, required=True, help="The folder of references (RTTM files).")
@click.option("-o", "--output", "out", type=options.PATH, required=True, help="The folder to write into.")
@click.option(
    "--split",
    type=click.Choice(["dev", "test"]),
    help="The split of these recordings; settings are not tuned on test.",
)
@options.text(
    "--tuned-on",
    "DEV-RUN",
    "The folder of the finished run on dev that tried the settings.",
    type=options.PATH,
)
@click.option(
    "--uem",
    type=options.LocalPath(exists=True, path_type=Path),
    help="UEM file, or a folder of them: the parts to score. [default: from the first turn to the last]",
)
@options.several(
    "--impl",
    "others",
    "NAME=FOLDER",
    "Score another system's RTTM files on the same recordings, too. Can be repeated.",
)
@options.AS_PYANNOTE
@options.MODELS
@options.speakers
@options.DEVICE
@options.THREADS
@options.FAST
@options.OFFLINE
def bench_accuracy(
    audio: Path,
    rttm: Path,
    uem: Path | None,
    others: tuple[str, ...],
    **settings: Any,
) -> None:
    """Diarize and score a folder of recordings.

    Recordings and references are paired by name: VoxConverse, or any other pair of folders. After a stop, run
    the same command again to continue. The scores go to stdout. The output folder gets the hypotheses, what
    each recording cost, report.html, report.md, report.json and two pictures. Needs the extra `bench`.

    \b
    Examples:
      witness bench accuracy --audio wav/ --rttm rttm/ -o scores/
      witness bench accuracy --audio wav/ --rttm rttm/ -o scores/ --impl peer=theirs/
    """
    from witness.bench import accuracy, score_report, scoring
    from witness.bench.run_folder import AccuracyPlan
    from witness.options import Options, Runtime

    impls = [(name, Path(folder)) for name, _, folder in (other.partition("=") for other in others)]
    for name, folder in impls:
        if not name or not folder.exists() or not str(folder).strip("."):
            raise UsageError(
                f"--impl {name}={folder}: give a name and a folder of RTTM files, such as peer=rttm/"
            )
    choices, runtime = options.take(Options, settings), options.take(Runtime, settings)
    cases, missing = accuracy.find(audio, rttm)
    plan = AccuracyPlan(
        cases=cases,
        missing=missing,
        options=choices,
        runtime=runtime,
        uem=None if uem is None else scoring.read_uem(uem),
        **settings,
    )
    if plan.uem is not None and (without := {case.name for case in cases} - set(plan.uem)):
        raise UsageError(
            f"{uem}: has no line for {', '.join(sorted(without)[:3])}; add one, or leave out --uem"
        )
    with options.progress(quiet=False) as reporter:
        options.note_unpaired(reporter, set(missing), "have no audio and are not scored")
        options.note_unpaired(reporter, accuracy.unscored(audio, cases), "have no RTTM and are not scored")
        scores = accuracy.run(plan, reporter)
        reporter.wrote(str(plan.out))
    text = score_report.make(scores).to_text()
    for name, folder in impls:
        theirs = accuracy.score_other(plan, folder)
        text += f"\n{name}\n\n{score_report.make(theirs, scores, 'witness').to_text()}"
    atomic.write(text.encode(), None)


@bench.command("speed")
@click.argument(
    "recordings",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=options.LocalPath(exists=True, path_type=Path),
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Runs of each recording in each way.",
)
@options.flag("--vs-serial", "Also run it with the words after the speakers.")
@options.flag("--vs-profile", "Also run it with onnxruntime's profiler on.")
@options.JSON
@options.MODELS
@options.WHISPER
@options.DEVICE
@options.THREADS
@options.FAST
@options.OFFLINE
def bench_speed(
    recordings: tuple[Path, ...],
    repeat: int,
    vs_serial: bool,
    vs_profile: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Time each FILE, stage by stage.

    Each run is a separate process. The table of medians, or the JSON document, goes to stdout.

    \b
    Examples:
      witness bench speed call.wav
      witness bench speed call.wav talk.mp3 --repeat 5 --json
    """
    from witness.bench import speed
    from witness.options import Options, Runtime

    # Paths of models, as of a --whisper FILE: the processes work elsewhere.
    for name in ("models", "whisper"):
        if Path(settings[name]).exists():
            settings[name] = str(Path(settings[name]).absolute())
    asked: dict[speed.Way, bool] = {"run": True, "serial": vs_serial, "profiled": vs_profile}
    ways = tuple(way for way, chosen in asked.items() if chosen)
    runtime = options.take(Runtime, settings)
    plan = speed.SpeedPlan(Options(**settings), runtime, repeat, ways)
    with options.progress(quiet=False) as reporter:
        result = speed.measure(recordings, plan, reporter)
    atomic.write((speed.to_json if as_json else speed.to_text)(result).encode(), None)
