"""The files of the catalogue on this disk: found, verified, and fetched where they are missing.

They lie in the Hugging Face cache, in its documented layout and by its rules (HF_HOME, HF_HUB_CACHE,
HF_ENDPOINT, HF_HUB_OFFLINE), shared with every other program that uses it. Models that are converted from a
checkpoint in a package, or joined from the files of several packages, lie in Witness's own cache, in a folder
named by their sha256.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from witness._version import pip_install
from witness.errors import ModelError
from witness.models import catalogue, convert, ct2_header, package_index
from witness.models.catalogue import Blob, CatalogueFile, Checkpoint
from witness.models.download import FetchError, NetworkError, download
from witness.progress import Reporter
from witness.schema import ModelFile
from witness.storage import atomic, cache, files


@dataclass(frozen=True)
class OnDisk:
    """The state of a model of the catalogue on the disk."""

    file: CatalogueFile
    path: str | None
    """The file or the folder. None: missing, or not whole."""
    state: Literal["missing", "present", "installed", "ok", "damaged"]
    """"present" and "installed" (by another package) mean that it was not hashed."""
    sha256: str | None = None
    """The file's, if it was hashed; in a folder that of the first damaged file, or else of the weights."""

    @property
    def has_its_size(self) -> bool:
        """True if every file has its size; much faster than hashing."""
        if self.path is None or (self.file.halves and self.state == "installed"):
            return True
        return all(_size(path) == part.size for part, path in _files(self.file, Path(self.path)))


def obtain(
    entries: Sequence[CatalogueFile],
    *,
    offline: bool,
    reporter: Reporter,
    force: bool = False,
    hub: bool = True,
) -> list[ModelFile]:
    """Return every model, verified; fetch missing models (with `force` all), with one progress for all.

    Models that the Hub does not give (without `hub`: all) come from the package that has them, if any.

    Raises ModelError: a file is damaged, or missing and cannot be fetched (`FetchError`).
    """
    offline = is_offline(offline)
    missing = {
        entry: [part for part in entry.parts if force or not _is_there(entry, part)]
        for entry in entries
        if not (entry.builtin or entry.halves) and (force or locate(entry) is None)
    }
    total = sum(part.size for parts in missing.values() for part in parts)
    if total and not offline:  # a server that does not answer keeps us waiting for seconds
        reporter.progress("download", 0, total)
    before = 0

    def report(received: float) -> None:
        reporter.progress("download", before + received, total)

    without: dict[CatalogueFile, FetchError | None] = {}
    for entry in entries:
        if entry.halves and locate(entry) is None:
            raise FetchError(f"{entry.name} is in no repository; run: {entry.fetch}")
        if missing.get(entry) and entry.checkpoint and not (hub and entry.repository):
            without[entry] = None
            continue
        try:
            for part in missing.get(entry, ()):
                _fetch(entry, part, offline=offline, force=force, report=report)
                before += part.size
        except FetchError as error:
            if not entry.checkpoint or offline:
                raise
            without[entry] = error  # later, after the files that only the Hub has
    if without:
        _fetch_packaged(without, offline=offline, force=force, report=report)
    return [
        verified(entry.converted or entry) if entry in without else verified(entry, missing.get(entry, ()))
        for entry in entries
    ]


# --- on this disk ---


def target_path(entry: CatalogueFile) -> Path:
    """Return the path of the file or the folder after a download; a builtin file lies there already."""
    if entry.builtin:
        return catalogue.BUILTIN_FOLDER / entry.file
    if not entry.repository:
        folder = cache.cache_folder().absolute() / "models" / entry.sha256
        return folder if entry.others else folder / entry.file
    folder = _repository_folder(entry.repository) / "snapshots" / entry.revision
    return folder if entry.others else folder / entry.file


def locate(entry: CatalogueFile) -> Path | None:
    """Return the file, or the folder with all its files; None: not on this disk.

    Besides its usual path that is the same model converted from a checkpoint; for a folder, another revision
    or a mirror in the cache, from other programs, or the package that has it.
    """
    form = _form_on_disk(entry)
    if form is not None:
        return target_path(form)
    if not entry.others:
        return None
    return next(_copies(entry), None) or installed_folder(entry)


def _form_on_disk(entry: CatalogueFile) -> CatalogueFile | None:
    """Return the form of the model that is on this disk: the repository's or the converted form."""
    return next((form for form in entry.forms if all(_is_there(form, part) for part in form.parts)), None)


