"""What the campaigns share: an input in a process of its own, what it may cost, and the sum at the end."""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 60
"""Of processor time, after which a process is ended: on a busy machine others take theirs."""
PATIENCE = 600
"""Seconds after which it is ended in any case."""
BYTES = 1_000_000_000


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    """Its exit code, or minus the signal that ended it."""
    seconds: float
    """Of processor time."""
    peak: int
    """Bytes."""
    said: str
    """On stderr, and on stdout if that was kept."""


def alone(action: Callable[[], int], stderr: Path, *, both: bool = False) -> Ended:
    """Run `action`, which has an exit code, in a process of its own; keep stderr, and stdout if `both`."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(PATIENCE)  # the default of both signals is to end the process
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(2 if both else os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
        try:
            code = action()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    said = stderr.read_text("utf-8", "replace")
    return Ended(code, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, said)


def command(*arguments: str) -> int:
    """`witness ARGUMENTS`, which ends the process."""
    from witness.cli.main import main

    main(arguments)
    raise AssertionError


def complaint(ended: Ended, codes: set[int]) -> str | None:
    """What no campaign allows; None: nothing."""
    if ended.code in (-signal.SIGALRM, -signal.SIGXCPU):
        return f"hung, {ended.seconds:.0f} s of processor time"
    if ended.code not in codes:
        return f"exit code {ended.code}"
    for words in ("Traceback", "please report"):
        if words in ended.said:
            return words
    if ended.peak > BYTES:
        return f"{ended.peak / 1e6:.0f} MB"
    return None


def parser(description: str | None, count: int) -> argparse.ArgumentParser:
    """Options of every campaign."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--first", type=int, default=0)
    made.add_argument("--count", type=int, default=count)
    return made


class Sum:
    """What was tried so far, and what was wrong with it."""

    def __init__(self) -> None:
        self.tried, self.bad, self.slowest, self.peak = 0, 0, 0.0, 0
        self.codes: dict[str, Counter[int]] = {}

    def add(self, kind: str, name: object, ended: Ended, wrong: str | None) -> None:
        """One input; `wrong` is printed at once, with what the process said."""
        self.tried += 1
        self.codes.setdefault(kind, Counter())[ended.code] += 1
        self.slowest, self.peak = max(self.slowest, ended.seconds), max(self.peak, ended.peak)
        if wrong is not None:
            self.bad += 1
            sys.stdout.write(f"{name} {kind}: {wrong}\n{ended.said[-2000:]}\n")
            sys.stdout.flush()

    def finish(self, **more: Any) -> int:
        """Print it as a line of JSON, with `more`; the exit code of the campaign."""
        codes = {kind: dict(sorted(found.items())) for kind, found in sorted(self.codes.items())}
        summary = {
            "inputs": self.tried,
            "exit_codes": codes,
            "slowest_seconds": round(self.slowest, 2),
            "peak_mb": round(self.peak / 1e6, 1),
            **more,
            "bad": self.bad,
        }
        sys.stdout.write(json.dumps(summary) + "\n")
        return int(self.bad > 0)
