"""All recordings in a real browser: what people search, replace, rename, move and throw away."""

from __future__ import annotations

from test_page import browser as browser
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import shelf as shelf
from test_serve_browser import visit as visit
from test_serve_library import wait_for
from witness.transcript import edits, store


def searched(page, desk, query: str) -> None:
    """Look for something once the index has read it."""
    desk.desk.library.changed()
    wait_for(lambda: desk.desk.library.index.search(query).total)
    page.fill("#query", query)
    page.wait_for_selector("#hits mark")


def test_words_are_replaced_in_all_recordings_after_a_look(visit, desk, folder):
    path = folder / "toned.json"
    word = store.read(path).words[0].text.strip()
    count = sum(one.text.strip() == word for one in store.read(path).words)
    page = visit().page
    page.wait_for_selector("html[data-ready]", state="attached")
    page.keyboard.press("/")
    searched(page, desk, word)
    assert page.locator("#hits h3 a").first.get_attribute("href").startswith("/t/")
    assert page.locator("#hits > li").first.locator(".hit-row").count() == 3
    page.locator("#hits > li button:has-text('Show all')").first.click()
    page.wait_for_function(
        "count => document.querySelectorAll('#hits > li:first-child .hit-row').length > 3", arg=count
    )
    page.click("#replace")
    assert page.input_value("#heard") == word
    page.keyboard.insert_text("Zan<b>zibar")
    page.keyboard.press("Enter")
    page.wait_for_selector("#replace-all:not([hidden])")
    boxes = page.locator("#replacing-list > li:last-child input")
    boxes.first.uncheck()
    before = edits.show(path).version
    page.click("#replace-all")
    page.wait_for_selector("#replacing:not([open])", state="attached")
    texts = [one.text.strip() for one in store.read(path).words]
    assert texts.count("Zan<b>zibar") in (count, count - 1)
    assert edits.show(path).version != before
    assert len(edits.show(path).steps) == 1
    page.wait_for_selector("#hits mark:text('Zan<b>zibar')", state="detached")
