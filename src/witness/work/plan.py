"""What a batch does and with what: the request, the models that it settles on, and how many workers fit."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from witness import machine_limits
from witness.diarization import voices
from witness.models import own
from witness.options import Device, Options, PageAudio, Runtime
from witness.pipeline import Engine
from witness.progress import SILENT, Reporter
from witness.work.eta import model_size
from witness.work.produce import Settings

PEAK = 1_500_000_000
"""Bytes of memory that a worker may take besides the recognizer's weights; measured:
docs/decisions/2026-11-22-constants.md."""


@dataclass(frozen=True)
class BatchRequest:
    """What a batch is asked to do."""

    inputs: Sequence[str]
    """Files, folders and patterns."""
    out: Path
    """The folder of the batch."""
    formats: Sequence[str]
    force: bool = False
    """Do again what is done."""
    retry_failed: bool = False
    watch: bool = False
    """Go on with recordings that appear."""
    limit: float | None = None
    """Seconds that a recording may take."""
    limit_memory: int | None = None
    """Bytes of memory that a recording may take."""


def settle(
    options: Options,
    *,
    keep_findings: bool = True,
    html_audio: PageAudio = PageAudio.AUTO,
    style: Mapping[str, Any] = {},
    reporter: Reporter = SILENT,
) -> Settings:
    """The options with every choice made, the models fetched and verified. Raises ModelError, UsageError."""
    engine = Engine(options, progress=reporter.progress, note=reporter.note)
    models = engine.files
    whisper, failure = engine.whisper
    if failure is not None:
        raise failure
    chosen = engine.chosen.name
    if options.models not in ("auto", chosen):  # a folder
        chosen = os.path.abspath(options.models)  # noqa: PTH100 - without following links
    words = "none"
    if whisper is not None:  # a name means the same model on every machine of a cluster
        words = whisper.path if own.is_path(options.whisper) else whisper.name
    known = options.known and os.path.abspath(options.known)  # noqa: PTH100
    settled = replace(options, models=chosen, whisper=words, known=known)
    sha256 = {role: file.sha256 if file else None for role, file in models.items()}
    if engine.known is not None and known is not None:
        sha256["known"] = voices.fingerprint(Path(known))
    return Settings(
        settled,
        Runtime(),
        sha256,
        tuple(engine.warnings),
        keep_findings,
        html_audio,
        style,
        model_size(Path(whisper.path)) if whisper is not None else 0,
    )


def fingerprint(settings: Settings) -> str:
    """The hash of everything that changes the result; recordings with another one are done again."""
    options = asdict(settings.options)
    for name in ("models", "recognizer", "offline", "known"):  # the hashes of the files say more
        del options[name]
    options["whisper"] = None
    return hashlib.sha256(json.dumps([options, settings.models], sort_keys=True).encode()).hexdigest()


def worker_count(jobs: int | None, recordings: int, memory: int | None, weights: int = 0) -> int:
    """How many workers without a card of their own there are: `jobs`, or one per core, if they all fit.

    `memory` is in bytes; None: unknown. `weights` are those of the recognizer, of which every worker has one.
    """
    room = max(1, memory // (PEAK + weights)) if memory is not None else machine_limits.cores()
    return max(1, min(jobs or machine_limits.cores(), room, recordings))


def share(workers: int, device: Device, threads: int | None = None) -> Runtime:
    """The runtime of one of several workers on a machine; `threads` None: a fair share of the cores."""
    threads = threads or max(1, machine_limits.cores() // workers)
    # With one core each, words at the same time as the diarizer would be two threads on it.
    return Runtime(device, threads=threads, serial=threads == 1)
