"""Folder of a benchmark run: its plan, its settings in run.json, and the cost of each recording in files/.

A run that was begun continues with the same program and settings or not at all. Settings are not tuned on
recordings of the split "test".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from witness.bench import measurement
from witness.bench.measurement import Hardware
from witness.errors import InputError, OutputError, UsageError
from witness.formats import rttm
from witness.models import catalogue, store
from witness.options import Options, Runtime
from witness.progress import Reporter
from witness.schema import Turn
from witness.storage import atomic, files, typed_json

SCHEMA = "witness-bench/1"
UNCHANGED = (
    "split",
    "settings",
    "models",
    "references_sha256",
    "runtime",
    "hardware",
    "versions",
    "source_sha256",
    "tuned_on",
)
"""Keys of run.json that must be the same when a run continues."""
NOT_SETTINGS = ("models", "whisper", "language", "offline")

Split = Literal["dev", "test"]
Settings = Mapping[str, Any]
"""Names and values as in JSON, which another version of the program may not know."""


@dataclass(frozen=True)
class Case:
    """A recording and its reference."""

    name: str
    audio: Path
    reference: tuple[Turn, ...]

    @property
    def length(self) -> float:
        """Seconds to the end of the last turn, for the progress before the recording is read."""
        return max((turn.end for turn in self.reference), default=0.0)


@dataclass(frozen=True)
class AccuracyPlan:
    """Recordings, settings and output folder of a run."""

    cases: tuple[Case, ...]
    out: Path
    """Folder of the run; made if it does not exist."""
    missing: tuple[str, ...] = ()
    """Names of references without audio, which are not scored."""
    options: Options = field(default_factory=Options)
    runtime: Runtime = field(default_factory=Runtime)
    split: Split | None = None
    tuned_on: Path | None = None
    """Folder of the finished run on "dev" that tried the settings of a run on "test"."""
    as_pyannote: bool = False
    """Option of `scoring.score`."""
    uem: Mapping[str, list[tuple[float, float]]] | None = None
    """Parts of each recording that are scored; None: from its first to its last turn."""


@dataclass(frozen=True)
class Models:
    """Models of a run, by the sha256 of each file."""

    choice: str
    """Value of --models: the name of a set, or the folder."""
    segmentation: str
    embedding: str
    plda: Mapping[str, str]
    """Arrays of the clustering; empty for models without."""
    rule: Settings
    """Numbers of the clustering, as in `schema.Rule`."""


@dataclass(frozen=True)
class TunedOn:
    """Run on "dev" that tried the settings of a run on "test"."""

    run_sha256: str
    """Of its run.json."""
    settings_sha256: str
    begun: str


class RunManifest(Struct, frozen=True, tag_field="schema", tag=SCHEMA):
    """Content of run.json. All sha256 are hexadecimal, times are ISO 8601 in UTC."""

    split: Split | None
    settings: Settings
    """`Options` without NOT_SETTINGS."""
    settings_sha256: str
    """Of the settings and the models, to compare a run on "test" with a run on "dev"."""
    tuned_on: TunedOn | None
    models: Models
    runtime: Settings
    recordings: tuple[str, ...]
    without_audio: tuple[str, ...]
    """Names of references that are not scored."""
    references_sha256: str
    hardware: Hardware
    versions: Mapping[str, str]
    source_sha256: str
    """Of the program's own source files."""
    load_before: float | None
    """Value of `measurement.load`."""
    begun: str
    finished: str | None = None
    """None: not yet, or a recording failed."""


class Record(Struct, frozen=True):
    """Outcome of one recording, as in files/NAME.json."""

    name: str
    crashes: tuple[str, ...]
    """Ends of its processes that died."""
    error: str | None
    """Reason for the lack of a result; None: it has one."""


class Failed(Record, frozen=True):
    """Recording without a result."""

    rttm_sha256: None = None


class Done(Record, frozen=True):
    """Cost of a recording with a result. Times are seconds."""

    audio_sha256: str
    duration: float
    wall: float
    """From the recording to its turns, decoding and the loading of the models included."""
    timing: Mapping[str, float | str | None]
    """As in `Transcript.timing`."""
    cpu: float
    """Processor time, summed over threads."""
    peak_memory_mb: float | None
    """None where the system does not tell."""
    device: Mapping[str, str | None]
    """"embedding", "whisper" -> what ran them."""
    warnings: tuple[str, ...]
    rttm_sha256: str
    """Of rttm/NAME.rttm: a recording counts as done if the two match."""

    @property
    def times_real_time(self) -> float:
        return self.duration / self.wall


# --- run.json ---


