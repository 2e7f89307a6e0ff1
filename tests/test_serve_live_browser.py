"""Reading and hearing a recording in a real browser while it is transcribed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import CALL
from test_page import browser as browser
from test_serve_browser import COMMENTER, opened_to_tests
from test_serve_browser import desk as desk
from test_serve_browser import folder as folder
from test_serve_browser import shelf as shelf
from test_serve_browser import visit as visit
from witness.formats.reading import read
from witness.serve.endpoints import GONE
from witness.serve.library.library import id_of
from witness.serve.queue import JobStatus
from witness.transcript import store
from witness.work.manifest import Entry, Manifest


class AtWork:
    """A recording that a queue works on, whose text comes when the test says so."""

    def __init__(self, desk, folder) -> None:
        self.path = folder / "live.json"
        self.shelf = folder / "toned.json"
        source = folder / f"live{CALL.suffix}"
        shutil.copy(CALL, source)
        place = self.path.relative_to(desk.desk.folder)
        self.url = f"{desk.url}t/{id_of(place)}/"
        self._board = desk.desk.queue.board
        self._status = JobStatus(
            id_of(place), source.name, "working", "transcription", output=str(place), source=str(source)
        )
        self.segments = tuple(
            {"start": line.start, "end": line.end, "speaker": line.speaker, "text": line.text or ""}
            for line in read(store.read(self.shelf)).lines
        )

    def tell(self, **fields) -> None:
        self._status = replace(self._status, **fields)
        self._board.put(self._status)

    def finish(self) -> None:
        """The transcript is there, as a worker leaves it."""
        for path in self.shelf.parent.glob("toned*"):
            shutil.copy(path, path.with_name(path.name.replace("toned", "live")))
        self.tell(state="done", share=1.0, said=())


@pytest.fixture
def at_work(desk, folder):
    found = AtWork(desk, folder)
    yield found
    found.tell(state="canceled", said=())


def test_text_comes_as_it_is_written_and_becomes_the_transcript_in_its_place(visit, at_work):
    visitor = visit(viewport={"width": 900, "height": 500})
    page, said = visitor.page, at_work.segments
    assert len(said) > 12
    at_work.tell(share=0.25, said=said[:2])
    page.click('#job-list a:has-text("live")')
    page.wait_for_selector("article >> nth=1")
    texts = page.locator("article .said")
    assert texts.all_inner_texts() == [one["text"] for one in said[:2]]
    assert page.locator("[contenteditable]").count() == 0
    at_work.tell(share=0.5, said=said[:-1], seconds_left=65.0)
    page.wait_for_selector(f"article >> nth={len(said) - 2}")
    assert page.inner_text("#facts") == "writing the words, 1 min 5 s left · 50 % of the work"
    # A worker died, and another one begins again: what it tells takes the place of what was there.
    at_work.tell(said=({**said[0], "text": "Other words."},))
    page.wait_for_selector('.said:text-is("Other words.")')
    assert texts.count() == 1
    at_work.tell(said=said[:-1])
    page.wait_for_selector(f"article >> nth={len(said) - 2}")
    # Whoever reads in the middle stays there while more comes, and when all is there.
    middle = len(said) // 4
    page.locator("article").nth(middle).evaluate("""(one) => {
        const bar = document.querySelector(".bar").offsetHeight;
        scrollTo(0, scrollY + one.getBoundingClientRect().top - bar - 4);
    }""")
    before = page.evaluate("scrollY")
    at_work.tell(said=said)
    page.wait_for_selector(f"article >> nth={len(said) - 1}")
    assert page.evaluate("scrollY") == before
    at_work.finish()
    page.wait_for_selector("#write")
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.url.startswith(at_work.url)
    opened_to_tests(page)
    assert page.evaluate("globalThis.page.position") == pytest.approx(1000 * said[middle]["start"], abs=100)
    first = said[middle]["text"].split()[0]
    assert page.locator(f'.w:text-is("{first}")').first.is_visible()


def test_the_sound_is_heard_meanwhile_and_goes_on_in_the_transcript(visit, at_work):
    page = visit().page
    at_work.tell(said=at_work.segments[:4])
    page.goto(at_work.url)
    page.wait_for_selector("article >> nth=3")
    page.wait_for_selector("#seek:not([disabled])")
    assert page.inner_text("#whole").strip() == "/ 00:01:00"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("article.now >> nth=0")
    assert page.locator("article:focus").get_attribute("data-n") == "1"
    page.keyboard.press("]")
    assert page.input_value("#rate") == "1.25"
    page.keyboard.press("Space")
    page.wait_for_selector("#play.pause")
    at_work.finish()
    page.wait_for_selector("#write")
    page.wait_for_selector("#play.pause")
    opened_to_tests(page)
    # The address of a moment has tenths of a second.
    assert page.evaluate("globalThis.page.position") >= 1000 * at_work.segments[1]["start"] - 100


def test_what_failed_or_was_canceled_says_so_and_is_not_taken_for_saved(visit, at_work):
    page = visit().page
    at_work.tell(said=at_work.segments[:2])
    page.goto(at_work.url)
    page.wait_for_selector("article >> nth=1")
    at_work.tell(state="failed", why="live.flac: not enough memory; use fewer --jobs", said=())
    page.wait_for_selector(
        '#standing:has-text("not enough memory"):has-text("What stands below was not saved")'
    )
    assert page.locator("article").count() == 2
    page.reload()
    page.wait_for_selector('#standing:has-text("not enough memory"):has-text("There is no transcript")')
    assert page.inner_text("#act") == "Try again"
    at_work.tell(state="canceled", why=None)
    page.wait_for_selector('#standing:has-text("The transcription was canceled")')
    at_work.tell(state="waiting")
    page.wait_for_selector('#standing:has-text("waits for its turn")')
    assert page.inner_text("#act") == "Cancel"


def test_a_failure_that_the_queue_has_forgotten_is_told_on_its_page(visit, desk, folder):
    """It tells listeners of the last ones only; the manifest knows all."""
    source = folder / f"forgotten{CALL.suffix}"
    shutil.copy(CALL, source)
    output = (folder / "forgotten").relative_to(desk.desk.folder).as_posix()
    status = source.stat()
    entry = Entry(output, str(source), status.st_size, status.st_mtime_ns, None, "", "failed", "no memory")
    Manifest(desk.desk.folder / "manifest.jsonl").append(entry)
    desk.desk.library.look()
    id_ = id_of(Path(f"{output}.json"))
    assert not desk.desk.queue.board.has(id_)
    page = visit().page
    page.goto(f"{desk.url}t/{id_}/")
    page.wait_for_selector('#standing.trouble:has-text("no memory"):has-text("There is no transcript")')
    with page.expect_response(f"**/api/jobs/{id_}/retry") as answer:
        page.click("#act")
    assert answer.value.json()["state"] == "waiting"
    page.wait_for_selector("#standing:not(.trouble)")
    page.request.post(f"{desk.url}api/jobs/{id_}/cancel")
    gone = page.request.get(f"{desk.url}t/{'0' * 16}/", headers={"Accept": "text/html"})
    assert (gone.status, gone.text()) == (404, f"{GONE}\n")


def test_whoever_may_only_read_reads_it_and_ends_nothing(visit, at_work):
    page = visit(token=COMMENTER.token).page
    at_work.tell(said=at_work.segments[:2])
    page.goto(at_work.url)
    page.wait_for_selector("article >> nth=1")
    assert not page.is_visible("#act")
