"""Options of several commands, short text files that they name, progress on stderr, and help of a group."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import click
from click.shell_completion import CompletionItem

from witness import languages
from witness.audio import fifo
from witness.cli import signals
from witness.formats.registry import Format
from witness.options import (
    MOST_SPEAKERS,
    Channels,
    Choice,
    Device,
    PageAudio,
    Precision,
    Recognizer,
)
from witness.progress import LongNote, Reporter
from witness.storage import atomic, cache, files
from witness.text import in_units, printable, suggest, without_commands

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from witness.work.produce import Writing

T = TypeVar("T")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
MANY = 15
"""Options of a command above which its help has sections."""
LONGEST_PAUSE = 86_400
"""Seconds, a day; a longer one is a slip of the finger."""
MOST = 10_000
"""Cores or jobs; a larger number is a slip of the finger."""
LARGEST_LIST = 1 << 16
"""Bytes of a list of terms or rules; a recognizer listens to far less."""
SECTIONS = {
    "Usual": "speakers language whisper formats to out",
    "Result": "force no_findings html_audio",
    "Reading": "pauses fillers line_width lines words speaker_names times",
    "Words": "translate fast_words vocabulary prompt replaced recognizer",
    "Speakers": "min_speakers max_speakers known channels models fast precision",
    "Recording": "start end",
    "Machine": "device gpu threads serial parallel offline jobs limit_time limit_memory scheduler",
}
"""Sections of `--help` and the parameters in each; the others follow in a section of their own."""


OTHER_PROGRAMS = {
    "--model": "--whisper",
    "--task": "--translate",
    "--num-speakers": "--speakers",
    "--num_speakers": "--speakers",
    "--min_speakers": "--min-speakers",
    "--max_speakers": "--max-speakers",
    "--output_dir": "--output",
    "--output-dir": "--output",
    "--output_format": "--format",
    "--output-format": "--format",
    "--initial_prompt": "--prompt",
}
"""Options of Whisper, whisperX and others -> those of Witness."""


class Command(click.Command):
    """A command whose help has its options in sections, by subject, and whose errors know other programs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if file := next((word for word in words if word.startswith("-") and os.path.isfile(word)), None):  # noqa: PTH113
                ctx.fail(f"{file} reads as options; for the file, write ./{file}")
            if not isinstance(error, click.NoSuchOption):
                raise
            if error.option_name == "--diarize":
                ctx.fail("there is no --diarize: speakers are always found; leave it out")
            option = OTHER_PROGRAMS.get(error.option_name)
            if any(option in parameter.opts for parameter in self.params):
                value = "".join(f" {word}" for word in _value_of(error.option_name, words))
                ctx.fail(f"there is no {error.option_name}; write {option}{value}")
            raise

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        options, *arguments = super().collect_usage_pieces(ctx)
        return [*arguments, options]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {
            parameter.name or "": row
            for parameter in self.get_params(ctx)
            if (row := parameter.get_help_record(ctx)) is not None
        }
        sections = SECTIONS if len(rows) > MANY else {}
        for title, names in sections.items():
            if section := [rows.pop(name) for name in names.split() if name in rows]:
                with formatter.section(title):
                    formatter.write_dl(section)
        with formatter.section("Other" if sections else "Options"):
            formatter.write_dl(list(rows.values()))


def _value_of(option: str, words: list[str]) -> list[str]:
    """Return the word after an option, if it is its value."""
    after = words[words.index(option) + 1 :][:1] if option in words else []
    return [word for word in after if not word.startswith("-")]


class Group(click.Group):
    """A group of such commands, which suggests the nearest one."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(f"there is no command {args[0]!r}{suggest(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


# --- values ---


def moment(value: str | float) -> float:
    """Return a time in a recording in seconds: 90, 1:30 and 0:01:30 are the same, and may have decimals.

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
    """Return the path. Raises click's BadParameter if no file can be made there, and for a pipe."""
    if path is None:
        return None
    if path.exists() and not path.is_file():
        raise click.BadParameter(f"{path} is not a regular file; give another path")
    folder = path.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        why = "no permission" if folder.is_dir() else "there is no such folder"
        raise click.BadParameter(f"{path} cannot be written ({why}); give another path")
    return path


