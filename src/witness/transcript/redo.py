"""A transcript made again, in seconds, from its JSON and the findings beside it: no recording and no model.

Corrections are saved in the JSON and applied again by every later redo. Without the findings they are applied
to what the JSON says, and only what has to count or hear the speakers again cannot be done.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Annotated

from msgspec import Meta, structs

from witness.diarization import vbx, voices
from witness.errors import InputError, UsageError
from witness.formats import document, findings, output_paths, page
from witness.formats.document import Document, Link
from witness.options import Bounds
from witness.progress import SILENT, Reporter
from witness.schema import Correction, Findings, Review, Spans, Transcript, Turn
from witness.storage import decode, files
from witness.tracing import Stopwatch
from witness.transcript import assemble, corrections, store, uncorrected

MOST = document.MOST_CORRECTIONS
Corrections = Annotated[tuple[Correction, ...], Meta(max_length=MOST)]


@dataclass(frozen=True)
class Saved:
    """A JSON transcript on disk, and the findings that belong to it, if they are there."""

    path: Path
    version: str
    """The sha256 of the JSON."""
    document: Document
    found: Findings | None
    lack: str | None
    """Why there are no findings, and what can be done."""
    asked: Bounds
    corrections: tuple[Correction, ...]
    names: dict[str, str | None]
    """Speaker id -> name."""
    corrected: bool = False
    """A person gave some of the corrections."""

    @property
    def findings(self) -> Findings:
        """What the models found. Raises InputError if it is not there."""
        if self.found is None:
            raise InputError(self.lack or "")
        return self.found

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Of the document."""
        return self.document.turns

    @property
    def link(self) -> dict[str, str] | None:
        """The name and sha256 of the file with the findings; None: it never had any."""
        return None if self.document.findings is None else structs.asdict(self.document.findings)

    def find(self, speaker: str) -> str:
        """The id of a speaker given by id or by name. Raises UsageError."""
        ids = [key for key, name in self.names.items() if speaker in (key, name)]
        if len(ids) != 1:
            everybody = ", ".join(f"{key} ({name})" if name else key for key, name in self.names.items())
            problem = "does not name a speaker" if not ids else "names several speakers"
            raise UsageError(f"{speaker!r} {problem} in {self.path}; its speakers: {everybody or 'none'}")
        return ids[0]

    def anchor(self, speaker: str) -> Spans:
        """Where a speaker, given by id or by name, talks. Raises UsageError."""
        return corrections.anchor(self.find(speaker), self.turns)


@dataclass(frozen=True)
class _Corrected:
    """What a page saves."""

    schema: str
    sha256: str
    corrections: Corrections


@dataclass(frozen=True)
class Changes:
    """Changes of a person to a transcript, as `witness redo` takes them."""

    asked: Bounds = Bounds()
    forget: bool = False
    """Drop earlier corrections, except notes, and the number of speakers."""
    merges: tuple[str, ...] = ()
    """As `merging` takes them."""
    names: tuple[str, ...] = ()
    """As `naming` takes them."""
    saved: tuple[Path, ...] = ()
    """Files of corrections that a page saved."""
    replaced: tuple[tuple[str, str], ...] = ()
    """As `replacements` takes them."""


def change(path: Path, changes: Changes, reporter: Reporter = SILENT) -> Transcript:
    """Return the transcript at `path` with the changes. Raises InputError, UsageError."""
    before = read(path)
    if before.lack and before.document.findings is not None:
        reporter.note(f"only what the transcript says can be corrected: {before.lack}")
    more = [correction for file in changes.saved for correction in from_file(before, file)]
    more += [correction for merge in changes.merges for correction in merging(before, merge)]
    more += [naming(before, name) for name in changes.names]
    more += replacing(before, changes.replaced)
    return redo(before, changes.asked, more, forget=changes.forget, reporter=reporter)


