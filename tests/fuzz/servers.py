"""A model server that lies: the same number always gives the same lies.

Every answer is made of a status, headers and a body, of which some are not what they should be; and every
answer to a client that comes again may be another.
"""

from __future__ import annotations

import hashlib
import random
import re
import socket
import threading
import time
from dataclasses import replace

from witness.models import catalogue, download

BODY = b"a model of a few bytes " * 3000
NAME = "segmentation-3.0"
STATUSES = (
    *(b"HTTP/1.1 200 OK", b"HTTP/1.1 206 Partial Content") * 6,
    *(b"HTTP/1.1 204 No Content", b"HTTP/1.1 301 Moved", b"HTTP/1.1 302 Found", b"HTTP/1.1 308 Moved"),
    *(b"HTTP/1.1 100 Continue", b"HTTP/1.1 404 \x1b[31mno", b"HTTP/1.1 416 Range", b"HTTP/1.1 503 Busy"),
    *(b"HTTP/9.9 200 OK", b"HTTP/1.1 99999 OK", b"HTTP/1.1 abc", b"", b"\0" * 100, b"x" * 70_000),
)
TARGETS = (
    "/",
    "//127.0.0.1:1/",
    "ftp://127.0.0.1/x",
    "file:///etc/passwd",
    "data:,x",
    "http://[",
    "\x00",
    "a" * 9000,
)
HUGE = "9" * 5000


def small_catalogue() -> None:
    """Make the model small, and patience short; for a process that does nothing else."""
    entry = next(entry for entry in catalogue.TABLE if entry.name == NAME)
    mine = replace(entry, size=len(BODY), sha256=hashlib.sha256(BODY).hexdigest())
    catalogue.TABLE = tuple(mine if one == entry else one for one in catalogue.TABLE)
    download.SILENCE, download.PATIENCE, download.MIN_GAIN = 1.0, 1.5, 20_000


class Liar:
    """Listens on 127.0.0.1 until `close`."""

    def __init__(self, number: int) -> None:
        self._chance = random.Random(number)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._over = threading.Event()
        self._honest = self._chance.random() < 0.3  # until it breaks
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._over.set()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        try:
            with client:
                client.settimeout(5)
                request = client.recv(65536)
                asked = re.search(rb"Range: bytes=(\d+)-", request)
                self._lie(client, int(asked[1]) if asked else 0)
        except OSError:
            pass  # the client had enough

    def _lie(self, client: socket.socket, start: int) -> None:
        chance = self._chance
        if self._honest:
            start = chance.choice([start, start, 0])
            status = b"HTTP/1.1 206 Partial Content" if start else b"HTTP/1.1 200 OK"
            headers = [f"Content-Length: {len(BODY) - start}"]
            headers += [f"Content-Range: bytes {start}-{len(BODY) - 1}/{len(BODY)}"] if start else []
        else:
            status, headers = chance.choice(STATUSES), list(self._headers(start))
        client.sendall(b"\r\n".join([status, *(header.encode("latin-1") for header in headers), b"", b""]))
        body = BODY[start:]
        way = chance.randrange(8)
        if way == 0:
            self._over.wait(chance.choice([0.2, 3]))
        elif way == 1:
            for byte in body:
                client.sendall(bytes([byte]))
                if self._over.wait(chance.choice([0.01, 0.2])):
                    return
        elif way == 2:
            client.sendall(body[: chance.randrange(len(body) + 1)])
        elif way == 3:
            client.sendall(bytes(len(body)))
        elif way == 4:  # for ever
            until = time.monotonic() + 10
            while time.monotonic() < until:
                client.sendall(b"1000\r\n" + bytes(4096) + b"\r\n")
        else:
            client.sendall(body)

    def _headers(self, start: int) -> list[str]:
        chance, size = self._chance, len(BODY)
        lengths = (size - start, size - start, size, 0, -1, size * 10, HUGE, "x", "")
        ranges = (
            *(f"bytes {start}-{size - 1}/{size}", f"bytes 0-{size - 1}/{size}", f"bytes {start}-/{size}"),
            *(
                f"bytes {HUGE}-1/{size}",
                f"bytes 0-1/{HUGE}",
                "bytes */*",
                "x",
                "\xb2",
                f"bytes {size}-1/{size}",
            ),
        )
        some = [
            f"Content-Length: {chance.choice(lengths)}",
            f"Content-Range: {chance.choice(ranges)}",
            f"Location: {chance.choice(TARGETS)}",
            "Transfer-Encoding: chunked",
            "Content-Encoding: gzip",
            f"X: {'y' * 70_000}",
            "no colon",
        ]
        weights = (0.9, 0.6, 0.5, 0.15, 0.1, 0.03, 0.05)
        kept = [header for header, weight in zip(some, weights, strict=True) if chance.random() < weight]
        return kept * chance.choice([1, 1, 1, 200])
