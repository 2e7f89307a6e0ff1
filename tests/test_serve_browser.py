"""The desk in a real browser: what people do there, from the library to a file that they take away."""

from __future__ import annotations

import base64
import re
import shutil
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import soundfile
import uvicorn

import ggml
from conftest import in_process, shelve
from test_page import browser as browser
from test_page import typed
from witness.options import Device, Options
from witness.serve import server
from witness.serve.app_state import AppState
from witness.serve.library.index import Index
from witness.serve.library.library import Library, id_of
from witness.serve.queue import Queue
from witness.serve.roles import Role, User
from witness.serve.server import application
from witness.serve.uploads import Uploads
from witness.transcript import store
from witness.work import pool, produce

TOKEN = "a-token-for-the-tests"  # noqa: S105 - guards nothing
COMMENTER = User("eve", Role.COMMENT, "a-token-for-comments")


@pytest.fixture(scope="module")
def shelf(toned, tmp_path_factory):
    """The call with words, and its recording."""
    return shelve(toned, tmp_path_factory.mktemp("shelf"), ("json", "txt"))


class Desk:
    """A running desk over a folder, with its queue; `whisper` is for recordings that are dropped."""

    def __init__(self, folder: Path, whisper: Path, port: int = 0) -> None:
        self._stack = ExitStack()
        library = Library(folder, Index(folder.parent / "index.sqlite"))
        options = Options(models="builtin", offline=True, whisper=str(whisper), speakers=2)
        runtime = pool.worker_runtime(1, Device.CPU, 2)
        uploads = self._stack.enter_context(Uploads(library.folder))
        queue = self._stack.enter_context(
            Queue(
                library.folder,
                lambda overrides: produce.resolve_settings(overrides.apply(options)),
                runtime,
                1,
            )
        )
        self.desk = AppState(library.folder, TOKEN, library, options, queue=queue, uploads=uploads)
        self._stack.enter_context(library.watched())
        self._stack.callback(self.desk.editor.close)
        self._stack.callback(self.desk.finder.close)
        listening = self._stack.enter_context(server.bind("127.0.0.1", port))
        self.url = server.address("127.0.0.1", listening)
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(
            application(self.desk, users=[COMMENTER]),
            log_level="critical",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, args=([listening],), daemon=True)
        thread.start()
        while not running.started:
            assert thread.is_alive()
            time.sleep(0.01)
        self._stack.callback(thread.join)
        self._stack.callback(setattr, running, "should_exit", True)

    def close(self) -> None:
        """End the server and its processes."""
        self._stack.close()

    def address(self, path: Path) -> str:
        """Of the page of a transcript."""
        return f"{self.url}t/{id_of(path.relative_to(self.desk.folder))}/"


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    root = tmp_path_factory.mktemp("desk")
    (root / "calls").mkdir()
    running_desk = Desk(root / "calls", ggml.write(root / "tones.bin"))
    yield running_desk
    running_desk.close()


@pytest.fixture
def folder(desk, shelf, tmp_path):
    """The call in a folder of its own below the desk's."""
    place = desk.desk.folder / tmp_path.name
    shutil.copytree(shelf, place)
    return place


class Visitor:
    """A browser's window at the desk, and what it complained of."""

    def __init__(self, chromium, desk, folder, token=TOKEN, **context) -> None:
        self.context = chromium.new_context(**{"viewport": {"width": 1200, "height": 900}, **context})
        self.desk, self.folder = desk, folder
        self.complaints: list[str] = []
        self.page = self.tab()
        self.context.request.post(f"{desk.url}unlock", form={"token": token})
        self.page.goto(desk.url)

    def tab(self):
        page = self.context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    def forgive(self, words: str) -> None:
        """Forget the browser's own lines about requests that fail as they should."""
        self.complaints = [text for text in self.complaints if words not in text]

    def open(self, page=None):
        """The page of the call."""
        page = page or self.page
        page.goto(self.desk.address(self.folder / "toned.json"))
        page.wait_for_selector("html[data-ready]", state="attached")
        return page


@pytest.fixture
def visit(browser, desk, folder):
    visitors = []

    def visited(**context) -> Visitor:
        visitors.append(Visitor(browser, desk, folder, **context))
        return visitors[-1]

    yield visited
    for visitor in visitors:
        complaints = visitor.complaints
        visitor.context.close()
        assert not complaints


def rename(page, who: str, name: str) -> None:
    page.click(f'aside button.name:text-is("{who}")')
    typed(page, name)
    page.keyboard.press("Enter")


def correct(page, word, text: str) -> None:
    word.dblclick()
    page.keyboard.insert_text(text)
    page.keyboard.press("F2")


def saved(page) -> None:
    page.wait_for_selector('#save:text-is("Saved")')


