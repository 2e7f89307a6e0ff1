"""Scores of words: WER, cpWER, words under the wrong speaker, errors of word times, intervals.

kaldialign aligns and meeteval finds the speakers; here the numbers get names, and texts become comparable.
"""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from witness._version import install
from witness.bench import pooling
from witness.bench.lines import Row, Said
from witness.bench.pooling import Difference, Pooled
from witness.errors import InputError, WitnessError
from witness.progress import SILENT, Reporter
from witness.schema import Float64
from witness.text import unspaced

NORMALIZATION = (
    "words/1: NFKC, lower case, no punctuation but apostrophes inside words, hyphens part words, "
    "numbers up to 99 spelled out where the language is known, each character a word in scripts without "
    "spaces"
)
"""Normalization of texts before they are compared; its number changes with the rules."""
APOSTROPHES = dict.fromkeys(map(ord, "’‘ʼ´`＇"), "'")
LARGEST_SPELLED = 99  # larger ones are said in several ways: years, telephone numbers, "a hundred"
COLLAR = 5.0
"""Largest error of word times in tcpWER, in seconds, as in the CHiME-7 and -8 challenges."""
MOST_SPEAKERS = 20  # the limit of meeteval
NOTHING = "*"  # no token is written so


class Measure(NamedTuple):
    """A named rate, in percent."""

    name: str
    meaning: str


WER = Measure("WER", "all words in order of time, whoever said them")
CPWER = Measure("cpWER", "each speaker's words by themselves, speakers paired for the fewest errors")
COST = Measure("cpWER - WER", "what the speaker labels cost")
TCPWER = Measure("tcpWER", f"cpWER of words that are less than {COLLAR:g} s from where they were said")
CONFUSED = Measure("wrong speaker", "of the words that were recognized")
MEASURES = (WER, CPWER, COST, TCPWER, CONFUSED)


class Counts(NamedTuple):
    """Numbers of errors and words. A cost can be below zero."""

    substitutions: int
    deletions: int
    insertions: int
    words: int
    """In the reference."""

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions


class Lost(NamedTuple):
    """A word of the reference that the hypothesis lacks."""

    time: float
    """Its time in seconds, estimated from its place in the line."""
    speaker: str | None
    text: str
    overlapped: bool
    """True if another speaker has a line in the reference at that time."""


@dataclass(frozen=True)
class WordScore:
    """Scores of one recording. Values that its formats do not tell are None."""

    uri: str
    counts: Mapping[Measure, Counts]
    """Without those that need speakers if either side names none, and without cpWER and tcpWER if one has
    more than MOST_SPEAKERS. `CONFUSED` has its errors in
    `substitutions`, and `words` are those that were recognized."""
    starts: tuple[float, ...]
    """Delays in seconds of the recognized words at the beginnings of lines of the reference."""
    ends: tuple[float, ...]
    """The same for the ends, of the last word of each line."""
    lost: tuple[Lost, ...]
    digits: tuple[int, int]
    """Words with digits in reference and hypothesis, after normalization: if one side has far more, it writes
    numbers in another way, and some errors are only apparent."""
    speakers: tuple[int, int] | None
    """In reference and hypothesis."""
    unsupported: int
    inaudible: float
    """Seconds."""

    def rate(self, measure: Measure) -> float | None:
        """Return percent; None for an unknown rate, and without words."""
        counts = self.counts.get(measure)
        return 100 * counts.errors / counts.words if counts and counts.words else None


@dataclass(frozen=True)
class Times:
    """Absolute errors of word times, in seconds."""

    words: int
    median: float
    percentile_95: float
    late: float
    """Median of the signed errors; below zero: the hypothesis is early."""


@dataclass(frozen=True)
class Spoken:
    """A normalized word."""

    text: str
    start: float | None
    """None inside a line, where words have no times."""
    end: float | None
    time: float
    """Its middle, estimated inside a line."""
    speaker: str | None


@lru_cache(maxsize=100_000)  # most words of a transcript occur again
def normalize(text: str, language: str | None = None) -> tuple[str, ...]:
    """Return the words of a text, normalized (`NORMALIZATION`)."""
    folded = unicodedata.normalize("NFKC", text.translate(APOSTROPHES)).casefold()
    normalized: list[str] = []
    for word in (word.strip("'") for word in "".join(_parted(folded)).split()):
        short = word.isdecimal() and len(word) <= len(str(LARGEST_SPELLED))
        if language and short and str(int(word)) == word:
            normalized += _spelled(int(word), language)
        elif word:
            normalized.append(word)
    return tuple(normalized)


