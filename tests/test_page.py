"""The page: what the file holds, and what a person does with it in a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

import talks
from conftest import CALL
from witness import page, sound, writers
from witness.cli import cli
from witness.schema import Source, Turn, Word

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Scripts(HTMLParser):
    """The script blocks of a page by their type, and the policy."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.blocks: list[tuple[str | None, str]] = []
        self.policy = ""
        self.open = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.open = tag == "script"
        if self.open:
            self.blocks.append((values.get("type"), ""))
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]

    def handle_data(self, data):
        if self.open:
            self.blocks[-1] = (self.blocks[-1][0], self.blocks[-1][1] + data)

    def handle_endtag(self, tag):
        self.open = self.open and tag != "script"

    @property
    def data(self):
        (text,) = [text for kind, text in self.blocks if kind == "application/json"]
        return json.loads(text)


# --- the file ---


def test_one_file_that_asks_for_nothing(tmp_path):
    found = talks.call()
    heard = sound.take(found.audio, [("html", tmp_path / "call.html")])
    text = writers.to_html(found, heard)
    assert text == writers.to_html(found, sound.take(found.audio, [("html", None)]))
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", text)
    scripts = Scripts(text)
    assert [kind for kind, _ in scripts.blocks] == ["application/json", "text/plain", None]
    assert "default-src 'none'" in scripts.policy
    assert "unsafe" not in scripts.policy
    assert scripts.data["words"]["text"][:2] == [" Good", " morning,"]
    assert len(text) < 500_000


def test_hostile_text_stays_inside_its_block():
    nasty = "</script><script>alert(1)</script><!--\u2028\u2029&lt;'\""
    found = talks.transcript(
        [Word(0, 1, f" {nasty}", "SPEAKER_00")], [Turn(0, 1, "SPEAKER_00")], path=f"{nasty}.wav"
    )
    found = replace(found, warnings=(nasty,), speakers=(replace(found.speakers[0], name=nasty),))
    scripts = Scripts(writers.to_html(found))
    assert len(scripts.blocks) == 2
    assert scripts.data["words"]["text"] == [f" {nasty}"]
    assert scripts.data["speakers"] == [["SPEAKER_00", nasty]]


def test_sound_that_is_linked_missing_or_another(tmp_path):
    found = talks.call()
    notes: list[str] = []
    linked = sound.take(found.audio, [("html", tmp_path / "sub" / "a.html")], "link")
    assert linked.opus is None
    assert (tmp_path / "sub" / linked.link).resolve() == CALL
    assert sound.take(found.audio, [("html", None)], "none") is None
    assert sound.take(found.audio, [("txt", None)]) is None
    gone = Source("nowhere/call.flac", 1.0, 1, found.audio.sha256)
    assert sound.take(gone, [("html", None)], note=notes.append) is None
    shutil.copy(CALL, tmp_path)
    assert sound.take(gone, [("html", None)], beside=tmp_path, note=notes.append) is not None
    other = replace(found.audio, sha256="0" * 64)
    assert sound.take(other, [("html", None)], note=notes.append) is None
    assert sound.take(replace(gone, path="-"), [("html", None)], note=notes.append) is None
    assert ["nowhere" in notes[0], "another" in notes[1], "standard input" in notes[2]] == [True] * 3


def test_links_are_urls(tmp_path):
    odd = tmp_path / "a:b #1?%.flac"
    shutil.copy(CALL, odd)
    source = replace(talks.call().audio, path=str(odd))
    link = sound.take(source, [("html", tmp_path / "x.html")], "link").link
    assert link == "./a%3Ab%20%231%3F%25.flac"