def correct_and_save(page, folder) -> None:
    """Name a speaker and correct a word, and find both in the files."""
    rename(page, "Speaker 1", "Ann")
    correct(page, page.locator(".w").nth(3), "Zanzibar")
    saved(page)
    assert store.read(folder / "toned.json").speakers[0].name == "Ann"
    assert "Zanzibar" in (folder / "toned.txt").read_text()


def test_corrections_are_saved_as_they_are_made_and_undone_after_a_reload(visit, folder):
    page = visit().open()
    saved(page)
    before = (folder / "toned.txt").read_text()
    correct_and_save(page, folder)
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
    assert store.read(folder / "toned.json").speakers[0].name == "Ann"


def caret(page) -> tuple[str, int]:
    """The text before the caret in its paragraph, as far as its last 12 letters."""
    return page.evaluate(
        """() => {
            const range = getSelection().getRangeAt(0).cloneRange();
            const said = range.startContainer.parentElement.closest(".said");
            range.setStart(said, 0);
            return range.toString().slice(-12);
        }"""
    )


def test_whoever_writes_in_the_text_loses_neither_place_nor_word(visit, folder):
    """Typing goes on while it is saved, also into the next paragraph; what was left alone keeps its times."""
    page = visit().open()
    page.click("#write")
    before = store.read(folder / "toned.json")
    first = page.locator(".said").nth(0)
    first.click()
    page.keyboard.press("Home")
    page.keyboard.press("Control+ArrowRight")
    page.keyboard.type("really ")
    saved(page)
    page.wait_for_selector('.w.fixed:has-text("really")')
    assert caret(page).endswith("really ")
    page.keyboard.type("and truly ")
    page.wait_for_selector('.w.fixed:has-text("truly")')
    saved(page)
    assert caret(page).endswith("and truly ")
    page.keyboard.press("End")
    page.keyboard.type(" Indeed")
    page.keyboard.press("Control+End")
    page.keyboard.press("ArrowRight")  # into the next paragraph
    page.keyboard.type("Well ")
    saved(page)
    texts = [text for text in page.locator(".said").all_inner_texts() if text]
    assert "really and truly" in texts[0]
    assert texts[1].strip().startswith("Well ")
    after = store.read(folder / "toned.json")
    assert len(after.words) == len(before.words)
    assert [(word.start, word.end) for word in after.words] == [
        (word.start, word.end) for word in before.words
    ]
    assert sum(one.text != other.text for one, other in zip(after.words, before.words, strict=True)) == 3
    # Undone with the key that everybody knows, also after a reload.
    page.reload()
    page.wait_for_selector("html.writing[data-ready]", state="attached")
    while page.locator("#undo:not([disabled])").count():
        page.keyboard.press("Control+z")
    saved(page)
    texts_of = [word.text for word in store.read(folder / "toned.json").words]
    assert texts_of == [word.text for word in before.words]


def test_the_player_s_keys_work_while_one_writes(visit):
    page = visit().open()
    opened_to_tests(page)
    page.click("#write")
    page.locator(".said").nth(2).click()
    assert page.locator(".said:focus").count() == 1
    for key in ("Escape", "Tab"):
        page.keyboard.press(key)
        page.wait_for_selector("#play.pause")
        page.keyboard.press(key)
        page.wait_for_selector("#play:not(.pause)")
    page.evaluate("globalThis.seek(10000)")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert 8000 <= page.evaluate("globalThis.page.position") < 9500  # two seconds back
    for _ in range(3):
        page.keyboard.press("Alt+BracketRight")
    assert page.input_value("#rate") == "1.75"
    for _ in range(9):
        page.keyboard.press("Alt+BracketLeft")
    assert page.input_value("#rate") == "0.5"
    said = page.locator(".said:focus").inner_text()
    who = page.locator("article:has(.said:focus) .who .name").inner_text()
    names = page.locator("aside button.name").all_inner_texts()
    other = next(number for number, name in enumerate(names, start=1) if name != who)
    page.keyboard.press(f"Alt+Digit{other}")
    page.wait_for_selector(f'#toast:has-text("{names[other - 1]}")')
    assert said in " ".join(
        page.locator(f'article:has(.who .name:text-is("{names[other - 1]}")) .said').all_inner_texts()
    )
    page.keyboard.press("Alt+KeyO")
    page.wait_for_selector('#loop[aria-pressed="true"]')
    page.keyboard.press("F2")
    assert page.locator(".said[contenteditable]").count() == 0


def test_without_findings_only_the_speakers_are_as_they_were(visit, folder):
    (folder / "toned.findings.npz").unlink()
    page = visit().open()
    page.click("#more")
    page.wait_for_selector('dialog[open]:has-text("copy it into"):has-text("Transcribe again")')
    page.keyboard.press("Escape")
    correct_and_save(page, folder)
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    page.wait_for_selector('.w:has-text("Zanzibar")')
    page.click("#more")
    page.wait_for_selector('dialog[open]:has-text("Back to the machine")')
    assert page.locator('dialog[open]:has-text("Another number")').count() == 0


