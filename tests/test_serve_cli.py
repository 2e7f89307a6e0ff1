"""`witness serve` as a command: what it prints, what it opens, what it refuses, how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from conftest import in_process
from witness._version import install

POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and programs of a POSIX system")


def ask(address: str, **headers: str) -> int:
    request = urllib.request.Request(address, headers=headers)  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own
        return answer.status


@POSIX
def test_the_address_is_the_result_and_ctrl_c_the_end(tmp_path):
    """It is good for once, as is the one that a browser is opened with: everybody sees its command line."""
    opened = tmp_path / "opened"
    os.mkfifo(opened)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{opened}"\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    folder = tmp_path / "recordings"
    folder.mkdir()
    command = [sys.executable, "-m", "witness", "serve", str(folder), "--port", "0", "--offline"]
    environment = {**os.environ, "BROWSER": str(browser), "DISPLAY": ":0"}
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        address, _, printed = server.stdout.readline().strip().partition("?ticket=")
        assert address.startswith("http://127.0.0.1:")
        shown, _, ticket = opened.read_text().strip().partition("?ticket=")
        assert (shown, ticket == printed) == (address, False)
        with pytest.raises(urllib.error.HTTPError) as moved:
            urllib.request.build_opener(Silent()).open(f"{address}?ticket={printed}")
        cookie = moved.value.headers["Set-Cookie"].partition(";")[0]
        moved.value.close()
        assert ask(f"{address}api/library", Cookie=cookie) == 200
        server.send_signal(signal.SIGINT)
        rest, said = server.communicate(timeout=60)
    finally:
        server.kill()
    assert (server.returncode, rest) == (0, "")
    # Not the token: a journal keeps what is told.
    hint = "note: the token is shown on a terminal only; for programs, give WITNESS_TOKEN\n"
    assert said == f"{hint}note: serving {folder}; Ctrl-C ends it\n"


@POSIX
def test_a_terminal_is_told_the_token(tmp_path):
    mine, its = os.openpty()
    command = [sys.executable, "-m", "witness", "serve", str(tmp_path), "--port", "0", "--offline"]
    pipe = subprocess.PIPE
    server = subprocess.Popen([*command, "--no-browser"], stdout=pipe, stderr=its, text=True)
    os.close(its)
    try:
        address, _, ticket = server.stdout.readline().strip().partition("?ticket=")
        said = b""
        while b"Ctrl-C" not in said:
            said += os.read(mine, 4096)
        (token,) = re.findall(r"for programs:\s+([\w-]{43})\s", said.decode())
        assert token != ticket
        assert ask(f"{address}api/library", Authorization=f"Bearer {token}") == 200
    finally:
        server.kill()
        server.communicate()
        os.close(mine)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--host", "0.0.0.0"], 2, "give a --token"),  # noqa: S104 - it is refused
        (["--host", "0.0.0.0", "--token", "guess"], 2, "at least 16"),  # noqa: S104
        (["--host", "0.0.0.0", "--token", "0123456789abcdef"], 2, "in the clear; give --cert and --key"),  # noqa: S104
        (["--cert", __file__], 2, "--cert and --key belong together"),
        (["--cert", __file__, "--key", __file__], 4, "as PEM and without a password"),
        (["--public", "desk.example"], 2, "is not an origin"),
        (["--users", __file__], 4, "others can read the tokens"),
        (["--token", "sixteen letters\u00e9"], 2, "at least 16"),
        (
            ["--host", "192.0.2.1", "--token", "0123456789abcdef", "--insecure"],
            2,
            "not an address of this machine",
        ),
        (["nothing-here"], 2, "does not exist"),
    ],
)
def test_what_would_be_unsafe_or_cannot_be_is_refused(tmp_path, options, code, says):
    result = in_process(tmp_path, "serve", "--no-browser", *options)
    assert (result.returncode, result.stdout) == (code, b"")
    assert says in result.stderr.decode()
    assert result.stderr.count(b"\n") == 1


def test_the_message_where_the_extra_is_missing_names_the_fix(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "witness.cli.serve.find_spec", lambda name: None if name == "uvicorn" else find_spec(name)
    )
    result = in_process(tmp_path, "serve")
    assert result.returncode == 1
    assert install("serve") in result.stderr.decode()


def test_a_machine_without_a_display_opens_no_browser_of_a_terminal(monkeypatch):
    from witness.serve import server

    monkeypatch.setattr(server.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(server.webbrowser, "open", lambda _: pytest.fail("it was opened"))
    assert not server.browse("http://127.0.0.1:1/")


@POSIX
def test_others_are_invited_to_a_desk_that_encrypts(tmp_path, certificate):
    cert, key = certificate
    token = "0123456789abcdef"  # noqa: S105 - guards nothing
    (tmp_path / "recordings").mkdir()
    command = [
        sys.executable,
        "-m",
        "witness",
        "serve",
        "recordings",
        "--port",
        "0",
        "--offline",
        "--no-browser",
    ]
    more = ["--host", "0.0.0.0", "--token", token, "--cert", str(cert), "--key", str(key)]  # noqa: S104
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    server = subprocess.Popen([*command, *more], cwd=tmp_path, **pipes)
    try:
        address, _, ticket = server.stdout.readline().strip().partition("?ticket=")
        assert address.startswith("https://127.0.0.1:")
        invited = server.stderr.readline()
        assert re.fullmatch(r"note: others open https://[^ ]+:\d+/ and give the token\n", invited)
        assert token not in invited
        context = ssl.create_default_context(cafile=str(cert))
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), Silent())
        request = urllib.request.Request(  # noqa: S310
            f"{address}api/library", headers={"Authorization": f"Bearer {token}"}
        )
        with opener.open(request) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError) as moved:
            opener.open(f"{address}?ticket={ticket}")
        assert moved.value.code == 303
        assert "Secure" in moved.value.headers["Set-Cookie"]
        moved.value.close()
    finally:
        server.kill()
        server.communicate()


@POSIX
def test_idle_connections_without_a_handshake_do_not_stop_a_desk_that_encrypts(tmp_path, certificate):
    cert, key = certificate
    (tmp_path / "recordings").mkdir()
    files = 'ulimit -n 256; exec "$@"'  # of the desk: fewer than the connections
    command = [sys.executable, "-m", "witness", "serve", "recordings", "--port", "0", "--offline"]
    more = ["--no-browser", "--token", "0123456789abcdef", "--cert", str(cert), "--key", str(key)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    desk = subprocess.Popen(["/bin/sh", "-c", files, "sh", *command, *more], cwd=tmp_path, **pipes)
    with ExitStack() as idle:
        try:
            address = desk.stdout.readline().strip().partition("?ticket=")[0]
            place = "127.0.0.1", int(address.rstrip("/").rpartition(":")[2])
            for _ in range(400):
                idle.enter_context(socket.create_connection(place, timeout=20))
            context = ssl.create_default_context(cafile=str(cert))
            for _ in range(10):
                request = urllib.request.Request(f"{address}health")  # noqa: S310
                with urllib.request.urlopen(request, timeout=10, context=context) as answer:  # noqa: S310
                    assert answer.status == 200
        finally:
            desk.send_signal(signal.SIGINT)
            assert "no more connections" not in desk.communicate()[1]


class Silent(urllib.request.HTTPRedirectHandler):
    """Follows no redirect."""

    def redirect_request(self, *_: object) -> None:
        """None: it is an error then."""


def test_a_code_for_phones_says_what_it_should():
    pytest.importorskip("segno", reason="QR codes need segno")
    from witness.serve import server

    code = server.qr_code("https://192.0.2.7:8420/?ticket=" + "x" * 43)
    assert len(code.splitlines()) < 26  # of a terminal
    assert code != server.qr_code("https://192.0.2.7:8420/?ticket=" + "y" * 43)
