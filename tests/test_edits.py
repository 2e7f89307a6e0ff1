"""Corrections saved in place, their history, and who else may have changed the transcript."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import pytest
from msgspec import structs

from conftest import in_process
from witness.errors import ConflictError, InputError, OutputError, UsageError
from witness.formats import html, reading, writers
from witness.formats.registry import Format
from witness.schema import Review
from witness.storage import files
from witness.transcript import assemble, edits, rebuild, store


@pytest.fixture
def path(shelved):
    return shelved


def edit(path, *steps, undone=(), version=None) -> edits.Edit:
    """What a page would save: each step with the correction that it is."""
    shown = edits.show(path)
    saved = rebuild.read(path)
    sha256 = saved.document.audio.sha256
    corrections = [correction for _, correction in steps]
    return edits.Edit(
        version or shown.version,
        tuple((step,) for step, _ in steps),
        tuple(undone),
        {"schema": html.CORRECTIONS, "sha256": sha256, "corrections": corrections},
    )


def naming(path, who: int, name: str):
    """A step and its correction."""
    saved = rebuild.read(path)
    speaker = list(saved.names)[who]
    correction = rebuild.name_speaker(saved, f"{speaker}={name}")
    return (
        {"kind": "name", "who": who, "name": name},
        {"kind": "name", "speaker": correction.speaker, "name": name, "other": [], "text": None},
    )


def spelling(path, word: int, text: str):
    """A step and its correction."""
    said = store.read(path).words[word]
    middle = (said.start + said.end) / 2
    pieces = [[middle - 0.001, middle + 0.001]]
    return (
        {"kind": "text", "text": text, "pieces": [[1000 * a for a in pieces[0]]]},
        {"kind": "text", "speaker": [], "name": None, "other": pieces, "text": text},
    )


def noting(path, word: int, text: str):
    """A step alone."""
    return {"kind": "note", "pieces": spelling(path, word, "")[0]["pieces"], "text": text, "codes": []}


def names(path) -> list[str | None]:
    return [speaker["name"] for speaker in json.loads(path.read_text())["speakers"]]


def test_what_is_saved_is_what_redo_makes_and_every_format_beside_it_says_so(path, tmp_path):
    made = edit(path, naming(path, 0, "Ann"), spelling(path, 3, "Zanzibar"))
    (tmp_path / "page.json").write_text(json.dumps(made.corrections, default=list))
    (tmp_path / "cli").mkdir()
    for file in path.parent.glob("toned.*"):
        shutil.copy(file, tmp_path / "cli")
    again = tmp_path / "cli" / "toned.json"
    assert in_process(tmp_path, "redo", again, "--corrections", "page.json", "-f", "srt").returncode == 0
    old = html.sound_in((path.parent / "toned.html").read_text())
    assert old.opus
    saved = edits.save(path, made)
    assert saved.version == files.sha256(path.read_bytes())
    one, other = (json.loads(file.read_text()) for file in (path, again))
    del one["timing"], other["timing"]
    assert one == other
    assert (path.parent / "toned.srt").read_bytes() == again.with_suffix(".srt").read_bytes()
    for form in ("txt", "srt", "html"):
        text = (path.parent / f"toned.{form}").read_text()
        assert "Zanzibar" in text
        assert "Ann" in text
    assert html.sound_in((path.parent / "toned.html").read_text()) == old


def test_pauses_stay_marked_as_the_run_was_asked_to(path):
    assert in_process(path.parent, "redo", path, "--pauses", "0.05", "-f", "txt").returncode == 0
    marks = path.with_suffix(".txt").read_text().count("(.)")
    assert marks
    edits.save(path, edit(path, naming(path, 0, "Ann")))
    text = path.with_suffix(".txt").read_text()
    assert "Ann" in text
    assert text.count("(.)") == marks
    assert writers.content(store.read(path), Format.MD).count(b"(.)") == marks


def test_steps_are_there_after_a_reload_and_can_be_undone(path):
    original = edits.show(path)
    first = naming(path, 0, "Ann")
    second = spelling(path, 3, "Zanzibar")
    edits.save(path, edit(path, first))
    edits.save(path, edit(path, first, second))
    shown = edits.show(path)
    assert [step[0]["kind"] for step in shown.steps] == ["name", "text"]
    assert html.identity(shown.base) == html.identity(original.base)
    assert not shown.base.corrections
    edits.save(path, edit(path, first, undone=[(second[0],)]))
    shown = edits.show(path)
    assert (len(shown.steps), len(shown.undone)) == (1, 1)
    assert "Zanzibar" not in path.read_text()
    assert names(path)[0] == "Ann"
    edits.save(path, edit(path))
    assert json.loads(path.read_text())["corrections"] == []


def test_a_corrected_transcript_is_shown_without_clustering_it_again(path, monkeypatch):
    first = naming(path, 0, "Ann")
    edits.save(path, edit(path, first))
    before = edits.show(path)
    rebuild._drafts.clear()

    def refuse(*_):
        raise AssertionError("the speakers are told apart again")

    with monkeypatch.context() as without:
        without.setattr(assemble, "make_draft", refuse)
        shown = edits.show(path)
    assert (shown.base, shown.steps) == (before.base, ((first[0],),))
    monkeypatch.setattr(edits, "__version__", "another")
    with monkeypatch.context() as without:
        without.setattr(assemble, "make_draft", refuse)
        with pytest.raises(AssertionError, match="told apart again"):
            edits.show(path)
    assert html.identity(edits.show(path).base) == html.identity(before.base)


def test_a_base_that_the_findings_do_not_make_anymore_is_not_shown(path, monkeypatch):
    """As of a program whose speakers are others: what the JSON says follows from those."""
    first = naming(path, 0, "Ann")
    edits.save(path, edit(path, first))
    made = assemble.make_draft

    def other(*given):
        draft = made(*given)
        words = [[structs.replace(word, text=" other") for word in own or ()] for own in draft.words]
        return replace(draft, words=tuple(words))

    rebuild._drafts.clear()
    monkeypatch.setattr(assemble, "make_draft", other)
    monkeypatch.setattr(edits, "__version__", "another")
    edits.save(path, replace(edit(path, first), version=files.sha256(path.read_bytes())))
    shown = edits.show(path)
    assert shown.steps == ()
    assert shown.base.words == store.read(path).words
    assert shown.base.words[0].text == " other"
    rebuild._drafts.clear()


@pytest.mark.parametrize("findings", [True, False])
def test_how_far_somebody_has_got_is_kept_whatever_follows(path, findings):
    if not findings:
        (path.parent / "toned.findings.npz").unlink()
    assert store.read(path).state == "new"
    far = Review(until=12.5)
    edits.save(path, replace(edit(path), review=far))
    assert (store.read(path).review, store.read(path).state) == (far, "in progress")
    assert store.is_corrected(path)  # no run replaces it
    first = naming(path, 0, "Ann")
    edits.save(path, edit(path, first))
    assert store.read(path).review == edits.show(path).review == far
    edits.save(path, replace(edit(path, first), review=Review(checked=True, until=12.5)))
    edits.save(path, edit(path, undone=(first[:1],)))
    assert (store.read(path).state, names(path)[0]) == ("checked", None)
    assert in_process(path.parent, "redo", path, "--name", "SPEAKER_01=Bo").returncode == 0
    assert store.read(path).state == "checked"
    if findings:
        edits.restore_original(path, edits.show(path).version)
        assert store.read(path).state == "new"


def test_an_old_version_is_refused_and_changes_nothing(path):
    seen = edits.show(path).version
    edits.save(path, edit(path, naming(path, 0, "Ann")))
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    for change in (
        lambda: edits.save(path, edit(path, naming(path, 1, "Bo"), version=seen)),
        lambda: edits.add_corrections(path, seen, {}),
        lambda: edits.name_speaker(path, seen, "SPEAKER_02", "Bo"),
        lambda: edits.recount_speakers(path, seen, 3),
        lambda: edits.restore_original(path, seen),
    ):
        with pytest.raises(ConflictError, match="was changed meanwhile"):
            change()
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before


def test_what_redo_changed_behind_the_page_is_seen(path):
    edits.save(path, edit(path, naming(path, 0, "Ann")))
    seen = edits.show(path).version
    assert in_process(path.parent, "redo", path, "--name", "Ann=Eve", "-f", "txt").returncode == 0
    shown = edits.show(path)
    assert shown.version != seen
    assert shown.steps == ()  # they would say Ann
    assert shown.base.speakers[0].name == "Eve"
    edits.save(path, edit(path, spelling(path, 3, "Zanzibar")))
    assert names(path)[0] == "Eve"
    assert edits.show(path).base.speakers[0].name == "Eve"


def test_corrections_of_a_lost_race_can_be_added(path):
    edits.save(path, edit(path, naming(path, 0, "Ann")))
    mine = edit(path, naming(path, 1, "Bo"), spelling(path, 3, "Zanzibar"))
    edits.add_corrections(path, edits.show(path).version, mine.corrections)
    assert names(path)[:2] == ["Ann", "Bo"]
    assert "Zanzibar" in path.read_text()


def test_another_number_of_speakers_and_back_to_what_the_machine_found(path):
    machine = store.read(path)
    edits.save(path, edit(path, naming(path, 0, "Ann"), spelling(path, 3, "Zanzibar")))
    edits.recount_speakers(path, edits.show(path).version, 1)
    assert names(path) == ["Ann"]
    assert "Zanzibar" in path.read_text()
    assert edits.show(path).base.asked.speakers == 1
    edits.save(path, edit(path, spelling(path, 5, "Timbuktu")))
    assert names(path) == ["Ann"]
    assert "Zanzibar" in path.read_text()
    edits.add_notes(path, edits.show(path).version, [[noting(path, 4, "Why?")]])
    edits.restore_original(path, edits.show(path).version)
    back = store.read(path)
    assert [one.text for one in reading.noted_passages(back)] == ["Why?"]  # which is no correction
    assert ([one.kind for one in back.corrections], back.asked.speakers) == (["note"], None)
    assert [word.text for word in back.words] == [word.text for word in machine.words]


def test_what_was_given_up_for_the_machines_version_can_be_redone(path):
    given = edit(path, naming(path, 0, "Ann"))
    saved = rebuild.read(path)
    edits.recount_speakers(path, given.version, None)  # so that nothing was asked for
    assert saved.asked.speakers == 2
    first, second = naming(path, 0, "Ann"), spelling(path, 3, "Zanzibar")
    edits.save(path, edit(path, first, second))
    edits.add_notes(path, edits.show(path).version, [[noting(path, 4, "Why?")]])
    edits.restore_original(path, edits.show(path).version)
    shown = edits.show(path)
    assert [step[0]["kind"] for step in shown.undone] == ["text", "name"]  # the next to be redone comes last
    assert [step[0]["kind"] for step in shown.steps] == ["note"]
    assert [one.text for one in reading.noted_passages(store.read(path))] == ["Why?"]


def test_a_name_given_from_elsewhere_is_a_step(path):
    edits.save(path, edit(path, naming(path, 1, "Bo")))
    speaker = next(one.id for one in store.read(path).speakers if one.name is None)
    edits.name_speaker(path, edits.show(path).version, speaker, "Ann")
    assert sorted(map(str, names(path))) == ["Ann", "Bo"]
    shown = edits.show(path)
    assert [step[0]["name"] for step in shown.steps] == ["Bo", "Ann"]


def test_notes_of_who_may_only_comment_are_steps_and_nothing_else_gets_in(path):
    edits.save(path, edit(path, naming(path, 1, "Bo")))
    before = store.read(path)
    step, _ = spelling(path, 3, "")
    note = {**noting(path, 3, "Why?"), "codes": ["trust"]}
    edits.add_notes(path, edits.show(path).version, [[note]])
    after = store.read(path)
    assert [(one.text, one.codes) for one in reading.noted_passages(after)] == [("Why?", ("trust",))]
    assert after.words == before.words
    shown = edits.show(path)
    assert [one["kind"] for step in shown.steps for one in step] == ["name", "note"]
    kept = path.read_bytes()
    for wrong in (step, {**note, "codes": [""]}, {**note, "pieces": []}, {**note, "speaker": 1}):
        with pytest.raises(UsageError, match="note that is not valid"):
            edits.add_notes(path, shown.version, [[wrong]])
    assert path.read_bytes() == kept


def test_a_transcript_without_findings_is_corrected_undone_and_restored(path):
    (path.parent / "toned.findings.npz").unlink()
    machine = store.read(path)
    shown = edits.show(path)
    assert (shown.refusal, shown.restorable) == (None, True)
    assert "copy it into" in shown.lack
    first, second = naming(path, 0, "Ann"), spelling(path, 3, "Zanzibar")
    edits.save(path, edit(path, first, second))
    assert names(path)[0] == "Ann"
    for form in ("txt", "srt", "html"):
        assert "Zanzibar" in (path.parent / f"toned.{form}").read_text()
    shown = edits.show(path)
    assert html.identity(shown.base) == html.identity(machine)
    assert [step[0]["kind"] for step in shown.steps] == ["name", "text"]
    edits.save(path, edit(path, first, undone=[(second[0],)]))
    assert "Zanzibar" not in path.read_text()
    assert names(path)[0] == "Ann"
    edits.name_speaker(path, edits.show(path).version, "SPEAKER_02", "Bo")
    assert names(path)[:2] == ["Ann", "Bo"]
    with pytest.raises(InputError, match="copy it into"):
        edits.recount_speakers(path, edits.show(path).version, 3)
    edits.restore_original(path, edits.show(path).version)
    back = store.read(path)
    assert (back.words, back.speakers, back.corrections) == (machine.words, machine.speakers, ())
    assert len(edits.show(path).undone) == 2


def test_without_findings_and_history_what_was_corrected_stays(path):
    (path.parent / "toned.findings.npz").unlink()
    edits.save(path, edit(path, naming(path, 0, "Ann"), spelling(path, 3, "Zanzibar")))
    store.history_path(path).unlink()
    shown = edits.show(path)
    assert not shown.restorable
    with pytest.raises(InputError, match="copy it into"):
        edits.restore_original(path, shown.version)
    edits.save(path, edit(path, naming(path, 1, "Bo")))
    assert names(path)[:2] == ["Ann", "Bo"]
    assert "Zanzibar" in path.read_text()
    assert len(store.read(path).corrections) == 3


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"schema": "witness-history/1"}', b"\xff", b"[" * 100_000])
def test_a_damaged_history_costs_the_history_only(path, damage):
    edits.save(path, edit(path, naming(path, 0, "Ann")))
    store.history_path(path).write_bytes(damage)
    shown = edits.show(path)
    assert shown.steps == ()
    assert shown.base.speakers[0].name == "Ann"
    edits.save(path, edit(path, spelling(path, 3, "Zanzibar")))
    assert names(path)[0] == "Ann"


def test_a_history_that_somebody_tampered_with_is_none(path):
    edits.save(path, edit(path, naming(path, 0, "Ann")))
    history = store.history_path(path)
    history.write_bytes(history.read_bytes().replace(b'"name":"Ann","other"', b'"name":"A\\nB","other"'))
    assert b"A\\nB" in history.read_bytes()
    assert edits.show(path).steps == ()
    edits.save(path, edit(path, spelling(path, 3, "Zanzibar")))
    assert "A\\nB" not in path.read_text()


def test_corrections_of_another_recording_and_nonsense_are_refused(path):
    before = path.read_bytes()
    for wrong in ({"sha256": "0" * 64}, {"schema": "x"}, {"corrections": [{"kind": "name"}]}):
        made = edit(path, naming(path, 0, "Ann"))
        with pytest.raises(InputError, match="the page's request"):
            edits.save(path, replace(made, corrections={**made.corrections, **wrong}))
    assert path.read_bytes() == before


def test_a_write_that_fails_leaves_everything_as_it_was(path, monkeypatch):
    before = {file: file.read_bytes() for file in path.parent.iterdir()}

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError):
        edits.save(path, edit(path, naming(path, 0, "Ann")))
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before
