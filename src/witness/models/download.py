"""Downloads that resume after an interruption, and notice a dead network within 5 s.

`huggingface_hub` owns the cache but does not do the transfer, because its `hf_hub_download` cannot keep three
promises (measured: docs/decisions/2026-11-22-constants.md):

* A dead network is noticed within 5 s.
* A broken transfer is resumed by the next run.
* `offline` opens no socket.

Nothing is lost: revision, size and sha256 are known in advance, so one anonymous GET is the whole protocol.
"""

from __future__ import annotations

import base64
import contextlib
import queue
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from witness._version import __version__
from witness.errors import ModelError
from witness.text import one_line

if TYPE_CHECKING:  # loading it takes as long as everything else here, and most runs fetch nothing
    import ssl
    from http.client import HTTPResponse
    from urllib.request import Request

SILENCE = 4.0
"""Seconds without a byte after which a server counts as dead; less than the promised 5 s, which include the
time to notice."""

REMEMBERED = 30.0
"""Seconds before a dead server is asked again. The other files of a run must not cost `SILENCE` each, and a
batch that runs for days must notice that the network is back."""

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

_dead: dict[str, tuple[float, str]] = {}
"""Dead server -> the time of its last failure, by the monotonic clock, and the failure."""


RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
"""A Content-Range. No file has a size of more digits, and Python refuses to read thousands of them."""


class FetchError(ModelError):
    """A file is missing and cannot be fetched; no file on the disk is at fault."""


class NetworkError(Exception):
    """A server is dead. The message names it and its failure."""


