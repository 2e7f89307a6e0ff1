"""The page: what the file holds, and what a person does with it in a real browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner
from msgspec import structs

import talks
from axe import faults
from conftest import CALL
from recordings import here, make
from witness.audio import decode, sound
from witness.cli.main import cli
from witness.formats import html, writers
from witness.formats.registry import Format
from witness.options import Part
from witness.progress import Reporter
from witness.schema import Source, Turn, Utterance, Word
from witness.storage import files
from witness.transcript import assemble, corrections, rebuild, store
from witness.transcript.corrections import group_utterances
from witness.web import bundle

# The first has no windows to draw, and takes a fifth of the others' time to open a page.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, (os.environ.get("WITNESS_CHROMIUM", ""), *BROWSERS))), None)
"""The browser of the tests; WITNESS_CHROMIUM names another one."""


OPUS = sound._opus


@pytest.fixture(scope="module", autouse=True)
def encoded_once():
    """The same sound is encoded for the first test only: that takes longer than a test."""
    known = {}

    def encoded(path: str, part: Part, loudest: float, tell: Callable[[float], None]) -> bytes:
        key = files.sha256_at(Path(path)), part, loudest, sound.BITS
        if key not in known:
            known[key] = OPUS(path, part, loudest, tell)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sound, "_opus", encoded)
        yield


@pytest.fixture(scope="module", autouse=True)
def open_to_tests():
    """What the modules of a page export, tests can name; for all others it is out of reach."""
    made = bundle.script

    def opened(entry: str) -> str:
        text, end = made(entry), "})();\n"
        assert text.endswith(end)
        exports = ", ".join(f"${n}" for n, _ in enumerate(bundle.needed(entry)))
        return f"{text.removesuffix(end)}Object.assign(globalThis, {exports});\n{end}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle, "script", opened)
        yield


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
    text = writers.render(found, Format.HTML, heard)
    assert text == writers.render(found, Format.HTML, sound.take(found.audio, [("html", None)]))
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
        [Word(0, 1, f" {nasty}", "SPEAKER_01")], [Turn(0, 1, "SPEAKER_01")], path=f"{nasty}.wav"
    )
    found = replace(found, warnings=(nasty,), speakers=(replace(found.speakers[0], name=nasty),))
    scripts = Scripts(writers.render(found, Format.HTML))
    assert len(scripts.blocks) == 2
    assert scripts.data["words"]["text"] == [f" {nasty}"]
    assert scripts.data["speakers"] == [["SPEAKER_01", nasty]]


def test_sound_that_is_linked_missing_or_another(tmp_path):
    found = talks.call()
    notes: list[str] = []
    linked = sound.take(found.audio, [("html", tmp_path / "sub" / "a.html")], "link")
    assert linked.opus is None
    assert (tmp_path / "sub" / unquote(linked.link)).resolve() == CALL
    assert sound.take(found.audio, [("html", None)], "none") is None
    assert sound.take(found.audio, [("txt", None)]) is None
    gone = Source("nowhere/call.flac", 1.0, 1, found.audio.sha256)
    assert sound.take(gone, [("html", None)], reporter=Reporter(note=notes.append)) is None
    shutil.copy(CALL, tmp_path)
    assert (
        sound.take(gone, [("html", None)], beside=tmp_path, reporter=Reporter(note=notes.append)) is not None
    )
    other = replace(found.audio, sha256="0" * 64)
    assert sound.take(other, [("html", None)], reporter=Reporter(note=notes.append)) is None
    assert sound.take(replace(gone, path="-"), [("html", None)], reporter=Reporter(note=notes.append)) is None
    in_memory = replace(gone, path="<samples>")
    assert sound.take(in_memory, [("html", None)], reporter=Reporter(note=notes.append)) is None
    for note, reason in zip(notes, ("nowhere", "differs", "standard input", "an array"), strict=True):
        assert reason in note


def test_trouble_with_the_sound_costs_no_transcript(tmp_path, monkeypatch):
    found = talks.call()
    notes: list[str] = []
    os.mkfifo(tmp_path / "pipe")
    piped = replace(found.audio, path=str(tmp_path / "pipe"))
    assert sound.take(piped, [("html", None)], reporter=Reporter(note=notes.append)) is None
    monkeypatch.setattr(sound, "BITS", -1)
    assert sound.take(found.audio, [("html", None)], reporter=Reporter(note=notes.append)) is None
    assert all(note.startswith("the page has no sound: ") for note in notes)
    assert len(notes) == 2


def test_a_batch_makes_pages(tmp_path):
    (recording,) = make(tmp_path / "in", 1)
    recording.rename(tmp_path / "in" / "a b.flac")
    here("in", "-o", "out", "-f", "html", "--whisper", "none", "-q", "--html-audio", "link", cwd=tmp_path)
    data = Scripts((tmp_path / "out" / "a b.html").read_text()).data
    assert data["link"] == "../in/a%20b.flac"
    assert not data["listened"]
    assert data["silent"]["start"]


def test_the_date_is_what_the_file_says(tmp_path):
    assert "recorded" not in writers.render(talks.call(), Format.HTML)
    with soundfile.SoundFile(tmp_path / "a.wav", "w", 8000, 1) as file:
        file.date = "2026-03-09"
        file.write(np.zeros(8000))
    source = Source(str(tmp_path / "a.wav"), 1.0, 1, decode.about(str(tmp_path / "a.wav"))[0])
    heard = sound.take(source, [("html", None)])
    assert heard.recorded == "2026-03-09"
    assert "recorded 2026-03-09" in writers.render(talks.call(), Format.HTML, heard)


def test_links_are_urls(tmp_path):
    odd = tmp_path / "a:b #1?%.flac"
    shutil.copy(CALL, odd)
    source = replace(talks.call().audio, path=str(odd))
    link = sound.take(source, [("html", tmp_path / "x.html")], "link").link
    assert link == "./a%3Ab%20%231%3F%25.flac"


# What red-, green- and blue-blind eyes see of linear sRGB: Machado, Oliveira and Fernandes, 2009, severity 1.
EYES = {
    "all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "no blue": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.3039],
    ],
}


def linear(color: str):
    digits = color.lstrip("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    shares = np.array([int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)])
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def oklab(light):
    """Ottosson's, 2020, of linear sRGB."""
    cones = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
    axes = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    return np.cbrt(light @ np.transpose(cones)) @ np.transpose(axes)


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(linear(color) @ (0.2126, 0.7152, 0.0722)) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colors_are_told_apart_by_all_eyes(theme):
    style = bundle.text("web/templates/look.css").split("@media (prefers-color-scheme: dark)")[theme]
    value = dict(re.findall(r"--([\w-]+): (#\w+);", style))
    colors = [value[f"c{n}"] for n in range(10)]
    for eyes in EYES.values():
        seen = oklab(np.clip([linear(color) for color in colors] @ np.transpose(eyes), 0, 1))
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(10, 1)]
        assert apart.min() > 0.1
    for n, color in enumerate(colors):
        assert contrast(color, value["paper"]) >= 3
        assert contrast(color, value[f"on-c{n}"]) >= 4.5
    for text in ("ink", "faint", "accent"):
        assert contrast(value[text], value["paper"]) >= 4.5
    for marked in ("chosen", "playing", "hit", "unsure", "lane"):
        assert contrast(value["ink"], value[marked]) >= 4.5


# --- corrections come back ---


@pytest.fixture(scope="module")
def heard(toned):
    assert len(toned.words) > 10
    return sound.take(toned.audio, [("html", None)])


@pytest.fixture
def case(toned, heard, tmp_path):
    """toned.json, toned.html and the recording in a folder of their own."""
    shutil.copy(toned.audio.path, tmp_path)
    source = replace(toned.audio, path=str(tmp_path / "toned.wav"))
    found = replace(toned, audio=source, findings=replace(toned.findings, audio=source))
    files = [("json", tmp_path / "toned.json"), ("html", tmp_path / "toned.html")]
    store.save(found, files, sound=heard)
    return tmp_path