def terms(path: Path | None) -> tuple[str, ...]:
    """Return the names and terms in a file, one a line. Raises click's BadParameter."""
    return () if path is None else _lines_of(path, "a vocabulary", "one name or term a line")


def rules(path: Path | None) -> tuple[tuple[str, str], ...]:
    """Return pairs to replace, of a file with lines like "cooper netties = Kubernetes".

    Raises click's BadParameter.
    """
    form = "lines like HEARD = WRITTEN"
    pairs: list[tuple[str, str]] = []
    for line in () if path is None else _lines_of(path, "a list of replacements", form):
        left, sign, written = (part.strip() for part in line.partition("="))
        spoken = [words.strip() for words in left.split(",")]
        if without_commands(line) != line:
            raise click.BadParameter(f"{path}: {line[:80]!r} has control characters; take them out")
        if not sign or not written or not all(spoken):
            raise click.BadParameter(
                f"{path}: {line[:80]!r} is not a rule; write it as HEARD, HEARD = WRITTEN"
            )
        pairs += [(words, written) for words in spoken]
    return tuple(pairs)


def _lines_of(path: Path, subject: str, form: str) -> tuple[str, ...]:
    """Return the lines of a short text file, without empty ones and comments. Raises click's BadParameter."""
    try:
        read = fifo.read if path.is_fifo() else files.read_some
        content = read(path, LARGEST_LIST + 1)
        text = "" if len(content) > LARGEST_LIST else content.decode("utf-8-sig")
    except fifo.SilentError as error:
        raise click.BadParameter(f"{path}: {error.strerror}; give a text file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} cannot be read as text; save it as UTF-8, {form}") from error
    if len(content) > LARGEST_LIST:
        limit = f"at most {LARGEST_LIST >> 10} KiB"
        raise click.BadParameter(f"{path} is too long for {subject}; give {limit}, {form}")
    if b"\0" in content:
        raise click.BadParameter(f"{path} has zero bytes, so it is not a text; save it as UTF-8, {form}")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    if not (lines := [line for line in lines if line and not line.startswith("#")]):
        raise click.BadParameter(f"{path} is empty; write {form}")
    return tuple(lines)


def _complete_whisper(begun: str) -> list[CompletionItem]:
    """Complete --whisper: auto, none, sizes and names of the catalogue, or a path."""
    from witness.models import catalogue

    names = [entry.name for entry in catalogue.TABLE if entry.role == "whisper"]
    sizes = [name.removeprefix(catalogue.PREFIX) for name in names]
    words = dict.fromkeys(["auto", "none", *sizes, *names])
    items = [CompletionItem(word) for word in words if word.startswith(begun)]
    return items or [CompletionItem(begun, type="file")]


def _complete_language(begun: str) -> list[CompletionItem]:
    """Complete a language by code or by name; after a comma, one more."""
    before, comma, last = begun.rpartition(",")
    names = {**languages.NAMES, languages.MULTI: "found every ten seconds"}
    return [
        CompletionItem(f"{before}{comma}{code}", help=name)
        for code, name in names.items()
        if code.startswith(last.lower()) or (last and name.startswith(last.lower()))
    ]


class Number(click.FloatRange):
    """A range of numbers that refuses nan, which lies in each of click's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail("nan is not a number; write it as 2 or 0.5", param, ctx)
        return number


# --- options ---


class WordChoice(click.Choice[str]):
    """One of some words; the message about another one suggests the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            hint = suggest(str(value), [str(word) for word in self.choices])
            self.fail(error.message.rstrip(".") + hint, param, ctx)


class Whole(click.IntRange):
    """A range of whole numbers."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not re.fullmatch(r"\s*[+-]?\d+\s*", str(value)):
            self.fail(f"{value!r} is not a whole number; write it in digits, such as 2", param, ctx)
        return super().convert(value, param, ctx)


class LocalPath(click.Path):
    """A path on this machine, and no address such as s3://bucket/out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if re.match(r"(?i)[a-z][a-z0-9+.-]+://", str(value)):
            self.fail(f"{printable(str(value))} is an address; give a path on this machine", param, ctx)
        return super().convert(value, param, ctx)