def score(pairs: Mapping[str, tuple[Said, Said]], *, reporter: Reporter = SILENT) -> list[WordScore]:
    """Score the pairs of reference and transcript of all recordings.

    Raises WitnessError if kaldialign, meeteval or num2words is not installed.
    """
    scores = []
    for done, (uri, (reference, hypothesis)) in enumerate(pairs.items(), start=1):
        scores.append(_score(uri, reference, hypothesis))
        reporter.progress("scoring", done, len(pairs))
    return scores


def align(
    reference: Sequence[Spoken], hypothesis: Sequence[Spoken]
) -> list[tuple[Spoken | None, Spoken | None]]:
    """Align both sides with the fewest errors, with None opposite a word that only one side has.

    Takes 4 bytes for each pair of words: 0.4 GB for two texts of 10,000 words, about an hour of talk.
    """
    rows, columns = iter(reference), iter(hypothesis)
    sides = [[token.text for token in side] for side in (reference, hypothesis)]
    return [
        (None if left == NOTHING else next(rows), None if right == NOTHING else next(columns))
        for left, right in _library("kaldialign").align(*sides, NOTHING)
    ]


def tokens(said: Said, language: str | None = None) -> list[Spoken]:
    """Return the normalized words of all lines, in order of the lines."""
    return [token for line in said.lines for token in _tokens(line, language)]


