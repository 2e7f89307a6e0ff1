"""Notes, highlights and codes that a person has put on passages of a transcript."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from witness.schema import Correction, Spans, Transcript, Word, WordIndex

if TYPE_CHECKING:
    from witness.formats.reading import Line


@dataclass(frozen=True)
class NotedPassage:
    """What a person has noted of a passage; without a text and codes it is a highlight."""

    place: Spans
    start: float
    """Seconds from the beginning of the recording, as is `end`."""
    end: float
    quote: str
    """The words of the passage; empty if they are there no longer."""
    speakers: tuple[str, ...]
    """The ids of those who say it."""
    text: str = ""
    codes: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """Codes and text, for programs that have one text for both."""
        return "\n".join(part for part in (", ".join(self.codes), self.text) if part)


def of(transcript: Transcript) -> list[NotedPassage]:
    """The notes on a transcript in the order of time; of several on the same words the last one counts."""
    given = [one for one in transcript.corrections if one.kind == "note"]
    if not given:
        return []
    places = WordIndex(transcript.words)
    latest: dict[object, tuple[Correction, Sequence[Word]]] = {}
    for one in given:
        numbers = tuple(places.within(one.other).tolist())
        key: object = numbers or one.other
        latest.pop(key, None)
        if one.text is not None:
            latest[key] = one, [transcript.words[number] for number in numbers]
    notes = [_note(one, words) for one, words in latest.values()]
    return sorted(notes, key=lambda note: (note.start, note.end))


def _note(given: Correction, words: Sequence[Word]) -> NotedPassage:
    start = words[0].start if words else given.other[0][0]
    end = max((word.end for word in words), default=given.other[-1][1])
    quote = "".join(word.text for word in words).strip()
    speakers = dict.fromkeys(word.speaker for word in words if word.speaker)
    return NotedPassage(given.other, start, end, quote, tuple(speakers), given.text or "", given.codes)


def codes(notes: Iterable[NotedPassage]) -> list[str]:
    """The codes of some notes, sorted."""
    return sorted({code for note in notes for code in note.codes})


def passages(line: Line, notes: Sequence[NotedPassage]) -> list[tuple[int, int, int]]:
    """(first character, last character + 1, number of the note) of what of `notes` is in the text of a line.

    Of a note whose words are not beside each other in it, from the first to the last.
    """
    if not notes or not line.words or line.text is None:
        return []
    edges, at = [], 0
    for word in line.words:
        text = word.text.strip()
        first = line.text.index(text, at)
        at = first + len(text)
        edges.append((first, at))
    places = WordIndex(line.words)
    found = []
    for number, note in enumerate(notes):
        inside = places.within(note.place)
        if len(inside):
            found.append((edges[inside[0]][0], edges[inside[-1]][1], number))
    return found
