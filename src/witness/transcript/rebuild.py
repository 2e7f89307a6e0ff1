"""A transcript made again in seconds from its JSON and its findings, without recording and models.

The JSON keeps all corrections, and every later redo applies them again. Without the findings, corrections
apply to the content of the JSON; only another number of speakers, and voices, need the findings.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta, structs

from witness.diarization import vbx, voices
from witness.errors import InputError, UsageError
from witness.formats import findings, html, json_document, output_paths
from witness.formats.json_document import Document, Link
from witness.options import Bounds, Changes
from witness.progress import SILENT, Reporter
from witness.schema import Correction, Findings, Review, Spans, Transcript, Turn, speaker_number
from witness.storage import files, typed_json
from witness.tracing import Stopwatch
from witness.transcript import assemble, corrections, store
from witness.transcript.corrections import Draft

LIMIT = json_document.MOST_CORRECTIONS
DRAFTS = 3
"""Number of drafts in memory: 20 MB for an hour of speech."""
_drafts: OrderedDict[tuple[str, Bounds, int], Draft] = OrderedDict()
Corrections = Annotated[tuple[Correction, ...], Meta(max_length=LIMIT)]


@dataclass(frozen=True)
class Saved:
    """A JSON transcript on disk, with its findings if they exist."""

    path: Path
    version: str
    """The sha256 of the JSON."""
    document: Document
    loaded: Findings | None
    lack: str | None
    """Reason for missing findings, and the cure."""
    asked: Bounds
    corrections: tuple[Correction, ...]
    names: dict[str, str | None]
    """Speaker id -> name."""
    corrected: bool = False
    """A person made some of the corrections."""

    @property
    def findings(self) -> Findings:
        """Results of the models. Raises InputError if they are missing."""
        if self.loaded is None:
            raise InputError(self.lack or "")
        return self.loaded

    @property
    def transcript(self) -> Transcript:
        """Transcript in the document. Raises InputError."""
        return store.transcript_of(self.path, self.document)

    @property
    def turns(self) -> tuple[Turn, ...]:
        return self.document.turns

    @property
    def link(self) -> dict[str, str] | None:
        """Name and sha256 of the file with the findings; None: it never had any."""
        return None if self.document.findings is None else structs.asdict(self.document.findings)

    def draft(self, reporter: Reporter = SILENT) -> Draft:
        """Return the draft of the findings, or without them of the document.

        Clustering takes most of the time, and happens once for a sequence of edits. Raises UsageError if the
        number of speakers is impossible, InputError if the document is too old to assign words to utterances.
        """
        if self.loaded is None:
            if any(utterance.words is None for utterance in self.document.utterances):
                raise InputError(self.lack or "")
            return corrections.draft_of(self.transcript)
        first = self.document.first_speaker
        key = (self.link["sha256"] if self.link else "", self.asked, first)
        if key not in _drafts:
            _drafts[key] = assemble.make_draft(self.loaded, self.asked, reporter, first)
            while len(_drafts) > DRAFTS:
                _drafts.popitem(last=False)
        _drafts.move_to_end(key)
        return _drafts[key]

    def find(self, speaker: str) -> str:
        """Return the id of a speaker given by id, name or number: `1`, `Speaker 1`. Raises UsageError."""
        ids = [key for key, name in self.names.items() if speaker in (key, name)]
        if not ids and (match := re.fullmatch(r"(?:speaker[ _])?(\d{1,9})", speaker, re.IGNORECASE)):
            ids = [key for key in self.names if speaker_number(key) == int(match[1])]
        if len(ids) != 1:
            everybody = ", ".join(f"{key} ({name})" if name else key for key, name in self.names.items())
            problem = "does not name a speaker" if not ids else "names several speakers"
            raise UsageError(f"{speaker!r} {problem} in {self.path}; its speakers: {everybody or 'none'}")
        return ids[0]

    def anchor(self, speaker: str) -> Spans:
        """Return spans that identify a speaker given as to `find`. Raises UsageError."""
        return corrections.anchor(self.find(speaker), self.turns)


@dataclass(frozen=True)
class _CorrectionsFile:
    """Document with corrections that a page saves."""

    schema: str
    sha256: str
    corrections: Corrections


# --- reading ---


def read(path: Path, *, with_findings: bool = True) -> Saved:
    """Read the JSON at `path` and its findings, if they exist. Raises InputError if either is unusable.

    Without `with_findings`, only check the findings; `Saved.loaded` is None.
    """
    stored = store.load(path)
    content = stored.document
    asked = Bounds(**structs.asdict(content.asked))
    try:
        assemble.speaker_bounds(asked)
        checked = corrections.check(content.corrections)
        names = {each.id: each.name and voices.check_name(each.name) for each in content.speakers}
    except (ValueError, UsageError) as error:
        raise InputError(f"{path} is damaged ({error}); transcribe the recording again") from error
    loaded = lack = None
    if content.findings is None:
        lack = (
            f"{path} was written without its findings (--no-findings, or not to a file), which this needs; "
            "transcribe the recording again with -o"
        )
    elif not (file := _linked_file(path, content.findings)).exists():
        fix = f"copy it into the folder of {path.name}, or transcribe again"
        lack = f"{file} is missing, and this needs it; {fix}"
    else:
        loaded = _read_findings(path, file, content.findings.sha256, decoded=with_findings)
    corrected = bool(checked) if content.corrected is None else content.corrected
    return Saved(path, stored.version, content, loaded, lack, asked, checked, names, corrected)


def findings_path(saved: Saved) -> Path:
    """Return the path of the existing findings."""
    assert saved.document.findings is not None  # noqa: S101 - for mypy
    return _linked_file(saved.path, saved.document.findings)


def _linked_file(path: Path, link: Link) -> Path:
    file = path.with_name(link.file)
    # It may have been renamed together with the JSON, or its name is not UTF-8.
    return file if file.exists() else output_paths.beside(path)


def _read_findings(path: Path, file: Path, sha256: str, *, decoded: bool) -> Findings | None:
    content = _read_bytes(
        file, f"{path.name} needs it in the same folder: copy it there, or transcribe again"
    )
    if files.sha256(content) != sha256:
        raise InputError(f"{file} does not belong to {path} (its sha256 differs); transcribe again")
    if not decoded:
        findings.check_version(content, str(file))
        return None
    loaded = findings.decode(content, str(file))
    try:
        for track in loaded.tracks:
            vbx.check(loaded.plda, track.vectors.shape[2])
    except ValueError as error:
        raise InputError(f"{file}: is damaged ({error}); transcribe the recording again") from error
    return loaded


def _read_bytes(path: Path, fix: str) -> bytes:
    try:
        return files.read(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {fix}") from error


# --- new corrections ---


def name_speaker(saved: Saved, text: str) -> Correction:
    """Make the correction for `1=Anna`; the left side is for `Saved.find`. Raises UsageError."""
    speaker, sign, name = text.partition("=")
    if not sign:
        raise UsageError(f"--name {text}: write it as 1=Anna")
    return Correction("name", saved.anchor(speaker.strip()), voices.check_name(name))


def merge_speakers(saved: Saved, text: str) -> list[Correction]:
    """Make the corrections for `A,B,...`: two or more speakers; the first stays. Raises UsageError."""
    speakers = [part.strip() for part in text.split(",")]
    if len(set(speakers)) < 2:
        raise UsageError(f"--merge {text}: write it as 1,3")
    first = saved.anchor(speakers[0])
    return [Correction("merge", first, other=saved.anchor(other)) for other in speakers[1:]]


def read_corrections(saved: Saved, path: Path) -> tuple[Correction, ...]:
    """Read corrections that a page of this recording saved to a file. Raises InputError."""
    content = _read_bytes(path, "give a file of corrections that a Witness page saved")
    return parse_corrections(saved, content, str(path))


def parse_corrections(saved: Saved, content: bytes, name: str) -> tuple[Correction, ...]:
    """Parse the content of such a file, which errors call `name`. Raises InputError."""
    try:
        parsed = typed_json.decode(content, _CorrectionsFile)
        if parsed.schema != html.CORRECTIONS:
            raise ValueError(f"its schema is {parsed.schema[:80]!r}, not {html.CORRECTIONS!r}")
        checked = corrections.check(parsed.corrections)
    except ValueError as error:
        raise InputError(
            f"{name} does not hold corrections from a page ({error}); save them in the page again"
        ) from error
    if parsed.sha256 != saved.document.audio.sha256:
        raise InputError(
            f"{name} belongs to a different recording than {saved.path}; give the file from its own page"
        )
    return checked


# --- the transcript ---


def change(path: Path, changes: Changes, reporter: Reporter = SILENT) -> Transcript:
    """Return the transcript at `path` with the changes. Raises InputError, UsageError."""
    before = read(path)
    if before.lack and before.document.findings is not None:
        reporter.note(f"only what the transcript says can be corrected: {before.lack}")
    more = [correction for file in changes.saved for correction in read_corrections(before, file)]
    more += [correction for merge in changes.merges for correction in merge_speakers(before, merge)]
    more += [name_speaker(before, name) for name in changes.names]
    if changes.replaced:
        more += corrections.apply_rules(before.draft(reporter).words, changes.replaced)
    if changes.forget or changes.asked != Bounds():
        before = recounted(before, changes.asked)
    return rebuild(forgotten(before) if changes.forget else before, more, reporter)


def recounted(saved: Saved, asked: Bounds) -> Saved:
    """Return it for another number of speakers. Raises InputError if that needs missing findings."""
    return replace(saved, loaded=saved.findings, asked=asked)


def forgotten(saved: Saved) -> Saved:
    """Return it without a person's work, except notes, which change no words."""
    notes = tuple(correction for correction in saved.corrections if correction.kind == "note")
    document = structs.replace(saved.document, review=Review())
    return replace(saved, document=document, corrections=notes, corrected=bool(notes))


