"""A recognizer's tokens -> words with believable times.

A token is a part of the text and may begin or end inside a character; a word is what a person would call one.
"""

from __future__ import annotations

import codecs
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from witness.recognition.chunking import Piece
from witness.recognition.engine_worker import EngineToken
from witness.recognition.vad import FRAME_RATE
from witness.schema import CLOSING, SENTENCE_ENDS, Bool, Word
from witness.text import unspaced

WORD_SECONDS = 0.4
"""The longest that a word without letters is believed to take."""
LETTER_SECONDS = 0.12
"""How much longer a word may take for each of its letters."""
DIGIT = 4
"""Letters that a digit stands for: "555-0100" is seven words to say."""
NEAR = 1.0
"""Seconds from speech within which a word is said there, though its time lies in the pause."""
SNAPPED = 0.2
"""The most seconds that such a word is given."""
LEAST = 0.01
"""Seconds that a word takes at least: corrections find words by their middles, which no two must share."""


@dataclass(frozen=True)
class Token:
    """A part of the text as Whisper writes it, which can begin or end inside a character."""

    data: bytes
    start: float
    end: float
    probability: float | None = None
    language: str | None = None


def piece_tokens(found: Sequence[EngineToken], piece: Piece, language: str | None = None) -> list[Token]:
    """Of a piece, from those of an engine; one without a start begins where the last ends."""
    tokens = []
    before = piece.start
    for text, first, last, probability in found:
        start = before if first is None else max(before, piece.begins(first / 100))
        before = min(max(start, piece.ends(last / 100)), piece.end)
        tokens.append(Token(text.encode("latin-1"), min(start, before), before, probability, language))
    return tokens


def characters(parts: Sequence[bytes]) -> list[str]:
    """The UTF-8 text of which `parts` are the bytes, each character at the part where it begins.

    What is not UTF-8 becomes U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = [""] * len(parts)
    owner = 0  # the part where the character begins whose bytes are being read
    for place, part in enumerate(parts):
        for number in part:
            pending = decoder.getstate()[0]
            if not pending:
                owner = place
            text = decoder.decode(bytes([number]))
            if pending and text:  # now complete, or given up because this byte does not go on with it
                texts[owner] += text[0]
                text = text[1:]
                owner = place
            texts[place] += text
    if parts:
        texts[owner] += decoder.decode(b"", final=True)
    return texts


def ends_inside(data: bytes) -> bool:
    """Whether the last character of a text in UTF-8 is not complete."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return bool(decoder.getstate()[0])


def to_words(pieces: Sequence[Sequence[Token]], *, first: bool = True) -> list[Word]:
    """The words of a track from the tokens of its pieces. No word goes on from one piece into the next.

    `first`: the track begins with these; otherwise there are words before them.

    A word begins with a space; in scripts without spaces each token is one. Punctuation belongs to the word
    before it (or, at the start of a piece, after it) and takes none of its time: it stands for the pause.
    """
    texts = iter(characters([token.data for tokens in pieces for token in tokens]))
    words: list[Word] = []
    for tokens in pieces:
        groups: list[list[tuple[Token, str]]] = []
        for token in tokens:
            text = next(texts)
            if not groups or _begins_word(text, groups[-1]):
                groups.append([])
            groups[-1].append((token, text))
        for group in _with_letters(groups):
            text = "".join(text for _, text in group)
            if (
                (words or not first)
                and group is groups[0]
                and not text[:1].isspace()
                and not unspaced(text[:1])
            ):
                text = f" {text}"
            spoken = [token for token, text in group if not text or any(map(str.isalnum, text))]
            times = spoken[0].start, spoken[-1].end
            words.append(Word(*times, text, probability=_probability(spoken), language=spoken[0].language))
    return words


def _probability(tokens: Sequence[Token]) -> float | None:
    """Of a word: the mean of its tokens, as openai/whisper has it; None if the engine told none."""
    told = [token.probability for token in tokens if token.probability is not None]
    return round(sum(told) / len(told), 3) if told else None


