"""For all benchmarks: options, rounds in turn, the cost of a child, spreads, results with their origin."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from witness.bench import measurement

# Installed programs come compiled; ours, run from its source, is compiled once and not with every start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

T = TypeVar("T")

CALL = Path(__file__).parents[1] / "tests" / "data" / "call.flac"
"""A minute of a call, which is part of the repository."""
LOAD = measurement.load()
"""Processes that wanted a core before the benchmark began."""


def options(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a module's documentation, with `--json FILE` for the result."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=form)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result here")
    return parser


def show(figures: dict[str, Any], path: Path | None, table: str | None = None, **versions: str) -> None:
    """Print the figures and the machine as JSON, or the table if given; write the JSON to `path` if given.

    `versions` are those of programs that Witness does not know.
    """
    origin = {
        "load_before": LOAD,
        "hardware": asdict(measurement.hardware()),
        "versions": {**measurement.versions(), **versions},
        "source_sha256": measurement.source_sha256(),
    }
    text = json.dumps({**figures, **origin}, ensure_ascii=False, indent=1) + "\n"
    sys.stdout.write(text if table is None else f"{table}\n")
    if path:
        path.write_text(text, encoding="utf-8")


def in_turn(ways: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """(round, way): each way once a round, every round beginning with another one.

    So a slow moment of the machine affects all of them.
    """
    for number in range(rounds):
        for place in range(len(ways)):
            yield number, ways[(place + number) % len(ways)]
        sys.stderr.write(f"round {number + 1} of {rounds}\n")


def measured(command: Sequence[str], output: Path | None = None) -> dict[str, float]:
    """Run a command; seconds of wall and processor time, its children's included, and memory.

    The memory is that of the largest process at its peak. `output`: where its stdout goes.
    """
    begun = time.perf_counter()
    with (
        Path(output or os.devnull).open("wb") as out,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out) as child,
    ):
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with code {child.returncode}")
    return {
        "wall": round(time.perf_counter() - begun, 2),
        "processor": round(used.ru_utime + used.ru_stime, 2),
        "peak_memory_mb": round(used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6, 1),
    }


def family(pid: int) -> list[int]:
    """`pid` and its descendants."""
    members = [pid]
    for parent in members:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                members += [int(child) for child in task.read_text().split()]
    return members


def resident(pid: int) -> int:
    """Bytes in the memory of a process and its descendants."""
    total = 0
    for member in family(pid):
        with suppress(OSError):
            total += int(Path(f"/proc/{member}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def open_files(pid: int) -> int:
    """Open files of a process and its descendants, pipes and sockets among them."""
    count = 0
    for member in family(pid):
        with suppress(OSError):
            count += len([*Path(f"/proc/{member}/fd").iterdir()])
    return count


def transcribe(recording: Path, folder: Path, more: Sequence[str]) -> dict[str, float]:
    """`witness run` with these options, which writes JSON and findings into the folder."""
    command = [sys.executable, "-m", "witness", "run", str(recording), "--quiet", "-f", "json"]
    return measured([*command, "-o", str(folder), *more])


def spread(values: Sequence[float], digits: int = 2) -> dict[str, float]:
    """Of the rounds."""
    found = {"median": median(values), "low": min(values), "high": max(values)}
    return {name: round(value, digits) for name, value in found.items()}


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """Divide their times by ours: the medians, and the lowest and the highest of a round."""
    rounds = [them / us for them, us in zip(theirs, ours, strict=True)]
    values = {"median": median(theirs) / median(ours), "low": min(rounds), "high": max(rounds)}
    return {name: round(value, 2) for name, value in values.items()}
