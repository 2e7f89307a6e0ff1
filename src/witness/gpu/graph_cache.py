"""The cache of compiled graphs: a folder for each, verified against its key before anything is loaded.

The provider's own cache files do not name their model, precision or shape, and it loads any file with the
right name; so every key has a folder to itself, which holds

    manifest.json   the key's parts, sizes, sha256, and the measurements
    *.mxr           MIGraphX's program, under the name that the provider gave it
    canary.npy      the CPU's answer to `canary_signal`, float32

A folder is built under another name, and renamed when the GPU's answer agrees with the CPU's.
"""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import filelock
import mmh3
import msgpack
import msgspec
import numpy as np
from msgspec import Meta

from witness.errors import DeviceError, GraphError, InputError, UsageError
from witness.gpu import cards
from witness.gpu.rocm import Stack, find_stack
from witness.options import Choice, Precision
from witness.schema import Float32
from witness.storage import atomic, typed_json
from witness.storage.cache import cache_folder
from witness.storage.files import opened, sha256

FORMAT = "witness-graph/1"
MANIFEST, CANARY = "manifest.json", "canary.npy"
MXR_VERSION = 7
"""The oldest file format that is read here, of MIGraphX 2.12 to 2.15.

2.16 writes 8, which adds names of nodes (AMDMIGraphX b5b7967, 2026-04-10). A later format must keep the
fields that `read_facts` reads.
"""
LEAST_COSINE = {Precision.FP32: 0.9999, Precision.FP16: 0.99}
MOST_DIFFERENCE = {Precision.FP32: 0.02, Precision.FP16: 0.2}
"""Length of (GPU - CPU) over length of CPU; a cosine does not see a factor. cos 0.9999 is 0.014 at least."""
LARGEST = 1 << 30  # bytes of a program; that of a voice model has 30 MB
LARGEST_PARTS = {MANIFEST: 1 << 16, CANARY: 64 << 20}  # bytes


class Tuning(Choice):
    """The thoroughness of MIGraphX's search for the fastest kernels."""

    DEFAULT = "default"
    EXHAUSTIVE = "exhaustive"
    """It tries all of them, which takes long."""


@dataclass(frozen=True)
class Key:
    """Everything that determines a compiled program."""

    model: str
    """sha256 of the ONNX file."""
    runtime: str
    """onnxruntime's version and the sha256 of its MIGraphX provider."""
    migraphx: str
    """Names and one sha256 of MIGraphX's libraries."""
    gfx: str
    """The card's architecture, "gfx1201"."""
    precision: Precision
    tuning: Tuning
    shape: Annotated[tuple[Annotated[int, Meta(ge=1, le=1 << 31)], ...], Meta(max_length=8)]
    """Of the model's input."""

    @property
    def digest(self) -> str:
        return sha256(json.dumps(asdict(self), sort_keys=True).encode())[:32]

    def difference(self, other: Key) -> str | None:
        """Return the first part that differs, in words; None: they are the same."""
        for field in fields(self):
            mine, others = getattr(self, field.name), getattr(other, field.name)
            if mine != others:
                return f"it is for {field.name} {_words(others)}, here it is {_words(mine)}"
        return None


@dataclass(frozen=True)
class Measured:
    """The measurements of a program on this machine, from the time it was compiled or imported."""

    load_s: float
    """Seconds from starting the process to the first result."""
    gpu_ms: float
    """Milliseconds of a block, the median."""
    core_ms: float
    """Milliseconds of a block on one core, with the others idle."""
    cpu_ms: float
    """Milliseconds of a block on the CPU with all cores at work: wall time divided by blocks."""
    cpu_cores: int
    compile_s: float | None
    """Seconds; None: it was imported."""
    cosine: float
    """Between the GPU's answer to `canary_signal` and the CPU's."""
    difference: float
    """Length of the difference of the two over the length of the CPU's."""

    def on_cpu(self, cores: int) -> float:
        """Return the milliseconds of a block on so many cores: at least their share, or the time of all.

        All cores are slower than one times their number, because they share memory and arithmetic units.
        """
        return max(self.core_ms / cores, self.cpu_ms)

    def saves(self, calls: int, cores: int) -> bool:
        """Return true if the GPU runs so many blocks sooner than so many cores, loading included."""
        return calls * (self.on_cpu(cores) - self.gpu_ms) / 1e3 > self.load_s


