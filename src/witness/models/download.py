"""One file from a server, resumed where the last try stopped; a dead network is noticed within 5 s.

`huggingface_hub` keeps the cache but does not do the transfer, because three promises cannot be kept with its
`hf_hub_download` (measured with version 2.4.0):

* a dead network is noticed within 5 s: it takes 23 s for a refused connection, minutes for one that stays
  silent, and 65 s for a transfer that stalls (11 s with the shortest timeout that can be set);
* a broken transfer is resumed by the next run: it deletes the partial file when it gives up;
* `offline` opens no socket: even with local_files_only=True it asks the Hub for a list of user agents, unless
  telemetry is disabled.

Nothing is lost: revision, size and sha256 are known beforehand, so one anonymous GET is the whole protocol.
"""

from __future__ import annotations

import contextlib
import queue
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from witness._version import __version__
from witness.errors import ModelError

if TYPE_CHECKING:  # loading it takes as long as everything else here, and most runs fetch nothing
    from http.client import HTTPResponse

SILENCE = 4.0
"""Seconds without a byte after which nobody is taken to be there; 5 s are promised, noticing included."""

MAX_FRUITLESS = 5
"""Connections in a row that may break before `MIN_GAIN` bytes have come, before that counts as nobody too."""

MIN_GAIN = 1 << 20

PORTAL = "check HF_ENDPOINT, the proxy, and any login page of this network"


class FetchError(ModelError):
    """A file is not here and cannot be brought; nothing that is on the disk is at fault."""


class NetworkError(Exception):
    """Nobody is there; the text says who, and how it showed."""


def download(url: str, part: Path, size: int, report: Callable[[int], None]) -> None:
    """Complete `part` from where it ends, over as many connections as it takes.

    Raises:
        NetworkError: nobody is there, or the bytes stop coming; `part` keeps those that came.
        FetchError: somebody answers, but not with this file.
        OSError: the disk.
    """
    fruitless = 0
    while (have := part.stat().st_size if part.exists() else 0) < size:
        if (free := shutil.disk_usage(part.parent).free) < size - have:
            raise OSError(f"{size - have >> 20} MiB more are needed and {free >> 20} MiB are free")
        fruitless = 0 if _append(url, part, have, size, report) >= MIN_GAIN else fruitless + 1
        if fruitless == MAX_FRUITLESS:
            raise NetworkError(f"the connection to {_host(url)} keeps breaking")


def _append(url: str, part: Path, have: int, size: int, report: Callable[[int], None]) -> int:
    """Append what one connection brings; the number of bytes."""
    from http.client import HTTPException

    received = 0
    with _connect(url, have) as answer, part.open("ab") as file:
        resumed = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
        start, offered = (int(resumed[1]), int(resumed[2])) if resumed else (0, answer.length)
        if offered != size or start not in (0, have):
            # Most likely the login page of a hotel, which must not spoil what is in `part` already.
            raise FetchError(f"cannot fetch {url}: {offered} bytes are offered instead of {size}; {PORTAL}")
        if start < have:  # the server does not resume
            file.truncate(0)
        while start + received < size:
            try:
                block = answer.read1(1 << 18)
            except TimeoutError as error:
                raise NetworkError(f"{_host(url)} stopped sending") from error
            except (OSError, HTTPException):  # the connection broke: the next one may go on from here
                break
            if not block:
                break
            file.write(block)
            received += len(block)
            report(start + received)
    return received


def _host(url: str) -> str:
    return "/".join(url.split("/")[:3])


def _connect(url: str, offset: int) -> HTTPResponse:
    """The answer to a GET of `url` from byte `offset` on: headers read, redirects followed, body to come.

    The work is done in a thread, which is left behind if it takes too long: a socket's timeout covers neither
    the look-up of a name nor an answer that trickles. Every redirect is a sign of life, with `SILENCE` anew.
    """
    import ssl
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    if not url.startswith(("http://", "https://")):
        raise FetchError(f"cannot fetch {url}: HF_ENDPOINT must begin with http:// or https://; correct it")
    events: queue.SimpleQueue[HTTPResponse | Exception | None] = queue.SimpleQueue()
    given_up = threading.Event()

    class Redirects(HTTPRedirectHandler):
        def redirect_request(self, *args: object) -> Request | None:
            events.put(None)
            return super().redirect_request(*args)  # type: ignore[arg-type]

    def work() -> None:
        try:
            context = ssl.create_default_context()
            with contextlib.suppress(
                ImportError
            ):  # for a Python that does not find the system's certificates
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
        raise NetworkError(f"{_host(url)} gave no answer for {SILENCE:g} s") from error
    if isinstance(event, HTTPError):
        event.close()
        raise FetchError(f"cannot fetch {url}: the server answered {event.code} {event.reason}; {PORTAL}")
    if isinstance(event, Exception):
        reason = getattr(event, "reason", event)
        raise NetworkError(f"{_host(url)} cannot be reached ({reason})") from event
    return event
