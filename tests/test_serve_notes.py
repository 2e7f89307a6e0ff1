"""The notes of all transcripts at the desk: the list, the search in it, and the project of them."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from test_notes import CALL, note
from test_serve_library import save
from witness.options import Options
from witness.serve.app_state import AppState
from witness.serve.library.index import Index
from witness.serve.library.library import Library
from witness.serve.server import application

TOKEN = "a-token-for-the-tests"  # noqa: S105 - guards nothing


@pytest.fixture
def client(tmp_path):
    library = Library(tmp_path / "calls", Index(tmp_path / "index.sqlite"))
    for name, given in (
        ("b/zoo", [note(CALL, 2, 6, "Why <b>?", "Trust", "Money"), note(CALL, 9, 12, "", "Trust")]),
        ("alpha", [note(CALL, 0, 1, "A beginning")]),
        ("none", []),
    ):
        path = library.folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        save(path, replace(CALL, corrections=tuple(given), corrected=bool(given)))
    library.update()
    desk = AppState(library.folder, TOKEN, library, Options(models="builtin"))
    yield TestClient(application(desk), "http://localhost", headers={"Authorization": f"Bearer {TOKEN}"})
    desk.editor.close()


def test_all_notes_are_listed_and_found(client):
    said = client.get("/api/notes").json()
    assert (said["total"], said["codes"]) == (3, ["Money", "Trust"])
    assert [(one["name"], one["text"]) for one in said["notes"]] == [
        ("alpha", "A beginning"),
        ("zoo", "Why <b>?"),
        ("zoo", ""),
    ]
    assert client.get("/api/notes/codes").json() == {"codes": ["Money", "Trust"]}
    assert said["notes"][1]["quote"] == "".join(word.text for word in CALL.words[2:6]).strip()
    for query, count in (("code=trust", 2), ("q=why", 1), ("q=MONEY", 1), ("q=zoo", 2), ("q=nothing", 0)):
        assert client.get(f"/api/notes?{query}").json()["total"] == count, query
    assert "notes" not in client.get("/api/library").json()["recordings"][0]
    assert client.get("/notes").status_code == 200


def test_the_project_has_the_transcripts_with_notes(client):
    answer = client.get("/api/notes/project")
    assert answer.status_code == 200
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        project = archive.read("project.qde").decode()
        assert len(archive.namelist()) == 3
    assert project.count("<TextSource ") == 2
    assert project.count("<Code ") == 2
    assert client.get("/api/notes/project?q=nothing").status_code == 404
