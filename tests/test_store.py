"""A transcript on the disk: whoever writes it, whatever ends them, nothing that was acknowledged is lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from conftest import in_process
from test_fuzz import FUZZ
from witness.errors import ConflictError, ForeignError, OutputError
from witness.formats import json_document, output_paths, writers
from witness.formats.registry import Format
from witness.options import Bounds
from witness.schema import Transcript
from witness.serve.library.index import Index
from witness.serve.library.library import Library
from witness.storage import atomic, files, transaction
from witness.transcript import assemble, corrections, edits, rebuild, store

TEXTS = (Format.TXT, Format.SRT, Format.CSV)


@pytest.fixture
def path(tmp_path, monkeypatch) -> Path:
    """The JSON of a talk of three people, with text, subtitles and a table beside it."""
    monkeypatch.syspath_prepend(str(FUZZ))
    import documents

    found = corrections.apply(assemble.make_draft(documents.found(), Bounds(speakers=3)))
    targets = [(form, tmp_path / f"talk.{form}") for form in (Format.JSON, *TEXTS)]
    store.save(found, targets)
    return tmp_path / "talk.json"


def names(path: Path) -> list[str | None]:
    return [one.name for one in store.read(path).speakers]


def agree(path: Path) -> None:
    """Every format beside the JSON says what it says."""
    transcript = store.read(path)
    for form in TEXTS:
        assert store.sibling(path, form).read_bytes() == writers.content(transcript, form)


def listing(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir())


def named(path: Path, place: int, name: str) -> None:
    """As the desk names a speaker, after a look at what is there."""
    version = edits.show(path).version
    edits.name_speaker(path, version, f"SPEAKER_{1 + place:02d}", name)


# --- several at once ---


def test_two_redos_at_once_both_count(path):
    command = [sys.executable, "-m", "witness", "redo", "-q", str(path), "--name"]
    both = [subprocess.Popen([*command, f"{n}={name}"], stdout=-3) for n, name in enumerate("AB", 1)]
    assert [one.wait() for one in both] == [0, 0]
    assert names(path) == ["A", "B", None]
    agree(path)
    assert listing(path) == ["talk.csv", "talk.findings.npz", "talk.json", "talk.srt", "talk.txt"]


def test_a_desk_that_saves_while_redo_runs_is_told_and_loses_nothing(path, monkeypatch):
    seen = edits.show(path).version
    begun, go_on = threading.Event(), threading.Event()
    whole = assemble.make_draft

    def slow(*args, **kwargs):
        begun.set()
        go_on.wait(20)
        return whole(*args, **kwargs)

    monkeypatch.setattr(assemble, "make_draft", slow)
    results = []
    running = threading.Thread(
        target=lambda: results.append(in_process(path.parent, "redo", path, "--name", "SPEAKER_01=A"))
    )
    running.start()
    assert begun.wait(20)
    refused = []

    def save() -> None:
        try:
            edits.name_speaker(path, seen, "SPEAKER_02", "B")
        except ConflictError as error:
            refused.append(error)

    saving_ = threading.Thread(target=save)
    saving_.start()
    time.sleep(0.2)
    assert saving_.is_alive()  # it waits
    go_on.set()
    running.join()
    saving_.join()
    assert results[0].returncode == 0
    (error,) = refused
    assert error.version == files.sha256(path.read_bytes())
    edits.name_speaker(path, error.version, "SPEAKER_02", "B")
    assert names(path) == ["A", "B", None]


def test_a_redo_while_the_desk_saves_counts_on_top(path):
    named(path, 0, "A")
    assert in_process(path.parent, "redo", path, "--name", "SPEAKER_02=B").returncode == 0
    assert names(path) == ["A", "B", None]
    agree(path)


def test_a_new_run_for_one_format_makes_the_json_anew(path):
    """Of the same recording, and not where the transcript was read."""
    speakers = [replace(one, name="Zoe") for one in store.read(path).speakers]
    new = replace(store.read(path), speakers=tuple(speakers), findings=None)
    srt = [(Format.SRT, store.sibling(path, Format.SRT))]
    before = path.read_bytes()
    store.save(new, srt)
    assert path.read_bytes() == before
    other = replace(new, audio=replace(new.audio, sha256="0" * 64))
    assert store.save(other, srt, fresh=True) == ()
    assert path.read_bytes() == before
    (line,) = store.save(new, srt, fresh=True)
    assert str(path) in line
    assert names(path) == ["Zoe"] * 3
    agree(path)


def test_whoever_holds_on_too_long_is_not_waited_for_for_ever(path, monkeypatch):
    monkeypatch.setattr(transaction, "PATIENCE", 0.1)
    with store.opened(path):
        result = in_process(path.parent, "redo", path, "--name", "SPEAKER_02=B")
    assert result.returncode == 1
    assert b"another program" in result.stderr


def test_a_new_transcript_does_not_replace_what_was_corrected_meanwhile(path):
    new = replace(store.read(path), findings=None)
    named(path, 0, "A")
    forms = [(form, store.sibling(path, form)) for form in (Format.JSON, Format.SRT)]
    for kept in ("talk.again", "talk.again-2"):  # what took hours is there, under a name of its own
        with pytest.raises(ConflictError, match=rf"{kept}\.json.*--force"):
            store.save(new, forms, force=False)
        other = path.with_name(f"{kept}.json")
        assert names(other)[0] is None
        assert "A:" not in other.with_suffix(".srt").read_text()
    assert names(path)[0] == "A"
    agree(path)
    store.save(new, [(Format.JSON, path)])
    assert names(path)[0] is None
    agree(path)  # the formats that nobody asked for, too


def test_each_word_says_whether_it_was_corrected(shelved):
    """Also where no correction tells; words of an older document, which say nothing, are all taken to be."""
    found = store.read(shelved)
    place = next(number for number, one in enumerate(found.utterances) if len(one.words) > 2)
    whole = found.utterances[place]
    words = [structs.replace(word, corrected=number == 1) for number, word in enumerate(whole.words)]
    other = replace(whole, words=tuple(words), corrected=True)
    utterances = (*found.utterances[:place], other, *found.utterances[place + 1 :])
    changed = replace(found, utterances=utterances, words=tuple(w for one in utterances for w in one.words))
    content = json_document.encode(json_document.from_transcript(changed))
    older = json.loads(content)
    for word in older["words"]:
        del word["corrected"]
    for text, marked in ((content, words[1:2]), (json.dumps(older).encode(), words)):
        (own,) = corrections.draft_of(json_document.to_transcript(json_document.decode(text))).words
        assert [(one.start, one.end) for one in own if one.corrected] == [(w.start, w.end) for w in marked]


def test_a_transcript_that_was_read_keeps_its_findings_when_it_is_saved_again(path):
    named(path, 0, "A")
    Transcript.load(path).save(path)
    assert in_process(path.parent, "redo", path, "--name", "SPEAKER_02=B").returncode == 0
    assert names(path) == ["A", "B", None]
    agree(path)


# --- the formats beside it ---


def test_a_redo_writes_every_format_that_is_there(path):
    result = in_process(path.parent, "redo", path, "--name", "SPEAKER_01=Zoe")
    assert result.returncode == 0
    assert b"Zoe" in result.stdout
    agree(path)
    assert "Zoe" in store.sibling(path, Format.SRT).read_text()


def test_a_format_that_cannot_be_made_here_is_told_of(path, monkeypatch):
    sibling = store.sibling(path, Format.DOCX)
    sibling.write_bytes(b"old")
    about = replace(Format.DOCX.about, library="no_such_module")
    monkeypatch.setattr(Format.DOCX, "about", about)
    result = in_process(path.parent, "redo", path, "--name", "SPEAKER_01=Zoe")
    assert result.returncode == 0
    assert f"{sibling} is unchanged, because docx needs".encode() in result.stderr
    version = edits.show(path).version
    assert "docx needs" in edits.name_speaker(path, version, "SPEAKER_02", "Al").left[0]
    assert sibling.read_bytes() == b"old"


def test_what_a_person_changed_in_another_program_is_not_written_over(path):
    text = store.sibling(path, Format.TXT)
    mine = text.read_text() + "and what I remember\n"
    text.write_text(mine)
    result = in_process(path.parent, "redo", path, "--name", "SPEAKER_01=Zoe")
    assert f"{text} is unchanged".encode() in result.stderr
    version = edits.show(path).version
    (line,) = edits.name_speaker(path, version, "SPEAKER_02", "Al").left
    assert "witness convert" in line
    assert text.read_text() == mine
    assert "Al" in store.sibling(path, Format.SRT).read_text()
    assert in_process(path.parent, "convert", path, "-f", "txt").returncode == 0
    agree(path)
    named(path, 2, "Bo")
    agree(path)


# --- crashes ---


class Ended(BaseException):
    """In place of a SIGKILL."""


def steps(monkeypatch, last: int | None = None) -> list[str]:
    """Every change of the disk from here on by its name; the process ends before number `last`."""
    done: list[str] = []

    def counted(module, name):
        real = getattr(module, name)

        def step(*args, **kwargs):
            if last is not None and len(done) >= last:
                os._exit(9)
            done.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, step)

    for name in ("rename", "replace", "rmdir", "unlink", "mkdir"):
        counted(Path, name)
    for name in ("open", "fsync"):
        counted(os, name)
    return done


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
def test_a_crash_at_any_step_leaves_the_old_or_the_new_and_all_of_it(path, monkeypatch):
    named(path, 2, "C")
    before, version = names(path), edits.show(path).version
    with monkeypatch.context() as patch:
        count = len(steps(patch))
    seen = set()
    after = ["A", None, "C"]
    for last in range(400):
        pid = os.fork()
        if pid == 0:
            steps(monkeypatch, last)
            edits.name_speaker(path, version, "SPEAKER_01", "A")
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        acknowledged = os.waitstatus_to_exitcode(status) == 0
        now = names(path)  # which finishes what was begun
        assert now in ((after,) if acknowledged else (before, after))
        seen.add(tuple(now))
        with store.opened(path):
            agree(path)
        history = json.loads(store.history_path(path).read_bytes())
        assert history["version"] == files.sha256(path.read_bytes())
        assert len(history["steps"]) == (2 if now == after else 1)
        hidden = [".talk.history", "talk.csv", "talk.findings.npz", "talk.json", "talk.srt", "talk.txt"]
        assert listing(path) == hidden
        if acknowledged:
            break
        if now == after:  # back, for the next step
            edits.save(path, back(path))
            version = edits.show(path).version
            assert names(path) == before
    else:
        raise AssertionError
    assert len(seen) == 2
    assert count < last


def back(path: Path) -> edits.Edit:
    """What the page saves when the last step is undone."""
    shown, saved = edits.show(path), rebuild.read(path)
    kept = json.loads(store.history_path(path).read_bytes())["made"][:-1]
    corrections = {
        "schema": "witness-corrections/1",
        "sha256": saved.findings.audio.sha256,
        "corrections": kept,
    }
    return edits.Edit(shown.version, shown.steps[:-1], (), corrections)


def test_what_is_half_written_can_be_read_by_nobody_else_and_is_swept(path, monkeypatch):
    modes = []
    real = os.fsync

    def fsync(descriptor):
        modes.extend(
            stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir() if atomic.SCRATCH in one.name
        )
        return real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    named(path, 0, "A")
    assert set(modes) == {0o700}
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(store.sibling(path, Format.TXT).stat().st_mode)
    assert stat.S_IMODE(store.history_path(path).stat().st_mode) == 0o600
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    own = atomic.scratch_name().split("-")
    dead = path.with_name("-".join([*own[:2], str(ended.pid), own[3]]))
    dead.mkdir()
    (dead / "talk.json").write_text("secret")
    machine = path.with_name("-".join([own[0], "000000", str(ended.pid), own[3]]))
    machine.touch()  # of another one, where the process may be alive
    alive = path.with_name("-".join([*own[:2], str(os.getppid()), own[3]]))
    alive.touch()
    named(path, 0, "B")
    assert not dead.exists()
    assert machine.exists()
    assert alive.exists()
    os.utime(machine, (time.time() - 2 * atomic.ABANDONED,) * 2)
    named(path, 0, "C")
    assert not machine.exists()


def test_on_windows_what_a_killed_process_left_goes_after_a_day(tmp_path, monkeypatch):
    """There nothing tells whether a process is alive that would not end it."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    own = atomic.scratch_name().split("-")
    dead = tmp_path / "-".join([*own[:2], str(ended.pid), own[3]])
    dead.touch()
    assert atomic.is_abandoned(dead)
    monkeypatch.setattr(atomic.os, "name", "nt")
    monkeypatch.setattr(atomic.os, "kill", lambda *_: pytest.fail("it would end the process"))
    young = atomic.is_abandoned(dead)
    os.utime(dead, (time.time() - 2 * atomic.ABANDONED,) * 2)
    old = atomic.is_abandoned(dead)
    monkeypatch.undo()
    assert (young, old) == (False, True)


