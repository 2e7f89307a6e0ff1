"""The model files on this disk: found, fetched, verified, and put together to what was chosen.

Files are kept in the Hugging Face cache, in its documented layout and by its rules (HF_HOME, HF_HUB_CACHE,
HF_ENDPOINT, HF_HUB_OFFLINE), shared with every other program that uses it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import quote

from witness import files
from witness.errors import ModelError, UsageError
from witness.models import catalogue
from witness.models.catalogue import CatalogueFile
from witness.models.download import FetchError, NetworkError, download
from witness.reporter import SILENT, Reporter
from witness.schema import Linkage, ModelFile, Rule


@dataclass(frozen=True)
class DiarizationModels:
    """A segmentation and an embedding model, and the clustering that belongs to the embedding."""

    name: str
    """The name of the set, or of the folder."""
    segmentation: ModelFile
    embedding: ModelFile
    rule: Rule
    plda: Mapping[str, ModelFile] = field(default_factory=dict)
    """Array -> file, as `vbx.read` takes them; empty for a clustering without PLDA."""


@dataclass(frozen=True)
class OnDisk:
    """What the disk holds of a file of the catalogue."""

    file: CatalogueFile
    path: str | None
    """None: missing."""
    state: Literal["missing", "present", "ok", "damaged"]
    """"present" means that it was not hashed."""
    sha256: str | None = None
    """Of what is on the disk, if it was hashed."""


# --- what was chosen ---


def diarization_models(choice: str, *, offline: bool, reporter: Reporter = SILENT) -> DiarizationModels:
    """The chosen models, verified. A note says so if "auto" had to settle for the builtin set.

    `choice` is a name of `catalogue.SETS`, "auto" (standard if it is cached or can be fetched, otherwise
    builtin), or a folder with segmentation.onnx and embedding.onnx and, unless it is the standard set's, with
    clustering.json: the fields of `schema.Rule`, of which "linkage" and "threshold" are required. `offline`
    opens no socket.

    Raises:
        ModelError: a file is damaged, or was asked for by name and cannot be fetched (`FetchError`).
        UsageError: `choice` is none of these.
    """
    if not choice:
        raise UsageError(f"--models is empty; give a folder, auto, {_set_names()}")
    if choice not in ("auto", *catalogue.SETS):
        return _from_folder(choice)
    name = "standard" if choice == "auto" else choice
    try:
        models = _obtain(_entries(catalogue.SETS[name].files), offline=offline, reporter=reporter)
    except FetchError as error:
        if choice != "auto":
            raise
        reporter.note(f"using the builtin speaker models, less accurate than the standard ones: {error}")
        name = "builtin"
        models = _obtain(_entries(catalogue.SETS[name].files), offline=True, reporter=reporter)
    segmentation, embedding, *plda = models
    arrays = {file.name.removeprefix("plda-"): file for file in plda}
    return DiarizationModels(name, segmentation, embedding, catalogue.SETS[name].rule, arrays)


def _set_names() -> str:
    *most, last = catalogue.SETS
    return f"{', '.join(most)} or {last}"


def whisper_model(choice: str, *, offline: bool, gpu: bool, reporter: Reporter = SILENT) -> ModelFile | None:
    """The chosen speech recognition model, verified; None: there will be no words.

    `choice` is "none", a name of the catalogue, a file, or "auto": the default for this machine; if that can
    be neither found nor fetched, the cached multilingual model nearest to it in size, or None, with a note.

    Raises:
        ModelError: a file is damaged, or was asked for by name and cannot be fetched (`FetchError`).
        UsageError: `choice` is none of these.
    """
    table = {entry.name: entry for entry in catalogue.TABLE if entry.role == "whisper"}
    if choice == "none":
        return None
    if choice not in table and choice != "auto":
        if _is_path(choice) or Path(choice).is_file():
            return _own_file(Path(choice), Path(choice).name)
        raise UsageError(f"no whisper model {choice!r}; give a file, auto, none or one of {', '.join(table)}")
    wanted = table[catalogue.default_whisper(gpu=gpu) if choice == "auto" else choice]
    try:
        return _obtain([wanted], offline=offline, reporter=reporter)[0]
    except FetchError as error:
        if choice != "auto":
            raise
        # An English-only model is no substitute: it turns every other language into English nonsense.
        others = [entry for entry in table.values() if ".en" not in entry.name and _is_there(entry)]
        if not others:
            reporter.note(f"no words, only speakers and turns: {error}; or give a model with --whisper FILE")
            return None
        near = min(others, key=lambda entry: max(entry.size / wanted.size, wanted.size / entry.size))
        reporter.note(
            f"recognizing words with {near.name}, which is cached, instead of {wanted.name}: {error}"
        )
        return _verified(near)


def list_models(*, verify: bool = False, roles: Container[str] = catalogue.ROLES) -> tuple[OnDisk, ...]:
    """What the disk holds of every file of these roles, hashed if `verify`; nothing is fetched."""
    return tuple(_on_disk(entry, verify) for entry in catalogue.TABLE if entry.role in roles)


def fetch_models(
    names: Sequence[str] = (),
    *,
    gpu: bool,
    offline: bool = False,
    force: bool = False,
    reporter: Reporter = SILENT,
) -> tuple[ModelFile, ...]:
    """Bring the named files (names of `catalogue.TABLE` or `catalogue.SETS`) into the cache, and verify them.

    Without names: the standard set and the default whisper model. `force` also fetches files that are already
    there; an old file stays until the new one is complete and verified. Progress is ("download", bytes, bytes
    of all files).

    Raises:
        ModelError: a file cannot be fetched (`FetchError`), or is damaged.
        UsageError: an unknown name.
    """
    sets = catalogue.SETS
    wanted = [part for name in names for part in (sets[name].files if name in sets else (name,))]
    entries = _entries(wanted or [*sets["standard"].files, catalogue.default_whisper(gpu=gpu)])
    return tuple(_obtain(entries, offline=offline, force=force, reporter=reporter))


def _entries(names: Sequence[str]) -> list[CatalogueFile]:
    table = {entry.name: entry for entry in catalogue.TABLE}
    for name in names:
        if name not in table:
            raise UsageError(f"no model {name!r}; choose from {', '.join([*catalogue.SETS, *table])}")
    return [table[name] for name in dict.fromkeys(names)]


def _obtain(
    entries: Sequence[CatalogueFile], *, offline: bool, reporter: Reporter, force: bool = False
) -> list[ModelFile]:
    """Every file, verified; missing ones (with `force` all) are fetched, with one progress for all."""
    missing = {entry for entry in entries if entry.repository and (force or not _is_there(entry))}
    total = sum(entry.size for entry in missing)
    before = 0
    obtained = []
    for entry in entries:
        if entry in missing:

            def report(received: int, before: int = before) -> None:
                reporter.progress("download", before + received, total)

            obtained.append(_fetch(entry, offline=offline, force=force, report=report))
            before += entry.size
        else:
            obtained.append(_verified(entry))
    return obtained


# --- files of the catalogue on this disk ---


def _repository_folder(entry: CatalogueFile) -> Path:
    # Imported late, for --help. `constants` alone loads no HTTP library, and nothing else is ever called.
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).absolute() / f"models--{entry.repository.replace('/', '--')}"


def _path(entry: CatalogueFile) -> Path:
    if not entry.repository:
        return catalogue.BUILTIN_FOLDER / entry.file
    return _repository_folder(entry) / "snapshots" / entry.revision / entry.file


def _is_there(entry: CatalogueFile) -> bool:
    # Not Path.exists, which raises in a folder that may not be read.
    return os.path.exists(_path(entry))  # noqa: PTH110


def _on_disk(entry: CatalogueFile, verify: bool) -> OnDisk:
    if not _is_there(entry):
        return OnDisk(entry, None, "missing")
    path = str(_path(entry))
    if not verify:
        return OnDisk(entry, path, "present")
    try:
        sha256 = files.sha256_at(path)
    except OSError:
        return OnDisk(entry, path, "damaged")
    return OnDisk(entry, path, "ok" if sha256 == entry.sha256 else "damaged", sha256)


def _verified(entry: CatalogueFile) -> ModelFile:
    fix = f"run: witness models fetch {entry.name} --force, or delete the file"
    return _check(entry, _path(entry), fix if entry.repository else "install witness again")


def _check(entry: CatalogueFile, path: Path, fix: str) -> ModelFile:
    """The file at `path`, under the path that it has or will have in the cache.

    Raises ModelError, with `fix` at its end, if it is not what the catalogue says.
    """
    try:
        sha256, size = files.sha256_at(path), path.stat().st_size
    except OSError as error:
        raise ModelError(f"cannot read {entry.name} at {path} ({error.strerror}); {fix}") from error
    if (sha256, size) != (entry.sha256, entry.size):
        raise ModelError(
            f"{entry.name} is damaged: {path} has sha256 {sha256} and {size} bytes,"
            f" expected {entry.sha256} and {entry.size} bytes; {fix}"
        )
    return ModelFile(entry.name, str(_path(entry)), sha256)


# --- the user's own files ---


def _is_path(choice: str) -> bool:
    return "/" in choice or os.sep in choice or choice.endswith(".bin")


def _own_file(path: Path, name: str) -> ModelFile:
    """A file outside the cache; called `name` unless the catalogue knows its sha256."""
    if path.exists() and not path.is_file():  # reading a pipe might never end
        raise ModelError(f"the model {path} is not a file; give one")
    try:
        sha256 = files.sha256_at(path)
    except OSError as error:
        raise ModelError(
            f"cannot read the model {path} ({error.strerror}); give a file that can be read"
        ) from error
    name = next((entry.name for entry in catalogue.TABLE if entry.sha256 == sha256), name)
    return ModelFile(name, str(path.absolute()), sha256)


def _from_folder(choice: str) -> DiarizationModels:
    folder = Path(choice)
    if not folder.is_dir():
        if _is_path(choice):
            raise ModelError(f"no such folder: {choice}; give one with segmentation.onnx and embedding.onnx")
        raise UsageError(f"no models {choice!r}; give a folder, auto, {_set_names()}")
    name = folder.absolute().name
    segmentation = _own_file(folder / "segmentation.onnx", f"{name}/segmentation.onnx")
    embedding = _own_file(folder / "embedding.onnx", f"{name}/embedding.onnx")
    # The rule belongs to the embedding, so a copy of a known embedding model keeps its rule.
    sets = catalogue.SETS
    usual = next((one for one in sets.values() if one.embedding == embedding.name), sets["standard"])
    return DiarizationModels(name, segmentation, embedding, _rule(folder / "clustering.json", usual.rule))


def _rule(path: Path, usual: Rule) -> Rule:
    """The rule in the file at `path`; `usual` if there is none. Raises ModelError."""
    if not path.exists():
        return usual
    try:
        given = json.loads(path.read_text("utf-8"))
        rule = Rule(**given)
        for name, value in asdict(rule).items():
            kind = {"linkage": str, "smallest": int, "apart": bool, "balanced": bool}.get(name, (int, float))
            if name == "faint" and value is None:
                continue
            if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
                raise TypeError(f"{name}: {value!r}")
        # 2: across the unit sphere
        fits = 0 < rule.threshold <= 2 and 0 <= rule.reach <= 1 and 0 < rule.shortest <= 1
        fits = fits and rule.smallest > 0 and rule.distinct >= 0
        if rule.linkage not in get_args(Linkage) or not fits:
            raise ValueError(f"{rule}")
    except (OSError, ValueError, TypeError) as error:
        others = ", ".join(part.name for part in fields(Rule)[2:])
        form = '{"linkage": "average" or "centroid", "threshold": above 0 and up to 2}'
        raise ModelError(
            f"{path} must read {form}, optionally with {others}; correct or delete it"
        ) from error
    return rule


# --- from the network ---


def _fetch(entry: CatalogueFile, *, offline: bool, force: bool, report: Callable[[int], None]) -> ModelFile:
    """Download a file, verify it, and only then give it its place in the cache."""
    from huggingface_hub import constants

    name = next((name for name, one in catalogue.SETS.items() if entry.name in one.files), entry.name)
    fix = f"when connected, run: witness models fetch {name}"
    if offline or constants.HF_HUB_OFFLINE:
        why = "--offline or HF_HUB_OFFLINE forbids the network"
        raise FetchError(f"cannot fetch {entry.name}: {why}; {fix}")

    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # used everywhere, listed nowhere

    url = f"{constants.ENDPOINT.rstrip('/')}/{entry.repository}/resolve/{entry.revision}/{quote(entry.file)}"
    folder = _repository_folder(entry)
    # The Hub names the blob of a large file by its sha256, and its own downloads take the same lock.
    blob = folder / "blobs" / entry.sha256
    part = blob.with_name(f"{entry.sha256}.witness-part")
    lock = folder.parent / ".locks" / folder.name / f"{entry.sha256}.lock"
    try:
        blob.parent.mkdir(parents=True, exist_ok=True)
        lock.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            if _is_there(entry) and not force:  # another process was faster
                return _verified(entry)
            if force:
                part.unlink(missing_ok=True)
            download(url, part, entry.size, report)
            try:
                file = _check(entry, part, f"it was not kept; run again, or check HF_ENDPOINT ({url})")
            except ModelError:
                part.unlink()
                raise
            _install(part, blob, _path(entry))
            return file
    except NetworkError as error:
        raise FetchError(f"cannot fetch {entry.name}: {error}; {fix}") from error
    except OSError as error:
        fix = "free disk space, or set HF_HOME to a folder that can be written"
        raise FetchError(
            f"cannot store {entry.name} in {folder}: {error.strerror or error}; {fix}"
        ) from error


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
