"""run.json: what a benchmark run was made with, and whether it may be made at all.

Settings are not tried out on TEST, and what was begun goes on with the same program and settings or not at
all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from witness import files
from witness.bench import machine
from witness.errors import InputError, OutputError, UsageError
from witness.formats import rttm
from witness.models import catalogue, store
from witness.options import Options, Runtime
from witness.reporter import Reporter
from witness.schema import Turn

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
"""What must not change between the parts of one run, in run.json."""


def make(
    references: Mapping[str, Sequence[Turn]],
    options: Options,
    runtime: Runtime,
    split: str | None,
    missing: Sequence[str],
    reporter: Reporter,
) -> dict[str, Any]:
    """run.json of a run of these recordings, from now on; nothing is written."""
    chosen = store.diarization_models(options.models, offline=options.offline, reporter=reporter)
    settings = {
        name: value
        for name, value in asdict(options).items()
        if name not in ("models", "whisper", "language", "offline")
    }
    parts = {  # not the name, which is where a folder lies
        "segmentation": chosen.segmentation.sha256,
        "embedding": chosen.embedding.sha256,
        "plda": {name: file.sha256 for name, file in chosen.plda.items()},
        "rule": asdict(chosen.rule),
    }
    choice = options.models if chosen.name not in catalogue.SETS else chosen.name
    decided = {"settings": settings, "models": parts}
    return {
        "schema": SCHEMA,
        "split": split,
        "settings": settings,
        "settings_sha256": sha256(json.dumps(decided, sort_keys=True).encode()),
        "tuned_on": None,
        "models": {"choice": choice, **parts},
        "runtime": asdict(runtime),
        "recordings": list(references),
        "without_audio": list(missing),
        "references_sha256": sha256(
            "".join(rttm.serialize(name, turns) for name, turns in references.items()).encode()
        ),
        "hardware": machine.hardware(),
        "versions": machine.versions(),
        "source_sha256": machine.source_sha256(),
        "load_before": machine.load(),
        "begun": now(),
        "finished": None,
    }


def permission(manifest: dict[str, Any], tuned_on: Path | None) -> dict[str, Any] | None:
    """What allows these settings on TEST: the DEV run they come from, or None for the program's own."""
    own = asdict(Options())
    changed = [name for name, value in manifest["settings"].items() if value != own[name]]
    if manifest["models"]["choice"] not in catalogue.SETS:
        changed.append("models")
    if tuned_on is None:
        if not changed:
            return None
        raise UsageError(
            f"on TEST nothing is tried out ({', '.join(changed)}); run these settings on DEV first, and name "
            "that run with --tuned-on"
        )
    content = read(tuned_on / "run.json")
    dev = _parse(content, tuned_on / "run.json")
    faults = {
        "is no run with --split dev": dev.get("split") != "dev",
        "is not finished": not dev.get("finished"),
        "has other settings or models": dev.get("settings_sha256") != manifest["settings_sha256"],
        "has recordings of this one": bool(set(manifest["recordings"]) & set(dev.get("recordings", []))),
    }
    for fault, is_so in faults.items():
        if is_so:
            raise UsageError(f"{tuned_on}: {fault}; TEST takes settings from a finished DEV run only")
    return {"run_sha256": sha256(content), "settings_sha256": dev["settings_sha256"], "begun": dev["begun"]}


def begin(out: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write run.json, or hold what is there against what is asked for now."""
    path = out / "run.json"
    if not path.exists():
        try:
            (out / "rttm").mkdir(parents=True, exist_ok=True)
            (out / "files").mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"{out}: no folder can be made there ({error.strerror}); change -o") from error
        write_json(path, manifest)
        return manifest
    begun = _parse(read(path), path)
    for key in (*DECIDED, "tuned_on"):
        if begun.get(key) != json.loads(json.dumps(manifest[key])):
            raise UsageError(
                f"{out} was begun with other {key.replace('_', ' ')}; choose another folder with -o"
            )
    return begun


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Whole or not at all. Raises OutputError."""
    write((json.dumps(document, indent=1) + "\n").encode(), path)


def write(content: bytes, path: Path) -> None:
    """Whole or not at all. Raises OutputError."""
    try:
        files.replace(content, path)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); make room or rights there"
        ) from error


def read(path: Path) -> bytes:
    """Raises InputError."""
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


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
