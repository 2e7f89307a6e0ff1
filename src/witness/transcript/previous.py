"""The transcript that a new one of the same recording has taken the place of: kept whole, beside it.

`.NAME.earlier` holds the earlier JSON, the steps that were taken on it, and where the two differ;
`.NAME.earlier.npz` its findings. Both are written in one act with the new transcript, and `swap` exchanges
the two as often as a person likes.

There is one of them. Before another one takes its place, it becomes a transcript of its own,
`NAME.earlier.json`, if a person did something to it that is not in the one that followed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from witness.errors import ConflictError, InputError
from witness.formats import document, findings, output_paths
from witness.schema import Sound, Transcript
from witness.storage import decode, files
from witness.transcript import reapply, redo, store
from witness.transcript.reapply import Deviation

SCHEMA = "witness-earlier/1"


class EarlierTranscript(Struct, frozen=True):
    """The hidden file."""

    document: msgspec.Raw
    """The JSON, as it was."""
    history: msgspec.Raw = msgspec.Raw(b"null")
    """As `edits` keeps it."""
    findings: bool = False
    """Whether its findings lie beside it."""
    kept: int = 0
    """Corrections and notes that found their place in the new transcript."""
    differences: tuple[Deviation, ...] = ()
    seen: bool = False
    """A person has looked through them."""
    whole: bool = False
    """All that a person did to it is in the one that took its place."""
    schema: str = SCHEMA


def replace_with(
    path: Path, fresh: Transcript, *, also: Collection[str] = (), sound: Sound | None = None
) -> tuple[str, ...]:
    """Have a new transcript, from the models, in the place of the one at `path`, with all that a person did.

    Returns what `Written.left` has. Raises ConflictError if that one is of another recording, InputError if
    it cannot be read, OutputError; then nothing has changed.
    """
    assert fresh.findings is not None  # noqa: S101 - it comes from the models
    with store.opened(path) as there:
        before = redo.read(path)
        if before.document.audio.sha256 != fresh.audio.sha256:
            raise ConflictError(
                f"{path.name}: is of another recording, or that was changed; move it away, then try again"
            )
        carried = reapply.carry(before, fresh)
        voices = findings.encode(fresh.findings)
        link = {"file": output_paths.beside(path).name, "sha256": files.sha256(voices)}
        told = _set_free(before)
        hidden = _kept(before, carried.kept, carried.differences, whole=carried.whole)
        found = carried.transcript
        written = there.write(found, link, also=also, sound=sound, voices=voices, hidden=lambda _: hidden)
    return (*told, *written.left)


def _set_free(now: redo.Saved) -> tuple[str, ...]:
    """Make a transcript of its own of the one before `now`, if what a person did would be lost with it.

    Returns a line that says so. Raises InputError, OutputError.
    """
    found = read(now.path)
    head = None if found is None else document.summary(bytes(found.document))
    if found is None or found.whole or head is None or not head.holds_corrections:
        return ()
    place = store.free(now.path, "earlier")
    with store.opened(place) as there:
        _restore(there, now, found)
    return (f"{place} is the transcript before the last two: not all of its corrections are in those",)


def read(path: Path) -> EarlierTranscript | None:
    """What was there before the transcript at `path`; None: nothing that is known."""
    try:
        found = decode.from_json(files.read(store.earlier_of(path)), EarlierTranscript)
    except (OSError, ValueError):
        return None
    return found if found.schema == SCHEMA else None


def swap(path: Path, version: str) -> store.Written:
    """Exchange the transcript with the earlier one, which takes its place with all its steps.

    Raises ConflictError, InputError, OutputError.
    """
    with store.opened(path) as there:
        there.expect(version)
        found = read(path)
        if found is None:
            raise InputError(f"{path.name}: there is no earlier transcript anymore")
        now = redo.read(path)
        exchanged = tuple(_exchanged(one) for one in found.differences if one.kind == "words")
        kept = _kept(now, 0, exchanged, seen=True)
        return _restore(there, now, found, kept)


def _restore(
    there: store.Store, now: redo.Saved, found: EarlierTranscript, kept: Mapping[str, bytes] = {}
) -> store.Written:
    """Write `found`, the transcript before `now`, with findings and steps, and hidden files with it.

    The recording may have been moved meanwhile. Raises InputError, OutputError.
    """
    back = store.decoded(now.path, bytes(found.document))
    voices = link = None
    if back.findings is not None and found.findings:
        with suppress(OSError):
            voices = files.read(store.earlier_of(now.path, findings=True))
            link = {**structs.asdict(back.findings), "file": output_paths.beside(there.path).name}
    audio = replace(back.audio, path=now.document.audio.path)
    transcript = document.in_milliseconds(replace(store.transcript(now.path, back), audio=audio))
    steps: dict[str, Any] = msgspec.json.decode(found.history) or {}

    def hidden(version: str) -> dict[str, bytes]:
        name = store.history_of(there.path).name
        return {**kept, name: msgspec.json.encode({**steps, "version": version})}

    return there.write(transcript, link, voices=voices, hidden=hidden)


def look_through(path: Path, version: str) -> store.Written:
    """A person has seen all differences; they are kept. Raises ConflictError, InputError, OutputError."""
    with store.opened(path) as there:
        there.expect(version)
        found = read(path)
        if found is not None:
            name = store.earlier_of(path).name
            there.keep({name: msgspec.json.encode(structs.replace(found, seen=True))})
        return store.Written(version)


def _kept(
    before: redo.Saved,
    kept: int,
    differences: tuple[Deviation, ...],
    *,
    seen: bool = False,
    whole: bool = False,
) -> dict[str, bytes]:
    """The hidden files of the transcript that is there now."""
    path = before.path
    voices = None
    if before.found is not None:
        with suppress(OSError):
            voices = files.read(redo.findings_of(before))
    history = b"null"
    with suppress(OSError, ValueError):
        history = files.read(store.history_of(path))
        msgspec.json.decode(history)
    earlier = EarlierTranscript(
        msgspec.Raw(files.read(path)),
        msgspec.Raw(history),
        findings=voices is not None,
        kept=kept,
        differences=differences,
        seen=seen,
        whole=whole,
    )
    hidden = {store.earlier_of(path).name: msgspec.json.encode(earlier)}
    if voices is not None:
        hidden[store.earlier_of(path, findings=True).name] = voices
    return hidden


def _exchanged(one: Deviation) -> Deviation:
    return replace(one, before=one.now, now=one.before, pieces=())
