"""Known people on the desk: remembered, listed, suggested, looked for and forgotten."""

import json
from dataclasses import replace

import numpy as np
import pytest

from conftest import asking, desk_of_two
from witness.diarization import voices
from witness.errors import InputError
from witness.serve.library.library import id_of
from witness.transcript import edits, rebuild, speaker_voices, store


@pytest.fixture(scope="module")
def desk(shelf, tmp_path_factory):
    with desk_of_two(shelf, tmp_path_factory.mktemp("desk")) as desk:
        yield desk


@pytest.fixture
def client(desk):
    with asking(desk) as client:
        yield client


def test_all_that_a_speaker_says_alone_is_remembered(shelved):
    saved = rebuild.read(shelved)
    speaker = max(saved.document.speakers, key=lambda one: one.seconds).id
    voice = speaker_voices.enroll_speaker(saved, "Ann", speaker)
    whole = speaker_voices.prints(saved.findings, saved.turns)[speaker]
    assert voice.seconds == whole.seconds >= voices.LEAST_TO_ENROLL
    assert np.allclose(voice.vector, whole.vector)
    few = replace(saved, document=replace_turns(saved.document, speaker, 5.0))
    with pytest.raises(InputError, match="too little to know a voice by; give 10 s or more"):
        speaker_voices.enroll_speaker(few, "Ann", speaker)


def replace_turns(document, speaker: str, seconds: float):
    """The first seconds of a speaker, and the others."""
    from msgspec import structs

    first = min(turn.start for turn in document.turns if turn.speaker == speaker)
    kept = [turn for turn in document.turns if turn.speaker != speaker or turn.end < first + seconds]
    return structs.replace(document, turns=tuple(kept))


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (voices.SURE, "B sounds like Ann"),
        (voices.THRESHOLD, "B may be Ann; listen to both before you decide"),
    ],
)
def test_how_sure_it_is_is_said_in_words(score, words):
    assert speaker_voices.describe_match("B", "Ann", score) == words


def test_from_a_voice_to_the_person_everywhere(client, desk):
    one, two = sorted(desk.folder.glob("*/toned.json"))
    ids = [id_of(path.relative_to(desk.folder)) for path in (one, two)]
    speaker = max(store.read(one).speakers, key=lambda speaker: speaker.seconds).id
    assert client.get(f"/t/{ids[1]}/suggestions").json() == {"speakers": {}}  # nobody is known
    edits.name_speaker(one, edits.show(one).version, speaker, "Ann")
    kept = client.post(f"/t/{ids[0]}/voice", json={"name": "Ann", "speaker": "Ann"})
    assert kept.json()["seconds"] > 10
    desk.library.changed()
    told = client.get("/api/people").json()
    assert [person["name"] for person in told["people"]] == ["Ann"]
    assert not told["left"]
    found = client.get(f"/t/{ids[1]}/suggestions").json()["speakers"]
    assert found == {speaker: {"name": "Ann", "sure": True}}
    lines = [json.loads(line) for line in client.get("/api/people/search?name=Ann").text.splitlines()]
    assert {line["found"]["id"] for line in lines if "found" in line} == set(ids)
    assert not any(sign in json.dumps(lines) for sign in ("score", "cosine"))
    refused = client.post(f"/t/{ids[0]}/voice", json={"name": "Bo", "speaker": "Nobody"})
    assert refused.status_code == 400
    assert client.post("/api/people/forget", json={"name": "Ann"}).status_code == 200
    assert client.post("/api/people/forget", json={"name": "Ann"}).status_code == 422
    assert client.post("/api/people/forget", json={"name": "../x"}).status_code == 422
    assert client.post("/api/people/forget", json={}).status_code == 400
    assert client.get("/api/people").json()["people"] == []


def test_what_is_no_voice_is_told(client, desk):
    desk.known.mkdir(exist_ok=True)
    (desk.known / "x.json").write_text("{}")
    assert "x.json" in client.get("/api/people").json()["left"][0]
    (desk.known / "x.json").unlink()