def test_what_could_not_be_saved_cannot_be_corrected(visit, folder):
    text = (folder / "toned.json").read_text()
    wrong = '[{"kind": "name", "speaker": [], "name": "Al"}]'
    (folder / "toned.json").write_text(text.replace('"corrections": []', f'"corrections": {wrong}'))
    before = (folder / "toned.json").read_bytes()
    page = visit().open()
    page.wait_for_selector('#refusal:visible:has-text("is damaged")')
    page.wait_for_selector('#save:text-is("Read only")')
    page.locator(".w").nth(3).click()
    for key in ("e", "m", "r", "g"):
        page.keyboard.press(key)
        assert page.locator("dialog[open]").count() == 0
    page.click('aside button.name:text-is("Speaker 1")')
    assert page.locator("aside input.name").count() == 0
    page.wait_for_selector('#toast:has-text("is damaged")')
    assert (folder / "toned.json").read_bytes() == before
    page.click("#export")  # which still works
    page.wait_for_selector("dialog[open]")


def test_a_second_window_sees_what_the_first_does_as_it_comes(visit):
    """Also where somebody writes there: the caret stays at its word."""
    visitor = visit()
    one, other = visitor.open(), visitor.open(visitor.tab())
    other.click("#write")
    other.locator(".said").nth(2).click()
    other.keyboard.press("End")
    before = caret(other)
    correct(one, one.locator(".w").nth(3), "Zanzibar")
    other.wait_for_selector('.w:text-is("Zanzibar")')
    assert caret(other) == before
    other.keyboard.type(" indeed")
    one.wait_for_selector('.w:has-text("indeed")')
    assert other.locator('.w:text-is("Zanzibar")').count() == 1


def test_two_tabs_lose_nothing_of_each_other(visit, folder):
    visitor = visit()
    one, other = visitor.open(), visitor.open(visitor.tab())
    rename(one, "Speaker 1", "Ann")
    saved(one)
    correct(other, other.locator(".w").nth(3), "Zanzibar")
    saved(other)
    other.wait_for_selector('aside button.name:text-is("Ann")')
    visitor.forgive("409")
    one.evaluate("dispatchEvent(new Event('focus'))")  # somebody comes back to the first tab
    one.wait_for_selector('.w:text-is("Zanzibar")')
    text = (folder / "toned.txt").read_text()
    assert "Ann" in text
    assert "Zanzibar" in text


def ask_for_one_speaker(page) -> None:
    page.click("#more")
    page.click('.choice:has-text("Another number")')
    page.keyboard.type("1")
    page.keyboard.press("Enter")


def test_what_cannot_be_joined_is_for_the_person_to_decide(visit, folder):
    visitor = visit()
    one, other = visitor.open(), visitor.tab()
    other.route("**/t/*/events", lambda route: route.abort())  # it would see at once what the first one does
    visitor.open(other)
    ask_for_one_speaker(one)
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
    visitor.forgive("ERR_FAILED")


def test_steps_that_are_none_of_this_page_are_not_saved_over_the_corrections(visit, folder):
    page = visit().open()
    rename(page, "Speaker 1", "Ann")
    saved(page)
    history = folder / ".toned.history"
    before = history.read_text()
    history.write_text(
        before.replace('{"kind":"name","who":0,"name":"Ann"}', '{"kind":"text","pieces":[null]}')
    )
    assert history.read_text() != before
    page.reload()
    page.wait_for_selector('#save:text-is("Read only")')
    assert ".toned.history" in page.get_attribute("#save", "title")


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
    assert store.read(folder / "toned.json").speakers[0].name == "Ann"
    visitor.forgive("ERR_FAILED")
    visitor.forgive("409")  # what was sent as the page went away has arrived


def choose_format(page, form: str) -> None:
    """In the dialog that exports."""
    page.click("#export")
    for box in page.locator(".formats input:checked").all():
        box.uncheck()
    page.check(f'.formats label:has-text("{form} –") input')


def test_any_format_and_back_to_the_machines_version(visit, folder):
    page = visit().open()
    machine = (folder / "toned.txt").read_text()
    rename(page, "Speaker 1", "Ann")
    saved(page)
    for form, begin in (("docx", b"PK"), ("srt", b"1\n00:")):
        choose_format(page, form)
        with page.expect_download() as download:
            page.click(".export .main")
        assert download.value.suggested_filename == f"toned.{form}"
        assert download.value.path().read_bytes().startswith(begin)
    page.click("#more")
    page.click('.choice:has-text("machine")')
    page.click('.choice:has-text("Drop all")')
    page.wait_for_selector('aside button.name:text-is("Speaker 1")')
    assert (folder / "toned.txt").read_text() == machine