def redo(*args, code: int = 0) -> str:
    result = CliRunner().invoke(cli, ["redo", *map(str, args)])
    if code:
        assert result.exception.exit_code == code, result.exception
        return str(result.exception)
    assert result.exit_code == 0, result.exception
    return result.output


def test_a_page_from_redo_is_the_page_of_the_run(case, monkeypatch):
    monkeypatch.setattr(sound, "_opus", OPUS)  # encoded again
    before = (case / "toned.html").read_bytes()
    redo(case / "toned.json", "-f", "html", "-q")
    assert (case / "toned.html").read_bytes() == before


def test_a_page_without_the_recording(case):
    (case / "toned.wav").unlink()
    assert "has no sound" in redo(case / "toned.json", "-f", "html")
    assert Scripts((case / "toned.html").read_text()).data["peaks"] is None


GOOD = {"kind": "text", "speaker": [], "name": None, "other": [[1.0, 2.0]], "text": "hm"}


@pytest.mark.parametrize(
    "entry",
    [
        {**GOOD, "kind": "shout"},
        {**GOOD, "kind": "fill", "text": " "},
        {**GOOD, "kind": "fill", "text": None},
        {**GOOD, "kind": "fill", "speaker": [[1.0, 2.0]]},
        {**GOOD, "kind": "new"},
        {**GOOD, "kind": "new", "text": None, "other": []},
        {**GOOD, "kind": "new", "text": None, "name": "Anna"},
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
    file.write_text(json.dumps({"schema": html.CORRECTIONS, "sha256": sha256, "corrections": [entry]}))
    message = redo(case / "toned.json", "--corrections", file, code=4)
    assert "bad.json" in message
    assert "\n" not in message
    assert (case / "toned.json").read_bytes() == before


def test_files_that_are_no_corrections(case):
    path, file = case / "toned.json", case / "bad.json"
    for text in ("", "[]", "{}", "null", '{"schema": "witness/1"}', '{"schema": "witness-corrections/1"}'):
        file.write_text(text)
        assert "does not hold corrections" in redo(path, "--corrections", file, code=4)
    file.write_bytes(b"\xff\xfe\x00")
    assert "does not hold corrections" in redo(path, "--corrections", file, code=4)
    file.write_text(json.dumps({"schema": html.CORRECTIONS, "sha256": "0" * 64, "corrections": []}))
    assert "a different recording" in redo(path, "--corrections", file, code=4)
    assert "cannot be read" in redo(path, "--corrections", case / "none.json", code=4)


# --- in a browser ---


@contextmanager
def chromium(*more):
    if CHROMIUM is None:
        pytest.skip("no Chromium is here; Debian: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not here")
    with playwright.sync_playwright() as driver:
        args = ["--no-sandbox"] if sys.platform == "linux" and os.geteuid() == 0 else []
        args += ["--autoplay-policy=no-user-gesture-required", *more]
        started = driver.chromium.launch(executable_path=CHROMIUM, args=args)
        yield started
        started.close()


@pytest.fixture(scope="module")  # its driver has an event loop in this thread, in which no other can run
def browser():
    with chromium() as started:
        yield started


class Reader:
    """A page in the browser, and what it complained of."""

    def __init__(self, browser, path: Path, hash_: str = "", **context) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **context})
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
                    const [who, said] = [p.querySelector(".who .name"), p.querySelector(".said")];
                    found.set(Number(p.ariaPosInSet), [who.textContent, said.textContent.trim()]);
                }
                scrollBy(0, 600);
                await frame();
            }
            scrollTo(0, 0);
            // The page shows what is seen only, and not at once.
            while (found.size && document.querySelector("article.p")?.ariaPosInSet !== "1") await frame();
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
            heard = sound.take(found.audio, [("html", path)], how)
            store.save(found, [("html", path)], sound=heard)
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
    assert reader.said() == spoken(found)


def test_the_page_cuts_long_paragraphs_as_witness_does(read):
    words = talks.spread(
        "One sentence. And then " + "so on " * 60 + "it ends. " + "Never " * 80, "SPEAKER_01", 0, 150
    )
    found = talks.transcript(words, [Turn(0, 150, "SPEAKER_01")], duration=150.0)
    assert len(found.utterances) == 4
    assert read(found).said() == spoken(found)


def spoken(found) -> list[tuple[str, str]]:
    """Who says what, as the page is to show it: speakers without a name are numbered as they first speak."""
    ids = list(dict.fromkeys(turn.speaker for turn in found.turns))
    names = {one.id: one.name or f"Speaker {1 + ids.index(one.id)}" for one in found.speakers}
    return [(names.get(u.speaker, "nobody heard"), u.text) for u in found.utterances]


@pytest.mark.parametrize("early", [0.0, 1.3, 4.0])
def test_two_tracks_are_grouped_as_witness_does(read, early):
    """The second side answers `early` seconds too soon, so that they talk at the same time."""
    found = talks.call()
    sides = [[word for word in found.words if word.speaker == who] for who in ("SPEAKER_01", "SPEAKER_02")]
    sides[1] = [
        structs.replace(w, start=round(w.start - early, 3), end=round(w.end - early, 3)) for w in sides[1]
    ]
    utterances = sorted(group_utterances(*sides), key=lambda u: (u.start, u.end))
    assert len(utterances) > 20
    found = replace(found, utterances=tuple(utterances))
    assert read(found).said() == spoken(found)


def test_words_that_go_from_right_to_left(read):
    words = talks.spread("שלום לכולם וברוכים הבאים", "SPEAKER_01", 0.0, 4.0)
    reader = read(talks.transcript(words, [Turn(0, 4, "SPEAKER_01")], language="he"), how="none")
    reader.page.locator("#feed .w").first.click()
    reader.page.keyboard.press("ArrowLeft")
    assert reader.page.inner_text(".w.chosen") == "לכולם"


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


def write(page, text: str) -> None:
    """Write in the place of what is selected, and end writing."""
    page.keyboard.insert_text(text)
    page.keyboard.press("F2")


def test_corrections_in_the_page_and_after_redo(read, case):
    reader = read(case / "toned.html")
    before = reader.said()
    first, second = before[0][0], next(name for name, _ in before if name != before[0][0])
    # Rename in place.
    reader.page.get_by_label(f"Rename {first}").click()
    typed(reader.page, "Zoë <b>")
    reader.page.keyboard.press("Enter")
    # Give the first word to the other speaker, by keyboard.
    word = reader.page.locator("#feed .w").first
    word.click()
    reader.page.keyboard.press("m")
    reader.page.get_by_role("button", name=second).last.click()
    # Correct another.
    reader.page.locator("#feed .w").nth(2).dblclick()
    write(reader.page, "</script>word's")
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
    assert "Zoë ‹b›:" in subtitles  # SubRip has markup and no way to escape it
    assert "‹/script›word's" in subtitles
    # The same file once more changes nothing, and all of it outlives another number of speakers.
    document = json.loads((case / "toned.json").read_text())
    redo(case / "toned.json", "--corrections", file, "-q")
    again = json.loads((case / "toned.json").read_text())
    assert {**again, "timing": None} == {**document, "timing": None}
    redo(case / "toned.json", "--speakers", "3", "-f", "srt", "-q")
    assert "‹/script›word's" in (case / "toned.srt").read_text()
    assert "Zoë ‹b›:" in (case / "toned.srt").read_text()


