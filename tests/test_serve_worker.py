"""Calls of functions in a child process."""

from __future__ import annotations

import os
import sys
from contextlib import closing

import msgspec
import pytest

from witness.errors import ConflictError, InputError, OtherJsonError, WitnessError
from witness.formats.registry import Format
from witness.options import Part
from witness.serve import editing
from witness.serve.worker import EndedError, Worker, WorkerCall, _answer
from witness.storage import files
from witness.transcript import edits, store, trash


@pytest.fixture(scope="module")
def worker():
    with closing(Worker(editing.prepare)) as worker:
        yield worker


def test_a_call_returns_the_types_of_its_function(worker, shelved):
    before = edits.show(shelved)
    steps = worker.call(editing.saved_steps, shelved)
    assert (steps["version"], steps["review"]) == (before.version, msgspec.to_builtins(before.review))
    assert worker.call(edits.name_speaker, shelved, steps["version"], "SPEAKER_01", "Ann") == store.Written(
        files.sha256_at(shelved)
    )
    assert worker.call(editing.recording, shelved) == editing.recording(shelved)
    assert worker.call(editing.export, shelved, Format.JSON) == ("toned.json", shelved.read_bytes())
    assert worker.call(editing.peaks, shelved) == editing.peaks(shelved)


def test_an_error_keeps_its_class_and_its_fields(worker, shelved):
    with pytest.raises(ConflictError) as raised:
        worker.call(edits.restore_original, shelved, "another version")
    assert raised.value.version == files.sha256_at(shelved)
    with pytest.raises(InputError, match="clean speech"):
        worker.call(editing.enroll, shelved, shelved.parent / "known", "Ann", Part(0.0, 0.1))
    other = shelved.with_name("other.json")
    other.write_text("{}")
    with pytest.raises(OtherJsonError):
        worker.call(editing.saved_steps, other)


def test_the_child_runs_only_public_functions_of_its_modules(worker, shelved):
    with pytest.raises(AssertionError, match="is not open to calls"):
        worker.call(store.read, shelved)
    for module, function in (("witness.transcript.store", "read"), ("witness.serve.editing", "_styled")):
        request = msgspec.msgpack.encode(WorkerCall(module, function, {"path": str(shelved)}))
        with pytest.raises(ValueError, match="is not open to calls"):
            _answer({}, request)


def test_a_bug_is_reported_and_the_process_stays(worker, shelved):
    worker.start()
    child = worker._child
    with pytest.raises(WitnessError, match=r"toned\.json: .*; this is a bug, please report it"):
        worker.call(editing.find_occurrences, shelved, 1, "an argument of another type")
    assert worker.call(editing.recording, shelved) == editing.recording(shelved)
    assert worker._child is child


def test_a_closed_worker_begins_nothing(shelved):
    worker = Worker(editing.prepare)
    worker.close()
    with pytest.raises(EndedError, match="the server is ending"):
        worker.call(editing.peaks, shelved)
    assert worker._child is None


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_transcript_whose_name_is_not_utf_8(worker, shelved):
    path = shelved.with_name(os.fsdecode(b"a\xff.json"))
    shelved.rename(path)
    for form, options in ((Format.JSON, editing.UNCHANGED), (Format.TXT, editing.UNCHANGED)):
        name, content = worker.call(editing.export, path, form, options)
        assert (name, bool(content)) == (rf"a\udcff.{form}", True)
    assert worker.call(
        edits.name_speaker, path, files.sha256_at(path), edits.show(path).base.speakers[0].id, "Ann"
    )
    with pytest.raises(InputError, match="its name is not UTF-8; rename it before you delete it"):
        worker.call(trash.throw, path, path.parent)
    assert path.exists()