def owners(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Map true speakers to found ones, one to one, with the fewest errors.

    `pairs`: (true speaker, found speaker) of each word. Speakers without a counterpart are left out.
    """
    if not pairs:
        return {}
    rows, columns = (sorted(set(side)) for side in zip(*pairs, strict=True))
    counts = Counter(pairs)
    table = [[counts[row, column] for column in columns] for row in rows]
    best = zip(*linear_sum_assignment(table, maximize=True), strict=True)
    return {rows[row]: columns[column] for row, column in best}


def pool(scores: Sequence[WordScore]) -> dict[Measure, Pooled]:
    """Pool all files under every measure that all of them have; one file has no interval.

    Raises InputError if the references have no words.
    """
    counts = _counts(scores)
    if WER not in counts:
        raise InputError("the reference has no words to score against; check it")
    return {measure: pooling.pool(rows, interval=len(scores) > 1) for measure, rows in counts.items()}


def compare(scores: Sequence[WordScore], others: Sequence[WordScore]) -> dict[Measure, Difference]:
    """Subtract `others`, which are of the same files in the same order, from `scores`; per measure."""
    ours, theirs = _counts(scores), _counts(others)
    return {
        measure: pooling.compare(ours[measure], theirs[measure], interval=len(scores) > 1)
        for measure in ours
        if measure in theirs
    }


def times(errors: Sequence[float]) -> Times | None:
    """Summarize the errors of word times; None without errors."""
    if not errors:
        return None
    median, percentile = np.percentile(np.abs(errors), [50, 95]).tolist()
    return Times(len(errors), median, percentile, float(np.median(errors)))


# --- one recording ---


def _score(uri: str, reference: Said, hypothesis: Said) -> WordScore:
    truth, guess = (tokens(said, hypothesis.language) for said in (reference, hypothesis))
    aligned = align(truth, guess)
    same = [(a, b) for a, b in aligned if a and b and a.text == b.text]
    counts = {
        WER: Counts(
            sum(1 for a, b in aligned if a and b) - len(same),
            sum(1 for _, b in aligned if b is None),
            sum(1 for a, _ in aligned if a is None),
            len(truth),
        )
    }
    people = None
    if all(line.speaker is not None for said in (reference, hypothesis) for line in said.lines):
        people = (_speakers(reference), _speakers(hypothesis))
        if max(people) <= MOST_SPEAKERS:
            counts |= _by_speaker(uri, reference, hypothesis)
            costs = [more - fewer for more, fewer in zip(counts[CPWER][:3], counts[WER][:3], strict=True)]
            counts[COST] = Counts._make([*costs, len(truth)])
        said_by = [(str(a.speaker), str(b.speaker)) for a, b in same]
        names = owners(said_by)
        wrong = sum(names.get(true) != assigned for true, assigned in said_by)
        counts[CONFUSED] = Counts(wrong, 0, 0, len(said_by))
    return WordScore(
        uri,
        counts,
        tuple(b.start - a.start for a, b in same if a.start is not None and b.start is not None),
        tuple(b.end - a.end for a, b in same if a.end is not None and b.end is not None),
        tuple(_lost((a for a, b in aligned if a and b is None), reference)),
        (_with_digits(truth), _with_digits(guess)),
        people,
        len(hypothesis.unsupported),
        hypothesis.inaudible,
    )


def _by_speaker(uri: str, reference: Said, hypothesis: Said) -> dict[Measure, Counts]:
    """Compute cpWER and tcpWER with meeteval."""
    meeteval = _library("meeteval.wer")
    # It warns of lines of one speaker that overlap, which references may have.
    logging.getLogger("preprocess").setLevel(logging.ERROR)
    sides = [
        _library("meeteval.io").SegLST(
            [
                {
                    "session_id": uri,
                    "speaker": line.speaker,
                    "words": " ".join(normalize(line.text, hypothesis.language)),
                    "start_time": line.start,
                    "end_time": line.end,
                }
                for line in said.lines
            ]
        )
        for said in (reference, hypothesis)
    ]
    results = {
        CPWER: meeteval.cp_word_error_rate(*sides),
        TCPWER: meeteval.time_constrained_minimum_permutation_word_error_rate(*sides, collar=COLLAR),
    }
    return {
        measure: Counts(result.substitutions, result.deletions, result.insertions, result.length)
        for measure, result in results.items()
    }


def _tokens(line: Row, language: str | None) -> Iterator[Spoken]:
    """Yield the words of a line; each takes a share of the time that is its share of the letters."""
    texts = normalize(line.text, language)
    if not texts:
        return
    edges = np.cumsum([0, *map(len, texts)]) / sum(map(len, texts))
    spans = pairwise((line.start + edges * (line.end - line.start)).tolist())
    last = len(texts) - 1
    for number, (text, (start, end)) in enumerate(zip(texts, spans, strict=True)):
        yield Spoken(
            text,
            line.start if number == 0 else None,
            line.end if number == last else None,
            (start + end) / 2,
            line.speaker,
        )


def _lost(missing: Iterable[Spoken], reference: Said) -> Iterator[Lost]:
    edges = np.array([(line.start, line.end) for line in reference.lines]).reshape(-1, 2)
    speakers = np.array([str(line.speaker) for line in reference.lines])
    for token in missing:
        current = (edges[:, 0] <= token.time) & (token.time <= edges[:, 1])
        yield Lost(
            token.time, token.speaker, token.text, bool((speakers[current] != str(token.speaker)).any())
        )


def _speakers(said: Said) -> int:
    return len({line.speaker for line in said.lines})


def _with_digits(side: Sequence[Spoken]) -> int:
    return sum(any(map(str.isdigit, token.text)) for token in side)


def _counts(scores: Sequence[WordScore]) -> dict[Measure, Float64]:
    """Return (files, 4), in the order of `Counts`, for each measure with words in all files."""
    shared = [measure for measure in MEASURES if all(measure in score.counts for score in scores)]
    counts = {measure: np.array([score.counts[measure] for score in scores], float) for measure in shared}
    return {measure: rows for measure, rows in counts.items() if rows[:, 3].any()}


# --- texts ---


def _parted(text: str) -> Iterator[str]:
    """Yield the letters, marks, numbers and apostrophes of a text, with spaces wherever a word ends."""
    after_unspaced = False  # the last letter was of a script without spaces
    for letter in text:
        category = unicodedata.category(letter)[0]
        if letter != "'" and category not in "LMN":
            letter = " "
        elif category != "M":
            is_unspaced = unspaced(letter)
            if is_unspaced or after_unspaced:
                yield " "
            after_unspaced = is_unspaced
        yield letter


@lru_cache
def _spelled(value: int, language: str) -> tuple[str, ...]:
    """Spell a number, or return its digits in a language that num2words does not know."""
    try:
        return normalize(_library("num2words").num2words(value, lang=language))
    except NotImplementedError:
        return (str(value),)


def _library(name: str) -> Any:
    """Import a module of the extra `bench`. Raises WitnessError."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise WitnessError(f"scoring words needs {package}; fix: {install('bench')}") from error
