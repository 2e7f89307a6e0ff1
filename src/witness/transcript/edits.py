"""Edits on the page of a transcript, saved in place.

The page shows a base and a person's steps on it, as a page in a file does. The base is the transcript before
the first step; the steps, and undone ones, are kept in a hidden file beside the JSON, so that a person can
undo them after a reload. Their result is in the JSON, as after `witness redo --corrections`, and in every
format beside it. The history also keeps the base: making it from the findings takes seconds, and the findings
may be missing.

A version is the sha256 of the JSON: each edit names the version that its author saw, and fails if another
one has replaced that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from witness._version import __version__
from witness.diarization import voices
from witness.errors import InputError, OutputError, UsageError
from witness.formats import html, json_document, output_paths
from witness.formats.json_document import Document
from witness.options import MOST_SPEAKERS, Bounds
from witness.schema import Correction, Review, Transcript
from witness.storage import files, typed_json
from witness.transcript import corrections as correcting
from witness.transcript import rebuild, store, vocabulary
from witness.transcript.store import Written

SCHEMA = "witness-history/1"
MOST_STEPS = rebuild.LIMIT
DRAFTS = 3
"""Number of drafts in memory: 20 MB for an hour of speech."""

Step = tuple[dict[str, Any], ...]
"""One action of a person on a page, to undo as a whole, in the terms of web/editor/corrections.js."""
Steps = Annotated[tuple[Step, ...], Meta(max_length=MOST_STEPS)]


@dataclass(frozen=True)
class _History:
    """The hidden file beside a transcript."""

    page: str = ""
    """Identity of the page of the base."""
    base: rebuild.Corrections = ()
    """Corrections of the base."""
    corrected: bool = False
    """A person made some of them."""
    document: Document | None = None
    """The base; None: the findings now make another one than the page showed, or an older version saved."""
    program: str = ""
    """Program version whose findings make this base."""
    made: rebuild.Corrections = ()
    """Corrections that the page derived from the steps."""
    steps: Steps = ()
    undone: Steps = ()
    version: str = ""
    """Version of the transcript after the steps; they say nothing about any other."""
    schema: str = SCHEMA


@dataclass(frozen=True)
class Shown:
    """Content of a page."""

    base: Transcript
    version: str
    review: Review
    steps: Steps = ()
    undone: Steps = ()
    refusal: str | None = None
    """Reason why the transcript cannot be saved; None: it can."""
    lack: str | None = None
    """Reason why the speakers cannot be counted again; None: they can."""
    restorable: bool = True
    """The machine's version can be restored."""


@dataclass(frozen=True)
class Edit:
    """Request of a page to save its steps."""

    version: str
    steps: Steps
    undone: Steps
    corrections: dict[str, Any]
    """Corrections document, as a page in a file saves it: the result of the steps."""
    review: Review | None = None
    """A person's progress; None: unchanged."""


class _Note(msgspec.Struct, forbid_unknown_fields=True):
    """A note in a step of a page; `pieces` are milliseconds."""

    kind: Literal["note"]
    pieces: Annotated[tuple[tuple[float, float], ...], Meta(min_length=1)]
    text: str | None
    codes: tuple[str, ...]

    @property
    def correction(self) -> Correction:
        spans = tuple((start / 1000, end / 1000) for start, end in self.pieces)
        return Correction(self.kind, (), other=spans, text=self.text, codes=self.codes)


def show(path: Path) -> Shown:
    """Return the content of the page of the JSON at `path`. Raises InputError for an unreadable file."""
    try:
        saved = rebuild.read(path, with_findings=False)
    except InputError as error:
        stored = store.load(path)
        transcript = stored.transcript
        return Shown(transcript, stored.version, transcript.review, refusal=str(error))
    history = _read_history(saved)
    base = None if history is None else _shown_base(saved, history)
    steps, undone = (history.steps, history.undone) if history and base else ((), ())
    return Shown(
        base or saved.transcript,
        saved.version,
        saved.document.review,
        steps,
        undone,
        lack=saved.lack,
        restorable=not saved.lack or _machine_document(saved, history) is not None,
    )


# --- edits of one version; all raise ConflictError, InputError, OutputError ---


def save(path: Path, edit: Edit) -> Written:
    """Save all steps of a page."""
    with _opened(path, edit.version) as (opened, saved, history):
        history = _verified(saved, history or _new_history(saved))
        made = _from_page(saved, edit.corrections)
        history = replace(history, made=made, steps=edit.steps, undone=edit.undone)
        transcript = _rebuild(_base(saved, history), made)
        return _write(opened, saved, replace(transcript, review=edit.review or transcript.review), history)


def add_corrections(path: Path, version: str, corrections: Mapping[str, Any]) -> Written:
    """Add corrections from a page of any version, which ends the history of steps before them."""
    with _opened(path, version) as (opened, saved, _):
        return _write(opened, saved, _rebuild(saved, _from_page(saved, corrections)))


