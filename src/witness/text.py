"""Text for people: times, tables, counts, and untrusted text made safe to print."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

_BREAKS = "\t-\r\x1c-\x1f\x85\u2028\u2029"
"""White space that some program takes for a line break or for a table's column separator."""
_COMMANDS = "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069"
"""Characters that command a terminal or change the direction of surrounding text."""
_HALVES = "\ud800-\udfff"
"""Surrogates, which UTF-8 cannot encode; Python uses them for bytes of a file name that are not UTF-8."""

_BREAK, _COMMAND = re.compile(f"[{_BREAKS}]+"), re.compile(f"[{_COMMANDS}{_HALVES}]")
_HALF, _RAW = re.compile(f"[{_HALVES}]"), re.compile(f"[\x85\u2028\u2029{_COMMANDS}]")
JOINERS = "\u200c\u200d"
"""Invisible characters that Persian, Hindi and emoji need."""

UNSPACED = (  # from Thai to Burmese, Khmer, kana, Han and its extensions
    *(("\u0e00", "\u109f"), ("\u1780", "\u17ff"), ("\u3040", "\u312f"), ("\u3400", "\u9fff")),
    *(("\uf900", "\ufaff"), ("\uff66", "\uff9f"), ("\U00020000", "\U0003ffff")),
)


def unspaced(letter: str) -> bool:
    """Return True for scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, kana, Han."""
    return letter >= UNSPACED[0][0] and any(first <= letter <= last for first, last in UNSPACED)


def clock(seconds: float, digits: int = 0, point: str = ".") -> str:
    """Format a time as 00:09:32, rounded down, or with `digits` decimals as 00:09:32.125."""
    whole, rest = int(seconds), ""
    if digits:
        whole, parts = divmod(round(seconds * 10**digits), 10**digits)
        rest = f"{point}{parts:0{digits}d}"
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{rest}"


def in_units(duration: float) -> str:
    """Write seconds as `2 min 10 s`."""
    whole = int(duration + 0.5)  # as in the desk's list
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    return (
        f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    )


def table(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """Align columns, those in `left` to the left and the others to the right; one line per row."""
    from rich.cells import cell_len  # a Chinese character is two columns wide

    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]

    def padded(text: str, column: int) -> str:
        space = " " * (widths[column] - cell_len(text))
        return text + space if column in left else space + text

    return "\n".join("  ".join(map(padded, row, range(len(widths)))).rstrip() for row in rows)


def number(value: float | None, form: str, unit: str = "") -> str:
    """Format a value, for example with ".1f", and add its unit; "-" for an unknown value."""
    return "-" if value is None else f"{value:{form}}{unit}"


def suggest(word: str, words: Iterable[str]) -> str:
    """Return `; did you mean NAME?` for the nearest of the words, or nothing if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, [*words], 1)
    return f"; did you mean {near[0]}?" if near else ""


def count(number: int, noun: str) -> str:
    """Return `1 word`, `2 words`: for nouns with a plural in s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- untrusted text ---


def printable(text: str) -> str:
    """Escape invisible characters, for a message that must name a file exactly on one line."""
    return "".join(c if c.isprintable() or c in JOINERS else _escape(c) for c in text)


def one_line(text: str) -> str:
    """Replace line breaks by a space and commands by U+FFFD, for a readable line of a document."""
    return _COMMAND.sub("\ufffd", _BREAK.sub(" ", text))


def without_commands(text: str) -> str:
    """Replace each run of breaks, commands and surrogates by one space."""
    # Plain removal would join the characters around them, possibly to a new command.
    return " ".join(_COMMAND.sub(" ", text).split())


def for_terminal(text: str) -> str:
    """Escape everything that may command a terminal; keep printable characters and line ends."""
    return re.sub(f"[{_COMMANDS}{_HALVES}\x85]|\r(?!\n)", lambda match: _escape(match[0]), text)


def in_json(document: str) -> str:
    """Add the escapes that `json` leaves out, so that a terminal can show the document."""
    if document.replace("\n", "").isprintable():  # nearly always, and twenty times as fast
        return document
    return _RAW.sub(lambda match: f"\\u{ord(match[0]):04x}", _HALF.sub("\ufffd", document))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
