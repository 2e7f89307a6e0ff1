"""How often the right word is among those of a transcript that are spelled most like a wrong one.

    pip install '.[bench]'
    python benchmarks/alternatives.py TRANSCRIPTS REFERENCES

TRANSCRIPTS holds NAME.json, REFERENCES NAME.stm. Counted are the words that stand for one other word of the
text; offered are all other words of the same transcript, or of all of them, the most similar first.
"""

from __future__ import annotations

from difflib import SequenceMatcher

import harness
import real_words

MARKED = 0.5
MANY = (1, 3, 9)


def offered(heard: str, words: set[str]) -> list[str]:
    def unlike(word: str) -> tuple[float, str]:
        return -SequenceMatcher(None, heard, word).ratio(), word

    return sorted(words - {heard}, key=unlike)[: max(MANY)]


def main() -> None:
    given = real_words.of_transcripts(__doc__)
    known: list[set[str]] = []
    wrong: list[tuple[int, str, str, bool]] = []  # transcript, heard, right, marked
    for found, ours, mistaken in real_words.mistaken(given.transcripts, given.references, given.language):
        known.append(ours)
        for number, heard, true in mistaken:
            wrong.append((len(known) - 1, heard, true, (found[number].probability or 0.0) < MARKED))
    result: dict[str, object] = {"wrong": len(wrong), "marked": sum(marked for *_, marked in wrong)}
    everything = set().union(*known)
    for name, pools in (("own", known), ("all", [everything] * len(known))):
        lists = [(offered(heard, pools[n]), right, marked) for n, heard, right, marked in wrong]
        for many in MANY:
            hits = [marked for words, right, marked in lists if right in words[:many]]
            result[f"{name}, among {many}"] = {"of all": len(hits), "of the marked": sum(hits)}
    harness.show(result, given.json)


if __name__ == "__main__":
    main()
