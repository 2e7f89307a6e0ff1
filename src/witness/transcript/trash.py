"""Moves of a transcript with all its files: to another name or folder, to the trash and back.

The JSON, the other formats, findings, history and, if it lies beside them under the same name, the recording
move in one transaction: after a crash all of them are at the old place, or all at the new one. A recording of
several transcripts stays with the others until the last of them goes.
"""

from __future__ import annotations

import secrets
import shutil
import time
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from witness.audio.source import ENDINGS, possible_paths
from witness.errors import ConflictError, InputError, OutputError
from witness.formats import json_document, output_paths
from witness.formats.registry import Format
from witness.schema import Transcript
from witness.storage import atomic, cache, files, transaction, typed_json
from witness.transcript import edits, store, vocabulary

TRASH = ".witness-trash"
"""Name of the hidden folder."""
BEGINNING = 1 << 14
"""Bytes of a JSON that name its recording."""


class Thrown(Struct, frozen=True):
    """A transcript in the trash."""

    id: str
    name: str
    folder: str
    """Its former folder, relative to the folder with the trash."""
    at: float
    """Seconds since 1970."""


def files_of(path: Path, recording: Path | None, root: Path) -> list[Path]:
    """Return the existing files of the transcript at `path`; `recording` is known to be its recording.

    The recording is missing if another transcript below `root`, outside of the trash, is of it.
    """
    name = store.base_name(path)
    if recording is None:
        recording = _recording_beside(path)
    candidates = [store.sibling(path, form) for form in Format]
    candidates += [output_paths.beside(path), store.history_path(path)]
    candidates += [store.previous_path(path), store.previous_path(path, findings=True)]
    if recording is not None and _belongs(recording.name, name) and not _is_shared(recording, path, root):
        candidates.append(recording)
    return [file for file in dict.fromkeys(candidates) if file.is_symlink() or file.is_file()]


def move(path: Path, place: Path, recording: Path | None = None, root: Path | None = None) -> Path:
    """Move the transcript at `path` to `place`; return its path: `a.wav.json` keeps the ending of a.wav.

    Other transcripts are looked for below `root`, otherwise below the transcript's folder. Raises
    ConflictError for a taken name, InputError, OutputError.
    """
    target = place
    recording = recording or _recording_beside(path)
    if recording is not None and recording.name == store.base_name(path) and recording.is_file():
        name = store.base_name(target)
        ending = "" if name.endswith(recording.suffix) else recording.suffix
        target = target.with_name(f"{name}{ending}.json")
    _move_files(path, target, recording, root or path.parent)
    _update_recording_path(path, target)
    with suppress(InputError, OutputError):  # the words only help later recordings
        if pairs := vocabulary.read(path.parent).corrected.get(store.base_name(path)):
            vocabulary.remember(target, pairs)
            vocabulary.remember(path, ())
    return target


def throw(path: Path, root: Path, recording: Path | None = None) -> Thrown:
    """Move the transcript at `path` to the trash of `root`. Raises InputError, OutputError."""
    folder = path.parent.relative_to(root).as_posix()
    thrown = Thrown(secrets.token_hex(8), store.base_name(path), "" if folder == "." else folder, time.time())
    try:
        about = msgspec.json.encode(thrown)
    except UnicodeEncodeError as error:
        raise InputError(f"{path}: its name is not UTF-8; rename it before you delete it") from error
    _move_files(path, root / TRASH / thrown.id, recording, root, about)
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
                    atomic.sync(folder)
                    transaction.settle(folder, name)
                    break
        except OSError as error:
            raise OutputError(f"{target}: cannot be put back ({error.strerror})") from error
        number += 1
    beside = _recording_beside(target)  # call.wav, which the trash has brought back as call.again.wav
    renamed = beside is not None and target.with_name(f"{name}{beside.suffix}").is_file()
    if number > 1 or (beside is not None and renamed and not beside.is_file()):
        _update_recording_path(folder / f"{about.name}.json", target)
    return target


def list_trash(root: Path) -> list[Thrown]:
    """Return the content of the trash, the latest first."""
    return sorted(_read_trash(root), key=lambda thrown: -thrown.at)


