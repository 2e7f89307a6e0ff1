"""Correcting on the desk in a real browser, beside other windows and across reloads."""

from __future__ import annotations

import json

from test_page import browser as browser
from test_serve_browser import arrived, correct, held_back, rename, saved
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import shelf as shelf
from test_serve_browser import visit as visit
from witness.transcript import store


def texts(folder) -> list[str]:
    return [word.text.strip() for word in store.read(folder / "toned.json").words]


def test_undo_beside_a_second_window_opens_no_question(visit, folder):
    """What one undoes while the other goes on is gone, and what the other did stays."""
    visitor = visit()
    one, other = visitor.open(), visitor.open(visitor.tab())
    before = texts(folder)
    correct(one, one.locator(".w").nth(3), "Zanzibar")
    other.wait_for_selector('.w:text-is("Zanzibar")')
    saved(one)
    waiting = held_back(one, "**/corrections")
    one.keyboard.press("Control+z")
    arrived(one, waiting)
    rename(other, "Speaker 1", "Ann")
    saved(other)
    waiting[0].continue_()
    one.wait_for_selector('aside button.name:text-is("Ann")')
    saved(one)
    assert one.locator("dialog[open]").count() == 0
    assert texts(folder) == before
    assert store.read(folder / "toned.json").speakers[0].name == "Ann"
    visitor.forgive("409")


def test_a_word_that_two_people_correct_is_named(visit, folder):
    visitor = visit()
    one, other = visitor.open(), visitor.open(visitor.tab())
    waiting = held_back(one, "**/corrections")
    correct(one, one.locator(".w").nth(3), "Zanzibar")
    arrived(one, waiting)
    correct(other, other.locator(".w").nth(3), "Timbuktu")
    saved(other)
    waiting[0].continue_()
    one.wait_for_selector('#toast:has-text("wrote “Timbuktu” where you wrote “Zanzibar”")')
    other.wait_for_selector('#toast:has-text("wrote “Zanzibar” where you wrote “Timbuktu”")')
    saved(one)
    assert texts(folder)[3] == "Zanzibar"
    one.keyboard.press("Control+z")
    saved(one)
    assert texts(folder)[3] == "Timbuktu"
    visitor.forgive("409")


def test_what_is_undone_at_once_after_a_reload_stays_undone(visit, folder):
    """Although what the page had sent before arrives only then."""
    visitor = visit()
    page = visitor.open()
    before = texts(folder)
    rename(page, "Speaker 1", "Ann")
    saved(page)
    sent = []

    def lost(route) -> None:
        sent.append(json.loads(route.request.post_data))
        route.abort()

    page.route("**/corrections", lost)
    page.locator(".w").nth(3).dblclick()
    page.keyboard.insert_text("Zanzibar")
    arrived(page, sent)
    page.reload()
    page.wait_for_selector('.w:text-is("Zanzibar")')
    page.unroute("**/corrections")
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    address = page.url.partition("#")[0]
    answer = visitor.context.request.put(
        f"{address}corrections", data=sent[0], headers={"Origin": visitor.desk.url.rstrip("/")}
    )
    assert answer.status in (200, 409)  # or the page was faster
    page.wait_for_timeout(1500)
    saved(page)
    assert page.locator("dialog[open]").count() == 0
    assert texts(folder) == before
    assert store.read(folder / "toned.json").speakers[0].name is None
    visitor.forgive("Failed to load resource")
