"""A folder of recordings with references -> hypotheses, scores and a report that can be checked.

Each recording runs in a child process. What is done is kept, so the same command goes on where it was stopped
(at whatever byte: a recording counts as done when its record holds the sha256 of its RTTM).

    OUT/run.json          settings, hardware, versions, models; what goes on later must be the same
    OUT/rttm/NAME.rttm    what was found
    OUT/files/NAME.json   what it cost
    OUT/report.md, report.json and two pictures
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from witness.bench import accuracy_report, child, manifest, scoring
from witness.bench.manifest import now, read, sha256, write, write_json
from witness.bench.scoring import FileScore
from witness.errors import InputError, PartlyFailedError, UsageError, WitnessError
from witness.formats import rttm, writers
from witness.models import catalogue
from witness.options import Options, Runtime
from witness.reporter import Reporter
from witness.schema import Turn
from witness.text import clock

NO_AUDIO = {".rttm", ".uem", ".stm", ".txt", ".json", ".md", ".csv", ".srt", ".vtt", ".lab"}
HOPELESS = {2, 5, 6}  # exit codes of faults that every recording would meet


@dataclass(frozen=True)
class Case:
    """A recording and what is said to be in it."""

    name: str
    audio: Path
    reference: tuple[Turn, ...]


def find(audio: Path, references: Path) -> tuple[list[Case], list[str]]:
    """The recordings below `audio` with an RTTM below `references`, and the names of those without audio.

    A recording is called as its file without the ending; so is an RTTM file about one recording, while one
    about several goes by the names in it. Raises InputError.
    """
    turns = _references(references)
    files: dict[str, list[Path]] = {}
    for path in sorted(audio.rglob("*")):
        if path.suffix.lower() not in NO_AUDIO and path.is_file():
            files.setdefault(path.stem, []).append(path)
    cases, missing = [], []
    for name, reference in sorted(turns.items()):
        found = files.get(name, [])
        if len(found) > 1:
            raise InputError(f"{found[0]}: {found[1]} has the same name; keep one of them below {audio}")
        if found:
            cases.append(Case(name, found[0], tuple(reference)))
        else:
            missing.append(name)
    if not cases:
        raise InputError(f"{audio}: no recording there has the name of a reference in {references}")
    return cases, missing


def _references(folder: Path) -> dict[str, list[Turn]]:
    found: dict[str, list[Turn]] = {}
    for path in sorted(folder.rglob("*.rttm")) if folder.is_dir() else [folder]:
        here = scoring.read(path)
        for uri, turns in here.items():
            name = path.stem if len(here) == 1 and folder.is_dir() else uri
            if name in found or "/" in name:
                raise InputError(f"{path}: {name} is in another file, too, or is no file name")
            found[name] = turns
    if not found:
        raise InputError(f"{folder}: holds no reference; give a folder of RTTM files")
    return found


def run(
    cases: Sequence[Case],
    out: Path,
    options: Options,
    runtime: Runtime,
    *,
    split: str | None = None,
    tuned_on: Path | None = None,
    missing: Sequence[str] = (),
    reporter: Reporter,
) -> list[FileScore]:
    """Run what is not done yet, score everything, write the report. `note` gets a line a recording.

    Raises:
        UsageError: `out` was begun with anything else, or `split` is "test" and the settings are neither the
            program's own nor those of the finished DEV run `tuned_on`.
        PartlyFailedError: recordings failed; all the others and the report are written.
        WitnessError: a fault that every recording would meet; the same command goes on when it is cured.
    """
    scoring.score({})  # it says now what it needs
    references = {case.name: case.reference for case in cases}
    begun = manifest.make(references, options, runtime, split, missing, reporter)
    if split == "test":
        begun["tuned_on"] = manifest.permission(begun, tuned_on)
    begun = manifest.begin(out, begun)
    choice = begun["models"]["choice"]
    if choice not in catalogue.SETS:
        choice = str(Path(choice).absolute())
    options = replace(options, models=choice, whisper="none", offline=True)
    lengths = [max((turn.end for turn in case.reference), default=0.0) for case in cases]
    done = {case.name: record for case in cases if (record := _done(out, case.name)) is not None}
    if done:
        reporter.note(f"{out}: {len(done)} of {len(cases)} recordings are done already")
    left = _TimeLeft([length for case, length in zip(cases, lengths, strict=True) if case.name not in done])
    scores: list[FileScore] = []
    records: list[dict[str, Any]] = []
    reporter.progress("recordings", 0, sum(lengths))
    for number, (case, length) in enumerate(zip(cases, lengths, strict=True), start=1):
        record = done.get(case.name)
        new = record is None
        if record is None:
            record = _run_one(case, out, options, runtime, begun["models"])
            left.done(length)
        records.append(record)
        scores += scoring.score({case.name: (list(case.reference), _hypothesis(out, case.name, record))})
        if new:
            reporter.note(f"{number} of {len(cases)}  {_line(record, scores[-1])}  {left}")
        reporter.progress("recordings", sum(lengths[:number]), sum(lengths))
    failed = [record["name"] for record in records if record["error"]]
    _write_report(out, begun, records, scores)
    if failed:
        raise PartlyFailedError(
            f"{len(failed)} of {len(cases)} recordings failed ({', '.join(failed[:5])}) and count as missed; "
            f"{out}/report.md says why, the same command tries them again"
        )
    return scores


def _done(out: Path, name: str) -> dict[str, Any] | None:
    """The record of a recording if it and its RTTM are whole."""
    try:
        record: dict[str, Any] = json.loads((out / "files" / f"{name}.json").read_bytes())
        found = sha256((out / "rttm" / f"{name}.rttm").read_bytes())
        return record if record["rttm_sha256"] == found else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _run_one(
    case: Case, out: Path, options: Options, runtime: Runtime, expected: dict[str, Any]
) -> dict[str, Any]:
    """Run a recording, once more if its process died, and keep what came of it."""
    crashes = []
    reply = child.run(case.audio, options, runtime)
    if "crash" in reply:
        crashes.append(reply["crash"])
        reply = child.run(case.audio, options, runtime)
    record: dict[str, Any] = {"name": case.name, "crashes": crashes, "error": None}
    if "crash" in reply or "error" in reply:
        if reply.get("exit_code") in HOPELESS:
            failure = WitnessError(reply["error"])
            failure.exit_code = reply["exit_code"]
            raise failure
        record["error"] = reply.get("crash") or reply["error"]
        (out / "rttm" / f"{case.name}.rttm").unlink(missing_ok=True)
        write_json(out / "files" / f"{case.name}.json", {**record, "rttm_sha256": None})
        return record
    for role in ("segmentation", "embedding"):
        if reply["models"][role] != expected[role]:
            raise UsageError(f"{case.name}: the {role} model changed in the middle of the run; start anew")
    content = rttm.serialize(case.name, (Turn(*turn) for turn in reply["turns"])).encode()
    write(content, out / "rttm" / f"{case.name}.rttm")
    record |= {
        "audio_sha256": reply["audio"]["sha256"],
        "duration": reply["audio"]["duration"],
        "wall": reply["timing"]["wall"],
        "timing": reply["timing"],
        "cpu": reply["cpu"]["witness"],
        "peak_memory_mb": reply["peak_memory_mb"],
        "device": reply["device"],
        "warnings": reply["warnings"],
        "rttm_sha256": sha256(content),
    }
    write_json(out / "files" / f"{case.name}.json", record)
    return record


def _hypothesis(out: Path, name: str, record: dict[str, Any]) -> list[Turn]:
    if record["error"]:
        return []
    path = out / "rttm" / f"{name}.rttm"
    return [turn for turns in rttm.parse(read(path).decode(), str(path)).values() for turn in turns]


def _line(record: dict[str, Any], score: FileScore) -> str:
    if record["error"]:
        return f"{record['name']}  FAILED: {record['error']}"
    der = score.der("strict")
    return (
        f"{record['name']}  {clock(record['duration'])}  "
        f"{record['duration'] / record['wall']:.1f} times real time  "
        f"DER {'-' if der is None else f'{der:.1f}'}"
    )


class _TimeLeft:
    """Time left, from the speed so far."""

    def __init__(self, lengths: Iterable[float]) -> None:
        self._left = sum(lengths)
        self._past = 0.0
        self._begun = time.monotonic()

    def done(self, length: float) -> None:
        self._left -= length
        self._past += length

    def __str__(self) -> str:
        pace = (time.monotonic() - self._begun) / max(self._past, 1e-9)
        return f"{clock(math.ceil(max(0.0, self._left) * pace))} left"


def _write_report(
    out: Path, begun: dict[str, Any], records: Sequence[dict[str, Any]], scores: Sequence[FileScore]
) -> None:
    for name, text in accuracy_report.files(begun, records, scores).items():
        write(writers.encode(text), out / name)
    if begun["finished"] is None and not any(record["error"] for record in records):
        write_json(out / "run.json", {**begun, "finished": now()})