def read(path: Path, *, whole: bool = True) -> Saved:
    """The JSON at `path` and its findings, if they are there. Raises InputError if either cannot be used.

    Unless `whole`, `found` is None, and the findings are only known to be those that belong to it.
    """
    content = store.content(path)
    found = store.decoded(path, content)
    asked = Bounds(**structs.asdict(found.asked))
    try:
        assemble.speaker_bounds(asked)
        given = corrections.check(found.corrections)
        names = {one.id: one.name and voices.check_name(one.name) for one in found.speakers}
    except (ValueError, UsageError) as error:
        raise InputError(f"{path} is damaged ({error}); transcribe the recording again") from error
    there = lack = None
    if found.findings is None:
        lack = (
            f"{path} was written without its findings (--no-findings, or not to a file), which this needs; "
            "transcribe the recording again with -o"
        )
    elif not (file := _file(path, found.findings)).exists():
        fix = f"copy it into the folder of {path.name}, or transcribe again"
        lack = f"{file} is missing, and this needs it; {fix}"
    else:
        there = _findings(path, file, found.findings.sha256, whole=whole)
    corrected = bool(given) if found.corrected is None else found.corrected
    return Saved(path, files.sha256(content), found, there, lack, asked, given, names, corrected)


def findings_of(saved: Saved) -> Path:
    """Where its findings lie, which are there."""
    assert saved.document.findings is not None  # noqa: S101 - for mypy
    return _file(saved.path, saved.document.findings)


def naming(saved: Saved, given: str) -> Correction:
    """The correction for `SPEAKER_00=Anna`; the left side is an id or a name. Raises UsageError."""
    speaker, sign, name = given.partition("=")
    if not sign:
        raise UsageError(f"--name {given}: write it as SPEAKER_00=Anna")
    return Correction("name", saved.anchor(speaker.strip()), voices.check_name(name))


def merging(saved: Saved, given: str) -> list[Correction]:
    """The corrections for `A,B,...`: two or more ids or names; the first one stays. Raises UsageError."""
    speakers = [part.strip() for part in given.split(",")]
    if len(set(speakers)) < 2:
        raise UsageError(f"--merge {given}: write it as SPEAKER_00,SPEAKER_02")
    first = saved.anchor(speakers[0])
    return [Correction("merge", first, other=saved.anchor(other)) for other in speakers[1:]]


def replacing(saved: Saved, rules: Sequence[tuple[str, str]]) -> list[Correction]:
    """The corrections that `rules` make, as `replacements` takes them."""
    if not rules:
        return []
    if saved.found is None:
        draft = uncorrected.from_transcript(store.transcript(saved.path, saved.document))
    else:
        draft = assemble.make_draft(saved.found, saved.asked)
    return corrections.apply_rules(draft.words, rules)


def from_file(saved: Saved, path: Path) -> list[Correction]:
    """The corrections that a page of this recording saved to a file. Raises InputError."""
    content = _bytes(path, "give a file of corrections that a Witness page saved")
    return list(from_page(saved, content, str(path)))


def from_page(saved: Saved, content: bytes, name: str) -> tuple[Correction, ...]:
    """As `from_file`, in the content of the file, which errors call `name`."""
    try:
        given = decode.from_json(content, _Corrected)
        if given.schema != page.CORRECTIONS:
            raise ValueError(f"its schema is {given.schema[:80]!r}, not {page.CORRECTIONS!r}")
        corrected = corrections.check(given.corrections)
    except ValueError as error:
        raise InputError(
            f"{name} does not hold corrections from a page ({error}); save them in the page again"
        ) from error
    if given.sha256 != saved.document.audio.sha256:
        raise InputError(
            f"{name} belongs to a different recording than {saved.path}; give the file from its own page"
        )
    return corrected


