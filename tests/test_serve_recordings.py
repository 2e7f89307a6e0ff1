"""Recordings on their way into the desk, hostile ones among them, and the events about them."""

from __future__ import annotations

import asyncio
import errno
import json
import re
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from starlette.applications import Starlette
from starlette.testclient import TestClient

from test_serve_queue import SETTINGS, Hands, wait_for
from witness.errors import WitnessError
from witness.serve import errors, uploads
from witness.serve import queue as queues
from witness.serve.app_state import AppState, Quotas
from witness.serve.library.library import Library
from witness.serve.queue import Queue
from witness.serve.routes import recordings
from witness.serve.server import application
from witness.serve.uploads import Uploads, clean


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A client of a desk whose recordings the test does, and its parts."""
    hands = Hands([None])
    monkeypatch.setattr(queues, "Pool", lambda _: hands)
    with ExitStack() as stack:
        uploads_ = stack.enter_context(Uploads(tmp_path))
        queue = stack.enter_context(Queue(tmp_path, lambda _: SETTINGS))
        app = Starlette(routes=recordings.routes(), exception_handlers=errors.HANDLERS)
        app.state.desk = SimpleNamespace(folder=tmp_path, queue=queue, uploads=uploads_)
        client = stack.enter_context(TestClient(app))
        yield SimpleNamespace(client=client, app=app, queue=queue, hands=hands, folder=tmp_path)


def left(desk) -> list[str]:
    """Return the names of the files in the folder, except the desk's own."""
    own = {"manifest.jsonl", ".witness-batch.lock", "lock"}
    return sorted(path.name for path in desk.folder.rglob("*") if path.is_file() and path.name not in own)


def send(desk, *files, **more):
    return desk.client.post("/api/recordings", files=[("file", file) for file in files], **more)


def test_recordings_are_kept_and_wait(desk):
    answer = send(desk, ("Tuesday.WAV", b"one"), ("x/Tuesday.wav", b"two"), ("b.mp3", b"\r\n--" * 999_999))
    assert answer.status_code == 201
    assert [row["name"] for row in answer.json()["jobs"]] == ["Tuesday.wav", "Tuesday-2.wav", "b.mp3"]
    assert left(desk) == ["Tuesday-2.wav", "Tuesday.wav", "b.mp3"]
    assert (desk.folder / "Tuesday-2.wav").read_bytes() == b"two"
    assert (desk.folder / "b.mp3").read_bytes() == b"\r\n--" * 999_999
    first = answer.json()["jobs"][0]
    wait_for(lambda: desk.queue.board.states()[first["id"]] == "working")
    second = answer.json()["jobs"][1]["id"]
    assert desk.client.post(f"/api/jobs/{second}/cancel").json()["state"] == "canceled"
    again = desk.client.post(f"/api/jobs/{second}/cancel")
    assert (again.status_code, again.json()["error"]["type"]) == (409, "conflict_error")
    assert desk.client.post(f"/api/jobs/{second}/retry").json()["state"] == "waiting"
    for id_ in ("0" * 16, "..", "%2e%2e%2fmanifest"):
        assert desk.client.post(f"/api/jobs/{id_}/retry").status_code == 404


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../etc/cron.wav", "cron.wav"),
        ("C:\\Users\\ann\\call.mp3", "call.mp3"),
        ("..wav", None),
        ("/etc/passwd", None),
        (".htaccess", None),
        ("", None),
        ("a.wav.exe", None),
        ("-o.wav", "o.wav"),
        (".witness-1-x.wav", "witness-1-x.wav"),
        ("CON.wav", "recording CON.wav"),
        ("a\x00b\x1b[2J\u202egpj.wav", "a b [2J gpj.wav"),
        ("line\r\nbreak.wav", "line break.wav"),
        ("~.wav", "recording.wav"),
        ("ü" * 300 + ".wav", "ü" * 60 + ".wav"),
        ("e\u0301 名.flac", "é 名.flac"),
        ("a<b>|c?.ogg", "a b c.ogg"),
        ("manifest.jsonl", None),
    ],
)
def test_names_are_ours(given, name):
    if name is None:
        with pytest.raises(uploads.HTTPException) as caught:
            clean(given)
        assert caught.value.status_code == 415
    else:
        assert clean(given) == name


