"""Moves of a transcript with all its files: to another name or folder, to the trash and back.

The JSON, the other formats, findings, history and, if it lies beside them under the same name, the recording
move in one transaction: after a crash all of them are at the old place, or all at the new one.
"""

from __future__ import annotations

import secrets
import shutil
import time
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from witness.audio.source import possible_paths
from witness.errors import ConflictError, InputError, OutputError
from witness.formats import json_document, output_paths
from witness.formats.registry import Format
from witness.schema import Transcript
from witness.storage import atomic, files, transaction, typed_json
from witness.transcript import edits, store

TRASH = ".witness-trash"
"""Name of the hidden folder."""


class Thrown(Struct, frozen=True):
    """A transcript in the trash."""

    id: str
    name: str
    folder: str
    """Its former folder, relative to the folder with the trash."""
    at: float
    """Seconds since 1970."""


def files_of(path: Path, recording: Path | None = None) -> list[Path]:
    """Return the existing files of the transcript at `path`; `recording` is known to be its recording."""
    name = store.base_name(path)
    if recording is None:
        recording = _recording_beside(path)
    candidates = [store.sibling(path, form) for form in Format]
    candidates += [output_paths.beside(path), store.history_path(path)]
    candidates += [store.previous_path(path), store.previous_path(path, findings=True)]
    if recording is not None and _has_name(recording.name, name):
        candidates.append(recording)
    return [file for file in dict.fromkeys(candidates) if file.is_symlink() or file.is_file()]


def move(path: Path, place: Path, recording: Path | None = None) -> Path:
    """Move the transcript at `path` to `place`; return its path: `a.wav.json` keeps the ending of a.wav.

    Raises ConflictError for a taken name, InputError, OutputError.
    """
    target = place
    recording = recording or _recording_beside(path)
    if recording is not None and recording.name == store.base_name(path) and recording.is_file():
        name = store.base_name(target)
        ending = "" if name.endswith(recording.suffix) else recording.suffix
        target = target.with_name(f"{name}{ending}.json")
    _move_files(path, target, recording)
    _update_recording_path(path, target)
    return target


def throw(path: Path, root: Path, recording: Path | None = None) -> Thrown:
    """Move the transcript at `path` to the trash of `root`. Raises InputError, OutputError."""
    folder = path.parent.relative_to(root).as_posix()
    thrown = Thrown(secrets.token_hex(8), store.base_name(path), "" if folder == "." else folder, time.time())
    _move_files(path, root / TRASH / thrown.id, recording, msgspec.json.encode(thrown))
    return thrown


def restore(root: Path, thrown: str) -> Path:
    """Move a transcript from the trash back, with a number if its name is taken; return its path.

    Raises InputError if it is no longer in the trash, OutputError.
    """
    about = next((each for each in list_trash(root) if each.id == thrown), None)
    if about is None:
        raise InputError("it is not in the trash anymore; reload the page")
    folder = root / about.folder
    if not folder.resolve().is_relative_to(root):
        raise InputError(f"{about.folder}: leads out of the folder")
    number = 1
    while True:
        name = about.name if number == 1 else f"{about.name}-{number}"
        target = folder / f"{name}.json"
        try:
            atomic.make_folder(folder)
            with transaction.alone(folder, name):
                if not is_taken(target):
                    (root / TRASH / thrown).rename(transaction.moving(folder, name))
                    transaction.settle(folder, name)
                    break
        except OSError as error:
            raise OutputError(f"{target}: cannot be put back ({error.strerror})") from error
        number += 1
    if number > 1 and target.is_file():
        _update_recording_path(folder / f"{about.name}.json", target)
    return target


def list_trash(root: Path) -> list[Thrown]:
    """Return the content of the trash, the latest first."""
    return sorted(_read_trash(root), key=lambda thrown: -thrown.at)