def _copies(entry: CatalogueFile) -> Iterator[Path]:
    """Give the folders in the Hub's cache that seem to have the same weights.

    A link of the Hub leads to a file that is named by the sha256 of its content; without links, the size
    decides, before everything is hashed.
    """
    for repository in (entry.repository, *entry.mirrors) if entry.repository else ():
        for folder in sorted(_repository_folder(repository).glob("snapshots/*")):
            weights = folder / entry.file
            target = Path(os.path.realpath(weights))
            alike = target.name == entry.sha256 or (target.name == entry.file and _size(target) == entry.size)
            if alike and not ct2_header.missing_files(folder):
                yield folder


def inspect(entry: CatalogueFile, *, verify: bool) -> OnDisk:
    entry = _form_on_disk(entry) or entry
    path = locate(entry)
    if path is None:
        return OnDisk(entry, None, "missing")
    if not verify:
        return OnDisk(entry, str(path), "installed" if path == installed_folder(entry) else "present")
    sha256 = None
    if entry.halves and path != target_path(entry):
        try:
            path = _join(entry, path, target_path(entry))
        except ModelError:
            return OnDisk(entry, str(path), "damaged")
    for part, file in _files(entry, path):
        try:
            sha256 = files.sha256_at(file)
        except OSError:
            return OnDisk(entry, str(path), "damaged")
        if sha256 != part.sha256:
            return OnDisk(entry, str(path), "damaged", sha256)
    return OnDisk(entry, str(path), "ok", sha256)


def verified(entry: CatalogueFile, fetched: Collection[Blob] = ()) -> ModelFile:
    """Return a model on this disk. Raises ModelError if a file differs from the catalogue.

    The files that were `fetched` were verified a moment ago.
    """
    path = (None if fetched else locate(entry)) or target_path(entry)
    if (form := _form_on_disk(entry)) and path == target_path(form):
        entry = form
    fix = f"run: {entry.fetch} --force, or delete the file"
    if entry.builtin:
        fix = "install witness again"
    elif entry.halves:
        fix = "delete the file"
        path = _join(entry, path, target_path(entry)) if path != target_path(entry) else path
    elif path == installed_folder(entry):
        fix = f"run: {pip_install('--force-reinstall', *entry.installed_by.split())}"
    for part, file in _files(entry, path):
        if part not in fetched:
            _check(entry, part, file, fix)
    if not _is_pinned(entry, path):
        ct2_header.inspect(path)  # the small files of another revision may differ, and must fit
    return ModelFile(entry.name, str(path), entry.sha256, entry.engine)


def _files(entry: CatalogueFile, path: Path) -> Iterator[tuple[Blob, Path]]:
    """Give the files of a model at `path` with a known sha256; another revision shares only the weights."""
    if not entry.others:
        yield entry.parts[0], path
        return
    for part in entry.parts if _is_pinned(entry, path) else entry.parts[-1:]:
        yield part, path / part.file


def _is_pinned(entry: CatalogueFile, path: Path) -> bool:
    """Return true if the catalogue has the sha256 of all files at `path`, not only of the weights."""
    return path in (target_path(entry), installed_folder(entry))


def _check(entry: CatalogueFile, part: Blob, path: Path, fix: str) -> None:
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


def installed_folder(entry: CatalogueFile) -> Path | None:
    """Return the model's folder in an installed package, without importing it; None: not installed.

    For a model in halves, the folder of the last half.
    """
    halves = [_path_in_package(half) for half in entry.halves]
    folder = halves[-1] and halves[-1].parent if halves else _path_in_package(entry.package)
    beside = entry.others if halves else entry.parts
    paths = [*halves, *(folder and folder / part.file for part in beside)]
    return folder if all(path and _size(path) is not None for path in paths) else None


def _path_in_package(path: str) -> Path | None:
    """Return the path of a file or folder in a Python package, named "package/path"."""
    package, _, inside = path.partition("/")
    spec = find_spec(package) if package else None
    roots = list(spec.submodule_search_locations or ()) if spec else []
    return Path(roots[0], inside) if roots else None


def _join(entry: CatalogueFile, source: Path, target: Path) -> Path:
    """Join a model in halves in `target`, once, and verify it; return `target`. Raises ModelError.

    `source` is the folder of the last half.
    """
    from filelock import FileLock

    fix = f"run: {pip_install('--force-reinstall', *entry.installed_by.split())}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_suffix(".lock")):
            for part in entry.parts:
                if _size(target / part.file) is not None:
                    continue
                weights = part.file == entry.file
                paths = map(_path_in_package, entry.halves) if weights else (source / part.file,)
                content = b"".join(files.read(path, part.size) for path in paths if path)
                if (sha256 := files.sha256(content)) != part.sha256:
                    raise ModelError(
                        f"{part.file} of {entry.name} is damaged: in its packages it has sha256 {sha256}, "
                        f"expected {part.sha256}; {fix}"
                    )
                atomic.replace(content, target / part.file)
    except OSError as error:
        raise ModelError(
            f"cannot put {entry.name} together in {target} ({error.strerror or error}); "
            "free disk space, or set WITNESS_CACHE to a folder that can be written"
        ) from error
    return target


