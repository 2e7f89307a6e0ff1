"""run.json: what a benchmark run was made with, and whether it may be made at all.

Settings are not tried out on TEST, and a run that was begun continues with the same program and settings or
not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from witness.bench import machine
from witness.bench.machine import Hardware
from witness.bench.plan import AccuracyPlan, Split
from witness.errors import InputError, OutputError, UsageError
from witness.formats import rttm
from witness.models import catalogue, store
from witness.options import Options
from witness.progress import Reporter
from witness.storage import atomic, files

SCHEMA = "witness-bench/1"
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
"""What must not change between the parts of one run, by its key in run.json."""

Settings = Mapping[str, str | int | float | bool | None]
"""Names and values as they were written down, which another version of the program may not know."""


@dataclass(frozen=True)
class Models:
    """The models of a run, by the sha256 of each file."""

    choice: str
    """As --models takes it: the name of a set, or the folder."""
    segmentation: str
    embedding: str
    plda: Mapping[str, str]
    """Arrays of the clustering; empty for models without."""
    rule: Settings
    """The clustering's numbers, as in `schema.Rule`."""

    @property
    def parts(self) -> dict[str, object]:
        """Everything but the choice, which is where a folder lies."""
        return {name: value for name, value in asdict(self).items() if name != "choice"}


@dataclass(frozen=True)
class TunedOn:
    """The DEV run that settings on TEST come from."""

    run_sha256: str
    """Of its run.json."""
    settings_sha256: str
    begun: str


@dataclass(frozen=True)
class RunManifest:
    """What a run was made with. All sha256 are hexadecimal, times are ISO 8601 in UTC."""

    split: Split | None
    settings: Settings
    """`Options` without models, whisper, language and offline."""
    settings_sha256: str
    """Of the settings and the models, so that a TEST run can be held against a DEV run."""
    tuned_on: TunedOn | None
    """None: nothing, or this is no TEST run."""
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
    """As `machine.load` gives it."""
    begun: str
    finished: str | None = None
    """None: not yet, or a recording failed."""

    def to_json(self) -> dict[str, Any]:
        """The document in run.json."""
        return {"schema": SCHEMA, **asdict(self)}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> RunManifest:
        """From the document in run.json. Raises KeyError and TypeError if it is none."""
        tuned_on = document["tuned_on"]
        return RunManifest(
            **{
                **{name: value for name, value in document.items() if name != "schema"},
                "tuned_on": tuned_on and TunedOn(**tuned_on),
                "models": Models(**document["models"]),
                "recordings": tuple(document["recordings"]),
                "without_audio": tuple(document["without_audio"]),
                "hardware": Hardware(**document["hardware"]),
            }
        )


def make(plan: AccuracyPlan, reporter: Reporter) -> RunManifest:
    """The manifest of a run that begins now; nothing is written.

    Raises ModelError, and UsageError if the split is "test" and `permitted` does not allow the settings.
    """
    chosen = store.diarization_models(plan.options.models, offline=plan.options.offline, reporter=reporter)
    models = Models(
        choice=plan.options.models if chosen.name not in catalogue.SETS else chosen.name,
        segmentation=chosen.segmentation.sha256,
        embedding=chosen.embedding.sha256,
        plda={name: file.sha256 for name, file in chosen.plda.items()},
        rule=asdict(chosen.rule),
    )
    settings = {
        name: value
        for name, value in asdict(plan.options).items()
        if name not in ("models", "whisper", "language", "offline")
    }
    decided = json.dumps({"settings": settings, "models": models.parts}, sort_keys=True)
    references = "".join(rttm.serialize(case.name, case.reference) for case in plan.cases)
    manifest = RunManifest(
        split=plan.split,
        settings=settings,
        settings_sha256=files.sha256(decided.encode()),
        tuned_on=None,
        models=models,
        runtime=asdict(plan.runtime),
        recordings=tuple(case.name for case in plan.cases),
        without_audio=plan.missing,
        references_sha256=files.sha256(references.encode()),
        hardware=machine.hardware(),
        versions=machine.versions(),
        source_sha256=machine.source_sha256(),
        load_before=machine.load(),
        begun=now(),
    )
    return manifest if plan.split != "test" else permitted(manifest, plan.tuned_on)


def permitted(manifest: RunManifest, tuned_on: Path | None) -> RunManifest:
    """A manifest of a TEST run with what allows its settings: the DEV run they come from.

    The program's own settings need none. Raises UsageError if they are others and no finished DEV run with
    them, on other recordings, is in the folder `tuned_on`; InputError if it cannot be read.
    """
    own = asdict(Options())
    changed = [name for name, value in manifest.settings.items() if value != own[name]]
    if manifest.models.choice not in catalogue.SETS:
        changed.append("models")
    if tuned_on is None:
        if not changed:
            return manifest
        raise UsageError(
            f"on TEST nothing is tried out ({', '.join(changed)}); run these settings on DEV first, and name "
            "that run with --tuned-on"
        )
    content = read(tuned_on / "run.json")
    dev = RunManifest.from_json(_parse(content, tuned_on / "run.json"))
    faults = {
        "is not a run with --split dev": dev.split != "dev",
        "is not finished": not dev.finished,
        "has other settings or models": dev.settings_sha256 != manifest.settings_sha256,
        "has recordings of this run": bool(set(manifest.recordings) & set(dev.recordings)),
    }
    for fault, is_so in faults.items():
        if is_so:
            raise UsageError(f"{tuned_on}: {fault}; TEST takes settings from a finished DEV run only")
    return replace(manifest, tuned_on=TunedOn(files.sha256(content), dev.settings_sha256, dev.begun))


def begin(out: Path, manifest: RunManifest) -> RunManifest:
    """Write run.json and make the folders; or hold the run.json that is there against what is asked for now.

    Returns the one that counts. Raises UsageError if they differ, InputError, OutputError.
    """
    path = out / "run.json"
    if not path.exists():
        try:
            (out / "rttm").mkdir(parents=True, exist_ok=True)
            (out / "files").mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"{out}: no folder can be made there ({error.strerror}); change -o") from error
        write_json(path, manifest.to_json())
        return manifest
    document = _parse(read(path), path)
    asked = json.loads(json.dumps(manifest.to_json()))
    for key in (*DECIDED, "tuned_on"):
        if document.get(key) != asked[key]:
            raise UsageError(
                f"{out} was begun with other {key.replace('_', ' ')}; choose another folder with -o"
            )
    return RunManifest.from_json(document)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write it whole or not at all. Raises OutputError."""
    atomic.write((json.dumps(document, indent=1) + "\n").encode(), path)


def read(path: Path) -> bytes:
    """A file of a run. Raises InputError."""
    try:
        return files.read(path)
    except OSError as error:
        raise InputError(f"{path}: could not be read ({error.strerror}); give the folder of a run") from error


def _parse(content: bytes, path: Path) -> dict[str, Any]:
    """The document of a run.json that `Manifest.from_json` takes. Raises InputError."""
    try:
        document = json.loads(content)
    except ValueError as error:
        raise InputError(f"{path}: is not valid JSON; give the folder of a run") from error
    try:
        if document["schema"] == SCHEMA and RunManifest.from_json(document):
            return dict(document)
    except (KeyError, TypeError):
        pass
    raise InputError(f"{path}: is not a {SCHEMA} document; give the folder of a run")


def now() -> str:
    """ISO 8601, UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
