"""What somebody looks for, in a search's own small language.

    budget house          both words, anywhere in a passage
    budget OR costs       either word
    budget NOT house      the first without the second; so does -house
    "final numbers"       words that follow each other
    budg*                 any word that begins so
    bugdet~               words that are spelled nearly so, too

Nothing else has a meaning, and nothing gets to SQLite but quoted words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from witness.errors import UsageError
from witness.serve.library.folding import folded

LONGEST, MOST_TERMS = 500, 32
"""Characters of a query, and words and phrases in it."""
_PART = re.compile(r'(-?)"([^"]*)"?(~?)|(\S+)')


@dataclass(frozen=True)
class Term:
    """A word, or words that follow each other."""

    spellings: tuple[tuple[str, ...], ...]
    """Each as the words of `folding`."""
    goes_on: bool = False
    """The last word may be the beginning of one."""
    near: bool = False
    """Words that are spelled nearly so are meant, too."""

    @property
    def word(self) -> str | None:
        """The word as somebody has typed it; None: it is a phrase, or a beginning."""
        return self.spellings[0][0] if len(self.spellings[0]) == 1 and not self.goes_on else None

    @property
    def expression(self) -> str:
        """In SQLite's terms, without the columns."""
        more = " *" if self.goes_on else ""
        return " OR ".join(f'"{" ".join(words)}"{more}' for words in self.spellings)

    def places(self, words: Sequence[str]) -> set[int]:
        """Where it is in a text, which is given as the words of `folding`."""
        found: set[int] = set()
        for wanted in self.spellings:
            *first, last = wanted
            for start in range(len(words) - len(wanted) + 1):
                end = start + len(first)
                ends = words[end].startswith(last) if self.goes_on else words[end] == last
                if ends and list(words[start:end]) == first:
                    found.update(range(start, end + 1))
        return found


@dataclass(frozen=True)
class Query:
    """What is to be in a passage, and what is not."""

    wanted: tuple[tuple[Term, ...], ...] = ()
    """Of each group one."""
    unwanted: tuple[Term, ...] = ()

    @property
    def terms(self) -> list[Term]:
        """All that is wanted."""
        return [term for group in self.wanted for term in group]

    def fits(self, spellings: Sequence[Sequence[str]]) -> bool:
        """Whether a text is meant, which is given as the spellings of `folding`."""

        def has(term: Term) -> bool:
            return any(term.places(words) for words in spellings)

        return all(any(map(has, group)) for group in self.wanted) and not any(map(has, self.unwanted))

    def each(self, change: Callable[[Term], Term]) -> Query:
        """The same query, with each wanted term as `change` has it."""
        return replace(self, wanted=tuple(tuple(map(change, group)) for group in self.wanted))

    def expression(self, speakers: Iterable[str] = ()) -> str | None:
        """In SQLite's terms, said by one of these; None: nothing is wanted.

        Raises UsageError if it is only said what is not to be there.
        """
        groups = [_either(group) for group in self.wanted]
        if keys := list(speakers):
            groups.append(f"speaker : ({' OR '.join(keys)})")
        if not groups:
            if self.unwanted:
                raise UsageError("the query says only what is not wanted; give a word to look for, too")
            return None
        wanted = " AND ".join(groups)
        return f"({wanted}) NOT {_either(self.unwanted)}" if self.unwanted else wanted


def parse(text: str) -> Query:
    """The query that somebody typed. Raises UsageError if it is too long."""
    if len(text) > LONGEST:
        raise UsageError(f"the query is too long; give at most {LONGEST} characters")
    wanted: list[list[Term]] = []
    unwanted: list[Term] = []
    joins, without = False, False
    for minus, phrase, near, word in _PART.findall(text.replace("“", '"').replace("”", '"')):
        if word in ("OR", "|"):
            joins = bool(wanted)
        elif word == "NOT":
            without = True
        elif (term := _term(phrase or word.removeprefix("-"), bool(near))) is not None:
            if without or minus or word.startswith("-"):
                unwanted.append(term)
            elif joins:
                wanted[-1].append(term)
            else:
                wanted.append([term])
            joins = without = False
    if sum(map(len, wanted)) + len(unwanted) > MOST_TERMS:
        raise UsageError(f"the query has too many words; give at most {MOST_TERMS}")
    return Query(tuple(map(tuple, wanted)), tuple(unwanted))


def _term(text: str, near: bool) -> Term | None:
    """None: there is no word in it."""
    text = text.strip()
    near = near or text.endswith("~")
    spellings = tuple(dict.fromkeys(folded(text)))
    return Term(spellings, text.endswith("*"), near) if spellings[0] else None


def _either(terms: Sequence[Term]) -> str:
    return f"{{words spelled}} : ({' OR '.join(term.expression for term in terms)})"
