"""People with tokens of their own, and what each may do."""

import os

import pytest
from starlette.testclient import TestClient

from witness.errors import InputError
from witness.serve import roles
from witness.serve.app import application
from witness.serve.app_state import AppState
from witness.serve.library.catalog import Library
from witness.serve.library.index import Index
from witness.serve.roles import Role, User

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


def status(app, role: str, method: str, path: str) -> int:
    (token,) = (user.token for user in USERS if user.role == role)
    return client(app, token).request(method, path, json={}).status_code


def test_who_may_read_can_change_nothing_by_any_address(app):
    """Each route that takes more than GET is refused, but for what asks."""
    asked = 0
    for route in app.routes:
        for method in sorted((getattr(route, "methods", None) or {"POST"}) - {"GET", "HEAD"}):
            path = route.path.replace("{id}", "0123")
            allowed = path == "/api/export" or path.endswith("/preview")
            assert (status(app, "read", method, path) == 403) != allowed, (method, path)
            asked += 1
    assert asked > 12
    assert status(app, "read", "GET", "/api/library") == 200


def test_each_may_what_those_before_may():
    for method, path, least in [
        ("GET", "/t/0/corrections", Role.READ),
        ("POST", "/api/export", Role.READ),
        ("POST", "/t/0/preview", Role.READ),
        ("POST", "/t/0/notes", Role.COMMENT),
        ("PUT", "/t/0/notes/7", Role.WRITE),
        ("PUT", "/t/0/corrections", Role.WRITE),
        ("POST", "/api/recordings", Role.WRITE),
        ("POST", "/v1/audio/transcriptions", Role.WRITE),
    ]:
        allowed = [role for role in Role if roles.may(role, method, path)]
        assert allowed == list(Role)[list(Role).index(least) :], (method, path)


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
        ("", "names nobody"),
        ("anna write", "line 1: write a name"),
        ("# x\nanna own 0123456789abcdef", "line 2: write a name"),
        ("anna write short", "too easy to guess"),
        ("anna write 0123456789abcdef\nanna read fedcba9876543210", "there twice"),
        ("anna write 0123456789abcdef\nbert read 0123456789abcdef", "there twice"),
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
