"""What people do to a transcript on its page, saved in place.

The page shows a base and the steps that people took on it, as a page in a file does. The base is what the
transcript was when the first of them was taken; the steps, and those that were undone, are kept in a hidden
file beside the JSON, so that they can be undone after a reload. What they come to is in the JSON, as after
`witness redo --corrections`, and in every format that lies beside it. The base is kept in the history, too:
to make it of the findings takes seconds, and they need not be there.

A version is the sha256 of the JSON: whoever saves says which version they have seen, and is refused if it is
no longer there, no matter who changed it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
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
from witness.formats import document, output_paths, page
from witness.formats.document import Document
from witness.options import Bounds
from witness.schema import Correction, Review, Transcript
from witness.storage import decode, files
from witness.tracing import Stopwatch
from witness.transcript import assemble, corrections, project_words, redo, store, uncorrected
from witness.transcript.store import Written

SCHEMA = "witness-history/1"
MOST_STEPS = redo.MOST
DRAFTS = 3
"""Transcripts whose draft is kept in memory: 20 MB for an hour of speech."""

Step = tuple[dict[str, Any], ...]
"""What a page takes and undoes in one go, in the terms of web/editor/corrections.js."""
Steps = Annotated[tuple[Step, ...], Meta(max_length=MOST_STEPS)]


@dataclass(frozen=True)
class _History:
    """The hidden file beside a transcript."""

    page: str = ""
    """The identity of the page of the base."""
    base: redo.Corrections = ()
    corrected: bool = False
    """Whether a person gave some of those of the base."""
    document: Document | None = None
    """The base; None: the findings make another one now than was shown, or an earlier version wrote this."""
    program: str = ""
    """The version that makes this base of the findings."""
    made: redo.Corrections = ()
    """What the steps come to, as the page told it."""
    steps: Steps = ()
    undone: Steps = ()
    version: str = ""
    """Of the transcript that the steps led to; of another one they say nothing."""
    schema: str = SCHEMA


@dataclass(frozen=True)
class Shown:
    """What a page shows."""

    base: Transcript
    version: str
    review: Review
    steps: Steps = ()
    undone: Steps = ()
    refusal: str | None = None
    """Why nothing can be saved; None: it can."""
    lack: str | None = None
    """Why the speakers cannot be counted again; None: they can."""
    restorable: bool = True
    """Whether the machine's version can be had again."""


@dataclass(frozen=True)
class Edit:
    """What a page saves."""

    version: str
    steps: Steps
    undone: Steps
    corrections: dict[str, Any]
    """The document that a page in a file saves: what the steps come to."""
    review: Review | None = None
    """How far the person has got; None: as far as before."""


class _Note(msgspec.Struct, forbid_unknown_fields=True):
    """A note in a step of a page; `pieces` are milliseconds."""

    kind: Literal["note"]
    pieces: Annotated[tuple[tuple[float, float], ...], Meta(min_length=1)]
    text: str | None
    codes: tuple[str, ...]

    @property
    def correction(self) -> Correction:
        other = tuple((start / 1000, end / 1000) for start, end in self.pieces)
        return Correction(self.kind, (), other=other, text=self.text, codes=self.codes)


def read_edit(given: Any) -> Edit:
    """What a page sent. Raises UsageError."""
    try:
        return msgspec.convert(given, Edit)
    except msgspec.ValidationError as error:
        raise UsageError(f"what the page sent cannot be saved ({error}); load the page again") from error


def show(path: Path) -> Shown:
    """What the page of the JSON at `path` shows. Raises InputError if it cannot be read."""
    try:
        saved = redo.read(path, whole=False)
    except InputError as error:
        content = store.content(path)
        found = store.transcript(path, store.decoded(path, content))
        return Shown(found, files.sha256(content), found.review, refusal=str(error))
    version, review = saved.version, saved.document.review
    history = _history(saved)
    restorable = not saved.lack or _machine(saved, history) is not None
    if history is not None and (base := _shown_base(saved, history)) is not None:
        return Shown(base, version, review, history.steps, history.undone, None, saved.lack, restorable)
    current = store.transcript(path, saved.document)
    return Shown(current, version, review, lack=saved.lack, restorable=restorable)


def save(path: Path, edit: Edit) -> Written:
    """Save all steps of a page in the transcript. Raises ConflictError, InputError, OutputError."""
    with _opened(path, edit.version) as (there, saved, history):
        history = _vouched(saved, history or _beginning(path, saved))
        made = redo.from_page(saved, msgspec.json.encode(edit.corrections), "what the page sent")
        history = replace(history, made=made, steps=edit.steps, undone=edit.undone)
        transcript = _base(saved, history, made)
        return _write(there, saved, replace(transcript, review=edit.review or transcript.review), history)


def add(path: Path, version: str, corrections: Mapping[str, Any]) -> Written:
    """Add corrections from a page of any version; from here on, nothing before them can be undone.

    Raises ConflictError, InputError, OutputError.
    """
    with _opened(path, version) as (there, saved, _):
        made = redo.from_page(saved, msgspec.json.encode(corrections), "what the page sent")
        return _write(there, saved, _more(saved, made))