PATH = LocalPath(path_type=Path)
FILE = LocalPath(path_type=Path, exists=True, dir_okay=False)


class Option(Protocol):
    """A decorator that gives a command an option, or several."""

    def __call__(self, command: Decorated, /) -> Decorated: ...


def together(*group: Option) -> Option:
    """Return several options as one decorator, which `--help` lists in this order."""

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(group):
            command = option(command)
        return command

    return decorate


def choice(name: str, choices: type[Choice], help_text: str) -> Option:
    """Return an option for one of the words of an enumeration, whose first is the default."""
    words = [item.value for item in choices]
    return click.option(name, type=WordChoice(words), default=words[0], show_default=True, help=help_text)


def flag(name: str, help_text: str) -> Option:
    return click.option(name, is_flag=True, help=help_text)


def text(name: str, metavar: str, help_text: str, default: str | None = None, **more: Any) -> Option:
    """Return an option for a text, whose help shows the default."""
    shown = bool(default)
    return click.option(name, default=default, show_default=shown, metavar=metavar, help=help_text, **more)


def several(name: str, parameter: str, metavar: str, help_text: str, **more: Any) -> Option:
    """Return an option that may be repeated."""
    return click.option(name, parameter, multiple=True, metavar=metavar, help=help_text, **more)


def whole(
    name: str, minimum: int, maximum: int | None, help_text: str, metavar: str = "N", **more: Any
) -> Option:
    """Return an option for a whole number."""
    return click.option(name, type=Whole(minimum, maximum), metavar=metavar, help=help_text, **more)


def text_file(name: str, parameter: str, read: Callable[[Path | None], object], help_text: str) -> Option:
    """Return an option for a short text file."""
    return click.option(
        name, parameter, type=FILE, metavar="FILE", callback=lambda _, __, path: read(path), help=help_text
    )


FORMATS = [form.value for form in Format]
ALL = "all"
"""All formats."""

# --- fields of witness.options.Options, by their names ---

MODELS = text(
    "--models",
    "auto|standard|community-1|campplus|builtin|DIR",
    "Models that tell speakers apart.",
    "auto",
)
WHISPER = text(
    "--whisper",
    "auto|none|NAME|PATH",
    "Model that recognizes words: a name from `witness models list`, a size, a file or a folder.",
    "auto",
    shell_complete=lambda _, __, begun: _complete_whisper(begun),
)
RECOGNIZER = choice(
    "--recognizer",
    Recognizer,
    "Engine that recognizes words; auto: a GPU engine if one works here, else CTranslate2 if installed.",
)
LANGUAGE = text(
    "--language",
    "NAME|multi",
    "Language: de or german; de,en: one of these; multi: found every ten seconds. [default: found]",
    shell_complete=lambda _, __, begun: _complete_language(begun),
    callback=lambda _, __, name: None if name is None else languages.parse(name),
)
TRANSLATE = flag("--translate", "Write the words in English, in any language that is spoken.")
FAST_WORDS = flag("--fast-words", "Search less for each word: less time, more errors.")
VOCABULARY = text_file(
    "--vocabulary", "vocabulary", terms, "Text file of names and terms that may occur, one a line."
)
PROMPT = text("--prompt", "TEXT", "Text in the style and with the names that are expected.", "")
REPLACE = text_file(
    "--replace", "replaced", rules, "Text file of words to replace, one rule a line: HEARD, HEARD = WRITTEN."
)
CHANNELS = choice(
    "--channels",
    Channels,
    "Mix the channels, or split them and find the speakers of each; auto splits the sides of a call.",
)
PRECISION = choice(
    "--precision", Precision, "Precision of the voice model on a GPU; fp16 changes the result slightly."
)
FAST = flag("--fast", "Analyze less of the audio: a third less work, slightly less accurate.")
START = click.option(
    "--from",
    "start",
    type=moment,
    default=0.0,
    metavar="TIME",
    help="Where in the recording to begin: 90, 1:30 or 0:01:30. [default: its beginning]",
)
END = click.option("--to", "end", type=moment, metavar="TIME", help="Where to stop. [default: its end]")
OFFLINE = flag("--offline", "Open no socket; use the models on this disk.")
KNOWN = text("--known", "DIR", "Folder of voices from `witness enroll`: name these people.", type=LocalPath())
SPEAKERS = whole(
    "--speakers",
    1,
    MOST_SPEAKERS,
    "Exact number of speakers (with --channels split: in each channel). [default: detected]",
)
MIN_SPEAKERS = whole("--min-speakers", 1, MOST_SPEAKERS, "Minimum number of speakers.")
MAX_SPEAKERS = whole("--max-speakers", 1, MOST_SPEAKERS, "Maximum number of speakers.")

