"""Which model files there are, what their sha256 is, where they come from and where they lie on the disk.

Files live in the Hugging Face cache, in its documented layout and by its rules (HF_HOME, HF_HUB_CACHE,
HF_ENDPOINT, HF_HUB_OFFLINE), shared with every other program that uses it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import get_args
from urllib.parse import quote

from witness.errors import ModelError, UsageError
from witness.models.download import FetchError, NetworkError, download
from witness.reporter import SILENT, Reporter
from witness.schema import Linkage, ModelFile, Rule

ROLES = ("segmentation", "embedding", "plda", "whisper")


@dataclass(frozen=True)
class KnownFile:
    """A file of the table; an empty `repository` means that it is part of this package."""

    name: str
    role: str
    """One of ROLES."""
    repository: str
    revision: str
    file: str
    size: int
    sha256: str
    licence: str
    attribution: str


@dataclass(frozen=True)
class DiarizationModels:
    """A segmentation and an embedding model, and the clustering that belongs to the embedding."""

    name: str
    """The set's, or the folder's."""
    segmentation: ModelFile
    embedding: ModelFile
    rule: Rule
    plda: Mapping[str, ModelFile] = field(default_factory=dict)
    """Array -> file, as `vbx.read` takes them; empty for a clustering without."""


@dataclass(frozen=True)
class ModelStatus:
    """What the disk holds of one file of the table."""

    file: KnownFile
    path: str | None
    """None: not there."""
    state: str
    """One of "missing", "present" (and not hashed), "ok", "damaged"."""
    found: str | None = None
    """The sha256 found, where one was computed."""


_SOURCES = {  # -> repository, revision, file, licence, attribution
    "pyannote": (
        "onnx-community/pyannote-segmentation-3.0",
        "733a93b6473d019a773298e08cefa686894b1854",
        "onnx/model.onnx",
        "MIT",
        "pyannote.audio, CNRS",
    ),
    "wespeaker": (
        "Wespeaker/wespeaker-voxceleb-resnet34-LM",
        "f0c48c298fd835726c27956a5d617bad7115627e",
        "voxceleb_resnet34_LM.onnx",
        "CC-BY-4.0",
        "WeSpeaker, trained on VoxCeleb",
    ),
    "whisper": (
        "ggerganov/whisper.cpp",
        "5359861c739e955e79d9a303bcbc70fb988958b1",
        "ggml-{name}.bin",
        "MIT",
        "OpenAI Whisper",
    ),
    # Copies of pyannote's files that need no token; revision and sha256 as other projects pin them together.
    "community": (
        "avencera/speakrs-models",
        "5d24ffee75f13fb061fa6d10944a64e2dc1d5e6f",
        "segmentation-3.0.onnx",
        "CC-BY-4.0",
        "pyannote speaker-diarization-community-1, exported by speakrs",
    ),
    "plda": (
        "avencera/speakrs-models",
        "5d24ffee75f13fb061fa6d10944a64e2dc1d5e6f",
        "{underscored}.npy",
        "CC-BY-4.0",
        "pyannote speaker-diarization-community-1, exported by speakrs",
    ),
    "builtin": ("", "", "{role}.onnx", "MIT", "Witness"),
}
_FILES = """
segmentation-3.0      segmentation pyannote  057ee564753071c0b09b5b611648b50ac188d50846bff5f01e9f7bbf1591ea25 5986908
wespeaker-resnet34-lm embedding    wespeaker 7bb2f06e9df17cdf1ef14ee8a15ab08ed28e8d0ef5054ee135741560df2ec068 26530309
community-1-segmentation segmentation community 038b971741ed623af9773ecafdefa4b7bc523520099c2a68f8568b24189e8ad9 5916308
plda-lda              plda         plda      e20c9b012bebd1aabda5a38a127e63a43cf35debdc502715fc143e2fb6bc3c4b 131200
plda-tr               plda         plda      e700b68cb319de3fafb5fa093eb9222c23c447084741f8d3a533640d425510ee 131200
plda-mu               plda         plda      d286d48acf99bbc1ed1502fed0a3e361ae5626ce1870c8be9f7397c5e47886c6 1152
plda-psi              plda         plda      d7128c9ed2f28a9781971805131129f077c04f948e2df12e52dcdb99f2b4e5f5 1152
plda-mean1            plda         plda      e424c0c352182aa8e0f555dec1f3b30e29a20b9ed6b25d339f112af92e51e36f 2176
plda-mean2            plda         plda      6f6fb708a2037197b5b84ffeaa8f140cb878088fbecd6ab042ad26a7691bd2cf 640
builtin-segmentation  segmentation builtin   6120455b134cedd4dd44786a6e3e6f4db21d7140489712628d2b59ea237612a2 4341514
builtin-embedding     embedding    builtin   fa9d3c68457559644e8413540810d483ef08fbd8dde4b7899c7d766b11611f7d 15345782
tiny                  whisper      whisper   be07e048e1e599ad46341c8d2a135645097a538221678b7acdd1b1919c6e1b21 77691713
tiny-q5_1             whisper      whisper   818710568da3ca15689e31a743197b520007872ff9576237bda97bd1b469c3d7 32152673
base                  whisper      whisper   60ed5bc3dd14eea856493d334349b405782ddcaf0028d4b5df4088345fba2efe 147951465
base-q5_1             whisper      whisper   422f1ae452ade6f30a004d7e5c6a43195e4433bc370bf23fac9cc591f01a8898 59707625
base.en-q5_1          whisper      whisper   4baf70dd0d7c4247ba2b81fafd9c01005ac77c2f9ef064e00dcf195d0e2fdd2f 59721011
small                 whisper      whisper   1be3a9b2063867b937e64e2ec7483364a79917e157fa98c5d94b5c1fffea987b 487601967
small-q5_1            whisper      whisper   ae85e4a935d7a567bd102fe55afc16bb595bdb618e11b2fc7591bc08120411bb 190085487
medium                whisper      whisper   6c14d5adee5f86394037b4e4e8b59f1673b6cee10e3cf0b11bbdbee79c156208 1533763059
medium-q5_0           whisper      whisper   19fea4b380c3a618ec4723c3eef2eb785ffba0d0538cf43f8f235e7b3b34220f 539212467
large-v3              whisper      whisper   64d182b440b98d5203c4f9bd541544d84c605196c4f7b845dfa11fb23594d1e2 3095033483
large-v3-q5_0         whisper      whisper   d75795ecff3f83b5faa89d1900604ad8c780abd5739fae406de19f23ecd98ad1 1081140203
large-v3-turbo        whisper      whisper   1fc70f774d38eb169993ac391eea357ef47c88757ef72ee5943879b7e8e2bc69 1624555275
large-v3-turbo-q5_0   whisper      whisper   394221709cd5ad1f40c46e6031ca61bce88931e6e088c188294c6d5a55ffa7e2 574041195
large-v3-turbo-q8_0   whisper      whisper   317eb69c11673c9de1e1f0d459b253999804ec71ac4c23c17ecf5fbe24e259a1 874188075
"""  # noqa: E501 - a table


def _known_file(name: str, role: str, source: str, sha256: str, size: str) -> KnownFile:
    repository, revision, file, licence, attribution = _SOURCES[source]
    file = file.format(name=name, role=role, underscored=name.replace("-", "_"))
    return KnownFile(name, role, repository, revision, file, int(size), sha256, licence, attribution)


TABLE = tuple(_known_file(*line.split()) for line in _FILES.strip().splitlines())


@dataclass(frozen=True)
class ModelSet:
    """Names of files in `TABLE`, and the clustering that goes with them."""

    segmentation: str
    embedding: str
    rule: Rule
    plda: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return (self.segmentation, self.embedding, *self.plda)


SETS = {
    # Constants of pyannote/speaker-diarization-3.1, config.yaml, which uses the same two networks.
    "standard": ModelSet("segmentation-3.0", "wespeaker-resnet34-lm", Rule("centroid", 0.7045654963945799)),
    # Of pyannote/speaker-diarization-community-1, config.yaml: a clustering to start from, with too many
    # speakers, of which `vbx` keeps those that are needed.
    "community-1": ModelSet(
        "community-1-segmentation",
        "wespeaker-resnet34-lm",
        Rule("centroid", 0.6, apart=True),
        ("plda-lda", "plda-tr", "plda-mu", "plda-psi", "plda-mean1", "plda-mean2"),
    ),
    # Measured: docs/decisions/2026-11-21-clustering.md.
    "builtin": ModelSet(
        "builtin-segmentation",
        "builtin-embedding",
        Rule(
            "average",
            0.95,
            reach=0.4,
            smallest=8,
            shortest=0.1,
            balanced=True,
            distinct=0.2,
            pause=0.8,
            faint=30.0,
        ),
    ),
}

STRANGERS = {
    "fa9d3c68457559644e8413540810d483ef08fbd8dde4b7899c7d766b11611f7d": 0.605,
}
"""sha256 of a voice model -> cosine that a stranger hardly ever reaches; by benchmarks/voices.py."""

BUILTIN_FOLDER = Path(__file__).parent / "builtin"


def default_whisper(*, gpu: bool) -> str:
    """The model behind `--whisper auto`: a large one for a GPU, a small one for a CPU."""
    return "large-v3-turbo-q5_0" if gpu else "base-q5_1"


def diarization_models(choice: str, *, offline: bool, reporter: Reporter = SILENT) -> DiarizationModels:
    """The set of that choice, verified. A choice that had to be made for the user is told to `note`.

    `choice` is a name of `SETS`, "auto" (standard if it is cached or can be fetched, else builtin with a
    note), or a folder with segmentation.onnx and embedding.onnx, and, unless it is the standard set's, with
    clustering.json: the fields of `schema.Rule`, of which "linkage" and "threshold" must be there.
    `offline` opens no socket.

    Raises:
        ModelError: a file is damaged, or was asked for by name and cannot be had (`FetchError`).
        UsageError: `choice` is none of these.
    """
    if not choice:
        raise UsageError(f"--models is empty: give a folder, auto, {_names()}")
    if choice not in ("auto", *SETS):
        return _folder(choice)
    name = "standard" if choice == "auto" else choice
    try:
        files = _obtain(_named(SETS[name].files), offline=offline, reporter=reporter)
    except FetchError as error:
        if choice != "auto":
            raise
        reporter.note(f"using the builtin speaker models, less accurate than the standard ones: {error}")
        name = "builtin"
        files = _obtain(_named(SETS[name].files), offline=True, reporter=reporter)
    segmentation, embedding, *plda = files
    arrays = {file.name.removeprefix("plda-"): file for file in plda}
    return DiarizationModels(name, segmentation, embedding, SETS[name].rule, arrays)


def _names() -> str:
    *most, last = SETS
    return f"{', '.join(most)} or {last}"


def stranger_threshold(embedding: ModelFile) -> float:
    """The cosine from which on two voiceprints are one person's. Raises ModelError if nobody measured it."""
    if embedding.sha256 not in STRANGERS:
        raise ModelError(
            f"how alike strangers sound to {embedding.name} was never measured; use --models builtin to "
            "enroll and recognise people"
        )
    return STRANGERS[embedding.sha256]


