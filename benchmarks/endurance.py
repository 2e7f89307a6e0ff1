"""Whether a desk grows: its memory and open files over many requests and recordings.

    python benchmarks/endurance.py FOLDER [--recordings 1000] [--requests 10000] [--json OUT]

FOLDER gets that many recordings, each a tone of half a second, with the transcript of a minute beside each,
which is made once. Requests come one after the other, each on a connection of its own: the list, a search, a
page, its outline, its sound, an export, and the name of a speaker, which is saved. Memory and open files are
those of the desk and its child processes after each tenth of the requests; the first of these tenths has what
is loaded once.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import harness
import numpy as np
import soundfile

TOKEN = "benchmark-of-the-desk"  # noqa: S105 - of a server that lives for some minutes


def fill(folder: Path, count: int) -> None:
    """Recordings, and transcripts that name them."""
    made = folder.with_name("made")
    harness.transcribe(harness.CALL, made, ["--models", "builtin", "--offline", "--whisper", "none"])
    document = json.loads((made / "call.json").read_bytes())
    document["findings"] = None
    time_of = np.arange(8000) / 16000
    for number in range(count):
        place = folder / f"{number // 100:02d}" / f"talk {number:04d}.wav"
        place.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(place, 0.3 * np.sin(2 * np.pi * (200 + number / 4) * time_of), 16000)
        document["audio"] |= {"path": place.name, "sha256": hashlib.sha256(place.read_bytes()).hexdigest()}
        place.with_suffix(".json").write_text(json.dumps(document))


class Desk:
    """A desk in a process of its own, and a client of it."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "witness", "serve", str(folder), "--no-browser", "--port", "0", "-q"]
        command += ["--models", "builtin", "--offline", "--whisper", "none"]
        environment = {**os.environ, "WITNESS_TOKEN": TOKEN, "WITNESS_CACHE": str(folder.with_name("cache"))}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        told = "" if self.process.stdout is None else self.process.stdout.readline()
        self._base = told.partition("?")[0].strip()

    def ask(self, path: str, body: dict[str, Any] | None = None) -> bytes:
        """The answer, which must be a good one."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, content, headers)  # noqa: S310 - our own
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
            return bytes(answer.read())

    def names(self, count: int) -> list[str]:
        """The ids of all recordings, once the desk has read them."""
        while (seen := json.loads(self.ask("api/library?limit=1")))["indexed"] < 1 or seen["total"] < count:
            time.sleep(0.5)
        pages = range(0, count, 100)
        found = [json.loads(self.ask(f"api/library?offset={first}"))["recordings"] for first in pages]
        return [row["id"] for rows in found for row in rows]

    def visit(self, number: int, ids: list[str]) -> int:
        """A few requests about one recording; how many they were."""
        page = f"t/{ids[number * 7 % len(ids)]}/"
        self.ask("api/library?sort=name")
        self.ask(f"api/search?q=talk&offset={number % 50}")
        for part in ("", "outline", "sound", "export?format=srt"):
            self.ask(page + part)
        version = json.loads(self.ask(f"{page}corrections"))["version"]
        self.ask(f"{page}name", {"version": version, "speaker": "SPEAKER_00", "name": f"Person {number}"})
        return 8


def main() -> None:
    """Fill, ask, print."""
    parser = harness.options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recordings", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=10_000)
    given = parser.parse_args()
    folder = given.folder.resolve() / "talks"
    fill(folder, given.recordings)
    desk = Desk(folder)
    try:
        ids = desk.names(given.recordings)
        done, visits, tenths, begun = 0, 0, [], time.perf_counter()
        while done < given.requests:
            done, visits = done + desk.visit(visits, ids), visits + 1
            if done * 10 >= given.requests * (len(tenths) + 1):
                memory = round(harness.resident(desk.process.pid) / 1e6, 1)
                row = {
                    "requests": done,
                    "memory_mb": memory,
                    "open_files": harness.open_files(desk.process.pid),
                }
                sys.stderr.write(f"{row}\n")
                tenths.append(row)
        seconds = time.perf_counter() - begun
    finally:
        desk.process.terminate()
        desk.process.wait()
    found = {"recordings": len(ids), "requests": done, "saves": visits, "seconds": round(seconds, 1)}
    harness.show({**found, "tenths": tenths}, given.json)


if __name__ == "__main__":
    main()
