"""How close the models come to what the processor can do: their arithmetic against that of plain products.

    python benchmarks/limit.py FILE [--fast] [--threads N] [--repeat N] [--json OUT.json]

The MACs (multiplications, each with an addition) of every call of segmentation and trunk are counted from the
shapes in the model files. The limit is what onnxruntime's own product of two matrices of a suitable size
reaches on as many cores at the same time. It is measured before and after every run, so that a slow moment of
the machine affects both sides. FILE is anything that Witness reads. Clustering and words are not part of it.
Nor are the builtin models, whose segmentation is not cut in a front and a back.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from witness import resources, tracing
from witness.audio import decode
from witness.bench import machine
from witness.diarization import embedding, embedding_cut, segmentation, segmentation_cut
from witness.models import store
from witness.sessions import Model, on_cores

SIZES = (589, 256, 1024), (512, 512, 512), (1024, 1024, 1024)
"""Rows, inner size, columns: those of an LSTM layer's inputs, and those at which products are fastest."""


def product_rate(threads: int, seconds: float = 1.0) -> float:
    """MACs per second of the fastest of SIZES, on that many threads at the same time."""
    best = 0.0
    for rows, inner, columns in SIZES:
        model, array = _product(rows, inner, columns)

        def count(_: int, model: Model = model, array: Any = array) -> int:
            calls, end = 0, time.perf_counter() + seconds / len(SIZES)
            while time.perf_counter() < end:
                model(array)
                calls += 1
            return calls

        with ThreadPoolExecutor(threads) as pool:
            begun = time.perf_counter()
            calls = sum(pool.map(count, range(threads)))
            best = max(best, calls * rows * inner * columns / (time.perf_counter() - begun))
    return best


@cache
def _product(rows: int, inner: int, columns: int) -> tuple[Model, Any]:
    rng = np.random.default_rng(0)
    weights = numpy_helper.from_array(rng.normal(size=(inner, columns)).astype(np.float32), "weights")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["given", "weights"], ["product"])],
        "product",
        [helper.make_tensor_value_info("given", TensorProto.FLOAT, [rows, inner])],
        [helper.make_tensor_value_info("product", TensorProto.FLOAT, [rows, columns])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Model(model.SerializeToString(), "product"), rng.normal(size=(rows, inner)).astype(np.float32)


def macs(content: bytes, shape: tuple[int, ...]) -> int:
    """MACs of a call of a model with an input of that shape: convolutions, LSTMs and matrix products."""
    model = onnx.load_from_string(content)
    for dimension, size in zip(model.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
        dimension.dim_value = size
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = model.graph
    sizes = {item.name: tuple(item.dims) for item in graph.initializer}
    for item in [*graph.input, *graph.value_info, *graph.output]:
        sizes[item.name] = tuple(size.dim_value for size in item.type.tensor_type.shape.dim)
    total = 0
    for node in graph.node:
        result = sizes.get(node.output[0], ())
        if node.op_type == "Conv":
            total += prod(result) * prod(sizes[node.input[1]][1:])
        elif node.op_type in ("MatMul", "Gemm"):
            total += prod(result) * sizes[node.input[0]][-1]
        elif node.op_type == "LSTM":
            steps, batch = sizes[node.input[0]][:2]
            total += steps * batch * (prod(sizes[node.input[1]]) + prod(sizes[node.input[2]]))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument(
        "--models", default="standard", help="a set or a folder whose segmentation is PyanNet"
    )
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--threads", type=int, default=resources.cores())
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    chosen = store.diarization_models(args.models, offline=True)
    shared = segmentation_cut.cut(chosen.segmentation)
    if shared is None:
        sys.exit(f"{chosen.segmentation.path}: does not begin like PyanNet, as it must here; change --models")
    parts = {
        "front of ": shared[0],
        segmentation_cut.BACK: shared[1],
        "trunk of ": embedding_cut.open_cut(chosen.embedding)[0],
    }
    count = cache(lambda kind, shape: macs(parts[kind], shape))
    recording = decode.load(str(args.file), channels="mix")
    (samples,) = recording.samples
    step = segmentation.step_of(len(samples), fast=args.fast)
    context = embedding.FAST_CONTEXT if args.fast else embedding.CONTEXT
    load = machine.load()

    runs: list[dict[str, Any]] = []
    work: Counter[str] = Counter()
    with tracing.recording() as trace:
        segmenter, voice = segmentation.load(chosen.segmentation), embedding.load(chosen.embedding)
        for number in range(args.repeat):
            trace.calls.clear()
            before = product_rate(args.threads)
            begun = time.perf_counter()
            with on_cores(args.threads) as mapper:
                windows = segmentation.stream(
                    samples, segmenter, step=step, faint=chosen.rule.faint, mapper=mapper
                )
                embedding.embed(samples, windows, voice, context=context, mapper=mapper)
            wall = time.perf_counter() - begun
            rate = (before + product_rate(args.threads)) / 2
            work.clear()
            busy: Counter[str] = Counter()
            for call in trace.calls:
                for kind in parts:
                    if call.model.startswith(kind) and begun <= call.begin <= begun + wall:
                        work[kind] += count(kind, call.shape)
                        busy[kind] += call.wall
            runs.append({"wall": wall, "rate": rate, "share": sum(work.values()) / rate / wall, "busy": busy})
            sys.stderr.write(f"{number + 1} of {args.repeat}\n")

    seconds = len(samples) / 16000
    shares = [run["share"] for run in runs]
    middle = sorted(runs, key=lambda run: run["share"])[len(runs) // 2]
    result = {
        "models": {file.name: file.sha256 for file in (chosen.segmentation, chosen.embedding)},
        "fast": args.fast,
        "seconds": round(seconds, 1),
        "threads": args.threads,
        "gmac_per_audio_second": {
            kind.removesuffix(" of "): round(done / seconds / 1e9, 3) for kind, done in work.items()
        },
        "gmac_per_second": {
            "limit": round(middle["rate"] / 1e9, 1),
            **{
                f"{kind.removesuffix(' of ')}, one core": round(work[kind] / middle["busy"][kind] / 1e9, 1)
                for kind in parts
            },
        },
        "wall": [round(run["wall"], 2) for run in runs],
        "share_of_the_limit": {
            "median": round(middle["share"], 3),
            "all": [round(share, 3) for share in sorted(shares)],
        },
        "load_before": load,
        "hardware": asdict(machine.hardware()),
        "versions": machine.versions(),
        "source_sha256": machine.source_sha256(),
    }
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
