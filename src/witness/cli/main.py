"""The command line: commands, errors -> exit codes.

Everything heavy is imported inside the commands, so that `--help` answers in a blink.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from witness._version import __version__
from witness.child import SINGLE_THREADED
from witness.cli import (
    batch,
    bench,
    convert,
    doctor,
    enroll,
    gpu,
    models,
    options,
    redo,
    run,
    score,
    serve,
    signals,
)
from witness.errors import CancelledError, WitnessError, broken_package, lacks_memory
from witness.text import suggest

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS}
"""Errors that another disk or folder cures."""


class _DefaultRun(options.Group):
    """A group that takes anything but its commands as arguments of `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = {"--help", "-h", "--version", *self.commands}
        args = self._translated(ctx, args)
        if args and args[0] not in words:
            hint = suggest(args[0], self.commands)
            if hint and re.fullmatch(r"[a-z]+", args[0]) and not os.path.exists(args[0]):  # noqa: PTH110
                ctx.fail(f"{args[0]!r} is neither a command nor a recording that is there{hint}")
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def _translated(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Translate commands of other programs."""
        match args:
            case ["help", name, *_] if name not in self.commands:
                ctx.fail(f"there is no command {name!r}{suggest(name, self.commands)}")
            case ["help", *rest]:
                return [*rest, "--help"]
            case ["version"]:
                return ["--version"]
            case ["transcribe", *rest]:
                return ["run", *rest]
        return args

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """A command, or else a recording."""
        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]


@click.group(
    cls=_DefaultRun,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    options_metavar="RECORDING [OPTIONS] |",
    subcommand_metavar="COMMAND [ARGS]...",
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="witness")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """A transcript that says who spoke.

    \b
    witness call.wav                          print the transcript
    witness call.wav -f srt -f json -o out/   write out/call.srt and out/call.json
    witness run --help                        show all options of these two
    """
    options.help_alone(ctx)


for _command in (
    run.run,
    batch.batch_command,
    serve.serve_command,
    redo.redo_command,
    convert.convert_command,
    enroll.enroll_command,
    score.score,
    bench.bench,
    models.models_group,
    gpu.gpu_group,
    gpu.probe,
    doctor.doctor_command,
):
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and end the process."""
    for name, value in SINGLE_THREADED.items():
        os.environ.setdefault(name, value)
    try:
        signals.listen()
        code = _exit_code(list(sys.argv[1:] if args is None else args))
    except (KeyboardInterrupt, SystemExit):  # while an error was being told
        code = signals.exit_code()
    signals.leave(code)


def _exit_code(args: list[str]) -> int:
    """Run the command line. The one place where errors become exit codes."""
    try:
        if "_WITNESS_COMPLETE" in os.environ:  # the shell asks for completions
            cli.main(prog_name="witness")
        # Not cli.main: it ends the process for a broken pipe, and prints an empty line for Ctrl-C.
        with cli.make_context("witness", args) as context:
            cli.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except (KeyboardInterrupt, click.Abort, CancelledError):  # the last, where a library dropped the first
        signals.say_interrupted()
        return signals.exit_code()
    except BrokenPipeError:
        # What is left in the buffer must not fail again while the interpreter shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except click.UsageError as error:
        command = "witness" if error.ctx is None else error.ctx.command_path
        return _complain(f"{error.format_message()} ({command} --help)", error.exit_code)
    except click.ClickException as error:
        return _complain(error.format_message(), error.exit_code)
    except Exception as error:
        return _failed(error)
    return 0


def _failed(error: Exception) -> int:
    """Print what went wrong; returns the exit code."""
    if lacks_memory(error):
        return _complain("not enough memory; fix: close other programs, or raise the limit (ulimit -v)", 1)
    if isinstance(error, WitnessError):
        return _complain(str(error), error.exit_code)
    if isinstance(error, OSError):
        path = error.filename or "stdout"
        fix = "check the disk or the network drive that it is on"
        if error.errno in _NO_ROOM:
            fix = "free disk space or fix the folder's permissions"
        return _complain(f"{path}: {error.strerror}; {fix}", 1)
    if os.environ.get("WITNESS_DEBUG"):
        raise error
    if (message := broken_package(error)) is not None:
        return _complain(message, 1)
    return _complain(
        f"{type(error).__name__}: {error}; this is a bug, please report it with the traceback that "
        "WITNESS_DEBUG=1 shows",
        1,
    )


def _complain(message: str, code: int) -> int:
    """Print the message in one line on stderr; returns the exit code."""
    signals.complain(message)
    return code
