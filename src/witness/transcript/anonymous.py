"""A transcript with codes in place of names, and the spans where the names are spoken.

It is built from a list of fields that name no person, and from nothing else: a new field of a transcript
stays out until it is added here. Speakers become P01, P02 and so on, in the order of their first turns, and
so do their names in the text. Only written names are recognized: a misrecognized name stays, in the text and
in the sound.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from witness.languages import LANGUAGES
from witness.schema import NO_SPEECH, Source, Spans, Speaker, Transcript, Turn, Utterance, Word

HIDDEN = "[…]"
"""Replacement of hidden words, and of a name that several speakers share."""
TITLE = "recording"
"""Title in place of the name of the recording."""
RECOGNIZER = "hidden"
"""Device in place of the one that recognized the words."""
MARGIN = 0.15
"""Seconds before and after a word that are covered, too: the uncertainty of its times."""
SHORTEST = 2
"""Least letters of a part of a name that identifies the person; "J." does not."""
FORMS_OF_ADDRESS = frozenset(["dr", "frau", "herr", "miss", "mr", "mrs", "ms", "prof", "sir"])
_DENSE = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
_ADDRESS = re.compile(r"\S*(?:@|\w[.:/]+\w)\S*")


@dataclass(frozen=True)
class AnonymousTranscript:
    """A transcript that can be given away."""

    transcript: Transcript
    covered: Spans
    """Disjoint spans of spoken names, in order."""


def anonymize(transcript: Transcript, hidden: Sequence[str] = (), title: str = TITLE) -> AnonymousTranscript:
    """Return the transcript with codes for names, without `hidden` words and names, under another title."""
    codes = _codes(transcript)
    finder = _NameFinder(_replacements(transcript, codes), hidden)
    audio, recognizer = transcript.audio, transcript.device["whisper"]
    utterances, spans = [], []
    for utterance in transcript.utterances:
        words, covered = finder.remove_from_words(utterance.words)
        spans += covered
        utterances.append(
            Utterance(
                utterance.start,
                utterance.end,
                codes.get(utterance.speaker or ""),
                tuple(_allowed(word, codes) for word in words),
                utterance.track,
                utterance.corrected,
                utterance.not_english,
            )
        )
    all_words = [word for utterance in utterances for word in utterance.words]
    return AnonymousTranscript(
        Transcript(
            audio=Source(title, audio.duration, audio.channels, "", audio.part),
            models=dict.fromkeys(("segmentation", "embedding", "whisper")),
            device={"embedding": None, "whisper": None if recognizer is None else RECOGNIZER},
            timing={},
            language=_language(transcript.language),
            speakers=tuple(
                Speaker(codes[each.id], each.seconds, each.share, codes[each.id])
                for each in transcript.speakers
            ),
            turns=tuple(Turn(turn.start, turn.end, codes[turn.speaker]) for turn in transcript.turns),
            utterances=tuple(utterances),
            words=tuple(sorted(all_words, key=lambda word: (word.start, word.end))),
            warnings=tuple(line for line in transcript.warnings if line == NO_SPEECH),
            counts=transcript.counts,
            fast=transcript.fast,
            asked=transcript.asked,
            style=transcript.style,
        ),
        _united(spans),
    )


def _allowed(word: Word, codes: Mapping[str, str]) -> Word:
    """Return a word with nothing but its times, its text, and marks out of fixed sets."""
    return Word(
        word.start,
        word.end,
        word.text,
        codes.get(word.speaker or ""),
        word.speaker_confidence,
        word.overlap,
        word.supported,
        word.corrected,
        word.begins,
        word.probability,
        _language(word.language),
    )


def _language(code: str | None) -> str | None:
    """Return the code of a known language, otherwise None."""
    return code if code in LANGUAGES else None


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
        words = [word.strip(".,") for word in name.split()]
        parts = [*words, *re.split(r"[\W\d_]+", name), *(re.sub(r"[\W\d_]", "", word) for word in words)]
        parts = [part for part in parts if len(part) >= SHORTEST or _is_dense(part)]
        chosen = [part for part in parts if part[0].isalpha() and (name.islower() or not part[0].islower())]
        for part in {name, *(part for part in chosen if part.casefold() not in FORMS_OF_ADDRESS)}:
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
        others = [*filter(None, (unicodedata.normalize("NFC", text).strip() for text in hidden))]
        names = {form for name in replacements for form in (name, name.upper(), name.title())}
        patterns = [*map(_pattern, sorted(names, key=lambda name: (-len(name), name)))]
        patterns += [f"(?i:{_pattern(text)})" for text in sorted(others, key=len, reverse=True)]
        self._names = re.compile("|".join(patterns) or "(?!)")
        self._replacements = {
            **{name.casefold(): HIDDEN for name in others},
            **{name.casefold(): code for name, code in replacements.items()},
        }
        parts = sorted((name for name in self._replacements if name.isalpha()), key=len, reverse=True)
        self._parts = re.compile("|".join(parts) or "(?!)")
        self._joined = re.compile(f"(?:{self._parts.pattern})+")

    def _matches(self, text: str) -> list[tuple[int, int, str]]:
        """Return start, end and replacement of each name, the last first."""
        matches = {
            match.span(): self._replacements.get(" ".join(match[0].split()).casefold(), HIDDEN)
            for match in self._names.finditer(text)
        }
        addresses = [match.span() for match in _ADDRESS.finditer(text)]
        for token in re.finditer(r"\w+", text):
            start, end = token.span()
            if any(first < end and start < last for first, last in matches):
                continue
            in_address = any(first <= start and end <= last for first, last in addresses)
            if codes := self._codes_inside(token[0], in_address):
                matches[start, end] = codes.pop() if len(codes) == 1 else HIDDEN
        return sorted(((*span, instead) for span, instead in matches.items()), reverse=True)

    def _codes_inside(self, token: str, any_case: bool) -> set[str]:
        """Return the codes of the names in a token such as AnnaMeyer_jo1 or annameyer.

        A token that is one name and no more ("will") counts in `any_case` only.
        """
        spaced = "".join(
            f" {sign}" if sign.isupper() and (before.islower() or after.islower()) else sign
            for before, sign, after in zip(f" {token}", token, f"{token[1:]} ", strict=False)
        )
        pieces = {*re.split(r"[\W\d_]+", spaced), *re.split(r"[\d_]+", token)}
        codes: set[str] = set()
        for piece in map(str.casefold, pieces):
            names = self._parts.findall(piece) if self._joined.fullmatch(piece) else []
            if len(names) > 1 or len(piece) < len(token) or any_case:
                codes |= {self._replacements[name] for name in names}
        return codes

    def remove_from_words(self, words: Sequence[Word]) -> tuple[tuple[Word, ...], list[tuple[float, float]]]:
        """Replace names in words ("will" is no name), and return the spans of their sound.

        A name may span several words, or be a part of one.
        """
        words = [structs.replace(word, text=unicodedata.normalize("NFC", word.text)) for word in words]
        matches = self._matches("".join(word.text for word in words))
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
