"""A transcript without the names of its speakers, and the spans where they are spoken.

Speakers become P01, P02 and so on, in the order of their first turns, and so do their names in the text.
Only written names are recognized: a misrecognized name stays, in the text and in the sound.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from msgspec import structs

from witness.schema import Spans, Transcript, Word

HIDDEN = "[…]"
"""Replacement of hidden words, and of a name that several speakers share."""
MARGIN = 0.15
"""Seconds before and after a word that are covered, too: the uncertainty of its times."""
SHORTEST = 3
"""Least letters of a part of a name that identifies the person; "de" and "J." do not."""
_DENSE = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


@dataclass(frozen=True)
class AnonymousTranscript:
    """A transcript that can be given away."""

    transcript: Transcript
    title: str
    """Replacement of the recording's name, which may name people, too."""
    covered: Spans
    """Disjoint spans of spoken names, in order."""


def anonymize(transcript: Transcript, hidden: Sequence[str] = ()) -> AnonymousTranscript:
    """Remove the names of speakers, and `hidden` words and names."""
    codes = _codes(transcript)
    finder = _NameFinder(_replacements(transcript, codes), hidden)
    utterances, spans = [], []
    for utterance in transcript.utterances:
        words, covered = finder.remove_from_words(utterance.words)
        spans += covered
        utterances.append(replace(utterance, words=words))
    title = finder.remove_from_text(PurePath(transcript.audio.path).stem)
    path = title + PurePath(transcript.audio.path).suffix if transcript.audio.path != "-" else "-"

    def without_names(lines: Sequence[str]) -> tuple[str, ...]:
        return tuple(finder.remove_from_text(line.replace(transcript.audio.path, path)) for line in lines)

    all_words = [word for utterance in utterances for word in utterance.words]
    return AnonymousTranscript(
        replace(
            transcript,
            audio=replace(transcript.audio, path=path),
            speakers=tuple(replace(each, name=codes[each.id]) for each in transcript.speakers),
            utterances=tuple(utterances),
            words=tuple(sorted(all_words, key=lambda word: (word.start, word.end))),
            warnings=without_names(transcript.warnings),
            machine=without_names(transcript.machine),
            corrections=(),  # they contain names, and the removed words
            findings=None,
        ),
        title,
        _united(spans),
    )


def _codes(transcript: Transcript) -> dict[str, str]:
    """Return speaker id -> code."""
    first: dict[str, float] = {}
    for turn in transcript.turns:
        first[turn.speaker] = min(turn.start, first.get(turn.speaker, turn.start))
    ids = sorted((each.id for each in transcript.speakers), key=lambda key: (first.get(key, 0.0), key))
    return {key: f"P{number:02}" for number, key in enumerate(ids, start=1)}


def _replacements(transcript: Transcript, codes: Mapping[str, str]) -> dict[str, str]:
    """Return name, or part of a name -> replacement."""
    replacements: dict[str, str] = {}
    for speaker in transcript.speakers:
        name = unicodedata.normalize("NFC", speaker.name or "").strip()
        parts = [part for part in re.split(r"[\W_]+", name) if len(part) >= SHORTEST or _is_dense(part)]
        for part in {name, *(part for part in parts if part[0].isalpha() and not part[0].islower())}:
            if part:
                shared = replacements.get(part, codes[speaker.id]) != codes[speaker.id]
                replacements[part] = HIDDEN if shared else codes[speaker.id]
    return replacements


def _is_dense(text: str) -> bool:
    """Return True for scripts without spaces between words, such as Chinese, Japanese and Thai."""
    return any(unicodedata.name(sign, "").startswith(_DENSE) for sign in text)


class _NameFinder:
    """Finds and replaces names in texts."""

    def __init__(self, replacements: Mapping[str, str], hidden: Sequence[str]) -> None:
        self._replacements = {name.casefold(): code for name, code in replacements.items()}
        names = {*replacements, *map(str.upper, replacements)}
        others = [unicodedata.normalize("NFC", text).strip() for text in hidden]
        patterns = [*map(_pattern, sorted(names, key=lambda name: (-len(name), name)))]
        patterns += [f"(?i:{_pattern(text)})" for text in sorted(filter(None, others), key=len, reverse=True)]
        self._names = re.compile("|".join(patterns) or "(?!)")
        self._any_case = re.compile(self._names.pattern, re.IGNORECASE)

    def _matches(self, pattern: re.Pattern[str], text: str) -> list[tuple[int, int, str]]:
        """Return start, end and replacement of each name, the last first."""
        matches = [
            (
                match.start(),
                match.end(),
                self._replacements.get(" ".join(match[0].split()).casefold(), HIDDEN),
            )
            for match in pattern.finditer(text)
        ]
        return matches[::-1]

    def remove_from_text(self, text: str) -> str:
        """Replace names in any case; `_` separates words, as in file names."""
        clear = unicodedata.normalize("NFC", text).replace("_", " ")
        for start, end, instead in self._matches(self._any_case, clear):
            text, clear = text[:start] + instead + text[end:], clear[:start] + instead + clear[end:]
        return text

    def remove_from_words(self, words: Sequence[Word]) -> tuple[tuple[Word, ...], list[tuple[float, float]]]:
        """Replace names in words ("will" is no name), and return the spans of their sound.

        A name may span several words, or be a part of one.
        """
        words = [structs.replace(word, text=unicodedata.normalize("NFC", word.text)) for word in words]
        matches = self._matches(self._names, "".join(word.text for word in words))
        kept: list[Word] = []
        spans = []
        at = 0
        for word in words:
            begin, at = at, at + len(word.text)
            text = word.text
            for start, end, instead in matches:
                if end <= begin or start >= at:
                    continue
                first, last = max(start, begin) - begin, min(end, at) - begin
                text = text[:first] + (instead if start >= begin else "") + text[last:]
                spans.append(_span(word, first, last))
            is_sign = not any(sign.isalnum() for sign in text.replace(HIDDEN, "x"))
            if text.strip() and (not is_sign or text == word.text or not kept):
                kept.append(word if text == word.text else structs.replace(word, text=text, probability=None))
            elif text.strip():  # the comma after a name
                kept[-1] = structs.replace(kept[-1], text=kept[-1].text + text.strip())
        return tuple(kept), spans


def _pattern(name: str) -> str:
    """Return the expression for a whole name; "Anna's" and "Annas" name her."""
    inside = r"\s+".join(map(re.escape, name.split()))
    return inside if _is_dense(name) else rf"(?<!\w){inside}(?=(?:['’]?s)?(?!\w))"


def _span(word: Word, first: int, last: int) -> tuple[float, float]:
    """Return the span of some letters of a word; in a passage that a person wrote, in proportion."""
    pace = (word.end - word.start) / max(1, len(word.text)) if " " in word.text.strip() else 0.0
    start = word.start + first * pace if pace else word.start
    end = word.start + last * pace if pace else word.end
    return max(0.0, start - MARGIN), end + MARGIN


def _united(spans: Sequence[tuple[float, float]]) -> Spans:
    """Unite overlapping spans."""
    united: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if united and start <= united[-1][1]:
            united[-1] = united[-1][0], max(united[-1][1], end)
        else:
            united.append((start, end))
    return tuple(united)