def test_a_desk_finishes_what_a_crash_left_before_anybody_asks(path, monkeypatch):
    monkeypatch.setattr(transaction, "finish", lambda *_: [])  # as if it had ended there
    named(path, 0, "Zoe")
    monkeypatch.undo()
    assert path.with_name(".talk.saving").is_dir()
    assert "Zoe" not in path.read_text()
    library = Library(path.parent, Index(path.parent / ".index.sqlite"))
    library.update()
    assert "Zoe" in path.read_text()
    agree(path)
    assert not path.with_name(".talk.saving").exists()
    assert [row.speakers[0] for row in library.recordings()[0]] == ["Zoe"]


def test_a_process_that_is_interrupted_finishes_what_it_puts_in_place(path, monkeypatch):
    version = edits.show(path).version
    begun = threading.Event()
    real = transaction.finish

    def slow(*args):
        if transaction._saved(*args).exists():
            begun.set()
            time.sleep(0.3)
        return real(*args)

    monkeypatch.setattr(transaction, "finish", slow)
    naming = threading.Thread(target=lambda: edits.name_speaker(path, version, "SPEAKER_01", "Zoe"))
    naming.start()
    assert begun.wait(20)
    atomic.abandon()  # as the watcher of signals does before it ends the process
    naming.join()
    assert names(path)[0] == "Zoe"
    agree(path)