NASTY = (
    "</script><script>window.broken=1</script>",
    "<img src=x onerror=window.broken=1>",
    "<svg/onload=window.broken=1>",
    "\"'><iframe srcdoc='<script>parent.broken=1</script>'>",
    "javascript:window.broken=1",
    "{{7*7}}${7*7}",
    "&lt;b&gt;&amp;",
    "\u202egnorw\u202c",
    "\u05e9\u05dc\u05d5\u05dd",
    "👩\u200d👩\u200d👧\u200d👦🏳️\u200d🌈",
    "\x00\x07\u2028\u2029",
    "x" * 10_000,
)


def test_hostile_text_shows_as_text_and_runs_nothing(read):
    turns = [Turn(n, n + 1, f"SPEAKER_{1 + n:02d}") for n in range(len(NASTY))]
    words = [Word(n, n + 1, f" {text}", f"SPEAKER_{1 + n:02d}", 0.5) for n, text in enumerate(NASTY)]
    name = "<img src=x onerror=window.broken=1>'\"&"
    found = talks.transcript(words, turns, path=f"a/{name}.wav", duration=20.0, language='"><script>')
    speakers = [replace(one, name=text[:90]) for one, text in zip(found.speakers, NASTY, strict=True)]
    found = replace(found, speakers=tuple(speakers), warnings=NASTY)
    reader = read(found)
    page = reader.page
    # What no name may be, and what the page shows instead of it, is the same on both sides.
    shown = dict(reader.said())
    for text in NASTY:
        if "\x00" not in text:
            assert shown[text[:90].strip()] == text.strip()
    assert page.title() == name
    assert page.inner_text("h1") == name
    page.click("#warnings summary")
    assert page.locator(".warnings li").all_inner_texts()[1] == NASTY[1]
    page.click("#facts")
    # Everywhere that text goes: dialogs, search, hints, quotations, print.
    page.locator("#feed .w").first.click()
    for key in ("c", "l", "m"):
        page.keyboard.press(key)
    page.keyboard.press("Escape")
    page.locator("#feed .w").nth(1).dblclick()
    page.keyboard.press("F2")
    page.keyboard.press("/")
    page.fill("#query", "onerror")
    page.locator("button.who").first.click()
    page.keyboard.press("Escape")
    page.hover("#timeline", position={"x": 300, "y": 10})
    page.pdf()
    assert page.evaluate("window.broken") is None
    assert page.locator("img, iframe, svg").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_merge_move_and_undo(read, tmp_path):
    found = talks.call()
    reader = read(found)
    page = reader.page
    before = reader.said()
    page.get_by_label("Merge Speaker 2 with another speaker").click()
    page.locator("#choices").get_by_role("button", name="Speaker 1").click()
    assert {who for who, _ in reader.said()} == {"Speaker 1", "nobody heard"}
    assert page.inner_text("#speakers-title") == "1 speaker"
    assert "100 %" in page.inner_text("#speakers")
    page.click("#undo")
    assert reader.said() == before
    # A whole paragraph, from the menu of its speaker.
    page.locator("button.who").nth(1).click()
    page.get_by_role("button", name="Speaker 1 said this paragraph").click()
    assert reader.said()[0][1].endswith("since last night, Uh-huh.")
    page.keyboard.press("Control+z")
    assert reader.said() == before
    # The tools for a selection are gone with it.
    page.locator("#feed .w").first.click()
    page.locator("#feed .w").nth(2).click(modifiers=["Shift"])
    page.locator("#tools").wait_for()
    page.keyboard.press("Control+Shift+z")
    page.locator("#tools").wait_for(state="hidden")
    assert reader.said() != before
    reader.save(tmp_path / "c.json")
    (entry,) = json.loads((tmp_path / "c.json").read_text())["corrections"]
    assert entry["kind"] == "move"
    assert entry["other"]


def test_the_menu_of_a_speaker_leads_to_who_they_are_the_same_person_as(read):
    page = read(talks.call(), how="none").page
    page.click("article.p button.who >> nth=0")
    # What is chosen is done before the next key, in the same task of the browser.
    script = """async () => {
        const choose = async (text) => {
            [...document.querySelectorAll(".choice")].find((one) => one.textContent.includes(text)).click();
            await null;
        };
        const shown = (id) => document.getElementById(id).textContent;
        await choose("Merge");
        const asked = shown("choose-title");
        await choose("Speaker 2");
        return [asked, shown("speakers-title")];
    }"""
    assert page.evaluate(script) == ["Who is the same person as Speaker 1?", "1 speaker"]
    # The event of the first dialog's closing, which comes later, closes no second.
    page.click("#undo")
    page.click("article.p button.who >> nth=0")
    page.click('.choice:has-text("Merge")')
    page.click('.choice:has-text("Speaker 2")')
    assert page.inner_text("#speakers-title") == "1 speaker"


def test_merged_speakers_are_one_after_redo_too(read, case):
    redo(case / "toned.json", "--speakers", "3", "-f", "html", "-q")
    reader = read(case / "toned.html")
    reader.page.keyboard.press("ArrowDown")
    reader.page.keyboard.press("r")
    typed(reader.page, "Anna")
    reader.page.keyboard.press("Enter")
    reader.page.get_by_label("with another speaker").last.click()
    reader.page.keyboard.press("1")
    shown = reader.page.inner_text("#speakers")
    file = case / "c.json"
    reader.save(file)
    redo(case / "toned.json", "--corrections", file, "-f", "html", "-q")
    after = read(case / "toned.html")
    assert after.page.inner_text("#speakers") == shown
    assert after.page.inner_text("#speakers-title") == "2 speakers"
    assert after.said() == reader.said()


def test_the_keyboard_alone(read):
    reader = read(talks.call(), permissions=["clipboard-read", "clipboard-write"])
    page = reader.page
    clipboard = "navigator.clipboard.readText()"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".w.chosen") == "and"
    assert page.inner_text("#announce") == "and, Speaker 2"
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("c")
    assert page.evaluate(clipboard) == "[00:00:06] Speaker 2: and I have"
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    assert page.evaluate(clipboard) == "[00:00:06] Speaker 2: and I have tried all I can think of."
    page.keyboard.press("l")
    assert re.fullmatch(r"file:///.*/call\.html#t=6\.\d", page.evaluate(clipboard))
    page.keyboard.press("/")
    typed(page, "swItched  it")
    reader.until("document.querySelectorAll('.hit.now').length === 2")
    assert page.locator(".hit.now").all_inner_texts() == ["switched", "it"]
    assert page.inner_text("#hits") == "1 of 1"
    page.keyboard.press("Escape")
    page.locator("#timeline").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#timeline", "aria-valuetext") == "00:00:05"
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()


def test_a_link_to_a_moment_and_the_timeline(browser, tmp_path):
    path = tmp_path / "call.html"
    found = talks.call()
    store.save(found, [("html", path)], sound=sound.take(found.audio, [("html", path)]))
    reader = Reader(browser, path, "#t=40.3")
    assert reader.position() == "00:00:40"
    assert reader.page.inner_text(".w.chosen") == "And"
    assert reader.page.locator(".w.chosen").is_visible()
    box = reader.page.locator("#timeline").bounding_box()
    reader.page.mouse.click(box["x"] + box["width"] - 20, box["y"] + 50)
    reader.until("document.querySelector('#play').classList.contains('pause')")
    assert 59 <= reader.seconds() <= 61
    assert not reader.complaints
    reader.context.close()


def test_a_recording_that_is_linked_and_one_that_is_gone(read, tmp_path):
    shutil.copy(CALL, tmp_path / "a #b.flac")
    found = talks.call()
    found = replace(found, audio=replace(found.audio, path=str(tmp_path / "a #b.flac")))
    reader = read(found, how="link")
    reader.word("blinking.").click()
    reader.until("document.querySelector('#play').classList.contains('pause')")
    reader.until("document.querySelector('#now').textContent >= '00:00:17'")
    reader.context.close()
    (tmp_path / "a #b.flac").unlink()
    reader = Reader(reader.page.context.browser, tmp_path / "call.html")
    reader.until("!document.querySelector('#soundless').hidden")
    assert "a #b.flac" in reader.page.inner_text("#soundless")
    reader.word("Hello.").click()
    assert reader.position() == "00:00:04"
    reader.context.close()


