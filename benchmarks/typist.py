"""How fast a skilled typist corrects an hour: the old box for one correction, and writing in the text.

    python benchmarks/typist.py [--names 10] [--times 8] [--singles 80] [--seed 0]

A made-up talk of an hour has wrong words: `--names` names that are said `--times` times each, of which
three in four are misheard alike, and single errors. As measured (docs/benchmarks.md), 57 % of the wrong
words are marked as doubtful; 6 right words are marked for 10 wrong ones. Chromium is driven through the
corrections in two ways, each key that is pressed is counted, and the corrections it saves are compared with
what was to be written.

*Listening*: whoever hears a wrong word stops the sound, has it chosen (F9, more than once where it is not the
word that is meant), types, and plays on. The sound is a clock that this script moves: F9 is pressed 0.3 to
1.2 s after the wrong word has ended, evenly spread. That range is an assumption.
*Marks first*: F8 goes from doubtful word to doubtful word and plays each; then the rest as above.
The old box (a double click, a dialog of one line, Enter; the player stood still) is gone: its keys are
counted, with no wait for it; whoever used it stopped and played on, too, and looked at no marks.

Seconds are those of the keystroke-level model of Card, Moran and Newell (The keystroke-level model for user
performance time with interactive systems, Communications of the ACM 23(7), 1980): a key of a good typist
0.2, a click 0.1, pointing 1.1, a hand from mouse to keys or back 0.4, making up one's mind 1.35. Listening
takes as long either way and is left out. The floor is what is left of writing in the text if nothing but
making up one's mind and typing took any time. No person was timed.

Every figure is given twice: with the mind, and for the hands alone, which is all but making up one's mind.
Deciding what was said costs the same in any editor, and the hands are all that an editor can spare. Their
floor is typing each correction once.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import harness
from playwright.sync_api import Page, sync_playwright

import talks
from witness.formats import writers
from witness.formats.registry import Format
from witness.schema import Sound, Transcript

KEY, CLICK, POINT, HAND, MIND = 0.2, 0.1, 1.1, 0.4, 1.35
PAUSE_AND_PLAY = 2 * KEY
FOUND, FALSE, ALIKE = 0.57, 0.6, 0.75
REACTION = 0.3, 1.2
HERE = """() => {
    const node = getSelection().anchorNode;
    return Number((node instanceof Element ? node : node.parentElement).closest("[data-w]").dataset.w);
}"""
"""The word that is selected."""
CLOCK = """
    let now = 0, still = true;
    const all = HTMLMediaElement.prototype, own = (name, how) => Object.defineProperty(all, name, how);
    own("src", { get: () => "made-up", set: () => {} });
    own("paused", { get: () => still });
    own("currentTime", { get: () => now, set(seconds) { now = seconds; } });
    all.play = async function () { still = false; this.dispatchEvent(new Event("play")); };
    all.pause = function () { still = true; this.dispatchEvent(new Event("pause")); };
    window.sound = () => (still ? -1 : now);
    window.hearUntil = async (seconds) => {
        now = seconds;
        for (let n = 0; n < 2; n += 1) await new Promise(requestAnimationFrame);
    };
