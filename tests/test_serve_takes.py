"""Recordings that a browser makes, from their first piece to the queue; and a watched folder."""

import errno
import shutil
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from test_serve_recordings import SETTINGS, Hands
from witness.progress import SILENT
from witness.serve import browser_recordings, errors
from witness.serve import queue as queues
from witness.serve.app_state import Quotas
from witness.serve.library.index import Index
from witness.serve.library.library import Library
from witness.serve.queue import FolderWatch, Queue
from witness.work.manifest import Manifest


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A client of a desk whose recordings the test does, and its parts."""
    monkeypatch.setattr(queues, "Pool", lambda _: Hands([None]))
    folder = tmp_path / "desk"
    folder.mkdir()
    with ExitStack() as stack:
        queue = stack.enter_context(Queue(folder, lambda _: SETTINGS))
        app = Starlette(routes=browser_recordings.routes(), exception_handlers=errors.HANDLERS)
        app.state.desk = SimpleNamespace(folder=folder, queue=queue, limits=Quotas(upload=1000))
        client = stack.enter_context(TestClient(app))
        yield SimpleNamespace(client=client, app=app, queue=queue, folder=folder)


def begin(desk, name: str = "Talk.webm") -> str:
    answer = desk.client.post("/api/takes", json={"name": name})
    assert answer.status_code == 201
    return answer.json()["id"]


def add(desk, take: str, place: int, piece: bytes):
    return desk.client.post(f"/api/takes/{take}/pieces/{place}", content=piece)


def test_pieces_become_a_recording_that_waits(desk):
    take = begin(desk, "../Talk: one.webm")
    assert add(desk, take, 0, b"first").json()["size"] == 5
    assert add(desk, take, 5, b"second").json()["size"] == 11
    again = add(desk, take, 5, b"second")  # its answer was lost
    assert (again.status_code, again.json()["size"]) == (409, 11)
    told = desk.client.get("/api/takes").json()["takes"]
    assert [(one["id"], one["name"], one["size"]) for one in told] == [(take, "Talk one.webm", 11)]
    answer = desk.client.post(f"/api/takes/{take}/finish", json={"language": "de", "speakers": 2})
    (job,) = answer.json()["jobs"]
    assert Manifest(desk.folder / "manifest.jsonl").entries["Talk one"].wish.to_json() == {
        "language": "de",
        "speakers": 2,
    }
    assert job["state"] in ("waiting", "working")
    assert (desk.folder / "Talk one.webm").read_bytes() == b"firstsecond"
    assert desk.client.get("/api/takes").json() == {"takes": []}
    assert list((desk.folder / browser_recordings.PLACE).iterdir()) == []
    assert desk.client.post(f"/api/takes/{take}/finish").status_code == 422


def test_a_piece_that_was_written_in_part_can_be_sent_again(desk, monkeypatch):
    take = begin(desk)
    with monkeypatch.context() as patch:

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr("witness.serve.browser_recordings.os.fsync", full)
        assert add(desk, take, 0, b"first").status_code >= 500
    assert add(desk, take, 0, b"first").json()["size"] == 5


def test_who_still_records_is_not_offered_to_others(desk, monkeypatch):
    begin(desk)
    assert not desk.client.get("/api/takes").json()["takes"][0]["idle"]
    monkeypatch.setattr(browser_recordings, "IDLE", -1.0)
    assert desk.client.get("/api/takes").json()["takes"][0]["idle"]


def test_what_is_refused(desk, monkeypatch):
    assert desk.client.post("/api/takes", json={"name": "notes.txt"}).status_code == 415
    assert desk.client.post("/api/takes", json={}).status_code == 400
    for other in ("0" * 16, "..%2f..", "x"):
        assert add(desk, other, 0, b"x").status_code in (404, 422)
        assert desk.client.post(f"/api/takes/{other}/discard").status_code in (404, 422)
    take = begin(desk)
    assert desk.client.post(f"/api/takes/{take}/finish").json()["error"]["message"].startswith("nothing was")
    assert add(desk, take, 0, b"x" * 1001).status_code == 422  # longer than a recording may be
    monkeypatch.setattr(browser_recordings, "ROOM", 1 << 62)
    full = add(desk, take, 0, b"x")
    assert (full.status_code, "disk is full" in full.text) == (507, True)
    monkeypatch.setattr(browser_recordings, "MOST", 1)
    assert desk.client.post("/api/takes", json={"name": "a.webm"}).status_code == 422
    assert desk.client.post(f"/api/takes/{take}/discard").status_code == 200
    assert desk.client.get("/api/takes").json() == {"takes": []}


def test_a_folder_from_elsewhere_is_not_written_into(desk, tmp_path):
    (tmp_path / "theirs").mkdir()
    (desk.folder / browser_recordings.PLACE).symlink_to(tmp_path / "theirs")
    answer = desk.client.post("/api/takes", json={"name": "a.webm"})
    assert (answer.status_code, "is a symbolic link" in answer.text) == (422, True)
    assert not list((tmp_path / "theirs").iterdir())


@pytest.mark.parametrize("planted", ["sound", "name", ""])
def test_a_take_from_elsewhere_is_not_added_to(desk, tmp_path, planted):
    theirs, take = tmp_path / "theirs", "0123456789abcdef"
    for folder in (theirs, desk.folder / browser_recordings.PLACE / take):
        folder.mkdir(parents=True)
        (folder / "sound").write_bytes(b"first")
        (folder / "name").write_text("a.webm")
    place = desk.folder / browser_recordings.PLACE / take / planted
    if planted:
        place.unlink()
    else:
        shutil.rmtree(place)
    place.symlink_to(theirs / planted)
    assert desk.client.get("/api/takes").json() == {"takes": []}
    for answer in (add(desk, take, 5, b"second"), desk.client.post(f"/api/takes/{take}/finish")):
        assert (answer.status_code, "is a symbolic link" in answer.text) == (422, True)
    assert (theirs / "sound").read_bytes() == b"first"


def test_what_appears_is_taken_once_it_is_whole(desk, tmp_path, short, monkeypatch):
    monkeypatch.setattr(queues, "COMPLETE", 1e-3)
    library = Library(desk.folder, Index(tmp_path / "index.sqlite"))
    watching = FolderWatch(library, desk.queue, SILENT)

    def looked() -> list[str]:
        library.update()
        watching.scan()
        time.sleep(0.01)
        return [one.name for one in desk.queue.board.statuses()]

    path = desk.folder / "talk.flac"
    path.write_bytes(short.read_bytes()[:1000])
    assert looked() == []  # it may be on its way
    shutil.copy(short, path)
    assert looked() == []  # it was
    assert looked() == ["talk.flac"]
    assert looked() == ["talk.flac"]
    (desk.folder / "empty.wav").touch()
    assert looked() == looked() == ["talk.flac"]