@pytest.mark.parametrize("how", ["embed", "link"])
def test_the_page_of_a_part_plays_the_part(read, tmp_path, how):
    shutil.copy(CALL, tmp_path / "call.flac")
    found = talks.call()
    audio = replace(found.audio, path=str(tmp_path / "call.flac"), part=Part(12.0, 19.0))
    words = [word for word in found.words if 12 <= word.start < 19]
    turns = [turn for turn in found.turns if 12 <= turn.start < turn.end <= 19]
    reader = read(replace(talks.transcript(words, turns), audio=audio), how=how)
    assert reader.position() == "00:00:12"
    assert reader.page.inner_text("#whole").strip() == "/ 00:00:19"
    reader.word("blinking.").click()
    reader.until("document.querySelector('#play').classList.contains('pause')")
    assert 16 <= reader.seconds() <= 17
    assert 4 < reader.page.evaluate("audio.currentTime") - 12 * (how == "link") < 7
    # It stops where the part does, although a linked recording goes on.
    reader.until("!document.querySelector('#play').classList.contains('pause')")
    assert 18.5 <= reader.page.evaluate("page.position") / 1000 <= 20
    reader.page.locator("#timeline").press("Home")
    assert reader.position() == "00:00:12"
    box = reader.page.locator("#timeline").bounding_box()
    reader.page.mouse.click(box["x"] + box["width"] - 12, box["y"] + 50)
    assert 18 <= reader.seconds() <= 19


def test_no_speech_no_words_and_twenty_speakers(read):
    empty = read(talks.transcript((), ()), "empty.html", "none")
    assert empty.said() == []
    assert "No speech" in empty.page.inner_text("#empty")
    for key in ("ArrowRight", "ArrowDown", "Space", "c", "e", "m", "r", "n", ".", "+"):
        empty.page.keyboard.press(key)
    wordless = read(talks.silent(20), "silent.html", "none")
    assert len(wordless.said()) == 80
    assert wordless.said()[1] == ("Speaker 2", "until 00:00:05")
    looks = wordless.page.evaluate("""() => [...document.querySelectorAll("#speakers .chip")].map((chip) => {
        const style = getComputedStyle(chip);
        return [style.backgroundColor, style.boxShadow, chip.textContent].join();
    })""")
    assert len(set(looks)) == 20
    wordless.page.get_by_label("Rename Speaker 20").click()
    typed(wordless.page, "Zoë")
    wordless.page.keyboard.press("Enter")
    assert ("Zoë", "until 00:00:59") in wordless.said()


def test_inaudible_doubtful_and_invented_passages_are_marked(read):
    found = talks.call()
    unheard = Utterance(26.0, 28.5, "SPEAKER_02")
    found = replace(found, utterances=tuple(sorted([*found.utterances, unheard], key=lambda u: u.start)))
    reader = read(found)
    assert reader.page.locator(".inaudible").first.inner_text() == "[inaudible] 3 s"
    assert reader.page.locator("#feed .ghost").all_inner_texts() == ["Thanks", "for", "watching."]
    assert "Uh-huh." in reader.page.locator("#feed .unsure").all_inner_texts()


def test_doubtful_words_on_a_slider_and_by_a_key(read):
    found = talks.call()
    first, second, *others = found.utterances
    told = [structs.replace(word, probability=0.95) for word in first.words]
    told[1] = structs.replace(told[1], probability=0.3)
    told[-1] = structs.replace(told[-1], probability=0.7)
    said = (replace(first, words=tuple(told)), second, *others)
    reader = read(replace(found, utterances=said))
    slider, marked = reader.page.locator("#doubts"), reader.page.locator("#feed .doubt")
    texts = [told[1].text.strip(), told[-1].text.strip()]
    assert marked.all_inner_texts() == texts[:1]
    assert marked.first.get_attribute("title") == "30 % certain what was said"
    slider.fill("2")
    assert marked.all_inner_texts() == texts
    reader.page.locator("#text").focus()
    chosen = reader.page.locator("#feed .chosen")
    for key, expected in (("d", 0), ("d", 1), ("d", 0), ("Shift+D", 1)):
        reader.page.keyboard.press(key)
        assert chosen.all_inner_texts() == [texts[expected]]
    slider.fill("0")
    assert marked.count() == 0
    reader.page.reload()
    reader.until("document.documentElement.dataset.ready === 'yes'")
    assert (slider.input_value(), marked.count()) == ("0", 0)


def test_words_without_probabilities_have_no_slider(read):
    assert read(talks.call()).page.locator("#doubting").is_hidden()


def test_each_paragraph_is_in_its_language(read):
    found = talks.call()
    first, second, *others = found.utterances
    said = (
        replace(first, words=tuple(structs.replace(word, language="fr") for word in first.words)),
        replace(second, words=tuple(structs.replace(word, language="he") for word in second.words)),
        *others,
    )
    reader = read(replace(found, utterances=said))
    paragraphs = reader.page.locator("#feed p.said")
    ways = [(one.get_attribute("lang"), one.get_attribute("dir")) for one in paragraphs.all()[:3]]
    assert ways == [("fr", "auto"), ("he", "rtl"), ("en", "auto")]


def test_inaudible_speech_of_nobody_in_particular(read):
    found = talks.call()
    unheard = Utterance(26.0, 28.2, None)
    reader = read(
        replace(found, utterances=tuple(sorted([*found.utterances, unheard], key=lambda u: u.start)))
    )
    passage = reader.page.locator("article", has=reader.page.locator(".inaudible"))
    assert passage.locator(".name").inner_text() == "unknown"
    passage.locator("button.who").click()
    assert reader.page.locator("#choices .name").all_inner_texts() == ["Write what was said…"]
    reader.page.keyboard.press("Escape")
    # It is to be known who said what somebody writes there.
    passage.get_by_role("button", name="write what was said").click()
    typed(reader.page, "Wait a moment.")
    reader.page.keyboard.press("Enter")
    reader.until("document.querySelector('#choose[open] h2')?.textContent === 'Who said it?'")
    reader.page.keyboard.press("Escape")
    assert passage.count() == 1
    passage.locator(".inaudible").dblclick()
    typed(reader.page, "Wait a moment.")
    reader.page.keyboard.press("Enter")
    reader.page.locator("#choices").get_by_role("button", name="Speaker 2").click()
    assert [who for who, said in reader.said() if "Wait a moment." in said] == ["Speaker 2"]
    assert reader.page.locator(".inaudible").count() == 2  # in the list of marks
    reader.page.click("#undo")
    assert passage.count() == 1


def test_a_phone_and_a_print(read):
    reader = read(talks.call(), is_mobile=True, has_touch=True)
    page = reader.page
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    # What can be done with corrections is in the line of the player.
    page.set_viewport_size({"width": 390, "height": 844})
    before = page.evaluate("barHeight()")
    page.evaluate("take({ kind: 'name', who: 0, name: 'Laura' })")
    assert page.locator("#undo").is_visible()
    assert page.evaluate("barHeight()") == before
    page.tap("#undo")
    page.locator("button.who").first.tap()
    assert page.locator("#choices .choice").first.is_visible()
    assert not page.locator("#choices kbd").first.is_visible()
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 1200, "height": 900})
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("article.p").count() == len(talks.call().utterances)
    assert not page.locator("#bar").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    assert reader.said()[0][0] == "Speaker 1"


