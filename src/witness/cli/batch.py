"""`witness batch`: many recordings."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from witness import machine_limits, text
from witness.cli import options, signals
from witness.errors import CancelledError, PartlyFailedError, UsageError
from witness.options import Device, Options, Runtime
from witness.progress import Reporter
from witness.storage import atomic

if TYPE_CHECKING:
    from witness.work.batch import Batch, BatchProgress, Tell
    from witness.work.queue import Workers

SILENCE = 30.0
"""Seconds between two lines about a batch in a log."""


@click.command("batch", cls=options.Command, short_help="Transcribe a folder of recordings, unattended.")
@click.argument("inputs", nargs=-1, required=True, metavar="IN...", type=options.LocalPath())
@click.option(
    *("-o", "--output", "out"),
    required=True,
    type=options.PATH,
    metavar="DIR",
    help="Folder for the results.",
)
@options.formats("Format to write; repeatable.", default=("json", "txt"), show_default=True)
@options.whole("--jobs", 1, options.MOST, "Recordings at a time. [default: one per core, if there is memory]")
@options.flag("--force", "Also do finished recordings again.")
@options.flag("--retry-failed", "Also try failed recordings again.")
@options.flag("--watch", "Continue with recordings that appear, once they stop growing.")
@options.text(
    "--limit-time",
    "SECONDS",
    "Stop a recording that takes longer; it counts as failed. [default: no limit]",
    type=options.Number(0, min_open=True),
)
@options.text(
    "--limit-memory",
    "GB",
    "Stop a recording that takes more memory (Linux only); it counts as failed. [default: no limit]",
    type=options.Number(0, min_open=True),
    callback=lambda _, __, size: size and round(size * 1e9),
)
@options.text("--scheduler", "tcp://HOST:PORT", "Run on a Dask cluster whose machines see the same folders.")
@options.transcript
@options.DEVICE
@click.option(
    "--gpu", "gpus", metavar="0,1,...", help="Cards for --device migraphx, one worker each. [default: 0]"
)
@options.whole("--threads", 1, options.MOST, "Cores for each recording. [default: a fair share]")
@options.HTML_AUDIO
@options.STYLE
@options.NO_STAGES
@options.QUIET
def batch_command(
    jobs: int | None,
    scheduler: str | None,
    device: str,
    gpus: str | None,
    threads: int | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Transcribe all recordings of IN (files, folders, patterns) into a folder.

    The results are in the same tree as the recordings. Recordings that are done already, by content and
    settings, are skipped: run the same command again to continue after a break. One bad file stops nothing;
    report.json and the table at the end name it. Exit code 3 if any failed or was lost with its cluster.

    \b
    Examples:
      witness batch interviews/ -o out/ --speakers 2
      witness batch interviews/ -o out/ -f docx,json --whisper small
    """
    from witness.work import folder, pool, produce
    from witness.work.batch import Batch

    request, writing = options.take(folder.BatchRequest, asked), options.writing(asked)
    choices = Options(**asked)
    cards = [0] if gpus is None else _cards(gpus)
    if scheduler is not None:
        _refuse_with_scheduler({"--jobs": jobs, "--gpu": gpus, "--threads": threads})

    private = "json" in request.formats and writing.keep_findings  # voices are beside it
    course = BatchCourse()
    with folder.locked(request.out, private=private), options.progress(quiet, course=course) as reporter:
        settings = produce.resolve_settings(choices, writing, reporter=reporter)
        work = Batch(request, settings)
        try:
            if scheduler is not None:
                from witness.work import cluster

                processes: AbstractContextManager[Workers] = cluster.connect(scheduler, reporter)
                runtime = Runtime(Device(device))
            else:
                if device == Device.MIGRAPHX:
                    if jobs is not None:
                        reporter.note("--jobs has no effect with --device migraphx: each card has one worker")
                    slots: list[int | None] = list(cards)
                else:
                    if gpus is not None:
                        reporter.note("--gpu has no effect without --device migraphx")
                    slots = [None] * _workers(work, jobs, settings.weights, reporter)
                processes = pool.Pool(slots)
                runtime = pool.worker_runtime(len(slots), Device(device), threads)
            with processes as workers:
                work.run(workers, runtime, tell=_tell(reporter, course), reporter=reporter)
            if finished := work.summary().done:
                reporter.wrote(f"{text.count(finished, 'transcript')} in {request.out}")
            if old := work.outdated():
                reporter.note(
                    f"{', '.join(old)} files of an earlier run were not written and may differ from the new "
                    "results; give all formats with -f, or delete them"
                )
        except (KeyboardInterrupt, SystemExit, CancelledError):
            if left := work.summary().left:
                are = "is" if left == 1 else "are"
                reporter.note(
                    f"{text.count(left, 'recording')} {are} left; run the same command again to continue"
                )
            if not (request.watch and signals.exit_code() == signals.INTERRUPTED):
                raise  # otherwise Ctrl-C is the way to end --watch
    atomic.write(work.table().encode("utf-8", "replace"), None)
    summary = work.summary()
    if summary.failed or summary.left:
        raise SystemExit(PartlyFailedError.exit_code)


def _cards(text: str) -> list[int]:
    """Return the numbers in `0,1`. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--gpu {text}: write it as 0 or 0,1")
    return [int(part) for part in parts]


def _refuse_with_scheduler(values: dict[str, object]) -> None:
    """Raise UsageError if one of these options has a value."""
    names = [name for name, value in values.items() if value is not None]
    if names:
        have = "has" if len(names) == 1 else "have"
        raise UsageError(
            f"{' and '.join(names)} {have} no effect with --scheduler, where the Dask workers decide; "
            "leave out one or the other"
        )


def _workers(work: Batch, jobs: int | None, weights: int, reporter: Reporter) -> int:
    """Return the number of workers without a card; note if the memory is for fewer than asked for."""
    from witness.work import pool

    recordings = options.MOST if work.request.watch else len(work.todo)
    workers = pool.worker_count(jobs, recordings, machine_limits.memory(), weights)
    if jobs is not None and workers < min(jobs, len(work.todo)):
        reporter.note(f"{workers} recordings at a time, because there is no memory for more")
    return workers


def _tell(reporter: Reporter, course: BatchCourse) -> Tell:
    """Return a callback that shows the progress of a batch: a bar, and a line every half minute."""
    said = time.monotonic()

    def tell(batch: BatchProgress) -> None:
        nonlocal said
        course.left = batch.left
        reporter.progress("recordings", batch.finished, batch.total)
        if time.monotonic() - said > SILENCE:
            said = time.monotonic()
            hours = f"{batch.audio / 3600:.2f} h of audio"
            left = "" if batch.left is None else f", about {timedelta(seconds=round(batch.left))} left"
            line = f"{batch.finished} of {batch.total} recordings, {hours}, {batch.failed} failed{left}"
            reporter.note(line)

    return tell


class BatchCourse:
    """Progress of a batch, with the estimate of its lines."""

    def __init__(self) -> None:
        self.left: float | None = None
        """Seconds."""

    def hear(self, stage: str, done: float, total: float) -> options.Left | None:
        return options.Left(done / max(1.0, total), self.left) if stage == "recordings" else None
