"""`witness bench`: how accurate, how fast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from witness.cli import options
from witness.errors import UsageError
from witness.storage import atomic

if TYPE_CHECKING:
    from witness.bench.plan import Split
    from witness.options import Device


@click.group(invoke_without_command=True)
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Measure accuracy and speed."""
    options.help_alone(ctx)


@bench.command("accuracy")
@click.option("--audio", type=click.Path(path_type=Path), required=True, help="The folder of recordings.")
@click.option(
    "--rttm", type=click.Path(path_type=Path), required=True, help="The folder of references (RTTM files)."
)
@click.option(
    "-o", "--output", "out", type=click.Path(path_type=Path), required=True, help="The folder to write into."
)
@click.option(
    "--split",
    type=click.Choice(["dev", "test"]),
    help="Which recordings these are; nothing is tuned on test.",
)
@click.option(
    "--tuned-on",
    type=click.Path(path_type=Path),
    metavar="DEV-RUN",
    help="The output folder of the finished DEV run that settings on test come from.",
)
@click.option(
    "--corpus",
    type=click.Choice(["aishell4", "alimeeting", "ami", "earnings21"]),
    help="Which corpus these are: --rttm takes its own references, TextGrid and nlp files, too.",
)
@click.option(
    "--uem",
    type=click.Path(exists=True, path_type=Path),
    help="UEM file, or a folder of them: the parts to score. [default: from the first turn to the last]",
)
@click.option(
    "--impl",
    "others",
    multiple=True,
    metavar="NAME=FOLDER",
    help="Score another system's RTTM files on the same recordings, too. Can be repeated.",
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
    out: Path,
    split: Split | None,
    tuned_on: Path | None,
    corpus: str | None,
    uem: Path | None,
    others: tuple[str, ...],
    as_pyannote: bool,
    **settings: Any,
) -> None:
    """Diarize and score a folder of recordings.

    Recordings and references are paired by name: VoxConverse, or any other pair of folders. After a stop, run
    the same command again to continue. The scores go to stdout. The output folder gets the hypotheses, what
    each recording cost, report.html, report.md, report.json and two pictures. Needs the extra `bench`.
    """
    from witness.bench import accuracy, corpora, plan, score_report, scoring
    from witness.options import Options, Runtime

    kind = None if corpus is None else corpora.CORPORA[corpus]
    impls = [(name, Path(folder)) for name, _, folder in (other.partition("=") for other in others)]
    for name, folder in impls:
        if not name or not folder.exists() or not str(folder).strip("."):
            raise UsageError(
                f"--impl {name}={folder}: give a name and a folder of RTTM files, such as peer=rttm/"
            )
    runtime = Runtime(device=settings.pop("device"), threads=settings.pop("threads") or 0)
    cases, missing = plan.find(audio, rttm, kind)
    wanted = plan.AccuracyPlan(
        cases=cases,
        out=out,
        missing=missing,
        options=Options(**settings),
        runtime=runtime,
        split=split,
        tuned_on=tuned_on,
        as_pyannote=as_pyannote,
        uem=None if uem is None else scoring.read_uem(uem),
    )
    if wanted.uem is not None and (without := {case.name for case in cases} - set(wanted.uem)):
        raise UsageError(
            f"{uem}: has no line for {', '.join(sorted(without)[:3])}; add one, or leave out --uem"
        )
    with options.progress(quiet=False) as reporter:
        if kind is not None:
            reporter.note(f"{kind.title} ({kind.get}): {kind.reference}; others publish: {kind.convention}")
        options.note_unpaired(reporter, set(missing), "have no audio and are not scored")
        options.note_unpaired(reporter, plan.unscored(audio, cases), "have no RTTM and are not scored")
        scores = accuracy.run(wanted, reporter)
    text = score_report.to_text(scores)
    for name, folder in impls:
        theirs = accuracy.score_other(wanted, folder)
        text += f"\n{name}\n\n{score_report.to_text(theirs, scores, 'witness')}"
    atomic.write(text.encode(), None)


@bench.command("speed")
@click.argument(
    "recordings", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, path_type=Path)
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="Runs of each recording in each way.",
)
@click.option("--vs-serial", is_flag=True, help="Also run it with the words after the speakers.")
@click.option("--vs-profile", is_flag=True, help="Also run it with onnxruntime's profiler on.")
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
    as_json: bool,
    device: Device,
    threads: int | None,
    **settings: Any,
) -> None:
    """Time each FILE, stage by stage.

    Each run is a separate process. The table of medians, or the JSON document, goes to stdout.
    """
    from witness.bench import speed
    from witness.options import Options, Runtime

    others: dict[str, speed.Way] = {"vs_serial": "serial", "vs_profile": "profiled"}
    asked = [way for option, way in others.items() if settings.pop(option)]
    # Paths of models, as of a --whisper FILE: the processes work elsewhere.
    for name in ("models", "whisper"):
        if Path(settings[name]).exists():
            settings[name] = str(Path(settings[name]).absolute())
    plan = speed.SpeedPlan(
        Options(**settings), Runtime(device=device, threads=threads or 0), repeat, ("run", *asked)
    )
    with options.progress(quiet=False) as reporter:
        result = speed.measure(recordings, plan, reporter)
    atomic.write((speed.to_json if as_json else speed.to_text)(result).encode(), None)


@bench.command("contention")
@click.argument("recording", type=click.Path())
@options.MODELS
@options.WHISPER
@options.RECOGNIZER
@options.LANGUAGE
@options.DEVICE
@options.GPU
@click.option(
    "--threads",
    type=click.IntRange(1, options.MOST),
    metavar="N",
    help="Cores for each engine. [default: all]",
)
@options.OFFLINE
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Runs of each kind."
)
@options.JSON
def bench_contention(recording: str, rounds: int, as_json: bool, **settings: Any) -> None:
    """Time both engines alone and together.

    How much the diarizer and a recognizer slow each other down on RECORDING: each runs alone, then both run
    at the same time. Any --recognizer goes with any --device. With an AMD card (--gpu), also how busy it was
    and how much of its memory was in use.
    """
    from witness.bench import contention
    from witness.options import Options, Runtime

    runtime = Runtime(
        device=settings.pop("device"), gpu=settings.pop("gpu"), threads=settings.pop("threads") or 0
    )
    with options.progress(quiet=False) as reporter:
        result = contention.measure(recording, Options(**settings), runtime, rounds, reporter=reporter)
    atomic.write((contention.to_json if as_json else contention.to_text)(result).encode(), None)