def test_twelve_hours_of_words(read):
    """The figures are for benchmarks/page.py; here only what is far from them fails."""
    found = talks.long(120_000, 12.0)
    begun = time.process_time()  # which does not depend on what else the machine does
    reader = read(found, "long.html", "none")
    assert time.process_time() - begun < 10
    page = reader.page
    assert page.locator("article.p").count() < 40
    assert Path(page.url.removeprefix("file://")).stat().st_size < 25e6
    last = found.words[-1].text.strip()
    page.keyboard.press("/")
    typed(page, f"{found.words[-2].text.strip()} {last}")
    reader.until("document.querySelectorAll('.hit.now').length === 2")
    assert page.locator(".hit.now").all_inner_texts() == [found.words[-2].text.strip(), last]
    assert page.evaluate("scrollY") > 100_000
    page.evaluate("location.hash = '#t=21600'")
    reader.until("document.querySelector('#now').textContent === '06:00:00'")
    page.wait_for_selector(".w.chosen")


def test_every_control_has_a_name(read):
    reader = read(talks.call())
    nameless = """() => [
        ...document.querySelectorAll("button, input, select, canvas, dialog, [role]")].filter(
        (one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.[0]?.textContent.trim()
            || one.getAttribute("aria-labelledby"))).map((one) => one.outerHTML)"""
    allowed = ('id="hits"', 'id="toast"', '-trouble"')
    assert [one for one in reader.page.evaluate(nameless) if not any(id_ in one for id_ in allowed)] == []
    assert reader.page.get_attribute("html", "lang") == "en"
    for landmark in ("main", "aside", "header.masthead", "body > footer"):
        assert reader.page.locator(landmark).count() == 1


def typed(page, text: str) -> None:
    """Type into a field once one has the focus: a dialog asks for it a moment after the click."""
    page.wait_for_selector(":is(input, textarea, [contenteditable]):focus")
    page.keyboard.type(text)


def rename(reader, who: str, name: str) -> None:
    # At once: the page may still be scrolling to what was chosen before.
    reader.page.get_by_label(f"Rename {who}").dispatch_event("click")
    typed(reader.page, name)
    reader.page.keyboard.press("Enter")


def test_keys_where_the_keyboard_has_other_letters(read):
    page = read(talks.call()).page
    press = """(given) => document.body.dispatchEvent(
        new KeyboardEvent("keydown", { ...given, bubbles: true, cancelable: true }))"""
    page.evaluate("take({ kind: 'name', who: 0, name: 'Laura' })")
    page.evaluate(press, {"key": "я", "code": "KeyZ", "ctrlKey": True})
    assert page.get_by_label("Rename Speaker 1").is_visible()
    page.evaluate(press, {"key": "Я", "code": "KeyZ", "ctrlKey": True, "shiftKey": True})
    assert page.get_by_label("Rename Laura").is_visible()
    page.evaluate(press, {"key": "w", "code": "KeyZ", "ctrlKey": True})  # a letter is what it says
    assert page.get_by_label("Rename Laura").is_visible()


def test_speakers_are_named_one_after_the_other(read):
    """Whoever leaves the field by the mouse or with Tab gets to what was meant: it is not drawn anew."""
    reader = read(talks.call())
    page = reader.page
    page.get_by_label("Rename Speaker 1").click()
    typed(page, "Laura")
    page.get_by_label("Rename Speaker 2").click()
    page.wait_for_selector('input[aria-label="Name of Speaker 2"]:focus')
    page.keyboard.type("Nora")
    page.locator("#feed .w").nth(2).click()
    page.wait_for_selector("#feed .w.chosen")
    assert {name for name, _ in reader.said()} == {"Laura", "Nora", "nobody heard"}
    page.get_by_label("Rename Laura").click()
    typed(page, "Lara")
    page.keyboard.press("Tab")
    page.wait_for_selector('[aria-label="Merge Lara with another speaker"]:focus')
    assert page.locator("#feed .w.chosen").count() == 1  # a name changes nothing else
    assert page.locator("article.p").first.get_attribute("aria-label").startswith("Lara, ")
    assert {one.strip() for one in page.locator("button.who .chip").all_inner_texts()} == {"L", "N", "–"}
    page.keyboard.press("Control+z")
    assert {name for name, _ in reader.said()} == {"Laura", "Nora", "nobody heard"}


def reload(reader) -> None:
    reader.page.reload()
    reader.page.wait_for_selector("html[data-ready]", state="attached")


KEPT = "Object.keys(localStorage).filter((key) => key.startsWith('witness-draft'))"


def test_enter_begins_a_paragraph_and_backspace_joins_it_also_after_redo(read, case):
    reader = read(case / "toned.html")
    page = reader.page
    before = reader.said()
    long = next(n for n, (_, text) in enumerate(before) if len(text.split()) > 3)
    page.click("#write")
    third = page.locator("article.p").nth(long).locator(".w").nth(2)
    third.click()
    page.keyboard.press("ArrowDown")  # in one line: to the next paragraph, and back
    page.keyboard.press("ArrowUp")
    third.click()
    page.keyboard.press("Enter")
    shown = reader.said()
    who, text = before[long]
    assert len(shown) == len(before) + 1
    assert [name for name, _ in shown[long : long + 2]] == [who, who]
    assert " ".join(said for _, said in shown[long : long + 2]) == text
    page.locator(".said").nth(long).click()
    page.keyboard.press("Control+End")
    page.keyboard.press("Delete")  # joined, as by Backspace at the beginning of the other
    assert reader.said() == before
    # What somebody else says goes to the one above.
    page.locator("article.p").nth(1).locator(".w").first.click()
    page.keyboard.press("Control+Home")
    page.keyboard.press("Backspace")
    shown = reader.said()
    assert shown[0] == (before[0][0], f"{before[0][1]} {before[1][1]}")
    file = case / "c.json"
    reader.save(file)
    kinds = [entry["kind"] for entry in json.loads(file.read_text())["corrections"]]
    assert kinds == ["split", "join", "move", "join", "split"]
    redo(case / "toned.json", "--corrections", file, "-f", "html", "-q")
    assert read(case / "toned.html").said() == shown


def test_unsaved_corrections_outlive_a_reload(read, tmp_path):
    reader = read(talks.call())
    page = reader.page
    before = reader.said()
    rename(reader, "Speaker 1", "Laura")
    page.locator("#feed .w").first.click()
    page.keyboard.press("m")
    page.get_by_role("button", name="A new speaker").click()
    page.keyboard.press("Enter")
    page.locator("#feed .w").nth(3).dblclick()
    write(page, "now")
    shown = reader.said()
    assert {"Laura", "Speaker 3"} < {who for who, _ in shown}
    reload(reader)
    reader.until("document.querySelector('#toast').textContent.includes('Your corrections from before')")
    assert reader.said() == shown
    reader.save(tmp_path / "c.json")
    kinds = [entry["kind"] for entry in json.loads((tmp_path / "c.json").read_text())["corrections"]]
    assert kinds == ["name", "new", "text"]
    # Once they are in a file, the browser has nothing of them any more.
    assert page.evaluate(KEPT) == []
    reload(reader)
    assert reader.said() == before


NO_DRAFTS = (
    "x",
    "[]",
    '{"steps": 7, "base": [], "sent": []}',
    '{"steps": [[{"kind": "name", "who": 9, "name": "a"}]], "base": [], "sent": []}',
    '{"steps": [[{"kind": "name", "who": 0, "name": "a\\u202eb"}]], "base": [], "sent": []}',
    '{"steps": [[{"kind": "merge", "who": 0, "gone": -1}]], "base": [], "sent": []}',
    '{"steps": [[{"kind": "text", "text": "a", "pieces": [["a", "b"]]}]], "base": [], "sent": []}',
    '{"steps": [[{"kind": "fill", "text": "a", "gap": 0}]], "base": [], "sent": []}',
    '{"steps": [[{"kind": "new", "who": 5, "pieces": [[1, 2]]}]], "base": [], "sent": []}',
    '{"steps": [[{"kind": "shout"}]], "base": [], "sent": []}',
)


