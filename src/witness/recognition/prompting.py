"""Names and terms, and a prompt -> the text that a recognizer is told was said before."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence

from witness.text import without_commands

CONTROL_TOKEN = re.compile(r"<\|[^<>|]*\|>")
"""<|endoftext|>, <|fr|>, <|0.00|>: a tokenizer takes them for the commands that they spell."""


def plain(text: str) -> str:
    """A text as somebody could have said it, without control tokens and control characters."""
    return without_commands(CONTROL_TOKEN.sub(" ", without_commands(text)))


def context(terms: Sequence[str], prompt: str) -> str:
    """The terms, and then the prompt: what is nearest to the speech counts most.

    The wording: docs/decisions/2026-11-22-words.md, "Vocabulary".
    """
    glossary = f"Glossary: {', '.join(terms)}." if terms else ""
    return f"{glossary} {prompt}".strip()


def fit(
    terms: Sequence[str], prompt: str, count: Callable[[str], int], room: int
) -> tuple[str, Sequence[str]]:
    """The context with as many of the first terms as there is room for, and the terms that are left out.

    `count` tells the tokens of a text, of which there may be `room`. A prompt that is too long by itself
    comes back whole, without terms; the recognizer hears its end.
    """
    fitting = bisect_right(
        range(1, len(terms) + 1), room, key=lambda number: count(context(terms[:number], prompt))
    )
    return context(terms[:fitting], prompt), terms[fitting:]


def fit_or_warn(
    vocabulary: Sequence[str], prompt: str, count: Callable[[str], int], room: int
) -> tuple[str, list[str]]:
    """As `fit`, of what a person wrote, with warnings about what the recognizer does not hear of."""
    terms, heard = [term for term in map(plain, vocabulary) if term], plain(prompt)
    warnings = [
        f"control characters and control tokens such as <|endoftext|> were taken out of the {what}"
        for what, given in (("prompt", (prompt,)), ("vocabulary", vocabulary))
        if any(plain(one) != " ".join(one.split()) for one in given)
    ]
    if not terms and not heard:
        return "", warnings
    text, left_out = fit(terms, heard, count, room)
    if count(heard) > room:
        warnings.append(
            f"the prompt is longer than the {room} tokens that the recognizer takes, so it heard only the "
            "end; shorten it"
        )
    if left_out:
        warnings.append(
            f"the vocabulary is longer than the recognizer takes: the last {len(left_out)} of {len(terms)} "
            f"terms were left out, from {left_out[0]!r} on; put the important ones first"
        )
    return text, warnings
