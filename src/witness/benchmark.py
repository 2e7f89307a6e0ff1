"""A folder of recordings with references -> hypotheses, scores and a report that can be checked.

Each recording runs in a child process. What is done is kept, so the same command goes on where it was stopped
(at whatever byte: a recording counts as done when its record holds the sha256 of its RTTM).

    OUT/run.json          settings, hardware, versions, models; what goes on later must be the same
    OUT/rttm/NAME.rttm    what was found
    OUT/files/NAME.json   what it cost
    OUT/report.md, report.json and two pictures
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from witness import bench_child, bench_report, machine, models, output, rttm, scoring, writers
from witness.errors import InputError, OutputError, PartlyFailedError, UsageError, WitnessError
from witness.pipeline import Options
from witness.schema import Note, Progress, Turn
from witness.scoring import FileScore
from witness.sessions import Runtime

SCHEMA = "witness-bench/1"
NO_AUDIO = {".rttm", ".uem", ".stm", ".txt", ".json", ".md", ".csv", ".srt", ".vtt", ".lab"}
HOPELESS = {2, 5, 6}  # exit codes of faults that every recording would meet
DECIDED = (
    "split",
    "settings",
    "models",
    "references_sha256",
    "runtime",
    "hardware",
    "versions",
    "source_sha256",
)
"""What must not change between the parts of one run, in run.json."""


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
    progress: Progress,
    note: Note,
) -> list[FileScore]:
    """Run what is not done yet, score everything, write the report. `note` gets a line a recording.

    Raises:
        UsageError: `out` was begun with anything else, or `split` is "test" and the settings are neither the
            program's own nor those of the finished DEV run `tuned_on`.
        PartlyFailedError: recordings failed; all the others and the report are written.
        WitnessError: a fault that every recording would meet; the same command goes on when it is cured.
    """
    scoring.score({})  # it says now what it needs
    manifest = _manifest(cases, options, runtime, split, missing, progress, note)
    if split == "test":
        manifest["tuned_on"] = _permission(manifest, cases, tuned_on)
    manifest = _begin(out, manifest)
    choice = manifest["models"]["choice"]
    if choice not in models.SETS:
        choice = str(Path(choice).absolute())
    options = replace(options, models=choice, whisper="none", offline=True)
    lengths = [max((turn.end for turn in case.reference), default=0.0) for case in cases]
    done = {case.name: record for case in cases if (record := _done(out, case.name)) is not None}
    if done:
        note(f"{out}: {len(done)} of {len(cases)} recordings are done already")
    left = _TimeLeft([length for case, length in zip(cases, lengths, strict=True) if case.name not in done])
    scores: list[FileScore] = []
    records: list[dict[str, Any]] = []
    progress("recordings", 0, sum(lengths))
    for number, (case, length) in enumerate(zip(cases, lengths, strict=True), start=1):
        record = done.get(case.name)
        new = record is None
        if record is None:
            record = _run_one(case, out, options, runtime, manifest["models"])
            left.done(length)
        records.append(record)
        scores += scoring.score({case.name: (list(case.reference), _hypothesis(out, case.name, record))})
        if new:
            note(f"{number} of {len(cases)}  {_line(record, scores[-1])}  {left}")
        progress("recordings", sum(lengths[:number]), sum(lengths))
    failed = [record["name"] for record in records if record["error"]]
    _write_report(out, manifest, records, scores)
    if failed:
        raise PartlyFailedError(
            f"{len(failed)} of {len(cases)} recordings failed ({', '.join(failed[:5])}) and count as missed; "
            f"{out}/report.md says why, the same command tries them again"
        )
    return scores


def _manifest(
    cases: Sequence[Case],
    options: Options,
    runtime: Runtime,
    split: str | None,
    missing: Sequence[str],
    progress: Progress,
    note: Note,
) -> dict[str, Any]:
    chosen = models.diarization_models(options.models, offline=options.offline, progress=progress, note=note)
    settings = {
        name: value
        for name, value in asdict(options).items()
        if name not in ("models", "whisper", "language", "offline")
    }
    parts = {
        name: value["sha256"] if isinstance(value, dict) else value
        for name, value in asdict(chosen).items()
        if name != "name"  # of a folder, wherever it lies
    }
    choice = options.models if chosen.name not in models.SETS else chosen.name
    decided = {"settings": settings, "models": parts}
    return {
        "schema": SCHEMA,
        "split": split,
        "settings": settings,
        "settings_sha256": _sha256(json.dumps(decided, sort_keys=True).encode()),
        "tuned_on": None,
        "models": {"choice": choice, **parts},
        "runtime": asdict(runtime),
        "recordings": [case.name for case in cases],
        "without_audio": list(missing),
        "references_sha256": _sha256(
            "".join(rttm.serialize(case.name, case.reference) for case in cases).encode()
        ),
        "hardware": machine.hardware(),
        "versions": machine.versions(),
        "source_sha256": machine.source_sha256(),
        "begun": _now(),
        "finished": None,
    }


def _permission(
    manifest: dict[str, Any], cases: Sequence[Case], tuned_on: Path | None
) -> dict[str, Any] | None:
    """What allows these settings on TEST: the DEV run they come from, or None for the program's own."""
    own = asdict(Options())
    changed = [name for name, value in manifest["settings"].items() if value != own[name]]
    if manifest["models"]["choice"] not in models.SETS:
        changed.append("models")
    if tuned_on is None:
        if not changed:
            return None
        raise UsageError(
            f"on TEST nothing is tried out ({', '.join(changed)}); run these settings on DEV first, and name "
            "that run with --tuned-on"
        )
    content = _read(tuned_on / "run.json")
    dev = _parse(content, tuned_on / "run.json")
    faults = {
        "is no run with --split dev": dev.get("split") != "dev",
        "is not finished": not dev.get("finished"),
        "has other settings or models": dev.get("settings_sha256") != manifest["settings_sha256"],
        "has recordings of this one": bool({case.name for case in cases} & set(dev.get("recordings", []))),
    }
    for fault, is_so in faults.items():
        if is_so:
            raise UsageError(f"{tuned_on}: {fault}; TEST takes settings from a finished DEV run only")
    return {"run_sha256": _sha256(content), "settings_sha256": dev["settings_sha256"], "begun": dev["begun"]}