def name_speaker(path: Path, version: str, speaker: str, name: str) -> Written:
    """Name the speaker of this id, as a step. Raises UsageError."""
    with _opened(path, version) as (opened, saved, history):
        made = (rebuild.name_speaker(saved, f"{speaker}={name}"),)
        history = history or _new_history(saved)
        number = html.speaker_index(_rebuild(_base(saved, history)), speaker)
        if number is None:  # a speaker that a step added
            return _write(opened, saved, _rebuild(saved, made))
        step = ({"kind": "name", "who": number, "name": made[0].name},)
        return _add_steps(opened, saved, history, made, step)


def add_notes(path: Path, version: str, steps: Any) -> Written:
    """Add the steps of a page that consist only of notes. Raises UsageError."""
    try:
        limited = Annotated[tuple[tuple[_Note, ...], ...], Meta(max_length=MOST_STEPS)]
        notes = msgspec.convert(steps, limited)
        made = correcting.check(tuple(note.correction for step in notes for note in step))
    except ValueError as error:
        raise UsageError(f"the page sent a note that is not valid ({error}); load the page again") from error
    with _opened(path, version) as (opened, saved, history):
        plain: Steps = tuple(tuple(map(structs.asdict, step)) for step in notes)
        return _add_steps(opened, saved, history or _new_history(saved), made, *plain)


def rewrite_words(path: Path, version: str, heard: str, written: str, places: Collection[int]) -> Written:
    """Replace the occurrences of words at some `places`, as a step. Raises UsageError."""
    with _opened(path, version) as (opened, saved, history):
        occurrences = correcting.find_occurrences(saved.transcript, heard, written)
        chosen = frozenset(places)
        made = tuple(each.correction for each in occurrences if each.place in chosen)
        if not made:
            raise UsageError(f"{heard[:40]!r} is not said at these places of {path}")
        step: Step = tuple(
            {
                "kind": "text",
                "text": correction.text,
                "pieces": [[round(1000 * second) for second in span] for span in correction.other],
            }
            for correction in made
        )
        return _add_steps(opened, saved, history or _new_history(saved), made, step)


def recount_speakers(
    path: Path, version: str, speakers: Annotated[int, Meta(ge=1, le=MOST_SPEAKERS)] | None = None
) -> Written:
    """Make the transcript with another number of speakers, None: the most likely. Raises UsageError."""
    with _opened(path, version) as (opened, saved, _):
        return _write(opened, saved, _rebuild(rebuild.recounted(saved, Bounds(speakers=speakers))))


def restore_original(path: Path, version: str) -> Written:
    """Drop all corrections but notes, as `witness redo --forget`.

    Steps on a base without corrections can be redone.
    """
    with _opened(path, version) as (opened, saved, history):
        machine = _machine_document(saved, history) if saved.lack else None
        if machine is None:
            forgotten = rebuild.forgotten(rebuild.recounted(saved, Bounds()))
        else:
            forgotten = rebuild.forgotten(_with_document(saved, machine))
        earlier, notes = () if machine is None else machine.corrections, forgotten.corrections
        transcript = _rebuild(replace(forgotten, corrections=earlier, corrected=False))
        corrections = tuple(dict.fromkeys((*earlier, *notes)))
        noted = replace(transcript, corrections=corrections, corrected=bool(notes))
        if history is None or history.base or html.identity(transcript) != history.page:
            return _write(opened, saved, noted)
        steps = tuple(step for step in history.steps if _is_note(step))
        undone = (*history.undone, *(step for step in reversed(history.steps) if not _is_note(step)))
        history = replace(history, corrected=False, made=notes, steps=steps, undone=undone)
        return _write(opened, saved, noted, history)


# --- changes of any version; all raise InputError, OutputError ---


def change_tags(path: Path, add: Sequence[str], remove: Sequence[str]) -> Written:
    """Add and remove tags, and keep the steps. Raises UsageError for an invalid tag."""
    added = [voices.check_name(tag) for tag in add]

    def change(transcript: Transcript) -> Transcript:
        tags = {*transcript.tags, *added} - set(remove)
        return replace(transcript, tags=tuple(sorted(tags)))

    return update(path, change)


def update(path: Path, change: Callable[[Transcript], Transcript]) -> Written:
    """Change fields other than corrections, keep the steps, and link the findings by their current name."""
    with store.opened(path) as opened:
        saved = rebuild.read(path)
        transcript = json_document.in_milliseconds(change(saved.transcript))
        if saved.document.findings is not None and output_paths.beside(path).is_file():
            link = structs.replace(saved.document.findings, file=output_paths.beside(path).name)
            saved = replace(saved, document=structs.replace(saved.document, findings=link))
        return _write(opened, saved, transcript, _read_history(saved) or _History())


