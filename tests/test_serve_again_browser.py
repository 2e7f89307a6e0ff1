"""Transcribing again on the desk in a real browser, with the whole way through queue, worker and page."""

from __future__ import annotations

from test_page import browser as browser
from test_serve_browser import correct_and_save
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import shelf as shelf
from test_serve_browser import visit as visit
from witness.jobs.manifest import Manifest
from witness.transcript import edits, project_words, store


def test_a_recording_is_transcribed_again_with_other_settings_and_keeps_what_was_done(visit, folder):
    visitor = visit()
    page = visitor.open()
    correct_and_save(page, folder)
    before = store.read(folder / "toned.json")
    page.click("#more")
    page.click('#choices button:has-text("Transcribe again with")')
    page.fill('label:has-text("Number of speakers") input', "3")
    page.fill('label:has-text("Names and terms") textarea', "Kubernetes\n\nZanzibar")
    page.click('button:text-is("Transcribe again")')
    done = '.notice:has-text("corrections and notes are kept")'
    page.wait_for_selector(done, timeout=60_000)
    after = store.read(folder / "toned.json")
    assert (before.asked.speakers, after.asked.speakers) == (2, 3)
    assert after.speakers[0].name == "Ann"
    assert "Zanzibar" in [word.text.strip() for word in after.words]
    manifest = Manifest(visitor.desk.desk.folder / "manifest.jsonl")
    assert manifest.entries[f"{folder.name}/toned"].wish["vocabulary"] == ["Kubernetes", "Zanzibar"]
    page.click('.notice button:text-is("Look…")')
    page.click('button:text-is("Back to the earlier transcript")')
    page.wait_for_selector(done, state="detached")
    assert store.read(folder / "toned.json").asked.speakers == 2
    assert edits.show(folder / "toned.json").steps


def test_a_word_that_was_corrected_often_is_offered_and_taken(visit, folder):
    visitor = visit()
    page = visitor.open()
    correct_and_save(page, folder)
    (pair,) = project_words.read(folder).corrected["toned"]
    (folder / "other.json").write_text("{}")
    project_words.remember(folder / "other.json", [pair, pair])
    page.click("#undo")
    page.click("#redo")
    page.click('button:text-is("Expect it in later recordings of this folder")')
    page.wait_for_selector('.notice:has-text("Zanzibar")', state="detached")
    assert project_words.vocabulary(folder, visitor.desk.desk.folder) == ("Zanzibar",)