@dataclass(frozen=True)
class Graph:
    """A verified compiled program."""

    key: Key
    name: str
    """The model's name in messages."""
    file: str
    size: int
    sha256: str
    version: str
    """MIGraphX's, from the file."""
    canary: str
    """sha256 of CANARY."""
    measured: Measured
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / self.file

    def reference(self) -> Float32:
        return np.load(self.folder / CANARY, allow_pickle=False)  # type: ignore[no-any-return]

    def manifest(self) -> bytes:
        document = {"format": FORMAT, **asdict(self)}
        del document["folder"]
        return json.dumps(document, indent=1).encode() + b"\n"


def root() -> Path:
    return cache_folder() / "graphs"


def canary_signal(shape: tuple[int, ...]) -> Float32:
    """Return the canary's input: noise of the scale of features, the same for all time."""
    return np.random.RandomState(0).normal(0.0, 3.0, shape).astype(np.float32)


def compare(answer: Float32, reference: Float32) -> tuple[float, float]:
    """Return cosine and relative difference of the GPU's answer to the CPU's; NaN if undefined.

    Raises GraphError if they have different shapes: the program is for another shape.
    """
    if answer.shape != reference.shape:
        raise GraphError(f"it answers with {list(answer.shape)}, not {list(reference.shape)}")
    gpu, cpu = answer.ravel().astype(np.float64), reference.ravel().astype(np.float64)
    length = float(np.sqrt(cpu @ cpu))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = float((gpu @ cpu) / (np.sqrt(gpu @ gpu) * length))
    return cosine, float(np.linalg.norm(gpu - cpu) / length)


def check_canary(cosine: float, difference: float, precision: Precision) -> None:
    """Raise GraphError unless the two answers agree as well as that precision allows."""
    # Written so that NaN fails.
    if not (cosine >= LEAST_COSINE[precision] and difference <= MOST_DIFFERENCE[precision]):
        raise GraphError(
            f"the GPU gives other numbers than the CPU (cosine {cosine:.6f}, difference {difference:.4f})"
        )


def find(key: Key) -> Graph | None:
    """Return the verified program for `key`, if any. Raises GraphError for a program that is not sound."""
    folder = root() / key.digest
    return read(folder, key) if folder.is_dir() else None


def read(folder: Path, key: Key | None = None) -> Graph:
    """Return the program in `folder`, every byte of it verified without loading it.

    Raises GraphError: half-written, damaged, or not for `key`.
    """
    try:
        graph = _parse((folder / MANIFEST).read_bytes(), folder)
        contents = {path.name: path for path in folder.iterdir()}
        if key is not None and (difference := key.difference(graph.key)):
            raise GraphError(difference)
        if set(contents) != {MANIFEST, CANARY, graph.file}:
            raise GraphError(f"its folder holds {', '.join(sorted(contents))}")
        program = graph.path.read_bytes()
        if len(program) != graph.size or sha256(program) != graph.sha256:
            raise GraphError("the program is damaged or not the one that was checked (sha256)")
        if sha256((folder / CANARY).read_bytes()) != graph.canary:
            raise GraphError("the canary is damaged (sha256)")
    except OSError as error:
        raise GraphError(f"it is half-written ({error.strerror})") from error
    version = check_program(program, graph.file, graph.key).version
    if version != graph.version:
        raise GraphError(f"it was compiled by MIGraphX {version}, not {graph.version}")
    return graph


def _parse(content: bytes, folder: Path) -> Graph:
    try:
        document = typed_json.decode(content, dict[str, Any])
        if (name := document.pop("format", None)) != FORMAT:
            raise ValueError(f"its format is {str(name)[:80]!r}, not {FORMAT!r}")
        graph = msgspec.convert({**document, "folder": folder}, Graph)
        file = graph.file
        if Path(file).name != file or not file.endswith(".mxr") or "\0" in file:
            raise ValueError(f"{file[:80]!r} is not the name of a program - at `$.file`")
    except (ValueError, msgspec.ValidationError) as error:
        raise GraphError(f"its {MANIFEST} is damaged ({error})") from error
    return graph


@dataclass(frozen=True)
class Facts:
    """The content of an .mxr file that is checked."""

    version: str
    inputs: dict[str, tuple[int, ...]]
    """Shapes of its parameters, outputs among them."""
    precision: Precision