# --- corrections come back ---


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A JSON with stages that `redo` makes the call from: two speakers, and words by a model of tones."""
    import numpy as np
    import soundfile

    import ggml
    from witness import Options, transcribe

    folder = tmp_path_factory.mktemp("page")
    samples, rate = soundfile.read(CALL, dtype="float32")
    tone = 0.2 * np.sin(2 * np.pi * ggml.LOW * np.arange(len(samples)) / rate)
    soundfile.write(folder / "toned.wav", samples + tone, rate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WITNESS_CACHE", str(folder / "cache"))
        whisper = ggml.write(folder / "tones.bin")
        options = Options(models="builtin", offline=True, whisper=str(whisper), speakers=2)
        found = transcribe(folder / "toned.wav", options)
    assert len(found.words) > 10
    return folder, found


@pytest.fixture
def case(kept, tmp_path):
    """toned.json, toned.html and the recording in a folder of their own."""
    folder, found = kept
    shutil.copy(folder / "toned.wav", tmp_path)
    source = replace(found.audio, path=str(tmp_path / "toned.wav"))
    found = replace(found, audio=source, stages=replace(found.stages, audio=source))
    files = [("json", tmp_path / "toned.json"), ("html", tmp_path / "toned.html")]
    writers.save(found, files, sound=sound.take(found.audio, files))
    return tmp_path


def redo(*args, code: int = 0) -> str:
    result = CliRunner().invoke(cli, ["redo", *map(str, args)])
    if code:
        assert result.exception.exit_code == code, result.exception
        return str(result.exception)
    assert result.exit_code == 0, result.exception
    return result.output


def test_a_page_from_redo_is_the_page_of_the_run(case):
    before = (case / "toned.html").read_bytes()
    redo(case / "toned.json", "-f", "html", "-q")
    assert (case / "toned.html").read_bytes() == before


def test_a_page_without_the_recording(case):
    (case / "toned.wav").unlink()
    assert "without sound" in redo(case / "toned.json", "-f", "html")
    assert Scripts((case / "toned.html").read_text()).data["peaks"] is None


GOOD = {"kind": "text", "speaker": [], "name": None, "other": [[1.0, 2.0]], "text": "hm"}


@pytest.mark.parametrize(
    "entry",
    [
        {**GOOD, "kind": "shout"},
        {**GOOD, "text": None},
        {**GOOD, "text": "a\nb"},
        {**GOOD, "text": 7},
        {**GOOD, "text": "x" * 10_001},
        {**GOOD, "other": []},
        {**GOOD, "other": [[2.0, 1.0]]},
        {**GOOD, "other": [["a", 1.0]]},
        {**GOOD, "other": [[1.0]]},
        {**GOOD, "other": [[float("nan"), 1.0]]},
        {**GOOD, "speaker": [[1.0, 2.0]]},
        {**GOOD, "name": "Anna"},
        {**GOOD, "kind": "name", "text": None, "name": "a\u202eb", "speaker": [[1, 2]], "other": []},
        {**GOOD, "kind": "merge", "text": None},
        {"kind": "text"},
        "text",
        None,
    ],
)
def test_bad_corrections_are_one_line_and_change_nothing(case, entry):
    before = (case / "toned.json").read_bytes()
    sha256 = json.loads(before)["audio"]["sha256"]
    file = case / "bad.json"
    file.write_text(json.dumps({"schema": page.CORRECTIONS, "sha256": sha256, "corrections": [entry]}))
    message = redo(case / "toned.json", "--corrections", file, code=4)
    assert "bad.json" in message
    assert "\n" not in message
    assert (case / "toned.json").read_bytes() == before


def test_files_that_are_no_corrections(case):
    path, file = case / "toned.json", case / "bad.json"
    for text in ("", "[]", "{}", "null", '{"schema": "witness/1"}', '{"schema": "witness-corrections/1"}'):
        file.write_text(text)
        assert "no corrections" in redo(path, "--corrections", file, code=4)
    file.write_bytes(b"\xff\xfe\x00")
    assert "no corrections" in redo(path, "--corrections", file, code=4)
    file.write_text(json.dumps({"schema": page.CORRECTIONS, "sha256": "0" * 64, "corrections": []}))
    assert "another recording" in redo(path, "--corrections", file, code=4)
    assert "cannot be read" in redo(path, "--corrections", case / "none.json", code=4)


# --- in a browser ---


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium is here; Debian: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not here")
    with playwright.sync_playwright() as driver:
        args = ["--no-sandbox"] if sys.platform == "linux" and os.geteuid() == 0 else []
        args.append("--autoplay-policy=no-user-gesture-required")
        started = driver.chromium.launch(executable_path=CHROMIUM, args=args)
        yield started
        started.close()


class Reader:
    """A page in the browser, and what it complained of."""

    def __init__(self, browser, path: Path, hash_: str = "", **context) -> None:
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._request)
        self.page.goto(path.as_uri() + hash_)
        self.page.wait_for_selector("html[data-ready]", state="attached")

    def _request(self, request) -> None:
        if not request.url.startswith(("file:", "blob:", "data:")):
            self.complaints.append(request.url)

    def said(self) -> list[tuple[str, str]]:
        """(speaker, text) of all paragraphs, by scrolling from the top to the end."""
        script = """async () => {
            const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
            const found = new Map();
            scrollTo(0, 0);
            for (let y = -1; y !== scrollY; ) {
                y = scrollY;
                await frame();
                for (const p of document.querySelectorAll("article.p")) {
                    found.set(Number(p.ariaPosInSet), [
                        p.querySelector(".who .name").textContent, p.querySelector(".said").textContent.trim()]);
                }
                scrollBy(0, 600);
                await frame();
            }
            scrollTo(0, 0);
            await frame();
            return [...found].sort(([a], [b]) => a - b).map(([, pair]) => pair);
        }"""
        return [tuple(pair) for pair in self.page.evaluate(script)]

    def until(self, script: str) -> None:
        """Wait until the expression is true. (The page's policy forbids what Playwright has for this.)"""
        deadline = time.monotonic() + 10
        while not self.page.evaluate(script):
            assert time.monotonic() < deadline, script
            time.sleep(0.05)

    def position(self) -> str:
        return self.page.inner_text("#now")

    def seconds(self) -> float:
        hours, minutes, seconds = self.position().split(":")
        return 3600 * int(hours) + 60 * int(minutes) + float(seconds)

    def word(self, text: str):
        return self.page.locator(f'.w:text-is("{text}")').first

    def save(self, path: Path) -> None:
        with self.page.expect_download() as download:
            self.page.click("#save")
        download.value.save_as(path)


@pytest.fixture
def read(browser, tmp_path):
    readers = []

    def opened(found, name="call.html", how="auto", **context) -> Reader:
        if isinstance(found, Path):
            path = found
        else:
            path = tmp_path / name
            writers.save(found, [("html", path)], sound=sound.take(found.audio, [("html", path)], how))
        readers.append(Reader(browser, path, **context))
        return readers[-1]

    yield opened
    for reader in readers:
        complaints = reader.complaints
        reader.context.close()
        assert not complaints


def test_the_page_groups_words_as_witness_does(read):
    found = talks.call()
    reader = read(found)
    wanted = [(found.name(u.speaker) or "nobody heard", u.text) for u in found.utterances]
    assert reader.said() == wanted


def test_a_clicked_word_is_played(read):
    reader = read(talks.call())
    reader.word("blinking.").click()
    reader.until("document.querySelector('#play').classList.contains('pause')")
    assert 16 <= reader.seconds() <= 17
    reader.until("document.querySelector('#now').textContent >= '00:00:18'")
    assert reader.page.locator(".w.playing").count() == 1
    assert 17 < reader.seconds() < 25
    reader.page.keyboard.press("Space")
    reader.until("!document.querySelector('#play').classList.contains('pause')")


def test_corrections_in_the_page_and_after_redo(read, case):
    reader = read(case / "toned.html")
    before = reader.said()
    first, second = before[0][0], next(name for name, _ in before if name != before[0][0])
    # Rename in place.
    reader.page.get_by_label(f"Rename {first}").click()
    reader.page.keyboard.type("Zoë <b>")
    reader.page.keyboard.press("Enter")
    # Give the first word to the other speaker, by keyboard.
    word = reader.page.locator(".w").first
    word.click()
    reader.page.keyboard.press("m")
    reader.page.get_by_role("button", name=second).last.click()
    # Correct another.
    reader.page.locator(".w").nth(2).dblclick()
    reader.page.fill("#answer", "</script>word's")
    reader.page.keyboard.press("Enter")
    shown = reader.said()
    assert shown != before
    assert any("</script>word's" in text for _, text in shown)
    file = case / "toned.corrections.json"
    reader.save(file)
    assert {entry["kind"] for entry in json.loads(file.read_text())["corrections"]} == {
        "name",
        "move",
        "text",
    }
    redo(case / "toned.json", "--corrections", file, "-f", "html", "-f", "srt", "-q")
    assert read(case / "toned.html").said() == shown
    subtitles = (case / "toned.srt").read_text()
    assert "Zoë <b>:" in subtitles
    assert "</script>word's" in subtitles
    # The same file once more changes nothing, and all of it outlives another number of speakers.
    document = json.loads((case / "toned.json").read_text())
    redo(case / "toned.json", "--corrections", file, "-q")
    again = json.loads((case / "toned.json").read_text())
    assert {**again, "timing": None} == {**document, "timing": None}
    redo(case / "toned.json", "--speakers", "3", "-f", "srt", "-q")
    assert "</script>word's" in (case / "toned.srt").read_text()
    assert "Zoë <b>:" in (case / "toned.srt").read_text()
