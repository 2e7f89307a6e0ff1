"""One recording of a batch -> its files. Also the process that does it: `python -m witness.batch.worker`.

A damaged recording can end a process without warning, and one that hangs can only be killed; so a batch
works in child processes (`pool`), whose models stay open from one recording to the next. Their request and
reply, as `witness.child` carries them:

    {"job": line}  ->  {"outcome": line}
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from witness.child import Buffer, Message, serve
from witness.errors import InputError, ModelError, TranscriptionError, WitnessError

if TYPE_CHECKING:
    from witness.audio import sound
    from witness.pipeline import Engine

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
"""Reasons why no other recording of the batch could be written either."""


@dataclass(frozen=True)
class Settings:
    """What all jobs of a batch share."""

    options: dict[str, Any]
    """Fields of `pipeline.Options`: no choice left that two machines could make differently."""
    runtime: dict[str, Any]
    """Fields of `sessions.Runtime`."""
    models: dict[str, str | None]
    """Role -> sha256 that the model must have."""
    warnings: tuple[str, ...] = ()
    """About the choice of models; for every transcript."""
    keep: bool = True
    """Keep the stages beside JSON files."""
    html_audio: sound.How = "auto"
    """The sound of pages."""


@dataclass(frozen=True)
class Job:
    """One recording."""

    source: str
    """An absolute path, as are those of the files."""
    files: tuple[tuple[str, str], ...]
    """Formats and their files."""
    settings: Settings
    limit: float | None = None
    """Seconds that it may take."""
    limit_memory: int | None = None
    """Bytes of memory that its process, with the speech recognizer's, may take. Enforced on Linux."""


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    error: str | None = None
    """One line with the cure; None: all files are written."""
    code: int = 0
    """The exit code of such an error."""
    sha256: str | None = None
    """Of the recording."""
    duration: float | None = None
    """Seconds of audio."""
    seconds: float = 0.0
    """That it took."""
    speakers: int | None = None
    warnings: tuple[str, ...] = ()
    again: bool = field(default=False)
    """Whether another process might do better."""
    full: bool = False
    """Whether there is no room for any file."""


_engines: dict[str, Engine] = {}


def perform(job: Job) -> Outcome:
    """Transcribe one recording and write its files. What goes wrong with it is in the outcome."""
    begun = time.monotonic()
    try:
        outcome = _perform(job)
    except WitnessError as error:
        reason = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
        outcome = Outcome(str(error), error.exit_code, full=error.exit_code == 1 and reason in FULL)
    except MemoryError:
        outcome = Outcome(f"{job.source}: not enough memory; use fewer --jobs", 1)
    except Exception as error:  # it must not end the batch
        text = " ".join(f"{type(error).__name__}: {error}".split())
        outcome = Outcome(f"{job.source}: {text}; please report it", 1)
    return replace(outcome, seconds=time.monotonic() - begun)


def _perform(job: Job) -> Outcome:
    from witness.audio import sound
    from witness.formats import writers

    engine = _engine(job.settings)
    before = _state(job.source)
    transcript = engine.transcribe(job.source)
    if _state(job.source) != before:
        raise InputError(
            f"{job.source} was changed while it was read; --retry-failed takes it once it is complete"
        )
    for _, path in job.files:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    files = [(form, Path(path)) for form, path in job.files]
    heard = sound.take(transcript.audio, files, job.settings.html_audio)
    writers.save(transcript, files, keep=job.settings.keep, sound=heard)
    failure = transcript.failure
    return Outcome(
        None if failure is None else f"{job.source}: speakers, but no words: {failure}",
        0 if failure is None else failure.exit_code,
        transcript.audio.sha256,
        transcript.audio.duration,
        speakers=len(transcript.speakers),
        warnings=transcript.warnings,
        again=isinstance(failure, TranscriptionError),
    )


def _engine(settings: Settings) -> Engine:
    """With its models open, and found to be those of the batch."""
    from witness.diarization import voices
    from witness.options import Options, Runtime
    from witness.pipeline import Engine

    key = json.dumps(asdict(settings), sort_keys=True)
    if key not in _engines:
        engine = Engine(Options(**settings.options), Runtime(**settings.runtime))
        found = {role: file and file.sha256 for role, file in engine.files.items()}
        if engine.options.known is not None:
            found["known"] = voices.fingerprint(Path(engine.options.known))
        for role, sha256 in settings.models.items():
            if found[role] != sha256:
                raise ModelError(
                    f"this machine has another {role} model or folder than the batch ({found[role]}, not "
                    f"{sha256}); run: witness models fetch, or start the batch again"
                )
        engine.warnings[:] = settings.warnings
        _engines.clear()
        _engines[key] = engine
    return _engines[key]


def _state(path: str) -> tuple[int, int]:
    """Size and time of change."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a path may be bytes that are no text
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path") from error
    return found.st_size, found.st_mtime_ns


# --- the process ---


def job_to_json(job: Job) -> str:
    """One line."""
    return json.dumps(asdict(job))


def job_from_json(line: str | bytes) -> Job:
    """The other way."""
    fields = json.loads(line)
    settings = fields.pop("settings")
    settings["warnings"] = tuple(settings["warnings"])
    return Job(
        **{**fields, "files": tuple((form, path) for form, path in fields["files"])},
        settings=Settings(**settings),
    )


def outcome_from_json(line: str | bytes) -> Outcome:
    """The outcome in one line that a worker wrote."""
    fields = json.loads(line)
    return Outcome(**{**fields, "warnings": tuple(fields["warnings"])})


def _answer(request: Message, _: bytes) -> tuple[Message, Sequence[Buffer]]:
    return {"outcome": json.dumps(asdict(perform(job_from_json(request["job"]))))}, ()


if __name__ == "__main__":
    serve(_answer)
