"""The journal of an unfinished recording: kept until the work is complete, trusted only while intact."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time

import pytest
import soundfile

import ct2
from conftest import CALL
from witness import pipeline
from witness.child import Child
from witness.errors import CancelledError
from witness.options import Options, Runtime
from witness.recognition.engine_client import RemoteEngine
from witness.storage import checkpoint as journal_module
from witness.storage.checkpoint import OLD, Journal
from witness.transcript import assemble, corrections
from witness.work import produce, worker


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ct2.write(tmp_path_factory.mktemp("whisper") / "model")


def the_file(cache):
    (path,) = (cache / "unfinished").iterdir()
    return path


def filled(*names):
    with Journal() as journal:
        assert not journal.open("talk")
        for name in names:
            journal.add(name, name.encode() * 100)


def kept(*names):
    with Journal() as journal:
        journal.open("talk")
        return [journal.get(name) is not None for name in names]


def test_records_are_there_the_next_time_for_nobody_else_to_read(cache):
    filled("one", "two")
    assert kept("one", "two", "three") == [True, True, False]
    if os.name != "nt":
        assert stat.S_IMODE(the_file(cache).stat().st_mode) == 0o600
        assert stat.S_IMODE(the_file(cache).parent.stat().st_mode) == 0o700


def test_nothing_is_left_of_what_is_forgotten_or_empty(cache):
    filled("one")
    with Journal() as journal:
        journal.open("talk")
        journal.forget()
    with Journal() as journal:
        journal.open("talk")
    assert not list((cache / "unfinished").iterdir())


@pytest.mark.parametrize("place", [0, 10, 60, 72 + 150, 72 + 300, 2 * 72 + 310])
def test_what_is_damaged_is_not_believed_and_written_anew(cache, place):
    filled("one", "two")
    content = bytearray(the_file(cache).read_bytes())
    content[place] ^= 1
    the_file(cache).write_bytes(content)
    assert kept("one", "two") == [place >= 72 + 300, False]
    with Journal() as journal:
        journal.open("talk")
        journal.add("two", b"2")
    assert kept("two") == [True]


def test_a_record_that_was_not_finished_is_cut_off(cache):
    filled("one", "two")
    whole = the_file(cache).read_bytes()
    for size in range(72 + 300, len(whole), 37):
        the_file(cache).write_bytes(whole[:size])
        assert kept("one", "two") == [True, False]
        assert the_file(cache).stat().st_size == 72 + 300


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is open cannot be deleted there")
def test_one_process_at_a_time_has_it(cache):
    filled("one")
    with Journal() as mine, Journal() as other:
        assert mine.open("talk")
        assert not other.open("talk")
        other.add("two", b"x")
        other.forget()
        assert the_file(cache).exists()
    assert kept("one", "two") == [True, False]


def test_old_ones_are_swept(cache):
    filled("one")
    old = the_file(cache)
    os.utime(old, (time.time() - OLD - 60,) * 2)
    with Journal() as journal:
        journal.open("another")
        assert not old.exists()


def test_a_full_disk_is_said_once_and_the_work_goes_on(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    notes = []
    with Journal() as journal:
        journal.open("talk", notes.append)
        journal.add("one", b"1")
        monkeypatch.setattr(journal_module.os, "fsync", full)
        journal.add("two", b"2")
        journal.add("three", b"3")
    assert len(notes) == 1
    assert "nothing is kept" in notes[0]
    assert "No space left" in notes[0]


def test_a_cache_that_cannot_be_written_is_said_once(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "file"))
    notes = []
    with Journal() as journal:
        assert not journal.open("talk", notes.append)
        journal.add("one", b"1")
        journal.forget()
    assert len(notes) == 1


# --- a recording that was interrupted ---


@pytest.fixture(scope="module")
def talk(tmp_path_factory):
    """As much of the call as makes two pieces for the recognizer."""
    path = tmp_path_factory.mktemp("talk") / CALL.name
    samples, rate = soundfile.read(CALL, frames=36 * soundfile.info(CALL).samplerate, dtype="int16")
    soundfile.write(path, samples, rate)
    return path


def transcribed(talk, model, journal, *, cancel=None, notes=None):
    options = Options(models="builtin", offline=True, whisper=str(model))
    note = [].append if notes is None else notes.append
    engine = pipeline.Engine(options, Runtime(device="cpu"), cancel=cancel, note=note)
    return engine.transcribe(talk, journal=journal)


@pytest.mark.slow
@pytest.mark.usefixtures("open_models")
def test_a_run_that_was_interrupted_is_gone_on_with(talk, model, monkeypatch):
    plain = transcribed(talk, model, None)
    cancel = threading.Event()
    receive = RemoteEngine.receive

    def once(self, number):
        cancel.set()
        return receive(self, number)

    monkeypatch.setattr(RemoteEngine, "receive", once)
    with Journal() as journal, pytest.raises(CancelledError):
        transcribed(talk, model, journal, cancel=cancel)
    monkeypatch.setattr(pipeline, "stream", None)  # the diarizer would fail
    monkeypatch.setattr(RemoteEngine, "receive", receive)
    notes = []
    with Journal() as journal:
        again = transcribed(talk, model, journal, notes=notes)
    assert (again.words, again.turns, again.warnings) == (plain.words, plain.turns, plain.warnings)
    assert sum("continues where an earlier one stopped" in line for line in notes) == 1
    ask = Child.ask

    def loading(child, request, *arguments):
        assert request["do"] in ("load", "count")  # nothing is recognized again
        return ask(child, request, *arguments)

    monkeypatch.setattr(Child, "ask", loading)
    with Journal() as journal:
        third = transcribed(talk, model, journal)
    assert third.words == plain.words
    assert third.findings is not None
    assert corrections.apply(assemble.make_draft(third.findings)).words == plain.words


@pytest.mark.slow
def test_a_job_leaves_no_journal_when_it_is_done(short, model, cache, tmp_path):
    options = Options(models="builtin", offline=True, whisper=str(model))
    settings = produce.Settings(options, Runtime(device="cpu"), {})
    job = produce.Job(str(short), (("txt", tmp_path / "call.txt"),), settings)
    assert worker.perform(job).error is None
    assert not list((cache / "unfinished").iterdir())
