"""The command line: commands, errors -> exit codes, signals.

Everything heavy is imported inside the commands, so that `--help` answers in a blink.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from witness._version import __version__
from witness.child import SINGLE_THREADED
from witness.cli import batch, bench, doctor, enroll, gpu, models, options, redo, run, score, signals
from witness.errors import CancelledError, WitnessError
from witness.text import printable


class _DefaultRun(click.Group):
    """A group that takes whatever is not one of its commands as arguments of `run`."""

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
    witness call.wav                          print the transcript
    witness call.wav -f srt -f json -o out/   write out/call.srt and out/call.json
    witness run --help                        show all options of these two
    """
    options.help_alone(ctx)


for _command in (
    run.run,
    batch.batch_command,
    redo.redo_command,
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
    """Run the command line and end the process. The one place where errors become exit codes."""
    for name, value in SINGLE_THREADED.items():
        os.environ.setdefault(name, value)
    code = 0
    try:
        signals.listen()
        if "_WITNESS_COMPLETE" in os.environ:  # the shell asks for completions
            cli.main(prog_name="witness")
        # Not cli.main: it ends the process for a broken pipe, and prints an empty line for Ctrl-C.
        with cli.make_context("witness", list(sys.argv[1:] if args is None else args)) as context:
            cli.invoke(context)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except CancelledError:  # a library had dropped what the signal raised
        code = _interrupted(signals.exit_code())
    except WitnessError as error:
        code = _complain(str(error), error.exit_code)
    except click.UsageError as error:
        code = _complain(f"{error.format_message()} (witness --help)", error.exit_code)
    except click.ClickException as error:
        code = _complain(error.format_message(), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        code = _interrupted(signals.INTERRUPTED)
    except BrokenPipeError:
        # What is left in the buffer must not fail again while the interpreter shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        place = error.filename or "stdout"
        code = _complain(f"{place}: {error.strerror}; free disk space or fix the folder's permissions", 1)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except Exception as error:
        if os.environ.get("WITNESS_DEBUG"):
            raise
        code = _complain(
            f"{type(error).__name__}: {error}; this is a bug, please report it with the traceback that "
            "WITNESS_DEBUG=1 shows",
            1,
        )
    sys.exit(code)


def _interrupted(code: int) -> int:
    """Say so after Ctrl-C; who sends another signal need not be told. Returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # once is enough
    if code != signals.INTERRUPTED:
        return code
    return _complain("interrupted; unfinished results were not written", code)


def _complain(message: str, code: int) -> int:
    """Print the message in one line on stderr; returns the exit code."""
    line = printable(" ".join(message.split()))
    if sys.stderr is not None:  # print would use stdout instead
        with suppress(OSError):
            print(f"witness: {line}", file=sys.stderr)  # noqa: T201
    return code
