"""What the commands share: options, progress on stderr, and the help of a group."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import click
from click.shell_completion import CompletionItem

from witness import languages
from witness.cli import signals
from witness.cli.lists import rules, terms
from witness.formats.registry import Format
from witness.options import MOST_SPEAKERS, Channels, Choice, Device, PageAudio, Precision, Recognizer
from witness.progress import LongNote, Reporter
from witness.storage import atomic, cache
from witness.text import printable

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
MANY = 15
"""Options of a command above which its help has sections."""


SECTIONS = {
    "Result": "formats to force no_findings html_audio",
    "Reading": "pauses fillers line_width lines words speaker_names times",
    "Words": "language translate fast_words vocabulary prompt replaced whisper recognizer",
    "Speakers": "speakers min_speakers max_speakers known channels models fast precision",
    "Recording": "start end",
    "Machine": "device gpu threads serial parallel offline jobs limit_time limit_memory scheduler",
}
"""The sections of `--help` and the parameters in each; the others follow in a section of their own."""


class Command(click.Command):
    """A command whose help lists its options by what they are about."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, but in sections where there are many."""
        rows = {
            parameter.name or "": row
            for parameter in self.get_params(ctx)
            if (row := parameter.get_help_record(ctx)) is not None
        }
        sections = {title: names.split() for title, names in SECTIONS.items()} if len(rows) > MANY else {}
        for title, names in sections.items():
            if found := [rows.pop(name) for name in names if name in rows]:
                with formatter.section(title):
                    formatter.write_dl(found)
        with formatter.section("Other" if sections else "Options"):
            formatter.write_dl(list(rows.values()))


class Option(Protocol):
    """A decorator that gives a command an option, or several."""

    def __call__(self, command: Decorated, /) -> Decorated: ...


LONGEST_PAUSE = 86_400
"""Seconds, a day; a longer one is a slip of the finger."""
MOST = 10_000
"""Cores or jobs; a larger number is a slip of the finger."""


def choice(kind: type[Choice]) -> click.Choice[str]:
    """The words of an enumeration; the class itself would stand for its names, which are in capitals."""
    return click.Choice([item.value for item in kind])


def moment(value: str | float) -> float:
    """A time in a recording, in seconds: 90, 1:30 and 0:01:30 are the same, and any may have decimals.

    Raises click's BadParameter, which ends as UsageError does.
    """
    if isinstance(value, float):  # a default
        return value
    match = re.fullmatch(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d*)?)", value, re.ASCII)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a time; write it as 90, 1:30 or 0:01:30.5")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    if (match[2] and seconds >= 60) or (match[1] and minutes >= 60):
        raise click.BadParameter(f"{value!r} is not a time; what follows a colon must be below 60")
    return 3600 * hours + 60 * minutes + seconds


def can_be_written(path: Path | None) -> Path | None:
    """The path itself. Raises click's BadParameter if no file can be made there, and for a pipe."""
    if path is None:
        return None
    if path.exists() and not path.is_file():
        raise click.BadParameter(f"{path} is not a regular file; give another path")
    folder = path.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        why = "no permission" if folder.is_dir() else "there is no such folder"
        raise click.BadParameter(f"{path} cannot be written ({why}); give another path")
    return path


def _whisper_models(begun: str) -> list[CompletionItem]:
    """What --whisper may be that begins so: the words, the names of the table and their sizes, or a path."""
    from witness.models import catalogue

    names = [entry.name for entry in catalogue.TABLE if entry.role == "whisper"]
    sizes = [name.removeprefix(catalogue.PREFIX) for name in names]
    known = dict.fromkeys(["auto", "none", *sizes, *names])
    found = [CompletionItem(name) for name in known if name.startswith(begun)]
    return found or [CompletionItem(begun, type="file")]


def _languages(begun: str) -> list[CompletionItem]:
    """The languages that begin so, by code or by name; after a comma, one more."""
    before, comma, last = begun.rpartition(",")
    known = {**languages.NAMES, languages.MULTI: "found every ten seconds"}
    return [
        CompletionItem(f"{before}{comma}{code}", help=name)
        for code, name in known.items()
        if code.startswith(last.lower()) or (last and name.startswith(last.lower()))
    ]


