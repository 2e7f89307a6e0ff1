"""Scores -> text, JSON, CSV, HTML. The conventions are named in every one of them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence

from witness.bench import scoring
from witness.bench.scoring import CONVENTIONS, FileScore
from witness.formats import page, pictures
from witness.formats.pictures import Axis, Mark

UNDEFINED = "-"  # a rate without reference speech
OURS = "#c8102e"


def to_text(scores: Sequence[FileScore], others: Sequence[FileScore] | None = None) -> str:
    """A table of the pooled figures, and one of the recordings if there are several."""
    lines = [_table(pooled(scores), left=(0, 6)), *beside_der(scores)]
    if others is not None:
        lines.append("\n" + _table(_compared(scores, others)))
    if len(scores) > 1:
        lines.append("\n" + _table(_recordings(scores)))
    return "\n".join(lines) + "\n"


def to_html(scores: Sequence[FileScore], others: Sequence[FileScore] | None = None) -> str:
    """A page with the same tables, and DER by the speech of each recording."""
    parts: list[page.Table | str] = [page.Table("All recordings", pooled(scores), (0, 6))]
    if others is not None:
        parts.append(page.Table("Against the other hypothesis", _compared(scores, others)))
    if len(scores) > 1:
        parts += [_by_speech(scores), page.Table("Recordings", _recordings(scores))]
    return page.report(f"{len(scores)} recordings scored", ["; ".join(beside_der(scores)) + "."], parts)


def _by_speech(scores: Sequence[FileScore]) -> str:
    points = [
        (file.seconds["strict"][3] / 60, der, file.uri)
        for file in scores
        if (der := file.der("strict")) is not None and not math.isnan(der)
    ]
    return pictures.scatter(
        "DER of each recording, strict",
        Axis("minutes of speech in the reference", 0.0, 1.05 * max((x for x, _, _ in points), default=1.0)),
        Axis("DER %, strict", 0.0, 1.1 * max((y for _, y, _ in points), default=0.0) or 1.0),
        [Mark(x, y, colour=OURS, hint=f"{uri}: {60 * x:.0f} s, DER {y:.1f} %") for x, y, uri in points],
    )


def pooled(scores: Sequence[FileScore]) -> list[list[str]]:
    """A row a convention, under a head."""
    rows = [["DER, % of the speech", "", "95 %", "FA", "miss", "conf", "meaning"]]
    for convention, rates in zip(CONVENTIONS, scoring.pool(scores), strict=True):
        low, high = rates.interval
        parts = (rates.false_alarm, rates.missed_detection, rates.confusion)
        rows.append(
            [
                convention.name,
                _rate(rates.der),
                f"{_rate(low)} to {_rate(high)}",
                *(_rate(part) for part in parts),
                convention.meaning,
            ]
        )
    return rows


def beside_der(scores: Sequence[FileScore]) -> list[str]:
    """What there is beside DER."""
    counts = scoring.speaker_counts(scores)
    return [
        f"JER {scoring.jer(scores):.1f} %",
        f"speakers: right in {counts['exact']} of {len(scores)} recordings, within one in "
        f"{counts['within_one']}, bias {counts['bias']:+.2f}",
    ]


def _compared(scores: Sequence[FileScore], others: Sequence[FileScore]) -> list[list[str]]:
    rows = [["less --against, points of DER", "", "95 %"]]
    for name, (difference, low, high) in scoring.compare(scores, others).items():
        rows.append([name, f"{difference:+.2f}", f"{low:+.2f} to {high:+.2f}"])
    return rows


def _recordings(scores: Sequence[FileScore]) -> list[list[str]]:
    rows = [["recording", *(convention.name for convention in CONVENTIONS), "JER", "speakers", "true"]]
    rows += [
        [
            file.uri,
            *(_rate(file.der(convention.name)) for convention in CONVENTIONS),
            _rate(file.jer),
            str(file.hypothesis_speakers),
            str(file.reference_speakers),
        ]
        for file in scores
    ]
    return rows


def to_json(scores: Sequence[FileScore], others: Sequence[FileScore] | None = None) -> str:
    """One document; rates in per cent, rounded to hundredths."""
    document = {
        "schema": "witness-score/1",
        "conventions": [
            {
                "name": convention.name,
                "pyannote_collar": convention.collar,
                "skip_overlap": convention.skip_overlap,
                "meaning": convention.meaning,
                "der": _two(pooled.der),
                "interval": [_two(edge) for edge in pooled.interval],
                "false_alarm": _two(pooled.false_alarm),
                "missed_detection": _two(pooled.missed_detection),
                "confusion": _two(pooled.confusion),
            }
            for convention, pooled in zip(CONVENTIONS, scoring.pool(scores), strict=True)
        ],
        "jer": _two(scoring.jer(scores)),
        "speakers": scoring.speaker_counts(scores),
        "against": None
        if others is None
        else {
            name: {"difference": _two(values[0]), "interval": [_two(values[1]), _two(values[2])]}
            for name, values in scoring.compare(scores, others).items()
        },
        "recordings": [
            {
                "uri": file.uri,
                "der": {convention.name: _two(file.der(convention.name)) for convention in CONVENTIONS},
                "jer": _two(file.jer),
                "speakers": file.hypothesis_speakers,
                "true_speakers": file.reference_speakers,
            }
            for file in scores
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def to_csv(scores: Sequence[FileScore], others: Sequence[FileScore] | None = None) -> str:
    """A row a recording, the seconds of each part under each convention."""
    del others  # what compares all files has no row
    out = io.StringIO(newline="")
    rows = csv.writer(out)
    parts = [part.replace(" ", "_") for part in scoring.PARTS]
    heads = [f"{convention.name} {part}" for convention in CONVENTIONS for part in parts]
    rows.writerow(["uri", *heads, "jer", "speakers", "true_speakers"])
    for file in scores:
        seconds = [f"{value:.3f}" for convention in CONVENTIONS for value in file.seconds[convention.name]]
        rows.writerow(
            [file.uri, *seconds, _rate(file.jer), file.hypothesis_speakers, file.reference_speakers]
        )
    return out.getvalue()


def _table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Aligned columns, those in `left` to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _rate(value: float | None) -> str:
    return UNDEFINED if value is None or math.isnan(value) else f"{value:.2f}"


def _two(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 2)
