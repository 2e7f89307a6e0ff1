"""What the desk gives away: a file with options, and several recordings as one archive."""

import io
import zipfile

import pytest

from conftest import asking, desk_of_two
from witness.formats.registry import PURPOSES, Format
from witness.serve.library.library import id_of
from witness.transcript import edits, store


@pytest.fixture(scope="module")
def desk(shelf, tmp_path_factory):
    """In the first folder, somebody is called Ann."""

    def prepare(calls):
        path = calls / "one" / "toned.json"
        edits.name_speaker(path, edits.show(path).version, store.read(path).speakers[0].id, "Ann")

    with desk_of_two(shelf, tmp_path_factory.mktemp("desk"), prepare) as desk:
        yield desk


@pytest.fixture
def client(desk):
    with asking(desk) as client:
        yield client


def ids(desk) -> list[str]:
    found = sorted(desk.folder.glob("*/toned.json"))
    return [id_of(path.relative_to(desk.folder)) for path in found]


def ask(client, desk, **more):
    return client.post("/api/export", json={"ids": ids(desk)[:1], "formats": ["txt"], **more})


def test_formats_are_told_by_what_they_are_for(client):
    told = client.get("/api/formats").json()["formats"]
    assert {one["word"] for one in told} == {form for form in Format if form.installed}
    assert list(dict.fromkeys(one["purpose"] for one in told)) == list(PURPOSES)


def test_one_file_with_options(client, desk):
    whole = ask(client, desk).text
    assert "Ann: " in whole
    assert whole.startswith("[00:00:")
    bare = ask(client, desk, options={"times": "drop", "names": "drop"}).text
    assert "[00:00:" not in bare
    assert "Ann" not in bare
    hidden = ask(client, desk, options={"names": "anonymous"})
    assert "Ann" not in hidden.text
    assert "P01: " in hidden.text
    assert hidden.headers["Content-Disposition"] == "attachment; filename*=UTF-8''toned.txt"


def test_a_preview_is_the_beginning_of_the_file(client, desk):
    place = f"/t/{ids(desk)[0]}/preview"
    for form in ("txt", "docx", "srt", "html"):
        told = client.post(place, json={"format": form, "options": {"names": "anonymous"}}).json()["text"]
        assert "P01" in told
        assert "Ann" not in told


@pytest.mark.slow
def test_several_recordings_are_one_archive(client, desk):
    asked = {"ids": ids(desk), "formats": ["docx", "srt"], "sound": True}
    answer = client.post("/api/export", json={**asked, "options": {"names": "anonymous"}})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        endings = sorted(archive.namelist())
    assert endings == sorted(
        ["toned.docx", "toned.srt", "toned.mp3", "toned 2.docx", "toned 2.srt", "toned 2.mp3"]
    )
    with zipfile.ZipFile(io.BytesIO(client.post("/api/export", json=asked).content)) as archive:
        assert sorted(archive.namelist()) == sorted(
            f"{folder}/toned.{ending}" for folder in ("one", "two") for ending in ("docx", "srt", "mp3")
        )


def test_what_cannot_be_exported_is_told_in_the_archive(client, desk):
    path = desk.folder / "two" / "toned.json"
    before = path.read_bytes()
    path.write_bytes(before[:1000])
    try:
        answer = client.post("/api/export", json={"ids": ids(desk), "formats": ["txt"]})
    finally:
        path.write_bytes(before)
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert sorted(archive.namelist()) == ["NOT EXPORTED.txt", "one/toned.txt"]
        assert b"two/toned.json: " in archive.read("NOT EXPORTED.txt")


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"ids": []}, 400),
        ({"ids": "all"}, 400),
        ({"ids": ["nothing"]}, 404),
        ({"formats": []}, 400),
        ({"formats": ["exe"]}, 400),
        ({"options": {"names": "some"}}, 400),
        ({"options": {"pauses": -1}}, 400),
        ({"options": {"hidden": ["x" * 1000]}}, 400),
        ({"options": []}, 400),
    ],
)
def test_nonsense_is_refused(client, desk, more, status):
    answer = ask(client, desk, **more)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
