"""A transcript without the names of those who speak, and where its recording has to be covered.

People are P01, P02 and so on, in the order in which they first speak; so are their names in what is said.
Only what is written is found: a name that the recognizer misheard stays, in the text and in the sound.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from msgspec import structs

from witness.schema import Spans, Transcript, Utterance, Word

HIDDEN = "[…]"
"""In place of what is hidden and is no speaker's name, or is the name of several."""
MARGIN = 0.15
"""Seconds before and after a word that are covered, too: its times are about as uncertain."""
SHORTEST = 3
"""Letters of a part of a name that stands for the person; "de" and "J." do not."""


@dataclass(frozen=True)
class Anonymous:
    """What can be given away."""

    transcript: Transcript
    title: str
    """Instead of the name of the recording, in which people are named, too."""
    covered: Spans
    """Where names are said, in seconds, in order, apart from each other."""


def anonymous(transcript: Transcript, hidden: Sequence[str] = ()) -> Anonymous:
    """The transcript without names; `hidden` are words and names that are left out beside them."""
    codes = _codes(transcript)
    finder = _Finder(_stand_ins(transcript, codes), hidden)
    utterances, spans = [], []
    for utterance in transcript.utterances:
        words, covered = finder.without(utterance.words)
        spans += covered
        utterances.append(replace(utterance, words=words))
    title = finder.text(PurePath(transcript.audio.path).stem)
    path = title + PurePath(transcript.audio.path).suffix if transcript.audio.path != "-" else "-"

    def told(lines: Sequence[str]) -> tuple[str, ...]:
        return tuple(finder.text(line.replace(transcript.audio.path, path)) for line in lines)

    return Anonymous(
        replace(
            transcript,
            audio=replace(transcript.audio, path=path),
            speakers=tuple(replace(one, name=codes[one.id]) for one in transcript.speakers),
            utterances=tuple(utterances),
            words=tuple(sorted(_words(utterances), key=lambda word: (word.start, word.end))),
            warnings=told(transcript.warnings),
            machine=told(transcript.machine),
            corrections=(),  # they hold names, and what was said before
            findings=None,
        ),
        title,
        _joined(spans),
    )


def _codes(transcript: Transcript) -> dict[str, str]:
    first: dict[str, float] = {}
    for turn in transcript.turns:
        first[turn.speaker] = min(turn.start, first.get(turn.speaker, turn.start))
    ids = sorted((one.id for one in transcript.speakers), key=lambda one: (first.get(one, 0.0), one))
    return {one: f"P{number:02}" for number, one in enumerate(ids, start=1)}


def _stand_ins(transcript: Transcript, codes: Mapping[str, str]) -> dict[str, str]:
    """Name, or part of one -> what stands there instead."""
    found: dict[str, str] = {}
    for speaker in transcript.speakers:
        name = unicodedata.normalize("NFC", speaker.name or "").strip()
        parts = [part for part in re.split(r"[\W_]+", name) if len(part) >= SHORTEST or _is_dense(part)]
        for part in {name, *(part for part in parts if part[0].isalpha() and not part[0].islower())}:
            if part:
                shared = found.get(part, codes[speaker.id]) != codes[speaker.id]
                found[part] = HIDDEN if shared else codes[speaker.id]
    return found


def _is_dense(text: str) -> bool:
    """Whether it is of a script without spaces between words, such as Chinese, Japanese and Thai."""
    return any(unicodedata.name(sign, "").startswith(_DENSE) for sign in text)


_DENSE = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


class _Finder:
    """Finds names in texts."""

    def __init__(self, stand_ins: Mapping[str, str], hidden: Sequence[str]) -> None:
        self._stand_ins = {name.casefold(): code for name, code in stand_ins.items()}
        names = {*stand_ins, *map(str.upper, stand_ins)}
        others = [unicodedata.normalize("NFC", one).strip() for one in hidden]
        known = [*map(_whole, sorted(names, key=lambda name: (-len(name), name)))]
        known += [f"(?i:{_whole(one)})" for one in sorted(filter(None, others), key=len, reverse=True)]
        self._names = re.compile("|".join(known) or "(?!)")
        self._anyhow = re.compile(self._names.pattern, re.IGNORECASE)

    def matches(self, text: str, *, anyhow: bool = False) -> Iterator[tuple[int, int, str]]:
        """Where names begin and end, and what stands there instead. "will" is no name, but with `anyhow`."""
        for match in (self._anyhow if anyhow else self._names).finditer(text):
            name = " ".join(match[0].split()).casefold()
            yield match.start(), match.end(), self._stand_ins.get(name, HIDDEN)

    def text(self, text: str) -> str:
        """It without names; `_` parts words, as it does in names of files."""
        clear = unicodedata.normalize("NFC", text).replace("_", " ")
        for start, end, instead in reversed(list(self.matches(clear, anyhow=True))):
            text, clear = text[:start] + instead + text[end:], clear[:start] + instead + clear[end:]
        return text

    def without(self, words: Sequence[Word]) -> tuple[tuple[Word, ...], list[tuple[float, float]]]:
        """The words without names, and when these are said. A name may be of several words, or in one."""
        words = [structs.replace(word, text=unicodedata.normalize("NFC", word.text)) for word in words]
        found = list(self.matches("".join(word.text for word in words)))
        kept: list[Word] = []
        spans = []
        at = 0
        for word in words:
            begin, at = at, at + len(word.text)
            text = word.text
            for start, end, instead in reversed(found):
                if end <= begin or start >= at:
                    continue
                first, last = max(start, begin) - begin, min(end, at) - begin
                text = text[:first] + (instead if start >= begin else "") + text[last:]
                spans.append(_when(word, first, last))
            mark = not any(sign.isalnum() for sign in text.replace(HIDDEN, "x"))
            if text.strip() and (not mark or text == word.text or not kept):
                kept.append(word if text == word.text else structs.replace(word, text=text, probability=None))
            elif text.strip():  # what was after the name: a comma
                kept[-1] = structs.replace(kept[-1], text=kept[-1].text + text.strip())
        return tuple(kept), spans


def _whole(name: str) -> str:
    """The expression for a name that is not a part of a word; "Anna's" and "Annas" name her."""
    inside = r"\s+".join(map(re.escape, name.split()))
    return inside if _is_dense(name) else rf"(?<!\w){inside}(?=(?:['’]?s)?(?!\w))"


def _when(word: Word, first: int, last: int) -> tuple[float, float]:
    """When a part of a word is said: of a passage that somebody wrote, by the number of letters."""
    pace = (word.end - word.start) / max(1, len(word.text)) if " " in word.text.strip() else 0.0
    start = word.start + first * pace if pace else word.start
    end = word.start + last * pace if pace else word.end
    return max(0.0, start - MARGIN), end + MARGIN


def _joined(spans: Sequence[tuple[float, float]]) -> Spans:
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return tuple(found)


def _words(utterances: Sequence[Utterance]) -> Iterator[Word]:
    return (word for utterance in utterances for word in utterance.words)
