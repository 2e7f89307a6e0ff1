"""A word or a phrase in a transcript, and the corrections that write it otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from witness.errors import UsageError
from witness.schema import Correction, Transcript, Word
from witness.transcript import redo, replacements

AROUND = 8
"""Words before and after what is shown of each."""


@dataclass(frozen=True)
class Occurrence:
    """Where it is said."""

    place: int
    """Milliseconds from the beginning of the recording: another one has another place."""
    track: int
    before: str
    old: str
    new: str
    after: str
    correction: Correction


def find(transcript: Transcript, heard: str, written: str) -> list[Occurrence]:
    """All of them, in the order of time. Raises UsageError if either text cannot be."""
    if not heard.strip() or not written.strip():
        raise UsageError("give the words that are to be replaced, and those to write in their place")
    tracks: dict[int, list[Word]] = {}
    for one in transcript.utterances:
        tracks.setdefault(one.track, []).extend(one.words)
    found = []
    for track, words in tracks.items():
        words.sort(key=lambda word: word.start)
        number = {_middle(word): place for place, word in enumerate(words)}
        for made in replacements.corrections([words], [(heard, written)]):
            places = [number[round(1000 * (first + last) / 2)] for first, last in made.other]
            found.append(_occurrence(track, words, places, made))
    try:
        redo.all_checked([one.correction for one in found])
    except ValueError as error:
        raise UsageError(f"{written[:40]!r} cannot be written ({error})") from error
    return sorted(found, key=lambda one: (one.place, one.track))


def _middle(word: Word) -> int:
    return round(1000 * round((word.start + word.end) / 2, 3))


def _occurrence(track: int, words: list[Word], places: list[int], made: Correction) -> Occurrence:
    first, last = places[0], places[-1]

    def text(begin: int, end: int) -> str:
        return "".join(word.text for word in words[max(0, begin) : end]).strip()

    return Occurrence(
        place=_middle(words[first]),
        track=track,
        before=text(first - AROUND, first),
        old=text(first, last + 1),
        new=made.text or "",
        after=text(last + 1, last + 1 + AROUND),
        correction=made,
    )