@dataclass(frozen=True)
class Route:
    """The way to servers, beside the settings of the environment."""

    setting: str
    """The setting that leads there, for messages."""
    proxy: str | None = None
    """For http and https, instead of the environment's."""
    certificates: str | None = None
    """A file of authorities that are trusted, too."""
    client: str | None = None
    """A file with this machine's own certificate and key."""
    trusted: frozenset[str] = frozenset()
    """Hosts, or host:port, whose certificates are not checked."""
    passwords: Mapping[str, str] = field(default_factory=dict)
    """Host, or host:port, -> "user:password", which is sent there and nowhere else."""

    @property
    def advice(self) -> str:
        return f"check {self.setting}, the proxy, and whether this network has a login page"

    def authorize(self, request: Request) -> None:
        """Add the password for the request's host; a redirect to another host does not carry it along."""
        host = request.host
        if password := self.passwords.get(host) or self.passwords.get(host.partition(":")[0]):
            coded = base64.b64encode(password.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {coded}")

    def context(self, host: str) -> ssl.SSLContext:
        checked = not {host, host.partition(":")[0]} & self.trusted
        return _certificates(self.certificates, self.client, checked)


HUB = Route("HF_ENDPOINT")


@dataclass(frozen=True)
class Section:
    """A stretch of a file on a server."""

    start: int
    """Its first byte."""
    whole: int
    """Bytes of the file."""


def download(
    url: str,
    part: Path,
    size: int,
    report: Callable[[int], None],
    *,
    route: Route = HUB,
    section: Section | None = None,
) -> None:
    """Complete `part`, from where it ends up to `size` bytes, over as many connections as it takes.

    It is the whole file, or a `section` of it. `report` is called with the number of bytes in `part`.

    Raises:
        NetworkError: the server is dead or stops sending; `part` keeps the bytes so far.
        FetchError: the server answers, but not with this file.
        OSError: `part` cannot be written.
    """
    server = _server(url)
    fruitless = again = furthest = 0
    while (have := part.stat().st_size if part.exists() else 0) < size:
        if (free := shutil.disk_usage(part.parent).free) < size - have:
            raise OSError(f"{size - have >> 20} MiB more are needed and {free >> 20} MiB are free")
        with _alive(server):
            start, end = _append(url, part, (have, size), report, route, section)
            furthest = max(furthest, have)
            again += start < have
            fruitless = 0 if end - furthest >= MIN_GAIN else fruitless + 1
            if end < size and MAX_FRUITLESS in (fruitless, again):
                raise NetworkError(f"the connection to {server} keeps breaking")


@contextlib.contextmanager
def _alive(server: str) -> Iterator[None]:
    """Guard work that needs a server: NetworkError at once if it was dead a moment ago."""
    since, sign = _dead.get(server, (0.0, ""))
    if sign and time.monotonic() - since < REMEMBERED:
        raise NetworkError(sign)
    try:
        yield
    except NetworkError as error:
        _dead[server] = time.monotonic(), str(error)
        raise


def _append(
    url: str,
    part: Path,
    sizes: tuple[int, int],
    report: Callable[[int], None],
    route: Route,
    section: Section | None,
) -> tuple[int, int]:
    """Append the bytes of one connection to `part`; return the first and the last position.

    `sizes` are the bytes that it has and will have.
    """
    have, size = sizes
    headers = {}
    if section:
        headers["Range"] = f"bytes={section.start + have}-{section.start + size - 1}"
    elif have:
        headers["Range"] = f"bytes={have}-"
    with _connect(url, headers, route) as answer:
        end = start = _start(answer, url, sizes, route, section)
        with part.open("ab") as file:
            if start < have:  # the server does not resume
                file.truncate(0)
            for block in _blocks(answer, url, size - start):
                file.write(block)
                end += len(block)
                report(end)
    return start, end


def _blocks(answer: HTTPResponse, url: str, size: int) -> Iterator[bytes]:
    """Give the blocks of a body of `size` bytes; end early if the connection breaks.

    Raises NetworkError if the server stops sending or sends next to nothing.
    """
    from http.client import HTTPException

    end = then = 0
    since = time.monotonic()
    while end < size:
        try:
            block = answer.read1(min(1 << 18, size - end))
        except TimeoutError as error:
            raise NetworkError(f"{_server(url)} stopped sending") from error
        except (OSError, HTTPException):  # the connection broke; the next one may continue from here
            return
        if not block:
            return
        yield block
        end += len(block)
        if (now := time.monotonic()) - since >= PATIENCE:
            if end - then < MIN_RATE * (now - since):
                raise NetworkError(f"{_server(url)} sends less than {MIN_RATE / 1000:g} kB a second")
            since, then = now, end


@dataclass(frozen=True)
class Answer:
    """A small answer, read to its end."""

    url: str
    """Its address after redirects."""
    content_type: str
    """Its Content-Type without parameters, in lower case."""
    body: bytes


def fetch_page(url: str, accept: str, largest: int, route: Route) -> Answer:
    """Return the document at `url`, of at most so many bytes.

    Raises NetworkError if the server is dead, FetchError if it has no such document or a larger one.
    """
    with _alive(_server(url)), _connect(url, {"Accept": accept}, route) as answer:
        body = b"".join(_blocks(answer, url, largest + 1))
        if answer.length and len(body) <= largest:
            raise NetworkError(f"the connection to {_server(url)} broke")
        document = Answer(answer.url, answer.headers.get_content_type().lower(), body)
    if len(body) > largest:
        raise FetchError(f"cannot fetch {url}: it has more than {largest >> 20} MiB; {route.advice}")
    return document


def fetch_end(url: str, count: int, route: Route) -> tuple[int, bytes | None]:
    """Return the size of the file at `url` and its last bytes; None: the server gives whole files only.

    Raises NetworkError if the server is dead, FetchError if it does not have the file or its size.
    """
    with _alive(_server(url)), _connect(url, {"Range": f"bytes=-{count}"}, route) as answer:
        stated = answer.headers.get("Content-Range")
        match = RANGE.fullmatch(stated or "")
        if stated is None and answer.length is not None:
            return answer.length, None
        start, last, size = map(int, match.groups()) if match else (0, 0, 0)
        expected = min(count, size)
        if not match or (start, last) != (size - expected, size - 1) or answer.length not in (None, expected):
            raise FetchError(f"cannot fetch {url}: the server does not tell its size; {route.advice}")
        body = b"".join(_blocks(answer, url, expected))
        if len(body) < expected:
            raise NetworkError(f"the connection to {_server(url)} broke")
    return size, body


def _start(
    answer: HTTPResponse, url: str, sizes: tuple[int, int], route: Route, section: Section | None
) -> int:
    """Return the body's first byte in the part, 0 or what it has.

    Raises FetchError unless the rest follows. Most likely it is the login page of a hotel, which must not
    spoil the bytes in the part.
    """
    have, size = sizes
    stated = answer.headers.get("Content-Range")
    if section:
        range_ = f"bytes {section.start + have}-{section.start + size - 1}/{section.whole}"
        if stated != range_ or answer.length not in (None, size - have):
            raise FetchError(f"cannot fetch {url}: the server sends another part than {range_}")
        return have
    part = RANGE.fullmatch(stated or "")
    if stated and not part:
        raise FetchError(f"cannot fetch {url}: the server's Content-Range is malformed; {route.advice}")
    start, offered = (int(part[1]), int(part[3])) if part else (0, answer.length)
    if offered != size or start not in (0, have):
        amount = "an unknown number of" if offered is None else offered
        raise FetchError(
            f"cannot fetch {url}: the server offers {amount} bytes instead of {size}; {route.advice}"
        )
    return start


def _server(url: str) -> str:
    return "/".join(url.split("/")[:3])


@cache
def _certificates(bundle: str | None, client: str | None, checked: bool) -> ssl.SSLContext:
    """Return the trusted certificates. Reading them takes longer than most requests."""
    import ssl

    context = ssl.create_default_context()
    # For a Python that does not find the system's certificates.
    with contextlib.suppress(ImportError):
        import certifi

        context.load_verify_locations(certifi.where())
    if bundle:
        folder = Path(bundle).is_dir()
        context.load_verify_locations(None if folder else bundle, bundle if folder else None)
    if client:
        context.load_cert_chain(client)
    if not checked:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _connect(url: str, headers: Mapping[str, str], route: Route) -> HTTPResponse:
    """Return the answer to a GET of `url`: headers read, redirects followed, body to come.

    Redirects are followed to http and https only: urllib knows ftp, too. A thread does the work and is
    abandoned if it takes too long: a socket's timeout covers neither the lookup of a name nor an answer that
    trickles. A redirect is a sign of life and restarts the wait of `SILENCE`.
    """
    from http.client import HTTPSConnection
    from urllib.error import HTTPError
    from urllib.parse import urlsplit
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

    if not url.startswith(SCHEMES):
        raise FetchError(
            f"cannot fetch {url}: {route.setting} must begin with http:// or https://; change it"
        )
    events: queue.SimpleQueue[HTTPResponse | Exception | None] = queue.SimpleQueue()
    given_up = threading.Event()

    class Redirects(HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> Request | None:
            events.put(None)
            answer, target = args[1], args[-1]
            if not target.startswith(SCHEMES):
                answer.close()
                raise FetchError(f"cannot fetch {url}: the server redirects to {target}; {route.advice}")
            request = super().redirect_request(*args)
            if request is not None:
                route.authorize(request)
            return request

    class Https(HTTPSHandler):
        def https_open(self, req: Request) -> HTTPResponse:
            # Not `req.host`, which is the proxy's where there is one.
            return self.do_open(HTTPSConnection, req, context=route.context(urlsplit(req.full_url).netloc))

    def work() -> None:
        try:
            request = Request(url, headers={"User-Agent": f"witness/{__version__}", **headers})  # noqa: S310 - checked above
            route.authorize(request)
            proxies = [ProxyHandler({"http": route.proxy, "https": route.proxy})] if route.proxy else []
            answer = build_opener(Redirects, Https(context=route.context("")), *proxies).open(
                request, timeout=SILENCE
            )
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
        answer = f"{event.code} {one_line(str(event.reason))}"
        raise FetchError(f"cannot fetch {url}: the server answered {answer}; {route.advice}")
    if isinstance(event, Exception):
        reason = getattr(event, "reason", event)
        if isinstance(reason, TimeoutError):  # the socket noticed it first
            raise NetworkError(silent) from event
        reason = getattr(reason, "strerror", None) or reason  # without the number of the error
        raise NetworkError(f"{_server(url)} cannot be reached ({reason})") from event
    return event