def test_a_draft_that_is_none_is_ignored(read):
    reader = read(talks.call())
    before = reader.said()
    for draft in NO_DRAFTS:
        rename(reader, "Speaker 1", "Laura")
        reader.page.evaluate(f"localStorage.setItem({KEPT}[0], {json.dumps(draft)})")
        reload(reader)
        assert reader.said() == before, draft
        assert reader.page.locator("#save").is_disabled(), draft


def test_drafts_of_other_pages_are_theirs(read):
    reader = read(talks.call())
    rename(reader, "Speaker 1", "Laura")
    reader.until(f"{KEPT}.length === 1")
    other = Path(reader.page.url.removeprefix("file://")).with_name("other.html")
    found = talks.call()
    store.save(replace(found, words=found.words[1:], utterances=found.utterances[1:]), [("html", other)])
    reader.page.goto(other.as_uri())
    reader.page.wait_for_selector("html[data-ready]", state="attached")
    assert "Laura" not in reader.page.inner_text("#speakers")
    reader.page.go_back()
    reader.until("document.documentElement.dataset.ready === 'yes'")
    assert "Laura" in reader.page.inner_text("#speakers")


def test_corrections_that_the_browser_cannot_keep_are_not_lost_in_silence(read, tmp_path):
    reader = read(talks.call())
    reader.page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('none'); }})"
    )
    reload(reader)
    rename(reader, "Speaker 1", "Laura")
    asked = []
    reader.page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    reader.page.close(run_before_unload=True)
    deadline = time.monotonic() + 5
    while not asked and time.monotonic() < deadline:
        reader.page.wait_for_timeout(50)
    assert asked == ["beforeunload"]
    reader.save(tmp_path / "c.json")
    assert json.loads((tmp_path / "c.json").read_text())["corrections"][0]["name"] == "Laura"


def test_a_new_speaker_is_one_after_redo_too(read, case):
    reader = read(case / "toned.html")
    page = reader.page
    number = next(n for n, (_, said) in enumerate(reader.said()) if n > 3 and len(said.split()) > 2)
    page.locator(f'article.p[aria-posinset="{number + 1}"] button.who').click()
    page.get_by_role("button", name="A new speaker said this paragraph").click()
    typed(page, "Maria")
    page.keyboard.press("Enter")
    shown = reader.said()
    assert shown[number][0] == "Maria"
    # What came later is about the new speaker, too: another word, another name.
    page.locator("#feed .w").last.click()
    page.keyboard.press("m")
    page.locator("#choices").get_by_role("button", name="Maria").click()
    rename(reader, "Maria", "Marie")
    shown, list_ = reader.said(), page.inner_text("#speakers")
    assert shown[number][0] == shown[-1][0] == "Marie"
    file = case / "c.json"
    reader.save(file)
    redo(case / "toned.json", "--corrections", file, "-f", "html", "-f", "rttm", "-q")
    after = read(case / "toned.html")
    assert after.said() == shown
    assert after.page.inner_text("#speakers") == list_
    assert " SPEAKER_03 " in (case / "toned.rttm").read_text()
    # A name for what is now a speaker like all others goes to no other, whatever their number.
    redo(case / "toned.json", "--name", "Marie=Mary", "-q")
    redo(case / "toned.json", "--speakers", "3", "-q")
    speakers = json.loads((case / "toned.json").read_text())["speakers"]
    assert [(one["id"], one["name"]) for one in speakers if one["name"]] == [("SPEAKER_04", "Mary")]


@pytest.fixture
def gaps(case, toned):
    """As `case`, with speech in which no words were recognized; those utterances."""
    (track,) = toned.findings.tracks
    kept = tuple(
        word for word in track.recognition.words if not (8 < word.start < 14 or 30 < word.start < 50)
    )
    heard = replace(
        toned.findings, tracks=(replace(track, recognition=replace(track.recognition, words=kept)),)
    )
    found = corrections.apply(assemble.make_draft(heard, toned.asked))
    store.save(found, [("json", case / "toned.json"), ("html", case / "toned.html")])
    return [utterance for utterance in found.utterances if not utterance.words]


def test_what_was_said_where_no_word_was_recognized_is_there_after_redo_too(read, case, gaps):
    assert gaps[-1].speaker
    reader = read(case / "toned.html")
    reader.page.get_by_role("button", name="write what was said").last.click()
    write(reader.page, "It never came, and <b>nobody</b> picked up the phone.")
    assert reader.page.inner_text(".w.fixed") == "It never came, and <b>nobody</b> picked up the phone."
    # The new words are words like all others.
    reader.page.click(".w.fixed")
    reader.page.keyboard.press("m")
    reader.page.keyboard.press("1")
    reader.page.locator("#feed .w.fixed").last.dblclick()
    write(reader.page, "It came, and somebody picked up the phone.")
    shown = reader.said()
    assert any("somebody picked up" in said for _, said in shown)
    file = case / "c.json"
    reader.save(file)
    kinds = [entry["kind"] for entry in json.loads(file.read_text())["corrections"]]
    assert kinds == ["fill", "move", "text"]
    redo(case / "toned.json", "--corrections", file, "-f", "html", "-f", "srt", "-q")
    assert read(case / "toned.html").said() == shown
    assert "somebody" in (case / "toned.srt").read_text()
    assert redo(case / "toned.json", "-q").count("[inaudible]") == len(gaps) - 1


ANY_CORRECTIONS = """(seed) => {
    const random = (below) => {
        seed = (seed * 16807) % 2147483647;
        return Math.floor((seed / 2147483647) * below);
    };
    const one = (list) => list[random(list.length)];
    edits.adopt([]);
    deriveNow();
    for (let left = 1 + random(6); left > 0; left -= 1) {
        const { order, speakers } = page;
        const from = random(order.length);
        const pieces = piecesOf(transcript, order.slice(from, from + 1 + random(8)));
        const who = one(speakers).who, gone = one(speakers).who;
        const gap = one(silent.start.map((_, n) => n));
        edits.take([one([
            { kind: "name", who, name: `N${left}` },
            who === gone ? { kind: "name", who, name: "N" } : { kind: "merge", who, gone },
            { kind: "move", who, pieces },
            { kind: "new", who: countAll(transcript, edits.steps.flat()), pieces },
            { kind: "text", text: one(["", "one two", "x."]), pieces },
            { kind: "fill", gap, text: `said ${left}` },
        ])]);
        deriveNow();
    }
    const said = page.paragraphs.map(({ who, words }) => [
        who < 0 ? null : last(page.same, who), page.names[who] ?? null,
        words.map((w) => page.texts[w]).join("").trim(),
    ]);
    return { file: JSON.stringify(corrections()), said };
}"""


def test_the_page_shows_what_redo_will_make(read, case, gaps):
    """Any corrections, in any order."""
    assert len(gaps) > 1
    reader = read(case / "toned.html")
    saved = rebuild.read(case / "toned.json")
    kinds = set()
    for seed in range(1, 40):
        shown = reader.page.evaluate(ANY_CORRECTIONS, 7919 * seed)
        (case / "c.json").write_text(shown["file"])
        given = rebuild.read_corrections(saved, case / "c.json")
        kinds |= {correction.kind for correction in given}
        found = rebuild.rebuild(saved, given)
        names = {one.id: one.name for one in found.speakers}
        said = [[u.speaker, names.get(u.speaker), (u.text or "").strip()] for u in found.utterances]
        assert [part[1:] for part in said] == [part[1:] for part in shown["said"]], given
        # The same speakers, whatever they are called on each side.
        pairs = {(one[0], other[0]) for one, other in zip(said, shown["said"], strict=True)}
        assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs}), given
    assert kinds == {"name", "merge", "move", "new", "text", "fill"}


