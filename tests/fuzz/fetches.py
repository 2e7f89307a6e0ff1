"""First fetches that are killed at random: python tests/fuzz/fetches.py [--first 0] [--count 200]

A small model is fetched from a server that gives it in pieces, slowly. The process is ended by SIGKILL (some
by SIGTERM or SIGINT), mostly while it fetches, and started again until one comes to its end; sometimes two
fetch at once. Not allowed: a model in its place that is not whole, a fetch that fails or begins from nothing
after a kill left a part, a traceback, and a part that is still there when all is done. The last line is the
sum as JSON; the exit code is 1 if there was any of these.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import servers
import trials

SIGNALS = (*[signal.SIGKILL] * 4, signal.SIGTERM, signal.SIGINT)
PIECE, PAUSE = 4000, 0.02
"""Bytes at a time, and the seconds between them: a fetch takes a third of a second."""
FIRST = 20_000
"""Bytes that a part must have before the next fetch must go on from it."""


class Slow:
    """A server that gives the model in pieces, from where it is asked to."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.starts: list[int] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._socket.accept()
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        try:
            with client:
                asked = re.search(rb"Range: bytes=(\d+)-", client.recv(65536))
                start, size = int(asked[1]) if asked else 0, len(servers.BODY)
                self.starts.append(start)
                head = "206 Partial Content" if start else "200 OK"
                headers = f"Content-Length: {size - start}\r\nContent-Range: bytes {start}-{size - 1}/{size}"
                client.sendall(f"HTTP/1.1 {head}\r\n{headers}\r\n\r\n".encode())
                for first in range(start, size, PIECE):
                    client.sendall(servers.BODY[first : first + PIECE])
                    time.sleep(PAUSE)
        except OSError:
            pass  # the client is gone


def started(stderr: Path) -> int:
    """The id of a process that fetches."""
    pid = os.fork()
    if pid:
        return pid
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
    code = 1
    try:
        code = trials.command("models", "fetch", servers.NAME)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:  # before Witness listens for it
        code = 128 + signal.SIGINT
    finally:
        os._exit(code)


def parts(hub: Path) -> list[int]:
    """The sizes of what is half fetched."""
    return [path.stat().st_size for path in hub.rglob("*.witness-part")]


def complaint(hub: Path) -> str | None:
    """What is not allowed about the files; None: nothing."""
    for path in hub.rglob("*.onnx"):
        if path.read_bytes() != servers.BODY:
            return f"{path.name} has {path.stat().st_size} bytes"
    return None


def campaign() -> int:
    """Run it."""
    arguments = trials.parser(__doc__, 200).parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    kills, done, resumed, bad = 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as base:
        hub, stderr = Path(base, "hub"), Path(base, "stderr")
        os.environ |= {"HF_HOME": str(hub), "NO_PROXY": "127.0.0.1", "WITNESS_CACHE": f"{base}/cache"}
        from huggingface_hub import constants

        servers.small_catalogue()
        server = Slow()
        constants.ENDPOINT = server.url
        chance = random.Random(arguments.first)
        while kills < arguments.count:
            left = max(parts(hub), default=0)
            server.starts.clear()
            both = [started(stderr)] + ([started(Path(base, "other"))] if chance.random() < 0.2 else [])
            wrong, patience = None, time.monotonic() + (30 if chance.random() < 0.8 else chance.uniform(0, 1))
            while not server.starts and time.monotonic() < patience:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.8))
            resumed += max(server.starts, default=0) > 0
            for pid in both:
                number = chance.choice(SIGNALS)
                os.kill(pid, number)  # a process that has ended waits to be asked for
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                kills += code != 0
                if code not in (0, -number, 128 + number):
                    wrong = f"exit code {code}"
                done += code == 0
            said = stderr.read_text("utf-8", "replace")
            if "Traceback" in said and f"{os.sep}witness{os.sep}" in said:
                wrong = "traceback"
            if left > FIRST and server.starts and max(server.starts) < FIRST // 2:
                wrong = f"began at {server.starts}, where {left} bytes were"
            wrong = complaint(hub) or wrong
            if code == 0 and parts(hub):
                wrong = f"parts of {parts(hub)} bytes are left"
            if wrong is not None:
                bad += 1
                sys.stdout.write(f"after {kills} kills: {wrong}\n{said[-1000:]}\n")
            if any(hub.rglob("*.onnx")):
                shutil.rmtree(hub)
    sys.stdout.write(json.dumps({"kills": kills, "fetched": done, "resumed": resumed, "bad": bad}) + "\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(campaign())
