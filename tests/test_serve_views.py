"""The formats, the recording and its outline, as the desk gives them out."""

from __future__ import annotations

import json

import pytest
import soundfile

from witness.audio import decode, sound
from witness.errors import InputError
from witness.formats import html
from witness.formats.registry import Format
from witness.schema import SAMPLE_RATE
from witness.serve import editing
from witness.serve.editing import UNCHANGED
from witness.serve.openai.routes import export
from witness.serve.worker import Worker
from witness.storage import files
from witness.transcript import edits


def test_what_a_program_asked_to_keep_is_exported_by_the_desk_s_own_process(shelved, tmp_path):
    editor = Worker(editing.prepare)
    try:
        export(editor, shelved, [(Format.OPENAI, tmp_path / "x.openai.json")])
    finally:
        editor.close()
    assert json.loads((tmp_path / "x.openai.json").read_text())["text"]


def test_any_format_can_be_taken_away(shelved):
    edits.name_speaker(shelved, edits.show(shelved).version, "SPEAKER_01", "Ann")
    assert editing.export(shelved, Format.SRT, UNCHANGED)[1] == (shelved.parent / "toned.srt").read_bytes()
    assert editing.export(shelved, Format.JSON, UNCHANGED)[1] == shelved.read_bytes()
    assert editing.export(shelved, Format.DOCX, UNCHANGED)[1][:2] == b"PK"
    assert html.sound_in(editing.export(shelved, Format.HTML, UNCHANGED)[1].decode()).opus


def test_what_no_browser_plays_is_made_into_what_it_does(shelved):
    assert editing.recording(shelved).name == "toned.wav"
    samples, rate = soundfile.read(shelved.parent / "toned.wav", frames=2 * 8000)
    other = shelved.parent / "toned.aiff"
    soundfile.write(other, samples, rate)
    document_ = json.loads(shelved.read_text())
    document_["audio"] |= {"path": str(other), "sha256": files.sha256_at(other), "duration": 2.0}
    document_ |= {"words": [], "utterances": [], "turns": []}
    shelved.write_text(json.dumps(document_))
    made = editing.recording(shelved)
    assert made.read_bytes()[:4] == b"\x1a\x45\xdf\xa3"  # EBML: WebM
    assert abs(sum(map(len, decode.blocks(str(made)))) / SAMPLE_RATE - 2.0) < 0.1
    before = made.stat().st_mtime_ns
    assert editing.recording(shelved).stat().st_mtime_ns == before


def test_a_recording_with_another_name_is_found_by_its_contents(shelved):
    place = shelved.parent / "toned.wav"
    document_ = json.loads(shelved.read_text())
    document_["audio"]["path"] = "toned.wav"
    shelved.write_text(json.dumps(document_))
    other = place.rename(shelved.parent / "Interview with Ann.wav")
    (shelved.parent / "another.wav").write_bytes(b"another")
    assert editing.recording(shelved) == other
    other.write_bytes(b"another")
    with pytest.raises(InputError, match="no such file"):
        editing.recording(shelved)


def test_the_outline_is_kept(shelved, monkeypatch):
    outline = editing.peaks(shelved)
    assert outline == html.sound_in((shelved.parent / "toned.html").read_text()).peaks
    (shelved.parent / "toned.html").unlink()
    assert editing.peaks(shelved) == outline
    monkeypatch.setattr(sound, "take", None)
    assert editing.peaks(shelved) == outline


def test_a_page_says_that_the_model_does_not_know_the_language_and_what_to_do(shelved):
    visit = {"id": "x", "formats": [], "barred": None, "noting": False}
    about = "knows English only, and this is another language: choose a model that knows it"
    assert about not in editing.page(shelved, visit, ["x.js"]).decode()
    found = json.loads(shelved.read_text())
    found["utterances"][0]["not_english"] = True
    shelved.write_text(json.dumps(found))
    assert about in editing.page(shelved, visit, ["x.js"]).decode()
