"""Known people in a real browser."""

from test_page import browser as browser
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import saved, until
from test_serve_browser import shelf as shelf
from test_serve_browser import visit as visit


def test_a_speaker_is_remembered_suggested_and_forgotten(visit, desk):
    page = visit().open()
    page.click("aside li:first-child button:text-is('voice')")
    page.fill("#answer", "Ann")
    page.keyboard.press("Enter")
    page.wait_for_selector("#people li:has-text('has this name')", timeout=120_000)
    assert (desk.desk.folder / "known" / "Ann.json").exists()
    page.click("#voices .main")
    saved(page)
    page.keyboard.press("Control+z")  # the name, not the voice
    saved(page)
    page.reload()
    page.click("aside .hint-name:has-text('sounds like Ann')", timeout=60_000)
    page.wait_for_selector("aside button.name:text-is('Ann')")
    saved(page)
    page.click("a.back")

    def look() -> None:
        desk.desk.library.changed()
        page.reload()
        page.click("#people-list")

    until(page, look, "#people .person:has-text('named in 1 recording')")
    page.click("#people button:text-is('Look for them')")
    page.wait_for_selector("#people .places .quiet:has-text('Ann sounds like Ann')", timeout=60_000)
    page.click("#people button:text-is('Forget this voice')")
    page.click("#people button:text-is('Forget it? Press again')")
    page.wait_for_selector("#voices-about:has-text('Nobody is known yet')")
    assert not (desk.desk.folder / "known" / "Ann.json").exists()
