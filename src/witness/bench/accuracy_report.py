"""Reports of a finished benchmark: report.html, report.json and a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from witness.bench import score_report
from witness.bench.run_folder import Cost, Record, RunManifest
from witness.bench.score_report import SCORE_HEADS
from witness.bench.scoring import FileScore
from witness.formats import html

LISTED = 20
"""Names of references without audio that a report lists."""


@dataclass(frozen=True)
class AccuracyOutcome:
    """A run of the benchmark: its settings, and a record and a score per recording, side by side."""

    manifest: RunManifest
    records: list[Record]
    scores: list[FileScore]

    @property
    def failed(self) -> list[Record]:
        return [record for record in self.records if record.cost is None]

    @property
    def costs(self) -> list[Cost]:
        """Costs of the recordings that did not fail."""
        return [record.cost for record in self.records if record.cost is not None]

    @property
    def duration(self) -> float:
        """Seconds of audio in the recordings that did not fail."""
        return sum(cost.duration for cost in self.costs)

    @property
    def wall(self) -> float:
        """Seconds of work on the recordings that did not fail."""
        return sum(cost.wall for cost in self.costs)

    @property
    def times_real_time(self) -> float | None:
        """None if all recordings failed."""
        return self.duration / self.wall if self.wall else None

    @property
    def material(self) -> str:
        return f"{len(self.manifest.recordings)} recordings"


def files(outcome: AccuracyOutcome) -> dict[str, str]:
    """Return name -> content of every file of the report."""
    return {
        "report.html": to_html(outcome),
        "report.json": to_json(outcome),
        "der_by_duration.svg": der_by_duration(outcome),
    }


def to_json(outcome: AccuracyOutcome) -> str:
    """Serialize the manifest, the scores as in `witness score --json`, and a record per recording."""
    times = outcome.times_real_time
    document = {
        **outcome.manifest.to_json(),
        "audio_seconds": outcome.duration,
        "wall_seconds": outcome.wall,
        "times_real_time": times,
        "real_time_factor": None if times is None else 1 / times,
        "score": json.loads(score_report.to_json(outcome.scores)),
        "files": [record.to_json() for record in outcome.records],
    }
    return json.dumps(document, indent=1) + "\n"


def to_html(outcome: AccuracyOutcome) -> str:
    """Render a page with the picture in it and the same figures as in report.json."""
    parts: list[html.Table | str] = [
        score_report.pooled_table(outcome.scores),
        der_by_duration(outcome),
        html.Table("Machine, versions and settings", _fact_rows(outcome.manifest), (0, 1)),
        html.Table("Recordings", _recording_rows(outcome)),
    ]
    if outcome.failed:
        rows = [["recording", "error"], *([record.name, str(record.error)] for record in outcome.failed)]
        parts.append(html.Table("Failures", rows, (0, 1)))
    lead = [_method(outcome), *_results(outcome)]
    return html.report_page(f"Speaker diarization: {outcome.material}", lead, parts, _notices(outcome))


def _method(outcome: AccuracyOutcome) -> str:
    return (
        f"Witness {outcome.manifest.versions['witness']}, models {outcome.manifest.models.choice}. DER in "
        "percent of the reference speech, errors summed over all recordings; intervals are 95 %, by a "
        "bootstrap over recordings. Scored from the first to the last turn of each recording."
    )


def _notices(outcome: AccuracyOutcome) -> list[str]:
    """Return the notices that stand before any figure."""
    notices = []
    if missing := outcome.manifest.without_audio:
        names = ", ".join(missing[:LISTED]) + (", ..." if len(missing) > LISTED else "")
        notices.append(f"Not scored: {len(missing)} references without audio ({names}).")
    if outcome.failed:
        notices.append(f"{len(outcome.failed)} recordings failed and count as missed.")
    return notices


def _results(outcome: AccuracyOutcome) -> list[str]:
    """Return the paragraphs beside the table of DER."""
    paragraphs = ["; ".join(score_report.beside_der(outcome.scores)) + "."]
    if (times := outcome.times_real_time) is not None:
        peak = max((cost.peak_memory_mb for cost in outcome.costs if cost.peak_memory_mb), default=None)
        memory = "not known" if peak is None else f"{peak:.0f} MB"
        paragraphs.append(
            f"{times:.1f} times real time (real-time factor {1 / times:.4f}): "
            f"{outcome.duration / 3600:.2f} h of audio, each recording by itself, decoding and loading of "
            f"the models included. Peak memory {memory}."
        )
    return paragraphs


def _recording_rows(outcome: AccuracyOutcome) -> list[list[str]]:
    rows = [["recording", "s", "times real time", *SCORE_HEADS]]
    for record, score in zip(outcome.records, outcome.scores, strict=True):
        cost = ["-", "failed"]
        if record.cost is not None:
            cost = [f"{record.cost.duration:.1f}", f"{record.cost.times_real_time:.1f}"]
        rows.append([record.name, *cost, *score_report.score_cells(score)])
    return rows


def _fact_rows(manifest: RunManifest) -> list[list[str]]:
    return [["item", "value"], *([name, str(value)] for name, value in _facts(manifest))]


def _facts(manifest: RunManifest) -> Iterator[tuple[str, object]]:
    yield from asdict(manifest.hardware).items()
    yield from manifest.versions.items()
    yield "runtime", _pairs(manifest.runtime)
    yield "settings", _pairs(manifest.settings)
    yield "models", _pairs(asdict(manifest.models))
    yield "references sha256", manifest.references_sha256
    yield "source sha256", manifest.source_sha256
    yield "load before it", "not known" if manifest.load_before is None else manifest.load_before
    yield "begun", manifest.begun


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def der_by_duration(outcome: AccuracyOutcome) -> str:
    """Draw an SVG with a mark per recording."""
    pairs = zip(outcome.records, outcome.scores, strict=True)
    points = [
        (record.name, record.cost.duration, score.der("strict"))
        for record, score in pairs
        if record.cost is not None
    ]
    return score_report.der_picture(f"DER by duration, strict: {outcome.material}", "minutes", points)
