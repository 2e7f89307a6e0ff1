"""The server: all routes behind the guard, a socket, uvicorn in a thread, the browser."""

from __future__ import annotations

import asyncio
import errno
import io
import ipaddress
import logging
import os
import socket
import ssl
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from witness.errors import InputError, UsageError, WitnessError, lacks_resources
from witness.serve import browser_recordings, errors
from witness.serve.app_state import AppState
from witness.serve.openai import routes as openai
from witness.serve.routes import home, library, recordings, transcripts
from witness.serve.security import Access, Guard

PORT = 8420
"""The usual port."""
MOST_IDLE = 64
"""Idle connections of one peer; a browser has six."""
QUEUED = 256
"""Connections that wait in the system for the server."""
ACCEPTED = 32
"""Connections accepted at a time. Four times as many may be open before too many idle ones are closed."""
HANDSHAKE = 5.0
"""Seconds for the handshake of a connection that is encrypted."""
PATIENCE = 30.0
"""Seconds for the head of a request to arrive."""
GRACE = 0.3
"""Seconds for the last answers when the server ends."""
PARTS = (home, library, transcripts, recordings, browser_recordings, openai)


def application(
    desk: AppState, names: Sequence[str] = (), tickets: Sequence[str] = (), **more: Any
) -> Starlette:
    """Return the desk as an ASGI application; `names`, `tickets` and the rest are fields of `Access`."""
    access = Access(names=names, tickets=tickets, **more)
    app = Starlette(
        routes=[route for part in PARTS for route in part.routes()],
        middleware=[Middleware(Guard, token=desk.token, limits=desk.limits, access=access)],
        exception_handlers=errors.HANDLERS,
    )
    app.state.desk = desk
    return app


