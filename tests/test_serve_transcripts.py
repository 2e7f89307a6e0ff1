"""What the page of a transcript asks of the server, and what it is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from test_page import Scripts
from witness.formats import html, writers
from witness.formats.registry import Format
from witness.schema import Sound
from witness.serve.app_state import AppState
from witness.serve.library.index import Index
from witness.serve.library.library import Library, id_of
from witness.serve.routes.transcripts import FIRST
from witness.serve.server import application
from witness.transcript import store

TOKEN = "0123456789abcdef"  # noqa: S105 - of no server


@pytest.fixture(scope="module")
def shelf(toned, tmp_path_factory):
    """The call with words, and its recording."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copy(toned.audio.path, folder / "a b.wav")
    source = replace(toned.audio, path="elsewhere/a b.wav")
    found = replace(toned, audio=source, findings=replace(toned.findings, audio=source))
    store.save(found, [("json", folder / "tonéd #1.json")])
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A desk whose process for the work is started once."""
    root = tmp_path_factory.mktemp("desk")
    (root / "calls").mkdir()
    library = Library(root / "calls", Index(root / "index.sqlite"))
    desk = AppState(library.folder, TOKEN, library)
    yield desk
    desk.editor.close()
    desk.finder.close()


@pytest.fixture
def path(served, shelf):
    shutil.rmtree(served.folder)
    shutil.copytree(shelf, served.folder)
    return served.folder / "tonéd #1.json"


@pytest.fixture
def client(served, path):
    address = f"http://localhost:8420/t/{id_of(Path(path.name))}/"
    return TestClient(application(served), address, headers={"Authorization": f"Bearer {TOKEN}"})


def refused(answer, status: int, words: str) -> None:
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


def test_a_transcript_that_is_not_there(client):
    for address in ("", "sound", "outline", "version", "corrections", "export?format=txt"):
        refused(client.get(f"../0123456789abcdef/{address}"), 404, "no such transcript")
    assert client.get("/t/..%2f..%2fetc%2fpasswd/").status_code == 404
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    shown = client.get("../0123456789abcdef/", headers=browser)
    assert (shown.status_code, shown.text[:27]) == (404, "there is no such transcript")
    assert shown.headers["Content-Type"].startswith("text/plain")


def test_the_page_may_ask_its_server_and_nobody_else(client, path):
    answer = client.get("")
    assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
    policy = Scripts(answer.text).policy
    assert "default-src 'none'" in policy
    assert "media-src 'self';" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    alone = writers.render(store.read(path), Format.HTML)
    assert "connect-src" not in Scripts(alone).policy
    assert "fetch(" not in alone


def test_the_recording_in_parts(client, path):
    whole = (path.parent / "a b.wav").read_bytes()
    answer = client.get("sound", headers={"Range": "bytes=100-199"})
    assert answer.status_code == 206
    assert answer.content == whole[100:200]
    assert answer.headers["Content-Type"].startswith("audio/")
    (path.parent / "a b.wav").write_bytes(whole[:-2] + b"xx")
    refused(client.get("sound"), 422, "is not the transcribed recording")
    (path.parent / "a b.wav").unlink()
    refused(client.get("sound"), 422, "no such file")


def test_an_old_version_is_refused_as_openai_would(client):
    seen = client.get("corrections").json()["version"]
    assert client.post("speakers", json={"version": seen, "speakers": 1}).status_code == 200
    answer = client.post("speakers", json={"version": seen, "speakers": 3})
    refused(answer, 409, "changed meanwhile")
    assert answer.json()["error"]["type"] == "conflict_error"
    assert answer.json()["error"]["version"] == client.get("version").json()["version"]
    assert client.get("corrections").json()["version"] == client.get("version").json()["version"] != seen


@pytest.mark.parametrize(
    ("method", "address", "body"),
    [
        ("PUT", "corrections", b"[1]"),
        ("PUT", "corrections", b"{"),
        ("PUT", "corrections", b'{"version": "x", "steps": 3}'),
        ("POST", "corrections", b'{"version": 3, "corrections": {}}'),
        ("POST", "original", b"{}"),
        ("POST", "speakers", b'{"version": "x", "speakers": "2"}'),
        ("POST", "speakers", b'{"version": "x", "speakers": true}'),
        ("POST", "speakers", b'{"version": "x", "speakers": 0}'),
        ("POST", "voice", b'{"name": "Ann", "start": true, "end": 3}'),
        ("POST", "name", b'{"version": "x", "speaker": 3, "name": "Ann"}'),
        ("GET", "export?format=exe", None),
        ("GET", "export", None),
    ],
)
def test_nonsense_is_refused(client, path, method, address, body):
    before = path.read_bytes()
    answer = client.request(method, address, content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert path.read_bytes() == before


def test_a_download_has_the_name_of_its_transcript(client):
    assert set(FIRST) < set(Format)
    answer = client.get("export?format=srt")
    assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''ton%C3%A9d%20%231.srt"


def test_work_that_dies_is_one_line_and_the_next_goes_on(client, served):
    assert client.get("corrections").status_code == 200
    served.editor._child.kill()
    refused(client.get("corrections"), 500, "try again")
    assert client.get("corrections").status_code == 200


def test_the_sound_of_a_page_is_read_back(toned):
    for heard in (
        Sound(b"\x00\x01\xff", opus=b"opus", recorded="2026-03-09 & <b>"),
        Sound(b"", link="../a%20b.wav"),
    ):
        assert html.sound_in(writers.render(toned, Format.HTML, heard)) == heard
    assert html.sound_in(writers.render(toned, Format.HTML)) is None
    assert html.sound_in("<p>another page") is None
