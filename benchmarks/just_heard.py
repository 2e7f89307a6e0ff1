"""How often F9 is pressed until it is at the wrong word, with the page's own rule and by what is typed.

    pip install '.[bench]'
    python benchmarks/just_heard.py TRANSCRIPTS REFERENCES

TRANSCRIPTS holds NAME.json, REFERENCES NAME.stm. Counted are the words that stand for one other word of the
text. F9 is pressed some time after the end of each, eight times, evenly spread over each of four ranges; no
person was timed. The rule is asked of web/editor/doubts.js, by node. *By what is typed*: F9 is pressed once,
and what is typed takes the place of that word of the last three seconds which it is most like, being near
counted in; each other word that is offered is one more press.
"""

from __future__ import annotations

import json
import random
import string
import subprocess
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path
from statistics import fmean

import harness
import real_words

from witness.schema import Word

RANGES = (0.3, 1.2), (0.2, 0.8), (0.5, 1.5), (0.1, 0.6)
"""Seconds from the end of a word until a key is down; the first is that of typist.py."""
TIMES = 8
MARKED = 0.5
DOUBTS = Path(__file__).parents[1] / "src/witness/web/editor/doubts.js"
ASK = """
const { justHeard } = await import(process.argv[1]);
let given = "";
for await (const piece of process.stdin) given += piece;
const picks = JSON.parse(given).map(({ words, at }) => {
    const page = { order: words.text.map((_, w) => w), texts: words.text };
    return at.map((ms) => justHeard(page, words, ms, true, 1));
});
console.log(JSON.stringify(picks));
"""


def picked(talks: Sequence[tuple[Sequence[Word], list[int]]]) -> list[list[int]]:
    """Of each talk, the words that F9 chooses at these milliseconds."""
    given = [
        {
            "words": {
                "text": [word.text for word in said],
                "start": [round(1000 * word.start) for word in said],
                "end": [round(1000 * word.end) for word in said],
                "probability": [round(100 * (word.probability or 0)) for word in said],
            },
            "at": at,
        }
        for said, at in talks
    ]
    command = ["node", "--input-type=module", "-e", ASK, DOUBTS.as_uri()]
    done = subprocess.run(command, input=json.dumps(given), stdout=subprocess.PIPE, text=True, check=True)
    found: list[list[int]] = json.loads(done.stdout)
    return found


def offered(said: Sequence[Word], ms: int, typed: str) -> list[int]:
    """The words that what is typed may be meant for, the best one first."""

    def unlike(number: int) -> float:
        word = said[number]
        like = SequenceMatcher(None, word.text.strip(string.punctuation + " ").lower(), typed.lower()).ratio()
        near = abs(ms / 1000 - 0.6 - word.end) - (0.6 if (word.probability or 0) < MARKED else 0)
        return near - 1.5 * like

    last = [n for n, word in enumerate(said) if word.start <= ms / 1000 < word.end + 3]
    return sorted(last, key=unlike)


def main() -> None:
    given = real_words.of_transcripts(__doc__)
    talks = [
        (said, [(number, true) for number, _, true in wrong])
        for said, _, wrong in real_words.mistaken(given.transcripts, given.references, given.language)
    ]
    result: dict[str, object] = {"wrong": sum(len(wrong) for _, wrong in talks)}
    for low, high in RANGES:
        chance = random.Random(1)  # noqa: S311 - nothing to guess
        pressed = [
            (
                said,
                [
                    (word, text, round(1000 * (said[word].end + chance.uniform(low, high))))
                    for word, text in wrong
                    for _ in range(TIMES)
                ],
            )
            for said, wrong in talks
        ]
        picks = picked([(said, [ms for *_, ms in presses]) for said, presses in pressed])
        by_rule = [
            1 + abs(word - pick)
            for (_, presses), found in zip(pressed, picks, strict=True)
            for (word, _, _), pick in zip(presses, found, strict=True)
        ]
        by_text = [
            1 + (order.index(word) if word in (order := offered(said, ms, text)) else len(order))
            for said, presses in pressed
            for word, text, ms in presses
        ]
        result[f"{low} to {high} s"] = {
            "presses of F9": round(fmean(by_rule), 2),
            "the first is right": round(fmean(one == 1 for one in by_rule), 2),
            "by what is typed": round(fmean(by_text), 2),
            "by what is typed, the first is right": round(fmean(one == 1 for one in by_text), 2),
        }
    harness.show(result, given.json)


if __name__ == "__main__":
    main()
