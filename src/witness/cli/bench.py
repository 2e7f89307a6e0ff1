"""`witness bench`: how right, how fast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from witness import files
from witness.cli import options


@click.group(invoke_without_command=True)
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Measure: how right, how fast."""
    options.help_alone(ctx)


@bench.command("voxconverse")
@click.option("--audio", type=click.Path(path_type=Path), required=True, help="The folder of recordings.")
@click.option("--rttm", type=click.Path(path_type=Path), required=True, help="The folder of references.")
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), required=True, help="A folder.")
@click.option("--split", type=click.Choice(["dev", "test"]), help="What it is; on test nothing is tuned.")
@click.option(
    "--tuned-on", type=click.Path(path_type=Path), help="The DEV run that settings on test are from."
)
@options.MODELS
@options.speakers
@options.DEVICE
@options.THREADS
@options.FAST
@options.OFFLINE
def bench_voxconverse(
    audio: Path, rttm: Path, out: Path, split: str | None, tuned_on: Path | None, **settings: Any
) -> None:
    """Diarize a folder of recordings, score it, and write a report: VoxConverse, or any pair of folders.

    Stopped in the middle, the same command goes on. stdout has the scores, OUTPUT the hypotheses, what every
    recording cost, report.html, report.md, report.json and two pictures. Needs the extra `bench`.
    """
    from witness.bench import accuracy, score_report
    from witness.options import Options, Runtime

    runtime = Runtime(device=settings.pop("device"), threads=settings.pop("threads") or 0)
    cases, missing = accuracy.find(audio, rttm)
    with options.progress(quiet=False) as reporter:
        options.note_unpaired(reporter, set(missing), "have no audio and are not scored")
        scores = accuracy.run(
            cases,
            out,
            Options(**settings),
            runtime,
            split=split,
            tuned_on=tuned_on,
            missing=missing,
            reporter=reporter,
        )
    files.write(score_report.to_text(scores).encode(), None)


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
@options.MODELS
@click.option(
    "--whisper", default="auto", show_default=True, metavar="auto|none|NAME|FILE", help="As in run."
)
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
    device: Any,
    threads: int | None,
    **settings: Any,
) -> None:
    """Time each FILE stage by stage, in a process of its own each time. The table is on stderr."""
    from witness.bench import speed
    from witness.options import Options, Runtime

    # Paths of models, as of a --whisper FILE: the processes work elsewhere.
    for name in ("models", "whisper"):
        if Path(settings[name]).exists():
            settings[name] = str(Path(settings[name]).absolute())
    with options.progress(quiet=False) as reporter:
        result = speed.measure(
            recordings,
            Options(**settings),
            Runtime(device=device, threads=threads or 0),
            repeat=repeat,
            vs_serial=vs_serial,
            vs_profile=vs_profile,
            reporter=reporter,
        )
    click.echo(speed.to_text(result), err=True, nl=False)
    if as_json:
        files.write((json.dumps(result, indent=1) + "\n").encode(), None)


@bench.command("contention")
@click.argument("recording", type=click.Path())
@click.option("--models", default="auto", show_default=True, help="As in `witness run`.")
@click.option("--whisper", default="auto", show_default=True, help="As in `witness run`.")
@click.option("--language", metavar="CODE", help="As in `witness run`.")
@click.option("--device", type=click.Choice(["auto", "cpu", "migraphx"]), default="auto", help="As in `run`.")
@click.option(
    "--gpu", type=click.IntRange(0), metavar="INDEX", help="The card to use and watch. [default: the best]"
)
@click.option("--threads", type=click.IntRange(1, options.MOST), help="Cores for each engine. [default: all]")
@click.option("--offline", is_flag=True, help="Open no socket.")
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="How often.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with every run.")
def bench_contention(recording: str, rounds: int, as_json: bool, **settings: Any) -> None:
    """How much diarizer and whisper slow each other down on RECORDING: each alone, then both at once.

    With the time of each, and how busy an AMD card was and what memory it had in use.
    """
    from witness.bench import contention
    from witness.options import Options, Runtime

    wanted = Options(
        models=settings["models"],
        whisper=settings["whisper"],
        language=settings["language"],
        offline=settings["offline"],
    )
    runtime = Runtime(device=settings["device"], gpu=settings["gpu"], threads=settings["threads"] or 0)
    with options.progress(quiet=False) as reporter:
        found = contention.measure(recording, wanted, runtime, rounds, reporter=reporter)
    files.write((contention.to_json if as_json else contention.to_text)(found).encode(), None)
