"""Make docs/page-light.png, the page of tests/data/call.flac, and docs/serve-light.png, the desk.

    apt-get install chromium-headless-shell fonts-noto-core
    python docs/screenshots.py

Both show the output of the commands in `RUNS`. Each picture holds the text that it shows, which
tests/test_samples.py compares with another run.
"""

from __future__ import annotations

import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import samples
from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent
RUNS = (
    "mkdir calls",
    "cp tests/data/call.flac calls/monday.flac",
    "witness tests/data/call.flac -f html -o call.html",
    "witness batch calls/ -o transcripts/",
)
SERVE = "witness serve transcripts/ --no-browser"
KEYWORD = b"Description"
READY = "html[data-ready]"
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


def main() -> None:
    program = next(filter(None, map(shutil.which, BROWSERS)))
    root = ["--no-sandbox"] if sys.platform == "linux" else []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=root)
        folder = Path(name)
        settings, work = samples.environment(folder), samples.checkout(folder)
        for command in RUNS:
            samples.run_command(command, work, settings)
        review_page(browser, work / "call.html")
        with served(work, settings) as address:
            desk(browser, address)
        browser.close()


def review_page(browser: Browser, path: Path) -> None:
    """Take the picture of the page, at the first doubtful words."""
    page = browser.new_page(viewport={"width": 1200, "height": 820}, color_scheme="light")
    page.goto(f"{path.as_uri()}#t=9.7")
    page.wait_for_selector(READY, state="attached")
    page.keyboard.press("Escape")
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(500)
    keep(page, HERE / "page-light.png")


def desk(browser: Browser, address: str) -> None:
    """Take the picture of the desk, with a passage that was searched."""
    page = browser.new_page(viewport={"width": 1000, "height": 520}, color_scheme="light")
    page.goto(address)
    page.wait_for_selector(READY, state="attached")
    page.get_by_text("monday").first.wait_for(timeout=120_000)
    page.wait_for_timeout(5000)  # until the desk has read the words
    page.fill("#query", '"green one"')
    page.wait_for_selector("#hits mark", timeout=120_000)
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)
    keep(page, HERE / "serve-light.png")


@contextmanager
def served(work: Path, settings: dict[str, str]) -> Iterator[str]:
    """Serve the transcripts, and yield the address of the desk."""
    command = shlex.split(SERVE)
    with subprocess.Popen(command, cwd=work, env=settings, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else ""
        finally:
            process.terminate()


def keep(page: Page, path: Path) -> None:
    """Write the picture of a page with its visible text."""
    text = page.evaluate("document.body.innerText")
    picture = page.screenshot()
    end = len(picture) - 12
    path.write_bytes(picture[:end] + _chunk(b"iTXt", KEYWORD + bytes(5) + text.encode()) + picture[end:])


def text_of(picture: bytes) -> str:
    """Return the text that `keep` wrote into a picture."""
    place = 8
    while place < len(picture):
        length, name = struct.unpack_from(">I4s", picture, place)
        content = picture[place + 8 : place + 8 + length]
        if name == b"iTXt" and content.startswith(KEYWORD):
            return content[len(KEYWORD) + 5 :].decode()
        place += length + 12
    raise ValueError("the picture has no text")


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


if __name__ == "__main__":
    main()