def test_find_and_replace(read, tmp_path):
    reader = read(talks.call())
    page = reader.page
    before = [text for _, text in reader.said()]
    page.click("#find")
    typed(page, "the")
    reader.until("document.querySelector('#hits').textContent === '1 of 6'")
    # One match, and on to the next: the case of what is searched for does not matter, that of the other does.
    page.fill("#by", "$&A")
    page.keyboard.press("Enter")
    assert page.inner_text("#hits") == "1 of 5"
    assert "at $&A service desk" in reader.said()[0][1]
    page.click("#undo")
    page.fill("#query", "THE")
    page.fill("#by", "the the")
    page.click("#replace-all")
    assert "Replaced in 6 places" in page.inner_text("#toast")
    wanted = [re.sub("the", "the the", text, flags=re.IGNORECASE) for text in before]
    assert [text for _, text in reader.said()] == wanted
    page.click("#undo")
    assert [text for _, text in reader.said()] == before
    # Several words: each keeps its time if there are as many; all go if nothing is left.
    page.fill("#query", "service  desk")
    page.fill("#by", "Servants desk")
    page.click("#replace-all")
    reader.save(tmp_path / "c.json")
    (entry,) = json.loads((tmp_path / "c.json").read_text())["corrections"]
    assert (entry["kind"], entry["text"], len(entry["other"])) == ("text", "Servants", 1)
    page.fill("#query", "morning, this")
    page.fill("#by", "")
    page.click("#replace-all")
    assert reader.said()[0][1].startswith("Good is Laura")
    page.keyboard.press("Escape")
    assert not page.locator("#search").is_visible()


def test_where_the_selection_is_its_tools_are_too(read):
    reader = read(talks.long(600, 0.1), "long.html", "none")
    inside = """() => {
        const box = document.querySelector("#tools").getBoundingClientRect();
        const at = (y) => document.elementFromPoint(box.left + box.width / 2, y)?.closest("#tools");
        return Boolean(at(box.top + 2) && at(box.bottom - 2));
    }"""
    for scrolled, first, last in ((0, 0, 3), (40, 0, 3), (40, 0, 400), (900, 200, 203)):
        reader.page.evaluate(f"scrollTo(0, {scrolled})")
        reader.page.evaluate(f"choose({first}, {last}, {{view: {'true' if first else 'false'}}})")
        reader.page.wait_for_timeout(600)
        reader.page.evaluate("showTools()")
        assert reader.page.evaluate(inside), (scrolled, first, last)


@pytest.mark.parametrize(("size", "most"), [((1280, 800), 0.3), ((390, 844), 0.36)], ids=["desk", "phone"])
def test_the_text_begins_near_the_top(read, size, most):
    speakers = [Turn(n, n + 1.0, f"SPEAKER_{1 + n:02d}") for n in range(4)]
    words = [Word(n, n + 1.0, " word", f"SPEAKER_{1 + n:02d}", 0.9) for n in range(4)]
    notes = ("using the builtin speaker models, because no others could be fetched: " * 3,) * 6
    reader = read(talks.transcript(words, speakers, path=f"{'a long name ' * 10}.wav", warnings=notes))
    reader.page.set_viewport_size({"width": size[0], "height": size[1]})
    reader.page.wait_for_timeout(100)
    top = reader.page.evaluate("document.querySelector('#feed .w').getBoundingClientRect().top")
    assert top / size[1] < most
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= size[0]
    reader.page.click("#warnings summary")
    assert reader.page.locator(".warnings li").nth(5).is_visible()
    reader.page.click("#facts")
    assert not reader.page.locator(".warnings li").first.is_visible()


def test_help_opens_at_its_top(read):
    reader = read(talks.call())
    reader.page.set_viewport_size({"width": 600, "height": 400})
    reader.page.keyboard.press("?")
    assert reader.page.evaluate("document.querySelector('#keys').scrollTop") == 0
    assert reader.page.evaluate("document.querySelector('#keys').scrollHeight") > 400


