"""Reports of the scores of turns in text, JSON, CSV and HTML. Each names the conventions."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from witness.bench import pictures, scoring
from witness.bench.pictures import Axis, Mark
from witness.bench.scoring import CONVENTIONS, Difference, FileScore
from witness.formats import html
from witness.text import number, table

OURS = "#c8102e"
"""Color of the results of Witness."""

POOLED_HEADS = ["DER, % of the speech", "", "95 %", "FA", "miss", "conf", "meaning"]
POOLED_LEFT = (0, 6)
"""The columns of text in these tables."""
SCORE_HEADS = [*(convention.name for convention in CONVENTIONS), "JER", "speakers", "true"]


def to_text(
    scores: Sequence[FileScore], others: Sequence[FileScore] | None = None, name: str = "--against"
) -> str:
    """Render tables of the pooled figures, the differences from `others` (called `name`), and recordings."""
    parts = [table([POOLED_HEADS, *pooled_rows(scores)], POOLED_LEFT) + "\n" + "\n".join(beside_der(scores))]
    if others is not None:
        parts.append(table(_difference_rows(scores, others, name)))
    if len(scores) > 1:
        parts.append(table(_file_rows(scores)))
    return "\n\n".join(parts) + "\n"


def to_html(scores: Sequence[FileScore], others: Sequence[FileScore] | None = None) -> str:
    """Render a page with the same tables, and a picture of DER by the speech in each recording."""
    parts: list[html.Table | str] = [pooled_table(scores)]
    if others is not None:
        parts.append(html.Table("Against the other hypothesis", _difference_rows(scores, others)))
    if len(scores) > 1:
        points = [(score.uri, score.seconds["strict"].speech, score.der("strict")) for score in scores]
        parts += [
            der_picture("DER by speech, strict", "minutes of speech in the reference", points),
            html.Table("Recordings", _file_rows(scores)),
        ]
    return html.report_page(f"{len(scores)} recordings scored", ["; ".join(beside_der(scores)) + "."], parts)


def to_json(scores: Sequence[FileScore], others: Sequence[FileScore] | None = None) -> str:
    """Serialize one document; rates in percent, rounded to hundredths."""
    document = {
        "schema": "witness-score/1",
        "own_overlap": "merged" if scores[0].merged else "as pyannote.metrics",
        "conventions": [
            {
                "name": convention.name,
                "pyannote_collar": convention.collar,
                "skip_overlap": convention.skip_overlap,
                "meaning": convention.meaning,
                "der": _rounded(pooled.der),
                "interval": [_rounded(edge) for edge in pooled.interval],
                "false_alarm": _rounded(pooled.false_alarm),
                "missed_detection": _rounded(pooled.missed_detection),
                "confusion": _rounded(pooled.confusion),
            }
            for convention, pooled in zip(CONVENTIONS, scoring.pool(scores), strict=True)
        ],
        "jer": _rounded(scoring.jer(scores)),
        "speakers": asdict(scoring.speaker_counts(scores)),
        "against": None
        if others is None
        else {
            difference.convention: {
                "difference": _rounded(difference.points),
                "interval": [_rounded(edge) for edge in difference.interval],
            }
            for difference in scoring.compare(scores, others)
        },
        "recordings": [
            {
                "uri": score.uri,
                "der": {convention.name: _rounded(score.der(convention.name)) for convention in CONVENTIONS},
                "jer": _rounded(score.jer),
                "speakers": score.hypothesis_speakers,
                "true_speakers": score.reference_speakers,
            }
            for score in scores
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def to_csv(scores: Sequence[FileScore], others: Sequence[FileScore] | None = None) -> str:
    """Write a row per recording: the seconds of each part under each convention."""
    del others  # a difference is one of all files, and has no row
    out = io.StringIO(newline="")
    rows = csv.writer(out)
    parts = [part.replace(" ", "_") for part in scoring.PARTS]
    heads = [f"{convention.name} {part}" for convention in CONVENTIONS for part in parts]
    rows.writerow(["uri", *heads, "jer", "speakers", "true_speakers"])
    for score in scores:
        seconds = [f"{value:.3f}" for convention in CONVENTIONS for value in score.seconds[convention.name]]
        rows.writerow(
            [score.uri, *seconds, rate(score.jer), score.hypothesis_speakers, score.reference_speakers]
        )
    return out.getvalue()


# --- tables for the report of a benchmark, too ---


def rate(value: float | None) -> str:
    """Format percent with two digits; "-" without reference speech."""
    return number(None if value is None or math.isnan(value) else value, ".2f")


def pooled_rows(scores: Sequence[FileScore]) -> list[list[str]]:
    """Make a row per convention, below POOLED_HEADS."""
    rows = []
    for convention, pooled in zip(CONVENTIONS, scoring.pool(scores), strict=True):
        interval = " to ".join(map(rate, pooled.interval))
        parts = map(rate, (pooled.false_alarm, pooled.missed_detection, pooled.confusion))
        rows.append([convention.name, rate(pooled.der), interval, *parts, convention.meaning])
    return rows


def pooled_table(scores: Sequence[FileScore]) -> html.Table:
    return html.Table("All recordings", [POOLED_HEADS, *pooled_rows(scores)], POOLED_LEFT)


def beside_der(scores: Sequence[FileScore]) -> list[str]:
    """Make the lines of JER, the numbers of speakers, and the counting of overlaps."""
    counts = scoring.speaker_counts(scores)
    how = "once, as in md-eval and dscore" if scores[0].merged else "twice, as in pyannote.metrics"
    return [
        f"JER {scoring.jer(scores):.1f} %",
        f"speakers: right in {counts.exact} of {len(scores)} recordings, within one in {counts.within_one}, "
        f"bias {counts.bias:+.2f}",
        f"what a speaker's overlapping turns share counts {how}",
    ]


def score_cells(score: FileScore) -> list[str]:
    """Format the figures of one recording, below SCORE_HEADS."""
    return [
        *(rate(score.der(convention.name)) for convention in CONVENTIONS),
        rate(score.jer),
        str(score.hypothesis_speakers),
        str(score.reference_speakers),
    ]


def der_picture(title: str, across: str, points: Iterable[tuple[str, float, float | None]]) -> str:
    """Draw an SVG of DER by length, with a mark per recording that has a DER.

    `points`: name, seconds, and DER in percent. `across`: label of the horizontal axis, which is in minutes.
    """
    scored = [
        (name, seconds, der) for name, seconds, der in points if der is not None and not math.isnan(der)
    ]
    longest = max((seconds for _, seconds, _ in scored), default=60.0) / 60
    worst = max((der for _, _, der in scored), default=0.0)
    return pictures.scatter(
        title,
        Axis(across, 0.0, 1.05 * longest or 1.0),
        Axis("DER %, strict (no collar, overlap counted)", 0.0, 1.1 * worst or 1.0),
        [
            Mark(seconds / 60, der, color=OURS, hint=f"{name}: {seconds:.0f} s, DER {der:.1f} %")
            for name, seconds, der in scored
        ],
    )


def _file_rows(scores: Sequence[FileScore]) -> list[list[str]]:
    return [["recording", *SCORE_HEADS], *([score.uri, *score_cells(score)] for score in scores)]


def _difference_rows(
    scores: Sequence[FileScore], others: Sequence[FileScore], name: str = "--against"
) -> list[list[str]]:
    def row(difference: Difference) -> list[str]:
        low, high = difference.interval
        return [difference.convention, f"{difference.points:+.2f}", f"{low:+.2f} to {high:+.2f}"]

    heads = [f"minus {name}, points of DER", "", "95 %"]
    return [heads, *map(row, scoring.compare(scores, others))]


def _rounded(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, 2)