def whisper_model(choice: str, *, offline: bool, gpu: bool, reporter: Reporter = SILENT) -> ModelFile | None:
    """The speech recognition model of that choice, verified; None: there will be no words.

    `choice` is "none", a name of the table, a file, or "auto": the default of this machine; if that can be
    neither found nor fetched, the cached multilingual model nearest to it in size, or None, with a note.

    Raises:
        ModelError: a file is damaged, or was asked for by name and cannot be had (`FetchError`).
        UsageError: `choice` is none of these.
    """
    table = {entry.name: entry for entry in TABLE if entry.role == "whisper"}
    if choice == "none":
        return None
    if choice not in table and choice != "auto":
        if _is_path(choice) or Path(choice).is_file():
            return _unpinned(Path(choice), Path(choice).name)
        raise UsageError(f"no whisper model {choice!r}: give a file, auto, none or one of {', '.join(table)}")
    wanted = table[default_whisper(gpu=gpu) if choice == "auto" else choice]
    try:
        return _obtain([wanted], offline=offline, reporter=reporter)[0]
    except FetchError as error:
        if choice != "auto":
            raise
        # An English-only model is no substitute: it makes English nonsense of any other language.
        others = [e for e in table.values() if ".en" not in e.name and _is_there(e)]
        if not others:
            reporter.note(f"no words, only speakers and turns: {error}; or give a model with --whisper FILE")
            return None
        near = min(others, key=lambda e: max(e.size / wanted.size, wanted.size / e.size))
        reporter.note(
            f"recognising words with {near.name}, which is cached, instead of {wanted.name}: {error}"
        )
        return _verified(near)


