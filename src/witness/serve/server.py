"""The server: a socket, uvicorn in a thread, the browser."""

from __future__ import annotations

import asyncio
import errno
import io
import ipaddress
import logging
import math
import os
import socket
import ssl
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from witness.errors import InputError, UsageError, WitnessError

PORT = 8420
"""The port that is tried first."""
MOST_IDLE = 64
"""Connections of one peer that wait for a request; a browser has six."""
PATIENCE = 30.0
"""Seconds that the head of a request may take."""
GRACE = 0.3
"""Seconds for answers that are under way when the server is to end."""


def bind(host: str, port: int | None) -> socket.socket:
    """A socket that listens: at `port`, or if that is None at the usual one, or else at any that is free.

    Raises WitnessError if the port is taken, UsageError if the host is none of this machine.
    """
    try:
        found = socket.getaddrinfo(host, PORT if port is None else port, type=socket.SOCK_STREAM)
        family, _, _, _, place = min(found, key=lambda one: one[0] != socket.AF_INET)  # browsers try it first
        listening = socket.create_server(place[:2], family=family, backlog=256)
        # Connections inherit it. Otherwise the body of an answer waits 40 ms for the receipt of its head.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except (socket.gaierror, UnicodeError) as error:
        raise UsageError(f"--host {host} is not known; give an address of this machine") from error
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(f"--host {host} is not an address of this machine; give one that is") from error
        if port is None:
            return bind(host, 0)
        why = str(error.strerror).partition(" (while ")[0]  # Python adds the address
        raise WitnessError(
            f"port {port} of {host} cannot be used ({why}); give another --port or --host"
        ) from error


def names(host: str) -> tuple[str, ...]:
    """What this machine may be called in an address, besides localhost."""
    own = socket.gethostname()
    return (host,) if is_loopback(host) else (host, own, f"{own}.local")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def address(host: str, listening: socket.socket, scheme: str = "http") -> str:
    """Where a browser on this machine finds the server."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared
    return _url(scheme, name, listening)


def address_for_others(host: str, listening: socket.socket, scheme: str = "http") -> str:
    """Where other machines find it: at `host`; if that is all addresses, at the one of the usual way out."""
    return _url(scheme, _way_out(host) if host in ("0.0.0.0", "::") else host, listening)  # noqa: S104


def _url(scheme: str, name: str, listening: socket.socket) -> str:
    port = listening.getsockname()[1]
    return f"{scheme}://[{name}]:{port}/" if ":" in name else f"{scheme}://{name}:{port}/"


def _way_out(host: str) -> str:
    """This machine's address on its network; its name if it has none. Nothing is sent to find it out."""
    family, far = (socket.AF_INET6, "2001:db8::1") if host == "::" else (socket.AF_INET, "192.0.2.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((far, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


@dataclass(frozen=True)
class Certificate:
    """Of a server that encrypts."""

    cert: Path
    key: Path

    def check(self) -> None:
        """Raises InputError if they cannot be used, or do not belong together."""
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                self.cert,
                self.key,
                password=lambda: "",  # or it would ask on the terminal
            )
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = f" ({error.strerror})" if type(error) is PermissionError else ""
            raise InputError(
                f"{self.cert} and {self.key} cannot be used{why}; give a certificate and the key that "
                "belongs to it, as PEM and without a password"
            ) from error


def qr_code(text: str) -> str:
    """A QR code for a terminal. Raises ImportError where the extra `serve` is older than this."""
    import segno

    shown = io.StringIO()
    segno.make(text, error="l", micro=False).terminal(shown, compact=True)
    return shown.getvalue()


@contextmanager
def serving(
    app: ASGIApp, listening: socket.socket, certificate: Certificate | None = None
) -> Iterator[threading.Thread]:
    """Answer requests meanwhile, in a thread, which is given once it does."""
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # its lines would name what was asked for
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(PATIENCE),
        timeout_graceful_shutdown=1,
        ssl_certfile=None if certificate is None else certificate.cert,
        ssl_keyfile=None if certificate is None else certificate.key,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), name="serve", daemon=True)
    thread.start()
    try:
        while thread.is_alive() and not server.started:
            thread.join(0.01)
        yield thread
    finally:
        server.should_exit = True
        thread.join(GRACE)
        server.force_exit = True
        thread.join(GRACE)


def run(
    app: ASGIApp,
    listening: socket.socket,
    ready: Callable[[], None],
    certificate: Certificate | None = None,
) -> None:
    """Serve until an exception (Ctrl-C) ends the wait; `ready` is called once requests are answered.

    Raises WitnessError if the server ends by itself.
    """
    with terse(), serving(app, listening, certificate) as thread:
        if thread.is_alive():
            ready()
        while thread.is_alive():
            thread.join(0.5)  # or Ctrl-C would not get through on Windows
    raise WitnessError("the server ended; this is a bug, please report it")


@contextmanager
def terse() -> Iterator[None]:
    """Keep from stderr what the libraries log, but for what somebody can mend, which is said in a line."""
    told = _Told()
    loggers = [logging.getLogger(name) for name in ("asyncio", "python_multipart")]
    for logger in loggers:
        logger.addHandler(told)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(told)
            logger.propagate = True


class _Told(logging.Handler):
    OFTEN = 60.0
    """Seconds between two lines."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._said = -math.inf

    def emit(self, record: logging.LogRecord) -> None:
        """Tell of too many open files and connections."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, OSError) or error.errno not in _LIMITS:
            return
        if record.created - self._said > self.OFTEN:
            self._said = record.created
            why = f"no more connections can be answered for now ({error.strerror})"
            print(f"witness: {why}; fix: close pages, or raise the limit (ulimit -n)", file=sys.stderr)  # noqa: T201


_LIMITS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_idle: dict[str, dict[PatientProtocol, None]] = {}
"""Peer -> its connections that wait for a request, the longest wait first."""


class PatientProtocol(H11Protocol):
    """Closes a connection on which no head of a request arrives in time; uvicorn would wait for ever.

    Of too many that wait, it closes the one that has waited longest.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        super().connection_made(transport)
        self._wait()
        self._late = self.loop.call_later(PATIENCE, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Go on waiting while there is no head."""
        had = self.cycle
        super().data_received(data)
        waits = self.cycle is None or (self.cycle is had and self.cycle.response_complete)
        if not waits:
            self._leave()
            self._late.cancel()
        elif self._late.cancelled():
            self._late = self.loop.call_later(PATIENCE, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for."""
        self._leave()
        self._late.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait()

    @property
    def _peer(self) -> str:
        return self.client[0] if self.client else ""

    def _wait(self) -> None:
        waiting = _idle.setdefault(self._peer, {})
        waiting[self] = None
        if len(waiting) > MOST_IDLE:
            oldest = next(iter(waiting))
            del waiting[oldest]  # its end is told later, maybe after others have come
            oldest.transport.close()

    def _leave(self) -> None:
        waiting = _idle.get(self._peer, {})
        waiting.pop(self, None)
        if not waiting:
            _idle.pop(self._peer, None)


def browse(url: str) -> bool:
    """Open a browser's window; False: this machine shows none."""
    has_display = sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not has_display:  # a browser for terminals would take this one
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