# --- the history ---


@contextmanager
def _opened(path: Path, version: str) -> Iterator[tuple[store.Store, rebuild.Saved, _History | None]]:
    """Lock this version of the transcript, and read it and its usable history.

    Raises ConflictError, InputError, OutputError.
    """
    with store.opened(path) as opened:
        opened.expect(version)
        saved = rebuild.read(path)
        history = _read_history(saved)
        if saved.lack and history is not None and history.document is not None:
            try:
                store.transcript_of(saved.path, history.document)
            except InputError:  # its base is damaged
                history = None
        yield opened, saved, history


def _new_history(saved: rebuild.Saved) -> _History:
    return _History(html.identity(saved.transcript), saved.corrections, saved.corrected, saved.document)


def _read_history(saved: rebuild.Saved) -> _History | None:
    """Read the steps that led to this version; None: none, or unreadable."""
    try:
        history = typed_json.decode(files.read(store.history_path(saved.path)), _History)
        correcting.check((*history.base, *history.made))
    except (OSError, ValueError):
        return None
    is_current = history.schema == SCHEMA and history.version == saved.version
    has_base = history.document is not None or not saved.lack
    return history if is_current and has_base and (history.steps or history.undone) else None


def _verified(saved: rebuild.Saved, history: _History) -> _History:
    """Keep the base only if this program version makes it of the findings; else a page would differ."""
    if saved.lack or history.program == __version__:
        return history
    base = _rebuild(_base(saved, history))
    same = html.identity(base) == history.page
    return replace(
        history, document=json_document.from_transcript(base) if same else None, program=__version__
    )


def _shown_base(saved: rebuild.Saved, history: _History) -> Transcript | None:
    """Return the base of the steps; None: it can no longer be made."""
    try:
        if history.document is not None and (saved.lack or history.program == __version__):
            base = _with_document(saved, history.document).transcript
        else:
            base = _rebuild(_base(rebuild.read(saved.path), history))
    except InputError:
        return None
    return base if html.identity(base) == history.page else None


def _machine_document(saved: rebuild.Saved, history: _History | None) -> Document | None:
    """Return the document without a person's corrections, if it exists without the findings."""
    if history is not None and history.document is not None and not history.corrected:
        return history.document
    return None if saved.corrected else saved.document


def _is_note(step: Step) -> bool:
    return all(action["kind"] == "note" for action in step)


# --- transcripts, with the rounded numbers of JSON; all raise InputError ---


def _from_page(saved: rebuild.Saved, corrections: Mapping[str, Any]) -> rebuild.Corrections:
    return rebuild.parse_corrections(saved, msgspec.json.encode(corrections), "the page's request")


def _base(saved: rebuild.Saved, history: _History) -> rebuild.Saved:
    """Return the transcript without the steps; its findings, or without them its document, make it."""
    if saved.lack and history.document is not None:
        saved = _with_document(saved, history.document)
    return replace(saved, corrections=history.base, corrected=history.corrected)


def _with_document(saved: rebuild.Saved, other: Document) -> rebuild.Saved:
    """Return the transcript with an earlier document, but without the fields that no correction changes."""
    now = saved.document
    kept = structs.replace(other, audio=now.audio, style=now.style, review=now.review, tags=now.tags)
    return replace(saved, document=kept)


def _rebuild(saved: rebuild.Saved, made: rebuild.Corrections = ()) -> Transcript:
    """Make the transcript with the corrections `made`; without any, a document stays unchanged."""
    transcript = rebuild.rebuild(saved, made) if made or not saved.lack else saved.transcript
    return json_document.in_milliseconds(transcript)


# --- writing ---


def _add_steps(
    opened: store.Store, saved: rebuild.Saved, history: _History, made: rebuild.Corrections, *more: Step
) -> Written:
    """Write the transcript with more corrections, as steps that its page can undo."""
    history = _verified(saved, history)
    history = replace(history, made=(*history.made, *made), steps=(*history.steps, *more), undone=())
    return _write(opened, saved, _rebuild(saved, made), history)


def _write(
    opened: store.Store, saved: rebuild.Saved, transcript: Transcript, history: _History = _History()
) -> Written:
    """Write the JSON, the formats beside it and the history in one transaction. Raises OutputError."""

    def hidden_of(version: str) -> dict[str, bytes]:
        content = msgspec.json.encode(replace(history, version=version))
        return {store.history_path(saved.path).name: content}

    written = opened.write(transcript, saved.link or None, hidden=hidden_of)
    if saved.loaded is not None:
        with suppress(InputError, OutputError):  # it only helps later recordings
            pairs = vocabulary.corrected_pairs(saved.loaded, transcript.corrections)
            vocabulary.remember(saved.path, pairs)
    return written
