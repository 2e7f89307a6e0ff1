"""What `witness gpu` and `witness probe` do: fill, show and move the compiled-graph cache, try a model."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from witness import files
from witness.amd import cards, graphs, migraphx
from witness.amd.graphs import Graph, Tuning
from witness.amd.migraphx import Job
from witness.amd.process import GpuProcess
from witness.amd.rocm import Machine, choose_card, ignored_variables, machine
from witness.diarization import embedding
from witness.errors import DeviceError, GraphError, ModelError, UsageError
from witness.models import store
from witness.options import Precision
from witness.reporter import SILENT, Reporter
from witness.schema import Float32
from witness.sessions import MIGRAPHX, Model, provider_options, try_model

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Wanted:
    """Which model, on which card and how; the counterpart of the commands' options."""

    models: str = "auto"
    model: Path | None = None
    """An ONNX file with one input, instead of the voice model of `models`."""
    shapes: tuple[str, ...] = ()
    gpu: int | None = None
    precision: Precision = Precision.FP32
    tuning: Tuning = "default"
    offline: bool = False


def warm(wanted: Wanted, limit: float, *, reporter: Reporter = SILENT) -> Graph:
    """Compile, unless that is done already. Raises DeviceError, ModelError or UsageError."""
    job, cpu = _job(wanted, machine(choose_card(wanted.gpu)), reporter)
    _note_ignored(reporter)
    return migraphx.warm(job, cpu, limit=limit, reporter=reporter)


def _job(wanted: Wanted, where: Machine, reporter: Reporter) -> tuple[Job, Callable[[Float32], Float32]]:
    """The model that is meant, and the same on the CPU."""
    if wanted.model is None:
        if wanted.shapes:
            raise UsageError("--shape is for --model; the voice model has a shape of its own")
        file = store.diarization_models(wanted.models, offline=wanted.offline, reporter=reporter).embedding
        voice = embedding.load(file)
        source, name = voice.trunk_part, f"trunk of {file.name}"
        shape: tuple[int, ...] = embedding.BLOCK_SHAPE
        cpu: Callable[[Float32], Float32] = voice.trunk
    else:
        source, name = _read(wanted.model), wanted.model.name
        whole = Model(source, str(wanted.model))
        shape, cpu = _input_shape(whole, parse_shapes(wanted.shapes)), whole
    return Job(where, source, name, shape, wanted.precision, wanted.tuning), cpu


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); name an ONNX file") from error


def _input_shape(model: Model, shapes: Shapes) -> tuple[int, ...]:
    """The shape given for the model's one input. Raises UsageError if it is not, or does not fit."""
    example = "x".join(str(size or 1) for size in model.input_shape)
    shape = shapes.pop(model.input_name, None)
    if shapes or shape is None:
        raise UsageError(f"give the shape of the input: --shape {model.input_name}={example} or other sizes")
    pairs = zip(model.input_shape, shape, strict=False)
    if len(shape) != len(model.input_shape) or any(size not in (None, wanted) for size, wanted in pairs):
        raise UsageError(f"--shape does not fit the input, which is like {model.input_name}={example}")
    return shape


def parse_shapes(texts: Sequence[str]) -> Shapes:
    """`name=1x998x80` -> name and sizes. Raises UsageError."""
    shapes: Shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        parts = sizes.split("x")
        if not name or not all(part.isascii() and part.isdigit() and int(part) for part in parts):
            raise UsageError(f"--shape {text!r} is not like feats=1x998x80")
        shapes[name] = tuple(map(int, parts))
    return shapes


def _note_ignored(reporter: Reporter) -> None:
    if ignored := ignored_variables():
        reporter.note(f"ignored, because they change what MIGraphX runs: {', '.join(ignored)}")


@dataclass(frozen=True)
class Kept:
    """A folder of the cache."""

    name: str
    state: str
    """"ready", or why it is not used here."""
    graph: Graph | None


@dataclass(frozen=True)
class Status:
    """The cards and the compiled-graph cache of this machine."""

    cards: tuple[cards.Card, ...]
    trouble: str | None
    """Why no card can be used."""
    graphs: tuple[Kept, ...]


def status() -> Status:
    """Everything in the cache, held against this machine's cards and libraries."""
    there, machines = cards.cards(), []
    trouble = None if there else "no AMD GPU is visible"
    try:
        machines = [machine(card) for card in there]
    except DeviceError as error:
        trouble = str(error)
    return Status(there, trouble, tuple(_kept(folder, machines, trouble) for folder in graphs.folders()))


def _kept(folder: Path, machines: list[Machine], trouble: str | None) -> Kept:
    graph = graphs.look(folder)
    if isinstance(graph, GraphError):
        return Kept(folder.name, f"damaged: {graph}", None)
    differences = [_here(graph, where).difference(graph.key) for where in machines] or [trouble]
    return Kept(folder.name, "ready" if None in differences else str(differences[0]), graph)


def _here(graph: Graph, where: Machine) -> graphs.Key:
    return replace(graph.key, runtime=where.runtime, migraphx=where.migraphx, gfx=where.gfx)


