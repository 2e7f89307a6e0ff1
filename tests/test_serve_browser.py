"""The desk in a real browser: what people do there, from the library to a file that they take away."""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import replace

import pytest

from conftest import in_process
from test_page import browser as browser
from witness.formats import writers
from witness.options import Options
from witness.transcript import document

TOKEN = "a-token-for-the-tests"  # noqa: S105 - guards nothing

pytest.importorskip("starlette", reason="the extra serve is not here")


@pytest.fixture(scope="module")
def shelf(toned, tmp_path_factory):
    """The call with words, and its recording."""
    folder = tmp_path_factory.mktemp("shelf")
    shutil.copy(toned.audio.path, folder / "toned.wav")
    source = replace(toned.audio, path=str(folder / "toned.wav"))
    found = replace(toned, audio=source, findings=replace(toned.findings, audio=source))
    writers.save(found, [("json", folder / "toned.json"), ("txt", folder / "toned.txt")])
    return folder


@pytest.fixture
def folder(shelf, tmp_path):
    shutil.copytree(shelf, tmp_path / "calls")
    return tmp_path / "calls"


class Desk:
    """A running desk."""

    def __init__(self, folder) -> None:
        import uvicorn

        from witness.serve import running
        from witness.serve.app import application
        from witness.serve.desk import Desk as Served
        from witness.serve.library import Library, id_of

        library = Library(folder)
        options = Options(models="builtin", offline=True, whisper="none")
        self.desk = Served(library.folder, TOKEN, library, options)
        self.folder = library.folder
        self.id_of = id_of
        self.listening = running.bind("127.0.0.1", 0)
        self.port = self.listening.getsockname()[1]
        self.url = running.address("127.0.0.1", self.listening)
        self.uvicorn = uvicorn
        self.application = application
        self.start()

    def start(self) -> None:
        config = self.uvicorn.Config(
            self.application(self.desk), log_level="critical", lifespan="off", timeout_graceful_shutdown=1
        )
        self.server = self.uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.listening],), daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.listening.close()

    def transcript(self, name: str = "toned.json") -> str:
        from pathlib import Path

        return f"{self.url}t/{self.id_of(Path(name))}/"


@pytest.fixture
def desk(folder):
    running = Desk(folder)
    yield running
    running.stop()
    running.desk.editor.close()
    running.desk.finder.close()


class Visitor:
    """A browser's window at the desk, and what it complained of."""

    def __init__(self, chromium, desk, **context) -> None:
        self.context = chromium.new_context(viewport={"width": 1200, "height": 900}, **context)
        self.desk = desk
        self.complaints: list[str] = []
        self.page = self.tab()
        self.page.goto(f"{desk.transcript()}?token={TOKEN}")

    def tab(self):
        page = self.context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    def forgive(self, words: str) -> None:
        """Forget the browser's own lines about requests that fail as they should."""
        self.complaints = [text for text in self.complaints if words not in text]

    def open(self, page=None, name: str = "toned.json", hash_: str = ""):
        page = page or self.page
        page.goto(self.desk.transcript(name) + hash_)
        page.wait_for_selector("html[data-ready]", state="attached")
        return page


@pytest.fixture
def visit(request, desk):
    visitors = []
    browser = request.getfixturevalue("browser")

    def visited(**context) -> Visitor:
        visitors.append(Visitor(browser, desk, **context))
        return visitors[-1]

    yield visited
    for visitor in visitors:
        complaints = visitor.complaints
        visitor.context.close()
        assert not complaints


def rename(page, who: str, name: str) -> None:
    page.click(f'aside button.name:text-is("{who}")')
    page.keyboard.type(name)
    page.keyboard.press("Enter")


def correct(page, word, text: str) -> None:
    word.click()
    page.keyboard.press("e")
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def saved(page) -> None:
    page.wait_for_selector('#save:text-is("Saved")')


def test_corrections_are_saved_as_they_are_made_and_undone_after_a_reload(visit, folder):
    page = visit().open()
    saved(page)
    before = (folder / "toned.txt").read_text()
    rename(page, "Speaker 1", "Ann")
    correct(page, page.locator(".w").nth(3), "Zanzibar")
    saved(page)
    assert document.read(folder / "toned.json").speakers[0].name == "Ann"
    assert "Zanzibar" in (folder / "toned.txt").read_text()
    page.reload()
    page.wait_for_selector('.w:text-is("Zanzibar")')
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    assert page.locator('.w:text-is("Zanzibar")').count() == 0
    page.wait_for_selector("#redo:not([disabled])")
    saved(page)
    assert (folder / "toned.txt").read_text() == before
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    page.click("#redo")
    page.wait_for_selector('aside button.name:text-is("Ann")')
    saved(page)
    assert document.read(folder / "toned.json").speakers[0].name == "Ann"


