"""Make docs/page-*.png: the page of tests/data/call.flac in Debian's Chromium.

apt-get install chromium fonts-noto-core poppler-utils
python docs/screenshots.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
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
SHOTS = {
    "light": {"viewport": {"width": 1200, "height": 820}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1200, "height": 820}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "print": {"viewport": {"width": 1200, "height": 820}, "color_scheme": "light"},
}


def main() -> None:
    found = talks.call(warnings=("3 words where no speech was heard are in JSON and page only",))
    found = replace(found, speakers=(replace(found.speakers[0], name="Laura"), found.speakers[1]))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "call.html"
        writers.save(found, [("html", path)], sound=sound.take(found.audio, [("html", path)]))
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=args)
        for name, context in SHOTS.items():
            page = browser.new_context(**context).new_page()
            page.goto(f"{path.as_uri()}#t=9.7")
            page.wait_for_selector("html[data-ready]", state="attached")
            page.keyboard.press("Escape")
            if name == "print":
                page.pdf(path=f"{folder}/print.pdf", format="A4")
                command = ["pdftoppm", "-singlefile", "-png", "-r", "80", f"{folder}/print.pdf"]
                subprocess.run([*command, HERE / "page-print"], check=True)
                continue
            page.evaluate("scrollTo(0, 0)")
            page.wait_for_timeout(500)
            page.screenshot(path=HERE / f"page-{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