SCOPE = {"type": "http", "method": "GET", "headers": [], "query_string": b""}
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
PART = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nsound'


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (PART + b"\r\n--x--\r\n", {}, 415, "multipart/form-data"),
        (PART + b"\r\n--x--\r\n", {"Content-Type": "multipart/form-data"}, 415, "multipart/form-data"),
        (b"{}", {"Content-Type": "application/json"}, 415, "multipart/form-data"),
        (b"", FORM, 400, "ended early"),
        (PART, FORM, 400, "ended early"),
        (b"nonsense", FORM, 400, "not valid"),
        (
            PART + b"\r\n--x--\r\n",
            {"Content-Type": f"multipart/form-data; boundary={'x' * 999}"},
            400,
            "not valid",
        ),
        (b"--x\r\nContent-Disposition: " + b"y" * 5000, FORM, 400, "not valid|too long"),
        (b"--x\r\n" + b"A: b\r\n" * 5000 + b"\r\n", FORM, 400, "not valid|too long"),
        (PART.replace(b'; filename="a.wav"', b"") + b"\r\n--x--\r\n", FORM, 400, "no recording"),
        (PART.replace(b"a.wav", b"a.html") + b"\r\n--x--\r\n", FORM, 415, "ending of a recording"),
        (PART.replace(b'; filename="a.wav"', b"") + b"y" * (9 << 20) + b"\r\n--x--\r\n", FORM, 413, "8192"),
        ((PART + b"\r\n") * 101 + b"--x--\r\n", FORM, 413, "more than 100 recordings"),
        (
            (b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n') * 201 + b"--x--\r\n",
            FORM,
            413,
            "more than 200 parts",
        ),
        (PART.replace(b'; filename="a.wav"', b"") + b"\xff\r\n--x--\r\n", FORM, 400, "UTF-8"),
    ],
    ids=lambda value: "" if isinstance(value, bytes | dict) else str(value),
)
def test_what_is_no_upload_leaves_nothing(desk, body, headers, status, says):
    answer = desk.client.post("/api/recordings", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert re.search(says, answer.json()["error"]["message"])
    assert left(desk) == []
    assert desk.queue.board.statuses() == []


@given(
    cuts=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 40), st.binary(max_size=12)), max_size=4),
    size=st.sampled_from((9, 64, 1000)),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_uploads_are_refused_or_kept_whole(desk, cuts, size):
    """Pieces of a form are replaced, and it comes in pieces of any size."""
    body = b'--x\r\nContent-Disposition: form-data; name="note"\r\n\r\nTuesday\r\n'
    body += PART + b"\r\n" + PART.replace(b"a.wav", b"b.wav") + b"\r\n--x--\r\n"
    for place, length, instead in cuts:
        body = body[:place] + instead + body[place + length :]
    pieces = (body[place : place + size] for place in range(0, len(body), size))
    answer = desk.client.post("/api/recordings", content=pieces, headers=FORM)
    assert answer.status_code in (201, 400, 415), answer.text
    names = [row["name"] for row in answer.json().get("jobs", ())]
    assert set(names) <= set(left(desk))
    assert not any((desk.folder / uploads.PLACE).glob("????????????????"))
    assert answer.status_code == 201 or "error" in answer.json()
    assert cuts or names[:1]


def test_a_full_disk_is_said_and_leaves_nothing(desk, monkeypatch):
    usage = SimpleNamespace(free=uploads.ROOM + 100)
    monkeypatch.setattr(uploads.shutil, "disk_usage", lambda _: usage)
    answer = send(desk, ("a.wav", b"x" * 1000))
    assert (answer.status_code, answer.json()["error"]["type"]) == (507, "server_error")
    usage.free = 1 << 40

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(uploads._Parts, "_take", full)
    answer = send(desk, ("a.wav", b"x" * 1000))
    assert (answer.status_code, "disk is full" in answer.text) == (507, True)
    assert left(desk) == []


def test_too_many_senders_are_told_to_come_back(desk, monkeypatch):
    monkeypatch.setattr(uploads, "AT_ONCE", 0)
    monkeypatch.setattr(uploads, "MOST_WAITING", 0)
    answer = send(desk, ("a.wav", b"x"))
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "10")
    monkeypatch.setattr(uploads, "AT_ONCE", 1)
    monkeypatch.setattr(queues, "MOST_WAITING", 1)
    answer = send(desk, ("a.wav", b"x"), ("b.wav", b"x"))  # all or none
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
    assert left(desk) == []


def test_an_endless_upload_is_on_the_disk_alone_and_goes_with_its_sender(desk):
    """As ASGI, so that the test is the client: it sends 40 MB, looks, and leaves."""
    import tracemalloc

    seen = []
    piece = b"\0" * 100_000

    async def receive():
        if not seen:
            seen.append(0)
            return {"type": "http.request", "body": PART, "more_body": True}
        seen[0] += 1
        if seen[0] > 400:
            (file,) = (desk.folder / uploads.PLACE).rglob("*.wav")
            seen.append(file.stat().st_size)
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": True}

    async def send(message):
        seen.append(message)

    headers = [(name.lower().encode(), value.encode()) for name, value in FORM.items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/recordings",
        "headers": headers,
        "query_string": b"",
    }
    tracemalloc.start()
    try:
        asyncio.run(desk.app(scope, receive, send))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen[1] > 38_000_000
    assert peak < 8_000_000
    assert seen[2]["status"] == 400
    assert left(desk) == []


