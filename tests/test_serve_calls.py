"""Typed calls of functions in a child process."""

from __future__ import annotations

from contextlib import closing
from typing import get_type_hints

import pytest

from witness.errors import ConflictError, InputError
from witness.formats.registry import Format
from witness.options import Part
from witness.serve.calls import Refusal
from witness.serve.editing import exports, views
from witness.serve.editing.worker import CALLS, Worker
from witness.storage import files
from witness.transcript import edits, store


@pytest.fixture(scope="module")
def worker():
    with closing(Worker()) as worker:
        yield worker


@pytest.mark.parametrize("name", CALLS.functions)
def test_every_function_has_hints_that_can_be_read(name):
    assert "return" in get_type_hints(CALLS.functions[name])


def test_a_call_returns_the_types_of_its_function(worker, shelved):
    before = edits.show(shelved)
    steps = worker.call(views.saved_steps, shelved)
    assert (steps.version, steps.review) == (before.version, before.review)
    assert worker.call(edits.name_speaker, shelved, steps.version, "SPEAKER_00", "Ann") == store.Written(
        files.sha256_at(shelved)
    )
    assert worker.call(views.recording, shelved) == views.recording(shelved)
    assert worker.call(exports.content, shelved, Format.JSON) == ("toned.json", shelved.read_bytes())
    assert worker.call(views.peaks, shelved) == views.peaks(shelved)


def test_an_error_keeps_its_class_and_its_fields(worker, shelved):
    with pytest.raises(ConflictError) as raised:
        worker.call(edits.restore_original, shelved, "another version")
    assert raised.value.version == files.sha256_at(shelved)
    with pytest.raises(InputError, match="clean speech"):
        worker.call(views.enroll, shelved, shelved.parent / "known", "Ann", Part(0.0, 0.1))
    refusal = Refusal.of(store.OtherJsonError("x"))
    assert (refusal.error, refusal.version) == ("InputError", None)


def test_the_child_runs_no_other_function(worker, shelved):
    with pytest.raises(AssertionError, match="not on the child's list"):
        worker.call(store.read, shelved)
