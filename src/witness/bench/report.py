"""Report of the scores of turns or words, as text, JSON, CSV and HTML."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from witness import text
from witness.bench.pooling import Difference, Interval, Pooled
from witness.formats import html
from witness.formats.html import Table
from witness.formats.reading import to_json


@dataclass(frozen=True)
class Report:
    """All figures of scores."""

    title: str
    beside: Sequence[str]
    """Lines of figures below the first table."""
    parts: Sequence[Table | str]
    """Tables and pictures (SVG), the pooled figures first."""
    document: Mapping[str, Any]
    """The JSON."""
    rows: Sequence[Sequence[object]]
    """Rows of the CSV, one per recording below the heads."""

    def to_text(self) -> str:
        """Render the tables, without those for the page only."""
        tables = [part for part in self.parts if isinstance(part, Table) and not part.page_only]
        pooled, *others = [text.table(table.rows, table.left) for table in tables]
        return "\n\n".join(["\n".join([pooled, *self.beside]), *others]) + "\n"

    def to_html(self) -> str:
        """Render a page with all tables and pictures."""
        return html.report_page(self.title, self.beside, self.parts)

    def to_json(self) -> str:
        return to_json(self.document)

    def to_csv(self) -> str:
        out = io.StringIO(newline="")
        csv.writer(out).writerows(self.rows)
        return out.getvalue()


def pooled_table(title: str, parts: Sequence[str], rows: Iterable[tuple[str, str, Pooled]]) -> Table:
    """Return the table of pooled figures. `parts`: the sorts of errors; `rows`: name, meaning, figures."""
    cells = [
        [name, rate(pooled.rate), _edges(pooled.interval), *map(rate, pooled.parts), meaning]
        for name, meaning, pooled in rows
    ]
    return Table("All recordings", [[title, "", "95 %", *parts, "meaning"], *cells], (0, 6))


def difference_table(title: str, differences: Mapping[str, Difference]) -> Table:
    rows = [
        [name, f"{difference.points:+.2f}", _edges(difference.interval, "+.2f")]
        for name, difference in differences.items()
    ]
    return Table("Against the other hypothesis", [[title, "", "95 %"], *rows])


def pooled_figures(pooled: Pooled, name: str, parts: Sequence[str]) -> dict[str, Any]:
    """Return pooled figures for JSON, with the names of the rate and of the sorts of errors."""
    sorts = zip(parts, map(rounded, pooled.parts), strict=True)
    return {name: rounded(pooled.rate), "interval": _rounded_edges(pooled.interval), **dict(sorts)}


def difference_figures(differences: Mapping[str, Difference]) -> dict[str, Any]:
    """Return differences for JSON."""
    return {
        name: {
            "difference": rounded(difference.points),
            "interval": _rounded_edges(difference.interval),
        }
        for name, difference in differences.items()
    }


def rate(value: float | None) -> str:
    """Format percent with two digits; "-" for an unknown value, and where there is nothing to score."""
    return text.number(None if value is None or math.isnan(value) else value, ".2f")


def rounded(value: float | None) -> float | None:
    """Round percent to hundredths; None as in `rate`."""
    return None if value is None or math.isnan(value) else round(value, 2)


def _edges(interval: Interval | None, form: str = ".2f") -> str:
    if interval is None:
        return "-"
    return " to ".join("-" if math.isnan(edge) else f"{edge:{form}}" for edge in interval)


def _rounded_edges(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else [rounded(edge) for edge in interval]
