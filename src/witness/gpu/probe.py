"""`witness probe`: any ONNX model tried on MIGraphX, and compared with the CPU."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from witness.errors import DeviceError
from witness.gpu import graph_cache
from witness.gpu.migraphx import read_onnx, refused
from witness.gpu.process import GpuProcess
from witness.gpu.rocm import Stack, choose_card, find_stack, note_ignored_variables
from witness.gpu.strict import MIGRAPHX, Shapes, Trial, try_model
from witness.progress import SILENT, Reporter
from witness.storage.files import sha256
from witness.text import number


def probe(
    path: Path, shapes: Shapes, gpu: int | None, limit: float, reporter: Reporter = SILENT
) -> dict[str, str]:
    """Try the model at `path`, which may have any inputs, in child processes, twice: to compile and to load.

    Return the findings in words; differences from the CPU are those of the worst output. Raises DeviceError,
    ModelError or UsageError.
    """
    source = read_onnx(path)
    cpu = try_model(source, path.name, shapes, None)
    stack = find_stack(choose_card(gpu))
    note_ignored_variables(reporter)
    with tempfile.TemporaryDirectory(prefix="witness-probe-") as folder:
        request = {"do": "try", "shapes": shapes, **stack.request(path.name, Path(folder))}
        compiled, loaded = (_try(request, source, stack, limit, reporter) for _ in range(2))
    taken = sum(compiled.nodes.pop(MIGRAPHX, {}).values())
    left = sum(map(Counter, compiled.nodes.values()), Counter[str]())
    compared = [graph_cache.compare(*pair) for pair in zip(loaded.outputs, cpu.outputs, strict=True)]
    inputs = (f"{name} {'x'.join(map(str, shape))}" for name, shape in cpu.inputs.items())
    ran = {
        "compile": number(compiled.open_s, ".1f", " s"),
        "load": number(loaded.open_s, ".2f", " s"),
        "GPU": number(loaded.run_ms, ".1f", " ms"),
        "CPU": number(cpu.run_ms, ".1f", " ms"),
        "cosine": number(min((cosine for cosine, _ in compared), default=None), ".6f"),
        "difference": number(max((difference for _, difference in compared), default=None), ".2e"),
    }
    return {
        "model": path.name,
        "sha256": sha256(source)[:16],
        "inputs": ", ".join(inputs),
        "nodes on the GPU": f"{taken} of {taken + left.total()}",
        "left to the CPU": ", ".join(f"{operator} ({left[operator]})" for operator in sorted(left)) or "-",
        **(ran if taken else {**dict.fromkeys(ran, "-"), "CPU": ran["CPU"]}),
        "card": stack.title,
        "onnxruntime": stack.runtime.partition(",")[0].removeprefix("onnxruntime "),
        "MIGraphX": stack.migraphx.rpartition(" ")[0],
    }


def markdown(row: Mapping[str, str]) -> str:
    """Return a table of one row."""
    cells = [row.keys(), ["---"] * len(row), (value.replace("|", "\\|") for value in row.values())]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _try(request: dict[str, Any], source: bytes, stack: Stack, limit: float, reporter: Reporter) -> Trial:
    try:
        with GpuProcess() as process:
            reply, outputs = process.request(request, source, limit=limit, reporter=reporter)
    except DeviceError as error:
        raise refused(request["name"], stack, error) from error
    return Trial(**reply, outputs=outputs)
