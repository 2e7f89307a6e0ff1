"""Attacks on the desk: other sites, other names, other paths, and clients that send too much, too slowly or
at the same time. Those that need a connection run against the real server."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import Message

from test_serve_library import save
from witness.errors import UsageError, WitnessError
from witness.serve import server
from witness.serve.app_state import AppState, Quotas
from witness.serve.library.index import Index
from witness.serve.library.library import Library, id_of
from witness.serve.routes import home
from witness.serve.server import application

TOKEN = "0123456789abcdef"  # noqa: S105 - of no server that lives
BEARER = {"Authorization": f"Bearer {TOKEN}"}
LIMITS = Quotas(body=100_000, upload=1_000_000, patience=0.5, slowest=1000)
SECRET = "What Ann said in confidence"  # noqa: S105 - it is not a password


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> AppState:
    above = tmp_path_factory.mktemp("desk")
    folder = above / "recordings"
    save(folder / "a.json")
    library = Library(folder, Index(above / "cache" / "index.sqlite"))
    library.update()
    return AppState(library.folder, TOKEN, library, limits=LIMITS)


async def take(request: Request) -> Response:
    """Stands for whatever reads a body."""
    return JSONResponse({"read": len(await request.body())})


async def fail(_: Request) -> Response:
    raise ValueError(SECRET)


def app(desk: AppState, **more):
    made = application(desk, **more)
    made.router.routes[:0] = [
        Route("/take", take, methods=["POST", "GET"]),
        Route("/v1/audio/transcriptions", take, methods=["POST"]),
        Route("/fail", fail),
    ]
    return made


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """The rest of what is refused is read for a moment only."""
    monkeypatch.setattr("witness.serve.app_state.LINGER", 0.1)


@pytest.fixture
def client(desk) -> Iterator[TestClient]:
    made = app(desk, names=("desk.example",), tickets=("once", "twice"))
    with TestClient(made, base_url="http://localhost:8420", follow_redirects=False) as client:
        yield client


def assert_refused(answer, status: int) -> None:
    assert answer.status_code == status
    assert "recordings" not in answer.text
    if "json" in answer.headers["content-type"]:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


# --- who asks, and from where ---


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "[", "xdesk.example"),
        *("localhost@evil.example:1/", "evil.example:8420", "0x7f000001.evil.example"),
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(client, host):
    assert_refused(client.get("/api/library", headers={**BEARER, "Host": host}), 421)
    assert client.get("/?ticket=once", headers={"Host": host}).headers.get("set-cookie") is None


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8420", "[::1]:9", "desk.example"])
def test_this_machine_s_own_names_are_taken(client, host):
    assert client.get("/api/library", headers={**BEARER, "Host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "https://localhost:8420", "http://localhost:1"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_of_another_site_can_neither_read_nor_post(client, origin, method):
    client.get("/?ticket=once")  # this browser has the cookie
    assert_refused(client.request(method, "/take", headers={"Origin": origin}), 403)
    assert client.request(method, "/take", headers={"Origin": "http://localhost:8420"}).status_code == 200


def test_a_web_app_that_was_named_may_use_what_programs_use(desk):
    """With the token, never with a cookie, and nothing else of the desk."""
    page = {"Origin": "https://app.example"}
    with TestClient(app(desk, origins=("https://App.example",)), base_url="http://localhost:8420") as client:
        client.post("/unlock", data={"token": TOKEN})  # the same browser has the cookie
        asked = client.options("/v1/models", headers={**page, "Access-Control-Request-Method": "GET"})
        assert asked.status_code == 204
        assert asked.headers["access-control-allow-origin"] == "https://app.example"
        assert "Authorization" in asked.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in asked.headers
        answer = client.post("/v1/audio/transcriptions", headers={**page, **BEARER})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (
            200,
            "https://app.example",
        )
        assert_refused(client.post("/v1/audio/transcriptions", headers=page), 401)
        assert client.get("/health", headers=page).headers["access-control-allow-origin"] == page["Origin"]
        for path, origin in (
            ("/api/library", "https://app.example"),
            ("/v1/models", "https://app.example.evil"),
        ):
            assert_refused(client.get(path, headers={**BEARER, "Origin": origin}), 403)


def test_everybody_may_ask_whether_the_server_answers(client):
    answer = client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert_refused(client.post("/health"), 401)
    assert_refused(client.get("/health", headers={"Host": "evil.example"}), 421)


@pytest.mark.parametrize(
    "path", ["/", "/api/library", "/api/search?q=a", "/static/x", "/t/0/", "/v1/models", "/none"]
)
@pytest.mark.parametrize(
    "key", [{}, {"Authorization": "Bearer x"}, {"Authorization": TOKEN}, {"Cookie": "witness-8420=x"}]
)
def test_nothing_is_answered_without_the_token(client, path, key):
    assert_refused(client.get(path, headers=key), 401)


def test_a_ticket_becomes_a_cookie_that_is_not_the_token(client):
    answer = client.get("/?ticket=once&q=a%20b")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?q=a+b")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie
    assert client.get("/api/library").status_code == 200
    assert (
        client.get(f"{client.base_url}//evil.example/?ticket=twice").headers["location"] == "/evil.example/"
    )
    assert client.cookies["witness-8420"] not in cookie  # each browser has its own


def test_a_ticket_opens_nothing_but_a_page_and_only_once(client):
    assert client.post("/take?ticket=once").status_code == 401
    for wrong in ("", "%F0%9F%92%A9", TOKEN):
        assert client.get(f"/take?ticket={wrong}").status_code == 401
    assert client.get(f"/?token={TOKEN}").status_code == 401  # addresses are kept in histories
    assert client.get("/?ticket=once").status_code == 303
    client.cookies.clear()
    assert client.get("/?ticket=once").status_code == 401


def test_a_person_may_give_the_token_on_a_page(client):
    page = client.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 401
    assert 'name="token"' in page.text
    assert "script-src" not in page.headers["content-security-policy"]
    for wrong in ({}, {"token": "x"}, {"token": TOKEN + "x" * 20_000}):
        answer = client.post("/unlock", data=wrong)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    assert_refused(
        client.post("/unlock", data={"token": TOKEN}, headers={"Origin": "http://evil.example"}), 403
    )
    assert client.post("/unlock", data={"token": f" {TOKEN} "}).headers["location"] == "/"
    # It leads back to the page that was asked for, and nowhere else.
    client.cookies.clear()
    path = f"/t/{'0a' * 8}/"
    page = client.get(path, headers={"Accept": "text/html"})
    assert f'name="place" value="{path}"' in page.text
    wrong = client.post("/unlock", data={"token": "x", "place": path})
    assert f'name="place" value="{path}"' in wrong.text
    for place, leads in [(path, path), ("/notes", "/notes"), ("//evil.example/", "/"), ('/"><b>', "/")]:
        answer = client.post("/unlock", data={"token": TOKEN, "place": place})
        assert answer.headers["location"] == leads
    assert client.get("/api/library").status_code == 200


def test_a_browser_stays_in_after_a_restart_with_the_same_token_only(client, desk):
    client.post("/unlock", data={"token": TOKEN})
    cookie = dict(client.cookies)
    ((name, value),) = cookie.items()
    nonce, _, seal = value.partition(".")
    assert TOKEN not in value
    other = AppState(desk.folder, "another-token-of-a-desk", desk.library, limits=LIMITS)
    for again, given, status in (
        (desk, value, 200),
        (other, value, 401),
        (desk, f"{nonce}x.{seal}", 401),
        (desk, nonce, 401),
    ):
        browser = TestClient(app(again), base_url="http://localhost:8420", cookies={name: given})
        assert browser.get("/api/library").status_code == status


def test_every_answer_forbids_frames_scripts_and_keeping(client):
    for path, headers in (("/api/library", BEARER), ("/api/library", {}), ("/fail", BEARER)):
        answer = client.get(path, headers=headers)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


def test_others_reach_it_only_with_a_token():
    for host, reached in (
        ("127.0.0.1", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),  # noqa: S104 - not bound
        ("desk", True),
    ):
        assert server.is_loopback(host) != reached


# --- paths ---


@pytest.mark.parametrize(
    "form",
    [
        *("/t/{}/", "/t/{}/sound", "/t/{}/export?format=txt", "/t/{}/corrections"),
        *("/static/{}", "/static/VERSION/{}", "/static/VERSION/web/desk/{}"),
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "../secret.json",
        "..%2fsecret.json",
        "%2e%2e%2fsecret.json",
        "..%5csecret.json",
        "%00",
        "a.json",
        "a%2ejson",
    ],
)
def test_no_path_comes_from_a_request(desk, client, form, name):
    secret = desk.folder.parent / "secret.json"
    secret.write_text(json.dumps(SECRET))
    answer = client.get(form.replace("VERSION", home.version()).format(name), headers=BEARER)
    assert answer.status_code == 404
    assert SECRET not in answer.text


def test_files_of_the_pages_are_kept_by_browsers(client):
    """Their addresses are others as soon as the files are."""
    page = client.get("/", headers=BEARER).text
    addresses = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page))
    kinds = {address.rpartition(".")[2] for address in addresses}
    assert kinds == {"js", "css"}
    for address in addresses:
        answer = client.get(address, headers=BEARER)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
        assert answer.headers["content-type"].startswith(("text/javascript", "text/css"))
        assert client.get(address.replace("/static/", "/static/0"), headers=BEARER).status_code == 404
    assert client.get(next(iter(addresses))).status_code == 401


def test_a_link_out_of_the_folder_is_not_followed(desk, client):
    secret = save(desk.folder.parent / "secret" / "s.json")
    (desk.folder / "linked").symlink_to(secret.parent)
    (desk.folder / "link.json").symlink_to(secret)
    desk.library.update()
    for path in ("linked/s.json", "link.json", "../secret/s.json"):
        assert client.get(f"/t/{id_of(Path(path))}/corrections", headers=BEARER).status_code == 404
    assert client.get("/api/library", headers=BEARER).json()["total"] == 1


# --- the real server: too much, too slow, too many ---


@pytest.fixture(scope="module")
def port(desk) -> Iterator[int]:
    listening = server.bind("127.0.0.1", 0)
    with server.serving(app(desk), listening):
        yield listening.getsockname()[1]


def test_no_part_of_an_answer_waits_for_the_receipt_of_the_one_before():
    """Nagle's algorithm costs 40 ms for each answer on a connection that is used again."""
    with (
        server.bind("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        yield connection


def head(path: str, *lines: str, method: str = "POST") -> bytes:
    rest = ("Host: localhost", f"Authorization: Bearer {TOKEN}", *lines)
    return "\r\n".join((f"{method} {path} HTTP/1.1", *rest, "", "")).encode()


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    answer = b""
    try:
        while piece := connection.recv(1 << 16):
            answer += piece
    except ConnectionResetError:
        pass  # it was closed while something of ours was on the way
    return answer


def endless(connection: socket.socket, piece: bytes) -> int:
    """Send without an end; the number of bytes that went before the server had enough."""
    sent = 0
    try:
        while sent < 1 << 28:
            connection.sendall(piece)
            sent += len(piece)
    except OSError:
        pass
    return sent


@pytest.mark.parametrize(
    ("path", "largest"), [("/take", LIMITS.body), ("/v1/audio/transcriptions", LIMITS.upload)]
)
def test_a_request_that_says_that_it_is_too_large_is_refused_unread(port, path, largest):
    with connected(port) as connection:
        connection.sendall(head(path, f"Content-Length: {largest + 1}"))
        assert rest_of(connection).startswith(b"HTTP/1.1 413 ")
    with connected(port) as connection:
        connection.sendall(head(path, f"Content-Length: {largest}", "Connection: close") + b"x" * largest)
        assert rest_of(connection).endswith(b'{"read":%d}' % largest)


@pytest.mark.parametrize("key", ["with the token", "without"])
def test_an_endless_request_is_ended(port, key):
    lines = head("/take", "Transfer-Encoding: chunked")
    if key == "without":
        lines = lines.replace(TOKEN.encode(), b"x")
    with connected(port) as connection:
        connection.sendall(lines)
        sent = endless(connection, b"10000\r\n" + b"x" * (1 << 16) + b"\r\n")
        assert sent < 1 << 28


def test_an_endless_head_is_ended(port):
    with connected(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        assert endless(connection, b"X-A: " + b"x" * (1 << 15) + b"\r\n") < 1 << 24


def test_a_body_that_stops_is_ended(port):
    with connected(port) as connection:
        connection.sendall(head("/take", "Content-Length: 10") + b"x")
        assert rest_of(connection).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("begun", [b"", b"GET / HTT", head("/take", method="GET") + b"GET /again HT"])
def test_a_head_that_stops_is_ended(desk, monkeypatch, begun):
    monkeypatch.setattr(server, "PATIENCE", 0.3)
    listening = server.bind("127.0.0.1", 0)
    with server.serving(app(desk), listening), connected(listening.getsockname()[1]) as connection:
        connection.sendall(begun)
        assert rest_of(connection).count(b"HTTP/1.1 200") == begun.count(b"\r\n\r\n")


def test_200_clients_at_the_same_time_are_all_answered(port):
    ready = threading.Barrier(40)

    def ask(number: int) -> bytes:
        with connected(port) as connection:
            if number < 40:
                ready.wait(20)
            path = ("/api/search?q=budget", "/api/library")[number % 2]
            connection.sendall(head(path, "Connection: close", method="GET"))
            return rest_of(connection)

    # And as many who send nothing, or half of a request.
    idle = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(200)]
    for connection in idle[::2]:
        connection.sendall(b"POST /take HT")
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(ask, range(200)))
    for connection in idle:
        connection.close()
    assert {answer.split(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 200 OK"}


def test_of_too_many_idle_connections_of_a_peer_the_oldest_goes(port, monkeypatch):
    monkeypatch.setattr(server, "MOST_IDLE", 3)

    def ask(connection: socket.socket) -> bytes:
        connection.sendall(head("/take", method="GET"))
        answer = b""
        while not answer.endswith(b"}") and (piece := connection.recv(1 << 16)):
            answer += piece
        return answer

    with ExitStack() as stack:
        first, *others = [stack.enter_context(connected(port)) for _ in range(2)]
        for connection in (first, *others):  # they have had an answer, and wait for another question
            assert ask(connection).startswith(b"HTTP/1.1 200 ")
        others += [stack.enter_context(connected(port)) for _ in range(2)]
        assert rest_of(first) == b""
        for connection in others:
            assert ask(connection).startswith(b"HTTP/1.1 200 ")


def test_many_idle_connections_at_once_push_out_one_each(port, monkeypatch):
    """The loop accepts a hundred before it hears that the first of them is closed."""
    monkeypatch.setattr(server, "MOST_IDLE", 3)
    with ExitStack() as stack:
        waiting = [stack.enter_context(connected(port)) for _ in range(100)]
        for connection in waiting[:-3]:
            assert rest_of(connection) == b""


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"])
def test_connections_without_a_handshake_are_few_and_end_soon(desk, monkeypatch, certificate, sent):
    monkeypatch.setattr(server, "MOST_IDLE", 3)
    monkeypatch.setattr(server, "HANDSHAKE", 3.0)
    listening = server.bind("127.0.0.1", 0)
    with ExitStack() as stack:
        stack.enter_context(server.serving(app(desk), listening, server.Certificate(*certificate)))
        port = listening.getsockname()[1]
        waiting = [stack.enter_context(connected(port)) for _ in range(6)]
        begun = time.monotonic()
        for connection in waiting[:3]:
            assert rest_of(connection) == b""
        assert time.monotonic() - begun < 3.0  # pushed out, long before the handshake is late
        waiting[-1].sendall(sent)
        for connection in waiting[3:]:
            assert b"200 OK" not in rest_of(connection)
        assert time.monotonic() - begun < 20.0
        context = ssl.create_default_context(cafile=str(certificate[0]))
        with connected(port) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
            secure.sendall(head("/take", "Connection: close", method="GET"))
            assert rest_of(secure).startswith(b"HTTP/1.1 200")
    assert server._idle == {}


@pytest.mark.parametrize(
    "wanted", [b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00", b"G\x00T / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_request_is_refused(port, wanted):
    with connected(port) as connection:
        connection.sendall(wanted)
        connection.shutdown(socket.SHUT_WR)
        assert not rest_of(connection).startswith(b"HTTP/1.1 200")
    with connected(port) as connection:
        connection.sendall(head("/take", "Connection: close", method="GET"))
        assert rest_of(connection).startswith(b"HTTP/1.1 200")


def test_no_log_names_what_people_asked_or_said(port, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    for path, status in ((f"/fail?q={SECRET.split()[1]}", 500), ("/api/search?q=Ann", 200), ("/Ann", 404)):
        with connected(port) as connection:
            connection.sendall(head(path, "Connection: close", method="GET"))
            answer = rest_of(connection)
            assert answer.startswith(b"HTTP/1.1 %d" % status)
            assert b"confidence" not in answer
    out, err = capfd.readouterr()
    assert "witness: ValueError in " in err
    assert "Ann" not in out + err + caplog.text
    assert TOKEN not in out + err + caplog.text


def test_a_client_that_leaves_while_it_sends_is_no_bug(desk, capfd):
    """In the application itself: who hears the end of a connection, and when, is the network's matter."""
    body = [{"type": "http.request", "body": b"x", "more_body": True}, {"type": "http.disconnect"}]
    sent = []

    async def receive() -> Message:
        return body.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    keys = [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/take", "query_string": b"", "scheme": "http"}
    asyncio.run(app(desk)({**scope, "headers": keys}, receive, send))
    assert (sent, body, capfd.readouterr().err) == ([], [], "")


def test_libraries_say_nothing_on_stderr_that_nobody_can_mend(capfd):
    with server.terse():
        logging.getLogger("python_multipart.multipart").warning("Did not find boundary character")
        logging.getLogger("asyncio").error("an exception", exc_info=ValueError(SECRET))
        for _ in range(3):
            full = OSError(errno.EMFILE, "Too many open files")
            logging.getLogger("asyncio").error("socket.accept() out of system resource", exc_info=full)
    assert capfd.readouterr().err == (
        "witness: no more connections can be answered for now (Too many open files); fix: close pages, or "
        "raise the limit (ulimit -n)\n"
    )


def test_an_address_that_cannot_be_used_is_an_error(port):
    with pytest.raises(WitnessError, match=r"cannot be used \([^()]+\); give another --port"):
        server.bind("127.0.0.1", port)
    with pytest.raises(UsageError, match="not an address of this machine"):
        server.bind("192.0.2.1", 0)
    for host in ("no.such.host.invalid", "a" * 300):
        with pytest.raises(UsageError, match="give an address"):
            server.bind(host, 0)