def test_a_pipe_beside_the_json_stays_one(path):
    os.mkfifo(path.with_suffix(".vtt"))
    read = []
    reader = threading.Thread(target=lambda: read.append(path.with_suffix(".vtt").read_bytes()))
    reader.start()
    targets = [(Format.JSON, path), (Format.VTT, path.with_suffix(".vtt"))]
    store.save(store.read(path), targets)
    reader.join(20)
    assert read[0].startswith(b"WEBVTT")
    assert path.with_suffix(".vtt").is_fifo()


def test_a_link_is_replaced(path, tmp_path):
    elsewhere = tmp_path / "texts"
    elsewhere.mkdir()
    text = store.sibling(path, Format.TXT)
    text.rename(elsewhere / "talk.txt")
    text.symlink_to(elsewhere / "talk.txt")
    named(path, 0, "Zoe")
    assert not text.is_symlink()
    assert "Zoe" in text.read_text()
    assert "Zoe" not in (elsewhere / "talk.txt").read_text()


@pytest.mark.parametrize("saved", [True, False])
def test_what_a_stranger_left_half_saved_leads_nowhere(path, tmp_path, saved):
    theirs = tmp_path / "theirs"
    half = path.with_name(f".talk{transaction.SAVED if saved else transaction.MOVING}")
    theirs.mkdir()
    for name in ("talk.vtt", "v.vtt"):
        (theirs / name).write_text("mine")
    before = listing(path)
    half.symlink_to(theirs)
    with pytest.raises(ForeignError, match=r"is a symbolic link.*remove it"), store.opened(path):
        pass
    half.unlink()
    assert listing(path) == before
    assert sorted(one.name for one in theirs.iterdir()) == ["talk.vtt", "v.vtt"]

    half = path.with_name(f".talk{transaction.SAVED}")
    for name, link in (("notes.txt", False), ("talk.vtt", True)):
        half.mkdir()
        (half / "talk.srt").write_text("theirs")
        if link:
            (half / name).symlink_to(theirs / name)
        else:
            (half / name).write_text("theirs")
        (path.parent / "notes.txt").unlink(missing_ok=True)
        (path.parent / "notes.txt").symlink_to(theirs / "v.vtt")
        with pytest.raises(ForeignError, match=rf"{name}.*; remove it"), store.opened(path):
            pass
        assert (half / "talk.srt").exists()  # nothing was moved
        transaction.tidy([path.parent])
        shutil.rmtree(half)
    assert {one.read_text() for one in theirs.iterdir()} == {"mine"}

    half.mkdir()
    (half / "talk.vtt").write_text("theirs")  # it may be Witness's own
    path.with_suffix(".vtt").symlink_to(theirs / "talk.vtt")
    with store.opened(path):
        pass
    assert (path.with_suffix(".vtt").read_text(), (theirs / "talk.vtt").read_text()) == ("theirs", "mine")


