"""One recording of a batch -> its files. Also the process that does it: `python -m witness.work.produce`.

A damaged recording can end a process without warning, and one that hangs can only be killed; so a batch
works in child processes (`pool`), whose models stay open from one recording to the next. Their request and
reply, as `witness.child` carries them, with news of a job that somebody watches or hears:

    {"job": line, "watched": false, "heard": false}  ->  {"outcome": line}
    {..., "watched": true}  ->  {"news": {"stage": "decode", "done": 1.0, "total": 4.0}}, ...
    {..., "heard": true}  ->  {"news": {"said": [segment, ...], "first": 0}}, ...
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from witness.child import Buffer, Message, Tell, serve_telling
from witness.errors import (
    InputError,
    ModelError,
    OutputError,
    ReadError,
    ScratchError,
    TranscriptionError,
    WitnessError,
    broken_package,
    lacks_memory,
)
from witness.formats import output_paths
from witness.formats.registry import Format
from witness.options import Options, PageAudio, Runtime
from witness.progress import Progress, no_progress
from witness.storage.checkpoint import Journal
from witness.text import one_line
from witness.work.recordings import size_and_mtime

if TYPE_CHECKING:
    from witness.pipeline import Engine
    from witness.schema import Transcript

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
"""Errors after which no other recording of the batch could be written either."""


@dataclass(frozen=True)
class Settings:
    """What all jobs of a batch share."""

    options: Options
    """No choice is left in them that two machines could make differently."""
    runtime: Runtime
    models: dict[str, str | None]
    """Role -> sha256 that the model must have."""
    warnings: tuple[str, ...] = ()
    """About the choice of models; they go into every transcript."""
    keep_findings: bool = True
    """Beside JSON files."""
    html_audio: PageAudio = PageAudio.AUTO
    style: Mapping[str, Any] = field(default_factory=dict)
    """As `Transcript.styled` takes it."""
    weights: int = 0
    """Bytes of the speech recognition model."""


@dataclass(frozen=True)
class Job:
    """One recording, with everything that a worker must know."""

    source: str
    """An absolute path, as are those of the files."""
    files: tuple[tuple[str, str], ...]
    """Formats and their files."""
    settings: Settings
    limit: float | None = None
    """Seconds that it may take."""
    limit_memory: int | None = None
    """Bytes of memory that its process, with the speech recognizer's, may take. Enforced on Linux."""
    force: bool = False
    """A transcript that a person has corrected may be replaced."""
    transcript: str | None = None
    """The JSON that says what was recognized already; None: that is to be done."""
    resumable: bool = True
    """Whether what is done is kept until it is complete, so that it need not be done again."""
    samples: tuple[tuple[str, str], ...] = ()
    """People to recognize in this recording: a name, and a recording in which they speak alone."""
    twin: str | None = None
    """The JSON of a recording with the same bytes, with these settings; None: there is none."""
    again: bool = False
    """The transcript that is there gives way to the new one, which keeps what a person did to it."""


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    error: str | None = None
    """One line that ends with the fix; None: all files are written."""
    code: int = 0
    """The exit code for the error."""
    sha256: str | None = None
    """Of the recording."""
    duration: float | None = None
    """Seconds of audio that were transcribed."""
    seconds: float = 0.0
    """Seconds of work."""
    speakers: int | None = None
    """How many were found."""
    warnings: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    """Those of the warnings after which somebody should look at the recording."""
    left: tuple[str, ...] = ()
    """A line about each file of an earlier run that is as it was."""
    twin: str | None = None
    """As `Job.twin`, if the transcript is that one's."""
    resumed: bool = False
    """Whether a part of the work had been done before."""
    formatted: bool = False
    """Only formats of a transcript that was there were written."""
    again: bool = field(default=False)
    """Whether another process might do better."""
    later: bool = False
    """Whether it may work a while later: the disk of the recording failed."""
    full: bool = False
    """Whether the disk takes no file at all."""


Segment = Mapping[str, Any]
"""What one person says, as `formats.openai` has it: `id`, `start`, `end`, `speaker`, `text`."""
Said = Callable[[int, Sequence[Segment]], None]
"""Called with segments that are final while words are recognized, and the number of the first of them. If a
worker dies and another one begins again, they are told again."""


def nothing_said(first: int, segments: Sequence[Segment]) -> None:
    """For a caller who waits for the whole text."""