def delete(root: Path, thrown: Collection[str]) -> int:
    """Delete transcripts in the trash for good, with copies of their content elsewhere; return their number.

    A recording goes to another transcript of it in the trash, if there is one. A transcript that cannot be
    deleted stays in the trash. Raises InputError, OutputError.
    """
    everything = list_trash(root)
    deleted = [each for each in everything if each.id in thrown]
    kept = [each for each in everything if each.id not in thrown]
    for each in deleted:
        folder, path = root / TRASH / each.id, root / each.folder / f"{each.name}.json"
        if path.parent.resolve().is_relative_to(root) and not path.is_file():
            vocabulary.remember(path, ())
        try:
            recordings = [file for file in folder.iterdir() if _is_recording(file)]
            head = _head(folder / "v.json")
            for sha256 in map(files.sha256_at, recordings) if head is None else [head.audio.sha256]:
                cache.forget_recording(sha256)
            if head is not None and recordings:
                _hand_over(recordings[0], head, {root / TRASH / other.id: other.name for other in kept})
            shutil.rmtree(folder)
            atomic.sync(folder.parent)
        except OSError as error:
            raise OutputError(
                f"{error.filename or folder}: cannot be deleted ({error.strerror}); fix the permissions of "
                "its folder, and delete it again"
            ) from error
    return len(deleted)


def _hand_over(recording: Path, head: json_document.DocumentHead, names: Mapping[Path, str]) -> None:
    """Move a recording in the trash to the first transcript of it there without one. Raises OSError.

    `names`: folder in the trash -> name of its transcript.
    """
    suffix = PurePosixPath(head.audio.path).suffix
    for folder, name in names.items():
        other = _head(folder / "v.json")
        if other is None or other.audio.sha256 != head.audio.sha256:
            continue
        if not any(map(_is_recording, folder.iterdir())):
            recording.rename(folder / ("v" if name.endswith(suffix) else f"v{suffix}"))
            atomic.sync(folder)
            return


def _is_recording(file: Path) -> bool:
    """Return True for a recording in the trash; that of call.wav.json has no ending."""
    return file.name == "v" or file.suffix[1:].lower() in ENDINGS


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
        if moved.is_file():
            new = str(moved) if old.is_absolute() else moved.name
        else:  # it did not move; look for it from the former folder
            candidates = possible_paths(transcript.audio.path, before.parent)
            new = next((each for each in candidates if Path(each).is_file()), transcript.audio.path)
        return replace(transcript, audio=replace(transcript.audio, path=new))

    if path.is_file():
        with suppress(InputError):  # it is damaged, as before
            edits.update(path, change)


def _move_files(path: Path, target: Path, recording: Path | None, root: Path, about: bytes = b"") -> None:
    """Move all files to `target`: the path of a JSON, or a folder of the trash, with its description."""
    name, to_trash = store.base_name(path), target.parent.name == TRASH
    try:
        atomic.make_folder(target.parent, 0o700 if to_trash else 0o777)
        with ExitStack() as locks:
            for each in sorted({path, *(() if to_trash else (target,))}):
                locks.enter_context(transaction.alone(each.parent, store.base_name(each)))
            moving = files_of(path, recording, root)
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


def _head(path: Path) -> json_document.DocumentHead | None:
    """Return the head of the transcript at `path`; None: unreadable."""
    try:
        return json_document.decode_head(files.read(path))
    except OSError:
        return None


def _recording_beside(path: Path) -> Path | None:
    """Return the path beside the transcript that its recording would have; None: unreadable transcript."""
    head = _head(path)
    return None if head is None else path.with_name(PurePosixPath(head.audio.path.replace("\\", "/")).name)


def _belongs(recording: str, name: str) -> bool:
    """Return True if a recording is named as a transcript: call.wav as call, call.wav, and call.again."""
    stem = Path(recording).stem
    return name in (recording, stem) or name.startswith(f"{stem}.")


def _is_shared(recording: Path, path: Path, root: Path) -> bool:
    """Return True if a transcript other than that at `path`, below `root`, is of the same recording."""
    head = _head(path)
    mark = recording.name if head is None else head.audio.sha256
    for other in root.rglob("*.json"):
        if other == path or TRASH in other.parts:
            continue
        with suppress(OSError):
            if mark.encode("utf-8", "surrogateescape") in files.read_some(other, BEGINNING):
                user = _head(other)
                places = () if user is None else possible_paths(user.audio.path, other.parent)
                if any(Path(place).is_file() and recording.samefile(place) for place in places):
                    return True
    return False


def _comparable(name: str) -> str:
    """Return equal texts for names that some disk considers equal, hidden or not."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()).removeprefix(".")
