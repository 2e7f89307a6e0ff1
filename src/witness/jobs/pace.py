"""How long each stage takes on this machine, as measured in earlier runs; kept in the cache."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from witness import atomic, caching, documents, files
from witness.jobs.estimate import USUAL, Pace

if TYPE_CHECKING:
    from witness.pipeline import Engine

MOST = 50
"""Kinds of runs that are remembered, the latest ones."""
SHORT = 0.25
"""Share of another recording's time below which what a recording took says less: models were loaded, too."""
BASE = 145e6
"""Bytes of Whisper base, of which `USUAL` tells."""


def expected(engine: Engine) -> Pace:
    """What the stages of a recording will take, in proportion: as in the last run of this kind, or as usual.

    Raises what choosing the models does.
    """
    kept = _kept().get(_kind(engine))
    if kept is not None and sum(kept.values()) > 0:
        return kept
    whisper = engine.whisper[0]
    if whisper is None:
        return {stage: one for stage, one in USUAL.items() if stage != "transcription"}
    # A larger model takes longer by about as much.
    return {**USUAL, "transcription": USUAL["transcription"] * _size(Path(whisper.path)) / BASE}


def learn(engine: Engine, pace: Pace) -> None:
    """Remember what the stages of a whole recording took, unless a much longer one says better."""
    kept = _kept()
    kind = _kind(engine)
    before = kept.pop(kind, {})
    if sum(pace.values()) < SHORT * sum(before.values()):
        return
    kept[kind] = dict(pace)
    latest = dict(list(kept.items())[-MOST:])
    with suppress(OSError):
        path = caching.cache_folder() / "paces.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.replace(json.dumps(latest).encode(), path)


def _kept() -> dict[str, dict[str, float]]:
    with suppress(OSError, ValueError):
        return documents.decode(
            files.read(caching.cache_folder() / "paces.json"), dict[str, dict[str, float]]
        )
    return {}


def _size(path: Path) -> int:
    """Bytes of a model."""
    parts = [path] if path.is_file() else path.iterdir()
    return max((part.stat().st_size for part in parts if part.is_file()), default=0)


def _kind(engine: Engine) -> str:
    """What makes a difference: the models, what runs them, and on how many cores."""
    models = [model and model.sha256[:16] for model in engine.files.values()]
    return json.dumps([models, str(engine.runtime.device), engine.runtime.cores, engine.options.fast])