speakers = together(SPEAKERS, MIN_SPEAKERS, MAX_SPEAKERS)
transcript = together(
    *(speakers, LANGUAGE, TRANSLATE, FAST_WORDS, VOCABULARY, PROMPT, REPLACE, START, END, CHANNELS),
    *(KNOWN, MODELS, WHISPER, RECOGNIZER, FAST, PRECISION, OFFLINE),
)
"""Everything that changes a transcript. A command hands all of it to Options, which refuses other names."""

# --- fields of witness.options.Runtime ---

DEVICE = choice(
    "--device",
    Device,
    "Device of the voice model; auto uses a GPU if that is faster, migraphx fails without one.",
)
GPU = whole("--gpu", 0, None, "Card to use, as HIP counts. [default: the best]", metavar="INDEX")
THREADS = whole("--threads", 1, MOST, "Cores to use. [default: all]", callback=lambda *args: args[2] or 0)
"""0, as in Runtime, without the option."""

# --- the rest ---

AS_PYANNOTE = flag(
    "--as-pyannote", "Count what overlapping turns of one speaker share twice, as pyannote.metrics does."
)
HTML_AUDIO = choice(
    "--html-audio",
    PageAudio,
    "Sound of an HTML page: embedded, a link, or none; auto embeds recordings under 20 minutes.",
)
KEEP = click.Choice(["keep", "drop"])
STYLE = together(
    text(
        "--pauses",
        "SECONDS",
        "Mark pauses of at least this length in txt, md, qda and docx: (.) if under a second, else "
        "(3 s); 0: none.",
        type=Number(0, LONGEST_PAUSE),
    ),
    click.option(
        "--fillers",
        type=KEEP,
        help="Leave um, uh, ähm or euh out of subtitles and documents, or not. [default: keep]",
    ),
    whole("--line-width", 10, 1000, "Columns of a subtitle. [default: 42]"),
    whole("--lines", 1, 10, "Lines of a subtitle. [default: 2]"),
    whole("--words", 0, 1000, "Most words of a subtitle; 0: no limit."),
    click.option(
        "--speaker-names",
        type=click.Choice(["text", "tag", "none"]),
        help="Where subtitles name speakers: in the text, in VTT's voice tags, or not at all, which txt, md "
        "and docx follow, too. [default: text]",
    ),
    click.option(
        "--times", type=KEEP, help="Leave the times out of txt, md and docx, or not. [default: keep]"
    ),
)
"""Look of a transcript in the formats for reading."""


def writing(parameters: dict[str, Any]) -> Writing:
    """Take the options of a Writing out of a command's."""
    from witness.work.produce import Writing

    keep, audio = not parameters.pop("no_findings", False), PageAudio(parameters.pop("html_audio"))
    return Writing(keep, audio, {name: parameters.pop(name) for name in SECTIONS["Reading"].split()})


def take(made: type[T], parameters: dict[str, Any]) -> T:
    """Return a dataclass made of the parameters of a command that are its fields, and take them out."""
    names = [field.name for field in fields(made)]  # type: ignore[arg-type] # mypy knows no type for any
    return made(**{name: parameters.pop(name) for name in names if name in parameters})