class Number(click.FloatRange):
    """A range of numbers that refuses nan, which lies in each of click's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail("nan is not a number; write it as 2 or 0.5", param, ctx)
        return found


def together(*group: Option) -> Option:
    """Several options as one decorator, which `--help` lists in this order."""

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(group):
            command = option(command)
        return command

    return decorate


FORMATS = [form.value for form in Format]
ALL = "all"
"""All formats."""

# --- fields of witness.options.Options, by their names ---

MODELS = click.option(
    "--models",
    default="auto",
    show_default=True,
    metavar="auto|standard|community-1|campplus|builtin|DIR",
    help="Models that tell speakers apart.",
)
WHISPER = click.option(
    "--whisper",
    default="auto",
    show_default=True,
    metavar="auto|none|NAME|PATH",
    shell_complete=lambda _, __, begun: _whisper_models(begun),
    help="Model that recognizes words: a name from `witness models list`, a size, a file or a folder.",
)
RECOGNIZER = click.option(
    "--recognizer",
    type=choice(Recognizer),
    default=Recognizer.AUTO.value,
    show_default=True,
    help="Engine that recognizes words; auto is what uses a GPU here, else CTranslate2 if it is installed.",
)
LANGUAGE = click.option(
    "--language",
    metavar="NAME|multi",
    shell_complete=lambda _, __, begun: _languages(begun),
    callback=lambda _, __, text: None if text is None else languages.parse(text),
    help="Language: de or german; de,en: one of these; multi: found every ten seconds. [default: found]",
)
TRANSLATE = click.option("--translate", is_flag=True, help="Write the words in English, whatever is spoken.")
FAST_WORDS = click.option(
    "--fast-words", is_flag=True, help="Search less for each word: less time, more errors."
)
VOCABULARY = click.option(
    "--vocabulary",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    callback=lambda _, __, path: terms(path),
    help="Text file of names and terms that may occur, one a line.",
)
PROMPT = click.option(
    "--prompt", default="", metavar="TEXT", help="Text in the style and with the names that are expected."
)
REPLACE = click.option(
    "--replace",
    "replaced",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    callback=lambda _, __, path: rules(path),
    help="Text file of what to write for what is heard, one rule a line: HEARD, HEARD = WRITTEN.",
)
CHANNELS = click.option(
    "--channels",
    type=choice(Channels),
    default=Channels.AUTO.value,
    show_default=True,
    help="Mix the channels, or split them and find the speakers of each; auto splits the sides of a call.",
)
PRECISION = click.option(
    "--precision",
    type=choice(Precision),
    default=Precision.FP32.value,
    show_default=True,
    help="Precision of the voice model on a GPU; fp16 changes the result slightly.",
)
FAST = click.option(
    "--fast", is_flag=True, help="Analyze less of the audio: a third less work, slightly less accurate."
)
START = click.option(
    "--from",
    "start",
    type=moment,
    default=0.0,
    metavar="TIME",
    help="Where in the recording to begin: 90, 1:30 or 0:01:30. [default: its beginning]",
)
END = click.option("--to", "end", type=moment, metavar="TIME", help="Where to stop. [default: its end]")
OFFLINE = click.option("--offline", is_flag=True, help="Open no socket; use the models on this disk.")
KNOWN = click.option(
    "--known", metavar="DIR", help="Folder of voices from `witness enroll`: name these people."
)
SPEAKERS = click.option(
    "--speakers",
    type=click.IntRange(1, MOST_SPEAKERS),
    metavar="N",
    help="Exact number of speakers (with --channels split: in each channel). [default: detected]",
)
MIN_SPEAKERS = click.option(
    "--min-speakers", type=click.IntRange(1, MOST_SPEAKERS), metavar="N", help="Minimum number of speakers."
)
MAX_SPEAKERS = click.option(
    "--max-speakers", type=click.IntRange(1, MOST_SPEAKERS), metavar="N", help="Maximum number of speakers."
)

speakers = together(SPEAKERS, MIN_SPEAKERS, MAX_SPEAKERS)

transcript = together(
    *(
        SPEAKERS,
        MIN_SPEAKERS,
        MAX_SPEAKERS,
        LANGUAGE,
        TRANSLATE,
        FAST_WORDS,
        VOCABULARY,
        PROMPT,
        REPLACE,
        START,
        END,
        CHANNELS,
    ),
    *(KNOWN, MODELS, WHISPER, RECOGNIZER, FAST, PRECISION, OFFLINE),
)
"""Everything that changes a transcript. A command hands all of it to Options, which refuses other names."""

# --- fields of witness.options.Runtime ---

DEVICE = click.option(
    "--device",
    type=choice(Device),
    default=Device.AUTO.value,
    show_default=True,
    help="What runs the voice model; auto uses a GPU if that is faster, the last two fail without one.",
)
GPU = click.option(
    "--gpu", type=click.IntRange(0), metavar="INDEX", help="Card to use, as HIP counts. [default: the best]"
)
THREADS = click.option(
    "--threads", type=click.IntRange(1, MOST), metavar="N", help="Cores to use. [default: all]"
)

# --- the rest ---

AS_PYANNOTE = click.option(
    "--as-pyannote",
    is_flag=True,
    help="Count what overlapping turns of one speaker share twice, as pyannote.metrics does.",
)
HTML_AUDIO = click.option(
    "--html-audio",
    type=choice(PageAudio),
    default=PageAudio.AUTO.value,
    show_default=True,
    help="Sound of an HTML page: embedded, a link, or none; auto embeds recordings under 20 minutes.",
)
PAUSES = click.option(
    "--pauses",
    type=Number(0, LONGEST_PAUSE),
    metavar="SECONDS",
    help="Mark pauses of at least this length in txt, md, qda and docx: (.) if under a second, else (3 s); "
    "0: none.",
)
FILLERS = click.option(
    "--fillers",
    type=click.Choice(["keep", "drop"]),
    help="Leave um, uh, ähm or euh out of subtitles and documents, or not. [default: keep]",
)
LINE_WIDTH = click.option(
    "--line-width", type=click.IntRange(10, 1000), metavar="N", help="Columns of a subtitle. [default: 42]"
)
LINES = click.option(
    "--lines", type=click.IntRange(1, 10), metavar="N", help="Lines of a subtitle. [default: 2]"
)
WORDS = click.option(
    "--words", type=click.IntRange(0, 1000), metavar="N", help="Most words of a subtitle; 0: no limit."
)
SPEAKER_NAMES = click.option(
    "--speaker-names",
    type=click.Choice(["text", "tag", "none"]),
    help="Where subtitles name speakers: in the text, in VTT's voice tags, or not at all, which txt, md and "
    "docx follow, too. [default: text]",
)
TIMES = click.option(
    "--times",
    type=click.Choice(["keep", "drop"]),
    help="Leave the times out of txt, md and docx, or not. [default: keep]",
)
STYLE = together(PAUSES, FILLERS, LINE_WIDTH, LINES, WORDS, SPEAKER_NAMES, TIMES)
"""How the formats for reading show a transcript; `style` takes it from what a command is given."""


def style(given: dict[str, Any]) -> dict[str, Any]:
    """What `STYLE` adds to a command's options, taken out of them, for `Transcript.styled`."""
    return {name: given.pop(name) for name in SECTIONS["Reading"].split()}


