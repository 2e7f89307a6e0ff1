"""What a search takes for a word, and for the same word.

Capitals, accents and signs around a word make no difference, and letters that are not of the English alphabet
are found by those that people without such a keyboard write: ß by ss, ł by l, ø by o or oe, ü by u or ue.
So each word has two spellings: `plain`, without marks, and `spelled`, with umlauts as two letters. They are
kept apart, because "toe" is not "to". Where a script puts no spaces between words, each of its characters is
a word, and a word that is looked for is a phrase of them.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from itertools import groupby

from witness.text import unspaced

_TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "ı": "i", "ŧ": "t", "æ": "ae", "œ": "oe", "þ": "th"}
)
_MARKS = ("\u0300", "\u036f")
"""Those of Latin, Greek and Cyrillic letters; in other scripts a mark may be a vowel."""


@lru_cache(maxsize=1 << 16)
def folded(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words in a text: plain, and spelled with umlauts as two letters. Both are as many."""
    lower = unicodedata.normalize("NFKC", text.casefold())
    words = ["".join(part) for is_word, part in groupby(lower, _is_part) if is_word]
    each = [piece for word in words for piece in _pieces(word)]
    return tuple(map(_bare, each)), tuple(_bare(one.translate(_TWO_LETTERS)) for one in each)


def plain(text: str) -> str:
    """The words in a text, as they are compared."""
    return " ".join(folded(text)[0])


def _bare(word: str) -> str:
    """Without marks, in letters that most keyboards have."""
    first, last = _MARKS
    parts = unicodedata.normalize("NFD", word.translate(_LETTERS))
    return unicodedata.normalize("NFC", "".join(one for one in parts if not first <= one <= last))


def _is_part(letter: str) -> bool:
    return unicodedata.category(letter)[0] in "LNM"


def _pieces(word: str) -> list[str]:
    """The word, with each character apart that is of a script without spaces."""
    parts = [(alone, "".join(letters)) for alone, letters in groupby(word, unspaced)]
    return [piece for alone, part in parts for piece in (part if alone else [part])]
