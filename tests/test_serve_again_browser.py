"""Transcribing again on the desk in a real browser, with the whole way through queue, worker and page."""

from __future__ import annotations

from axe import everywhere
from test_page import browser as browser
from test_serve_browser import correct_and_save
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import shelf as shelf
from test_serve_browser import visit as visit
from witness.transcript import edits, store, vocabulary
from witness.work.manifest import Entry, Manifest


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
    assert manifest.entries[f"{folder.name}/toned"].wish.vocabulary == ("Kubernetes", "Zanzibar")
    page.click('.notice button:text-is("Look…")')
    page.click('button:text-is("Back to the earlier transcript")')
    page.wait_for_selector(done, state="detached")
    assert store.read(folder / "toned.json").asked.speakers == 2
    assert edits.show(folder / "toned.json").steps
    page.wait_for_selector("html[data-ready]", state="attached")
    page.click("#more")
    page.click('#choices button:has-text("What the last transcription changed")')
    page.wait_for_selector('dialog[open]:has-text("Back to the earlier transcript")')
    assert everywhere(page) == []


def test_what_could_not_be_transcribed_again_is_told_until_somebody_answers(visit, desk, folder):
    """Also to whoever comes later, on the page of the transcript and in the list."""
    path = folder / "toned.json"
    place = path.relative_to(desk.desk.folder).with_suffix("").as_posix()
    entry = Entry(place, str(folder / "toned.wav"), 1, 1, None, "", "failed", "it is damaged", 4, again=True)
    Manifest(desk.desk.folder / "manifest.jsonl").append(entry)
    desk.desk.library.update()
    visitor = visit()
    page = visitor.page
    row = f'#rows tr:has(.folder:text-is("{folder.name}"))'
    page.wait_for_selector(f'{row} .why:has-text("Could not be transcribed again: it is damaged")')
    visitor.open()
    notice = '.notice:has-text("could not be transcribed again, and is as it was: it is damaged")'
    page.click(f'{notice} button:text-is("Dismiss")')
    page.wait_for_selector(notice, state="detached")
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.locator(notice).count() == 0
    page.goto(desk.url)
    page.wait_for_selector(f'{row} .tag:text-is("new")')
    assert page.locator(f"{row} .why").count() == 0


def test_a_word_that_was_corrected_often_is_offered_and_taken(visit, folder):
    visitor = visit()
    page = visitor.open()
    correct_and_save(page, folder)
    (pair,) = vocabulary.read(folder).corrected["toned"]
    (folder / "other.json").write_text("{}")
    vocabulary.remember(folder / "other.json", [pair, pair])
    page.click("#undo")
    page.click("#redo")
    page.click('button:text-is("Expect it in later recordings of this folder")')
    page.wait_for_selector('.notice:has-text("Zanzibar")', state="detached")
    assert vocabulary.terms(folder, visitor.desk.desk.folder) == ("Zanzibar",)


def test_a_person_in_the_text_is_told_that_the_recording_was_transcribed_again(visit):
    """The text does not change under the caret, and what is written meanwhile is added."""
    visitor = visit()
    page, other = visitor.open(), visitor.open(visitor.tab())
    page.click("#write")
    page.locator(".said").nth(0).click()
    other.click("#more")
    other.click('#choices button:has-text("Transcribe again with")')
    other.fill('label:has-text("Number of speakers") input', "3")
    other.click('button:text-is("Transcribe again")')
    other.wait_for_selector('.notice:has-text("corrections and notes are kept")', timeout=60_000)
    page.bring_to_front()
    page.wait_for_selector('#save:text-is("Load it anew: this recording was transcribed again")')
    assert page.locator(".said:focus").count() == 1
    page.keyboard.press("End")
    page.keyboard.type(" Zanzibar")
    page.click("#save")
    page.wait_for_selector('dialog[open] :text("This recording was transcribed again")')
    page.click('.choice:has-text("Add my corrections")')
    page.wait_for_selector('.w.fixed:has-text("Zanzibar")')
    visitor.forgive("409")
