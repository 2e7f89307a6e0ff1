"""A recording, or a transcript, -> its files: the one act of run, batch, desk, convert, redo and the API."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from witness.errors import TranscriptionError, UsageError, WitnessError
from witness.formats import output_paths
from witness.formats.registry import Format
from witness.options import Changes, Options, PageAudio, Runtime, chosen
from witness.progress import SILENT, Progress, Reporter, no_progress
from witness.storage import atomic
from witness.storage.checkpoint import Journal

if TYPE_CHECKING:
    from witness.pipeline import Engine
    from witness.schema import Sound, Transcript
    from witness.transcript.partial import OnPartial
    from witness.transcript.store import Store

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
"""Errors after which no other recording of the batch could be written either."""


@dataclass(frozen=True)
class Writing:
    """Choices about the files of a transcript."""

    keep_findings: bool = True
    """Beside JSON files."""
    html_audio: PageAudio = PageAudio.AUTO
    style: Mapping[str, Any] = field(default_factory=dict)
    """As `Transcript.styled` takes it."""


@dataclass(frozen=True)
class Settings:
    """Settings of all jobs of a batch."""

    options: Options = field(default_factory=Options)
    """For a batch, they leave no choice that two machines could make differently."""
    runtime: Runtime = field(default_factory=Runtime)
    models: Mapping[str, str | None] = field(default_factory=dict)
    """Role -> sha256 that the model must have."""
    warnings: tuple[str, ...] = ()
    """About the choice of models; they go into every transcript."""
    writing: Writing = field(default_factory=Writing)
    weights: int = 0
    """Bytes of the speech recognition model."""


def resolve_settings(options: Options, writing: Writing = Writing(), reporter: Reporter = SILENT) -> Settings:
    """Make all choices of the options, and fetch and verify the models. Raises ModelError, UsageError."""
    from witness.pipeline import Engine

    engine = Engine(options, progress=reporter.progress, note=reporter.note)
    return replace(settings_of(engine, writing), runtime=Runtime())


def settings_of(engine: Engine, writing: Writing = Writing()) -> Settings:
    """Return the settings with the choices that an engine has made. Raises ModelError, UsageError."""
    from witness.diarization import voices
    from witness.models import user_files
    from witness.work.eta import model_size

    options = engine.options
    whisper, models = engine.whisper, engine.files
    chosen = engine.chosen.name
    if options.models not in ("auto", chosen):  # a folder
        chosen = os.path.abspath(options.models)  # noqa: PTH100 - without following links
    words = "none"
    if whisper is not None:  # a name means the same model on every machine of a cluster
        words = whisper.path if user_files.is_path(options.whisper) else whisper.name
    people = options.known and os.path.abspath(options.known)  # noqa: PTH100
    sha256 = {role: file.sha256 if file else None for role, file in models.items()}
    if engine.known is not None and people is not None:
        sha256["known"] = voices.fingerprint(Path(people))
    return Settings(
        replace(options, models=chosen, whisper=words, known=people),
        engine.runtime,
        sha256,
        tuple(engine.warnings),
        writing,
        model_size(Path(whisper.path)) if whisper is not None else 0,
    )


@dataclass(frozen=True)
class Job:
    """One recording, with everything that a worker must know."""

    source: str
    """The recording's path. Paths of a job for another process are absolute."""
    files: output_paths.Targets
    """Formats and their files; None: stdout."""
    settings: Settings = field(default_factory=Settings)
    limit: float | None = None
    """Seconds that it may take."""
    limit_memory: int | None = None
    """Bytes of memory that its process, with the speech recognizer's, may take. Enforced on Linux."""
    force: bool = False
    """A transcript that a person has corrected may be replaced."""
    transcript: str | None = None
    """The JSON of a transcript that exists; None: the recording is recognized."""
    changes: Changes | None = None
    """Changes to that transcript, which replace it; None: only other formats of it are written."""
    resumable: bool = True
    """An interrupted run may resume: finished work is kept until the job ends."""
    samples: tuple[tuple[str, str], ...] = ()
    """People to recognize in this recording: a name, and a recording of that person alone."""
    twin: str | None = None
    """The JSON of a recording with the same bytes and settings, if any."""
    again: bool = False
    """A new transcript replaces the existing one and keeps the corrections of people."""