@dataclass(frozen=True)
class Watcher:
    """Whoever watches a job; both are called from a thread of the pool."""

    progress: Progress = no_progress
    said: Said = nothing_said


PACE = 0.25
"""Seconds between two pieces of news of the same stage."""

_engines: dict[str, Engine] = {}
_watcher: Progress = no_progress
"""Who is told how far the job at hand is."""


def perform(job: Job, progress: Progress = no_progress, said: Said | None = None) -> Outcome:
    """Transcribe one recording and write its files. The outcome says what went wrong, if anything."""
    global _watcher
    begun = time.monotonic()
    _watcher = progress
    try:
        outcome = _perform(job, said)
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


def _perform(job: Job, said: Said | None) -> Outcome:
    from witness.audio import sound
    from witness.transcript import previous, store

    if job.transcript is not None:
        return _written(job, Path(job.transcript))
    if job.twin is not None and (outcome := _copied(job, Path(job.twin))) is not None:
        return outcome
    settings = _introduced(job)
    places = [(form, Path(path)) for form, path in job.files]
    targets = output_paths.prepare(places, keep=settings.keep_findings, pipes=False)
    with Journal() as journal:
        try:
            engine = _engine(settings)
            before = _look(job.source)
            heard = None if said is None else _telling(said, settings.style)
            transcript = engine.transcribe(
                job.source, heard=heard, journal=journal if job.resumable else None
            )
            if _look(job.source) != before:
                raise InputError(
                    f"{job.source} was changed while it was read; "
                    "try again with --retry-failed once it is complete"
                )
            peaks = sound.take(transcript.audio, targets.files, settings.html_audio)
        except BaseException:
            targets.give_up()
            raise
        if job.again and transcript.failure is not None:  # the earlier one has words
            raise transcript.failure
        marked = transcript.styled(settings.style)
        if job.again and (there := _json_of(job)).is_file():
            forms = [form for form, _ in targets.files]
            left = previous.replace_with(there, marked, also=forms, sound=peaks)
        else:
            left = store.save(
                marked, targets.files, keep=settings.keep_findings, sound=peaks, fresh=True, force=job.force
            )
        if transcript.failure is None:
            journal.forget()
    failure = transcript.failure
    return Outcome(
        None if failure is None else f"{job.source}: speakers, but no words: {failure}",
        0 if failure is None else failure.exit_code,
        transcript.audio.sha256,
        transcript.audio.transcribed.duration,
        speakers=len(transcript.speakers),
        warnings=transcript.warnings,
        doubts=transcript.doubts,
        left=left,
        resumed=journal.resumed,
        again=isinstance(failure, TranscriptionError),
    )


def _json_of(job: Job) -> Path:
    return Path(next(path for form, path in job.files if form == Format.JSON))


def _written(job: Job, path: Path) -> Outcome:
    """Write the formats of a transcript that is there, which may have been corrected."""
    from witness.audio import sound
    from witness.transcript import store

    targets = output_paths.prepare([(form, Path(file)) for form, file in job.files], pipes=False)
    with store.opened(path) as there:
        transcript = store.read(path).styled(job.settings.style)
        heard = sound.take(transcript.audio, targets.files, job.settings.html_audio, beside=path.parent)
        left = there.add(transcript, [form for form, _ in targets.files], heard).left
    return Outcome(
        sha256=transcript.audio.sha256,
        duration=transcript.audio.transcribed.duration,
        speakers=len(transcript.speakers),
        warnings=transcript.warnings,
        doubts=transcript.doubts,
        left=left,
        formatted=True,
    )


def _copied(job: Job, path: Path) -> Outcome | None:
    """Write the transcript of a recording with the same bytes as this one's; None: it cannot be used."""
    from witness.audio import sound
    from witness.schema import display_name
    from witness.transcript import redo, store

    keep = job.settings.keep_findings
    try:
        transcript = store.read(path)
        findings = redo.read(path).findings if keep else None
    except WitnessError:
        return None
    audio = replace(transcript.audio, path=job.source)
    first, own = f"{display_name(transcript.audio.path)}: ", f"{display_name(job.source)}: "
    warnings = tuple(
        own + line.removeprefix(first) if line.startswith(first) else line for line in transcript.warnings
    )
    if findings is not None:
        findings = replace(findings, audio=audio)
    transcript = replace(transcript, audio=audio, findings=findings, warnings=warnings)
    targets = output_paths.prepare([(form, Path(file)) for form, file in job.files], keep=keep, pipes=False)
    heard = sound.take(audio, targets.files, job.settings.html_audio)
    marked = transcript.styled(job.settings.style)
    left = store.save(marked, targets.files, keep=keep, sound=heard, force=job.force)
    return Outcome(
        sha256=audio.sha256,
        duration=audio.transcribed.duration,
        speakers=len(transcript.speakers),
        warnings=transcript.warnings,
        doubts=transcript.doubts,
        left=left,
        twin=str(path),
    )