def _begins_word(text: str, group: Sequence[tuple[Token, str]]) -> bool:
    """Whether the token with that text is the first of a word and not a part of `group`."""
    if not text or text[0].isspace() or not text[0].isalnum():
        return text[:1].isspace()
    if unicodedata.category(text[0]) == "Lm":  # marks of length and repetition
        return False
    before = [letter for _, text in group for letter in text if letter.isalnum()]
    return unspaced(text[0]) or bool(before and unspaced(before[-1]))


def _with_letters(groups: Sequence[list[tuple[Token, str]]]) -> list[list[tuple[Token, str]]]:
    """The groups, those of punctuation alone joined to the one before or, at the start, after."""
    joined: list[list[tuple[Token, str]]] = []
    for group in groups:
        if joined and not (_letters(group) and _letters(joined[-1])):
            joined[-1] += group
        else:
            joined.append(group)
    return [group for group in joined if _letters(group)]


def _letters(group: Sequence[tuple[Token, str]]) -> int:
    return sum(letter.isalnum() for _, text in group for letter in text)


def place(
    words: Sequence[Word],
    duration: float,
    spoken: Sequence[tuple[float, float]] = (),
    *,
    before: float = 0.0,
) -> list[Word]:
    """The same words with times in order: inside `before` to `duration`, none before the end of the last.

    Whisper tells when a word ends and the next one begins, and not which of them is the pause between: a word
    keeps the part of its time in which somebody speaks, as `spoken` says (`runs`). One whose time is
    all pause goes to the speech next to it, if that is near. One that still takes longer than its letters can
    explain begins later. One that has more speech than they can explain got that of words that were not
    recognized: it was said next to the other words of its sentence.
    """
    placed = []
    least = min(LEAST, (duration - before) / max(1, len(words)))
    for left, word in zip(range(len(words) - 1, -1, -1), words, strict=True):
        longest = longest_time(word)
        ends = word.text.rstrip(CLOSING).endswith(tuple(SENTENCE_ENDS))
        start, end = _spoken(word.start, word.end, spoken, longest, ends=ends)
        end = min(max(end, before + least), duration - left * least)
        start = max(start, before, end - longest)
        placed.append(structs.replace(word, start=max(before, min(start, end - least)), end=end))
        before = end
    return placed


def longest_time(word: Word) -> float:
    """The most seconds that a word is believed to take."""
    letters = sum(DIGIT if letter.isdigit() else letter.isalnum() for letter in word.text)
    return WORD_SECONDS + LETTER_SECONDS * letters


def _spoken(
    start: float, end: float, runs: Sequence[tuple[float, float]], longest: float, *, ends: bool
) -> tuple[float, float]:
    """The part of a time in which somebody speaks. Of several the longest; but if they are more than
    `longest` together, the last, or, of a word that ends a sentence, the first."""
    first = bisect_right(runs, start, key=lambda run: run[1])
    inside = [
        (max(start, run[0]), min(end, run[1]))
        for run in runs[first : bisect_left(runs, end, key=lambda run: run[0])]
    ]
    if sum(last - first for first, last in inside) > longest:
        return inside[0] if ends else inside[-1]
    if inside:
        return max(inside, key=lambda part: part[1] - part[0])
    after = runs[first][0] - end if first < len(runs) else NEAR
    since = start - runs[first - 1][1] if first else NEAR
    if min(after, since) >= NEAR:
        return start, end
    length = min(end - start, SNAPPED)
    if since <= after:
        return runs[first - 1][1] - length, runs[first - 1][1]
    return runs[first][0], runs[first][0] + length


def runs(likely: Bool) -> list[tuple[float, float]]:
    """Where somebody speaks, from and to, in seconds."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], likely, [False])).astype(np.int8)))
    return [(float(first) / FRAME_RATE, float(last) / FRAME_RATE) for first, last in edges.reshape(-1, 2)]