def test_a_voice_is_kept_and_found_elsewhere_and_named_where_somebody_says_so(visit, desk, folder):
    visitor = visit()
    page = visitor.open()
    keep_voice(page, "Ann")
    page.wait_for_selector('#toast:has-text("several people")')
    assert not (desk.desk.folder / "known").exists()
    visitor.forgive("422")
    # Nobody says 10 s on end: let it be one person.
    assert in_process(folder, "redo", "toned.json", "--speakers", "1", "-f", "txt").returncode == 0
    for form in ("findings.npz", "txt"):
        shutil.copy(folder / f"toned.{form}", folder / f"again.{form}")
    text = (folder / "toned.json").read_text()
    (folder / "again.json").write_text(text.replace("toned.findings.npz", "again.findings.npz"))
    assert desk.desk.library.find(id_of((folder / "again.json").relative_to(desk.desk.folder)))
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    keep_voice(page, "Ann")
    page.wait_for_selector('#people li:has-text("again")', timeout=120_000)  # the cohort is heard once
    assert "SPEAKER_01 sounds like Ann" in page.inner_text("#people")
    page.click('#people li:has-text("again") button')
    page.wait_for_selector("#people :text('named'):focus", timeout=60_000)
    assert "Ann" in (folder / "again.txt").read_text()
    assert "Ann" not in (folder / "toned.txt").read_text()
    # Another one that was found with it, in the same transcript.
    other = {
        "id": id_of((folder / "again.json").relative_to(desk.desk.folder)),
        "version": "before",
        "start": 0,
    }
    page.evaluate(
        'found => $("people").append(personIn(found, "Anna"))',
        {**other, "recording": "again", "likely": "", "called": "SPEAKER_01", "speaker": "SPEAKER_01"},
    )
    page.click("#people li:last-child button")
    page.wait_for_selector("#people li:last-child :text('named')", timeout=60_000)
    assert "Anna" in (folder / "again.txt").read_text()


def opened_to_tests(page) -> None:
    """What the page's modules export gets names that scripts of tests can use."""
    page.evaluate("""async () => {
        const loaded = performance.getEntriesByType("resource").map((one) => one.name);
        for (const name of loaded) if (name.endsWith(".js")) Object.assign(globalThis, await import(name));
    }""")


def keep_voice(page, name: str) -> None:
    """Of all that is said."""
    opened_to_tests(page)
    page.evaluate("choose(0, page.order.length - 1)")
    page.keyboard.press("v")
    typed(page, name)
    page.keyboard.press("Enter")


def test_a_phone_and_names_that_pose_as_markup(visit, desk, folder):
    nasty = '<img src=x onerror="alert(1)">'
    assert in_process(folder, "redo", "toned.json", "--name", f"SPEAKER_01={nasty}", "-q").returncode == 0
    for form in ("json", "findings.npz"):
        (folder / f"toned.{form}").rename(folder / f"{nasty.replace('/', '')}.{form}")
    shutil.copy(folder / f"{nasty}.json", folder / "toned.json")
    desk.desk.library.update()
    page = visit(viewport={"width": 360, "height": 740}).page
    page.wait_for_selector("html[data-ready]", state="attached")
    page.wait_for_selector(f"#rows a:text-is('{nasty}')")
    assert nasty in page.inner_text("#rows")
    fits = "document.documentElement.scrollWidth <= innerWidth"
    unnamed = """[...document.querySelectorAll("button, a[href], input, select")].filter((one) => !(
        one.closest("[hidden]") || one.textContent.trim() || one.ariaLabel || one.labels?.length)).length"""
    assert page.evaluate(fits)
    assert page.evaluate(unnamed) == 0
    # Typed before the page's own scripts have begun.
    page.add_init_script("""new MutationObserver((_, watch) => {
        const query = document.getElementById("query");
        if (query) { query.value = "seven"; watch.disconnect(); }
    }).observe(document, { childList: true, subtree: true })""")
    page.reload()
    page.wait_for_selector("#hits mark")
    assert page.evaluate(fits)
    page.goto(desk.address(folder / f"{nasty}.json"))
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.evaluate(fits)
    assert page.evaluate(unnamed) == 0


