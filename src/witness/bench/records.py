"""files/NAME.json of a benchmark run: what a recording cost, or why it failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from witness.bench import manifest
from witness.bench.measurement import Measurement
from witness.formats import rttm
from witness.schema import Turn
from witness.storage import atomic, files


@dataclass(frozen=True)
class Cost:
    """What a recording took. Times are seconds."""

    audio_sha256: str
    duration: float
    wall: float
    """From the recording to its turns, decoding and the loading of the models included."""
    timing: Mapping[str, float | str | None]
    """As in `Transcript.timing`."""
    cpu: float
    """Processor time, summed over threads."""
    peak_memory_mb: float | None
    """None where nobody knows."""
    device: Mapping[str, str | None]
    """"embedding", "whisper" -> what ran them."""
    warnings: tuple[str, ...]
    rttm_sha256: str
    """Of rttm/NAME.rttm: a recording counts as done if the two match."""

    @property
    def times_real_time(self) -> float:
        return self.duration / self.wall

    @staticmethod
    def of(run: Measurement, content: bytes) -> Cost:
        """From a measurement and the content of its RTTM file."""
        return Cost(
            audio_sha256=run.audio.sha256,
            duration=run.audio.duration,
            wall=run.seconds("wall") or 0.0,
            timing=run.timing,
            cpu=run.cpu.witness,
            peak_memory_mb=run.peak_memory_mb,
            device=run.device,
            warnings=run.warnings,
            rttm_sha256=files.sha256(content),
        )


@dataclass(frozen=True)
class Record:
    """What became of one recording."""

    name: str
    crashes: tuple[str, ...] = ()
    """How its process died, each time."""
    error: str | None = None
    """Why there is no result; None: there is one."""
    cost: Cost | None = None
    """None if it failed."""

    def to_json(self) -> dict[str, Any]:
        """The document in files/NAME.json."""
        head = {"name": self.name, "crashes": list(self.crashes), "error": self.error}
        return {**head, **({"rttm_sha256": None} if self.cost is None else asdict(self.cost))}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Record:
        """From the document in files/NAME.json. Raises KeyError and TypeError if it is none."""
        values = dict(document)
        name, crashes, error = values.pop("name"), tuple(values.pop("crashes")), values.pop("error")
        if error is not None:
            return Record(name, crashes, error)
        return Record(name, crashes, None, Cost(**{**values, "warnings": tuple(values["warnings"])}))


def record_path(out: Path, name: str) -> Path:
    return out / "files" / f"{name}.json"


def rttm_path(out: Path, name: str) -> Path:
    return out / "rttm" / f"{name}.rttm"


def done(out: Path, name: str) -> Record | None:
    """The record of a recording if both it and the RTTM are whole; None: the recording must be run."""
    try:
        record = Record.from_json(json.loads(record_path(out, name).read_bytes()))
        if record.cost and record.cost.rttm_sha256 == files.sha256(rttm_path(out, name).read_bytes()):
            return record
    except (OSError, ValueError, KeyError, TypeError):
        pass  # cut off in the middle, or never written
    return None


def keep(out: Path, record: Record, content: bytes = b"") -> None:
    """Write a record, and the content of its RTTM file before it. Raises OutputError."""
    for path in (record_path(out, record.name), rttm_path(out, record.name)):
        files.refuse_link(path, out)
    if record.cost is None:
        rttm_path(out, record.name).unlink(missing_ok=True)
    else:
        atomic.write(content, rttm_path(out, record.name))
    manifest.write_json(record_path(out, record.name), record.to_json())


def hypothesis(out: Path, record: Record) -> list[Turn]:
    """The turns that were kept; none if the recording failed. Raises InputError."""
    if record.cost is None:
        return []
    path = rttm_path(out, record.name)
    return [turn for turns in rttm.parse(manifest.read(path).decode(), str(path)).values() for turn in turns]
