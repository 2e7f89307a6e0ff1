"""Points on two axes -> SVG. Every text is data: `_text` and `_mark` escape it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

Shape = Literal["circle", "square", "diamond"]

WIDTH, HEIGHT = 760, 420
"""Pixels of the picture without its key."""
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50
"""Pixels around the plot."""
KEY_LINE = 18
"""Pixels of a line of the key."""
INK, PALE = "#333", "#ddd"


@dataclass(frozen=True)
class Mark:
    """A point, with `number` beside it and `hint` under the pointer."""

    x: float
    y: float
    shape: Shape = "circle"
    color: str = "#777"
    number: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`; with `log` it is logarithmic, and both must be greater than zero."""

    label: str
    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value, from 0 at the low end to 1 at the high end; values beyond are at
        the ends."""
        low, high, middle = (math.log(v) if self.log else v for v in (self.low, self.high, self.clip(value)))
        return (middle - low) / (high - low)

    def clip(self, value: float) -> float:
        return min(max(value, self.low), self.high)

    def ticks(self) -> list[float]:
        """Return round numbers from `low` to `high`: about six, or 1, 2 and 5 times powers of ten with
        `log`."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            values = [step * 10.0**power for power in powers for step in (1, 2, 5)]
        else:
            rough = (self.high - self.low) / 6
            size = 10 ** math.floor(math.log10(rough))
            step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
            values = [step * n for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [value for value in values if self.low <= value <= self.high]


def scatter(title: str, x: Axis, y: Axis, marks: Sequence[Mark], key: Sequence[tuple[Mark, str]] = ()) -> str:
    """Return the picture. `key`: marks with an explanation, listed below it in a line each."""
    height = HEIGHT + KEY_LINE * len(key) + (10 if key else 0)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" fill="{INK}">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        _text(LEFT, 22, title, size=14),
        *_grid(x, y),
    ]
    for mark in marks:
        lines += _mark(mark, _across(x, mark.x), _up(y, mark.y))
    for line, (mark, text) in enumerate(key):
        at = HEIGHT + KEY_LINE * line + 8
        lines += _mark(replace(mark, number=""), LEFT + 6, at)
        lines.append(_text(LEFT + 20, at + 4, text))
    return "\n".join([*lines, "</svg>", ""])


def _across(axis: Axis, value: float) -> float:
    return LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT)


def _up(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - TOP - BOTTOM)


def _grid(x: Axis, y: Axis) -> Iterator[str]:
    for value in x.ticks():
        at = _across(x, value)
        yield _line(at, TOP, at, HEIGHT - BOTTOM)
        yield _text(at, HEIGHT - BOTTOM + 16, f"{value:g}", anchor="middle")
    for value in y.ticks():
        at = _up(y, value)
        yield _line(LEFT, at, WIDTH - RIGHT, at)
        yield _text(LEFT - 6, at + 4, f"{value:g}", anchor="end")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x.label, anchor="middle")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield _text(16, middle, y.label, anchor="middle", turned=True)


def _mark(mark: Mark, x: float, y: float) -> Iterator[str]:
    look = f'fill="{escape(mark.color)}" fill-opacity="0.75" stroke="{escape(mark.color)}"'
    hint = f"<title>{escape(mark.hint)}</title>" if mark.hint else ""
    if mark.shape == "circle":
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {look}>{hint}</circle>'
    else:
        turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if mark.shape == "diamond" else ""
        yield (f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"{turn} {look}>{hint}</rect>')
    if mark.number:
        yield _text(x + 7, y - 5, mark.number, size=11)


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{PALE}"/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, turned: bool = False
) -> str:
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{turn}>{escape(text)}</text>'
    )
