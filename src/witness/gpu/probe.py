"""`witness probe`: any ONNX model tried on MIGraphX, and compared with the CPU."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from witness.errors import DeviceError
from witness.gpu import graph_cache
from witness.gpu.migraphx import read_onnx, refused
from witness.gpu.process import GpuProcess
from witness.gpu.rocm import Stack, choose_card, find_stack, note_ignored_variables, provider_options
from witness.gpu.strict import MIGRAPHX, Shapes, try_model
from witness.progress import SILENT, Reporter
from witness.schema import Float32
from witness.storage.files import sha256
from witness.text import number


@dataclass(frozen=True)
class Probe:
    """The result of trying a model on MIGraphX."""

    name: str
    sha256: str
    stack: Stack
    inputs: Shapes
    taken: int
    """Nodes that MIGraphX runs."""
    left: dict[str, int]
    """Operator -> number of nodes that the CPU has to run."""
    compile_s: float | None
    """Seconds; None, like all that follow: MIGraphX took no node."""
    load_s: float | None
    """Seconds to open it once it is compiled."""
    gpu_ms: float | None
    """Milliseconds of a run."""
    cpu_ms: float
    """Milliseconds of a run on one core."""
    cosine: float | None
    """Between the GPU's answer and the CPU's; the worst of all outputs."""
    difference: float | None
    """Length of the difference of the two over the length of the CPU's; the worst of all outputs."""

    def row(self) -> dict[str, str]:
        left = ", ".join(f"{operator} ({count})" for operator, count in sorted(self.left.items()))
        shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in self.inputs.items())
        return {
            "model": self.name,
            "sha256": self.sha256[:16],
            "inputs": shapes,
            "nodes on the GPU": f"{self.taken} of {self.taken + sum(self.left.values())}",
            "left to the CPU": left or "-",
            "compile": number(self.compile_s, ".1f", " s"),
            "load": number(self.load_s, ".2f", " s"),
            "GPU": number(self.gpu_ms, ".1f", " ms"),
            "CPU": number(self.cpu_ms, ".1f", " ms"),
            "cosine": number(self.cosine, ".6f"),
            "difference": number(self.difference, ".2e"),
            "card": self.stack.title,
            "onnxruntime": self.stack.runtime.partition(",")[0].removeprefix("onnxruntime "),
            "MIGraphX": self.stack.migraphx.rpartition(" ")[0],
        }

    def markdown(self) -> str:
        row = self.row()
        cells = [row.keys(), ["---"] * len(row), (value.replace("|", "\\|") for value in row.values())]
        return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def probe(path: Path, shapes: Shapes, gpu: int | None, limit: float, reporter: Reporter = SILENT) -> Probe:
    """Try the model at `path`, which may have any inputs, in child processes, twice: to compile and to load.

    Raises DeviceError, ModelError or UsageError.
    """
    source = read_onnx(path)
    on_cpu = try_model(source, path.name, shapes, None)
    stack = find_stack(choose_card(gpu))
    note_ignored_variables(reporter)
    with tempfile.TemporaryDirectory(prefix="witness-probe-") as folder:
        request = {
            "do": "try",
            "name": path.name,
            "shapes": shapes,
            "libraries": [str(library) for library in stack.libraries],
            "provider": provider_options(
                stack.provider, folder, gpu=stack.card.index, fp16=False, exhaustive=False
            ),
        }
        compiled, _ = _try(request, source, stack, limit, reporter)
        loaded, answers = _try(request, source, stack, limit, reporter)
    nodes: dict[str, dict[str, int]] = compiled["nodes"]
    taken = sum(nodes.pop(MIGRAPHX, {}).values())
    left: dict[str, int] = {}
    for counts in nodes.values():
        left.update({operator: left.get(operator, 0) + count for operator, count in counts.items()})
    compared = (
        [graph_cache.compare(*pair) for pair in zip(answers, on_cpu.outputs, strict=True)] if taken else []
    )
    return Probe(
        path.name,
        sha256(source),
        stack,
        on_cpu.inputs,
        taken,
        left,
        compile_s=compiled["open_s"] if taken else None,
        load_s=loaded["open_s"] if taken else None,
        gpu_ms=loaded["run_ms"] if taken else None,
        cpu_ms=on_cpu.run_ms,
        cosine=min((cosine for cosine, _ in compared), default=None),
        difference=max((difference for _, difference in compared), default=None),
    )


def _try(
    request: dict[str, Any], source: bytes, stack: Stack, limit: float, reporter: Reporter
) -> tuple[dict[str, Any], list[Float32]]:
    process = GpuProcess()
    try:
        return process.ask(request, source, limit=limit, reporter=reporter)
    except DeviceError as error:
        raise refused(request["name"], stack, error) from error
    finally:
        process.kill()
