"""Report of the scores of turns. It names the conventions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from witness.bench import pictures, report, scoring
from witness.bench.pictures import Axis, Mark
from witness.bench.pooling import Pooled
from witness.bench.report import Report, rate, rounded
from witness.bench.scoring import CONVENTIONS, FileScore, Seconds
from witness.formats.html import Table

OURS = "#c8102e"
"""Color of the results of Witness."""
PARTS = Seconds._fields[:3]
"""Sorts of errors in JSON and CSV."""
SCORE_HEADS = [*(convention.name for convention in CONVENTIONS), "JER", "speakers", "true"]


def make(
    scores: Sequence[FileScore], others: Sequence[FileScore] | None = None, name: str = "--against"
) -> Report:
    """Make the report of scores, with the differences from `others` (called `name`)."""
    pooled = scoring.pool(scores)
    differences = None if others is None else scoring.compare(scores, others)
    document = {
        "schema": "witness-score/1",
        "own_overlap": "merged" if scores[0].merged else "as pyannote.metrics",
        "conventions": [
            {
                "name": convention.name,
                "pyannote_collar": convention.collar,
                "skip_overlap": convention.skip_overlap,
                "meaning": convention.meaning,
                **report.pooled_figures(pooled[convention.name], "der", PARTS),
            }
            for convention in CONVENTIONS
        ],
        "jer": rounded(scoring.jer(scores)),
        "speakers": asdict(scoring.speaker_counts(scores)),
        "against": None if differences is None else report.difference_figures(differences),
        "recordings": [
            {
                "uri": score.uri,
                "der": {convention.name: rounded(score.der(convention.name)) for convention in CONVENTIONS},
                "jer": rounded(score.jer),
                "speakers": score.hypothesis_speakers,
                "true_speakers": score.reference_speakers,
            }
            for score in scores
        ],
    }
    parts: list[Table | str] = [pooled_table(pooled)]
    if differences is not None:
        parts.append(report.difference_table(f"minus {name}, points of DER", differences))
    if len(scores) > 1:
        points = [(score.uri, score.seconds["strict"].speech, score.der("strict")) for score in scores]
        parts.append(der_picture("DER by speech, strict", "minutes of speech in the reference", points))
        rows = [[score.uri, *score_cells(score)] for score in scores]
        parts.append(Table("Recordings", [["recording", *SCORE_HEADS], *rows]))
    return Report(f"{len(scores)} recordings scored", beside_der(scores), parts, document, _csv_rows(scores))


def _csv_rows(scores: Sequence[FileScore]) -> list[list[object]]:
    """Return the seconds of each part under each convention; a difference is one of all files."""
    heads = [f"{convention.name} {part}" for convention in CONVENTIONS for part in (*PARTS, "total")]
    rows: list[list[object]] = [["uri", *heads, "jer", "speakers", "true_speakers"]]
    for score in scores:
        seconds = [f"{value:.3f}" for convention in CONVENTIONS for value in score.seconds[convention.name]]
        rows.append(
            [score.uri, *seconds, rate(score.jer), score.hypothesis_speakers, score.reference_speakers]
        )
    return rows


# --- for the report of a benchmark, too ---


def pooled_table(pooled: Mapping[str, Pooled]) -> Table:
    """Return a row per convention."""
    rows = [(convention.name, convention.meaning, pooled[convention.name]) for convention in CONVENTIONS]
    return report.pooled_table("DER, % of the speech", ("FA", "miss", "conf"), rows)


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
    scored = [(name, seconds, der) for name, seconds, der in points if der is not None]
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
