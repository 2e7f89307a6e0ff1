"""Fetch one file from a server: resume where the last attempt stopped, and notice a dead network within 5 s.

`huggingface_hub` owns the cache but does not do the transfer, because its `hf_hub_download` cannot keep three
promises (measured: docs/decisions/2026-11-22-constants.md):

* A dead network is noticed within 5 s.
* A broken transfer is resumed by the next run.
* `offline` opens no socket.

Nothing is lost: revision, size and sha256 are known in advance, so one anonymous GET is the whole protocol.
"""

from __future__ import annotations

import contextlib
import queue
import re
import shutil
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from witness._version import __version__
from witness.errors import ModelError

if TYPE_CHECKING:  # loading it takes as long as everything else here, and most runs fetch nothing
    import ssl
    from http.client import HTTPResponse

SILENCE = 4.0
"""Seconds without a byte after which a server counts as dead; less than the promised 5 s, which include the
time to notice."""

REMEMBERED = 30.0
"""Seconds for which a dead server is not asked again. The other files of a run must not cost `SILENCE` each,
and a batch that runs for days must notice that the network is back."""

PATIENCE = 15.0
"""Seconds over which the rate of a transfer is measured."""

MIN_RATE = 1000
"""Bytes per second, less than the slowest modem; a server that sends fewer counts as dead."""

MAX_FRUITLESS = 5
"""Connections in a row that may break before they bring `MIN_GAIN` bytes that no earlier one brought; then
the server is dead. As many in all may start over."""

MIN_GAIN = 1 << 20
"""In bytes."""

SCHEMES = ("http://", "https://")

PORTAL = "check HF_ENDPOINT, the proxy, and whether this network has a login page"

_dead: dict[str, tuple[float, str]] = {}
"""Server -> when it was found dead, by the monotonic clock, and what showed it."""


class FetchError(ModelError):
    """A file is missing and cannot be fetched; no file on the disk is at fault."""


class NetworkError(Exception):
    """A server is dead. The message names it and says what showed it."""


def download(url: str, part: Path, size: int, report: Callable[[int], None]) -> None:
    """Complete `part`, from where it ends up to `size` bytes, over as many connections as it takes.

    `report` is called with the number of bytes in `part`.

    Raises:
        NetworkError: the server is dead or stops sending; `part` keeps what has arrived.
        FetchError: the server answers, but not with this file.
        OSError: `part` cannot be written.
    """
    server = _server(url)
    fruitless = again = most = 0
    while (have := part.stat().st_size if part.exists() else 0) < size:
        if (free := shutil.disk_usage(part.parent).free) < size - have:
            raise OSError(f"{size - have >> 20} MiB more are needed and {free >> 20} MiB are free")
        since, sign = _dead.get(server, (0.0, ""))
        if sign and time.monotonic() - since < REMEMBERED:
            raise NetworkError(sign)
        try:
            start, end = _append(url, part, have, size, report)
            most = max(most, have)
            again += start < have
            fruitless = 0 if end - most >= MIN_GAIN else fruitless + 1
            if end < size and MAX_FRUITLESS in (fruitless, again):
                raise NetworkError(f"the connection to {server} keeps breaking")
        except NetworkError as error:
            _dead[server] = time.monotonic(), str(error)
            raise


def _append(url: str, part: Path, have: int, size: int, report: Callable[[int], None]) -> tuple[int, int]:
    """Append to `part` what one connection brings; returns from where to where, in bytes."""
    from http.client import HTTPException

    with _connect(url, have) as answer, part.open("ab") as file:
        end = start = _start(answer, url, have, size)
        if start < have:  # the server does not resume
            file.truncate(0)
        since, then = time.monotonic(), start
        while end < size:
            try:
                block = answer.read1(1 << 18)
            except TimeoutError as error:
                raise NetworkError(f"{_server(url)} stopped sending") from error
            except (OSError, HTTPException):  # the connection broke; the next one may continue from here
                break
            if not block:
                break
            file.write(block)
            end += len(block)
            report(end)
            if (now := time.monotonic()) - since >= PATIENCE:
                if end - then < MIN_RATE * (now - since):
                    raise NetworkError(f"{_server(url)} sends less than {MIN_RATE / 1000:g} kB a second")
                since, then = now, end
    return start, end


