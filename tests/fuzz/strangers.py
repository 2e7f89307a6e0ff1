"""What strangers send, through the whole command: python tests/fuzz/strangers.py [--first 0] [--count 1500]

Transcripts, corrections, findings, rules, voices (`documents`), compiled graphs (`archives`) and a server of
models that lies (`servers`), each kind in turn, each input in a process of its own. Not allowed: a traceback,
"please report it", a message of more than a line, an exit code that the kind does not have, more than 60 s,
more than 1 GB, a result that is not valid JSON, a file left behind. The last line is the sum as JSON; the
exit code is 1 if there was any of these.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parent))

SECONDS = 60
BYTES = 1_000_000_000
CODES = {
    **{kind: {0, 4} for kind in ("transcript", "corrections", "stages", "voice")},
    "rule": {0, 5},
    "archive": {0, 4, 6},
    "server": {0, 5},
}
"""Kind -> the exit codes that it may have."""


def attempt(action: Callable[[], int], errors: Path) -> tuple[int, float, int, str]:
    """(exit code or -signal, seconds, peak bytes, stderr) of an action in a process of its own."""
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        signal.alarm(SECONDS)  # its default is to end the process
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 1
        try:
            code = action()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code, time.monotonic() - begun, usage.ru_maxrss * 1024, errors.read_text("utf-8", "replace")


def command(arguments: Sequence[str]) -> NoReturn:
    """The command with these arguments."""
    from witness.cli.main import main

    main(arguments)
    raise AssertionError


def complaint(kind: str, found: tuple[int, float, int, str], folder: Path) -> str | None:
    """What is not allowed about the outcome; None: nothing."""
    code, seconds, peak, stderr = found
    lines = [line for line in stderr.splitlines() if line and not line.startswith("note: ")]
    if code == -signal.SIGALRM:
        return f"hung for {seconds:.0f} s"
    if code not in CODES[kind]:
        return f"exit code {code}"
    if "Traceback" in stderr or "please report" in stderr or len(lines) > (code != 0) or "\x1b" in stderr:
        return f"{len(lines)} lines on stderr"
    if peak > BYTES:
        return f"{peak / 1e6:.0f} MB"
    if left := [path.name for path in folder.rglob(".witness-*")]:
        return f"left behind: {left}"
    if code or kind in ("archive", "server"):
        return None
    try:
        result = folder / ("sound.json" if kind in ("rule", "voice") else "call.json")
        json.loads(result.read_bytes(), parse_constant=_refuse)
    except (OSError, ValueError) as error:
        return f"no result: {error}"
    return None


def _refuse(token: str) -> NoReturn:
    raise ValueError(token)


def campaign() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--kind", choices=sorted(CODES), action="append", help="only these; repeatable")
    arguments = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        return _campaign(arguments, Path(folder))


def _campaign(arguments: argparse.Namespace, folder: Path) -> int:
    os.environ |= {
        "HF_HOME": str(folder / "hub"),
        "NO_PROXY": "127.0.0.1",
        "WITNESS_CACHE": str(folder / "cache"),
    }
    import archives
    import documents
    import servers
    from huggingface_hub import constants

    kinds = arguments.kind or list(CODES)
    servers.small_catalogue()
    papers = documents.Papers(folder)
    codes: dict[str, Counter[int]] = {kind: Counter() for kind in kinds}
    slowest, largest, bad = 0.0, 0, 0
    # What runs once here is imported and kept here: most of the time otherwise.
    attempt(lambda: command(["redo", "-q", str(papers.json), "-f", "json"]), folder / "stderr")
    for number in range(arguments.first, arguments.first + arguments.count):
        kind = kinds[number % len(kinds)]
        chance = random.Random(number)
        liar = None
        if kind == "server":
            liar = servers.Liar(number)
            constants.ENDPOINT = liar.url
            action = lambda: command(["models", "fetch", servers.NAME, "--force"])  # noqa: E731
        elif kind == "archive":
            (folder / "graph.zip").write_bytes(archives.archive(chance))
            (folder / "graph").mkdir(exist_ok=True)
            action = lambda: archives.unpack(folder / "graph.zip", folder / "graph")  # noqa: E731
        else:
            line = getattr(documents, kind)(papers, chance)
            action = lambda line=line: command(line)  # noqa: E731
        found = attempt(action, folder / "stderr")
        codes[kind][found[0]] += 1
        slowest, largest = max(slowest, found[1]), max(largest, found[2])
        if (wrong := complaint(kind, found, folder)) is not None:
            bad += 1
            sys.stdout.write(f"{number} {kind}: {wrong}\n{found[3][-2000:]}\n")
            sys.stdout.flush()
        if liar is not None:
            liar.close()
        papers.restore()
    summary = {
        "inputs": arguments.count,
        "exit_codes": {kind: dict(sorted(found.items())) for kind, found in codes.items()},
        "slowest_seconds": round(slowest, 2),
        "peak_mb": round(largest / 1e6, 1),
        "bad": bad,
    }
    sys.stdout.write(json.dumps(summary) + "\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(campaign())
