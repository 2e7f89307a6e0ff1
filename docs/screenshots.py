"""Make docs/page-light.png: the page of tests/data/call.flac in Debian's Chromium.

apt-get install chromium fonts-noto-core
python docs/screenshots.py
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from playwright.sync_api import sync_playwright

import talks
from witness.audio import sound
from witness.formats import writers

HERE = Path(__file__).parent


def main() -> None:
    found = talks.call(warnings=("3 words where no speech was heard are only in the JSON and the page",))
    found = replace(found, speakers=(replace(found.speakers[0], name="Laura"), found.speakers[1]))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "call.html"
        writers.save(found, [("html", path)], sound=sound.take(found.audio, [("html", path)]))
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=args)
        window = browser.new_context(viewport={"width": 1200, "height": 820}, color_scheme="light")
        page = window.new_page()
        page.goto(f"{path.as_uri()}#t=9.7")
        page.wait_for_selector("html[data-ready]", state="attached")
        page.keyboard.press("Escape")
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(500)
        page.screenshot(path=HERE / "page-light.png")
        browser.close()


if __name__ == "__main__":
    main()
