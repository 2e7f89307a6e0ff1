"""Search queries, and the folding of words that a search takes for the same.

    budget house          both words, anywhere in a passage
    budget OR costs       either word
    budget NOT house      the first without the second; so does -house
    "final numbers"       words that follow each other
    budg*                 any word that begins so
    bugdet~               similar words, too

Nothing else has a meaning, and nothing gets to SQLite but quoted words.

Capitals, accents and signs around a word make no difference, and letters outside the English alphabet match
what people without such a keyboard write: ß by ss, ł by l, ø by o or oe, ü by u or ue. So each word has two
spellings: plain, without marks, and spelled, with umlauts as two letters. They are kept apart, because "toe"
is not "to". Where a script puts no spaces between words, each of its characters is a word, and a search for a
word looks for a phrase of them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from witness.errors import UsageError
from witness.text import unspaced

LONGEST, MOST_TERMS = 500, 32
"""Characters of a query, and words and phrases in it."""
_PART = re.compile(r'(-?)"([^"]*)"?(~?)|(\S+)')
_TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ŧ": "t", "æ": "ae", "œ": "oe", "þ": "th"}
)
_MARKS = ("\u0300", "\u036f")
"""Marks of Latin, Greek and Cyrillic letters; in other scripts a mark may be a vowel."""


@lru_cache(maxsize=1 << 16)
def folded(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words in a text: plain, and spelled with umlauts as two letters; equally many."""
    lower = unicodedata.normalize("NFKC", text.casefold())
    words = ["".join(part) for is_word, part in groupby(lower, _is_part) if is_word]
    pieces = [piece for word in words for piece in _pieces(word)]
    return tuple(map(_unmarked, pieces)), tuple(_unmarked(piece.translate(_TWO_LETTERS)) for piece in pieces)


def plain(text: str) -> str:
    """Return the plain words in a text."""
    return " ".join(folded(text)[0])


def _unmarked(word: str) -> str:
    first, last = _MARKS
    parts = unicodedata.normalize("NFD", word.translate(_LETTERS))
    return unicodedata.normalize("NFC", "".join(part for part in parts if not first <= part <= last))


def _is_part(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "LNM"


def _pieces(word: str) -> list[str]:
    """Split off each character of a script without spaces."""
    parts = [(alone, "".join(letters)) for alone, letters in groupby(word, unspaced)]
    return [piece for alone, part in parts for piece in (part if alone else [part])]


@dataclass(frozen=True)
class Term:
    """A word, or words that follow each other."""

    spellings: tuple[tuple[str, ...], ...]
    """Words of `folded`."""
    goes_on: bool = False
    """The last word may be the beginning of a longer one."""
    near: bool = False
    """Similar words match, too."""

    @property
    def word(self) -> str | None:
        """The typed word; None: it is a phrase, or a beginning."""
        return self.spellings[0][0] if len(self.spellings[0]) == 1 and not self.goes_on else None

    @property
    def expression(self) -> str:
        """In SQLite's terms, without the columns."""
        more = " *" if self.goes_on else ""
        return " OR ".join(f'"{" ".join(words)}"{more}' for words in self.spellings)

    def positions(self, words: Sequence[str]) -> set[int]:
        """Return the positions of matching words in a text of words of `folded`."""
        positions: set[int] = set()
        for spelling in self.spellings:
            *first, last = spelling
            for start in range(len(words) - len(spelling) + 1):
                end = start + len(first)
                ends = words[end].startswith(last) if self.goes_on else words[end] == last
                if ends and list(words[start:end]) == first:
                    positions.update(range(start, end + 1))
        return positions


@dataclass(frozen=True)
class Query:
    """Terms that a passage must have, and must not have."""

    groups: tuple[tuple[Term, ...], ...] = ()
    """A passage needs one term of each group."""
    excluded: tuple[Term, ...] = ()

    @property
    def terms(self) -> list[Term]:
        return [term for group in self.groups for term in group]

    def matches(self, spellings: Sequence[Sequence[str]]) -> bool:
        """Tell whether a text matches, from the spellings of `folded`."""

        def has(term: Term) -> bool:
            return any(term.positions(words) for words in spellings)

        return all(any(map(has, group)) for group in self.groups) and not any(map(has, self.excluded))

    def each(self, change: Callable[[Term], Term]) -> Query:
        """Return the query with each term changed, but for excluded ones."""
        return replace(self, groups=tuple(tuple(map(change, group)) for group in self.groups))

    def expression(self, speakers: Iterable[str] = ()) -> str | None:
        """Return the query in SQLite's terms, for these speakers; None: it is empty.

        Raises UsageError if it only excludes words.
        """
        parts = [_either(group) for group in self.groups]
        if keys := list(speakers):
            parts.append(f"speaker : ({' OR '.join(keys)})")
        if not parts:
            if self.excluded:
                raise UsageError("the query only excludes words; give a word to look for, too")
            return None
        expression = " AND ".join(parts)
        return f"({expression}) NOT {_either(self.excluded)}" if self.excluded else expression


def parse(text: str) -> Query:
    """Parse a typed query. Raises UsageError if it is too long."""
    if len(text) > LONGEST:
        raise UsageError(f"the query is too long; give at most {LONGEST} characters")
    groups: list[list[Term]] = []
    excluded: list[Term] = []
    joins, without = False, False
    for minus, phrase, near, word in _PART.findall(text.replace("“", '"').replace("”", '"')):
        if word in ("OR", "|"):
            joins = bool(groups)
        elif word == "NOT":
            without = True
        elif (term := _term(phrase or word.removeprefix("-"), bool(near))) is not None:
            if without or minus or word.startswith("-"):
                excluded.append(term)
            elif joins:
                groups[-1].append(term)
            else:
                groups.append([term])
            joins = without = False
    if sum(map(len, groups)) + len(excluded) > MOST_TERMS:
        raise UsageError(f"the query has too many words; give at most {MOST_TERMS}")
    return Query(tuple(map(tuple, groups)), tuple(excluded))


def _term(text: str, near: bool) -> Term | None:
    """Return a term; None: the text has no word."""
    text = text.strip()
    spellings = tuple(dict.fromkeys(folded(text)))
    return Term(spellings, text.endswith("*"), near or text.endswith("~")) if spellings[0] else None


def _either(terms: Sequence[Term]) -> str:
    return f"{{words spelled}} : ({' OR '.join(term.expression for term in terms)})"
