"""People with tokens of their own, and what each may do."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from test_again import heard
from test_serve_queue import SETTINGS, Hands
from witness.errors import InputError
from witness.serve import editing, roles
from witness.serve import queue as queues
from witness.serve.app_state import AppState
from witness.serve.library.index import Index
from witness.serve.library.library import Library, id_of
from witness.serve.queue import Queue
from witness.serve.roles import Role, User
from witness.serve.routes import transcripts
from witness.serve.server import application
from witness.serve.uploads import Uploads
from witness.serve.worker import Worker
from witness.storage import files
from witness.transcript import previous

OWNER = "the-token-of-the-owner"
USERS = tuple(User(role, role, f"a-token-to-{role}-0123") for role in Role)


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    root = tmp_path_factory.mktemp("desk")
    (root / "calls").mkdir()
    library = Library(root / "calls", Index(root / "index.sqlite"))
    more = {"users": USERS, "public": "https://desk.example"}
    return application(AppState(library.folder, OWNER, library), ["desk.example"], **more)


def client(app, token: str) -> TestClient:
    return TestClient(
        app, "http://localhost:8420", headers={"Authorization": f"Bearer {token}"}, follow_redirects=False
    )


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "GETS", "PURGE")
FOR_READERS = {("POST", "/api/export"), ("POST", "/t/{id}/preview")}
"""Requests of readers that are neither GET nor HEAD: they take something away and change nothing."""
FOR_COMMENTERS = {*FOR_READERS, ("POST", "/t/{id}/notes")}
VALUES = {"{place:int}": "0", "{name:path}": "whisper-1", "{address:path}": "x"}


def requests(app, recording: str):
    """Every method of every address that the router has."""
    for path in dict.fromkeys(route.path for route in app.routes):
        address = path.replace("{id}", recording)
        for part, value in VALUES.items():
            address = address.replace(part, value)
        for method in METHODS:
            yield method, path, address


@pytest.mark.slow
@pytest.mark.parametrize("token", [None, *(user.token for user in USERS), OWNER])
def test_a_handler_runs_for_those_alone_who_have_the_right(app, monkeypatch, token):
    """By every method at every address, whose handlers do nothing here but tell that they ran."""
    ran = []
    for route in app.routes:

        async def handler(scope, receive, send, route=route):
            ran.append(route)
            await Response()(scope, receive, send)

        monkeypatch.setattr(route, "app", handler)
    role = next((user.role for user in USERS if user.token == token), Role.WRITE)
    extra = {Role.READ: FOR_READERS, Role.COMMENT: FOR_COMMENTERS}.get(role, set())
    visitor = TestClient(app, "http://localhost:8420") if token is None else client(app, token)
    count = 0
    for method, path, address in requests(app, "0123"):
        served = "GET" if method == "HEAD" else method
        declared = [route for route in app.routes if route.path == path and served in route.methods]
        right = role == Role.WRITE or served == "GET" or (method, path) in extra
        expected = declared if right and token is not None else []
        ran.clear()
        status = visitor.request(method, address, json={}).status_code
        assert ran == expected, (method, path)
        if token is None:
            assert status == 401, (method, path)
        elif not expected:
            assert status == (403 if declared else 405), (method, path)
        count += len(expected)
    assert count > 25 or token is None


def test_every_route_declares_one_method_and_its_right(app):
    for route in app.routes:
        assert isinstance(route.least, Role), route.path
        assert len(route.methods - {"HEAD"}) == 1, route.path


def test_a_route_that_declares_no_right_is_for_those_who_may_write(app, monkeypatch):
    async def undeclared(_):
        return Response("open")

    more = [Route("/undeclared", undeclared), Mount("/mounted", routes=[Route("/undeclared", undeclared)])]
    monkeypatch.setattr(app.router, "routes", [*more, *app.routes])
    for path in ("/undeclared", "/mounted/undeclared"):
        statuses = [client(app, user.token).get(path).status_code for user in USERS]
        assert statuses == [403, 403, 200], path


def test_an_address_names_all_of_its_methods(app):
    answer = client(app, OWNER).delete("/t/0123/corrections")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD, POST, PUT")


def contents(folder) -> dict:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_reader_changes_nothing_on_the_disk_by_any_method(shelf, tmp_path, monkeypatch):
    """With the body of a request that writes, sent to the handlers themselves."""
    monkeypatch.setattr(queues, "Pool", lambda _: Hands([None]))
    monkeypatch.setattr(queues, "MOST_LISTENERS", 0)  # events have no end
    monkeypatch.setattr(transcripts, "MOST_WATCHING", 0)
    folder = tmp_path / "calls"
    shutil.copytree(shelf, folder)
    path = folder / "toned.json"
    previous.replace_with(path, heard(path, {6: "Bremen"}))
    library = Library(folder, Index(tmp_path / "index.sqlite"))
    with (
        Uploads(folder) as arriving,
        Queue(folder, lambda _: SETTINGS) as queue,
        closing(Worker(editing.prepare)) as editor,
        closing(Worker(editing.prepare)) as finder,
    ):
        parts = {"queue": queue, "uploads": arriving, "editor": editor, "finder": finder}
        app = application(AppState(folder, OWNER, library, **parts), users=USERS)
        library.update()
        recording = id_of(Path("toned.json"))
        rule = {"heard": "Bremen", "written": "Rome"}
        found = client(app, OWNER).get(f"/t/{recording}/replace", params=rule).json()
        body = {**rule, "version": found["version"], "places": [one["place"] for one in found["places"]]}
        body |= {"steps": [], "corrections": {}, "speaker": "S1", "name": "x.wav", "folder": "sub"}
        body |= {"start": 0.0, "end": 3.0, "add": ["tag"], "remove": [], "take": ["term"], "drop": []}
        body |= {"ids": [recording], "formats": ["txt"], "format": "txt", "options": {}}
        query = {**rule, "format": "txt", "name": "x", "q": "Bremen"}
        before = contents(folder)
        reader, answered = client(app, USERS[0].token), 0
        for method, _, address in requests(app, recording):
            answer = reader.request(method, address, json=body, params=query)
            answered += answer.status_code == 200
            assert contents(folder) == before, (method, address)
        assert answered > 40
        # The same body does write where the person may.
        for address in ("differences", "replace", "vocabulary"):
            before = contents(folder)
            body["version"] = files.sha256_at(path)
            answer = client(app, OWNER).post(f"/t/{recording}/{address}", json=body)
            assert (answer.status_code, contents(folder) != before) == (200, True), answer.text


def test_the_page_of_the_token_knows_everybody(app):
    for user in USERS:
        visitor = TestClient(app, "https://desk.example", follow_redirects=False)
        assert visitor.get("/api/library").status_code == 401
        answer = visitor.post("/unlock", data={"token": user.token}, headers={"Accept": "text/html"})
        assert answer.status_code == 303
        assert visitor.get("/api/library").status_code == 200
        refused = visitor.post("/api/recordings/untranscribed").status_code == 403
        assert refused == (user.role != Role.WRITE)
        assert f'data-role="{user.role}"' in visitor.get("/").text


def test_a_person_who_opens_many_browsers_shuts_out_nobody_else(app):
    visitors = []
    for token in (OWNER, *[USERS[0].token] * 3):
        visitors.append(TestClient(app, "https://desk.example", follow_redirects=False))
        assert visitors[-1].post("/unlock", data={"token": token}).status_code == 303
    assert [visitor.get("/api/library").status_code for visitor in visitors] == [200] * 4


def test_a_reader_may_become_the_owner_in_the_same_browser(app):
    visitor = TestClient(app, "https://desk.example", follow_redirects=False)
    for token, code in ((USERS[0].token, 403), (OWNER, 503)):
        assert visitor.post("/unlock", data={"token": token}).status_code == 303
        assert visitor.post("/api/takes", json={"name": "a.wav"}).status_code == code


def test_a_proxy_s_address_is_the_desk_s_own(app):
    asked = {"Host": "desk.example", "Origin": "https://desk.example"}
    assert client(app, OWNER).get("/api/library", headers=asked).status_code == 200
    asked["Origin"] = "http://desk.example.evil"
    assert client(app, OWNER).get("/api/library", headers=asked).status_code == 403
    visitor = TestClient(app, "http://desk.example", follow_redirects=False)
    assert "Secure" in visitor.post("/unlock", data={"token": OWNER}).headers["Set-Cookie"]


def write(path, text: str):
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_file_of_people(tmp_path):
    text = "# people\n\nanna write 0123456789abcdef\nbert  read\tfedcba9876543210\n"
    found = roles.read(write(tmp_path / "people", text))
    assert found == (
        User("anna", Role.WRITE, "0123456789abcdef"),
        User("bert", Role.READ, "fedcba9876543210"),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no people"),
        ("anna write", "line 1: write a name"),
        ("# x\nanna own 0123456789abcdef", "line 2: write a name"),
        ("anna write short", "too easy to guess"),
        ("anna write 0123456789abcdef\nanna read fedcba9876543210", "in the file twice"),
        ("anna write 0123456789abcdef\nbert read 0123456789abcdef", "in the file twice"),
    ],
)
def test_a_file_that_is_none(tmp_path, text, says):
    with pytest.raises(InputError, match=says):
        roles.read(write(tmp_path / "people", text))


@pytest.mark.skipif(os.name != "posix", reason="permissions of a POSIX system")
def test_tokens_that_others_can_read_are_refused(tmp_path):
    path = write(tmp_path / "people", "anna write 0123456789abcdef")
    path.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        roles.read(path)
