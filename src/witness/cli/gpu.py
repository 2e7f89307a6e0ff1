"""`witness gpu` and `witness probe`: what MIGraphX compiles for an AMD GPU."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from witness.cli import options

if TYPE_CHECKING:
    from witness.amd.graphs import Graph


@click.group("gpu", invoke_without_command=True)
@click.pass_context
def gpu_group(ctx: click.Context) -> None:
    """The graphs that MIGraphX compiled for an AMD GPU: which there are, make them, move them."""
    options.help_alone(ctx)


@gpu_group.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
def gpu_status(as_json: bool) -> None:
    """The AMD cards, and every compiled graph: for what it is, what it saves, whether it is used here."""
    from witness.amd import warmup

    found = warmup.status()
    if as_json:
        click.echo(json.dumps(asdict(found), indent=1, default=str))
        return
    for card in found.cards:
        memory = f"{card.memory_total / 2**30:.1f} GiB"
        click.echo(f"GPU {card.index}  {card.name}  {card.gfx}  {memory}  {card.supported} for MIGraphX")
    if found.trouble:
        click.echo(found.trouble)
    for graph in found.graphs:
        click.echo(f"{graph.name}  {graph.state}")
        if graph.graph is not None:
            click.echo(f"    {_measured(graph.graph)}")
    if not found.graphs:
        click.echo("no compiled graphs; `witness gpu warm` makes them")


@gpu_group.command("warm")
@options.MODELS
@options.MODEL
@options.SHAPE
@options.GPU
@options.PRECISION
@click.option("--exhaustive", is_flag=True, help="Have MIGraphX try all kernels, which takes long.")
@options.LIMIT
@options.OFFLINE
def gpu_warm(limit: float, exhaustive: bool, **settings: Any) -> None:
    """Compile the voice model for a card, check it against the CPU, measure both, and keep it."""
    from witness.amd import warmup

    wanted = warmup.Wanted(**settings, tuning="exhaustive" if exhaustive else "default")
    with options.progress(quiet=False) as reporter:
        graph = warmup.warm(wanted, limit, reporter=reporter)
    click.echo(f"{graph.folder.name}  ready\n    {_measured(graph)}")


@gpu_group.command("clear")
def gpu_clear() -> None:
    """Remove all compiled graphs."""
    from witness.amd import graphs

    click.echo(f"{graphs.clear() / 1e6:,.1f} MB freed")


@gpu_group.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("graph", required=False)
def gpu_export(file: Path, graph: str | None) -> None:
    """Write one compiled graph to FILE (zip). GRAPH: the beginning of its name, if there are several."""
    from witness.amd import warmup

    found = warmup.export(file, graph)
    click.echo(f"{file}\n    {_measured(found)}")


@gpu_group.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@options.MODELS
@options.MODEL
@options.GPU
@options.OFFLINE
def gpu_import(file: Path, **settings: Any) -> None:
    """Take a compiled graph from FILE, if it is for this very machine and passes the check on it."""
    from witness.amd import warmup

    with options.progress(quiet=False) as reporter:
        graph = warmup.import_(file, warmup.Wanted(**settings), reporter=reporter)
    click.echo(f"{graph.folder.name}  ready\n    {_measured(graph)}")


def _measured(graph: Graph) -> str:
    """What a compiled graph is for, and what was measured with it, in one line."""
    key, measured = graph.key, graph.measured
    how = "imported" if measured.compile_s is None else f"compiled in {measured.compile_s:.1f} s"
    shape = "x".join(map(str, key.shape))
    return (
        f"{graph.name}, {shape}, {key.precision}, {key.gfx}, MIGraphX {graph.version}, "
        f"{graph.size / 1e6:.1f} MB, {how}, loads in {measured.load_s:.1f} s, GPU {measured.gpu_ms:.1f} ms, "
        f"CPU {measured.cpu_ms:.1f} ms ({measured.cpu_cores} cores), cosine {measured.cosine:.6f}"
    )


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@options.SHAPE
@options.GPU
@options.LIMIT
def probe(model: Path, shapes: tuple[str, ...], gpu: int | None, limit: float) -> None:
    """Try an ONNX MODEL on MIGraphX: which nodes it takes, times, numbers against the CPU's.

    Prints a row for docs/verified-models.md.
    """
    from witness.amd import warmup

    with options.progress(quiet=False) as reporter:
        found = warmup.probe(model, warmup.parse_shapes(shapes), gpu, limit, reporter=reporter)
    click.echo(found.markdown(), nl=False)
