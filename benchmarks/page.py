"""How a page of many words opens and scrolls: 120,000 words over 12 hours, in Debian's Chromium.

    python benchmarks/page.py [--words 120000] [--hours 12] [--runs 5]

Prints JSON: the size of the file, the time from the navigation until there is text, the times of frames while
the page is scrolled (by 120 pixels per frame, and by jumps of 40,000), and the times of a correction and a
search. The browser has no window, and the processor does the drawing.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import harness
from playwright.sync_api import Page, sync_playwright

import talks
from witness.formats import writers
from witness.formats.registry import Format
from witness.schema import Sound

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
READY = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("--words", type=int, default=120_000)
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    chromium = shutil.which("chromium") or sys.exit("Chromium was not found; fix: apt-get install chromium")
    found = talks.long(asked.words, asked.hours)
    begun = time.perf_counter()
    text = writers.written(
        found, Format.HTML, Sound(bytes(n * 7 % 256 for n in range(40_000)), link="./long.flac")
    )
    writing = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "long.html"
        path.write_text(text, "utf-8")
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=chromium, args=args)
        runs = [
            measure(browser.new_page(viewport={"width": 1200, "height": 900}), path)
            for _ in range(asked.runs)
        ]
        version = browser.version
        browser.close()
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


def measure(page: Page, path: Path) -> dict[str, float]:
    """Times in milliseconds, by name."""
    begun = time.perf_counter()
    page.goto(path.as_uri())
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
    page.fill("#answer", "corrected")
    begun = time.perf_counter()
    page.keyboard.press("Enter")
    page.wait_for_selector(".w.fixed")
    found["correction_ms"] = 1000 * (time.perf_counter() - begun)
    begun = time.perf_counter()
    page.keyboard.press("/")
    page.fill("#query", "corrected")
    page.wait_for_selector(".w.hit.now")
    found["search_ms"] = 1000 * (time.perf_counter() - begun)
    page.close(run_before_unload=False)
    return {key: round(value, 1) for key, value in found.items()}


if __name__ == "__main__":
    main()