def list_models(*, verify: bool = False, roles: Container[str] = ROLES) -> tuple[ModelStatus, ...]:
    """What the disk holds of every file of these roles, hashed again if `verify`; nothing is fetched."""
    return tuple(_status(entry, verify) for entry in TABLE if entry.role in roles)


def _status(entry: KnownFile, verify: bool) -> ModelStatus:
    if not _is_there(entry):
        return ModelStatus(entry, None, "missing")
    if not verify:
        return ModelStatus(entry, str(_path(entry)), "present")
    try:
        found = _sha256(_path(entry))
    except OSError:
        found = None
    return ModelStatus(entry, str(_path(entry)), "ok" if found == entry.sha256 else "damaged", found)


def fetch_models(
    names: Sequence[str] = (),
    *,
    gpu: bool,
    offline: bool = False,
    force: bool = False,
    reporter: Reporter = SILENT,
) -> tuple[ModelFile, ...]:
    """Bring the named files (names of `TABLE` or `SETS`) into the cache, and verify them.

    Without names: the standard set and the default whisper model. `force` also fetches what is there already;
    the old file stays until the new one is complete and right. Progress is ("download", bytes, bytes of all).

    Raises:
        ModelError: a file cannot be fetched (`FetchError`), or is damaged.
        UsageError: an unknown name.
    """
    wanted = [part for name in names for part in (SETS[name].files if name in SETS else (name,))]
    entries = _named(wanted or [*SETS["standard"].files, default_whisper(gpu=gpu)])
    return tuple(_obtain(entries, offline=offline, force=force, reporter=reporter))


