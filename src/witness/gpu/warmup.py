"""What `witness gpu` does: fill, show and move the cache of compiled graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from witness.errors import DeviceError, GraphError, UsageError
from witness.gpu import cards, graphs, migraphx
from witness.gpu.graphs import Graph
from witness.gpu.migraphx import Target
from witness.gpu.rocm import Stack, note_ignored, stack
from witness.gpu.subject import Subject
from witness.progress import SILENT, Reporter
from witness.storage import atomic


def warm(target: Target, limit: float, reporter: Reporter = SILENT) -> Graph:
    """Compile, in `limit` seconds at most, unless it is done already. Raises DeviceError."""
    note_ignored(reporter)
    return migraphx.warm(target, limit=limit, reporter=reporter)


@dataclass(frozen=True)
class CachedGraph:
    """A folder of the cache."""

    name: str
    state: str
    """"ready", or why it is not used here."""
    graph: Graph | None
    """None: it is damaged."""


@dataclass(frozen=True)
class Inventory:
    """The cards and the compiled graphs of this machine: the fields of `witness gpu status --json`."""

    cards: tuple[cards.Card, ...]
    trouble: str | None
    """Why no card can be used."""
    graphs: tuple[CachedGraph, ...]


def inventory() -> Inventory:
    """Everything in the cache, compared with this machine's cards and libraries."""
    there, stacks = cards.cards(), []
    trouble = None if there else "no AMD GPU is visible"
    try:
        stacks = [stack(card) for card in there]
    except DeviceError as error:
        trouble = str(error)
    return Inventory(there, trouble, tuple(_look(folder, stacks, trouble) for folder in graphs.folders()))


def _look(folder: Path, stacks: list[Stack], trouble: str | None) -> CachedGraph:
    graph = graphs.look(folder)
    if isinstance(graph, GraphError):
        return CachedGraph(folder.name, f"damaged: {graph}", None)
    differences = [_here(graph, where).difference(graph.key) for where in stacks] or [trouble]
    return CachedGraph(folder.name, "ready" if None in differences else str(differences[0]), graph)


def _here(graph: Graph, where: Stack) -> graphs.Key:
    """The key that the graph would have if it were compiled for these libraries and this card."""
    return replace(graph.key, runtime=where.runtime, migraphx=where.migraphx, gfx=where.gfx)


def export(file: Path, which: str | None) -> Graph:
    """Write a compiled graph to `file`: the one whose name begins with `which`, or the only one.

    Raises GraphError, UsageError or OutputError.
    """
    names = [folder.name for folder in graphs.folders() if folder.name.startswith(which or "")]
    if len(names) != 1:
        some = f"{len(names)} of them begin with {which!r}" if which else f"there are {len(names)}"
        raise UsageError(f"name one compiled graph: {some}; `witness gpu status` lists them")
    try:
        graph = graphs.read(graphs.root() / names[0])
    except GraphError as error:
        raise GraphError(f"{names[0]} cannot be used: {error}; `witness gpu warm` makes it again") from error
    atomic.write(graphs.pack(graph), file)
    return graph


def import_(
    file: Path,
    where: Callable[[], Stack],
    subject: Callable[[tuple[int, ...]], Subject],
    reporter: Reporter = SILENT,
) -> Graph:
    """Take a compiled graph from `file` if it is for this machine and computes what the CPU does.

    `subject` gives the model that it should be for, once the shape of its input is known, and `where` the
    machine, which is asked for after a look at the file. Raises InputError if the file cannot be used,
    GraphError that names the part that does not match, DeviceError if there is no such machine.
    """
    with graphs.importing() as folder:
        with _taking(file):
            graph = graphs.unpack(file, folder)
        here = where()
        with _taking(file):
            target = Target(here, subject(graph.key.shape), graph.key.precision, graph.key.tuning)
            note_ignored(reporter)
            return migraphx.adopt(target, graph)


@contextmanager
def _taking(file: Path) -> Iterator[None]:
    try:
        yield
    except DeviceError as error:
        raise GraphError(f"{file}: not taken: {error}; `witness gpu warm` compiles one here") from error
