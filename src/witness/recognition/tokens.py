"""A recognizer's tokens -> words with believable times.

A token is a part of the text and may begin or end inside a character; a word ends at a space.
"""

from __future__ import annotations

import codecs
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from witness import schema
from witness.recognition.chunking import Piece
from witness.recognition.engine import EngineToken
from witness.recognition.vad import FRAME_RATE
from witness.schema import CLOSING, SENTENCE_ENDS, Bool, Word
from witness.text import unspaced

WORD_SECONDS = 0.4
"""Longest believable time of a word without letters."""
LETTER_SECONDS = 0.12
"""Additional time for each letter."""
DIGIT = 4
"""Letters that a digit stands for: "555-0100" is seven words to say."""
NEAR = 1.0
"""Most seconds from a word in a pause to the speech where it belongs."""
SNAPPED = 0.2
"""Most seconds of such a word."""
LEAST = 0.01
"""Least seconds of a word: corrections find words by their middles, which no two must share."""


@dataclass(frozen=True)
class Token:
    """Part of a text, at its time in the track."""

    data: bytes
    start: float
    end: float
    probability: float | None = None
    language: str | None = None


def piece_tokens(
    engine_tokens: Sequence[EngineToken], piece: Piece, language: str | None = None
) -> list[Token]:
    """Place the tokens of a piece in the track; a token without a start begins at the end of the last."""
    tokens = []
    before = piece.start
    for text, first, last, probability in engine_tokens:
        start = before if first is None else max(before, piece.begins(first / 100))
        before = min(max(start, piece.ends(last / 100)), piece.end)
        tokens.append(Token(text.encode("latin-1"), min(start, before), before, probability, language))
    return tokens


def characters(parts: Sequence[bytes]) -> list[str]:
    """Decode the UTF-8 text in `parts`, each character at the part where it begins.

    Bytes that are not UTF-8 become U+FFFD.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = [""] * len(parts)
    owner = 0  # the part where the current character begins
    for number, part in enumerate(parts):
        for byte in part:
            pending = decoder.getstate()[0]
            if not pending:
                owner = number
            text = decoder.decode(bytes([byte]))
            if pending and text:  # now complete, or given up because this byte does not continue it
                texts[owner] += text[0]
                text = text[1:]
                owner = number
            texts[number] += text
    if parts:
        texts[owner] += decoder.decode(b"", final=True)
    return texts


def ends_inside(engine_tokens: Sequence[EngineToken]) -> bool:
    """Return whether the last character of a piece is incomplete: the next piece has the rest."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(b"".join(token.text.encode("latin-1") for token in engine_tokens))
    return bool(decoder.getstate()[0])


def to_words(pieces: Sequence[Sequence[Token]], *, first: bool = True) -> list[Word]:
    """Join the tokens of pieces to words; no word continues into the next piece.

    `first`: the track begins with these pieces.

    A word begins with a space; in scripts without spaces each token is a word. Punctuation belongs to the
    word before it (or, at the start of a piece, after it) and takes none of its time: it marks the pause.
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
    """Return the mean over a word's tokens, as openai/whisper does; None if the engine tells none."""
    values = [token.probability for token in tokens if token.probability is not None]
    return round(sum(values) / len(values), 3) if values else None


def _begins_word(text: str, group: Sequence[tuple[Token, str]]) -> bool:
    """Return whether the token with that text begins a word after those of `group`."""
    if not text or text[0].isspace() or not text[0].isalnum():
        return text[:1].isspace()
    if unicodedata.category(text[0]) == "Lm":  # marks of length and repetition
        return False
    before = [letter for _, text in group for letter in text if letter.isalnum()]
    return unspaced(text[0]) or bool(before and unspaced(before[-1]))


def _with_letters(groups: Sequence[list[tuple[Token, str]]]) -> list[list[tuple[Token, str]]]:
    """Join groups of punctuation alone to the group before or, at the start, after."""
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
    """Put the times of words in order: inside `before` to `duration`, none before the end of the last.

    Whisper tells when a word ends and the next begins, and does not assign the pause between them: a word
    keeps the part of its time with speech, as `spoken` says (`runs`). A word without speech moves to speech
    next to it, if that is near. A word that still takes longer than its letters can explain begins later. A
    word with more speech than its letters can explain got that of words that were not recognized: it belongs
    next to the other words of its sentence.
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
    """Return the longest believable time of a word, in seconds."""
    letters = sum(DIGIT if letter.isdigit() else letter.isalnum() for letter in word.text)
    return WORD_SECONDS + LETTER_SECONDS * letters


def _spoken(
    start: float, end: float, runs: Sequence[tuple[float, float]], longest: float, *, ends: bool
) -> tuple[float, float]:
    """Return the part of a time with speech, the longest of several.

    Of more than `longest` together, return the last, or the first for a word that ends a sentence.
    """
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
    """Return the stretches of speech, in seconds."""
    return [(float(first) / FRAME_RATE, float(last) / FRAME_RATE) for first, last in schema.runs(likely)]