def _start(answer: HTTPResponse, url: str, have: int, size: int) -> int:
    """The byte of the file that the body begins with, 0 or `have`.

    Raises FetchError unless the rest up to `size` follows. Most likely it is the login page of a hotel, which
    must not spoil what `part` already holds.
    """
    stated = answer.headers.get("Content-Range")
    # No file has a size of more digits, and Python refuses to read thousands of them.
    part = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18})", stated or "")
    if stated and not part:
        raise FetchError(f"cannot fetch {url}: the server's Content-Range is malformed; {PORTAL}")
    start, offered = (int(part[1]), int(part[2])) if part else (0, answer.length)
    if offered != size or start not in (0, have):
        amount = "an unknown number of" if offered is None else offered
        raise FetchError(f"cannot fetch {url}: the server offers {amount} bytes instead of {size}; {PORTAL}")
    return start


def _server(url: str) -> str:
    """Scheme, host and port of a URL."""
    return "/".join(url.split("/")[:3])


@cache
def _certificates() -> ssl.SSLContext:
    """By which servers are trusted. Reading them takes longer than many a request."""
    import ssl

    context = ssl.create_default_context()
    # For a Python that does not find the system's certificates.
    with contextlib.suppress(ImportError):
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def _connect(url: str, offset: int) -> HTTPResponse:
    """The answer to a GET of `url` from byte `offset` on: headers read, redirects followed, body to come.

    Redirects are followed to http and https only: urllib knows ftp, too. A thread does the work and is
    abandoned if it takes too long: a socket's timeout covers neither the lookup of a name nor an answer that
    trickles. A redirect is a sign of life and restarts the wait of `SILENCE`.
    """
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    if not url.startswith(SCHEMES):
        raise FetchError(f"cannot fetch {url}: HF_ENDPOINT must begin with http:// or https://; change it")
    events: queue.SimpleQueue[HTTPResponse | Exception | None] = queue.SimpleQueue()
    given_up = threading.Event()

    class Redirects(HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> Request | None:
            events.put(None)
            answer, target = args[1], args[-1]
            if not target.startswith(SCHEMES):
                answer.close()
                raise FetchError(f"cannot fetch {url}: the server redirects to {target}; {PORTAL}")
            return super().redirect_request(*args)

    def work() -> None:
        try:
            request = Request(url, headers={"User-Agent": f"witness/{__version__}"})  # noqa: S310 - checked above
            if offset:
                request.add_header("Range", f"bytes={offset}-")
            opener = build_opener(Redirects, HTTPSHandler(context=_certificates()))
            answer = opener.open(request, timeout=SILENCE)
        except Exception as error:
            events.put(error)
        else:
            answer.close() if given_up.is_set() else events.put(answer)

    threading.Thread(target=work, name="witness-connect", daemon=True).start()
    silent = f"{_server(url)} gave no answer for {SILENCE:g} s"
    try:
        while (event := events.get(timeout=SILENCE)) is None:
            pass
    except queue.Empty as error:
        given_up.set()
        raise NetworkError(silent) from error
    if isinstance(event, FetchError):
        raise event
    if isinstance(event, HTTPError):
        event.close()
        raise FetchError(f"cannot fetch {url}: the server answered {event.code} {event.reason}; {PORTAL}")
    if isinstance(event, Exception):
        reason = getattr(event, "reason", event)
        if isinstance(reason, TimeoutError):  # the socket noticed it first
            raise NetworkError(silent) from event
        reason = getattr(reason, "strerror", None) or reason  # without the number of the error
        raise NetworkError(f"{_server(url)} cannot be reached ({reason})") from event
    return event
