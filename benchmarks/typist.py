"""How fast a skilled typist corrects an hour: the old box for one correction, and writing in the text.

    python benchmarks/typist.py [--names 10] [--times 8] [--singles 80] [--seed 0]

A made-up talk of an hour has wrong words: `--names` names that are said `--times` times each, of which
three in four are misheard alike, and single errors. As measured (docs/benchmarks.md), 57 % of the wrong
words are marked as doubtful; 6 right words are marked for 10 wrong ones. Chromium is driven through the
corrections in the text, each key is counted, and the corrections it saves are compared with what was to be
written. The old box (a double click, a dialog of one line, Enter; the player stood still) is gone: its keys
are counted, with no wait for it.

Seconds are those of the keystroke-level model of Card, Moran and Newell (The keystroke-level model for user
performance time with interactive systems, Communications of the ACM 23(7), 1980): a key of a good typist
0.2, a click 0.1, pointing 1.1, a hand from mouse to keys or back 0.4, making up one's mind 1.35. Listening
takes as long either way and is left out; both ways pause and play around each word. No person was timed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import harness
from playwright.sync_api import Page, sync_playwright

import talks
from witness.formats import writers
from witness.formats.registry import Format
from witness.schema import Transcript

KEY, CLICK, POINT, HAND, MIND = 0.2, 0.1, 1.1, 0.4, 1.35
PAUSE_AND_PLAY = 2 * KEY
FOUND, FALSE, ALIKE = 0.57, 0.6, 0.75
HERE = """() => {
    const node = getSelection().anchorNode;
    return Number((node instanceof Element ? node : node.parentElement).closest("[data-w]").dataset.w);
}"""
"""The word that is selected."""


@dataclass
class Case:
    """A talk with wrong words; `right`: word -> what was said there."""

    talk: Transcript
    right: dict[int, str]
    marked: set[int]


def case(names: int, times: int, singles: int, seed: int) -> Case:
    """An hour of 9,000 words."""
    source = random.Random(seed)  # noqa: S311 - nothing to guess
    talk = talks.long(9000, 1.0)
    words = [replace(word, probability=0.95) for word in talk.words]
    free = [n for n, word in enumerate(words) if not word.text.endswith(".")]
    places = source.sample(free, names * times + singles)
    right: dict[int, str] = {}
    for n, place in enumerate(places):
        name, alike = n // times, source.random() < ALIKE
        if name < names:
            heard, said = f" Misheard{chr(65 + name)}" if alike else f" Other{n}", f"Person{chr(65 + name)}"
        else:
            heard, said = f" Wrong{n}", f"right{n}"
        words[place] = replace(words[place], text=heard)
        right[place] = said
    wrong = [place for place in places if source.random() < FOUND]
    marked = {*wrong, *source.sample([n for n in free if n not in right], round(FALSE * len(wrong)))}
    for place in marked:
        words[place] = replace(words[place], probability=0.3)
    return Case(talks.transcript(words, talk.turns, path="hour.wav", duration=3600.0), right, marked)


def in_the_box(right: dict[int, str]) -> float:
    """Seconds with the old box."""
    one = PAUSE_AND_PLAY + HAND + POINT + 2 * CLICK + HAND + MIND + KEY
    return sum(one + KEY * len(text) for text in right.values())


def in_the_text(page: Page, given: Case) -> float:
    """Seconds in the text, by doing it: first the marked words, then those that were heard to be wrong."""
    texts = [word.text.strip() for word in given.talk.words]
    left, marked = dict(given.right), set(given.marked)
    seconds = 0.0

    def write(place: int) -> float:
        said, heard = left[place], texts[place]
        page.keyboard.type(said)
        spent = MIND + KEY * len(said) + PAUSE_AND_PLAY
        same = [one for one in left if texts[one] == heard]
        if len(same) > 1:
            page.keyboard.press("Alt+KeyE")
            spent += 2 * KEY
        for one in same:
            del left[one]
            marked.discard(one)
        return spent

    page.keyboard.press("Enter")
    while marked:
        page.keyboard.press("Alt+KeyD")
        seconds += 2 * KEY
        place = page.evaluate(HERE)
        if place in left:
            seconds += write(place)
        else:
            seconds += MIND + PAUSE_AND_PLAY
            marked.discard(place)
    while left:
        place = min(left)
        page.evaluate("ms => { location.hash = `#t=${ms}`; }", given.talk.words[place].start)
        word = page.locator(f'[data-w="{place}"]')
        word.click()
        page.wait_for_timeout(120)  # no hand is faster
        word.click(click_count=2)
        seconds += HAND + POINT + 2 * CLICK + HAND + write(place)
    return seconds


def check(page: Page, given: Case) -> None:
    """Whether what is saved is what was to be written."""
    page.keyboard.press("F2")
    with page.expect_download() as download:
        page.keyboard.press("Control+s")
    made = json.loads(download.value.path().read_text())["corrections"]
    written: dict[int, str] = {}
    for one in made:
        for place, word in enumerate(given.talk.words):
            if any(start < (word.start + word.end) / 2 < end for start, end in one["other"]):
                written[place] = one["text"]
    if written != given.right:
        wrong = {place for place in {*written, *given.right} if written.get(place) != given.right.get(place)}
        sys.exit(f"{len(wrong)} words are not what was to be written")


def measure(driver: object, given: Case) -> dict[str, float]:
    """Both ways, in corrected words per minute."""
    chromium = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    browser = driver.chromium.launch(executable_path=chromium, args=args)  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hour.html"
        path.write_text(writers.written(given.talk, Format.HTML), "utf-8")
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        new = in_the_text(page, given)
        check(page, given)
        browser.close()
    old = in_the_box(given.right)
    count = len(given.right)
    rates = {"box_per_minute": 60 * count / old, "text_per_minute": 60 * count / new, "times": old / new}
    return {"words": count, **{key: round(value, 2) for key, value in rates.items()}}


def main() -> None:
    """Measure with names that recur and without."""
    parser = harness.options(__doc__)
    parser.add_argument("--names", type=int, default=10)
    parser.add_argument("--times", type=int, default=8)
    parser.add_argument("--singles", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with sync_playwright() as driver:
        result = {
            "with names": measure(driver, case(given.names, given.times, given.singles, given.seed)),
            "single errors alone": measure(driver, case(0, 1, given.singles, given.seed)),
            "names alone": measure(driver, case(given.names, given.times, 0, given.seed)),
        }
    harness.show(result, given.json)


if __name__ == "__main__":
    main()