def _introduced(job: Job) -> Settings:
    """With the people of the job's samples among those who are known. Raises InputError, UsageError."""
    from witness.diarization import voices
    from witness.transcript import voiceprints

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
        except InputError as error:  # whoever sent it knows no such file
            raise InputError(str(error).replace(path, f"the sample of {one_line(name)}")) from error
        voices.write(voiceprints.introduce(sample, name), folder)
    known = {**settings.models, "known": voices.fingerprint(folder)}
    return replace(settings, options=replace(settings.options, known=str(folder)), models=known)


def _engine(settings: Settings) -> Engine:
    """With the models of the batch open. Raises ModelError if this machine has others."""
    from witness.diarization import voices
    from witness.pipeline import Engine

    key = json.dumps(asdict(settings), sort_keys=True)
    if key not in _engines:
        before = next((one for one in _engines.values() if one.runtime == settings.runtime), None)
        if before is None:
            engine = Engine(settings.options, settings.runtime, progress=_progress)
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


def _progress(stage: str, done: float, total: float) -> None:
    """For an engine, which outlives the job that it was opened for."""
    _watcher(stage, done, total)


def _look(path: str) -> tuple[int, int]:
    """As `size_and_mtime`, but raises InputError, also for what is no regular file: a pipe may never end."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise InputError(f"{path} is not a regular file; give a recording in a file")
        return size_and_mtime(path)
    except OSError as error:
        kind = InputError if isinstance(error, FileNotFoundError | PermissionError) else ReadError
        raise kind(f"{path} cannot be read ({error.strerror}); check the path, or the drive") from error


# --- the process ---


def job_to_json(job: Job) -> str:
    """The job in one line."""
    return json.dumps(asdict(job))


def job_from_json(line: str | bytes) -> Job:
    """The job that `job_to_json` wrote."""
    fields = json.loads(line)
    settings = fields["settings"]
    settings |= {
        "options": Options(**settings["options"]),
        "runtime": Runtime(**settings["runtime"]),
        "warnings": tuple(settings["warnings"]),
        "html_audio": PageAudio(settings["html_audio"]),
    }
    fields |= {"files": tuple(map(tuple, fields["files"])), "settings": Settings(**settings)}
    fields |= {"samples": tuple(map(tuple, fields["samples"]))}
    return Job(**fields)


def outcome_from_json(line: str | bytes) -> Outcome:
    """The outcome that a worker wrote in one line."""
    fields = json.loads(line)
    lists = {name: tuple(fields[name]) for name in ("warnings", "doubts", "left")}
    return Outcome(**{**fields, **lists})


def _answer(request: Message, _: bytes, tell: Tell) -> tuple[Message, Sequence[Buffer]]:
    def said(first: int, segments: Sequence[Segment]) -> None:
        tell({"said": segments, "first": first})

    job = job_from_json(request["job"])
    progress = _paced(tell) if request["watched"] else no_progress
    outcome = perform(job, progress, said if request["heard"] else None)
    return {"outcome": json.dumps(asdict(outcome))}, ()


def _telling(said: Said, style: Mapping[str, Any]) -> Callable[[Transcript], None]:
    """Tells what is new in a transcript that becomes longer."""
    told = 0

    def heard(transcript: Transcript) -> None:
        nonlocal told
        segments = json.loads(transcript.styled(style).to("openai"))["segments"]
        if len(segments) > told:
            said(told, segments[told:])
            told = len(segments)

    return heard


def _paced(tell: Tell) -> Progress:
    """Tell of every stage, and of each not too often."""
    told: dict[str, float] = {}

    def progress(stage: str, done: float, total: float) -> None:
        now = time.monotonic()
        if done >= total or now - told.get(stage, -PACE) >= PACE:
            told[stage] = now
            tell({"stage": stage, "done": float(done), "total": float(total)})

    return progress


if __name__ == "__main__":
    serve_telling(_answer)