def _named(names: Sequence[str]) -> list[KnownFile]:
    table = {entry.name: entry for entry in TABLE}
    for name in names:
        if name not in table:
            raise UsageError(f"no model {name!r}: choose from {', '.join([*SETS, *table])}")
    return [table[name] for name in dict.fromkeys(names)]


def _obtain(
    entries: Sequence[KnownFile], *, offline: bool, reporter: Reporter, force: bool = False
) -> list[ModelFile]:
    """Every file, verified; the missing ones (`force`: all) are fetched, with one progress for all."""
    missing = {e for e in entries if e.repository and (force or not _is_there(e))}
    total = sum(entry.size for entry in missing)
    before = 0
    files = []
    for entry in entries:
        if entry in missing:

            def report(received: int, before: int = before) -> None:
                reporter.progress("download", before + received, total)

            files.append(_fetch(entry, offline=offline, force=force, report=report))
            before += entry.size
        else:
            files.append(_verified(entry))
    return files


# --- on this disk ---


def _home(entry: KnownFile) -> Path:
    # Imported late, for --help. `constants` alone loads no HTTP library, and nothing else is ever called.
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).absolute() / f"models--{entry.repository.replace('/', '--')}"


def _path(entry: KnownFile) -> Path:
    if not entry.repository:
        return BUILTIN_FOLDER / entry.file
    return _home(entry) / "snapshots" / entry.revision / entry.file


def _is_there(entry: KnownFile) -> bool:
    return os.path.exists(_path(entry))  # noqa: PTH110 - Path.exists raises in a folder that may not be read


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _check(entry: KnownFile, path: Path, cure: str) -> ModelFile:
    """The file at `path`, if it is what the table says, as it will be called in its place."""
    try:
        found, size = _sha256(path), path.stat().st_size
    except OSError as error:
        raise ModelError(f"cannot read {entry.name} at {path} ({error.strerror}); {cure}") from error
    if (found, size) != (entry.sha256, entry.size):
        raise ModelError(
            f"{entry.name} is damaged: {path} has sha256 {found} and {size} bytes,"
            f" expected {entry.sha256} and {entry.size} bytes; {cure}"
        )
    return ModelFile(entry.name, str(_path(entry)), found)