def name(path: Path, version: str, speaker: str, called: str) -> Written:
    """Name the speaker of this id, a step that can be undone. Raises UsageError and what `add` raises."""
    with _opened(path, version) as (there, saved, history):
        made = (redo.naming(saved, f"{speaker}={called}"),)
        history = history or _beginning(path, saved)
        who = page.place_of(_base(saved, history), speaker)
        if who is None:  # somebody whom a step has added
            return _write(there, saved, _more(saved, made))
        return _stepped(there, saved, history, made, ({"kind": "name", "who": who, "name": made[0].name},))


def note(path: Path, version: str, given: Any) -> Written:
    """Add the steps of a page, which are nothing but notes. Raises UsageError and what `add` raises."""
    try:
        steps = msgspec.convert(given, Annotated[tuple[tuple[_Note, ...], ...], Meta(max_length=MOST_STEPS)])
        made = corrections.check(tuple(one.correction for step in steps for one in step))
    except ValueError as error:
        raise UsageError(f"what the page sent is not a note ({error}); load the page again") from error
    with _opened(path, version) as (there, saved, history):
        told: Steps = tuple(tuple(map(structs.asdict, step)) for step in steps)
        return _stepped(there, saved, history or _beginning(path, saved), made, *told)


def rewrite(path: Path, version: str, heard: str, written: str, places: Collection[int]) -> Written:
    """Write words otherwise at these places of `corrections.find_occurrences`, a step that can be undone.

    Raises UsageError and what `add` raises.
    """
    with _opened(path, version) as (there, saved, history):
        found = corrections.find_occurrences(store.transcript(path, saved.document), heard, written)
        chosen = frozenset(places)
        made = tuple(one.correction for one in found if one.place in chosen)
        if not made:
            raise UsageError(f"{heard[:40]!r} is not said at these places of {path}")
        step: Step = tuple(
            {
                "kind": "text",
                "text": one.text,
                "pieces": [[round(1000 * second) for second in span] for span in one.other],
            }
            for one in made
        )
        return _stepped(there, saved, history or _beginning(path, saved), made, step)


def tag(path: Path, add: Sequence[str], remove: Sequence[str]) -> Written:
    """Sort it under some tags more and some less; all that can be undone stays so.

    Raises UsageError for what is no tag, and what `add` raises.
    """
    checked = [voices.check_name(one) for one in add]

    def change(found: Transcript) -> Transcript:
        tags = dict.fromkeys((*found.tags, *checked))
        return replace(found, tags=tuple(sorted(tags.keys() - set(remove))))

    return keep(path, change)


def keep(path: Path, change: Callable[[Transcript], Transcript]) -> Written:
    """Change what is no correction: the steps stay as they are, and its files are those of its name.

    Raises InputError, OutputError.
    """
    with store.opened(path) as there:
        saved = redo.read(path)
        transcript = document.in_milliseconds(change(store.transcript(path, saved.document)))
        if saved.document.findings is not None and output_paths.beside(path).is_file():
            link = structs.replace(saved.document.findings, file=output_paths.beside(path).name)
            saved = replace(saved, document=structs.replace(saved.document, findings=link))
        return _write(there, saved, transcript, _history(saved) or _History())


def recount(path: Path, version: str, speakers: int | None) -> Written:
    """The transcript with so many speakers, None: as many as there seem to be; corrections are kept.

    Raises ConflictError, InputError, UsageError, OutputError.
    """
    with _opened(path, version) as (there, saved, _):
        transcript = _corrected(saved, Bounds(speakers=speakers), saved.corrections, saved.corrected)
        return _write(there, saved, transcript)


def original(path: Path, version: str) -> Written:
    """The transcript without any correction but notes, as after `witness redo --forget`.

    Steps on a base without corrections can be redone. Raises ConflictError, InputError, OutputError.
    """
    with _opened(path, version) as (there, saved, history):
        machine = _machine(saved, history) if saved.lack else None
        if machine is not None:
            transcript = store.transcript(path, machine)
        else:
            transcript = _corrected(saved, Bounds(), (), False)
        transcript = replace(transcript, review=Review())
        notes = redo.notes(saved.corrections)
        given = dict.fromkeys((*transcript.corrections, *notes))
        noted = replace(transcript, corrections=tuple(given), corrected=bool(notes))
        if history is None or history.base or page.identity(transcript) != history.page:
            return _write(there, saved, noted)
        steps = tuple(step for step in history.steps if _is_note(step))
        undone = (*history.undone, *(step for step in reversed(history.steps) if not _is_note(step)))
        kept = replace(history, corrected=False, made=notes, steps=steps, undone=undone)
        return _write(there, saved, noted, kept)


def _is_note(step: Step) -> bool:
    return all(one["kind"] == "note" for one in step)


# --- reading ---


@contextmanager
def _opened(path: Path, version: str) -> Iterator[tuple[store.Store, redo.Saved, _History | None]]:
    """The transcript of this version, for nobody else meanwhile, and its history, if that holds any.

    Raises ConflictError, InputError, OutputError.
    """
    with store.opened(path) as there:
        there.expect(version)
        saved = redo.read(path)
        yield there, saved, _whole_history(saved)