def _begin(out: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write run.json, or hold what is there against what is asked for now."""
    path = out / "run.json"
    if not path.exists():
        try:
            (out / "rttm").mkdir(parents=True, exist_ok=True)
            (out / "files").mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"{out}: no folder can be made there ({error.strerror}); change -o") from error
        _write(path, manifest)
        return manifest
    begun = _parse(_read(path), path)
    for key in (*DECIDED, "tuned_on"):
        if begun.get(key) != json.loads(json.dumps(manifest[key])):
            raise UsageError(
                f"{out} was begun with other {key.replace('_', ' ')}; choose another folder with -o"
            )
    return begun


def _done(out: Path, name: str) -> dict[str, Any] | None:
    """The record of a recording if it and its RTTM are whole."""
    try:
        record: dict[str, Any] = json.loads((out / "files" / f"{name}.json").read_bytes())
        found = _sha256((out / "rttm" / f"{name}.rttm").read_bytes())
    except (OSError, ValueError):
        return None
    return record if record["rttm_sha256"] == found else None


def _run_one(
    case: Case, out: Path, options: Options, runtime: Runtime, expected: dict[str, Any]
) -> dict[str, Any]:
    """Run a recording, once more if its process died, and keep what came of it."""
    crashes = []
    reply = bench_child.run(case.audio, options, runtime)
    if "crash" in reply:
        crashes.append(reply["crash"])
        reply = bench_child.run(case.audio, options, runtime)
    record: dict[str, Any] = {"name": case.name, "crashes": crashes, "error": None}
    if "crash" in reply or "error" in reply:
        if reply.get("exit_code") in HOPELESS:
            failure = WitnessError(reply["error"])
            failure.exit_code = reply["exit_code"]
            raise failure
        record["error"] = reply.get("crash") or reply["error"]
        (out / "rttm" / f"{case.name}.rttm").unlink(missing_ok=True)
        _write(out / "files" / f"{case.name}.json", {**record, "rttm_sha256": None})
        return record
    for role in ("segmentation", "embedding"):
        if reply["models"][role] != expected[role]:
            raise UsageError(f"{case.name}: the {role} model changed in the middle of the run; start anew")
    content = rttm.serialize(case.name, (Turn(*turn) for turn in reply["turns"])).encode()
    _replace(content, out / "rttm" / f"{case.name}.rttm")
    record |= {
        "audio_sha256": reply["audio"]["sha256"],
        "duration": reply["audio"]["duration"],
        "wall": reply["timing"]["wall"],
        "timing": reply["timing"],
        "cpu": reply["cpu"]["witness"],
        "peak_memory_mb": reply["peak_memory_mb"],
        "device": reply["device"],
        "warnings": reply["warnings"],
        "rttm_sha256": _sha256(content),
    }
    _write(out / "files" / f"{case.name}.json", record)
    return record


def _hypothesis(out: Path, name: str, record: dict[str, Any]) -> list[Turn]:
    if record["error"]:
        return []
    path = out / "rttm" / f"{name}.rttm"
    return [turn for turns in rttm.parse(_read(path).decode(), str(path)).values() for turn in turns]


def _line(record: dict[str, Any], score: FileScore) -> str:
    if record["error"]:
        return f"{record['name']}  FAILED: {record['error']}"
    der = score.der("strict")
    return (
        f"{record['name']}  {writers.clock(record['duration'])}  "
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
        return f"{writers.clock(math.ceil(max(0.0, self._left) * pace))} left"


def _write_report(
    out: Path, manifest: dict[str, Any], records: Sequence[dict[str, Any]], scores: Sequence[FileScore]
) -> None:
    for name, text in bench_report.files(manifest, records, scores).items():
        _replace(writers.encode(text), out / name)
    if manifest["finished"] is None and not any(record["error"] for record in records):
        _write(out / "run.json", {**manifest, "finished": _now()})


def _write(path: Path, document: dict[str, Any]) -> None:
    _replace((json.dumps(document, indent=1) + "\n").encode(), path)


def _replace(content: bytes, path: Path) -> None:
    try:
        output.replace(content, path)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); make room or rights there"
        ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give the folder of a run") from error


def _parse(content: bytes, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError as error:
        raise InputError(f"{path}: is no JSON; give the folder of a run") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path}: is no {SCHEMA} document; give the folder of a run")
    return document


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