def make(plan: AccuracyPlan, reporter: Reporter) -> RunManifest:
    """Describe a run that begins now; nothing is written.

    Raises ModelError, and the errors of `_permitted` for the split "test".
    """
    chosen = store.diarization_models(plan.options.models, offline=plan.options.offline, reporter=reporter)
    references = "".join(rttm.serialize(case.name, case.reference) for case in plan.cases)
    settings = {name: value for name, value in asdict(plan.options).items() if name not in NOT_SETTINGS}
    models = Models(
        choice=plan.options.models if chosen.name not in catalogue.SETS else chosen.name,
        segmentation=chosen.segmentation.sha256,
        embedding=chosen.embedding.sha256,
        plda={name: file.sha256 for name, file in chosen.plda.items()},
        rule=asdict(chosen.rule),
    )
    model_files = {name: value for name, value in asdict(models).items() if name != "choice"}
    hashed = json.dumps({"settings": settings, "models": model_files}, sort_keys=True)
    manifest = RunManifest(
        split=plan.split,
        settings=settings,
        settings_sha256=files.sha256(hashed.encode()),
        tuned_on=None,
        models=models,
        runtime=asdict(plan.runtime),
        recordings=tuple(case.name for case in plan.cases),
        without_audio=plan.missing,
        references_sha256=files.sha256(references.encode()),
        hardware=measurement.hardware(),
        versions=measurement.versions(),
        source_sha256=measurement.source_sha256(),
        load_before=measurement.load(),
        begun=now(),
    )
    return manifest if plan.split != "test" else _permitted(manifest, plan.tuned_on)


def _permitted(manifest: RunManifest, tuned_on: Path | None) -> RunManifest:
    """Add to the manifest of a run on "test" the run on "dev" that tried its settings.

    The program's own settings need no such run. Raises UsageError if the folder `tuned_on` holds no finished
    run on "dev" with the same settings and other recordings, InputError if it cannot be read.
    """
    if tuned_on is None:
        defaults = asdict(Options())
        changed = [name for name, value in manifest.settings.items() if value != defaults[name]]
        if manifest.models.choice not in catalogue.SETS:
            changed.append("models")
        if changed:
            raise UsageError(
                f"--split test tries out no settings ({', '.join(changed)}); run them with --split dev "
                "first, and give the folder of that run with --tuned-on"
            )
        return manifest
    path = tuned_on / "run.json"
    content = _read(path)
    dev = _manifest(path, content)
    faults = {
        "is not a run with --split dev": dev.split != "dev",
        "is not finished": not dev.finished,
        "has other settings or models": dev.settings_sha256 != manifest.settings_sha256,
        "has recordings of this run": bool(set(manifest.recordings) & set(dev.recordings)),
    }
    for fault, applies in faults.items():
        if applies:
            raise UsageError(
                f"{tuned_on}: {fault}; give a finished run with --split dev, the same settings and other "
                "recordings"
            )
    return structs.replace(manifest, tuned_on=TunedOn(files.sha256(content), dev.settings_sha256, dev.begun))


def begin(out: Path, manifest: RunManifest) -> RunManifest:
    """Write run.json and make the folders, or compare the existing run.json with `manifest`.

    Returns the manifest that counts. Raises UsageError if they differ, InputError, OutputError.
    """
    path = out / "run.json"
    if not path.exists():
        try:
            (out / "rttm").mkdir(parents=True, exist_ok=True)
            (out / "files").mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"{out}: no folder can be made there ({error.strerror}); change -o") from error
        write_json(path, manifest)
        return manifest
    begun = _manifest(path, _read(path))
    asked = _manifest(path, msgspec.json.encode(manifest))
    for key in UNCHANGED:
        if getattr(begun, key) != getattr(asked, key):
            raise UsageError(
                f"{out} was begun with other {key.replace('_', ' ')}; choose another folder with -o"
            )
    return begun


def write_json(path: Path, document: object) -> None:
    """Write a document whole or not at all. Raises OutputError."""
    atomic.write((json.dumps(msgspec.to_builtins(document), indent=1) + "\n").encode(), path)


def _read(path: Path) -> bytes:
    """Raises InputError."""
    try:
        return files.read(path)
    except OSError as error:
        raise InputError(f"{path}: could not be read ({error.strerror}); give the folder of a run") from error


def _manifest(path: Path, content: bytes) -> RunManifest:
    """Read a run.json. Raises InputError."""
    try:
        return typed_json.decode(content, RunManifest)
    except ValueError as error:
        raise InputError(f"{path}: is not a {SCHEMA} document ({error}); give the folder of a run") from error


def now() -> str:
    """Return the time in ISO 8601, UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


# --- files/ and rttm/ ---


def record_path(out: Path, name: str) -> Path:
    return out / "files" / f"{name}.json"


def rttm_path(out: Path, name: str) -> Path:
    return out / "rttm" / f"{name}.rttm"


def done(out: Path, name: str) -> Done | None:
    """Return the record of a recording if it and the RTTM are whole; None: the recording must be run."""
    with suppress(OSError, ValueError):  # cut off in the middle, or never written
        record = typed_json.decode(record_path(out, name).read_bytes(), Done)
        if record.rttm_sha256 == files.sha256(rttm_path(out, name).read_bytes()):
            return record
    return None


def keep(out: Path, record: Record, content: bytes = b"") -> None:
    """Write a record, and the content of its RTTM file before it. Raises OutputError."""
    for path in (record_path(out, record.name), rttm_path(out, record.name)):
        files.refuse_link(path, out)
    if isinstance(record, Done):
        atomic.write(content, rttm_path(out, record.name))
    else:
        rttm_path(out, record.name).unlink(missing_ok=True)
    write_json(record_path(out, record.name), record)


def hypothesis(out: Path, record: Record) -> list[Turn]:
    """Read the turns of a recording; none if it failed. Raises InputError."""
    if not isinstance(record, Done):
        return []
    path = rttm_path(out, record.name)
    return [turn for turns in rttm.parse(_read(path).decode(), str(path)).values() for turn in turns]