@dataclass(frozen=True)
class Outcome:
    """The result of a job."""

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
    """Number of speakers."""
    warnings: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    """Warnings that call for a look at the recording."""
    left: tuple[str, ...] = ()
    """A line about each file of an earlier run that was not replaced."""
    twin: str | None = None
    """As `Job.twin`, if the transcript is that one's."""
    resumed: bool = False
    """An interrupted run had done a part of the work."""
    formatted: bool = False
    """The job wrote only formats of an existing transcript."""
    again: bool = field(default=False)
    """Another process may succeed."""
    later: bool = False
    """A later attempt may succeed: the disk of the recording failed."""
    full: bool = False
    """The disk takes no file at all."""


Segment = Mapping[str, Any]
"""Words of one person, as in `formats.openai`: `id`, `start`, `end`, `speaker`, `text`."""
Said = Callable[[int, Sequence[Segment]], None]
"""Called with segments that are final while words are recognized, and the number of the first of them. If a
worker dies and another one begins again, they are told again."""


def nothing_said(first: int, segments: Sequence[Segment]) -> None:
    """For a caller who waits for the whole text."""


@dataclass(frozen=True)
class Watcher:
    """Callbacks of whoever watches a job; a thread of the pool calls them."""

    progress: Progress = no_progress
    said: Said = nothing_said


def ignore(transcript: Transcript) -> None:
    """Take a transcript that the caller need not see."""


def print_result(content: bytes) -> None:
    """Write to stdout. Raises OutputError, BrokenPipeError."""
    atomic.write(content, None)


@dataclass(frozen=True)
class Caller:
    """Callbacks of the program that asks `produce` for a job."""

    engine: Callable[[], Engine] | None = None
    """Called once if the job recognizes a recording; None: it does not."""
    reporter: Reporter = SILENT
    heard: OnPartial | None = None
    recognized: Callable[[Transcript], None] = ignore
    """Called with a new transcript before its files are written."""
    show: Callable[[bytes], None] = print_result
    """Called with a result for stdout."""
    pipes: bool = True
    """Results may go into pipes and devices."""


def produce(job: Job, caller: Caller = Caller()) -> Outcome:
    """Make the transcript that a job asks for, and write its files.

    It is recognized, or copied from a twin, or the one that `job.transcript` names, with its changes. Raises
    WitnessError and what the callbacks raise; then no file has changed.
    """
    writing = job.settings.writing
    path = None if job.transcript is None else Path(job.transcript)
    files = job.files
    twin = opened = None
    with (
        output_paths.prepared(files, keep=writing.keep_findings, pipes=caller.pipes),
        Journal() as journal,
        ExitStack() as lock,
    ):
        if path is not None:
            transcript, opened = _existing(job, path, caller.reporter, lock)
        else:
            twin = None if job.twin is None else _copy(job, Path(job.twin))
            transcript = twin or _recognize(job, caller, journal)
        from witness.audio import sound  # not before: a recognizer starts before any heavy import
        from witness.formats import json_document, writers

        styled = transcript.styled(writing.style)
        beside = None if path is None else path.parent
        page = sound.take(styled.audio, files, writing.html_audio, beside=beside, reporter=caller.reporter)
        left = _write(job, styled, files, page, opened, fresh=path is None and twin is None)
        for line in left:
            caller.reporter.note(line)
        results = [file for _, file in files if file is not None]
        for file in dict.fromkeys([path, *results] if opened is not None and path is not None else results):
            if not any(line.startswith(f"{file} is unchanged") for line in left):
                caller.reporter.wrote(str(file))
        for form in [form for form, file in files if file is None]:
            with caller.reporter.aside():
                caller.show(writers.content(json_document.in_milliseconds(styled), form, page))
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
        twin=None if twin is None else job.twin,
        resumed=journal.resumed,
        formatted=path is not None,
        again=isinstance(failure, TranscriptionError),
    )


def _existing(job: Job, path: Path, reporter: Reporter, lock: ExitStack) -> tuple[Transcript, Store | None]:
    """Read a transcript; if the job changes it, lock its store and apply the changes."""
    from witness.transcript import store

    if job.changes is None:
        return store.read(path), None
    from witness.transcript import rebuild

    opened = lock.enter_context(store.opened(path))
    return rebuild.change(path, job.changes, reporter), opened


