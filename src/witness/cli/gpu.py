"""`witness gpu` and `witness probe`: what MIGraphX compiled, or can compile, for an AMD GPU."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from witness.cli import options
from witness.errors import UsageError
from witness.options import Precision
from witness.progress import Reporter

if TYPE_CHECKING:
    from witness.gpu.graph_cache import Graph
    from witness.gpu.migraphx import Subject


@click.group(
    "gpu",
    cls=options.Group,
    invoke_without_command=True,
    short_help="Compile, list and move graphs for an AMD GPU.",
)
@click.pass_context
def gpu_group(ctx: click.Context) -> None:
    """Compile, list and move the graphs of an AMD GPU (MIGraphX)."""
    options.help_alone(ctx)


@gpu_group.command("status")
@options.JSON
def gpu_status(as_json: bool) -> None:
    """Show the AMD cards, and the model, the gain and the use of each compiled graph.

    \b
    Examples:
      witness gpu status
      witness gpu status --json
    """
    from witness.gpu import graph_cache

    inventory = graph_cache.take_inventory()
    if as_json:
        options.say(json.dumps(asdict(inventory), indent=1, default=str))
        return
    for card in inventory.cards:
        memory = f"{card.memory_total / 2**30:.1f} GiB"
        options.say(f"GPU {card.index}  {card.name}  {card.gfx}  {memory}  {card.supported} for MIGraphX")
    if inventory.trouble:
        options.say(inventory.trouble)
    for cached in inventory.graphs:
        options.say(f"{cached.name}  {cached.state}")
        if cached.graph is not None:
            options.say(f"    {_measured(cached.graph)}")
    if not inventory.graphs:
        options.say("no compiled graphs; `witness gpu warm` makes them")


@gpu_group.command("warm")
@options.MODELS
@options.MODEL
@options.SHAPE
@options.GPU
@options.PRECISION
@options.flag("--exhaustive", "Let MIGraphX try all kernels, which takes a long time.")
@options.LIMIT
@options.OFFLINE
def gpu_warm(
    limit: float, exhaustive: bool, gpu: int | None, precision: str, shapes: tuple[str, ...], **choice: Any
) -> None:
    """Compile the voice model for a card, compare it with the CPU, time both, and keep it.

    \b
    Examples:
      witness gpu warm
      witness gpu warm --precision fp16 --limit 1200
    """
    from witness.gpu import migraphx, rocm
    from witness.gpu.graph_cache import Tuning

    tuning = Tuning.EXHAUSTIVE if exhaustive else Tuning.DEFAULT
    with options.progress(quiet=False) as reporter:
        stack = rocm.find_stack(rocm.choose_card(gpu))  # before any model is fetched for it
        if choice["model"] is not None:
            model = migraphx.subject_from_file(choice["model"], migraphx.parse_shapes(shapes))
        elif shapes:
            raise UsageError("--shape is for --model; the voice model has a shape of its own")
        else:
            model = _voice_model(choice["models"], choice["offline"], reporter)
        rocm.note_ignored_variables(reporter)
        target = migraphx.CompileTarget(stack, model, Precision(precision), tuning)
        graph = migraphx.warm(target, limit=limit, reporter=reporter)
    options.say(f"{graph.folder.name}  ready\n    {_measured(graph)}")


@gpu_group.command("clear")
def gpu_clear() -> None:
    """Delete all compiled graphs.

    \b
    Examples:
      witness gpu clear
      witness gpu clear && witness gpu warm
    """
    from witness.gpu import graph_cache

    options.say(f"{graph_cache.clear() / 1e6:,.1f} MB freed")


@gpu_group.command("export")
@click.argument("file", type=options.PATH)
@click.argument("graph", required=False)
def gpu_export(file: Path, graph: str | None) -> None:
    """Write a compiled graph to FILE (zip).

    GRAPH is the beginning of its name; it is needed if there are several.

    \b
    Examples:
      witness gpu export graph.zip
      witness gpu export graph.zip trunk
    """
    from witness.gpu import graph_cache

    options.say(f"{file}\n    {_measured(graph_cache.export(file, graph))}")


@gpu_group.command("import")
@click.argument("file", type=options.PATH)
@options.MODELS
@options.MODEL
@options.GPU
@options.OFFLINE
def gpu_import(file: Path, models: str, model: Path | None, gpu: int | None, offline: bool) -> None:
    """Import a compiled graph from FILE if it fits this machine and passes the check on it.

    \b
    Examples:
      witness gpu import graph.zip
      witness gpu import graph.zip --gpu 1
    """
    from witness.gpu import migraphx, rocm
    from witness.models.session import Model

    with options.progress(quiet=False) as reporter:

        def choose_subject(shape: tuple[int, ...]) -> Subject:
            if model is None:
                return _voice_model(models, offline, reporter)
            source = migraphx.read_onnx(model)
            return migraphx.Subject(source, model.name, shape, Model(source, str(model)))

        graph = migraphx.import_graph(
            file, lambda: rocm.find_stack(rocm.choose_card(gpu)), choose_subject, reporter
        )
    options.say(f"{graph.folder.name}  ready\n    {_measured(graph)}")


def _voice_model(models: str, offline: bool, reporter: Reporter) -> Subject:
    """The voice model of a set. Raises ModelError; DeviceError if it can run on no GPU."""
    from witness.diarization import crash_check, voice_model
    from witness.errors import DeviceError
    from witness.gpu import migraphx
    from witness.models import store
    from witness.pipeline import voice_subject

    file = store.diarization_models(models, offline=offline, reporter=reporter).embedding
    crash_check.try_model("embedding", file)
    subject = voice_subject(voice_model.load(file), file)
    if subject is None:
        raise DeviceError(migraphx.NO_SHAPE)
    return subject


def _measured(graph: Graph) -> str:
    """Describe a compiled graph and its measurements in one line."""
    key, measured = graph.key, graph.measured
    how = "imported" if measured.compile_s is None else f"compiled in {measured.compile_s:.1f} s"
    shape = "x".join(map(str, key.shape))
    return (
        f"{graph.name}, {shape}, {key.precision}, {key.gfx}, MIGraphX {graph.version}, "
        f"{graph.size / 1e6:.1f} MB, {how}, loads in {measured.load_s:.1f} s, GPU {measured.gpu_ms:.1f} ms, "
        f"CPU {measured.cpu_ms:.1f} ms ({measured.cpu_cores} cores), cosine {measured.cosine:.6f}"
    )


@click.command(cls=options.Command, short_help="Try an ONNX model on an AMD GPU.")
@click.argument("model", type=options.PATH)
@options.SHAPE
@options.GPU
@options.LIMIT
def probe(model: Path, shapes: tuple[str, ...], gpu: int | None, limit: float) -> None:
    """Try an ONNX MODEL on MIGraphX: the nodes that run, the time, and the differences from the CPU.

    The result is Markdown.

    \b
    Examples:
      witness probe model.onnx --shape feats=1x998x80
      witness probe model.onnx --gpu 1 --limit 60
    """
    from witness.gpu import migraphx, probe

    with options.progress(quiet=False) as reporter:
        row = probe.probe(model, migraphx.parse_shapes(shapes), gpu, limit, reporter)
    options.say(probe.markdown(row).rstrip("\n"))