def test_a_server_removes_what_another_left_and_wants_the_folder_alone(tmp_path):
    torn = tmp_path / uploads.PLACE / ("0123" * 4)
    torn.mkdir(parents=True)
    (torn / "0.wav").touch()
    with Uploads(tmp_path):
        assert not torn.exists()
        with pytest.raises(WitnessError, match="another witness serve is at work"), Uploads(tmp_path):
            pass
    with Uploads(tmp_path):
        pass


def test_a_folder_from_elsewhere_cannot_have_other_files_removed(tmp_path):
    other = tmp_path / "other" / ("0123" * 4)
    other.mkdir(parents=True)
    for name in ("desk", "desk2"):
        (tmp_path / name).mkdir()
    (tmp_path / "desk" / uploads.PLACE).symlink_to(tmp_path / "other")
    with pytest.raises(WitnessError, match="is a symbolic link"), Uploads(tmp_path / "desk"):
        pass
    (tmp_path / "desk2" / uploads.PLACE).mkdir()
    (tmp_path / "desk2" / uploads.PLACE / other.name).symlink_to(other)
    (other / "letter").touch()
    with Uploads(tmp_path / "desk2"):
        pass
    assert (other / "letter").exists()


@pytest.mark.parametrize("declared", [True, False])
def test_what_is_larger_than_allowed_leaves_nothing(tmp_path, declared):
    """Through the guard, with its limits. A size that is said is refused before anything is read."""
    with Uploads(tmp_path) as arriving, Queue(tmp_path, lambda _: SETTINGS) as queue:
        limits = Quotas(upload=1 << 20)
        library = Library(tmp_path)
        desk = AppState(tmp_path, "t" * 16, library, limits=limits, queue=queue, uploads=arriving)
        client = TestClient(application(desk), base_url="http://127.0.0.1")
        client.headers |= {"Authorization": f"Bearer {'t' * 16}", **FORM}
        body = [PART, *[b"\0" * 100_000] * 20, b"\r\n--x--\r\n"]
        answer = client.post("/api/recordings", content=b"".join(body) if declared else iter(body))
        assert (answer.status_code, "larger than 1 MiB" in answer.text) == (413, True)
        assert queue.board.statuses() == []
    assert not list(tmp_path.rglob("*.wav"))


def test_events_tell_all_of_now_then_changes_and_end_with_the_client(desk, monkeypatch):
    monkeypatch.setattr(recordings, "ALIVE", 0.05)
    send(desk, ("a.wav", b"x"), ("b.wav", b"y"))
    wait_for(lambda: "working" in desk.queue.board.states().values())
    said, wanted = [], asyncio.Event()

    async def receive():
        await wanted.wait()
        return {"type": "http.disconnect"}

    async def tell(message):
        body = message.get("body", b"").decode()
        said.append(body)
        if len(said) == 2:  # all of now
            desk.hands.finish("a.wav")
        if '"done"' in body:
            said.append("DONE")
        if "DONE" in said and "still here" in body:
            wanted.set()

    scope = {**SCOPE, "path": "/api/events"}
    asyncio.run(asyncio.wait_for(desk.app(scope, receive, tell), 20))
    now = [json.loads(line[6:]) for line in said[1].splitlines() if line.startswith("data: ")]
    assert [(row["name"], row["state"]) for row in now] == [("a.wav", "working"), ("b.wav", "waiting")]
    times = {"seconds_left", "seconds_after"}
    assert set(now[0]) == {"id", "name", "state", "stage", "share", "why", "transcript", "said"} | times
    assert said[1].startswith("retry: 2000\n\nevent: job\n")
    changes = [json.loads(line[6:]) for body in said[2:] for line in body.splitlines() if line[:1] == "d"]
    assert ("a.wav", "done") in [(row["name"], row["state"]) for row in changes]
    assert desk.queue.board._listeners == []


def test_a_client_that_does_not_read_is_let_go(desk, monkeypatch):
    monkeypatch.setattr(recordings, "DEAF", 0.05)

    async def receive():
        await asyncio.Event().wait()

    async def tell(message):
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    scope = {**SCOPE, "path": "/api/events"}
    asyncio.run(asyncio.wait_for(desk.app(scope, receive, tell), 20))
    assert desk.queue.board._listeners == []
