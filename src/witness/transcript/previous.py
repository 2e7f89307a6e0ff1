"""The transcript before a new one of the same recording, kept whole beside it.

`.NAME.earlier` holds the previous JSON, its edits, and the differences; `.NAME.earlier.npz` its findings.
Both are written in one transaction with the new transcript, and `swap` exchanges the two at any time.

Only one is kept. Before another one takes its place, it becomes a transcript of its own, `NAME.earlier.json`,
if it contains a person's work that its successor lacks.
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
from witness.formats import findings, json_document, output_paths
from witness.schema import Sound, Transcript
from witness.storage import files, typed_json
from witness.transcript import reapply, rebuild, store
from witness.transcript.reapply import Deviation
from witness.transcript.store import StoredJson, Written

SCHEMA = "witness-earlier/1"


class PreviousTranscript(Struct, frozen=True):
    """The hidden file."""

    document: msgspec.Raw
    """The JSON, unchanged."""
    history: msgspec.Raw = msgspec.Raw(b"null")
    """The hidden file of `edits`."""
    findings: bool = False
    """Its findings lie beside it."""
    kept: int = 0
    """Corrections and notes that apply to the new transcript."""
    differences: tuple[Deviation, ...] = ()
    seen: bool = False
    """A person has looked through the differences."""
    whole: bool = False
    """Its successor contains all of a person's work."""
    schema: str = SCHEMA


def read(path: Path) -> PreviousTranscript | None:
    """Read the transcript before the one at `path`; None: missing or unreadable."""
    try:
        previous = typed_json.decode(files.read(store.previous_path(path)), PreviousTranscript)
    except (OSError, ValueError):
        return None
    return previous if previous.schema == SCHEMA else None


def replace_with(
    path: Path, fresh: Transcript, *, also: Collection[str] = (), sound: Sound | None = None
) -> tuple[str, ...]:
    """Replace the transcript at `path` by a new one from the models, and reapply a person's work to it.

    Returns `Written.left`. Raises ConflictError for another recording, InputError if the old transcript is
    unreadable, OutputError; each without any change.
    """
    assert fresh.findings is not None  # noqa: S101 - it comes from the models
    with store.opened(path) as opened:
        before = rebuild.read(path)
        if before.document.audio.sha256 != fresh.audio.sha256:
            raise ConflictError(
                f"{path.name}: is of another recording, or that was changed; move it away, then try again"
            )
        result = reapply.reapply(before, fresh)
        voices = findings.encode(fresh.findings)
        link = {"file": output_paths.beside(path).name, "sha256": files.sha256(voices)}
        messages = _release(before)
        hidden = _hidden_files(before, result.kept, result.differences, whole=result.whole)
        written = opened.write(
            result.transcript, link, also=also, sound=sound, voices=voices, hidden=lambda _: hidden
        )
    return (*messages, *written.left)


def swap(path: Path, version: str) -> Written:
    """Exchange the transcript with the previous one, including its edits.

    Raises ConflictError, InputError, OutputError.
    """
    with store.opened(path) as opened:
        opened.expect(version)
        previous = read(path)
        if previous is None:
            raise InputError(f"{path.name}: there is no earlier transcript anymore")
        current = rebuild.read(path)
        differences = tuple(
            replace(each, before=each.now, now=each.before, pieces=())
            for each in previous.differences
            if each.kind == "words"
        )
        return _restore(opened, current, previous, _hidden_files(current, 0, differences, seen=True))


def mark_seen(path: Path, version: str) -> Written:
    """Note that a person has seen all differences. Raises ConflictError, InputError, OutputError."""
    with store.opened(path) as opened:
        opened.expect(version)
        previous = read(path)
        if previous is not None:
            content = msgspec.json.encode(structs.replace(previous, seen=True))
            opened.write_hidden({store.previous_path(path).name: content})
        return Written(version)


def _release(current: rebuild.Saved) -> tuple[str, ...]:
    """Turn the transcript before `current` into one of its own, if a person's work would be lost with it.

    Returns a line about that. Raises InputError, OutputError.
    """
    previous = read(current.path)
    head = None if previous is None else json_document.decode_head(bytes(previous.document))
    if previous is None or previous.whole or head is None or not head.holds_corrections:
        return ()
    free = store.free_path(current.path, "earlier")
    with store.opened(free) as opened:
        _restore(opened, current, previous)
    return (f"{free} is the transcript before the last two: not all of its corrections are in those",)


def _restore(
    opened: store.Store,
    current: rebuild.Saved,
    previous: PreviousTranscript,
    hidden: Mapping[str, bytes] = {},
) -> Written:
    """Write the transcript before `current` with its findings and edits, and `hidden` files with it.

    The recording keeps its current path. Raises InputError, OutputError.
    """
    stored = StoredJson(current.path, bytes(previous.document))
    link = stored.document.findings
    voices = renamed_link = None
    if link is not None and previous.findings:
        with suppress(OSError):
            voices = files.read(store.previous_path(current.path, findings=True))
            renamed_link = {**structs.asdict(link), "file": output_paths.beside(opened.path).name}
    transcript = stored.transcript
    audio = replace(transcript.audio, path=current.document.audio.path)
    history: dict[str, Any] = msgspec.json.decode(previous.history) or {}

    def hidden_of(version: str) -> dict[str, bytes]:
        name = store.history_path(opened.path).name
        return {**hidden, name: msgspec.json.encode({**history, "version": version})}

    transcript = json_document.in_milliseconds(replace(transcript, audio=audio))
    return opened.write(transcript, renamed_link, voices=voices, hidden=hidden_of)


def _hidden_files(
    before: rebuild.Saved,
    kept: int,
    differences: tuple[Deviation, ...],
    *,
    seen: bool = False,
    whole: bool = False,
) -> dict[str, bytes]:
    """Return the files that keep the transcript `before`, by name."""
    path = before.path
    voices = None
    if before.loaded is not None:
        with suppress(OSError):
            voices = files.read(rebuild.findings_path(before))
    history = b"null"
    with suppress(OSError, ValueError):
        history = files.read(store.history_path(path))
        msgspec.json.decode(history)
    previous = PreviousTranscript(
        msgspec.Raw(files.read(path)),
        msgspec.Raw(history),
        findings=voices is not None,
        kept=kept,
        differences=differences,
        seen=seen,
        whole=whole,
    )
    hidden = {store.previous_path(path).name: msgspec.json.encode(previous)}
    if voices is not None:
        hidden[store.previous_path(path, findings=True).name] = voices
    return hidden
