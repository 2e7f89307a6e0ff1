"""Which model files Witness knows: where each comes from, its sha256, and the sets they make up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from witness.errors import ModelError
from witness.schema import ModelFile, Rule

ROLES = ("segmentation", "embedding", "plda", "whisper")


@dataclass(frozen=True)
class CatalogueFile:
    """A model file that Witness can fetch, or that is part of this package."""

    name: str
    role: str
    """One of ROLES."""
    repository: str
    """On the Hugging Face Hub; empty: the file is part of this package."""
    revision: str
    file: str
    """Path in the repository, or in BUILTIN_FOLDER."""
    size: int
    """In bytes."""
    sha256: str
    license: str
    attribution: str


_SOURCES = {  # -> repository, revision, file, license, attribution
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


def _entry(name: str, role: str, source: str, sha256: str, size: str) -> CatalogueFile:
    repository, revision, file, license_, attribution = _SOURCES[source]
    file = file.format(name=name, role=role, underscored=name.replace("-", "_"))
    return CatalogueFile(name, role, repository, revision, file, int(size), sha256, license_, attribution)


TABLE = tuple(_entry(*line.split()) for line in _FILES.strip().splitlines())


@dataclass(frozen=True)
class ModelSet:
    """The names of the files in TABLE that work together, and the clustering rule made for them."""

    segmentation: str
    embedding: str
    rule: Rule
    plda: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all its files."""
        return (self.segmentation, self.embedding, *self.plda)


SETS = {
    # From config.yaml of pyannote/speaker-diarization-3.1, which uses the same two networks.
    "standard": ModelSet("segmentation-3.0", "wespeaker-resnet34-lm", Rule("centroid", 0.7045654963945799)),
    # From config.yaml of pyannote/speaker-diarization-community-1: a first clustering with too many speakers,
    # of which `vbx` keeps those that are needed.
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
"""sha256 of a voice model -> the cosine that a stranger hardly ever reaches; see benchmarks/voices.py."""

BUILTIN_FOLDER = Path(__file__).parent / "builtin"


def default_whisper(*, gpu: bool) -> str:
    """The model that `--whisper auto` stands for: a large one for a GPU, a small one for a CPU."""
    return "large-v3-turbo-q5_0" if gpu else "base-q5_1"


def stranger_threshold(embedding: ModelFile) -> float:
    """The cosine from which two voiceprints are taken to be one person's.

    Raises ModelError if it was never measured for this voice model.
    """
    if embedding.sha256 not in STRANGERS:
        raise ModelError(
            f"how alike strangers sound to {embedding.name} was never measured; use --models builtin to "
            "enroll and recognize people"
        )
    return STRANGERS[embedding.sha256]
