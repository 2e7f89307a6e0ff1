"""A transcript under another name, in another folder, in the trash and back: with all that belongs to it.

Its JSON, the other formats, findings, history and, if it lies beside them under the same name, the recording
move in one act (`saving.carry`): after a crash all of it is where it was, or all of it is where it was to go.
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

from witness.audio.source import places
from witness.errors import ConflictError, ForeignError, InputError, OutputError
from witness.formats import document, output_paths
from witness.formats.registry import Format
from witness.schema import Transcript
from witness.storage import decode, files, transaction
from witness.transcript import edits, store

TRASH = ".witness-trash"
"""The hidden folder of what was thrown away."""


class Thrown(Struct, frozen=True):
    """What was thrown away."""

    id: str
    name: str
    folder: str
    """Where it was, below the folder with the trash."""
    at: float
    """When, in seconds since 1970."""


def belongings(path: Path, recording: Path | None = None) -> list[Path]:
    """The files of the transcript at `path`, which may be missing itself; `recording` is known to be its."""
    name = store.name(path)
    if recording is None:
        recording = _recording(path)
    mine = [store.sibling(path, form) for form in Format]
    mine += [output_paths.beside(path), store.history_of(path)]
    mine += [store.earlier_of(path), store.earlier_of(path, findings=True)]
    if recording is not None and _is_of(recording.name, name):
        mine.append(recording)
    return [one for one in dict.fromkeys(mine) if one.is_symlink() or one.is_file()]


def move(path: Path, place: Path, recording: Path | None = None) -> Path:
    """Have the transcript at `path` at `place`, or where it is now: `a.wav.json` keeps the ending of a.wav.

    Raises ConflictError if the place is taken, InputError, OutputError.
    """
    recording = recording or _recording(path)
    if recording is not None and recording.name == store.name(path) and recording.is_file():
        name = store.name(place)
        ending = "" if name.endswith(recording.suffix) else recording.suffix
        place = place.with_name(f"{name}{ending}.json")
    _carry(path, place, recording)
    _follow(path, place)
    return place


def throw(path: Path, root: Path, recording: Path | None = None) -> Thrown:
    """Put the transcript at `path` into the trash of `root`, from where it can be had again.

    Raises InputError, OutputError.
    """
    folder = path.parent.relative_to(root).as_posix()
    about = Thrown(secrets.token_hex(8), store.name(path), "" if folder == "." else folder, time.time())
    _carry(path, root / TRASH / about.id, recording, msgspec.json.encode(about))
    return about


def restore(root: Path, thrown: str) -> Path:
    """Put what was thrown away back where it was, with a number if its name is taken.

    Raises InputError if it is not there anymore, OutputError.
    """
    about = next((one for one in in_trash(root) if one.id == thrown), None)
    if about is None:
        raise InputError("it is not in the trash anymore; reload the page")
    folder = root / about.folder
    if not folder.resolve().is_relative_to(root):
        raise InputError(f"{about.folder}: leads out of the folder")
    files.refuse_link(root / TRASH)
    number = 1
    while True:
        name = about.name if number == 1 else f"{about.name}-{number}"
        place = folder / f"{name}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with transaction.alone(folder, name):
                if not is_taken(place):
                    (root / TRASH / thrown).rename(transaction.moving(folder, name))
                    transaction.settle(folder, name)
                    break
        except OSError as error:
            raise OutputError(f"{place}: cannot be put back ({error.strerror})") from error
        number += 1
    if number > 1 and place.is_file():
        _follow(folder / f"{about.name}.json", place)
    return place


def in_trash(root: Path) -> list[Thrown]:
    """List all that was thrown away, the latest first, without what links lead to."""
    return sorted(_trash(root), key=lambda one: -one.at)


def empty(root: Path, thrown: Collection[str]) -> int:
    """Delete these for good; returns how many there were."""
    gone = [one.id for one in _trash(root) if one.id in thrown]
    for one in gone:
        shutil.rmtree(root / TRASH / one, ignore_errors=True)
    return len(gone)


def is_taken(place: Path, mine: Collection[Path] = ()) -> bool:
    """Whether something else than `mine` has this name already, as some disk takes names for the same."""
    wanted = _same(store.name(place))
    own = {one.name for one in mine if one.parent == place.parent} | {f".{store.name(place)}.lock"}
    try:
        there = [one.name for one in place.parent.iterdir() if one.name not in own]
    except OSError:
        return False
    return any(_same(one) == wanted or _same(one).startswith(f"{wanted}.") for one in there)


def _trash(root: Path) -> Iterator[Thrown]:
    with suppress(OSError, ForeignError), files.OpenFolder(root / TRASH) as trash:
        for folder in map((root / TRASH).joinpath, trash.names()):
            try:
                files.refuse_link(folder)
                about = decode.from_json(files.read(folder / transaction.ABOUT), Thrown)
            except (OSError, ValueError, ForeignError):
                continue
            inside = not PurePosixPath(about.folder).is_absolute() and ".." not in about.folder.split("/")
            if about.id == folder.name and inside and Path(about.name).name == about.name:
                yield about


def _follow(path: Path, place: Path) -> None:
    """Have the transcript that was at `path` and is at `place` say where its recording is."""

    def change(found: Transcript) -> Transcript:
        before = Path(found.audio.path)
        moved = place.with_name(f"{store.name(place).removesuffix(before.suffix)}{before.suffix}")
        if _is_of(before.name, store.name(path)) and moved.is_file():
            now = str(moved) if before.is_absolute() else moved.name
        else:  # it stays where it is, which is told from where the transcript was
            there = [one for one in places(found.audio.path, path.parent) if Path(one).is_file()]
            now = there[0] if there else found.audio.path
        return replace(found, audio=replace(found.audio, path=now))

    if place.is_file():
        with suppress(InputError):  # it is damaged, as before
            edits.keep(place, change)


def _carry(path: Path, target: Path, recording: Path | None, about: bytes = b"") -> None:
    """Move everything to `target`: the place of a JSON, or a folder of the trash, with what it was."""
    name, thrown = store.name(path), target.parent.name == TRASH
    if thrown:
        files.refuse_link(target.parent)
    try:
        target.parent.mkdir(0o700 if thrown else 0o777, parents=True, exist_ok=True)
        with ExitStack() as held:
            for one in sorted({path, *(() if thrown else (target,))}):
                held.enter_context(transaction.alone(one.parent, store.name(one)))
            mine = belongings(path, recording)
            if not mine:
                raise InputError(f"{path}: is gone; reload the page")
            if thrown:
                transaction.carry(mine, path.parent, name, target, about)
                return
            if is_taken(target, mine):
                raise ConflictError(f"{store.name(target)}: this name is taken; choose another one")
            transaction.carry(mine, path.parent, name, transaction.moving(target.parent, store.name(target)))
            transaction.settle(target.parent, store.name(target))
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be moved ({error.strerror}); fix: close it in other programs, or fix the "
            "folder's permissions"
        ) from error


def _recording(path: Path) -> Path | None:
    """The recording of a transcript, if it lies beside it."""
    try:
        found = document.summary(files.read(path))
    except OSError:
        return None
    return None if found is None else path.with_name(PurePosixPath(found.audio.path.replace("\\", "/")).name)


def _is_of(recording: str, name: str) -> bool:
    """Whether a recording goes by the name of a transcript: `call.wav` by call, and by call.wav."""
    return name in (recording, Path(recording).stem)


def _same(name: str) -> str:
    """Equal for names that some disk takes for the same, hidden or not."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()).removeprefix(".")
