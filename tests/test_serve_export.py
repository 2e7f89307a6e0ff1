"""What the desk gives away: a file with options, and several recordings as one archive."""

import base64
import io
import itertools
import json
import re
import zipfile
from dataclasses import replace

import av
import msgspec
import pytest
from msgspec import structs

from conftest import asking, desk_of_two
from witness.formats import json_document
from witness.formats.registry import PURPOSES, Format
from witness.schema import Correction, Review
from witness.serve.library.library import id_of
from witness.storage import files
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
    assert hidden.headers["Content-Disposition"] == "attachment; filename*=UTF-8''recording.txt"


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
        f"recording {number}.{ending}" for number in (1, 2) for ending in ("docx", "srt", "mp3")
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


# --- anonymous exports ---

MARK = "qxzmark"
"""Begins every text that may not be exported."""
FIXED = {"schema", "kind", "fillers", "times", "speaker_names", "text", "speaker", "id", "sha256", "path"}
"""Keys of the document whose texts are checked, or marked by `mark_everything` itself."""


def mark_everything(folder):
    """Fill every text of a transcript, its recording's tags, and all names of files with markers."""
    numbers = itertools.count()

    def mark(value, key=""):
        if isinstance(value, dict):
            return {name: mark(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [mark(each, key) for each in value]
        free = isinstance(value, str) or (value is None and key in ("mode", "transcription"))
        return f"Qxzmark{key}{next(numbers)}" if free and key not in FIXED else value

    marked = folder / "QxzmarkFolder" / "QxzmarkPerson_2024.json"
    recording = marked.with_suffix(".flac")
    marked.parent.mkdir()
    with av.open(str(folder / "toned.wav")) as source, av.open(str(recording), "w") as copy:
        copy.metadata.update({"title": "QxzmarkTitle", "artist": "QxzmarkArtist", "date": "1999-12-31"})
        stream = copy.add_stream("flac", rate=source.streams.audio[0].rate, layout="mono")
        for frame in source.decode(audio=0):
            frame.pts = None
            copy.mux(stream.encode(frame))
        copy.mux(stream.encode(None))
    before = store.read(folder / "toned.json")
    spoken = "I am Jo Qxzmarkmeyer. JoQxzmarkmeyer_zelda1 is qxzmarkmeyerjo, QXZMARKMEYER's"
    said = iter([*spoken.split(), "jo.qxzmarkmeyer@x.org"])
    utterances = tuple(
        replace(
            utterance,
            words=tuple(structs.replace(word, text=f" {next(said, 'so')}") for word in utterance.words),
        )
        for utterance in before.utterances
    )
    assert next(said, None) is None
    first, *others = before.speakers
    note = Correction("note", (), None, ((0.0, 9.0),), "QxzmarkNote", ("QxzmarkCode",))
    transcript = replace(
        before,
        audio=replace(before.audio, path=str(recording), sha256=files.sha256_at(recording)),
        speakers=(
            replace(first, name="Jo Qxzmarkmeyer"),
            *(replace(each, name="Zelda Qxzmarkother") for each in others),
        ),
        utterances=utterances,
        words=tuple(word for utterance in utterances for word in utterance.words),
        corrections=(Correction("name", ((0.0, 9.0),), "QxzmarkName"), note),
        warnings=(f"{recording}: QxzmarkWarning",),
        machine=("QxzmarkMachine",),
        review=Review(until=1.0),
        tags=("QxzmarkTag",),
        findings=None,
    )
    document = msgspec.to_builtins(json_document.from_transcript(transcript))
    texts = {key: value for key, value in document.items() if key not in ("speakers", "utterances", "words")}
    document |= mark(texts)
    for model in filter(None, document["models"].values()):
        model["sha256"] = f"Qxzmark{next(numbers)}"
    marked.write_text(json.dumps(document))
    store.read(marked)
    marked.with_name("QxzmarkBroken.json").write_bytes(marked.read_bytes()[:-9])
    return transcript.audio.sha256


def every_text(content):
    """Yield the bytes, and those of everything inside: files of archives, and base64."""
    yield content
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield name.encode()
                yield from every_text(archive.read(name))
    for text in re.findall(rb"[A-Za-z0-9+/]{40,}={0,2}", content):
        if len(text) % 4 == 0:
            yield base64.b64decode(text)


def test_no_byte_of_an_anonymous_export_identifies_anybody(shelf, tmp_path):
    digests = []
    with (
        desk_of_two(shelf, tmp_path, lambda calls: digests.append(mark_everything(calls / "one"))) as desk,
        asking(desk) as client,
    ):
        names = ("QxzmarkPerson_2024", "QxzmarkBroken")
        marked = [
            id_of((desk.folder / "one" / "QxzmarkFolder" / f"{name}.json").relative_to(desk.folder))
            for name in names
        ]
        options = {"names": "anonymous", "hidden": ["x.org"]}
        forms = [form.value for form in Format if form.installed]
        order = {"ids": marked, "formats": forms, "sound": True, "options": options}
        archive = client.post("/api/export", json=order)
        single = [
            client.post("/api/export", json={**order, "ids": marked[:1], "formats": [form], "sound": False})
            for form in forms
        ]
        single.append(client.post("/api/export", json={**order, "ids": marked[:1], "formats": []}))
        previews = [
            client.post(f"/t/{marked[0]}/preview", json={"format": form, "options": options})
            for form in forms
        ]
    assert {answer.status_code for answer in (archive, *single, *previews)} == {200}
    with zipfile.ZipFile(io.BytesIO(archive.content)) as whole:
        assert len(whole.namelist()) == len(forms) + 2
        failures = whole.read("NOT EXPORTED.txt").decode().splitlines()
        said = "P01: I am P01.\n[00:00:04] P02: […] is P01, P01's P01.P01@[…]\n"
        assert said in whole.read("recording 1.txt").decode()
        page = whole.read("recording 1.html").decode()
    assert len(failures) == len(forms) + 1
    assert all(line.startswith("recording 2: ") for line in failures)
    assert '"peaks":"' in page
    assert 'id="sound"' in page
    markers = [MARK, digests[0], *(part for part in tmp_path.parts if len(part) > 5)]
    short = re.compile(r"(?<![a-z])jo(?![a-z])|zelda|1999|2024", re.IGNORECASE)
    for answer in (archive, *single, *previews):
        for content in (str(answer.headers).encode(), *every_text(answer.content)):
            assert [marker for marker in markers if marker.encode().lower() in content.lower()] == []
            try:
                text = content.decode()
            except UnicodeDecodeError:
                continue  # sound: two letters occur there by chance
            assert short.search(re.sub(r"[A-Za-z0-9+/=]{40,}", "", text)) is None, text[:200]
