"""The desk with many transcripts: how long it searches and lists, and how much memory its server takes.

    python benchmarks/serve.py FOLDER [--transcripts 10000] [--open call.json] [--json OUT]

Each transcript is an hour: 500 passages of 20 words. The words are simulated, with a fixed seed: a vocabulary
of 60,000 invented words whose frequencies follow Zipf's law (the nth most frequent is said 1/n as often, as
in English), ten speakers by name in each recording, of 500. They go into the index by its own functions, not
by JSON files, which would take 20 GB; the files in FOLDER are empty, and the index knows their size and time.
The database is made in FOLDER, and is used again if it is there.

Then a server in a separate process answers over HTTP, as a browser would ask: each query once for the first
time, and then five times. `--open` copies a real transcript into FOLDER, whose page is opened as well. Its
memory is the largest resident set that the system saw.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time
import urllib.request
from array import array
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import harness
import numpy as np

from witness.serve.library.index import Index, IndexEntry
from witness.serve.library.library import id_of, walk
from witness.serve.library.search import Passage

PASSAGES, WORDS, VOCABULARY, SPEAKERS = 500, 20, 60_000, 500
TOKEN = "benchmark-of-the-desk"  # noqa: S105 - of a server that lives for a minute
REPEATS = 5


def vocabulary() -> list[str]:
    """Invented words, the frequent ones short, all different."""
    source = random.Random(1)  # noqa: S311 - invented words need not be unguessable
    found: dict[str, None] = {}
    while len(found) < VOCABULARY:
        syllables = 1 + round(3 * (len(found) / VOCABULARY) ** 0.3 * source.random() + 0.3)
        word = "".join(source.choice("bcdfghjklmnprstvw") + source.choice("aeiou") for _ in range(syllables))
        found[word + source.choice(["", "", "n", "s", "t"])] = None
    return list(found)


def hour(number: int, words: np.ndarray, chances: np.ndarray) -> Iterator[Passage]:
    """The passages of a transcript."""
    source = np.random.default_rng(number)
    said = words[np.searchsorted(chances, source.random((PASSAGES, WORDS)))]
    people = source.integers(0, SPEAKERS, 10)
    begins = array("I", range(0, 360 * WORDS, 360)).tobytes()
    for place, row in enumerate(said):
        speaker = f"Person {people[source.integers(0, 10)]}"
        yield Passage(speaker, 7.2 * place, 7.2 * (place + 1), " ".join(row), begins)


def fill(folder: Path, index: Index, transcripts: int) -> float:
    """Make files and index; returns the seconds that the index took."""
    for number in range(transcripts):
        path = folder / f"{number // 100:03d}" / f"talk {number:05d}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1.6e9 + 3600 * number,) * 2)
    words = np.array(vocabulary())
    weights = 1 / np.arange(1, VOCABULARY + 1)
    chances = np.cumsum(weights / weights.sum())
    chances[-1] = 1.0
    spent = 0.0
    for number, place in enumerate(walk(folder)):
        if index.is_current(place.id, place.size, place.mtime_ns):
            continue
        said = list(hour(number, words, chances))
        names = tuple(dict.fromkeys(one.speaker for one in said))
        entry = IndexEntry(place.id, place.size, place.mtime_ns, "new", 3600.0, names, place.mtime_ns / 1e9)
        begun = time.perf_counter()
        index.put(entry, said)
        spent += time.perf_counter() - begun
        if number % 500 == 0:
            sys.stderr.write(f"{number} transcripts, {spent:.0f} s\n")
    return spent


def queries() -> dict[str, dict[str, str]]:
    """Queries to time."""
    words = vocabulary()
    often, rare = words[0], words[30_000]
    return {
        "the most frequent word": {"q": often},
        "a rare word": {"q": rare},
        "no such word": {"q": "zzzz"},
        "the two most frequent words": {"q": f"{often} {words[1]}"},
        "the most frequent and a rare word": {"q": f"{often} {rare}"},
        "a phrase of the two most frequent": {"q": f'"{often} {words[1]}"'},
        "a phrase of a frequent and a rare word": {"q": f'"{often} {rare}"'},
        "a phrase of five frequent words": {"q": '"' + " ".join(words[2:7]) + '"'},
        "a beginning of one letter": {"q": f"{often[0]}*"},
        "a beginning of two letters": {"q": f"{often[:2]}*"},
        "a beginning of three letters": {"q": f"{rare[:3]}*"},
        "a word that is misspelled": {"q": f"{rare[1]}{rare[0]}{rare[2:]}"},
        "a frequent word or a rare one": {"q": f"{often} OR {rare}"},
        "a frequent word without another": {"q": f"{often} NOT {words[1]}"},
        "all that one speaker said": {"speaker": "Person 7"},
        "a beginning of four letters": {"q": f"{rare[:4]}*"},
        "the most frequent word by one speaker": {"q": often, "speaker": "Person 7"},
        "a rare word by one speaker": {"q": rare, "speaker": "Person 7"},
        "the last page of the most frequent word": {"q": often, "offset": "280"},
    }


def views() -> dict[str, str]:
    """The lists, as the page asks for them."""
    asked = {
        f"list by {sort}": {"sort": sort} for sort in ("name", "folder", "date", "speakers", "state", "tag")
    }
    asked |= {
        "the last rows": {"offset": "250", "limit": "50"},
        "one folder": {"folder": "001"},
        "one speaker": {"speaker": "Person 7"},
        "one state": {"state": "new"},
        "one month": {"since": "2020-10-01", "until": "2020-10-31"},
        "a part of a name": {"name": "talk 0001*"},
    }
    return {name: f"api/library?{urlencode(query)}" for name, query in asked.items()}


def measure(folder: Path, opened: Path | None) -> dict[str, object]:
    """Times in seconds, and memory in bytes."""
    command = [sys.executable, "-m", "witness", "serve", str(folder), "--no-browser", "--port", "0", "-q"]
    environment = {**os.environ, "WITNESS_TOKEN": TOKEN, "WITNESS_CACHE": str(folder / "cache")}
    begun = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        base = "" if server.stdout is None else server.stdout.readline().partition("?")[0]
        result: dict[str, object] = {"start": round(time.perf_counter() - begun, 3)}
        time.sleep(3)  # it looks at the folder

        def ask(path: str) -> tuple[float, dict[str, object]]:
            request = urllib.request.Request(base + path, headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310 - our own
            begun = time.perf_counter()
            with urllib.request.urlopen(request) as answer:  # noqa: S310
                content = answer.read()
            return time.perf_counter() - begun, json.loads(content) if content[:1] == b"{" else {}

        asked = {name: f"api/search?{urlencode(query)}" for name, query in queries().items()}
        asked |= views()
        if opened is not None:
            asked["open a transcript"] = f"t/{id_of(opened.relative_to(folder))}/"
        rows = {}
        for name, path in asked.items():
            first, answer = ask(path)
            again = [ask(path)[0] for _ in range(REPEATS)]
            rows[name] = {
                "total": answer.get("total"),
                "more": answer.get("more", False),
                "first": round(first, 4),
                "median": round(statistics.median(again), 4),
                "slowest": round(max(again), 4),
            }
        result["queries"] = rows
        status = Path(f"/proc/{server.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        result["memory_bytes"] = int(peak.split()[1]) * 1024
        return result
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Fill, ask, print."""
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--transcripts", type=int, default=10_000)
    parser.add_argument("--open", type=Path, help="the JSON of a transcript")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["WITNESS_CACHE"] = str(folder / "cache")
    index = Index.of(folder)
    seconds = fill(folder, index, given.transcripts)
    opened = None if given.open is None else Path(shutil.copy(given.open, folder))
    result = {
        "transcripts": len(index.entries()),
        "words": len(index.entries()) * PASSAGES * WORDS,
        "index_seconds": round(seconds, 1) or None,
        "index_bytes": sum(path.stat().st_size for path in index.path.parent.iterdir()),
        **measure(folder, opened),
    }
    harness.show(result, given.json, sqlite=sqlite3.sqlite_version)


if __name__ == "__main__":
    main()