def test_two_tabs_lose_nothing_of_each_other(visit, folder):
    visitor = visit()
    one, other = visitor.open(), visitor.open(visitor.tab())
    rename(one, "Speaker 1", "Ann")
    saved(one)
    correct(other, other.locator(".w").nth(3), "Zanzibar")
    saved(other)
    other.wait_for_selector('aside button.name:text-is("Ann")')
    visitor.forgive("409")
    text = (folder / "toned.txt").read_text()
    assert "Ann" in text
    assert "Zanzibar" in text


def test_what_cannot_be_joined_is_for_the_person_to_decide(visit, folder):
    visitor = visit()
    one, other = visitor.open(), visitor.open(visitor.tab())
    one.click("#more")
    one.click('.choice:has-text("Another number")')
    one.keyboard.type("1")
    one.keyboard.press("Enter")
    one.wait_for_selector('aside h2:text-is("1 speaker")')
    correct(other, other.locator(".w").nth(3), "Zanzibar")
    other.wait_for_selector('dialog[open] :text("Somebody else changed this transcript")')
    assert "Not saved" in other.inner_text("#save")
    assert "Zanzibar" not in (folder / "toned.txt").read_text()
    other.click('.choice:has-text("Add my corrections")')
    other.wait_for_selector('aside h2:text-is("1 speaker")')
    other.wait_for_selector('.w:text-is("Zanzibar")')
    assert "Zanzibar" in (folder / "toned.txt").read_text()
    visitor.forgive("409")


def test_a_server_that_is_gone_costs_nothing(visit, folder):
    visitor = visit()
    page = visitor.open()
    page.route("**/corrections", lambda route: route.abort())
    rename(page, "Speaker 1", "Ann")
    page.wait_for_selector('#save:has-text("the server does not answer")')
    page.reload()
    page.wait_for_selector('aside button.name:text-is("Ann")')
    page.unroute("**/corrections")
    page.click("#save")
    saved(page)
    assert document.read(folder / "toned.json").speakers[0].name == "Ann"
    visitor.forgive("ERR_FAILED")
    visitor.forgive("409")  # what was sent as the page went away has arrived


def test_any_format_and_back_to_the_machines_version(visit, folder):
    page = visit().open()
    machine = (folder / "toned.txt").read_text()
    rename(page, "Speaker 1", "Ann")
    saved(page)
    for form, begin in (("docx", b"PK"), ("srt", b"1\n00:")):
        page.click("#export")
        with page.expect_download() as download:
            page.click(f'.choice:has-text("{form}")')
        assert download.value.suggested_filename == f"toned.{form}"
        assert download.value.path().read_bytes().startswith(begin)
    page.click("#more")
    page.click('.choice:has-text("machine")')
    page.click('.choice:has-text("Drop all")')
    page.wait_for_selector('aside button.name:text-is("Speaker 1")')
    assert (folder / "toned.txt").read_text() == machine


def test_a_voice_is_kept_and_found_elsewhere_and_named_where_somebody_says_so(visit, folder):
    visitor = visit()
    page = visitor.open()
    keep_voice(page, "Ann")
    page.wait_for_selector('#toast:has-text("several people")')
    assert not (folder / "known").exists()
    visitor.forgive("422")
    # Nobody says 10 s on end: let it be one person.
    assert in_process(folder, "redo", "toned.json", "--speakers", "1", "-f", "txt").returncode == 0
    for form in ("stages.npz", "txt"):
        shutil.copy(folder / f"toned.{form}", folder / f"again.{form}")
    text = (folder / "toned.json").read_text()
    (folder / "again.json").write_text(text.replace("toned.stages.npz", "again.stages.npz"))
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    keep_voice(page, "Ann")
    page.wait_for_selector('#found-about:has-text("2 of 2 recordings")')
    assert "SPEAKER_00 sounds like Ann (cosine 1.00" in page.inner_text("#people")
    page.click('#people li:has-text("again") button')
    page.wait_for_selector("#people :text('named')")
    assert "Ann" in (folder / "again.txt").read_text()
    assert "Ann" not in (folder / "toned.txt").read_text()


def keep_voice(page, name: str) -> None:
    """Of all that is said."""
    page.evaluate("choose(0, order.length - 1)")
    page.keyboard.press("v")
    page.keyboard.type(name)
    page.keyboard.press("Enter")