def test_light_and_dark(read):
    reader = read(talks.call(), color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = reader.page.evaluate(paper)
    reader.page.emulate_media(color_scheme="dark")
    dark = reader.page.evaluate(paper)
    assert light != dark
    reader.page.select_option("#colors", "light")
    assert reader.page.evaluate(paper) == light
    reader.page.emulate_media(color_scheme="light")
    reader.page.select_option("#colors", "dark")
    assert reader.page.evaluate(paper) == dark
    reload(reader)
    assert reader.page.evaluate(paper) == dark
    assert reader.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    reader.page.select_option("#colors", "")
    assert reader.page.evaluate(paper) == light


def test_a_dialog_closes_by_a_click_beside_it_only(read):
    """A click at its edge, or a text selected from inside to beside it, cost what had been typed."""
    page = read(talks.call(), how="none").page
    page.locator("#feed .w").first.click()
    page.keyboard.press("r")
    typed(page, "Bad")
    box, field = page.locator("#ask").bounding_box(), page.locator("#answer").bounding_box()
    page.mouse.click(box["x"] + 6, box["y"] + 6)
    page.mouse.move(field["x"] + 40, field["y"] + 10)
    page.mouse.down()
    page.mouse.move(5, field["y"] + 10, steps=3)
    page.mouse.up()
    assert page.input_value("#answer") == "Bad"
    assert page.locator("#ask").is_visible()
    page.mouse.click(5, 5)
    assert not page.locator("#ask").is_visible()


def test_a_choice_is_made_only_by_who_makes_it(read):
    page = read(talks.long(300, 0.05), how="none").page
    page.locator("#feed .w").first.click()
    page.keyboard.press("m")
    page.keyboard.press("Control+1")  # the first tab of the browser
    assert page.locator("#choose").is_visible()
    page.keyboard.press("Escape")
    # The second click of two does not answer the next question.
    page.locator("button.who").first.click()
    page.locator('.choice:has-text("Merge")').click()
    page.locator(".choice").first.hover()
    page.mouse.down(click_count=2)
    page.mouse.up(click_count=2)
    assert page.locator("#choose").is_visible()
    assert page.evaluate("edits.steps") == []
    page.locator(".choice").first.click()
    assert page.inner_text("#speakers-title") == "3 speakers"


def test_a_name_is_taken_whole(read, tmp_path):
    reader = read(talks.call(), how="none")
    page = reader.page
    page.get_by_label("Rename Speaker 1").click()
    typed(page, "ta")
    enter = "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true})"
    page.evaluate(f"document.activeElement.dispatchEvent({enter})")  # ends a word of Japanese, say
    page.keyboard.type("naka")
    page.keyboard.press("Enter")
    assert {name for name, _ in reader.said()} == {"tanaka", "Speaker 2", "nobody heard"}
    # What cannot be a name is there to be mended.
    page.get_by_label("Rename tanaka").click()
    typed(page, "x" * 101)
    page.keyboard.press("Enter")
    assert "A name has" in page.inner_text("#toast")
    page.keyboard.press("Backspace")
    with page.expect_download() as download:
        page.keyboard.press("Control+s")  # saves the name that is being typed
    download.value.save_as(tmp_path / "c.json")
    names = [entry["name"] for entry in json.loads((tmp_path / "c.json").read_text())["corrections"]]
    assert names == ["tanaka", "x" * 100]


@pytest.mark.parametrize(
    ("width", "height", "share"), [(1280, 720, 0.34), (390, 844, 0.21), (640, 360, 0.45)], ids=str
)
def test_the_lanes_of_many_speakers_are_scrolled(read, width, height, share):
    """On a screen, on a telephone, and on a screen at twice the size, where the bar scrolls away."""
    found = talks.silent(33)
    page = read(found, how="none", viewport={"width": width, "height": height}).page
    assert page.locator("#bar").bounding_box()["height"] <= share * height
    lanes = page.get_by_role("group", name="33 speakers")
    before = page.evaluate("document.getElementById('timeline').toDataURL()")
    page.keyboard.press("Home")
    for _ in range(40):
        if page.evaluate("document.activeElement.id") == "lanes":
            break
        page.keyboard.press("Tab")
    else:
        raise AssertionError("the keyboard does not get to the lanes")
    page.keyboard.press("End")
    for _ in range(100):  # it glides; the page's policy allows no wait_for_function
        if page.evaluate("lanes.scrollTop + lanes.clientHeight > lanes.scrollHeight - 1"):
            break
        page.wait_for_timeout(50)
    else:
        raise AssertionError("the last lane is not reached")
    page.evaluate("() => new Promise(requestAnimationFrame)")
    assert page.evaluate("document.getElementById('timeline').toDataURL()") != before
    assert reader_time(page) == "00:00:00"  # they are no keys of the player
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert reader_time(page) == "00:00:05"  # the timeline itself has them as before
    assert lanes.count() == 1
    assert not faults(page)


def test_the_lanes_of_a_few_speakers_are_not(read):
    page = read(talks.call(), how="none").page
    assert page.get_attribute("#lanes", "tabindex") is None
    assert page.evaluate("lanes.scrollHeight === lanes.clientHeight")


def reader_time(page) -> str:
    return page.inner_text("#now")


def test_other_buttons_of_the_mouse_and_fingers_do_not_seek(read):
    reader = read(talks.call())
    page = reader.page
    box = page.locator("#timeline").bounding_box()
    page.mouse.click(box["x"] + 600, box["y"] + 20, button="right")
    page.mouse.move(box["x"] + 700, box["y"] + 20)
    assert reader.position() == "00:00:00"
    # A swipe that scrolls the page begins as a touch.
    page.evaluate("""() => {
        const canvas = document.getElementById("timeline");
        canvas.setPointerCapture = () => {};
        for (const kind of ["pointerdown", "pointercancel"]) {
            canvas.dispatchEvent(new PointerEvent(kind, { clientX: 600, clientY: 90, bubbles: true }));
        }
    }""")
    assert reader.position() == "00:00:00"
    assert page.evaluate("audio.paused")


def test_words_are_selected_by_dragging_out_of_the_text_too(read):
    page = read(talks.call(), how="none").page
    start, end = (page.locator(one).first.bounding_box() for one in ("#feed .w >> nth=5", "h1"))
    page.mouse.move(start["x"] + start["width"] / 2, start["y"] + 8)
    page.mouse.down()
    page.mouse.move(end["x"] + 2, end["y"] + 4, steps=4)
    page.mouse.up()
    page.wait_for_selector("#tools:not([hidden])")
    assert page.locator(".w.chosen").count() == 6


def test_the_page_does_not_scroll_from_under_the_mouse(read):
    reader = read(talks.call())
    page = reader.page
    page.set_viewport_size({"width": 1200, "height": 500})
    page.wait_for_timeout(100)
    low = """[...document.querySelectorAll("#feed .w")].findIndex((one) => {
        const box = one.getBoundingClientRect();
        return box.bottom > innerHeight - 60 && box.bottom < innerHeight - 5;
    })"""
    word = page.locator("#feed .w").nth(page.evaluate(low))
    text, box = word.inner_text(), word.bounding_box()
    # A busy machine may be slow with the second click; so is the clock.
    page.evaluate("performance.now = () => Performance.prototype.now.call(performance) / 20")
    page.mouse.move(box["x"] + 5, box["y"] + 8)
    for count in (1, 2):
        page.mouse.down(click_count=count)
        page.wait_for_timeout(80)
        page.mouse.up(click_count=count)
        page.wait_for_timeout(150)
    assert page.evaluate("getSelection().toString()") == text
    page.keyboard.press("F2")
    page.evaluate("delete performance.now")
    # Nor from whoever leafs through the text while it plays.
    page.evaluate("seek(0, true); showMoment(false)")
    reader.until("page.playing >= 0")
    for _ in range(50):
        page.keyboard.press("PageDown")
        page.wait_for_timeout(200)
        if page.evaluate("scrollY") > 500:
            break
    now = page.evaluate("page.playing")
    reader.until(f"page.playing > {now} + 1")
    page.wait_for_timeout(300)
    assert page.evaluate("scrollY") > 500


def test_the_focus_stays_with_whoever_uses_the_keyboard(read):
    """What had it is made anew, hidden or disabled: else they begin again at the top of the page."""
    reader = read(replace(talks.call(), warnings=("a note",)))
    page = reader.page
    focused = "document.activeElement.id || document.activeElement.textContent"
    page.locator("button.who").nth(1).focus()
    page.keyboard.press("Enter")
    page.locator('.choice:has-text("Speaker 1 said this")').press("Enter")
    assert page.evaluate("document.activeElement.matches('article:first-child button.who')")
    page.keyboard.press("Enter")
    page.locator('.choice:has-text("Rename")').press("Enter")
    typed(page, "Ann")
    page.keyboard.press("Enter")
    assert "Ann" in page.evaluate(focused)
    page.locator("#undo").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.locator("#undo").is_disabled()
    assert page.evaluate(focused) == "text"
    page.get_by_label("Merge Speaker 2").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.inner_text("#speakers-title") == "1 speaker"
    assert "Speaker 1" in page.evaluate(focused)
    page.keyboard.press("Control+z")
    # By the mouse no control gets it: space is to play.
    page.locator("button.who").first.click()
    page.locator('.choice:has-text("Speaker 2 said this")').click()
    assert not page.evaluate("document.activeElement.matches('button')")
    # Space presses what the focus is on.
    page.locator("#warnings summary").focus()
    page.keyboard.press("Space")
    assert page.locator(".warnings li").is_visible()
    assert page.evaluate("audio.paused")


TOP = """() => {
    const seen = (one) => one.getBoundingClientRect().bottom > barHeight() + 5;
    return [...document.querySelectorAll("article.p")].find(seen).ariaPosInSet;
}"""


def test_a_turned_phone_and_a_print_stay_where_one_reads(read):
    reader = read(talks.long(20_000, 2.0), "long.html", "none")
    page = reader.page
    page.evaluate("seek(3600000); showMoment(false)")
    before = int(page.evaluate(TOP))
    for width in (500, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(100)
        assert abs(int(page.evaluate(TOP)) - before) <= 2
    before = int(page.evaluate(TOP))
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(TOP) == str(before)
    # Nor does the end of the list move with a correction.
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait_for_timeout(300)
    read_now = """() => {
        const below = ([, element]) => element.getBoundingClientRect().top > barHeight();
        return Math.min(...[...spans].filter(below).map(([w]) => w));
    }"""
    before = page.evaluate(read_now)
    page.evaluate("take({ kind: 'text', text: 'x', pieces: piecesOf(transcript, [page.order.length - 1]) })")
    assert abs(page.evaluate(read_now) - before) < 60


def test_a_speaker_who_goes_while_they_are_named(read):
    """As when somebody else merges them on the desk."""
    page = read(talks.call(), how="none").page
    page.get_by_label("Rename Speaker 2").click()
    typed(page, "No")
    page.evaluate("() => { edits.steps = [[{ kind: 'merge', who: 0, gone: 1 }]]; tell('steps', false); }")
    assert page.inner_text("#speakers-title") == "1 speaker"
    assert page.evaluate("[edits.steps.length, page.names[0]]") == [1, None]
    assert "Speaker 1" in page.evaluate("document.activeElement.textContent")