NO_STAGES = click.option("--no-findings", is_flag=True, help="Keep nothing to count the speakers again with.")
LIMIT = click.option(
    "--limit",
    type=Number(1),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop compiling after this time.",
)
MODEL = click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="ONNX file with one input, instead of the voice model of --models.",
)
SHAPE = click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=DIMS", help="Shape of an input: feats=1x998x80."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
QUIET = click.option("-q", "--quiet", is_flag=True, help="Print errors only: no progress, no notes.")


class _Formats(click.Choice[str]):
    """One format or several: srt, or srt,json, or all whose libraries are installed."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The words, joined by commas."""
        names = [name.strip() for name in value.split(",")]
        able = [form.value for form in Format if form.installed]
        found = [able if name == ALL else [click.Choice.convert(self, name, param, ctx)] for name in names]
        return ",".join(form for some in found for form in some)


def formats(help_text: str, **more: Any) -> Option:
    """`-f`, as often as there are formats to write, or once with all of them."""
    return click.option(
        "-f",
        "--format",
        "formats",
        multiple=True,
        type=_Formats([*FORMATS, ALL]),
        metavar="FORMAT[,FORMAT]",
        callback=lambda _, __, given: tuple(name for one in given for name in one.split(",")),
        help=f"{help_text} One or several of {', '.join(FORMATS)}; or all.",
        **more,
    )