def _repository_folder(repository: str) -> Path:
    # Imported late, for --help. `constants` alone loads no HTTP library, and nothing else is ever called.
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).absolute() / f"models--{repository.replace('/', '--')}"


def _part_path(entry: CatalogueFile, part: Blob) -> Path:
    return target_path(entry) / part.file if entry.others else target_path(entry)


def _is_there(entry: CatalogueFile, part: Blob) -> bool:
    return _size(_part_path(entry, part)) is not None


def _size(path: Path) -> int | None:
    """Return the bytes of a file, or a number for a folder; None: it is missing, or may not be read."""
    try:
        return path.stat().st_size
    except OSError:
        return None


# --- from the network ---

FORBIDDEN = "--offline or HF_HUB_OFFLINE forbids the network"


def is_offline(offline: bool) -> bool:
    from huggingface_hub import constants

    return offline or constants.HF_HUB_OFFLINE


def _advice(entries: Collection[CatalogueFile]) -> str:
    """Return the command that fetches these models later: their set, or the first model."""
    names = {entry.name for entry in entries}
    fits = (name for name, models in catalogue.SETS.items() if names <= set(models.files))
    first = next(iter(entries))
    name = next(fits, None)
    return f"when connected, run: {f'witness models fetch {name}' if name else first.fetch}"


def _fetch(
    entry: CatalogueFile, part: Blob, *, offline: bool, force: bool, report: Callable[[int], None]
) -> None:
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
                _check(entry, part, _part_path(entry, part), fix)
                return
            if force:
                scratch.unlink(missing_ok=True)
            download(url, scratch, part.size, report)
            try:
                _check(entry, part, scratch, f"it was not kept; run again, or check HF_ENDPOINT ({url})")
            except ModelError:
                scratch.unlink()
                raise
            _install(scratch, blob, _part_path(entry, part))
    except NetworkError as error:
        raise FetchError(f"cannot fetch {entry.name}: {error}; {fix}") from error
    except OSError as error:
        fix = "free disk space, or set HF_HOME to a folder that can be written"
        raise FetchError(
            f"cannot store {entry.name} in {folder}: {error.strerror or error}; {fix}"
        ) from error


def _fetch_packaged(
    entries: Mapping[CatalogueFile, FetchError | None],
    *,
    offline: bool,
    force: bool,
    report: Callable[[float], None],
) -> None:
    """Take checkpoints out of packages, and keep the converted models.

    `entries` has for each model the reason why the Hub does not give it; None: it was not asked. `report` is
    called with the bytes so far, counted as in the catalogue.
    """
    from filelock import FileLock

    names, fix = " and ".join(entry.name for entry in entries), _advice(entries)
    shares = {entry.checkpoint: entry for entry in entries if entry.checkpoint}
    done: dict[Checkpoint, float] = {}

    def report_share(source: Checkpoint, share: float) -> None:
        done[source] = share * shares[source].total
        report(sum(done.values()))

    folder = cache.cache_folder().absolute() / "models"
    try:
        if offline:
            raise FetchError(FORBIDDEN)
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            missing = [source for source in shares if force or _size(_converted_path(shares[source])) is None]
            for source, content in package_index.checkpoints(missing, folder / "parts", report_share):
                _convert(source, content, _converted_path(shares[source]), shares[source].name)
                report_share(source, 1.0)
    except OSError as error:
        where = "free disk space, or set WITNESS_CACHE to a folder that can be written"
        raise FetchError(f"cannot store {names} in {folder}: {error.strerror or error}; {where}") from error
    except FetchError as error:
        causes = ((failure.__cause__, failure) for failure in entries.values() if failure)
        hub = {str(cause if isinstance(cause, NetworkError) else failure): None for cause, failure in causes}
        raise FetchError(f"cannot fetch {names}: {'; '.join([*hub, str(error)])}; {fix}") from error


def _convert(source: Checkpoint, content: bytes, target: Path, name: str) -> None:
    try:
        made = convert.onnx_of(name, content)
    except ValueError as error:
        raise FetchError(f"{source.file} of {source.source} cannot be converted: {error}") from error
    if (sha256 := files.sha256(made)) != source.made.sha256:
        raise FetchError(
            f"{source.file} of {source.source} was converted to other bytes than expected (sha256 {sha256}, "
            f"expected {source.made.sha256}); another version of onnx may cure it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    atomic.replace(made, target)


def _converted_path(entry: CatalogueFile) -> Path:
    return target_path(entry.converted or entry)


def _install(part: Path, blob: Path, pointer: Path) -> None:
    """Move a complete file into the cache: blobs/, and a relative link in snapshots/REVISION/."""
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
