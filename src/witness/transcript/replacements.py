"""What is written in place of what a recognizer hears again and again, by the rules of a person.

A rule makes corrections of the words that it fits: a page shows them as such, and anybody can take them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from witness.schema import PHRASE_PAUSE, SENTENCE_ENDS, Correction, Word
from witness.text import unspaced

PUNCTUATION = ".,;:!?…\"'“”‘’«»()[]。，、！？؟،¿¡"
"""Signs around a word that are kept."""
INSTANT = 0.001
"""Seconds around the middle of a word, which no other has."""


def corrections(
    tracks: Sequence[Sequence[Word] | None], rules: Sequence[tuple[str, str]]
) -> list[Correction]:
    """The corrections that write the words of each track, in order, as `rules` want them.

    A rule is what is heard, a word or several in any case, and what is written. It fits words of one speaker
    within a phrase; of those that fit at the same place the longest counts, and of two as long the first.
    """
    wanted: dict[tuple[str, ...], str] = {}
    for heard, written in rules:
        wanted.setdefault(tuple(_tokens(heard)), written)
    longest = max(map(len, wanted), default=0)
    return [
        correction
        for words in tracks
        for phrase in _phrases(words or ())
        for correction in _of_phrase(phrase, wanted, longest)
    ]


def _of_phrase(words: Sequence[Word], wanted: dict[tuple[str, ...], str], longest: int) -> list[Correction]:
    found: list[Correction] = []
    place = 0
    while place < len(words):
        tokens: list[str] = []
        best: tuple[int, str] | None = None
        for end in range(place, len(words)):
            more = _tokens(words[end].text)
            tokens += more
            if len(tokens) > longest:
                break
            if more and (written := wanted.get(tuple(tokens))) is not None:
                best = end + 1, written
        if best is None:
            place += 1
            continue
        end, written = best
        text = _around(words[place].text.strip(), words[end - 1].text.strip(), written)
        if [text] != [word.text.strip() for word in words[place:end]]:
            middles = [round((word.start + word.end) / 2, 3) for word in words[place:end]]
            spans = tuple((middle - INSTANT, middle + INSTANT) for middle in middles)
            found.append(Correction("text", (), other=spans, text=text))
        place = end
    return found


def _around(first: str, last: str, written: str) -> str:
    """What is written, with the signs before the first word and after the last one."""
    before = first[: len(first) - len(first.lstrip(PUNCTUATION))]
    after = last[len(last.rstrip(PUNCTUATION)) :]
    return f"{before}{written}{after}"


def _tokens(text: str) -> list[str]:
    """What is compared: words without signs, and single characters where a script has no spaces."""
    tokens: list[str] = []
    for word in text.casefold().split():
        bare = word.strip(PUNCTUATION)
        tokens += list(bare) if any(map(unspaced, bare)) else [bare] if bare else []
    return tokens


def _phrases(words: Sequence[Word]) -> list[list[Word]]:
    """Words of one speaker up to the end of a sentence or a pause, as utterances part."""
    phrases: list[list[Word]] = [[word] for word in words[:1]]
    for before, word in pairwise(words):
        parted = (
            before.text.rstrip().endswith(tuple(SENTENCE_ENDS)) or word.start - before.end >= PHRASE_PAUSE
        )
        if parted or word.speaker != before.speaker:
            phrases.append([])
        phrases[-1].append(word)
    return phrases