def bind(host: str, port: int | None) -> socket.socket:
    """Return a listening socket: at `port`, or if that is None at the usual one, or else at any free one.

    Raises WitnessError if the port is taken, UsageError if the host is not an address of this machine.
    """
    try:
        choices = socket.getaddrinfo(host, PORT if port is None else port, type=socket.SOCK_STREAM)
        # Browsers try IPv4 first.
        family, _, _, _, local = min(choices, key=lambda choice: choice[0] != socket.AF_INET)
        listening = socket.create_server(local[:2], family=family, backlog=QUEUED)
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
    """Return names of this machine in an address, besides localhost."""
    name = socket.gethostname()
    return (host,) if is_loopback(host) else (host, name, f"{name}.local")


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def address(host: str, listening: socket.socket, scheme: str = "http") -> str:
    """Return the URL for a browser on this machine."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared
    return _url(scheme, name, listening)


def address_for_others(host: str, listening: socket.socket, scheme: str = "http") -> str:
    """Return the URL for other machines; for a `host` of all addresses, that of the usual route."""
    return _url(scheme, _routed_address(host) if host in ("0.0.0.0", "::") else host, listening)  # noqa: S104


def _url(scheme: str, name: str, listening: socket.socket) -> str:
    port = listening.getsockname()[1]
    return f"{scheme}://[{name}]:{port}/" if ":" in name else f"{scheme}://{name}:{port}/"


def _routed_address(host: str) -> str:
    """Return this machine's address on its network, or else its name, without sending anything."""
    family, far = (socket.AF_INET6, "2001:db8::1") if host == "::" else (socket.AF_INET, "192.0.2.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((far, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


@dataclass(frozen=True)
class Certificate:
    """The certificate of a server that encrypts."""

    cert: Path
    key: Path

    def load(self) -> ssl.SSLContext:
        """Load certificate and key. Raises InputError if they do not work together."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            # Without a password it would ask on the terminal.
            context.load_cert_chain(self.cert, self.key, password=lambda: "")
            return context
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = f" ({error.strerror})" if type(error) is PermissionError else ""
            raise InputError(
                f"{self.cert} and {self.key} cannot be used{why}; give a certificate and the key that "
                "belongs to it, as PEM and without a password"
            ) from error


def qr_code(text: str) -> str:
    """Return a QR code for a terminal. Raises ImportError where the extra `serve` lacks segno."""
    import segno

    shown = io.StringIO()
    segno.make(text, error="l", micro=False).terminal(shown, compact=True)
    return shown.getvalue()


@contextmanager
def serving(
    app: ASGIApp, listening: socket.socket, certificate: Certificate | None = None
) -> Iterator[threading.Thread]:
    """Answer requests meanwhile, in a thread; yields it once it does."""
    context = None if certificate is None else certificate.load()
    config = uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", partial(PatientProtocol, context=context)),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",  # its lines would name the requested addresses
        access_log=False,
        server_header=False,
        timeout_keep_alive=int(PATIENCE),
        timeout_graceful_shutdown=1,
        backlog=ACCEPTED,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), name="serve", daemon=True)
    thread.start()
    try:
        while thread.is_alive() and not server.started:
            thread.join(0.01)
        with suppress(OSError):  # the port was closed meanwhile
            listening.listen(QUEUED)  # asyncio has set it to the number of ACCEPTED
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
    """Serve until an exception (Ctrl-C) ends the wait, and call `ready` once requests are answered.

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
    """Keep the libraries' logs from stderr, but for one line about too many connections."""
    handler = _ConnectionLimit(logging.ERROR)
    loggers = [logging.getLogger(name) for name in ("asyncio", "python_multipart")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True


class _ConnectionLimit(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Print a line about too many open files and connections."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and lacks_resources(error):
            _report_limit(getattr(error, "strerror", None) or str(error))


@cache
def _report_limit(why: str) -> None:
    why = f"no more connections can be answered for now ({why})"
    print(f"witness: {why}; fix: close pages, or raise the limit (ulimit -n)", file=sys.stderr)  # noqa: T201


_idle: dict[str, dict[PatientProtocol, None]] = {}
"""Idle connections of each peer, the longest wait first."""


class PatientProtocol(H11Protocol):
    """Protocol that closes a connection without the head of a request in time; uvicorn waits for ever.

    Of too many idle connections of a peer it closes the one with the longest wait, also before its handshake:
    uvicorn learns of an encrypted connection only after that.
    """

    def __init__(self, *args: Any, context: ssl.SSLContext | None = None, **options: Any) -> None:
        """Answer in the clear without `context`."""
        super().__init__(*args, **options)
        self._context = context
        self._late: asyncio.TimerHandle | None = None  # None: uvicorn does not have the connection yet
        self._early = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait."""
        self._raw = transport
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""
        self._wait()
        if self._context is None:
            self._begin(transport)
        else:
            self._handshake = self.loop.create_task(self._encrypt(transport, self._context))

    async def _encrypt(self, raw: asyncio.Transport, context: ssl.SSLContext) -> None:
        timeouts: dict[str, Any] = {"ssl_handshake_timeout": HANDSHAKE, "ssl_shutdown_timeout": HANDSHAKE}
        if sys.version_info < (3, 11):
            del timeouts["ssl_shutdown_timeout"]
        try:
            transport = await self.loop.start_tls(raw, self, context, server_side=True, **timeouts)
        except (OSError, RuntimeError):  # no TLS, too slow, or closed meanwhile
            transport = None
        if transport is None or transport.is_closing():
            raw.abort()
            self._leave()
            return
        self._begin(transport)
        if self._early:  # it came with the end of the handshake
            self.data_received(self._early)

    def _begin(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._late = self.loop.call_later(PATIENCE, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Wait on while the head is incomplete."""
        if self._late is None:
            self._early += data
            return
        before = self.cycle
        super().data_received(data)
        waits = self.cycle is None or (self.cycle is before and self.cycle.response_complete)
        if not waits:
            self._leave()
            self._late.cancel()
        elif self._late.cancelled():
            self._late = self.loop.call_later(PATIENCE, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._leave()
        if self._late is not None:
            self._late.cancel()
            super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait()

    def _wait(self) -> None:
        waiting = _idle.setdefault(self._peer, {})
        waiting[self] = None
        if len(waiting) > MOST_IDLE:
            oldest = next(iter(waiting))
            del waiting[oldest]  # `connection_lost` comes later, maybe after other connections
            oldest._raw.abort()

    def _leave(self) -> None:
        waiting = _idle.get(self._peer, {})
        waiting.pop(self, None)
        if not waiting:
            _idle.pop(self._peer, None)


def browse(url: str) -> bool:
    """Open a browser's window; False: this machine cannot."""
    has_display = sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not has_display:  # a browser for terminals would take this one
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
