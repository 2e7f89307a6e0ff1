"""All recordings in a real browser: what people search, replace, rename, move and throw away."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from test_page import browser as browser
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import opened_to_tests, row
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
    wait_for(lambda: page.locator("#hits > li:first-child .hit-row").count() > 3)
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


def test_ten_thousand_recordings_are_listed_without_a_button(visit):
    """Only those near the window are asked for and shown; the others take their room."""
    page = visit().page
    page.wait_for_selector("html[data-ready]", state="attached")
    asked = []

    def answer(route) -> None:
        given = parse_qs(urlsplit(route.request.url).query)
        offset, limit = (int(given[name][0]) for name in ("offset", "limit"))
        asked.append(limit)
        rows = [{**row(n), "tags": ["a tag"] * (n % 3)} for n in range(offset, min(offset + limit, 10_000))]
        said = {"total": 10_000, "all": 10_000, "recordings": rows, "indexed": 10_000, "untranscribed": 0}
        route.fulfill(json=said)

    page.route("**/api/library?*", answer)
    opened_to_tests(page)
    page.evaluate("live.events.close(); list()")
    page.wait_for_selector('#rows a:text-is("talk 0")')
    assert page.locator("#rows tbody tr").count() < 600
    for _ in range(3):
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        page.wait_for_timeout(200)
    page.wait_for_selector('#rows a:text-is("talk 9999")')
    assert page.locator("#rows tbody tr").count() < 800
    page.locator('#rows a:text-is("talk 9999")').focus()
    for _ in range(70):  # into the block before
        page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.textContent") == "talk 9929"
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_selector('#rows a:text-is("talk 0")')
    assert max(asked) <= 1000


def test_a_recording_is_renamed_sorted_thrown_away_and_had_again(visit, desk, folder):
    desk.desk.library.look()
    page = visit().page
    name = f"In<i>terview {folder.name}"
    place = folder.parent / "Köln" / f"{name.replace('<', ' ').replace('>', ' ')}.json"
    mine = f'#rows tr:has(.folder:text-is("{folder.name}"))'
    page.locator(f"{mine} [data-change]").press("Enter")
    page.keyboard.insert_text(name)
    page.keyboard.press("Tab")
    page.keyboard.insert_text("Köln")
    page.keyboard.press("Tab")
    page.keyboard.insert_text("first, <b>")
    page.keyboard.press("Enter")
    page.wait_for_selector("#shelf:not([open])", state="attached")
    assert place.with_suffix(".wav").is_file()
    page.wait_for_selector(f'#rows a:text-is("{place.stem}")')
    wait_for(lambda: "<b>" in store.read(place).tags)
    page.wait_for_selector('#by-tag option[value="<b>"]', state="attached")
    page.select_option("#by-tag", "<b>")
    wait_for(lambda: page.locator("#rows tbody a").count() == 1)
    page.reload()
    wait_for(lambda: page.locator("#rows tbody a").count() == 1)  # this tab remembers it
    page.click("#rows [data-change]")
    page.click("#throw")
    page.wait_for_selector("#shelf:not([open])", state="attached")
    assert not place.exists()
    page.click("#trash")
    page.click(f'#thrown li:has-text("{place.stem}") button')
    page.wait_for_selector("#trash-about:text('Nothing')")
    page.click("#trashed [data-close]")
    assert place.is_file()
    page.click("#all-again")
    wait_for(lambda: page.locator("#rows tbody a").count() >= 1)
    place.unlink()