NO_STAGES = flag("--no-findings", "Keep nothing to count the speakers again with.")
LIMIT = text("--limit", "SECONDS", "Stop compiling after this time.", "600.0", type=Number(1))
MODEL = click.option(
    "--model", type=PATH, help="ONNX file with one input, instead of the voice model of --models."
)
SHAPE = several("--shape", "shapes", "NAME=DIMS", "Shape of an input: feats=1x998x80.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
QUIET = click.option("-q", "--quiet", is_flag=True, help="Print errors only: no progress, no notes.")


class _Formats(WordChoice):
    """One format or several: srt, or srt,json, or all whose libraries are installed."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the formats, joined by commas."""
        names = [name.strip() for name in value.split(",")]
        able = [form.value for form in Format if form.installed]
        groups = [able if name == ALL else [WordChoice.convert(self, name, param, ctx)] for name in names]
        return ",".join(form for group in groups for form in group)


def formats(help_text: str, **more: Any) -> Option:
    """Return `-f`, which may be repeated, or take several formats at once."""
    return click.option(
        "-f",
        "--format",
        "formats",
        multiple=True,
        type=_Formats([*FORMATS, ALL]),
        metavar="FORMAT[,FORMAT]",
        callback=lambda _, __, groups: tuple(name for group in groups for name in group.split(",")),
        help=f"{help_text} One or several of {', '.join(FORMATS)}; or all.",
        **more,
    )


def output(help_text: str) -> Option:
    """Return `-o` for a folder or a file."""
    return click.option("-o", "--output", "to", type=LocalPath(), metavar="PATH", help=help_text)


# --- output ---


def help_alone(ctx: click.Context) -> None:
    """Show the help of a group that was called without a command, which is fine."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def say(text: str) -> None:
    """Print lines as a result, on stdout; names that others gave cannot command a terminal."""
    atomic.write(f"{text}\n".encode("utf-8", "surrogateescape"), None)


def note_unpaired(reporter: Reporter, uris: set[str], lack: str) -> None:
    """Note the number of recordings without a counterpart, and the first five of them."""
    if uris:
        some = ", ".join(sorted(uris)[:5]) + (", ..." if len(uris) > 5 else "")
        reporter.note(f"{len(uris)} recordings {lack} ({some})")


class Left(NamedTuple):
    """Progress of the whole work."""

    share: float
    seconds: float | None
    """Seconds that it will still take; None: not known yet."""


class Course(Protocol):
    """An estimate of the whole work."""

    def hear(self, stage: str, done: float, total: float) -> Left | None:
        """Return the progress after news of a stage; None: the estimate leaves that stage out."""


def time_left() -> ProgressColumn:
    """Return the column for the time that is left: of a course, otherwise by the speed so far."""
    from rich.progress import Task, TimeRemainingColumn
    from rich.text import Text

    class TimeLeft(TimeRemainingColumn):
        def render(self, task: Task) -> Text:
            course: Left | None = task.fields.get("course")
            if course is None:
                return super().render(task)
            clock = "-:--:--"
            if course.seconds is not None:  # at the time of the news
                left = course.seconds - (time.monotonic() - task.fields["said"])
                clock = str(timedelta(seconds=round(max(0.0, left))))
            return Text(clock, style="progress.remaining")

    return TimeLeft()


MOST_WRITTEN = 10
"""Files that the last line names; it counts more of them."""


@contextmanager
def progress(quiet: bool, verbose: bool = False, course: Course | None = None) -> Iterator[Reporter]:
    """Show a progress bar, on a terminal only, notes on stderr, and in the end the files that were written.

    The stages of a `course` share one bar; any other stage has its own. A long note comes once the work has
    begun, whole the first time on this machine or if `verbose`.
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
    begun = time.monotonic()
    written: list[str] = []

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

        yield Reporter(show, note, wrote=written.append, aside=aside)
        release()  # not after an error, which has nothing to do with them
    if written:
        names = ", ".join(written) if len(written) <= MOST_WRITTEN else f"{len(written)} files"
        line = f"wrote {names} ({in_units(max(1.0, time.monotonic() - begun))})"
        with suppress(OSError):
            terminal.print(printable(line), markup=False, highlight=False, soft_wrap=True)
