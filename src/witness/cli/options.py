"""What the commands share: options, progress on stderr, and the help of a group."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from witness.options import Format
from witness.reporter import SILENT, Reporter

Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS = [form.value for form in Format]
MOST = 10_000  # speakers, threads: beyond it is a slip of the finger

GPU = click.option(
    "--gpu", type=click.IntRange(0), metavar="INDEX", help="Which card, as HIP counts. [default: the best]"
)
PRECISION = click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16"]),
    default="fp32",
    show_default=True,
    help="On the GPU; fp16 changes the result a little.",
)
FAST = click.option(
    "--fast", is_flag=True, help="Listen to less: about a third less work, a little less accurate."
)
LIMIT = click.option(
    "--limit",
    type=click.FloatRange(1),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop compiling after that.",
)
DEVICE = click.option(
    "--device", type=click.Choice(["auto", "cpu", "migraphx"]), default="auto", help="As in run."
)
MODELS = click.option(
    "--models",
    default="auto",
    show_default=True,
    metavar="auto|standard|community-1|builtin|DIR",
    help="The models that tell speakers apart.",
)
MODEL = click.option(
    "--model", type=click.Path(path_type=Path), help="Another ONNX file with one input, instead of --models."
)
SHAPE = click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=DIMS", help="Shape of an input: feats=1x998x80."
)
HTML_AUDIO = click.option(
    "--html-audio",
    type=click.Choice(["embed", "link", "none"]),
    help="The sound of a page: inside, where the recording is, or none. [default: embed under 20 minutes]",
)
OFFLINE = click.option("--offline", is_flag=True, help="Open no socket; use the models that are here.")
THREADS = click.option(
    "--threads", type=click.IntRange(1, MOST), help="Cores for the diarizer. [default: all]"
)
_BOUNDS = (
    click.option(
        "--speakers",
        type=click.IntRange(1, MOST),
        help="Exactly so many speakers (with split: a channel). [default: found out]",
    ),
    click.option("--min-speakers", type=click.IntRange(1, MOST), help="At least so many."),
    click.option("--max-speakers", type=click.IntRange(1, MOST), help="At most so many."),
)


def speakers(command: Command) -> Command:
    """How many there are, if that is known."""
    for option in reversed(_BOUNDS):
        command = option(command)
    return command


def help_alone(ctx: click.Context) -> None:
    """A group called without a command shows its help, and that is no error."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def note_unpaired(reporter: Reporter, uris: set[str], what: str) -> None:
    if uris:
        some = ", ".join(sorted(uris)[:5]) + (", ..." if len(uris) > 5 else "")
        reporter.note(f"{len(uris)} recordings {what} ({some})")


@contextmanager
def progress(quiet: bool) -> Iterator[Reporter]:
    """A progress bar a stage and the notes, on stderr; the bars on a terminal only."""
    if quiet:
        yield SILENT
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    # FORCE_COLOR makes rich take a log file for a terminal.
    terminal = Console(stderr=True, force_terminal=bool(sys.stderr and sys.stderr.isatty()))
    columns = (TextColumn("{task.description:>13}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}

    def note(line: str) -> None:
        with suppress(OSError):  # a full log must not cost the result
            terminal.print(f"note: {line}", markup=False, highlight=False, soft_wrap=True)

    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bars:

        def show(stage: str, done: float, total: float) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
                if stage == "download" and not terminal.is_terminal:  # where no bar shows what takes so long
                    note(f"fetching {total / 1e6:,.0f} MB of models")
            bars.update(tasks[stage], completed=done, total=total)

        yield Reporter(show, note)