def _recognize(job: Job, caller: Caller, journal: Journal) -> Transcript:
    assert caller.engine is not None  # noqa: S101 - for mypy
    engine = caller.engine()
    kept = journal if job.resumable else None
    transcript = engine.transcribe(job.source, heard=caller.heard, journal=kept)
    caller.recognized(transcript)
    if job.again and transcript.failure is not None:  # the earlier one has words
        raise transcript.failure
    return transcript


def _copy(job: Job, path: Path) -> Transcript | None:
    """Return the transcript of a recording with the same bytes as this one's; None: it cannot be used."""
    from witness.schema import display_name
    from witness.transcript import rebuild, store

    try:
        transcript = store.read(path)
        findings = rebuild.read(path).findings if job.settings.writing.keep_findings else None
    except WitnessError:
        return None
    audio = replace(transcript.audio, path=job.source)
    before, now = f"{display_name(transcript.audio.path)}: ", f"{display_name(job.source)}: "
    warnings = tuple(
        now + line.removeprefix(before) if line.startswith(before) else line for line in transcript.warnings
    )
    if findings is not None:
        findings = replace(findings, audio=audio)
    return replace(transcript, audio=audio, findings=findings, warnings=warnings)


def _write(
    job: Job,
    transcript: Transcript,
    files: Sequence[tuple[str, Path | None]],
    page: Sound | None,
    opened: Store | None,
    *,
    fresh: bool,
) -> tuple[str, ...]:
    """Write the files of a job; return a line about each file beside them that was not replaced.

    `opened` is the store of a transcript that was changed. `fresh`: the models just made it.
    """
    from witness.formats import json_document
    from witness.transcript import previous, store

    left: tuple[str, ...] = ()
    if opened is not None:
        beside = [form for form, file in files if file == store.sibling(opened.path, form)]
        link = opened.findings_link(transcript.audio.sha256)
        changed = json_document.in_milliseconds(transcript)
        left = opened.write(changed, link, also=beside, sound=page).left
        files = [(form, file) for form, file in files if form not in beside]
    files = [(form, file) for form, file in files if file is not None]
    if not files:
        return left
    forms = [form for form, _ in files]
    json = next((file for form, file in files if form == Format.JSON), None)
    if job.again and json is not None and json.is_file():
        return previous.replace_with(json, transcript, also=forms, sound=page)
    source = None if job.transcript is None else Path(job.transcript)
    if source is not None and all(file == store.sibling(source, form) for form, file in files):
        with store.opened(source) as beside_it:  # read again: it may have changed meanwhile
            now = store.read(source).styled(job.settings.writing.style)
            return beside_it.add(now, forms, page).left
    keep, force = job.settings.writing.keep_findings, job.force or source is not None
    return (*left, *store.save(transcript, files, keep=keep, sound=page, fresh=fresh, force=force))


def load(path: str | os.PathLike[str]) -> Transcript:
    """Return the transcript in a JSON file that Witness wrote, without its `findings`. Raises InputError."""
    from witness.transcript import store

    return store.read(Path(path))


@overload
def render(transcript: Transcript, form: Literal["docx", "qdpx"]) -> bytes: ...  # type: ignore[overload-overlap] # the binary ones


@overload
def render(transcript: Transcript, form: str) -> str: ...


def render(transcript: Transcript, form: str) -> str | bytes:
    """Return a transcript in a format: text, or bytes if the format is binary.

    Raises UsageError for another format, WitnessError if its library is not installed.
    """
    from witness.formats import json_document, writers

    known = chosen(Format, form)
    output_paths.check_libraries([known])
    content = writers.content(json_document.in_milliseconds(transcript), known)
    return content if known.about.binary else content.decode()


def save(transcript: Transcript, path: str | os.PathLike[str]) -> None:
    """Write a transcript to a file, whole or not at all, in the format that its ending names.

    Raises UsageError for another ending, and OutputError.
    """
    from witness.transcript import store

    file = Path(path)
    form = output_paths.format_of(file.name)
    if form is None:
        raise UsageError(f"{file}: names no format; end it with .json, .srt, .docx or the like")
    output_paths.check_libraries([form])
    store.save(transcript, [(form, file)])