"""
"""Sound that goes on when it is told to, and is nothing to hear."""


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
    words = [structs.replace(word, probability=0.95) for word in talk.words]
    free = [n for n, word in enumerate(words) if not word.text.endswith(".")]
    places = source.sample(free, names * times + singles)
    right: dict[int, str] = {}
    for n, place in enumerate(places):
        name, alike = n // times, source.random() < ALIKE
        if name < names:
            heard, said = f" Misheard{chr(65 + name)}" if alike else f" Other{n}", f"Person{chr(65 + name)}"
        else:
            heard, said = f" Wrong{n}", f"right{n}"
        words[place] = structs.replace(words[place], text=heard)
        right[place] = said
    wrong = [place for place in places if source.random() < FOUND]
    marked = {*wrong, *source.sample([n for n in free if n not in right], round(FALSE * len(wrong)))}
    for place in marked:
        words[place] = structs.replace(words[place], probability=0.3)
    return Case(talks.transcript(words, talk.turns, path="hour.wav", duration=3600.0), right, marked)


@dataclass(frozen=True)
class Spent:
    """Seconds that a way of correcting takes."""

    hands: float
    """Keys, clicks, pointing, and moves of the hand."""
    mind: float

    @property
    def both(self) -> float:
        return self.hands + self.mind


def in_the_box(right: dict[int, str]) -> Spent:
    """With the old box."""
    one = PAUSE_AND_PLAY + HAND + POINT + 2 * CLICK + HAND + KEY
    return Spent(sum(one + KEY * len(text) for text in right.values()), MIND * len(right))


class Typist:
    """Corrects what is left, with keys that are counted."""

    def __init__(self, page: Page, given: Case, seed: int) -> None:
        self.page, self.given = page, given
        self.texts = [word.text.strip() for word in given.talk.words]
        self.left, self.marked = dict(given.right), set(given.marked)
        self.chance = random.Random(seed)  # noqa: S311 - nothing to guess
        self.keys = self.minds = 0

    @property
    def spent(self) -> Spent:
        return Spent(KEY * self.keys, MIND * self.minds)

    def press(self, keys: str) -> None:
        self.page.keyboard.press(keys)
        self.keys += len(keys.split("+"))

    def write(self, place: int) -> None:
        """Write over the word that is selected, and over all that were misheard alike."""
        said, heard = self.left[place], self.texts[place]
        self.page.keyboard.type(said)
        self.keys += len(said)
        self.minds += 1
        same = [one for one in self.left if self.texts[one] == heard]
        if len(same) > 1:
            self.press("Alt+KeyE")
        for one in same:
            del self.left[one]
            self.marked.discard(one)

    def go_through_marks(self) -> None:
        self.press("Enter")
        while self.marked:
            self.press("F8")
            place = self.page.evaluate(HERE)
            if self.page.evaluate("sound()") < 0:
                sys.exit("a doubtful word is not heard by itself")
            if place in self.left:
                self.write(place)
            else:
                self.minds += 1
                self.marked.discard(place)
        if self.page.evaluate("sound()") >= 0:
            self.press("Escape")

    def listen(self) -> None:
        """Hear it all, and stop at each word that is wrong."""
        while self.left:
            place = min(self.left)
            word = self.given.talk.words[place]
            self.press("Escape")  # play
            self.page.evaluate("s => hearUntil(s)", word.end + self.chance.uniform(*REACTION))
            self.press("F9")
            while (here := self.page.evaluate(HERE)) != place:
                self.press("F9" if here > place else "Shift+F9")
            self.write(place)


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


def measure(driver: object, given: Case, seed: int) -> dict[str, float]:
    """All ways, in corrected words per minute, and how many times that of the box."""
    chromium = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)
    args = ["--no-sandbox"] if os.geteuid() == 0 else []
    browser = driver.chromium.launch(executable_path=chromium, args=args)  # type: ignore[attr-defined]
    count, old = len(given.right), in_the_box(given.right)
    spent = {"old box": old}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hour.html"
        path.write_text(writers.written(given.talk, Format.HTML, Sound(b"", link="hour.wav")), "utf-8")
        for way in ("listening", "marks first"):
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            page.add_init_script(CLOCK)
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            typist = Typist(page, given, seed)
            if way == "marks first":
                typist.go_through_marks()
            else:
                typist.press("Enter")
            typist.listen()
            check(page, given)
            page.close()
            spent[way] = typist.spent
    browser.close()
    heard = {place: given.talk.words[place].text for place in given.right}
    typed = {heard[place]: text for place, text in given.right.items()}
    spent["floor"] = Spent(KEY * sum(map(len, typed.values())), MIND * len(typed))
    rates = {f"{way}, per minute": round(60 * count / own.both, 1) for way, own in spent.items()}
    return {
        "words": count,
        **rates,
        **{f"{way}, times the box": round(old.both / own.both, 2) for way, own in spent.items()},
        **{
            f"{way}, hands alone, times the box": round(old.hands / own.hands, 2)
            for way, own in spent.items()
        },
        **{f"{way}, hands, seconds a word": round(own.hands / count, 2) for way, own in spent.items()},
    }


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
            "with names": measure(
                driver, case(given.names, given.times, given.singles, given.seed), given.seed
            ),
            "single errors alone": measure(driver, case(0, 1, given.singles, given.seed), given.seed),
            "names alone": measure(driver, case(given.names, given.times, 0, given.seed), given.seed),
        }
    harness.show(result, given.json)


if __name__ == "__main__":
    main()
