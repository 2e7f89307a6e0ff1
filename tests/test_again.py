"""A recording transcribed again: what a person did to the first transcript is in the new one, or is shown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from test_edits import edit, names, naming, noting, spelling
from witness.errors import ConflictError
from witness.formats import reading
from witness.schema import Review, Transcript
from witness.transcript import assemble, corrections, edits, previous, rebuild, store, vocabulary


def texts(transcript: Transcript) -> list[str]:
    return [word.text.strip() for word in transcript.words]


def heard(path, changed: dict[int, str | None], late: float = 0.03) -> Transcript:
    """What the models would find if they heard other words: number -> word, None: nothing."""
    found = rebuild.read(path).findings
    (track,) = found.tracks
    words = tuple(
        structs.replace(
            word, start=word.start + late, end=word.end + late, text=f" {changed.get(n) or word.text.strip()}"
        )
        for n, word in enumerate(track.recognition.words)
        if changed.get(n, "") is not None
    )
    track = replace(track, recognition=replace(track.recognition, words=words))
    return corrections.apply(assemble.make_draft(replace(found, tracks=(track,))))


@pytest.fixture
def corrected(shelved):
    """A transcript that a person has worked on."""
    path = shelved
    edits.recount_speakers(path, edits.show(path).version, None)
    edits.save(
        path, edit(path, naming(path, 0, "Ann"), spelling(path, 3, "Zanzibar"), spelling(path, 6, "Rome"))
    )
    edits.add_notes(path, edits.show(path).version, [[noting(path, 4, "Why?")]])
    shown = edits.show(path)
    edits.save(
        path,
        replace(edits.Edit(shown.version, shown.steps, shown.undone, _made(path)), review=Review(True, 60.0)),
    )
    return path


def _made(path):
    saved = rebuild.read(path)
    corrections = json.loads(path.read_text())["corrections"]
    return {
        "schema": "witness-corrections/1",
        "sha256": saved.document.audio.sha256,
        "corrections": corrections,
    }


@pytest.mark.slow
def test_what_a_person_did_is_kept_and_what_differs_is_told(corrected):
    path = corrected
    before = store.read(path)
    assert previous.replace_with(path, heard(path, {6: "Bremen", 9: "nonsense"})) == ()
    after = store.read(path)
    assert names(path)[0] == "Ann"
    assert texts(after)[3] == "Zanzibar"  # the same word was heard
    assert texts(after)[6] == "Rome"  # another one was, and a person has written this
    assert [one.text for one in reading.noted_passages(after)] == ["Why?"]
    assert reading.noted_passages(after)[0].quote == reading.noted_passages(before)[0].quote
    found = previous.read(path)
    told = {(one.kind, one.before.strip("."), one.now.strip("."), one.yours) for one in found.differences}
    assert told == {
        ("kept", "Rome", "Bremen", True),
        ("words", texts(before)[9].strip("."), "nonsense", False),
    }
    assert found.kept == 4
    assert after.review.until < before.review.until  # the words after that were not looked at
    assert not after.review.checked
    assert after.state == "in progress"


def test_the_earlier_transcript_comes_back_whole_and_goes_again(corrected):
    path = corrected
    before, steps = path.read_bytes(), edits.show(path).steps
    previous.replace_with(path, heard(path, {6: "Bremen"}))
    new = path.read_bytes()
    assert steps
    assert not edits.show(path).steps  # they were those of the earlier page
    with pytest.raises(ConflictError):
        previous.swap(path, "0" * 64)
    previous.swap(path, edits.show(path).version)
    assert path.read_bytes() == before
    assert edits.show(path).steps == steps
    edits.recount_speakers(path, edits.show(path).version, 1)  # the findings are back, too
    previous.swap(path, edits.show(path).version)
    assert path.read_bytes() == new


def test_words_that_are_gone_are_told_and_their_corrections_stay(corrected):
    path = corrected
    whole = heard(path, {})
    previous.replace_with(path, heard(path, {3: None, 4: None}))
    after = store.read(path)
    assert "Zanzibar" not in texts(after)
    assert "Zanzibar" in [one.text for one in after.corrections]
    assert [one.text for one in reading.noted_passages(after)] == ["Why?"]
    told = [
        (one.kind, one.yours)
        for one in previous.read(path).differences
        if "Zanzibar" in one.before or one.before == "Why?"
    ]
    assert sorted(told) == [("place", True), ("words", True)]
    assert previous.read(path).kept == 2  # the name, and the other correction
    previous.replace_with(path, whole)
    assert texts(store.read(path))[3] == "Zanzibar"  # it has a place again


def test_what_a_person_did_outlives_a_second_transcription_that_has_no_place_for_it(corrected):
    path = corrected
    before, steps = store.read(path), edits.show(path).steps
    other = path.with_name("toned.earlier.json")
    previous.replace_with(path, heard(path, {3: None, 4: None}))
    told = previous.replace_with(path, heard(path, {}))
    assert len(told) == 1
    assert told[0].startswith(f"{other} is ")
    assert texts(store.read(other)) == texts(before)
    assert store.read(other).corrections == before.corrections
    assert edits.show(other).steps == steps
    edits.recount_speakers(other, edits.show(other).version, 1)  # its findings are there, too
    assert "Zanzibar" in texts(store.read(other))


def test_what_is_in_the_one_that_followed_is_not_kept_twice(corrected):
    path = corrected
    for changed in ({6: "Bremen"}, {}, {9: "nonsense"}):  # a person has written the sixth word
        assert previous.replace_with(path, heard(path, changed)) == ()
    assert not list(path.parent.glob("toned.earlier*"))
    assert texts(store.read(path))[6] == "Rome"


def test_what_was_done_to_a_transcript_that_was_exchanged_is_not_lost_with_it(corrected):
    path = corrected
    previous.replace_with(path, heard(path, {}))
    edits.save(path, edit(path, spelling(path, 12, "Oslo")))
    previous.swap(path, edits.show(path).version)
    assert "Oslo" not in path.read_text()
    previous.replace_with(path, heard(path, {}))
    assert "Oslo" in texts(store.read(path.with_name("toned.earlier.json")))


def test_a_correction_made_three_times_is_offered_and_what_is_taken_is_used(corrected):
    path = corrected
    folder, wrong = path.parent, rebuild.read(path).findings.tracks[0].recognition.words[3].text
    pairs = {written: (heard, written) for heard, written in vocabulary.read(folder).corrected["toned"]}
    pair = pairs["Zanzibar"]
    assert pair[0] == wrong.strip(" .,?!").casefold()
    for name in ("second", "third"):
        assert vocabulary.offers(folder) == []
        (folder / f"{name}.json").write_text("{}")
        vocabulary.remember(folder / f"{name}.json", [pair])
    (offer,) = vocabulary.offers(folder)
    assert (offer.written, offer.times) == ("Zanzibar", 3)
    edits.restore_original(path, edits.show(path).version)  # it was taken back in one of them
    assert vocabulary.offers(folder) == []
    (folder / "below").mkdir()
    vocabulary.decide(folder, take=["Zanzibar"])
    assert vocabulary.terms(folder / "below", folder) == ("Zanzibar",)
    vocabulary.remember(path, [pair])
    assert vocabulary.offers(folder) == []
    vocabulary.decide(folder, drop=["Zanzibar"])
    assert vocabulary.terms(folder, folder) == ()
    assert vocabulary.offers(folder) == []  # nor is it offered again