def help_alone(ctx: click.Context) -> None:
    """Show the help of a group that was called without a command, which is fine."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def say(text: str) -> None:
    """Print lines as a result, on stdout: what was named by others cannot command a terminal."""
    atomic.write(f"{text}\n".encode("utf-8", "surrogateescape"), None)


def note_unpaired(reporter: Reporter, uris: set[str], what: str) -> None:
    """Note how many recordings lack a counterpart, and the first five of them; `what` says what they lack."""
    if uris:
        some = ", ".join(sorted(uris)[:5]) + (", ..." if len(uris) > 5 else "")
        reporter.note(f"{len(uris)} recordings {what} ({some})")


class Left(NamedTuple):
    """How far the whole of the work is."""

    share: float
    seconds: float | None
    """That it will still take; None: nobody knows yet."""


class Course(Protocol):
    """Knows how far the whole of the work is."""

    def hear(self, stage: str, done: float, total: float) -> Left | None:
        """As `reporter.Progress`; None: this stage is none of the work's."""


def time_left() -> ProgressColumn:
    """The column for the time that is left: as a course says, otherwise by the speed so far."""
    from rich.progress import Task, TimeRemainingColumn
    from rich.text import Text

    class TimeLeft(TimeRemainingColumn):
        def render(self, task: Task) -> Text:
            course: Left | None = task.fields.get("course")
            if course is None:
                return super().render(task)
            told = "-:--:--"
            if course.seconds is not None:  # when it was said
                left = course.seconds - (time.monotonic() - task.fields["said"])
                told = str(timedelta(seconds=round(max(0.0, left))))
            return Text(told, style="progress.remaining")

    return TimeLeft()


@contextmanager
def progress(quiet: bool, verbose: bool = False, course: Course | None = None) -> Iterator[Reporter]:
    """A progress bar, and the notes, on stderr; the bar only on a terminal.

    `course` has one bar for the stages that it knows; any other stage has its own. A long note comes once the
    work has begun, whole the first time on this machine or if `verbose`.
    """
    if quiet:
        yield Reporter(lambda *_: signals.check())
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

    # FORCE_COLOR makes rich take a log file for a terminal.
    terminal = Console(stderr=True, force_terminal=bool(sys.stderr and sys.stderr.isatty()))
    columns = (TextColumn("{task.description:>13}"), BarColumn(), TaskProgressColumn(), time_left())
    tasks: dict[str, TaskID] = {}

    held: list[LongNote] = []

    def note(line: str) -> None:
        if isinstance(line, LongNote):
            held.append(line)
            return
        with suppress(OSError):  # a full log must not cost the result
            terminal.print(f"note: {printable(line)}", markup=False, highlight=False, soft_wrap=True)

    def release() -> None:
        while held:
            line = held.pop(0)
            note(line.short if not verbose and cache.was_shown(line.short) else str(line))

    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bars:
        announced = False

        def show(stage: str, done: float, total: float) -> None:
            nonlocal announced
            signals.check()
            if stage != "download":
                release()
            bar, left = stage, None
            if course is not None and (left := course.hear(stage, done, total)) is not None:
                bar, done, total = "", left.share, 1.0
            if bar not in tasks:
                if "download" in tasks:  # it is over, or has failed
                    bars.update(tasks["download"], visible=False)
                tasks[bar] = bars.add_task(stage, total=total)
            if stage == "download" and done and not announced:
                announced = True
                if not terminal.is_terminal:  # where no bar shows what takes so long
                    note(f"fetching {total / 1e6:,.0f} MB of models")
            said = time.monotonic()
            bars.update(tasks[bar], description=stage, completed=done, total=total, course=left, said=said)

        @contextmanager
        def aside() -> Iterator[None]:
            bars.stop()
            try:
                yield
            finally:
                bars.start()

        yield Reporter(show, note, aside=aside)
        release()  # not after an error, which has nothing to do with them
