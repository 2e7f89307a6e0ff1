"""What strangers send, through the whole command: python tests/fuzz/impostors.py [--first 0] [--count 1500]

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
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parent))

import trials

CODES = {
    **{kind: {0, 4} for kind in ("transcript", "corrections", "findings", "voice")},
    "rule": {0, 5},
    "archive": {0, 4, 6},
    "server": {0, 5},
}
"""Kind -> the exit codes that it may have."""


def complaint(kind: str, ended: trials.Ended, folder: Path) -> str | None:
    """Return the fault of an outcome; None: the outcome is allowed."""
    if (wrong := trials.complaint(ended, CODES[kind])) is not None:
        return wrong
    lines = [line for line in ended.said.splitlines() if line and not line.startswith("note: ")]
    if len(lines) > (ended.code != 0) or "\x1b" in ended.said:
        return f"{len(lines)} lines on stderr"
    if left := [path.name for path in folder.rglob(".witness-*")]:
        return f"left behind: {left}"
    if ended.code or kind in ("archive", "server"):
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
    parser = trials.parser(__doc__, 1500)
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
    found = trials.Sum()
    # What runs once here is imported and kept here: most of the time otherwise.
    trials.alone(lambda: trials.command("redo", "-q", str(papers.json), "-f", "json"), folder / "stderr")
    for number in range(arguments.first, arguments.first + arguments.count):
        kind = kinds[number % len(kinds)]
        chance = random.Random(number)
        liar = None
        if kind == "server":
            liar = servers.Liar(number)
            constants.ENDPOINT = liar.url
            action = lambda: trials.command("models", "fetch", servers.NAME, "--force")  # noqa: E731
        elif kind == "archive":
            (folder / "graph.zip").write_bytes(archives.archive(chance))
            (folder / "graph").mkdir(exist_ok=True)
            action = lambda: archives.unpack(folder / "graph.zip", folder / "graph")  # noqa: E731
        else:
            line = getattr(documents, kind)(papers, chance)
            action = lambda line=line: trials.command(*line)  # noqa: E731
        ended = trials.alone(action, folder / "stderr")
        found.add(kind, number, ended, complaint(kind, ended, folder))
        if liar is not None:
            liar.close()
        papers.restore()
    return found.finish()


if __name__ == "__main__":
    sys.exit(campaign())
