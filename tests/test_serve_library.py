"""The desk's table of contents and its search: what is found below the folder, and where it was said."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import av
import numpy as np
import pytest
from starlette.testclient import TestClient

from test_convert import spoken, uttered
from witness.child import Child
from witness.errors import UsageError
from witness.schema import Correction, Review, Speaker, Transcript
from witness.serve import worker
from witness.serve.app_state import AppState
from witness.serve.library import index as indexes
from witness.serve.library import library as library_module
from witness.serve.library import search
from witness.serve.library.index import DamagedError, Index
from witness.serve.library.library import Library, id_of, walk
from witness.serve.library.query import parse
from witness.serve.library.search import Hit, passages
from witness.serve.server import application
from witness.transcript import store
from witness.work.manifest import Entry, Manifest

TOKEN = "0123456789abcdef"  # noqa: S105 - of no server
SPEAKERS = (Speaker("SPEAKER_01", 9.0, 0.75, "Ann Lee"), Speaker("SPEAKER_02", 3.0, 0.25))


def talk(*said: tuple[str, str], pause: float = 5.0) -> Transcript:
    """Speakers and their texts; a word that begins with ~ follows the one before without a space."""
    words, start = [], 1.0
    for speaker, text in said:
        texts = [word.removeprefix("~") if word[0] == "~" else f" {word}" for word in text.split()]
        words += spoken(*texts, speaker=speaker, start=start)
        start = words[-1].end + pause
    return replace(uttered(words), speakers=SPEAKERS)


BUDGET = talk(
    ("SPEAKER_01", " The budget for the Müller house isn't final"),
    ("SPEAKER_02", " Yes."),
    ("SPEAKER_01", " Final numbers come on Monday with the budget"),
)


def save(path: Path, transcript: Transcript = BUDGET) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    store.save(transcript, [("json", path)], keep=False)
    return path


@pytest.fixture
def library(tmp_path, monkeypatch) -> Library:
    folder = tmp_path / "recordings"
    folder.mkdir()
    library = Library(folder, Index(tmp_path / "cache" / "index.sqlite"))
    monkeypatch.setattr(library._reader, "call", lambda function, *args: function(*args))
    return library


def hits(library: Library, query: str, speaker: str = "") -> list[Hit]:
    return [hit for group in library.index.search(query, speaker, each=99).groups for hit in group.hits]


def texts(library: Library, query: str, speaker: str = "") -> list[str]:
    """What is marked in each passage."""
    return [" … ".join(hit.pieces[1::2]) for hit in hits(library, query, speaker)]


def rows(library: Library) -> dict[str, str]:
    return {one.name: one.state for one in library.recordings()[0]}


def test_words_phrases_and_beginnings_are_found(library):
    save(library.folder / "a.json")
    library.update()
    assert texts(library, "MULLER") == ["Müller"]
    assert texts(library, "final") == ["final", "Final"]  # in the order of time
    assert texts(library, "final budget") == [
        "budget … final",
        "Final … budget",
    ]
    assert texts(library, '"final numbers"') == ["Final numbers"]
    assert texts(library, '"numbers final"') == []
    assert texts(library, "num*") == ["numbers"]
    assert texts(library, "num") == []
    assert texts(library, '"numbers co*"') == ["numbers come"]
    assert texts(library, "isn't") == ["isn't"]
    assert texts(library, "budget", "ann  LEE") == ["budget", "budget"]
    assert texts(library, "yes", "Speaker 2") == ["Yes."]
    assert texts(library, "budget", "ann") == texts(library, "budget", "lee")
    assert texts(library, "budget", "Speaker 2") == texts(library, "budget", "Bob") == []
    assert texts(library, "budget", '"') == texts(library, "budget", "*) OR (words : a") == []


def test_a_quotation_has_its_times_and_the_words_around(library):
    save(library.folder / "a.json")
    library.update()
    (hit,) = hits(library, "house")
    word = next(word for word in BUDGET.words if word.text == " house")
    assert (hit.speaker, hit.start, hit.end) == (
        "Ann Lee",
        pytest.approx(word.start, abs=2e-3),
        pytest.approx(word.end, abs=2e-3),
    )
    assert hit.pieces == ("The budget for the Müller ", "house", " isn't final")
    (yes,) = hits(library, "yes")
    assert yes.pieces[0] == "The budget for the Müller house isn't final – "
    assert yes.pieces[2] == " – Final numbers come on Monday with the budget"


def test_scripts_without_spaces_are_searched_by_their_characters(library):
    save(library.folder / "a.json", talk(("SPEAKER_01", " 明日 ~は ~東京 ~に ~行く OK")))
    library.update()
    assert texts(library, "東京") == ["東京"]
    assert texts(library, "京に") == ["東京に"]  # whole words of the recognizer
    assert texts(library, "京東") == []
    assert hits(library, "東京")[0].pieces == ("明日は", "東京", "に行く OK")


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "*",
        "a\x00b",
        "words : x",
        "NEAR(a b)",
        "^a",
        "'; DROP",
        '"a" + "b',
        "ﬀ*",
        "a" * 500,
    ],
)
def test_no_query_has_a_meaning_of_its_own(library, query):
    save(library.folder / "a.json", talk(("SPEAKER_01", " plain talk")))
    library.update()
    assert texts(library, query) == []


def test_a_query_has_a_length():
    with pytest.raises(UsageError, match="500 characters"):
        parse("a" * 501)
    with pytest.raises(UsageError, match="32"):
        parse("a " * 33)


def test_the_index_follows_the_folder(library, monkeypatch):
    path = save(library.folder / "deep" / "er" / "a.json")
    save(library.folder / "b.json", talk(("SPEAKER_01", " other things")))
    library.update()
    assert rows(library) == {"a": "new", "b": "new"}
    save(path, talk(("SPEAKER_01", " a corrected thing")))
    (library.folder / "b.json").unlink()
    reads = []
    real = indexes.Index.put
    monkeypatch.setattr(
        indexes.Index, "put", lambda self, entry, said=(): (reads.append(entry.id), real(self, entry, said))
    )
    library.update()
    library.update()
    assert texts(library, "thing*") == ["thing"]
    assert texts(library, "budget") == texts(library, "other") == []
    assert rows(library) == {"a": "new"}
    assert reads == [id_of(Path("deep/er/a.json"))]  # and nothing twice
    with library.index._open() as db:  # what it forgot is not in SQLite's own lists either
        db.execute("INSERT INTO found (found) VALUES ('integrity-check')")


def test_the_state_of_a_recording_and_why_it_failed(library):
    named = Correction("name", ((1.0, 2.0),), name="Ann Lee")
    known = replace(BUDGET, corrections=(named,))  # by --known, in the first run
    save(library.folder / "known.json", known)
    save(library.folder / "redone.json", replace(known, corrected=True))
    save(library.folder / "half read.json", replace(known, review=Review(until=34.0)))
    save(library.folder / "read.json", replace(known, corrected=True, review=Review(checked=True)))
    save(library.folder / "damaged.json").write_text('{"schema": "witness/1"}')
    (library.folder / "other.json").write_text("{}")
    shutil.copy(library.folder / "other.json", library.folder / "other.openai.json")
    manifest = Manifest(save(library.folder / "out" / "half.json").parent / "manifest.jsonl")
    for name, why in (("x", "x.wav: no sound"), ("half", "half.wav: speakers, but no words")):
        manifest.append(Entry(f"{name}", f"/nowhere/{name}.wav", 9, 10**18, None, "s", "failed", why, 4))
    manifest.append(Entry("good", "/nowhere/good.wav", 9, 10**18, None, "s", "done"))
    given_up = library.folder / "given up.wav"
    given_up.write_bytes(b"-")
    for path, state in ((given_up, "canceled"), (library.folder / "deleted.wav", "failed")):
        manifest.append(Entry(path.stem, str(path), 9, 10**18, None, "s", state))
    library.update()
    assert rows(library).pop("given up") == "canceled"
    given_up.unlink()
    library.update()
    states = rows(library)
    assert states == {
        "known": "new",
        "redone": "in progress",
        "half read": "in progress",
        "read": "checked",
        "damaged": "failed",
        "x": "failed",
        "half": "failed",
    }
    listed, read = library.recordings()
    assert {one.name: one.until for one in listed}["half read"] == 34.0
    assert read == len(listed)  # what is no transcript does not count, and what failed has nothing to read
    why = {one.name: one.why for one in listed}
    assert "damaged.json is " in why["damaged"]
    assert (why["x"], why["half"], why["known"]) == (
        "x.wav: no sound",
        "half.wav: speakers, but no words",
        None,
    )
    waiting = {id_of(Path("known.json")): "working", "unknown": "waiting"}
    assert {one.name: one.state for one in library.recordings(waiting)[0]}["known"] == "working"


def test_nothing_outside_of_the_folder_is_found(library, tmp_path):
    secret = save(tmp_path / "secret" / "s.json")
    inside = save(library.folder / "sub" / "a.json")
    save(library.folder / ".hidden" / "h.json")
    (library.folder / "linked.json").symlink_to(secret)
    (library.folder / "linked").symlink_to(secret.parent)
    os.mkfifo(library.folder / "pipe.json")
    library.update()
    assert [file.path for file in walk(library.folder) if file.path.suffix == ".json"] == [Path("sub/a.json")]
    one = id_of(Path("sub/a.json"))
    assert library.find(one) == inside
    assert library.find(id_of(Path("../secret/s.json"))) is None
    shutil.rmtree(inside.parent)  # found, and then replaced by a link before it is asked for
    inside.parent.symlink_to(secret.parent)
    secret.rename(secret.with_name("a.json"))
    assert library.find(one) is None


def test_what_was_written_a_moment_ago_can_be_opened(library):
    library.update()
    path = save(library.folder / "a.json")
    assert library.find(id_of(Path("a.json"))) == path


@pytest.mark.parametrize("damage", ["cut", "overwritten", "another version", "no database"])
def test_a_damaged_index_is_made_again(library, damage, monkeypatch):
    damaged = []
    remove = Index.remove
    monkeypatch.setattr(Index, "remove", lambda self: (damaged.append(True), remove(self)))
    save(library.folder / "a.json")
    library.update()
    path = library.index.path
    if damage == "another version":
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version = 99")
        db.close()
    else:
        content = path.read_bytes()
        ends = {"cut": content[:5000], "overwritten": content[:4096] + b"\xff" * (len(content) - 4096)}
        path.write_bytes(ends.get(damage, b"no database " * 1000))
    for _ in range(2):  # who notices first removes it
        with suppress(DamagedError):
            library.index.search("budget")
            library.update()
    assert damaged == [True]
    library.update()
    assert texts(library, "budget") == ["budget", "budget"]


def test_an_index_that_was_removed_is_made_again(library):
    save(library.folder / "a.json")
    library.update()
    shutil.rmtree(library.index.path.parent)
    assert texts(library, "budget") == []
    library.update()
    assert texts(library, "budget") == ["budget", "budget"]


@pytest.mark.parametrize("ending", ["", "-wal"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to nowhere"])
def test_what_lies_in_the_place_of_the_index_is_moved_aside(library, ending, kind):
    if kind == "pipe" and not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes here")
    place = library.index.path.with_name(f"{library.index.path.name}{ending}")
    if kind == "folder":
        place.mkdir()
        (place / "somebody's").write_text("kept")
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("nowhere")
    save(library.folder / "a.json")
    library.update()
    assert texts(library, "budget") == ["budget", "budget"]
    (aside,) = place.parent.glob(f"{place.name}.*.aside")
    assert kind != "folder" or (aside / "somebody's").read_text() == "kept"


def test_servers_of_the_same_folder_share_the_index(library):
    for number in range(12):
        save(library.folder / f"{number}.json", talk(("SPEAKER_01", f" number{number} budget")))
    others = [Library(library.folder, Index(library.index.path)) for _ in range(3)]
    errors = []

    def update(one: Library) -> None:
        try:
            one.update()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=update, args=(one,)) for one in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert library.index.search("budget").total == 12
    with library.index._open() as db:
        db.execute("INSERT INTO found (found) VALUES ('integrity-check')")


def test_more_than_can_be_counted_is_said(library, monkeypatch):
    monkeypatch.setattr(search, "COUNTED", 3)
    for number in range(5):
        path = save(library.folder / f"{number}.json", talk(("SPEAKER_01", " budget")))
        os.utime(path, (1e9 + number,) * 2)
    library.update()
    first = library.index.search("budget", limit=2)
    assert (first.total, first.more, len(first.groups)) == (4, True, 2)
    rest = library.index.search("budget", offset=2, limit=5)
    assert {group.id for group in (*first.groups, *rest.groups)} == {
        id_of(Path(f"{n}.json")) for n in range(1, 5)
    }
    monkeypatch.setattr(search, "COUNTED", 9)
    assert library.index.search("budget").total == 5
    assert not library.index.search("budget").more
    monkeypatch.setattr(search, "COUNTING", -1.0)
    late = library.index.search("budget", limit=2)
    assert (late.total, late.more, len(late.groups)) == (3, True, 2)


@pytest.fixture
def client(library):
    with TestClient(
        application(AppState(library.folder, TOKEN, library)), base_url="http://localhost"
    ) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        yield client


def test_the_table_of_contents_is_sorted_and_cut(library, client):
    save(library.folder / "b" / "Zoo.json")
    save(library.folder / "alpha.json", talk(("SPEAKER_01", " word")))
    library.look()
    first = client.get("/api/library?sort=name&order=up").json()
    assert (first["total"], first["indexed"]) == (2, 0)
    assert [one["seconds"] for one in first["recordings"]] == [None, None]
    library.update()
    answer = client.get("/api/library?sort=name&order=up").json()
    assert answer["indexed"] == 2
    assert answer["recordings"][1] == {
        "id": id_of(Path("b/Zoo.json")),
        "name": "Zoo",
        "folder": "b",
        "seconds": BUDGET.audio.duration,
        "speakers": ["Ann Lee", "Speaker 2"],
        "date": answer["recordings"][1]["date"],
        "state": "new",
        "until": 0.0,
        "why": None,
        "not_again": None,
        "tags": [],
    }
    down = client.get("/api/library?sort=name&order=down").json()["recordings"]
    assert [one["name"] for one in down] == ["Zoo", "alpha"]
    assert [
        one["name"]
        for one in client.get("/api/library?sort=name&order=up&offset=1&limit=1").json()["recordings"]
    ] == ["Zoo"]
    for wrong in ("sort=size", "order=x", "limit=-1", "limit=x", "offset=1e3", "offset=٣"):
        assert client.get(f"/api/library?{wrong}").status_code == 400


def test_recordings_without_a_transcript_are_known(library, client):
    folder = library.folder
    (folder / "sub").mkdir()
    for name in ("a.wav", "b.wav", "b.MP3", "sub/a.flac", "done.wav", "notes.txt", ".hidden.wav"):
        (folder / name).touch()
    save(folder / "a.json")
    save(folder / "b.MP3.json")
    line = Entry("x/done", str(folder / "done.wav"), 0, 0, None, "", "done")
    (folder / "manifest.jsonl").write_text(json.dumps(asdict(line)) + "\n")
    library.look()
    assert library.untranscribed() == (Path("b.wav"), Path("sub/a.flac"))
    assert client.get("/api/library").json()["untranscribed"] == 2


def test_a_search_has_the_shape_of_the_contract(library, client):
    save(library.folder / "a.json")
    library.update()
    answer = client.get("/api/search", params={"q": "house", "speaker": "Ann Lee"}).json()
    assert (answer["total"], answer["more"], answer["recordings"]) == (1, False, 1)
    (group,) = answer["groups"]
    assert (group["id"], group["name"], group["folder"], group["total"]) == (
        id_of(Path("a.json")),
        "a",
        "",
        1,
    )
    assert set(group["hits"][0]) == {"speaker", "start", "end", "pieces"}
    assert client.get("/api/search").json()["groups"] == []
    refused = client.get("/api/search", params={"q": "x" * 501})
    assert refused.status_code == 400
    assert "500" in refused.json()["error"]["message"]


def test_a_name_that_is_not_utf_8_is_an_answer(library, client):
    (library.folder / os.fsdecode(b"caf\xe9.json")).write_bytes(save(library.folder / "a.json").read_bytes())
    library.update()
    names = [one["name"] for one in client.get("/api/library?sort=name").json()["recordings"]]
    assert sorted(names) == ["a", "caf\\udce9"]


def test_passages_keep_the_words_of_a_transcript():
    said = list(passages(BUDGET))
    assert [one.words for one in said][1] == "Yes."
    assert sum(len(one.begins) // 4 for one in said) == len(BUDGET.words)


def test_files_are_read_in_a_process_of_low_priority(tmp_path):
    library = Library(tmp_path, Index(tmp_path / "cache" / "index.sqlite"))
    path = save(tmp_path / "a.json")
    with library.watched():
        wait_for(lambda: library.recordings()[1] == 1)
        assert texts(library, "house") == ["house"]
        child = library._reader._child
        if hasattr(os, "getpriority"):
            assert os.getpriority(os.PRIO_PROCESS, child.pid) >= library_module.PRIORITY
        child.kill()  # one that ended is replaced
        save(path, talk(("SPEAKER_01", " another house")))
        library.changed()
        wait_for(lambda: texts(library, "another") == ["another"])
        last = library._reader._child
    assert last.kill() != 0  # it ended with the library


def test_a_file_that_ends_its_reader_is_put_down_as_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "Child", lambda _: Child("witness.serve.nothing"))
    library = Library(tmp_path, Index(tmp_path / "cache" / "index.sqlite"))
    save(tmp_path / "a.json")
    library.update()
    ((one,), read) = library.recordings()
    assert (one.state, read) == ("failed", 1)
    assert "a.json: the process that works on it ended (exit code 1)" in one.why


def test_what_is_known_is_read_again_only_after_a_change(library, monkeypatch):
    save(library.folder / "a.json")
    library.update()
    assert library.index.entries() is not library.index.entries()  # another change may have the same time
    monkeypatch.setattr(indexes, "TICK", -1)
    first = library.index.entries()
    assert library.index.entries() is first
    assert texts(library, "house", "ann") == ["house"]
    assert library.index.entries() is first
    save(library.folder / "b.json", talk(("SPEAKER_02", " more")))
    library.update()
    assert len(library.index.entries()) == 2
    assert rows(library) == {"a": "new", "b": "new"}


def wait_for(condition) -> None:
    late = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < late
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("whisper", "says"),
    [
        ("none", "tells who spoke, not the words"),
        ("auto", "that suits this machine"),
        ("/models/ggml-tiny.en.bin", "ggml-tiny.en.bin, which knows English only"),
        ("small", "the model small, in the language that it hears."),
    ],
)
def test_an_empty_desk_says_what_listens(whisper, says):
    from witness.options import Options
    from witness.serve.routes import home

    assert says in home._about_model(Options(whisper=whisper))


@pytest.mark.parametrize(
    ("offline", "says"),
    [(True, "tiny.en, which knows English only"), (False, "on this disk is tiny.en, which")],
)
def test_a_desk_says_that_it_has_a_model_for_english_only(monkeypatch, offline, says):
    from witness.models import catalogue, store
    from witness.options import Options
    from witness.serve.routes import home

    models = {entry.name: entry for entry in catalogue.TABLE}
    others = [store.OnDisk(models["base"], None, "missing")]
    here = [store.OnDisk(replace(models["base"], name="tiny.en"), "tiny.bin", "present"), *others]
    monkeypatch.setattr(store, "list_whisper_choices", lambda _: here)
    assert says in home._about_model(Options(offline=offline))
    here[0] = store.OnDisk(replace(models["base"], name="tiny"), "tiny.bin", "present")
    assert "English" not in home._about_model(Options(offline=offline))


@pytest.mark.parametrize(
    ("language", "says"), [("multi", "in every language"), ("german", "for de."), ("de,en", "for de, en.")]
)
def test_a_desk_says_which_languages_it_listens_for(language, says):
    from witness.options import Options
    from witness.serve.routes import home

    assert says in home._about_model(Options(whisper="small", language=language))


def test_a_recording_without_words_because_it_is_not_english_says_so(library):
    foreign = tuple(replace(one, words=(), not_english=True) for one in BUDGET.utterances)
    save(library.folder / "de.json", replace(BUDGET, utterances=foreign, words=()))
    save(library.folder / "en.json")
    library.update()
    why = {one.name: one.why for one in library.recordings()[0]}
    assert why == {"de": library_module.NOT_ENGLISH, "en": None}


def test_letters_are_found_as_most_keyboards_write_them(library):
    written = talk(
        ("SPEAKER_01", " die Straße nach Łódź"),
        ("SPEAKER_02", " Herr Müller und Søren to Ærø"),
        ("SPEAKER_01", " Mueller"),
    )
    save(library.folder / "a.json", written)
    library.update()
    assert texts(library, "strasse") == texts(library, "STRASSE") == texts(library, "Straße") == ["Straße"]
    assert texts(library, "lodz") == ["Łódź"]
    assert texts(library, "soren aero") == texts(library, "Soeren Ærø") == ["Søren … Ærø"]
    assert texts(library, "mueller") == texts(library, "Müller") == ["Müller", "Mueller"]
    assert texts(library, "muller") == texts(library, "mull*") == ["Müller"]
    assert texts(library, "muell*") == ["Müller", "Mueller"]
    assert texts(library, '"herr mueller"') == ["Herr Müller"]
    assert texts(library, "toe") == []


def test_words_are_joined_and_left_out(library):
    save(library.folder / "a.json")
    library.update()
    assert texts(library, "yes OR house") == ["house", "Yes."]
    assert texts(library, "budget house OR monday") == ["budget … house", "Monday … budget"]
    assert texts(library, "budget NOT house") == texts(library, "budget -house") == ["budget"]
    assert texts(library, 'budget NOT "numbers come"') == ["budget"]
    assert texts(library, "OR yes") == texts(library, "yes OR") == ["Yes."]
    with pytest.raises(UsageError, match="only excludes"):
        library.index.search("NOT budget")


def test_words_that_are_spelled_nearly_so_are_found(library):
    save(library.folder / "a.json")
    library.update()
    missed = library.index.search("bugdet hosue")
    assert (missed.total, missed.near) == (1, {"bugdet": ["budget"], "hosue": ["house"]})
    assert texts(library, "bugdet hosue") == ["budget … house"]
    assert library.index.search("budget").near == {}
    assert texts(library, "Mulder~ OR yes") == ["Müller", "Yes."]
    assert library.index.search("zebra").near == {}
    save(library.folder / "a.json", talk(("SPEAKER_01", " other words")))
    library.update()
    assert library.index.search("bugdet").near == {}  # nobody says it anymore


@pytest.mark.parametrize(
    ("one", "other", "far"),
    [("budget", "bugdet", 1), ("abcd", "abd", 1), ("abcd", "dcba", 3), ("same", "same", 0)],
)
def test_the_distance_of_two_words(one, other, far):
    assert search.distances(one, ["", other], 9).tolist() == [len(one), far]
    assert search.distances(one, ["", other], 2).tolist() == [3, min(far, 3)]


def test_a_name_alone_lists_what_they_said(library):
    save(library.folder / "a.json")
    library.update()
    assert [hit.pieces for hit in hits(library, "", "Speaker 2")] == [("Yes.",)]
    assert len(hits(library, "", "ann")) == 2
    assert texts(library, "NOT final", "ann lee") == []
    assert hits(library, "", "") == []


def test_hits_are_grouped_by_recording(library):
    for number in (1, 2):
        path = save(
            library.folder / f"{number}.json", talk(*[("SPEAKER_01", f" budget {n}") for n in range(5)])
        )
        os.utime(path, (1e9 + number,) * 2)
    library.update()
    found = library.index.search("budget")
    assert (found.total, found.recordings) == (10, 2)
    assert [(group.id, group.total, len(group.hits)) for group in found.groups] == [
        (id_of(Path("2.json")), 5, 3),
        (id_of(Path("1.json")), 5, 3),
    ]
    (whole,) = library.index.search("budget", within=id_of(Path("1.json")), offset=3, limit=9).groups
    assert [hit.pieces[2] for hit in whole.hits] == [" 3", " 4"]


def test_recordings_are_found_by_their_names(library, client):
    save(library.folder / "Köln 2024" / "interview_Łukasz.json")
    save(library.folder / "b.json")
    library.update()

    def named(query: str) -> list[str]:
        return [one["name"] for one in client.get("/api/search", params={"q": query}).json()["named"]]

    assert named("lukasz") == named("koeln inter") == named("2024 OR nothing") == ["interview_Łukasz"]
    assert named("koeln NOT interview") == named("") == []


def listed(client, **wanted) -> list[str]:
    answer = client.get("/api/library", params={"sort": "name", "order": "up", **wanted})
    return [one["name"] for one in answer.json()["recordings"]]


def test_recordings_are_chosen_by_what_they_are(library, client):
    other = replace(
        BUDGET, tags=("Köln", "b"), speakers=(replace(SPEAKERS[0], name="Bo"), SPEAKERS[1]), corrected=True
    )
    os.utime(save(library.folder / "x" / "y" / "Łukasz 1.json", other), (1e9, 1e9))
    save(library.folder / "x" / "two.json")
    save(library.folder / "three.json")
    library.update()
    assert listed(client) == ["Łukasz 1", "three", "two"]
    assert listed(client, folder="x") == ["Łukasz 1", "two"]
    assert listed(client, folder="x/y") == listed(client, tag="Köln") == listed(client, state="in progress")
    assert listed(client, speaker="Bo") == listed(client, name="lukasz") == listed(client, name="y luk")
    assert listed(client, since="2001-09-08", until="2001-09-10") == ["Łukasz 1"]
    assert listed(client, since="2001-09-11") == ["three", "two"]
    assert listed(client, folder="") == ["three"]
    assert listed(client, folder="x", name="-łukasz two") == ["two"]
    assert listed(client, sort="folder") == ["three", "two", "Łukasz 1"]
    assert listed(client, sort="tag") == ["Łukasz 1", "three", "two"]
    answer = client.get("/api/library?tag=b").json()
    assert (answer["total"], answer["all"]) == (1, 3)
    assert answer["choices"] == {
        "folders": ["x", "x/y"],
        "tags": ["b", "Köln"],
        "speakers": ["Ann Lee", "Bo", "Speaker 2"],
        "states": ["new", "in progress"],
    }
    assert client.get("/api/library?since=yesterday").status_code == 400


@pytest.mark.parametrize(
    ("tags", "date"),
    [
        ({"date": "2021-03-04T05:06:07+00:00"}, 1614834367),
        ({"creation_time": "2021-03-04T05:06:07.000000Z"}, 1614834367),
        ({"date": "1970-01-01"}, None),
        ({"date": "someday"}, None),
        ({}, None),
    ],
)
def test_the_date_of_a_recording_is_that_in_its_tags(library, tags, date):
    recording = library.folder / "a.flac"
    with av.open(str(recording), "w") as container:
        container.metadata.update(tags)
        stream = container.add_stream("flac", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux([*stream.encode(frame), *stream.encode(None)])
    os.utime(recording, (1.6e9, 1.6e9))
    save(library.folder / "a.json", replace(BUDGET, audio=replace(BUDGET.audio, path="elsewhere/a.flac")))
    library.update()
    assert library.recordings()[0][0].date == (date or 1.6e9)


@pytest.fixture
def managed(library):
    """A desk whose process for the work is its own."""
    desk = AppState(library.folder, TOKEN, library)
    with TestClient(application(desk), base_url="http://localhost") as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        yield client
    desk.editor.close()


def test_a_recording_is_renamed_moved_tagged_thrown_away_and_had_again(library, managed):
    path = save(library.folder / "call.json")
    (library.folder / "call.txt").write_text("text")
    library.update()
    before = id_of(Path("call.json"))

    def ask(what: str, id_: str = before, **given):
        return managed.post(f"/api/recordings/{id_}/{what}", json=given)

    answer = ask("move", name='In<b>ter/view: "1" ', folder="2024/ Köln ").json()
    assert (answer["name"], answer["folder"]) == ("In b ter view 1", "2024/Köln")
    place = library.folder / "2024" / "Köln" / "In b ter view 1.json"
    assert place.is_file()
    assert place.with_suffix(".txt").is_file()
    assert not path.exists()
    assert library.recordings()[0][0].seconds  # and it need not be read again
    assert managed.get(f"/t/{before}/version").status_code == 200  # a window that is open there still works
    assert ask("tags", add=["a", "b"], remove=[]).status_code == 200  # by its old id, too
    assert ask("tags", answer["id"], add=["c"], remove=["a"]).status_code == 200
    library._wake.clear()
    library.update()
    assert listed(managed, tag="c") == ["In b ter view 1"]
    for name, folder in (("..", ""), ("x.openai", ""), ("", ""), ("a", "../.."), ("a", "..")):
        assert ask("move", name=name, folder=folder).status_code == 400, (name, folder)
    save(library.folder / "taken.json")
    assert ask("move", name="TAKEN", folder="").status_code == 409
    (library.folder / "out").symlink_to(library.folder.parent)
    assert ask("move", name="a", folder="out").status_code == 400
    assert ask("delete").status_code == 200
    assert listed(managed) == ["taken"]
    (thrown,) = managed.get("/api/trash").json()["trash"]
    assert (thrown["name"], thrown["folder"]) == ("In b ter view 1", "2024/Köln")
    assert ask("delete").status_code == 404
    assert managed.post(f"/api/trash/{thrown['id']}/restore").json()["folder"] == "2024/Köln"
    assert listed(managed) == ["In b ter view 1", "taken"]
    assert place.is_file()
    assert managed.get("/api/trash").json()["trash"] == []
    assert managed.post("/api/trash/../restore").status_code == 404


def test_what_is_moved_before_it_was_read_again_is_read_in_its_new_place(library, managed):
    """Tags and a new name come in two requests, and the process that reads is slower than that."""
    save(library.folder / "call.json")
    library.update()
    id_ = id_of(Path("call.json"))
    assert managed.post(f"/api/recordings/{id_}/tags", json={"add": ["late"], "remove": []}).json()
    managed.post(f"/api/recordings/{id_}/move", json={"name": "moved", "folder": ""})
    library._wake.clear()
    library.update()
    (row,) = library.recordings()[0]
    assert (row.name, row.tags) == ("moved", ("late",))


def test_two_windows_that_rename_the_same_recording(library, managed):
    save(library.folder / "call.json")
    library.update()
    id_ = id_of(Path("call.json"))
    for name in ("first", "second", "call"):
        assert (
            managed.post(f"/api/recordings/{id_}/move", json={"name": name, "folder": ""}).json()["name"]
            == name
        )
    assert listed(managed) == ["call"]