def _beginning(path: Path, saved: redo.Saved) -> _History:
    """A history in which nothing has happened yet."""
    shown = store.transcript(path, saved.document)
    return _History(page.identity(shown), saved.corrections, saved.corrected, saved.document)


def _vouched(saved: redo.Saved, history: _History) -> _History:
    """With the base only if this version makes it of the findings: else the page would show another."""
    if saved.lack or history.program == __version__:
        return history
    base = _base(saved, history)
    same = page.identity(base) == history.page
    return replace(history, document=document.of(base) if same else None, program=__version__)


def _history(saved: redo.Saved) -> _History | None:
    """The steps that led to this version; None: nobody knows of any."""
    try:
        found = decode.from_json(files.read(store.history_of(saved.path)), _History)
        corrections.check((*found.base, *found.made))
    except (OSError, ValueError):
        return None
    of_this = found.schema == SCHEMA and found.version == saved.version
    based = found.document is not None or not saved.lack
    return found if of_this and based and (found.steps or found.undone) else None


def _whole_history(saved: redo.Saved) -> _History | None:
    """As `_history`; None if its base is needed and damaged, too."""
    history = _history(saved)
    if saved.lack and history is not None and history.document is not None:
        try:
            store.transcript(saved.path, history.document)
        except InputError:
            return None
    return history


def _shown_base(saved: redo.Saved, history: _History) -> Transcript | None:
    """The base that the steps were taken on; None: it cannot be had anymore."""
    try:
        if history.document is not None and (saved.lack or history.program == __version__):
            base = redo.kept(saved, store.transcript(saved.path, history.document))
        else:
            base = _base(redo.read(saved.path), history)
    except InputError:
        return None
    return base if page.identity(base) == history.page else None


def _base(saved: redo.Saved, history: _History, made: redo.Corrections = ()) -> Transcript:
    """The base of the steps, or what they come to, as in JSON. Raises InputError."""
    if saved.lack and history.document is not None:
        return _amended(saved, history.document, made)
    given = redo.together(replace(saved, corrections=history.base), made)
    return _corrected(saved, saved.asked, given, history.corrected or bool(made))


def _more(saved: redo.Saved, made: redo.Corrections) -> Transcript:
    """The transcript with `made` on top of it, as in JSON. Raises InputError."""
    if saved.lack:
        return _amended(saved, saved.document, made)
    return _corrected(saved, saved.asked, redo.together(saved, made), True)


def _machine(saved: redo.Saved, history: _History | None) -> Document | None:
    """The document as the machine made it, if it can be had without the findings."""
    if history is not None and history.document is not None and not history.corrected:
        return history.document
    return None if saved.corrected else saved.document


def _amended(saved: redo.Saved, base: Document, made: redo.Corrections) -> Transcript:
    found = redo.amended(saved, base, made) if made else store.transcript(saved.path, base)
    return document.in_milliseconds(redo.kept(saved, found))


_drafts: OrderedDict[tuple[str, Bounds], uncorrected.Draft] = OrderedDict()


def _corrected(saved: redo.Saved, asked: Bounds, given: Sequence[Correction], corrected: bool) -> Transcript:
    """The transcript with exactly these corrections, as in JSON; `corrected`: a person gave some of them.

    Clustering takes most of the time, and is done once for all corrections that follow each other.
    Raises UsageError, and InputError without the findings.
    """
    begun = time.perf_counter()
    findings, link = saved.findings, saved.link
    key = (link["sha256"] if link else "", asked)
    if key not in _drafts:
        _drafts[key] = assemble.make_draft(findings, asked)
        while len(_drafts) > DRAFTS:
            _drafts.popitem(last=False)
    _drafts.move_to_end(key)
    transcript = uncorrected.apply(_drafts[key], given)
    timing = assemble.timing(Stopwatch(), time.perf_counter() - begun, None)
    return document.in_milliseconds(replace(redo.kept(saved, transcript), timing=timing, corrected=corrected))


def _stepped(
    there: store.Store, saved: redo.Saved, history: _History, made: redo.Corrections, *more: Step
) -> Written:
    """Write the transcript with `made` on top of it, as steps that its page can undo."""
    steps = (*history.steps, *more)
    history = _vouched(saved, history)
    kept = replace(history, made=(*history.made, *made), steps=steps, undone=())
    return _write(there, saved, _more(saved, made), kept)


def _write(
    there: store.Store, saved: redo.Saved, transcript: Transcript, history: _History = _History()
) -> Written:
    """Write the JSON, the formats beside it and the history, all or nothing. Raises OutputError."""

    def of_version(version: str) -> dict[str, bytes]:
        return {store.history_of(saved.path).name: msgspec.json.encode(replace(history, version=version))}

    written = there.write(transcript, saved.link or None, hidden=of_version)
    if saved.found is not None:
        with suppress(InputError, OutputError):  # it only helps later recordings
            project_words.remember(saved.path, project_words.pairs(saved.found, transcript.corrections))
    return written
