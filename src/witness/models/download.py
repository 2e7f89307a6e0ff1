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
from pathlib import Path
from typing import TYPE_CHECKING

from witness._version import __version__
from witness.errors import ModelError

if TYPE_CHECKING:  # loading it takes as long as everything else here, and most runs fetch nothing
    from http.client import HTTPResponse

SILENCE = 4.0
"""Seconds without a byte after which a server counts as dead; less than the promised 5 s, which include the
time to notice."""

REMEMBERED = 30.0
"""Seconds for which a dead server is not asked again. The other files of a run must not cost `SILENCE` each,
and a batch that runs for days must notice that the network is back."""

MAX_FRUITLESS = 5
"""Connections in a row that may break before `MIN_GAIN` bytes have arrived; then the server is dead."""

MIN_GAIN = 1 << 20
"""In bytes."""

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
    fruitless = 0
    while (have := part.stat().st_size if part.exists() else 0) < size:
        if (free := shutil.disk_usage(part.parent).free) < size - have:
            raise OSError(f"{size - have >> 20} MiB more are needed and {free >> 20} MiB are free")
        since, sign = _dead.get(server, (0.0, ""))
        if sign and time.monotonic() - since < REMEMBERED:
            raise NetworkError(sign)
        try:
            fruitless = 0 if _append(url, part, have, size, report) >= MIN_GAIN else fruitless + 1
            if fruitless == MAX_FRUITLESS:
                raise NetworkError(f"the connection to {server} keeps breaking")
        except NetworkError as error:
            _dead[server] = time.monotonic(), str(error)
            raise


def _append(url: str, part: Path, have: int, size: int, report: Callable[[int], None]) -> int:
    """Append to `part` what one connection brings; returns the number of bytes."""
    from http.client import HTTPException

    received = 0
    with _connect(url, have) as answer, part.open("ab") as file:
        resumed = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
        start, offered = (int(resumed[1]), int(resumed[2])) if resumed else (0, answer.length)
        if offered != size or start not in (0, have):
            # Most likely the login page of a hotel, which must not spoil what `part` already holds.
            raise FetchError(
                f"cannot fetch {url}: the server offers {offered} bytes instead of {size}; {PORTAL}"
            )
        if start < have:  # the server does not resume
            file.truncate(0)
        while start + received < size:
            try:
                block = answer.read1(1 << 18)
            except TimeoutError as error:
                raise NetworkError(f"{_server(url)} stopped sending") from error
            except (OSError, HTTPException):  # the connection broke; the next one may continue from here
                break
            if not block:
                break
            file.write(block)
            received += len(block)
            report(start + received)
    return received


def _server(url: str) -> str:
    """Scheme, host and port of a URL."""
    return "/".join(url.split("/")[:3])


def _connect(url: str, offset: int) -> HTTPResponse:
    """The answer to a GET of `url` from byte `offset` on: headers read, redirects followed, body to come.

    A thread does the work and is abandoned if it takes too long: a socket's timeout covers neither the lookup
    of a name nor an answer that trickles. A redirect is a sign of life and restarts the wait of `SILENCE`.
    """
    import ssl
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    if not url.startswith(("http://", "https://")):
        raise FetchError(f"cannot fetch {url}: HF_ENDPOINT must begin with http:// or https://; change it")
    events: queue.SimpleQueue[HTTPResponse | Exception | None] = queue.SimpleQueue()
    given_up = threading.Event()

    class Redirects(HTTPRedirectHandler):
        def redirect_request(self, *args: object) -> Request | None:
            events.put(None)
            return super().redirect_request(*args)  # type: ignore[arg-type]

    def work() -> None:
        try:
            context = ssl.create_default_context()
            # For a Python that does not find the system's certificates.
            with contextlib.suppress(ImportError):
                import certifi

                context.load_verify_locations(certifi.where())
            request = Request(url, headers={"User-Agent": f"witness/{__version__}"})  # noqa: S310 - checked above
            if offset:
                request.add_header("Range", f"bytes={offset}-")
            answer = build_opener(Redirects, HTTPSHandler(context=context)).open(request, timeout=SILENCE)
        except Exception as error:
            events.put(error)
        else:
            answer.close() if given_up.is_set() else events.put(answer)

    threading.Thread(target=work, name="witness-connect", daemon=True).start()
    try:
        while (event := events.get(timeout=SILENCE)) is None:
            pass
    except queue.Empty as error:
        given_up.set()
        raise NetworkError(f"{_server(url)} gave no answer for {SILENCE:g} s") from error
    if isinstance(event, HTTPError):
        event.close()
        raise FetchError(f"cannot fetch {url}: the server answered {event.code} {event.reason}; {PORTAL}")
    if isinstance(event, Exception):
        reason = getattr(event, "reason", event)
        reason = getattr(reason, "strerror", None) or reason  # without the number of the error
        raise NetworkError(f"{_server(url)} cannot be reached ({reason})") from event
    return event
