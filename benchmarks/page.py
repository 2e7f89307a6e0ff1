"""Times in which a page of many words opens and scrolls: 120,000 words over 12 hours, in Chromium.

    python benchmarks/page.py [--words 120000] [--hours 12] [--runs 5] [--desk]

Prints JSON: the size of the file, the time from the navigation until there is text, the times of frames while
the page is scrolled (by 120 pixels per frame, and by jumps of 40,000), and the times of a correction and a
search. `--desk`: the page is one of a desk in this process, which has opened another one before, and a
correction has its time until it is saved, too. The browser has no window, and the processor does the drawing.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import harness
from playwright.sync_api import Browser, Page

import talks
import test_page
from test_serve_browser import TOKEN, Desk
from witness.formats import writers
from witness.formats.registry import Format
from witness.schema import Sound, Transcript
from witness.transcript import store

FRAMES = """async ([step, count]) => {
    const times = [];
    let last = await new Promise(requestAnimationFrame);
    for (let n = 0; n < count; n += 1) {
        scrollBy(0, step);
        const now = await new Promise(requestAnimationFrame);
        times.push(now - last);
        last = now;
    }
    return times;
}"""
VIEWPORT = {"width": 1200, "height": 900}
READY = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("--words", type=int, default=120_000)
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--desk", action="store_true")
    asked = parser.parse_args()
    found = talks.long(asked.words, asked.hours)
    begun = time.perf_counter()
    text = writers.render(
        found, Format.HTML, Sound(bytes(n * 7 % 256 for n in range(40_000)), link="./long.flac")
    )
    writing = time.perf_counter() - begun
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        chromium = stack.enter_context(test_page.chromium())
        if asked.desk:
            windows = at_desk(stack, chromium, folder, found, asked.runs)
        else:
            (folder / "long.html").write_text(text, "utf-8")
            windows = as_file(chromium, folder / "long.html", asked.runs)
        runs = [measure(page, address) for page, address in windows]
        version = chromium.version
    result = {
        "words": asked.words,
        "hours": asked.hours,
        "browser": f"Chromium {version}, headless",
        "file_mb": round(len(text.encode()) / 1e6, 2),
        "written_s": round(writing, 2),
        "median": {key: round(statistics.median(run[key] for run in runs), 1) for key in runs[0]},
        "runs": runs,
    }
    harness.show(result, asked.json)


def as_file(chromium: Browser, path: Path, runs: int) -> Iterator[tuple[Page, str]]:
    """Windows, and the page that each is to open."""
    for _ in range(runs):
        yield chromium.new_page(viewport=VIEWPORT), path.as_uri()


def at_desk(
    stack: ExitStack, chromium: Browser, folder: Path, found: Transcript, runs: int
) -> Iterator[tuple[Page, str]]:
    """As `as_file`, of a desk; each window has a transcript of its own."""
    shelf = folder / "shelf"
    shelf.mkdir()
    for number in range(runs + 1):
        store.save(found, [("json", shelf / f"long {number}.json")], keep=False)
    served = Desk(shelf, folder / "none.bin")
    stack.callback(served.close)
    for number in range(runs + 1):
        window = chromium.new_context(viewport=VIEWPORT)
        window.request.post(f"{served.url}unlock", form={"token": TOKEN})
        page, address = window.new_page(), served.address(shelf / f"long {number}.json")
        if number:
            yield page, address
        else:
            page.goto(address)  # its process starts
            page.close(run_before_unload=False)


def measure(page: Page, address: str) -> dict[str, float]:
    """Times in milliseconds, by name."""
    begun = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("article.p .w")
    opened = time.perf_counter() - begun
    found = {"opened_ms": 1000 * opened, "first_paint_ms": page.evaluate(READY) or 0.0}
    for name, step, count in (("scroll", 120, 300), ("jump", 40_000, 30)):
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(200)
        times = sorted(page.evaluate(FRAMES, [step, count]))
        found[f"{name}_frame_median_ms"] = times[len(times) // 2]
        found[f"{name}_frame_p95_ms"] = times[int(0.95 * len(times))]
        found[f"{name}_frame_worst_ms"] = times[-1]
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(200)
    page.locator(".w").first.dblclick()
    page.wait_for_selector(".said:focus")
    page.keyboard.insert_text("corrected")
    begun = time.perf_counter()
    page.keyboard.press("F2")
    page.wait_for_selector("#feed .w.fixed")
    found["correction_ms"] = 1000 * (time.perf_counter() - begun)
    if page.locator("#more").count():
        page.wait_for_selector('#save:text-is("Saved")', timeout=120_000)
        found["saved_ms"] = 1000 * (time.perf_counter() - begun)
    begun = time.perf_counter()
    page.keyboard.press("/")
    page.fill("#query", "corrected")
    page.wait_for_selector(".w.hit.now")
    found["search_ms"] = 1000 * (time.perf_counter() - begun)
    page.close(run_before_unload=False)
    return {key: round(value, 1) for key, value in found.items()}


if __name__ == "__main__":
    main()
