"""Text for people: times, tables, counts, and what others wrote, made safe to print."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_BREAKS = "\t-\r\x1c-\x1f\x85\u2028\u2029"
"""White space that ends a line somewhere, or that a table takes for its own."""
_COMMANDS = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069"
"""What commands a terminal, and what turns the direction of the text around it."""
_HALVES = "\ud800-\udfff"
"""Halves of characters, which UTF-8 cannot write; Python has them for bytes of a name that are not UTF-8."""

_BREAK, _COMMAND = re.compile(f"[{_BREAKS}]+"), re.compile(f"[{_COMMANDS}{_HALVES}]")
_HALF, _RAW = re.compile(f"[{_HALVES}]"), re.compile(f"[\x85\u2028\u2029{_COMMANDS}]")
JOINERS = "\u200c\u200d"
"""Not to be seen, but Persian, Hindi and many emoji are not the same without them."""

UNSPACED = (  # from Thai to Burmese, Khmer, kana, Han and its extensions
    *(("\u0e00", "\u109f"), ("\u1780", "\u17ff"), ("\u3040", "\u312f"), ("\u3400", "\u9fff")),
    *(("\uf900", "\ufaff"), ("\uff66", "\uff9f"), ("\U00020000", "\U0003ffff")),
)


def unspaced(letter: str) -> bool:
    """Whether its script puts no spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, kana, Han."""
    return letter >= UNSPACED[0][0] and any(first <= letter <= last for first, last in UNSPACED)


def clock(seconds: float, digits: int = 0, point: str = ".") -> str:
    """00:09:32, or with digits after the decimal point 00:09:32.125; without, rounded down."""
    whole, rest = int(seconds), ""
    if digits:
        whole, parts = divmod(round(seconds * 10**digits), 10**digits)
        rest = f"{point}{parts:0{digits}d}"
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{rest}"


def table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Aligned columns, those in `left` to the left and the others to the right; a line a row, no newline."""
    from rich.cells import cell_len  # a Chinese character takes two places

    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def padded(text: str, column: int) -> str:
        space = " " * (widths[column] - cell_len(text))
        return text + space if column in left else space + text

    return "\n".join("  ".join(map(padded, row, range(len(widths)))).rstrip() for row in rows)


def number(value: float | None, form: str, unit: str = "") -> str:
    """The value in a format such as ".1f" and its unit; "-" if it is not known."""
    return "-" if value is None else f"{value:{form}}{unit}"


def count(number: int, noun: str) -> str:
    """`1 word`, `2 words`: for nouns with a plural in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- what others wrote ---


def printable(text: str) -> str:
    """For a message of one line, which must name a file exactly: what cannot be seen, as escapes."""
    return "".join(c if c.isprintable() or c in JOINERS else _escape(c) for c in text)


def one_line(text: str) -> str:
    """For a line of a document, where words must be read: breaks as a space, commands as U+FFFD."""
    return _COMMAND.sub("\ufffd", _BREAK.sub(" ", text))


def without_commands(text: str) -> str:
    """What somebody could say: each break, command and half of a character as a space, never two together."""
    # A space in their place: nothing can be put together from what stood around them.
    return " ".join(_COMMAND.sub(" ", text).split())


def for_terminal(text: str) -> str:
    """Lines for a terminal: all that may command it, as escapes. What is printable stays as it is."""
    return re.sub(f"[{_COMMANDS}{_HALVES}\x85]|\r(?!\n)", lambda found: _escape(found[0]), text)


def in_json(document: str) -> str:
    """A JSON document with the escapes that `json` leaves out, so that a terminal can show it."""
    if document.replace("\n", "").isprintable():  # nearly always, and known twenty times as soon
        return document
    return _RAW.sub(lambda found: f"\\u{ord(found[0]):04x}", _HALF.sub("\ufffd", document))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
