"""Text for people: times, tables, names that are safe to print."""

from __future__ import annotations

from collections.abc import Collection, Sequence


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


def printable(name: str) -> str:
    """A file name for a message of one line: line breaks, and bytes that are not UTF-8, as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
