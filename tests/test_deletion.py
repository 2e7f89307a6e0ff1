"""Deletion for good: no word and no sound of a recording is left in any folder."""

import io
import shutil
import sqlite3
import tempfile
import time
import zipfile
from dataclasses import replace

import av
import msgspec
import pytest

from conftest import DESK_TOKEN, asking
from test_edits import edit, spelling
from witness.errors import OutputError
from witness.formats import json_document
from witness.serve.app_state import AppState
from witness.serve.library.index import Index, IndexEntry
from witness.serve.library.library import Library, id_of
from witness.serve.library.search import Passage
from witness.storage import cache, files
from witness.storage.checkpoint import Journal
from witness.transcript import edits, store, trash, vocabulary

WORD = "Qxzmarkword"


@pytest.fixture
def places(shelf, tmp_path, monkeypatch):
    """The desk's folder, the cache and the temp folder, with a call that no browser plays."""
    found = {name: tmp_path / name for name in ("calls", "cache", "temp")}
    shutil.copytree(shelf, found["calls"])
    found["temp"].mkdir()
    monkeypatch.setenv("WITNESS_CACHE", str(found["cache"]))
    monkeypatch.setenv("TMPDIR", str(found["temp"]))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (found["calls"] / "toned.html").unlink()
    (found["calls"] / "toned.wav").rename(found["calls"] / "toned.aif")
    path = found["calls"] / "toned.json"
    refer(path, found["calls"] / "toned.aif")
    return found


def refer(path, recording):
    """Write another path of the recording into a transcript."""
    document = json_document.decode(files.read(path))
    audio = replace(document.audio, path=str(recording))
    path.write_bytes(json_document.encode(msgspec.structs.replace(document, audio=audio)))


def contents(file):
    """Yield the bytes of a file, and those in it if it is an archive."""
    content = file.read_bytes()
    yield content
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield from map(archive.read, archive.namelist())


def is_sound(file) -> bool:
    try:
        with av.open(str(file)) as media:
            return bool(media.streams.audio) and next(media.decode(audio=0), None) is not None
    except (av.FFmpegError, OSError, ValueError):
        return False


def traces(places) -> set[str]:
    """The files with the marker word, with sound, or with outlines."""
    found = set()
    for place in places.values():
        for file in place.rglob("*"):
            if file.is_file() and (
                is_sound(file)
                or file.name in ("outline", "toned.aif")
                or any(WORD.lower().encode() in content.lower() for content in contents(file))
            ):
                found.add(file.relative_to(place.parent).as_posix())
    return found


def test_no_word_and_no_sound_is_left_after_deletion(places):
    path = places["calls"] / "toned.json"
    edits.save(path, edit(path, spelling(path, 0, WORD)))
    shutil.copy(path, store.previous_path(path))
    sha256 = store.read(path).audio.sha256
    with Journal() as journal:
        journal.open("work", recording=sha256)
        journal.add("piece", WORD.encode())
    library = Library(places["calls"])
    state = AppState(library.folder, DESK_TOKEN, library)
    id_ = id_of(path.relative_to(places["calls"]))
    with library.watched(), asking(state) as client:
        for part in ("", "sound", "outline"):
            assert client.get(f"/t/{id_}/{part}").status_code == 200
        while not client.get("/api/search", params={"q": WORD}).json()["total"]:
            time.sleep(0.05)
        before = traces(places)
        shared = [
            file.relative_to(places["cache"])
            for file in places["cache"].rglob("*")
            if file.stat().st_mode & 0o077
        ]
        thrown = client.post(f"/api/recordings/{id_}/delete").json()["id"]
        assert client.post("/api/trash/empty", json={"ids": [thrown]}).json() == {"deleted": 1}
        left = traces(places)
    state.editor.close()
    state.finder.close()
    index = library.index.path.relative_to(places["cache"].parent).as_posix()
    expected = {
        f"calls/{name}" for name in ("toned.json", ".toned.history", ".toned.earlier", ".witness-words")
    }
    expected |= {"calls/toned.aif", "calls/toned.txt", "calls/toned.srt", f"cache/sounds/{sha256}/sound.webm"}
    assert expected <= before
    assert any(name.startswith(index) for name in before)
    assert {name.split("/")[1] for name in before if name.startswith("cache/")} >= {"outlines", "unfinished"}
    assert shared == []
    assert left == set()
    assert traces(places) == set()  # nor in what the closed desk has written