def test_all_formats_are_put_in_place_after_a_crash():
    endings = {form.ending for form in Format} | {output_paths.beside(Path("x.json")).name[2:]}
    assert set(transaction.ENDINGS) == endings


def test_a_system_without_open_folders_looks_before(path, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_HELD", False)
    monkeypatch.delattr(os, "O_NOFOLLOW")
    test_what_a_stranger_left_half_saved_leads_nowhere(path, tmp_path, True)
    test_a_lock_that_is_a_link_is_refused(path, tmp_path)


def test_a_lock_that_is_a_link_is_refused(path, tmp_path):
    path.with_name(".talk.lock").symlink_to(tmp_path / "new")
    with pytest.raises(ForeignError, match=r"\.talk\.lock: is a symbolic link"), store.opened(path):
        pass
    assert not (tmp_path / "new").exists()


def test_a_lock_that_is_held_for_long_is_no_lock_left_behind(tmp_path, monkeypatch):
    def refuse(_: int) -> bool:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(transaction, "try_lock", refuse)
    monkeypatch.setattr(transaction, "without_locks", set())
    lock = tmp_path / "lock"
    with transaction.held(lock) as first:
        os.utime(lock, (time.time() - 2 * transaction.GIVEN_UP,) * 2)
        with transaction.held(lock) as second:
            assert (first, second) == (True, False)
    assert not lock.exists()


# --- locks ---


def test_a_drive_without_locks_has_a_file_for_one(path, tmp_path, monkeypatch):
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "cache"))

    def refuse(_: int) -> bool:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(transaction, "try_lock", refuse)
    monkeypatch.setattr(transaction, "without_locks", set())
    (line,) = edits.name_speaker(path, edits.show(path).version, "SPEAKER_01", "A").left
    assert f"{path.parent} is on a drive without locks" in line
    assert edits.name_speaker(path, edits.show(path).version, "SPEAKER_02", "C").left == ()  # it is said once
    lock = path.with_name(".talk.lock")
    assert not lock.exists()
    monkeypatch.setattr(transaction, "PATIENCE", 0.1)
    with store.opened(path):
        assert lock.exists()
        with pytest.raises(OutputError, match="another program"), store.opened(path):
            pass
    lock.write_text(f"{atomic.SCRATCH}000000-1-aa")  # another machine's, which crashed an hour ago
    os.utime(lock, (time.time() - 3600,) * 2)
    named(path, 0, "B")
    assert names(path)[0] == "B"
    assert list(path.parent.glob(".talk.lock*")) == []


def test_a_lock_that_two_take_over_at_once_is_removed_by_one(path):
    """The second has read what was left behind, and the first has put its own there since."""
    lock = path.with_name(".talk.lock")
    lock.write_text("left behind")
    assert transaction._removed(lock, "left behind")
    lock.write_text("mine")
    assert not transaction._removed(lock, "left behind")
    assert lock.read_text() == "mine"
    lock.write_text("left behind")
    name = files.sha256(b"left behind")[:16]
    lock.with_name(f".talk.lock.{name}").touch()  # somebody is at it
    assert not transaction._removed(lock, "left behind")
    assert lock.exists()


def test_the_lock_keeps_others_out(path):
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with store.opened(path):
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
