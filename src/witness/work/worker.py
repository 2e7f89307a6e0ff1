"""The worker process of a pool, `python -m witness.work.worker`: jobs in, outcomes and news of them out.

A damaged recording can end a process without warning, and one that hangs can only be killed; so batch and
desk work in child processes (`pool`), whose models stay open from one recording to the next. `witness.child`
carries requests and replies, and news of a job that the parent watches or listens to:

    {"job": line, "watched": false, "heard": false}  ->  {"outcome": line}
    {..., "watched": true}  ->  {"news": {"stage": "decode", "done": 1.0, "total": 4.0}}, ...
    {..., "heard": true}  ->  {"news": {"said": [segment, ...], "first": 0}}, ...
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from witness.child import Buffer, Message, Tell, serve_telling
from witness.errors import (
    InputError,
    ModelError,
    OutputError,
    ReadError,
    ScratchError,
    WitnessError,
    broken_package,
    lacks_memory,
)
from witness.progress import Progress, Reporter, no_progress
from witness.text import one_line
from witness.work.folder import size_and_mtime
from witness.work.produce import FULL, Caller, Job, Outcome, Said, Segment, Settings, produce, render

if TYPE_CHECKING:
    from witness.pipeline import Engine
    from witness.schema import Transcript

T = TypeVar("T")

NEWS_INTERVAL = 0.25
"""Seconds between two pieces of news of the same stage."""

_engines: dict[str, Engine] = {}
_progress: Progress = no_progress
"""The callback of the current job; an engine outlives the job that it was opened for."""


def perform(job: Job, progress: Progress = no_progress, said: Said | None = None) -> Outcome:
    """Return the outcome of a job: an error becomes its line and exit code."""
    global _progress
    begun = time.monotonic()
    _progress = progress
    before = (0, 0)

    def engine() -> Engine:
        nonlocal before
        opened = _engine(_with_samples(job))
        before = _size_and_mtime(job.source)
        return opened

    def refuse_changed(_: Transcript) -> None:
        if _size_and_mtime(job.source) != before:
            raise InputError(
                f"{job.source} was changed while it was read; try again with --retry-failed once it is "
                "complete"
            )

    heard = None if said is None else _new_segments(said, job.settings.writing.style)
    caller = Caller(engine, Reporter(progress), heard, refuse_changed, pipes=False)
    try:
        outcome = produce(job, caller)
    except WitnessError as error:
        reason = error.__cause__.errno if isinstance(error.__cause__, OSError) else None
        full = isinstance(error, OutputError) and not isinstance(error, ScratchError) and reason in FULL
        outcome = Outcome(str(error), error.exit_code, full=full, later=isinstance(error, ReadError))
    except Exception as error:  # it must not end the batch
        text = broken_package(error) or (
            " ".join(f"{type(error).__name__}: {error}".split()) + "; this is a bug, please report it"
        )
        if lacks_memory(error):
            text = "not enough memory; use fewer --jobs"
        outcome = Outcome(f"{job.source}: {text}", 1)
    return replace(outcome, seconds=time.monotonic() - begun)


def _with_samples(job: Job) -> Settings:
    """Add the people of the job's samples to its known voices. Raises InputError, UsageError."""
    from witness.diarization import voices
    from witness.transcript import speaker_voices

    settings = job.settings
    if not job.samples:
        return settings
    alone = replace(
        settings.options, whisper="none", known=None, speakers=1, min_speakers=None, max_speakers=None
    )
    unnamed = {role: sha256 for role, sha256 in settings.models.items() if role != "known"}
    engine = _engine(replace(settings, options=alone, models={**unnamed, "whisper": None}))
    folder = Path(job.samples[0][1]).parent / "known"
    if settings.options.known is not None:
        for voice in voices.read_all(Path(settings.options.known)):
            voices.write(voice, folder)
    for name, path in job.samples:
        try:
            sample = engine.transcribe(path)
        except InputError as error:  # the client that sent it knows no such file
            raise InputError(str(error).replace(path, f"the sample of {one_line(name)}")) from error
        voices.write(speaker_voices.enroll_sample(sample, name), folder)
    models = {**settings.models, "known": voices.fingerprint(folder)}
    return replace(settings, options=replace(settings.options, known=str(folder)), models=models)


def _engine(settings: Settings) -> Engine:
    """Return an engine with the models of the batch. Raises ModelError if this machine has others."""
    from witness.diarization import voices
    from witness.pipeline import Engine

    key = json.dumps(asdict(settings), sort_keys=True)
    if key not in _engines:
        before = next((engine for engine in _engines.values() if engine.runtime == settings.runtime), None)
        if before is None:
            engine = Engine(settings.options, settings.runtime, progress=lambda *news: _progress(*news))
        else:
            engine = before.share(settings.options)
        here = {role: file and file.sha256 for role, file in engine.files.items()}
        if engine.options.known is not None:
            here["known"] = voices.fingerprint(Path(engine.options.known))
        for role, sha256 in settings.models.items():
            if here[role] != sha256:
                raise ModelError(
                    f"the {role} model or folder on this machine differs from the batch's (sha256 "
                    f"{here[role]}, not {sha256}); run: witness models fetch, or start the batch again"
                )
        engine.warnings[:] = settings.warnings
        _engines.clear()
        _engines[key] = engine
    return _engines[key]


def _size_and_mtime(path: str) -> tuple[int, int]:
    """Return size and time of a regular file. Raises InputError, also for a pipe, which may never end."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise InputError(f"{path} is not a regular file; give a recording in a file")
        return size_and_mtime(path)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | PermissionError)
        raise (InputError if missing else ReadError)(
            f"{path} cannot be read ({error.strerror}); check the path, or the drive"
        ) from error


# --- the messages ---


def to_json(message: Job | Outcome) -> str:
    """Return a job or an outcome in one line."""
    return json.dumps(asdict(message), default=str)  # not by msgspec: names of files may hold surrogates


def from_json(line: str | bytes, message: type[T]) -> T:
    """Return the job or the outcome that `to_json` wrote."""
    return msgspec.convert(json.loads(line), message, dec_hook=lambda path, text: path(text))


def _answer(request: Message, _: bytes, tell: Tell) -> tuple[Message, Sequence[Buffer]]:
    def said(first: int, segments: Sequence[Segment]) -> None:
        tell({"said": segments, "first": first})

    job = from_json(request["job"], Job)
    progress = _paced(tell) if request["watched"] else no_progress
    outcome = perform(job, progress, said if request["heard"] else None)
    return {"outcome": to_json(outcome)}, ()


def _new_segments(said: Said, style: Mapping[str, Any]) -> Callable[[Transcript], None]:
    """Return a callback that passes on the new segments of a transcript that becomes longer."""
    sent = 0

    def heard(transcript: Transcript) -> None:
        nonlocal sent
        segments = json.loads(render(transcript.styled(style), "openai"))["segments"]
        if len(segments) > sent:
            said(sent, segments[sent:])
            sent = len(segments)

    return heard


def _paced(tell: Tell) -> Progress:
    """Return a callback that reports every stage, each at intervals."""
    reported: dict[str, float] = {}

    def progress(stage: str, done: float, total: float) -> None:
        now = time.monotonic()
        if done >= total or now - reported.get(stage, -NEWS_INTERVAL) >= NEWS_INTERVAL:
            reported[stage] = now
            tell({"stage": stage, "done": float(done), "total": float(total)})

    return progress


if __name__ == "__main__":
    serve_telling(_answer)