def read_facts(program: bytes) -> Facts:
    """Read an .mxr file, which is msgpack, without MIGraphX. Raises GraphError if it is not one."""
    try:
        document = msgpack.unpackb(program, strict_map_key=False, unicode_errors="replace")
        if document["version"] < MXR_VERSION:
            raise GraphError(
                f"its file format is {str(document['version'])[:80]}, which is older than {MXR_VERSION}"
            )
        nodes = [node for module in document["modules"].values() for node in module["nodes"]]
        inputs, numbers = {}, {"float_type": 0, "half_type": 0}
        for node in nodes:
            shape = node["shape"]
            lens = tuple(shape["lens"] or ())
            if node["name"] == "@param":
                inputs[node["operator"]["parameter"]] = lens
            elif shape["type"] in numbers:
                numbers[shape["type"]] += int(np.prod(lens))
        version = str(document["migraphx_version"])
    except (*typed_json.DAMAGED, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise GraphError(f"the program is truncated or not an .mxr file ({error})") from error
    half = numbers["half_type"] > numbers["float_type"]
    return Facts(version, inputs, Precision.FP16 if half else Precision.FP32)


def check_program(program: bytes, file: str, key: Key) -> Facts:
    """Raise GraphError unless the program and its name are for the key's shape, precision and GPU."""
    content = read_facts(program)
    if key.shape not in content.inputs.values():
        shapes = ", ".join("x".join(map(str, shape)) for shape in content.inputs.values())
        raise GraphError(f"it was compiled for the shapes {shapes}, not {_words(key.shape)}")
    if content.precision != key.precision:
        raise GraphError(f"it is a program in {content.precision}, not {key.precision}")
    # <version>-<graph>-<architecture>-<shapes>.mxr; the architecture is Murmur3 of the driver's name for the
    # GPU, so it identifies the card that really compiled.
    if (file.split("-") + [""] * 3)[2] != f"{mmh3.hash64(key.gfx, 0, False, signed=False)[0]:x}":
        raise GraphError(f"it was compiled for another GPU than {key.gfx}")
    return content


# --- writing ---


@contextmanager
def scratch_folder(name: str, limit: float) -> Iterator[Path]:
    """Give a temporary folder to one process at a time, and remove those that killed ones left.

    `name` is a key's digest, or "import". Waits at most `limit` seconds for another process. Raises
    GraphError.
    """
    root().mkdir(parents=True, exist_ok=True)
    try:
        lock = _lock(name, timeout=limit).acquire()
    except filelock.Timeout as error:
        raise GraphError(f"another process has been compiling or importing for {limit:.0f} s") from error
    with lock:
        for left in root().glob(f".{name}-*"):
            shutil.rmtree(left, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(dir=root(), prefix=f".{name}-"))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def add(path: Path, key: Key, name: str, measured: Measured, canary: Float32) -> Graph:
    """Move the program at `path`, in a scratch folder, into the cache.

    `name` is the model's, `canary` the CPU's answer to `canary_signal`. Raises GraphError if the program is
    not sound.
    """
    program, content = path.read_bytes(), io.BytesIO()
    np.save(content, canary, allow_pickle=False)
    version = check_program(program, path.name, key).version
    sums, folder = (sha256(program), version, sha256(content.getvalue())), root() / key.digest
    graph = Graph(key, name, path.name, len(program), *sums, measured, folder)
    atomic.replace(content.getvalue(), path.with_name(CANARY))
    atomic.replace(graph.manifest(), path.with_name(MANIFEST))
    read(path.parent, key)
    path.chmod(0o444)  # should the provider want to write its own over it, it fails
    shutil.rmtree(folder, ignore_errors=True)
    path.parent.rename(folder)
    return graph


def folders() -> list[Path]:
    return sorted(path for path in root().glob("[0-9a-f]*") if path.is_dir())


def read_or_error(folder: Path) -> Graph | GraphError:
    try:
        return read(folder)
    except GraphError as error:
        return error


def clear() -> int:
    """Remove everything that no other process is building; return the number of bytes freed."""
    freed = 0
    for path in [path for path in root().glob("*") if path.is_dir()]:
        size = sum(file.stat().st_size for file in path.iterdir())
        try:
            with _lock(path.name.lstrip(".").partition("-")[0], timeout=0):
                shutil.rmtree(path)
        except filelock.Timeout:
            continue
        freed += size
    return freed


def pack(graph: Graph) -> bytes:
    """Pack a program as a zip file; the same program gives the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in (MANIFEST, graph.file, CANARY):
            info = zipfile.ZipInfo(name)  # dated 1980
            info.external_attr = 0o644 << 16
            archive.writestr(info, (graph.folder / name).read_bytes())  # weights do not compress
    return content.getvalue()


def unpack(file: Path, folder: Path) -> Graph:
    """Unpack a file of `pack` in `folder`, verified. Raises InputError; GraphError if it is damaged.

    Nothing in it is compressed, so nothing can be larger than the file; all names and sizes are checked
    before anything is read.
    """
    try:
        with opened(file) as content, zipfile.ZipFile(content) as archive:
            entries = {info.filename: info for info in archive.infolist()}
            for name, info in entries.items():
                largest = LARGEST_PARTS.get(name, LARGEST)
                if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                    raise GraphError(f"{name!r} in it is compressed")
                if info.file_size > largest:
                    raise GraphError(
                        f"{name!r} in it has {info.file_size >> 20} MiB, {largest >> 20} at most"
                    )
            if MANIFEST not in entries:
                raise ValueError(f"it has no {MANIFEST}")
            graph = _parse(archive.read(MANIFEST), folder)
            if set(entries) != {MANIFEST, CANARY, graph.file} or len(archive.infolist()) != 3:
                raise GraphError(f"it holds {', '.join(map(repr, sorted(entries)))}"[:500])
            for name in entries:
                atomic.replace(archive.read(name), folder / name)
    except typed_json.DAMAGED as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{file}: not a file of `witness gpu export` ({why}); export it again") from error
    return read(folder)


# --- `witness gpu status` and `export` ---


@dataclass(frozen=True)
class CachedGraph:
    """A folder of the cache."""

    name: str
    state: str
    """"ready", or the reason why it is not used here."""
    graph: Graph | None
    """None: it is damaged."""


@dataclass(frozen=True)
class Inventory:
    """The cards and the compiled graphs of this machine: the fields of `witness gpu status --json`."""

    cards: tuple[cards.Card, ...]
    trouble: str | None
    """The reason why no card can be used."""
    graphs: tuple[CachedGraph, ...]


def take_inventory() -> Inventory:
    visible, stacks = cards.list_cards(), []
    trouble = None if visible else "no AMD GPU is visible"
    try:
        stacks = [find_stack(card) for card in visible]
    except DeviceError as error:
        trouble = str(error)
    return Inventory(
        visible, trouble, tuple(_compare_with_stacks(folder, stacks, trouble) for folder in folders())
    )


def _compare_with_stacks(folder: Path, stacks: list[Stack], trouble: str | None) -> CachedGraph:
    graph = read_or_error(folder)
    if isinstance(graph, GraphError):
        return CachedGraph(folder.name, f"damaged: {graph}", None)
    keys = (
        dataclasses.replace(graph.key, runtime=stack.runtime, migraphx=stack.migraphx, gfx=stack.gfx)
        for stack in stacks
    )
    differences = [key.difference(graph.key) for key in keys] or [trouble]
    return CachedGraph(folder.name, "ready" if None in differences else str(differences[0]), graph)


def export(file: Path, prefix: str | None) -> Graph:
    """Write a compiled graph to `file`: the graph whose name begins with `prefix`, or the only graph.

    Raises GraphError, UsageError or OutputError.
    """
    names = [folder.name for folder in folders() if folder.name.startswith(prefix or "")]
    if len(names) != 1:
        count = f"{len(names)} of them begin with {prefix!r}" if prefix else f"there are {len(names)}"
        raise UsageError(f"name one compiled graph: {count}; `witness gpu status` lists them")
    try:
        graph = read(root() / names[0])
    except GraphError as error:
        raise GraphError(f"{names[0]} cannot be used: {error}; `witness gpu warm` makes it again") from error
    atomic.write(pack(graph), file)
    return graph


def _lock(digest: str, timeout: float) -> filelock.BaseFileLock:
    return filelock.FileLock(root() / f"{digest}.lock", timeout=timeout)


def _words(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
