"""A model that ends the process that opens it ends a child, once; a sound one is not tried again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from test_embedding import voice_model
from test_segmentation import save
from witness.diarization import crash_check
from witness.errors import ModelError
from witness.models.catalogue import BUILTIN_FOLDER, TABLE
from witness.schema import ModelFile


@pytest.fixture
def child(tmp_path, monkeypatch):
    """Makes the child run other code; tells how many were started."""
    started = []
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    real = crash_check.Child
    monkeypatch.setattr(crash_check, "Child", lambda module: started.append(module) or real(module))

    def run(code: str) -> list[str]:
        (tmp_path / "another_child.py").write_text(f"import os, signal, time\n{code}\n")
        monkeypatch.setattr(crash_check, "MODULE", "another_child")
        return started

    run.started = started
    return run


def foreign(tmp_path: Path) -> ModelFile:
    return replace(save(tmp_path / "m.onnx", ["N", 1, "T"], [1, 589, 7]), sha256="ab")


def test_a_crash_is_a_message(tmp_path, child):
    child("signal.raise_signal(signal.SIGSEGV)")
    with pytest.raises(
        ModelError, match=r"m\.onnx: onnxruntime crashes over it \(signal SIGSEGV\); fix: [^\n]*$"
    ):
        crash_check.try_model("segmentation", foreign(tmp_path))


def test_one_that_hangs_is_a_message(tmp_path, child, monkeypatch):
    child("time.sleep(60)")
    monkeypatch.setattr(crash_check, "LIMIT", 0.2)
    with pytest.raises(ModelError, match=r"m\.onnx: takes over"):
        crash_check.try_model("segmentation", foreign(tmp_path))


def test_a_sound_model_is_tried_once(tmp_path, child):
    voice = voice_model(tmp_path / "voice.onnx")
    segments = foreign(tmp_path)
    for _ in range(2):
        crash_check.try_model("segmentation", segments)
        crash_check.try_model("embedding", voice)
    assert len(child.started) == 2
    crash_check.try_model("segmentation", replace(segments, sha256="other"))
    assert len(child.started) == 3


def test_what_the_child_refuses_is_left_to_who_loads_it(tmp_path, child):
    for _ in range(2):
        crash_check.try_model("embedding", foreign(tmp_path))
    assert len(child.started) == 2


def test_pinned_models_are_not_tried(child):
    for role in ("segmentation", "embedding"):
        (entry,) = (entry for entry in TABLE if entry.name == f"builtin-{role}")
        crash_check.try_model(role, ModelFile(entry.name, str(BUILTIN_FOLDER / entry.file), entry.sha256))
    assert not child.started