def test_from_a_dropped_file_to_a_document(visit, desk, folder, tmp_path):
    """What a newcomer does with the mouse."""
    sound, rate = soundfile.read(folder / "toned.wav", frames=12 * 8000, dtype="int16")
    soundfile.write(tmp_path / "first talk.wav", sound, rate)
    page = visit().page
    page.wait_for_selector("html[data-ready]", state="attached")
    dropped(page, tmp_path / "first talk.wav")
    page.wait_for_selector('#job-list:has-text("first talk")')
    shutil.copy(tmp_path / "first talk.wav", tmp_path / "second talk.wav")
    dropped(page, tmp_path / "second talk.wav")
    # Not "waiting to be sent": what was never sent is dismissed, not canceled.
    page.click('#job-list li:has-text("second talk"):has(.what:text-is("waiting")) button')
    page.wait_for_selector('#rows tr:has-text("second talk"):has-text("canceled") :text("Try again")')
    assert page.locator('#job-list:has-text("second talk")').count() == 0
    page.wait_for_selector('#rows a:text-is("first talk")', timeout=60_000)
    page.click('[data-sort="name"]')
    page.wait_for_selector('th[aria-sort="ascending"] [data-sort="name"]')
    page.wait_for_selector('#job-list li:has-text("first talk")', state="detached")
    page.click('#rows a:text-is("first talk")')
    page.wait_for_selector("html[data-ready]", state="attached")
    rename(page, "Speaker 1", "Zoë")
    correct(page, page.locator(".w").nth(1), "Zanzibar")
    saved(page)
    page.reload()
    page.wait_for_selector('.w:text-is("Zanzibar")')
    assert page.locator('aside button.name:text-is("Zoë")').count() == 1
    page.click("a.back")
    page.fill("#query", "zanzi*")
    desk.desk.library.changed()
    page.wait_for_selector("#found-title")
    until(page, lambda: page.press("#query", "Enter"), "#hits mark")
    assert page.inner_text("#hits mark") == "Zanzibar"
    assert "Zoë" in page.inner_text("#hits .where")
    page.click("#hits .hit-row")
    page.wait_for_selector("#play.pause")  # it plays
    page.click("#open")
    page.wait_for_selector('.w.chosen:text-is("Zanzibar")')
    for form, begin in (("docx", b"PK"), ("srt", b"1\n00:")):
        choose_format(page, form)
        with page.expect_download() as download:
            page.click(".export .main")
        assert download.value.suggested_filename == f"first talk.{form}"
        assert download.value.path().read_bytes().startswith(begin)


def deaf(page):
    """The page with all recordings, which hears nothing of its server from now on, nor what is on its way."""
    page.wait_for_selector("html[data-ready]", state="attached")
    opened_to_tests(page)
    page.evaluate("() => { live.events.close(); shown.answered = Infinity; }")
    return page


def test_news_do_not_take_a_button_away_before_it_is_clicked(visit):
    page = deaf(visit().page)
    page.evaluate("""() => {
        window.news = (share) => {
            const job = { id: "one", name: "talk", state: "working", stage: "decode" };
            jobs.set("one", { ...job, share, seconds_left: 9 });
            showJobs();
            shown.recordings = [{ id: "two", name: "call", state: "done", seconds: 9, speakers: [] }];
            shown.total = 1;
            showRows();
        };
        news(0.25);
        window.clicked = [];
        document.addEventListener("click", (event) => {
            clicked.push(event.target.closest("#job-list button, #rows a")?.textContent);
            event.preventDefault();
            event.stopPropagation();
        }, true);
    }""")
    for place, text in (("#job-list button", "Cancel"), ("#rows a", "call")):
        page.locator(place).hover()
        page.mouse.down()
        page.evaluate("news(0.5)")
        page.mouse.up()
        assert page.evaluate("clicked.pop()") == text
    assert "9 s left" in page.inner_text("#job-list")
    assert page.evaluate("document.querySelector('#job-list progress').value") == 0.5


def choose_folder(page, path: Path) -> None:
    page.set_input_files("#folder", path)


def drop_folder(page, path: Path) -> None:
    devtools = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        devtools.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 300, "data": data})


@pytest.mark.parametrize("give", [choose_folder, drop_folder])
def test_of_a_folder_the_recordings_are_sent(visit, tmp_path, give):
    hidden = ("._talk 9.wav", ".old/talk.wav", ".old/x/y.wav")
    for name in ("talk 10.wav", "talk 9.wav", "notes.txt", "below/Other.MP3", *hidden):
        path = tmp_path / "chosen" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"-")
    visitor = visit()
    page = visitor.page
    sent = []

    def refuse(route) -> None:
        sent.append(route.request.post_data)
        route.fulfill(status=415, json={"error": {"message": "not here"}})

    page.route("**/api/recordings", refuse)
    page.wait_for_selector("html[data-ready]", state="attached")
    give(page, tmp_path / "chosen")
    page.wait_for_selector("#job-list li:nth-child(3) .why")
    assert page.locator("#job-list .why").all_inner_texts() == ["not here"] * 3
    names = [re.search('filename="(.*?)"', text).group(1) for text in sent]
    assert names == ["Other.MP3", "talk 9.wav", "talk 10.wav"]
    visitor.forgive("415")


