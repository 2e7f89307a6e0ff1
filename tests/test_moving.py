"""Transcripts under another name, in another folder, in the trash and back, with all that belongs to them."""

from __future__ import annotations

import shutil

import pytest

from test_edits import edit, naming
from witness.audio import sound
from witness.errors import ConflictError, InputError, OutputError
from witness.storage import transaction
from witness.transcript import edits, rebuild, store, trash


def corrected(path) -> None:
    edits.save(path, edit(path, naming(path, 0, "Ann")))


def everything(folder) -> set[str]:
    return {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()}


def test_all_that_belongs_to_a_transcript_moves_and_works(shelved):
    corrected(shelved)
    (shelved.parent / "toned.notes.txt").write_text("mine")
    before = everything(shelved.parent)
    place = trash.move(shelved, shelved.parent / "deep" / "Gespräch 1.json")
    assert everything(shelved.parent) == {
        "toned.notes.txt",
        *(f"deep/{one.replace('toned', 'Gespräch 1')}" for one in before if one != "toned.notes.txt"),
    }
    assert "deep/.Gespräch 1.history" in everything(shelved.parent)
    shown = edits.show(place)
    assert (len(shown.steps), shown.lack, shown.refusal) == (1, None, None)
    assert store.read(place).audio.path == str(place.with_suffix(".wav"))
    assert rebuild.read(place).link["file"] == "Gespräch 1.findings.npz"
    edits.recount_speakers(place, shown.version, 2)  # the findings have the old name of the recording
    assert store.read(place).audio.path == str(place.with_suffix(".wav"))
    assert store.read(place).speakers[0].name == "Ann"


def test_nothing_is_replaced(shelved):
    for name in ("other.json", "OTHER.srt", ".other.history"):
        (shelved.parent / name).write_text("somebody's")
        with pytest.raises(ConflictError, match="is taken"):
            trash.move(shelved, shelved.parent / "other.json")
        (shelved.parent / name).unlink()
    trash.move(shelved, shelved.parent / "other.json")
    with pytest.raises(InputError, match="no longer exists"):
        trash.move(shelved, shelved.parent / "third.json")


def test_a_recording_that_another_transcript_is_named_for_stays(shelved):
    again = shelved.with_name("toned.again.json")
    shutil.copy(shelved, again)
    moved = trash.move(again, shelved.parent / "sub" / "again.json")
    assert shelved.with_suffix(".wav").is_file()
    assert store.read(moved).audio.path.endswith("toned.wav")
    assert sound.located(store.read(moved).audio, moved.parent)


def test_a_name_with_the_ending_of_the_recording_keeps_it(shelved):
    whole = shelved.with_name("toned.wav.json")
    shelved.rename(whole)
    moved = trash.move(whole, shelved.parent / "call.json")
    assert moved.name == "call.wav.json"
    assert moved.with_name("call.wav").is_file()


def test_tags_stay_whatever_is_done_and_undone(shelved):
    corrected(shelved)
    edits.change_tags(shelved, ["Straße", "b"], [])
    edits.change_tags(shelved, ["a"], ["b"])
    shown = edits.show(shelved)
    assert (store.read(shelved).tags, len(shown.steps)) == (("Straße", "a"), 1)
    edits.restore_original(shelved, shown.version)
    assert store.read(shelved).tags == ("Straße", "a")
    assert store.is_corrected(shelved)  # nothing replaces it
    edits.recount_speakers(shelved, edits.show(shelved).version, 2)
    assert store.read(shelved).tags == ("Straße", "a")


def test_the_trash_gives_everything_back(shelved):
    corrected(shelved)
    root = shelved.parent
    before = {one: (root / one).read_bytes() for one in everything(root)}
    thrown = trash.throw(shelved, root)
    assert [(one.name, one.folder) for one in trash.list_trash(root)] == [("toned", "")]
    assert not [one for one in everything(root) if not one.startswith(".witness-trash")]
    trash.restore(root, thrown.id)
    assert {one: (root / one).read_bytes() for one in everything(root)} == before
    again = trash.throw(shelved, root)
    shelved.write_text("somebody's")
    back = trash.restore(root, again.id)
    assert (back.name, len(edits.show(back).steps)) == ("toned-2.json", 1)
    assert store.read(back).audio.path == str(root / "toned-2.wav")
    with pytest.raises(InputError, match="not in the trash"):
        trash.restore(root, again.id)
    gone = trash.throw(back, root)
    assert trash.delete(root, [gone.id, "../.."]) == 1
    assert trash.list_trash(root) == []


@pytest.mark.parametrize("fails", range(12))
def test_a_crash_leaves_all_of_it_here_or_there(shelved, monkeypatch, fails):
    """The process ends before each rename; whoever comes next finds everything in one place."""
    corrected(shelved)
    before = everything(shelved.parent)
    place = shelved.parent / "sub" / "b.json"
    done = 0
    real = type(shelved).rename

    def rename(self, target):
        nonlocal done
        done += 1
        if done > fails:  # and nothing cleans up after it
            raise SystemExit
        return real(self, target)

    monkeypatch.setattr(type(shelved), "rename", rename)
    try:
        trash.move(shelved, place)
        finished = True
    except SystemExit:
        finished = False
    monkeypatch.undo()
    for folder in (shelved.parent, place.parent):
        transaction.tidy([folder])
    here = {one for one in everything(shelved.parent) if not one.startswith("sub/")}
    there = {one.removeprefix("sub/").replace("b.", "toned.") for one in everything(shelved.parent) - here}
    assert {frozenset(here), frozenset(there)} == {frozenset(before), frozenset()}
    assert not finished or not here
    found = shelved if here else place
    assert len(edits.show(found).steps) == 1


def test_what_cannot_be_moved_stays_whole(shelved, monkeypatch):
    before = everything(shelved.parent)
    real = type(shelved).rename

    def rename(self, target):
        if self.suffix == ".npz" and ".moving" in str(target):
            raise PermissionError(13, "is open")
        return real(self, target)

    monkeypatch.setattr(type(shelved), "rename", rename)
    with pytest.raises(OutputError, match="is open"):
        trash.move(shelved, shelved.parent / "b.json")
    assert everything(shelved.parent) == before