def redo(
    saved: Saved,
    asked: Bounds = Bounds(),
    more: Sequence[Correction] = (),
    *,
    forget: bool = False,
    reporter: Reporter = SILENT,
) -> Transcript:
    """The transcript with `more` corrections, and with another number of speakers if one is asked for.

    `forget` drops what was asked for and corrected earlier, and keeps notes. Raises UsageError if nothing can
    satisfy `asked`, InputError if there are too many corrections, or the findings are needed and not there.
    """
    anew = forget or any(value is not None for value in astuple(asked))
    if saved.found is None and not anew:
        return amended(saved, saved.document, more, reporter)
    kept_notes = notes(saved.corrections)
    given = together(replaced(saved, corrections=kept_notes) if forget else saved, more)
    found = assemble.redo(saved.findings, asked if anew else saved.asked, given, reporter)
    corrected = bool(more) or (bool(kept_notes) if forget else saved.corrected)
    found = replaced(kept(saved, found), corrected=corrected)
    return replaced(found, review=Review()) if forget else found


def notes(given: Sequence[Correction]) -> tuple[Correction, ...]:
    """Those that change nothing of what is said."""
    return tuple(one for one in given if one.kind == "note")


def kept(saved: Saved, found: Transcript) -> Transcript:
    """What was made again, with all that the JSON alone knows: neither findings nor corrections have it."""
    there = saved.document
    audio = replaced(found.audio, path=there.audio.path)  # the recording may have been moved
    return replaced(found, audio=audio, style=there.style, review=there.review, tags=there.tags)


def amended(
    saved: Saved, base: Document, more: Sequence[Correction], reporter: Reporter = SILENT
) -> Transcript:
    """What `more` corrections make of `base`, an edition of the transcript, without its findings.

    Raises InputError if there are too many, or if `base` is too old to say which words belong together.
    """
    begun = time.perf_counter()
    if any(one.words is None for one in base.utterances):
        raise InputError(saved.lack or "")
    before = replaced(saved, corrections=base.corrections)
    # A speaker who was added is there; everything else may be said twice.
    fresh = [one for one in more if one.kind != "new" or one not in base.corrections]
    found = uncorrected.apply(
        uncorrected.from_transcript(store.transcript(saved.path, base)), fresh, reporter
    )
    return replaced(
        found,
        corrections=together(before, more),
        corrected=bool(more) or bool(found.corrected),
        timing=assemble.timing(Stopwatch(), time.perf_counter() - begun, None),
    )


def together(saved: Saved, more: Sequence[Correction]) -> tuple[Correction, ...]:
    """The earlier corrections and `more`. Raises InputError if there are too many."""
    given = (*_earlier(saved, more), *more)
    if len(given) > MOST:
        raise InputError(
            f"{saved.path} would hold {len(given)} corrections, and {MOST} is the limit; drop the earlier "
            "ones with --forget"
        )
    return given


def _earlier(saved: Saved, more: Sequence[Correction]) -> Iterator[Correction]:
    """The corrections of before, without what `more` repeats and without the names of those it names."""
    talk = corrections.TurnIndex(saved.turns)
    repeated = set(more)
    named = {talk.speaker_within(new.speaker) for new in more if new.kind == "name"}
    for old in saved.corrections:
        if old not in repeated and not (old.kind == "name" and talk.speaker_within(old.speaker) in named):
            yield old


def _file(path: Path, link: Link) -> Path:
    """Where the findings are to be."""
    file = path.with_name(link.file)
    # It may have been renamed together with the JSON, or its name is not UTF-8.
    return file if file.exists() else output_paths.beside(path)


def _findings(path: Path, file: Path, sha256: str, *, whole: bool) -> Findings | None:
    content = _bytes(file, f"{path.name} needs it in the same folder: copy it there, or transcribe again")
    if files.sha256(content) != sha256:
        raise InputError(f"{file} does not belong to {path} (its sha256 differs); transcribe again")
    if not whole:
        findings.check_version(content, str(file))
        return None
    found = findings.decode(content, str(file))
    try:
        for track in found.tracks:
            vbx.check(found.plda, track.vectors.shape[2])
    except ValueError as error:
        raise InputError(f"{file}: is damaged ({error}); transcribe the recording again") from error
    return found


def _bytes(path: Path, fix: str) -> bytes:
    try:
        return files.read(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {fix}") from error