def test_what_cannot_be_read_in_a_folder_costs_nothing_else(visit):
    page = visit().page
    page.wait_for_selector("html[data-ready]", state="attached")
    script = """async () => {
        const folder = (name, readEntries) =>
            ({ name, fullPath: `/${name}`, createReader: () => ({ readEntries }) });
        const file = { name: "a.wav", fullPath: "/top/a.wav", isFile: true, file: (done) => done("a") };
        const locked = folder("locked", (_, failed) => failed(new Error("not yours")));
        const some = [[file, locked], []];
        const unread = [];
        const { below } = await import(performance.getEntriesByType("resource").map((one) => one.name)
            .find((name) => name.endsWith("folders.js")));
        return [await below(folder("top", (done) => done(some.shift())), unread), unread];
    }"""
    assert page.evaluate(script) == [["a"], ["locked"]]


def test_an_answer_that_comes_after_the_news_changes_nothing(visit, tmp_path):
    """A recording may be done, or have failed, before the answer to its upload is there."""
    page = visit().page
    page.wait_for_selector("html[data-ready]", state="attached")
    times = {"share": 0, "seconds_left": None, "seconds_after": None}
    job = {"id": "a", "name": "a.wav", "state": "waiting", "stage": None, "why": None, **times}
    opened_to_tests(page)
    page.evaluate("(job) => { hear(job); showJobs(); }", {**job, "state": "failed", "why": "it is empty"})
    page.route("**/api/recordings", lambda route: route.fulfill(status=201, json={"jobs": [job]}))
    (tmp_path / "a.wav").write_bytes(b"-")
    dropped(page, tmp_path / "a.wav")
    page.wait_for_selector("#jobs", state="hidden")


def test_when_all_that_waits_will_be_done(visit):
    page = visit().page
    page.wait_for_selector("html[data-ready]", state="attached")
    opened_to_tests(page)
    script = """(given) => {
        for (const job of given) hear({ stage: null, share: 0, why: null, ...job });
        showJobs();
        const title = document.getElementById("jobs-title").textContent;
        jobs.clear();
        showJobs();
        return title;
    }"""

    def titled(*states: str, left: int | None = 90, after: int | None = 3600) -> str:
        working = {"seconds_left": left, "seconds_after": after}
        waiting = dict.fromkeys(working)
        given = [
            {"id": f"{n}", "name": f"{n}", "state": state, **(working if state == "working" else waiting)}
            for n, state in enumerate(states)
        ]
        return page.evaluate(script, given)

    assert titled("working", "waiting") == "Being transcribed, all done in about 1 h 2 min"
    assert titled("working", "working", "waiting", after=20) == "Being transcribed, all done in about 2 min"
    for unknown in (titled("working"), titled("working", "waiting", left=None), titled("waiting")):
        assert unknown == "Being transcribed"
    assert titled("working", "waiting", after=None) == "Being transcribed"


def dropped(page, path: Path) -> None:
    """Drop a file on the page, as a person does."""
    given = base64.b64encode(path.read_bytes()).decode()
    page.evaluate(
        """([name, given]) => {
            const bytes = Uint8Array.from(atob(given), (sign) => sign.charCodeAt(0));
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([bytes], name, { type: "audio/wav" }));
            for (const kind of ["dragenter", "dragover", "drop"]) {
                const how = { dataTransfer, bubbles: true, cancelable: true };
                document.body.dispatchEvent(new DragEvent(kind, how));
            }
        }""",
        [path.name, given],
    )


def until(page, again, selector: str) -> None:
    """Do something again until there is what the selector says."""
    deadline = time.monotonic() + 30
    while not page.locator(selector).count():
        assert time.monotonic() < deadline, selector
        again()
        page.wait_for_timeout(200)


def held_back(page, address: str) -> list:
    """The next request to an address, which waits until it is let go: a slow network."""
    waiting = []
    page.route(address, lambda route: waiting.append(route), times=1)
    return waiting


def arrived(page, waiting: list) -> None:
    deadline = time.monotonic() + 20
    while not waiting:
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)


def test_what_is_corrected_while_the_server_works_is_not_lost(visit):
    visitor = visit()
    page = visitor.open()
    waiting = held_back(page, "**/speakers")
    ask_for_one_speaker(page)
    arrived(page, waiting)
    correct(page, page.locator(".w").nth(3), "Zanzibar")
    waiting[0].continue_()
    page.wait_for_selector('dialog[open] :text("Somebody else changed this transcript")')
    page.click('.choice:has-text("Add my corrections")')
    page.wait_for_selector('aside h2:text-is("1 speaker")')
    page.wait_for_selector('.w:text-is("Zanzibar")')
    visitor.forgive("409")


