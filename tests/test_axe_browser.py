"""Every view of the desk by axe, which finds what keeps people with other eyes, ears or hands out."""

from __future__ import annotations

import shutil

import pytest

from axe import LOOKS, everywhere, faults
from test_page import browser as browser
from test_serve_browser import TOKEN, correct, rename, saved, until
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import shelf as shelf
from test_serve_browser import visit as visit
from test_serve_editing_browser import NOTED
from test_serve_live_browser import at_work as at_work
from witness.storage import files
from witness.transcript import edits, store
from witness.work.manifest import Entry, Manifest


def opened(page, button: str, dialog: str) -> None:
    page.click(button)
    page.wait_for_selector(dialog)


@pytest.mark.parametrize("looks", ["light", "dark", "phone"])
def test_the_first_page(visit, desk, folder, looks):
    visitor = visit(**LOOKS[looks])
    page = visitor.page
    assert faults(page) == []  # of no recordings, or of those of other tests

    desk.desk.library.update()
    page.reload()
    page.wait_for_selector(f'#rows .folder:text-is("{folder.name}")')
    assert faults(page) == []
    page.fill("#query", store.read(folder / "toned.json").words[0].text)
    until(page, lambda: page.press("#query", "Enter"), "#hits mark")
    page.click("#hits .hit-row")
    page.wait_for_selector("#player:not([hidden])")
    assert faults(page) == []
    page.click("#close")
    page.fill("#query", "")
    for button, dialog in [
        ("#people-list", "#voices"),
        ("#export", ".export"),
        ("#record", "#recording"),
    ]:
        opened(page, button, f"{dialog}[open]")
        assert faults(page) == [], dialog
        page.keyboard.press("Escape")
        page.wait_for_selector(dialog, state="hidden")


@pytest.mark.parametrize("looks", ["light", "dark", "phone"])
def test_the_page_of_a_transcript(visit, looks):
    page = visit(**LOOKS[looks]).open()
    assert faults(page) == []
    rename(page, "Speaker 1", "Ann")
    correct(page, page.locator(".w").nth(3), "Zanzibar")
    saved(page)
    page.locator(".w").nth(1).click()
    page.keyboard.press("Shift+ArrowRight")  # the tools for words
    assert faults(page) == []
    page.keyboard.press("Escape")
    page.locator(".w").nth(1).dblclick()  # writing
    assert faults(page) == []
    page.keyboard.press("F2")
    opened(page, "#find", "#search:not([hidden])")
    assert faults(page) == []
    page.click("#close-search")
    for button, dialog in [("#help", "#keys"), ("#more", "#choose"), ("#export", ".export")]:
        opened(page, button, f"{dialog}[open]")
        assert faults(page) == [], dialog
        page.keyboard.press("Escape")
        page.wait_for_selector(dialog, state="hidden")


def test_a_recording_that_is_being_transcribed(visit, at_work):
    page = visit().page
    at_work.tell(share=0.4, said=at_work.segments[:6])
    page.wait_for_selector('#job-list a:has-text("live")')
    assert everywhere(page) == []  # its row
    page.goto(at_work.url)
    page.wait_for_selector("article >> nth=5")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("article.now")
    assert everywhere(page) == []
    at_work.tell(state="failed", why="live.flac: not enough memory", said=())
    page.wait_for_selector("#standing.trouble")
    assert everywhere(page) == []


def test_dialogs_with_something_in_them(visit, desk, folder):
    """Of the first page: replace, a recording's own, the trash, people; and the list of notes."""
    path = folder / "toned.json"
    word = store.read(path).words[0].text.strip()
    edits.add_notes(path, files.sha256_at(path), [[{**NOTED, "text": "Why?"}]])
    place = path.relative_to(desk.desk.folder).with_suffix("").as_posix()
    entry = Entry(place, str(folder / "toned.wav"), 1, 1, None, "", "failed", "it is damaged", 4, again=True)
    Manifest(desk.desk.folder / "manifest.jsonl").append(entry)
    shutil.copytree(folder, folder / "thrown")
    page = visit().page
    speaker = store.read(path).speakers[0].id
    kept = page.context.request.post(
        f"{desk.address(path)}voice",
        data={"name": "Ann", "speaker": speaker},
        headers={"Origin": desk.url[:-1]},
    )
    assert kept.ok, kept.text()
    desk.desk.library.update()
    page.reload()
    row = f'#rows tr:has(.folder:text-is("{folder.name}"))'
    page.wait_for_selector(f"{row} .why")  # it could not be transcribed again
    assert everywhere(page) == []

    page.click(f"{row} [data-change]")
    page.wait_for_selector("#shelf[open]")
    assert everywhere(page) == [], "a recording's name, folder and tags"
    page.keyboard.press("Escape")

    page.click(f'#rows tr:has(.folder:text-is("{folder.name}/thrown")) [data-change]')
    page.click("#throw")
    page.wait_for_selector("#shelf", state="hidden")
    opened(page, "#trash", "#thrown li")
    assert everywhere(page) == [], "the trash"
    page.click("#trashed [data-close]")

    opened(page, "#people-list", "#people .person")
    assert everywhere(page) == [], "people"
    page.keyboard.press("Escape")

    page.fill("#query", word)
    until(page, lambda: page.press("#query", "Enter"), "#hits mark")
    opened(page, "#replace", "#replacing[open]")
    page.fill("#written", "otherwise")
    page.click("#look")
    page.wait_for_selector("#replacing-list input")
    assert everywhere(page) == [], "replace"
    page.keyboard.press("Escape")
    page.fill("#query", "")

    opened(page, "#with", "dialog[open] textarea")
    assert everywhere(page) == [], "the settings of new recordings"

    page.goto(f"{desk.url}notes")
    page.wait_for_selector("#notes li")
    assert everywhere(page) == [], "the list of notes"


def test_dialogs_of_a_transcript(visit):
    page = visit().open()
    page.locator(".w").nth(1).click()
    page.keyboard.press("a")
    page.wait_for_selector("#noting[open]")
    assert everywhere(page) == [], "a note"
    page.fill("#note-text", "Why?")
    page.click("#noting .main")
    page.wait_for_selector("#notes .note")
    assert everywhere(page) == [], "the notes beside the text"
    page.keyboard.press("Escape")
    page.click("#more")
    page.click('#choices button:has-text("Transcribe again with")')
    page.wait_for_selector('dialog[open]:has-text("Number of speakers")')
    assert everywhere(page) == [], "another transcription"
    page.fill('label:has-text("Number of speakers") input', "0")
    page.keyboard.press("Escape")
    page.locator(".w").nth(1).click()
    page.keyboard.press("m")
    page.wait_for_selector("#choose[open]")
    assert everywhere(page) == [], "another speaker"


def test_the_page_that_asks_for_the_token(browser, desk):
    context = browser.new_context()
    page = context.new_page()
    page.goto(desk.url)
    assert faults(page) == []
    page.fill("#token", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert]")
    assert faults(page) == []
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.url == desk.url
    context.close()