def test_dropped_words_are_overwritten_in_the_index(places):
    path = places["calls"] / "toned.json"
    edits.save(path, edit(path, spelling(path, 0, WORD)))
    library = Library(places["calls"])
    while not library.update():
        pass
    assert library.index.search(WORD).total == 1
    path.unlink()
    library.forget([path.relative_to(places["calls"])])
    index = library.index.path
    assert not any(WORD.lower().encode() in file.read_bytes().lower() for file in index.parent.iterdir())
    with sqlite3.connect(index) as db:
        assert db.execute("PRAGMA freelist_count").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM vocabulary").fetchone() == (0,)


def test_no_page_of_the_index_and_of_its_log_keeps_dropped_words(tmp_path):
    index = Index(tmp_path / "index" / "words.sqlite")
    for number, word in enumerate(("other", WORD)):
        said = (Passage("Ann", n, n + 1, f"{word}{n} " * 20, b"") for n in range(400))
        index.put(IndexEntry(f"{number:016x}", 1, number, "new", 400.0, ("Ann",)), said)
    with sqlite3.connect(index.path) as reader:  # another desk, so that the log stays
        reader.execute("SELECT count(*) FROM transcripts").fetchall()
        index.drop([f"{1:016x}"])
        index.scrub()
        left = [
            file for file in index.path.parent.iterdir() if WORD.lower().encode() in file.read_bytes().lower()
        ]
        assert left == []
        assert reader.execute("PRAGMA freelist_count").fetchone() == (0,)
        kept = reader.execute("SELECT count(*) FROM found WHERE found MATCH 'other7'")
        assert kept.fetchone() == (1,)
    reader.close()


def test_a_recording_stays_until_its_last_transcript_goes(places):
    root = places["calls"]
    path, again = root / "toned.json", root / "toned.again.json"
    shutil.copy(path, again)
    first = trash.throw(path, root)
    assert (root / "toned.aif").is_file()
    second = trash.throw(again, root)
    assert not (root / "toned.aif").exists()
    trash.delete(root, [second.id])  # the first one still needs the sound
    back = trash.restore(root, first.id)
    assert (back.name, (root / "toned.aif").is_file()) == ("toned.json", True)
    trash.delete(root, [trash.throw(back, root).id])
    assert not list(root.rglob("*.aif"))


def test_a_second_transcript_comes_back_with_the_recording(places):
    root = places["calls"]
    again = root / "toned.again.json"
    (root / "toned.json").rename(again)
    trash.restore(root, trash.throw(again, root).id)
    assert store.read(again).audio.path == str(root / "toned.again.aif")
    assert (root / "toned.again.aif").is_file()


def test_a_transcript_elsewhere_keeps_the_recording(places):
    root = places["calls"]
    (root / "deep").mkdir()
    shutil.copy(root / "toned.json", root / "deep" / "talk.json")
    trash.move(root / "toned.json", root / "other.json", None, root)
    assert (root / "toned.aif").is_file()
    trash.throw(root / "other.json", root)
    assert (root / "toned.aif").is_file()


def test_a_copy_of_the_recording_does_not_keep_it(places):
    root = places["calls"]
    shutil.copy(root / "toned.json", root / "copy.json")
    shutil.copy(root / "toned.aif", root / "copy.aif")
    refer(root / "copy.json", root / "copy.aif")
    trash.throw(root / "toned.json", root)
    assert not (root / "toned.aif").exists()
    assert (root / "copy.aif").is_file()


def test_corrected_words_move_with_their_transcript(places):
    path = places["calls"] / "toned.json"
    edits.save(path, edit(path, spelling(path, 0, WORD)))
    pairs = vocabulary.read(path.parent).corrected["toned"]
    moved = trash.move(path, path.parent / "deep" / "talk.json")
    assert vocabulary.read(path.parent).corrected == {}
    assert vocabulary.read(moved.parent).corrected == {"talk": pairs}


def test_what_cannot_be_deleted_stays_in_the_trash(places, monkeypatch):
    root = places["calls"]
    thrown = trash.throw(root / "toned.json", root)

    def fail(path, **_):
        raise PermissionError(13, "is open", str(path))

    monkeypatch.setattr(shutil, "rmtree", fail)
    with pytest.raises(OutputError, match=r"cannot be deleted \(is open\)"):
        trash.delete(root, [thrown.id])
    assert trash.list_trash(root) == [thrown]


def test_nothing_outside_the_cache_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / cache.SOUNDS).mkdir(parents=True)
    (tmp_path / "mine").touch()
    cache.forget_recording("../../mine")
    cache.forget_recording("*")
    assert (tmp_path / "mine").exists()
