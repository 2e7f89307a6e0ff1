"""Make docs/page-light.png, the page of tests/data/call.flac, and docs/serve-light.png, the desk.

In Chromium: apt-get install chromium-headless-shell fonts-noto-core
python docs/screenshots.py
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from playwright.sync_api import Browser

import talks
from conftest import CALL
from test_page import chromium
from test_serve_browser import TOKEN, Desk
from witness.audio import sound
from witness.schema import Correction, Transcript
from witness.transcript import store

HERE = Path(__file__).parent
READY = "html[data-ready]"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        review_page(browser, Path(folder))
        desk(browser, Path(folder))


def review_page(browser: Browser, folder: Path) -> None:
    """The page of a transcript, as a file."""
    found = talks.call(warnings=("3 words where no speech was heard are only in the JSON and the page",))
    found = named(found, "Laura")
    path = folder / "call.html"
    store.save(found, [("html", path)], sound=sound.take(found.audio, [("html", path)]))
    window = browser.new_context(viewport={"width": 1200, "height": 820}, color_scheme="light")
    page = window.new_page()
    page.goto(f"{path.as_uri()}#t=9.7")
    page.wait_for_selector(READY, state="attached")
    page.keyboard.press("Escape")
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(500)
    page.screenshot(path=HERE / "page-light.png")
    window.close()


def desk(browser: Browser, folder: Path) -> None:
    """The first page of a desk, with a passage that is played."""
    recordings = folder / "interviews"
    (recordings / "service desk").mkdir(parents=True)
    (recordings / "town hall").mkdir()
    correction = Correction("name", ((0.0, 1.0),), "Laura")
    corrected = talks.call(corrections=(correction,), timing={"decode": None})
    shelf = {
        "service desk/call": named(corrected, "Laura"),
        "service desk/call back": named(talks.call(), "Laura", "Tom"),
        "town hall/March": named(talks.long(9000, 1.1, 6), "Ann Lee", "Bo", "Cid"),
    }
    for name, found in shelf.items():
        path = recordings / f"{name}.json"
        store.save(found, [("json", path)], keep=False)
        shutil.copy(CALL, path.with_name(CALL.name))
    served = Desk(recordings, Path("base"))
    try:
        served.desk.library.update()
        window = browser.new_context(viewport={"width": 1000, "height": 520}, color_scheme="light")
        page = window.new_page()
        window.request.post(f"{served.url}unlock", form={"token": TOKEN})
        page.goto(served.url)
        page.wait_for_selector(READY, state="attached")
        page.fill("#query", '"green one"')
        page.wait_for_selector("#hits mark")
        page.click("#hits .hit-row")
        page.wait_for_selector("#play.pause")
        page.mouse.move(0, 0)
        page.wait_for_timeout(300)
        page.screenshot(path=HERE / "serve-light.png")
        window.close()
    finally:
        served.close()


def named(found: Transcript, *names: str) -> Transcript:
    """With names for the first speakers."""
    given = (*names, *(None for _ in found.speakers[len(names) :]))
    speakers = (replace(one, name=name) for one, name in zip(found.speakers, given, strict=True))
    return replace(found, speakers=tuple(speakers))


if __name__ == "__main__":
    main()