def test_a_new_speaker_is_named_while_somebody_else_adds_one(visit, folder):
    visitor = visit()
    one, other = visitor.open(), visitor.open(visitor.tab())
    waiting = held_back(other, "**/corrections")
    correct(other, other.locator(".w").nth(20), "Zanzibar")
    arrived(other, waiting)
    one.locator(".w").nth(3).click()
    new_speaker(one, "Ann")
    saved(one)
    other.locator(".w").nth(8).click()
    other.keyboard.press("m")
    other.click('.choice:has-text("A new speaker")')
    typed(other, "Ben")
    waiting[0].continue_()
    other.wait_for_selector('aside button.name:text-is("Ann")')
    other.keyboard.press("Enter")
    other.wait_for_selector('aside button.name:text-is("Ben")')
    saved(other)
    names = [one.name for one in store.read(folder / "toned.json").speakers]
    assert {"Ann", "Ben"} < set(names)
    visitor.forgive("409")


def new_speaker(page, name: str) -> None:
    """Of the selected words."""
    page.keyboard.press("m")
    page.click('.choice:has-text("A new speaker")')
    typed(page, name)
    page.keyboard.press("Enter")


def test_what_others_did_takes_nothing_from_whoever_is_at_work(visit):
    """A selection, a click and a name that is typed outlive the news."""
    visitor = visit()
    one, other = visitor.open(), visitor.open(visitor.tab())
    correct(other, other.locator(".w").nth(30), "Zanzibar")
    saved(other)
    one.locator(".w").nth(3).click()
    one.locator(".w").nth(5).click(modifiers=["Shift"])
    one.get_by_label("Rename Speaker 2").click()
    one.keyboard.type("No")
    one.evaluate("dispatchEvent(new Event('focus'))")
    one.wait_for_timeout(500)
    one.keyboard.type("ra")
    one.keyboard.press("Enter")
    one.wait_for_selector('.w:text-is("Zanzibar")')
    assert one.locator(".w.chosen").count() == 3
    assert one.locator('aside button.name:text-is("Nora")').count() == 1
    visitor.forgive("409")
    saved(one)
    # Somebody comes back to the window by a click on a word.
    correct(other, other.locator(".w").nth(31), "Lamu")
    saved(other)
    visitor.forgive("409")
    one.locator(".w").nth(8).hover()
    one.mouse.down()
    one.evaluate("dispatchEvent(new Event('focus'))")
    one.wait_for_timeout(800)
    one.mouse.up()
    opened_to_tests(one)
    assert one.evaluate("globalThis.page.chosen") == [8, 8]
    one.wait_for_selector('.w:text-is("Lamu")')


def test_no_question_comes_between_whoever_types(visit):
    visitor = visit()
    one, other = visitor.open(), visitor.tab()
    other.route("**/t/*/events", lambda route: route.abort())  # it would see at once what the first one does
    visitor.open(other)
    ask_for_one_speaker(one)
    one.wait_for_selector('aside h2:text-is("1 speaker")')
    waiting = held_back(other, "**/corrections")
    correct(other, other.locator(".w").nth(3), "Zanzibar")
    arrived(other, waiting)
    other.locator(".w").nth(8).click()
    other.keyboard.press("e")
    other.keyboard.insert_text("Lamu")
    waiting[0].continue_()
    other.wait_for_selector('#save:has-text("Not saved")')
    other.wait_for_timeout(500)
    other.keyboard.type("1")
    other.keyboard.press("F2")
    other.wait_for_selector('dialog[open] :text("Somebody else changed this transcript")')
    other.click('.choice:has-text("Add my corrections")')
    other.wait_for_selector('aside h2:text-is("1 speaker")')
    for text in ("Zanzibar", "Lamu1"):
        other.wait_for_selector(f'.w:text-is("{text}")')
    visitor.forgive("409")
    visitor.forgive("ERR_FAILED")


def test_the_formats_are_there_at_once(visit):
    """However slow the corrections before are saved."""
    page = visit().open()
    waiting = held_back(page, "**/corrections")
    rename(page, "Speaker 1", "Ann")
    arrived(page, waiting)
    choose_format(page, "srt")
    with page.expect_download() as download:
        page.click(".export .main")
        waiting[0].continue_()
    assert "Ann" in download.value.path().read_text()


def row(n: int, **more) -> dict:
    """A recording in the library."""
    given = {"id": f"{n}", "name": f"talk {n}", "folder": "", "seconds": 60 * n, "speakers": [], "date": None}
    return {**given, "state": "done", "why": None, **more}