def delete(root: Path, thrown: Collection[str]) -> int:
    """Delete transcripts in the trash for good, and return their number."""
    ids = [each.id for each in _read_trash(root) if each.id in thrown]
    for each in ids:
        shutil.rmtree(root / TRASH / each, ignore_errors=True)
    atomic.sync(root / TRASH)
    return len(ids)


def is_taken(path: Path, except_for: Collection[Path] = ()) -> bool:
    """Return True if other files have the name, as the least distinguishing disk compares names."""
    name = _comparable(store.base_name(path))
    ignored = {file.name for file in except_for if file.parent == path.parent}
    ignored.add(f".{store.base_name(path)}.lock")
    try:
        others = [file.name for file in path.parent.iterdir() if file.name not in ignored]
    except OSError:
        return False
    return any(_comparable(other) == name or _comparable(other).startswith(f"{name}.") for other in others)


def _read_trash(root: Path) -> Iterator[Thrown]:
    with suppress(OSError):
        for folder in (root / TRASH).iterdir():
            try:
                thrown = typed_json.decode(files.read(folder / transaction.ABOUT), Thrown)
            except (OSError, ValueError):
                continue
            inside = not PurePosixPath(thrown.folder).is_absolute() and ".." not in thrown.folder.split("/")
            if thrown.id == folder.name and inside and Path(thrown.name).name == thrown.name:
                yield thrown


def _update_recording_path(before: Path, path: Path) -> None:
    """Correct the path of the recording in a transcript that moved from `before` to `path`."""

    def change(transcript: Transcript) -> Transcript:
        old = Path(transcript.audio.path)
        moved = path.with_name(f"{store.base_name(path).removesuffix(old.suffix)}{old.suffix}")
        if _has_name(old.name, store.base_name(before)) and moved.is_file():
            new = str(moved) if old.is_absolute() else moved.name
        else:  # it did not move; look for it from the former folder
            candidates = possible_paths(transcript.audio.path, before.parent)
            new = next((each for each in candidates if Path(each).is_file()), transcript.audio.path)
        return replace(transcript, audio=replace(transcript.audio, path=new))

    if path.is_file():
        with suppress(InputError):  # it is damaged, as before
            edits.update(path, change)


def _move_files(path: Path, target: Path, recording: Path | None, about: bytes = b"") -> None:
    """Move all files to `target`: the path of a JSON, or a folder of the trash, with its description."""
    name, to_trash = store.base_name(path), target.parent.name == TRASH
    try:
        atomic.make_folder(target.parent, 0o700 if to_trash else 0o777)
        with ExitStack() as locks:
            for each in sorted({path, *(() if to_trash else (target,))}):
                locks.enter_context(transaction.alone(each.parent, store.base_name(each)))
            moving = files_of(path, recording)
            if not moving:
                raise InputError(f"{path}: no longer exists; reload the page")
            if to_trash:
                transaction.carry(moving, path.parent, name, target, about)
                return
            new_name = store.base_name(target)
            if is_taken(target, moving):
                raise ConflictError(f"{new_name}: this name is taken; choose another one")
            transaction.carry(moving, path.parent, name, transaction.moving(target.parent, new_name))
            transaction.settle(target.parent, new_name)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be moved ({error.strerror}); fix: close it in other programs, or fix the "
            "folder's permissions"
        ) from error


def _recording_beside(path: Path) -> Path | None:
    """Return the path beside the transcript that its recording would have; None: unreadable transcript."""
    try:
        head = json_document.decode_head(files.read(path))
    except OSError:
        return None
    return None if head is None else path.with_name(PurePosixPath(head.audio.path.replace("\\", "/")).name)


def _has_name(recording: str, name: str) -> bool:
    """Return True if a recording shares the name of a transcript: call.wav does with call and call.wav."""
    return name in (recording, Path(recording).stem)


def _comparable(name: str) -> str:
    """Return equal texts for names that some disk considers equal, hidden or not."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()).removeprefix(".")