def rebuild(saved: Saved, more: Sequence[Correction] = (), reporter: Reporter = SILENT) -> Transcript:
    """Make the transcript with its corrections and `more`: of its findings, or without them of its content.

    Raises InputError for too many corrections, and as `Saved.draft`.
    """
    begun, watch = time.perf_counter(), Stopwatch()
    from_content = saved.loaded is None
    combined = combine(saved, more)
    # Without findings the others are in the words; an added speaker must not be added twice.
    fresh = [each for each in more if each.kind != "new" or each not in saved.corrections]
    with watch.stage("clustering"):
        draft = saved.draft(reporter)
    with watch.stage("merging"):
        transcript = corrections.apply(draft, fresh if from_content else combined, reporter)
    stored = saved.document
    return replace(
        transcript,
        corrections=combined,
        corrected=bool(more) or saved.corrected,
        timing=assemble.timing(Stopwatch() if from_content else watch, time.perf_counter() - begun, None),
        audio=replace(transcript.audio, path=stored.audio.path),  # the recording may have been moved
        style=stored.style,
        review=stored.review,
        tags=stored.tags,
    )


def combine(saved: Saved, more: Sequence[Correction]) -> tuple[Correction, ...]:
    """Return the earlier corrections and `more`. Raises InputError if there are too many."""
    combined = (*_lasting(saved, more), *more)
    if len(combined) > LIMIT:
        raise InputError(
            f"{saved.path} would hold {len(combined)} corrections, and {LIMIT} is the limit; drop the "
            "earlier ones with --forget"
        )
    return combined


def _lasting(saved: Saved, more: Sequence[Correction]) -> Iterator[Correction]:
    """Yield the earlier corrections, except those in `more` and names of speakers that `more` names."""
    index = corrections.TurnIndex(saved.turns)
    repeated = set(more)
    renamed = {index.speaker_within(new.speaker) for new in more if new.kind == "name"}
    for old in saved.corrections:
        if old not in repeated and not (old.kind == "name" and index.speaker_within(old.speaker) in renamed):
            yield old