def test_the_list_is_what_was_asked_for_last(visit):
    """However slow the answers are, and in whatever order they come."""
    page = visit().page
    page.wait_for_selector("html[data-ready]", state="attached")
    opened_to_tests(page)
    page.evaluate("live.events.close()")
    rows, slow = [row(n) for n in range(1, 251)], []

    def answer(route) -> None:
        asked = parse_qs(urlsplit(route.request.url).query)
        offset, limit = (int(asked[name][0]) for name in ("offset", "limit"))
        found = sorted(rows, key=lambda one: one["seconds"], reverse=asked["sort"] == ["seconds"])
        found = found[offset : offset + limit]
        said = {"total": 250, "all": 250, "recordings": found, "indexed": 250, "untranscribed": 0}
        if asked["sort"] == ["name"]:
            slow.append((route, said))
        else:
            route.fulfill(json=said)

    page.route("**/api/library?*", answer)
    page.evaluate("list()")
    page.click('[data-sort="name"]')
    arrived(page, slow)
    page.click('[data-sort="seconds"]')
    page.wait_for_selector('#rows tbody tr:first-child :text-is("talk 250")')
    for route, said in slow:
        route.fulfill(json=said)
    page.wait_for_timeout(300)
    assert page.inner_text("#rows tbody tr:first-child a") == "talk 250"


def test_a_second_click_cancels_nothing_else(visit, tmp_path):
    visitor = visit()
    page = visitor.page
    page.wait_for_selector("html[data-ready]", state="attached")
    waiting = held_back(page, "**/api/recordings")
    for n in range(4):
        (tmp_path / f"{n}.wav").write_bytes(b"-")
        dropped(page, tmp_path / f"{n}.wav")
    arrived(page, waiting)
    page.locator("#job-list button").nth(1).dblclick()
    assert page.locator("#job-list .name").all_inner_texts() == ["0.wav", "2.wav", "3.wav"]
    page.locator("#job-list button").nth(1).press("Enter")
    page.locator("#job-list button").nth(1).press("Enter")
    assert page.locator("#job-list .name").all_inner_texts() == ["0.wav"]
    assert page.evaluate("document.activeElement.closest('#job-list')?.id") == "job-list"
    page.locator("#job-list button").click()
    visitor.forgive("ERR_")


def test_a_new_connection_takes_no_row_away(visit):
    """As when somebody comes back to the tab: everything is told again, one recording after the other."""
    page = visit().page
    page.wait_for_selector("html[data-ready]", state="attached")
    opened_to_tests(page)
    script = """async () => {
        shown.answered = Infinity;
        const told = (id, state = "waiting") => { hear({ id, name: id, state }); showJobs(); };
        for (const id of ["one", "two", "gone"]) told(id);
        const [, two] = document.querySelectorAll("#job-list button");
        two.focus();
        live.events.dispatchEvent(new Event("open"));
        told("one");
        told("two");
        await new Promise((done) => setTimeout(done, 1200));
        return [document.activeElement === two, document.querySelectorAll("#job-list li").length];
    }"""
    assert page.evaluate(script) == [True, 2]


def test_a_row_keeps_what_has_the_focus_or_is_pressed(visit):
    page = deaf(visit().page)
    page.evaluate("""() => {
        window.rows = (...given) => { shown.recordings = given; shown.total = given.length; showRows(); };
        window.clicked = 0;
        document.addEventListener("click", (event) => { clicked += 1; event.preventDefault(); });
    }""")
    page.evaluate("(one) => rows(one)", row(1))
    link = page.locator("#rows a")
    link.focus()
    link.hover()
    page.mouse.down()
    page.evaluate("(one) => rows(one)", row(1, speakers=["Ann"]))
    page.mouse.up()
    assert page.evaluate("clicked") == 1
    assert page.evaluate("document.activeElement.textContent") == "talk 1"
    assert "Ann" in page.inner_text("#rows")
    page.evaluate("(one) => rows(one)", row(1, speakers=list("abcdefghij")))
    assert page.inner_text("#rows .speakers") == "a, b, c, d, e, f, g, h and 2 more"
    # What is gone leaves the focus to what comes after it, but not to its button.
    page.evaluate("([one, two]) => rows(one, two)", [row(1, state="failed"), row(2, state="failed")])
    page.route("**/api/jobs/*/retry", lambda route: route.fulfill(json={}))
    page.locator("#rows .state button").first.press("Enter")
    page.evaluate("([one, two]) => rows(one, two)", [row(1, state="waiting"), row(2, state="failed")])
    assert "talk 1" in page.evaluate("document.activeElement.textContent")
    page.locator("#rows .state button").focus()
    page.evaluate("(one) => rows(one)", row(1))
    assert page.evaluate("document.activeElement.matches('#rows tr')")


def test_the_player_gives_the_focus_back(visit):
    page = visit().page
    page.wait_for_selector("html[data-ready]", state="attached")
    opened_to_tests(page)
    page.evaluate("""() => {
        const hit = { speaker: "Ann", start: 1, end: 2, pieces: ["", "a", ""] };
        $("found").hidden = false;
        showGroups([{ id: "x", name: "x", folder: "", total: 1, hits: [hit] }]);
        document.querySelector(".hit-row").addEventListener("click", () => { audio.src = ""; });
    }""")
    page.locator(".hit-row").press("Enter")
    page.locator("#close").press("Enter")
    assert page.evaluate("document.activeElement.className") == "hit-row on"
