"""Every view of the desk by axe, which finds what keeps people with other eyes, ears or hands out."""

from __future__ import annotations

import pytest

from conftest import ROOT
from test_page import browser as browser
from test_serve_browser import TOKEN, correct, rename, saved, until
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import shelf as shelf
from test_serve_browser import visit as visit
from witness.transcript import store

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
PHONE = {"width": 390, "height": 844}


def faults(page) -> list[str]:
    """What axe finds on a page as it is now, each with the elements that it concerns."""
    if not AXE.is_file():
        pytest.skip("axe is not here; npm ci")
    page.evaluate(AXE.read_text())
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['help']}: {node['html'][:150]} {node['failureSummary'][:200]}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def opened(page, button: str, dialog: str) -> None:
    page.click(button)
    page.wait_for_selector(dialog)


@pytest.mark.parametrize("looks", ["light", "dark", "phone"])
def test_the_first_page(visit, desk, folder, looks):
    more = {"viewport": PHONE} if looks == "phone" else {"color_scheme": looks}
    visitor = visit(**more)
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
    more = {"viewport": PHONE} if looks == "phone" else {"color_scheme": looks}
    page = visit(**more).open()
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