def _verified(entry: KnownFile) -> ModelFile:
    cure = f"run: witness models fetch {entry.name} --force, or delete the file"
    return _check(entry, _path(entry), cure if entry.repository else "install witness again")


def _is_path(choice: str) -> bool:
    return "/" in choice or os.sep in choice or choice.endswith(".bin")


def _unpinned(path: Path, name: str) -> ModelFile:
    """A file of the user's own; if the table knows its sha256, it also gives it its name."""
    if path.exists() and not path.is_file():  # reading a pipe might never end
        raise ModelError(f"the model {path} is no file; give one")
    try:
        found = _sha256(path)
    except OSError as error:
        raise ModelError(
            f"cannot read the model {path} ({error.strerror}); give a file that can be"
        ) from error
    return ModelFile(next((e.name for e in TABLE if e.sha256 == found), name), str(path.absolute()), found)


def _folder(choice: str) -> DiarizationModels:
    folder = Path(choice)
    if not folder.is_dir():
        if _is_path(choice):
            raise ModelError(f"no folder {choice}; give one with segmentation.onnx and embedding.onnx")
        raise UsageError(f"no models {choice!r}: give a folder, auto, {_names()}")
    name = folder.absolute().name
    segmentation = _unpinned(folder / "segmentation.onnx", f"{name}/segmentation.onnx")
    embedding = _unpinned(folder / "embedding.onnx", f"{name}/embedding.onnx")
    # The threshold belongs to the embedding, so a copy of a known one keeps its own.
    usual = next((one for one in SETS.values() if one.embedding == embedding.name), SETS["standard"])
    return DiarizationModels(name, segmentation, embedding, _rule(folder / "clustering.json", usual.rule))


def _rule(path: Path, usual: Rule) -> Rule:
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
        raise ModelError(f"{path} must read {form}, and perhaps {others}; correct or delete it") from error
    return rule


# --- from the network ---

_unreachable: str | None = None
"""Why the network is of no use, once that is known: the next file must not cost `SILENCE` again."""


def _fetch(entry: KnownFile, *, offline: bool, force: bool, report: Callable[[int], None]) -> ModelFile:
    """Download a file, verify it, and only then give it its place in the cache."""
    from huggingface_hub import constants

    global _unreachable
    name = next((name for name, one in SETS.items() if entry.name in one.files), entry.name)
    cure = f"when connected, run: witness models fetch {name}"
    if offline or constants.HF_HUB_OFFLINE:
        why = "--offline or HF_HUB_OFFLINE forbids the network"
        raise FetchError(f"cannot fetch {entry.name}: {why}; {cure}")
    if _unreachable is not None:
        raise FetchError(f"cannot fetch {entry.name}: {_unreachable}; {cure}")

    from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # used everywhere, listed nowhere

    url = f"{constants.ENDPOINT.rstrip('/')}/{entry.repository}/resolve/{entry.revision}/{quote(entry.file)}"
    home = _home(entry)
    # The Hub calls the blob of a large file by its sha256, and its own downloads take the same lock.
    blob = home / "blobs" / entry.sha256
    part = blob.with_name(f"{entry.sha256}.witness-part")
    lock = home.parent / ".locks" / home.name / f"{entry.sha256}.lock"
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
        _unreachable = str(error)
        raise FetchError(f"cannot fetch {entry.name}: {error}; {cure}") from error
    except OSError as error:
        cure = "free space there, or set HF_HOME to a folder that can be written"
        raise FetchError(f"cannot store {entry.name} in {home}: {error.strerror or error}; {cure}") from error


def _install(part: Path, blob: Path, pointer: Path) -> None:
    """The cache's layout: the bytes in blobs/, a relative link to them in snapshots/REVISION/."""
    part.replace(blob)
    pointer.parent.mkdir(parents=True, exist_ok=True)
    link = blob.with_name(f"{blob.name}.witness-link")
    link.unlink(missing_ok=True)
    try:
        link.symlink_to(os.path.relpath(blob, pointer.parent))
    except OSError:  # no links here, or no right to make them (Windows): the Hub moves the file then, too
        blob.replace(pointer)
    else:
        link.replace(pointer)
