"""The desk on a telephone, and enlarged to twice its size."""

from itertools import pairwise

from test_page import browser as browser
from test_serve_browser import arrived, held_back, row, saved, until
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import shelf as shelf
from test_serve_browser import visit as visit
from witness.storage import files
from witness.transcript import edits

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def is_wide(page) -> bool:
    """Whether one has to scroll sideways."""
    return page.evaluate("() => document.documentElement.scrollWidth > innerWidth + 1")


def test_a_transcript_on_a_telephone(visit):
    page = visit(**PHONE).open()
    saved(page)
    assert page.locator("#bar").bounding_box()["height"] <= 844 / 5
    assert not is_wide(page)
    page.locator(".w").nth(4).tap()
    page.wait_for_selector("#tools:not([hidden])")
    box = page.locator("#tools").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    page.tap('#tools [data-do="fix"]')
    page.wait_for_selector(".said[contenteditable]")
    page.keyboard.insert_text("Zanzibar")
    page.tap("#write")
    page.wait_for_selector('.w:has-text("Zanzibar")')
    page.tap("aside li:first-child button:text-is('merge')")
    page.tap("#choices button")
    page.wait_for_selector("aside li:nth-child(2)", state="detached")
    saved(page)


def test_recordings_are_sorted_on_a_telephone(visit, desk, folder):
    page = visit(**PHONE).page

    def again() -> None:
        desk.desk.library.changed()
        page.reload()

    until(page, again, f'#rows .folder:text-is("{folder.name}")')
    with page.expect_request("**/api/library?*sort=name*"):
        page.select_option("#sort", "name")
    assert not is_wide(page)


def test_at_twice_the_size_nothing_is_lost(visit):
    """A window of 1280 by 720 at 200 %."""
    page = visit(viewport={"width": 640, "height": 360}).open()
    saved(page)
    assert not is_wide(page)
    page.mouse.wheel(0, 600)
    page.wait_for_timeout(300)
    assert page.locator("#bar").bounding_box()["y"] < 0  # it leaves the room to the text
    page.evaluate("scrollTo(0, 0)")
    for button in ("#find", "#export", "#more", "#help"):
        page.locator(button).scroll_into_view_if_needed()
        assert page.locator(button).is_visible()


def test_a_failure_is_one_line_with_the_rest_to_open(visit):
    page = visit().page
    why = "talk 1.wav: is damaged (Invalid data found when processing input); send it again, or convert it"
    told = page.evaluate("() => fetch('/api/library?limit=1').then((answer) => answer.json())")
    told = {**told, "total": 1, "recordings": [row(1, state="failed", why=why, until=0, tags=[])]}
    page.route("**/api/library?*", lambda route: route.fulfill(json=told))
    page.reload()
    line = page.locator("#rows summary")
    assert line.inner_text() == why.partition(";")[0]
    assert not page.locator("#rows details p").is_visible()
    line.click()
    assert page.locator("#rows details p").inner_text() == why


def test_nothing_moves_when_the_outline_of_the_sound_comes(visit):
    visitor = visit()
    waiting = held_back(visitor.page, "**/outline")
    page = visitor.open()
    arrived(page, waiting)
    place = page.locator(".w").first.bounding_box()
    with page.expect_response("**/outline"):
        waiting[0].continue_()
    page.wait_for_timeout(300)
    assert page.locator(".w").first.bounding_box() == place


def test_notes_of_all_recordings_have_their_lines_to_themselves_on_a_telephone(visit, desk, folder):
    path = folder / "toned.json"
    note = {"kind": "note", "pieces": [[0, 9000]], "text": "Why?", "codes": ["A code of some words"]}
    edits.add_notes(path, files.sha256_at(path), [[note]])
    desk.desk.library.update()
    page = visit(**PHONE).page
    page.goto(f"{page.url.rstrip('/')}/notes")
    lines = [page.locator(f"#notes li {part}").bounding_box() for part in ("a", ".quote", ".code", ".about")]
    assert all(one["y"] + one["height"] <= other["y"] + 1 for one, other in pairwise(lines))
    assert lines[2]["height"] < 30  # in one line
    assert not is_wide(page)