def export(file: Path, which: str | None) -> Graph:
    """Write one compiled graph to `file`. Raises GraphError, UsageError or OutputError."""
    names = [folder.name for folder in graphs.folders() if folder.name.startswith(which or "")]
    if len(names) != 1:
        some = f"{len(names)} of them begin with {which!r}" if which else f"there are {len(names)}"
        raise UsageError(f"name one compiled graph: {some}; `witness gpu status` lists them")
    try:
        graph = graphs.read(graphs.root() / names[0])
    except GraphError as error:
        raise GraphError(f"{names[0]} is no good: {error}; `witness gpu warm` makes it anew") from error
    files.write(graphs.pack(graph), file)
    return graph


def import_(file: Path, wanted: Wanted, *, reporter: Reporter = SILENT) -> Graph:
    """Take a compiled graph from `file` if it is for this machine and computes what the CPU does.

    Raises InputError if the file is no good, GraphError naming the part that does not match.
    """
    graphs.root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=graphs.root(), prefix=".import-") as folder:
        graph = graphs.unpack(file, Path(folder))
        wanted = replace(wanted, precision=graph.key.precision, tuning=graph.key.tuning)
        if wanted.model is not None and not wanted.shapes:
            name = Model(_read(wanted.model), str(wanted.model)).input_name
            wanted = replace(wanted, shapes=(f"{name}={'x'.join(map(str, graph.key.shape))}",))
        where = machine(choose_card(wanted.gpu))
        job, cpu = _job(wanted, where, reporter)
        _note_ignored(reporter)
        try:
            return migraphx.adopt(job, graph, cpu)
        except DeviceError as error:
            raise GraphError(f"{file}: not taken: {error}; `witness gpu warm` compiles one here") from error


@dataclass(frozen=True)
class Probe:
    """What MIGraphX makes of a model."""

    name: str
    sha256: str
    machine: Machine
    inputs: Shapes
    taken: int
    left: dict[str, int]
    """Operators that the CPU has to run, and how many nodes."""
    compile_s: float | None
    """None, like all that follow: MIGraphX took no node."""
    load_s: float | None
    gpu_ms: float | None
    cpu_ms: float
    cosine: float | None
    """The worst of all outputs."""
    difference: float | None

    def row(self) -> dict[str, str]:
        """The columns of docs/verified-models.md."""
        left = ", ".join(f"{operator} ({count})" for operator, count in sorted(self.left.items()))
        shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in self.inputs.items())
        return {
            "model": self.name,
            "sha256": self.sha256[:16],
            "inputs": shapes,
            "nodes on the GPU": f"{self.taken} of {self.taken + sum(self.left.values())}",
            "left to the CPU": left or "-",
            "compile": _number(self.compile_s, "{:.1f} s"),
            "load": _number(self.load_s, "{:.2f} s"),
            "GPU": _number(self.gpu_ms, "{:.1f} ms"),
            "CPU": _number(self.cpu_ms, "{:.1f} ms"),
            "cosine": _number(self.cosine, "{:.6f}"),
            "difference": _number(self.difference, "{:.2e}"),
            "card": self.machine.title,
            "onnxruntime": self.machine.runtime.partition(",")[0].removeprefix("onnxruntime "),
            "MIGraphX": self.machine.migraphx.rpartition(" ")[0],
        }

    def markdown(self) -> str:
        row = self.row()
        cells = [row.keys(), ["---"] * len(row), (value.replace("|", "\\|") for value in row.values())]
        return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def probe(
    path: Path,
    shapes: Shapes,
    card: int | None,
    limit: float,
    *,
    reporter: Reporter = SILENT,
) -> Probe:
    """Try an ONNX model with any inputs on MIGraphX, in child processes. Raises ModelError or DeviceError."""
    source = _read(path)
    cpu = try_model(source, path.name, shapes, None)
    where = machine(choose_card(card))
    _note_ignored(reporter)
    with tempfile.TemporaryDirectory(prefix="witness-probe-") as folder:
        request = {
            "do": "try",
            "name": path.name,
            "shapes": shapes,
            "libraries": [str(library) for library in where.libraries],
            "provider": provider_options(folder, gpu=where.card.index, fp16=False, exhaustive=False),
        }
        first, _ = _try(request, source, where, limit, reporter)
        second, answers = _try(request, source, where, limit, reporter)
    nodes: dict[str, dict[str, int]] = first["nodes"]
    taken = sum(nodes.pop(MIGRAPHX, {}).values())
    left: dict[str, int] = {}
    for counts in nodes.values():
        left.update({operator: left.get(operator, 0) + count for operator, count in counts.items()})
    known = [graphs.compare(*pair) for pair in zip(answers, cpu.outputs, strict=True)]
    return Probe(
        path.name,
        hashlib.sha256(source).hexdigest(),
        where,
        cpu.inputs,
        taken,
        left,
        first["open_s"] if taken else None,
        second["open_s"] if taken else None,
        second["run_ms"] if taken else None,
        cpu.run_ms,
        min(cosine for cosine, _ in known) if taken and known else None,
        max(difference for _, difference in known) if taken and known else None,
    )


def _try(
    request: dict[str, Any], source: bytes, where: Machine, limit: float, reporter: Reporter
) -> tuple[dict[str, Any], list[Float32]]:
    process = GpuProcess()
    try:
        return process.ask(request, source, limit=limit, reporter=reporter)
    except DeviceError as error:
        raise migraphx.refused(request["name"], where, error) from error
    finally:
        process.kill()
