"""The trunk of a voice model on a GPU through ONNX Runtime's WebGPU plug-in, against threads of the CPU.

    python benchmarks/webgpu.py --model builtin --model resnet34 --threads 2,8,16 > webgpu.json

It needs `pip install onnxruntime-ep-webgpu` beside Witness and a Vulkan driver. `builtin` is the package's
own model, and its block is of --recording; `resnet34` has WeSpeaker's shape and random weights, and hears
noise. A block is 26.4 s of features, one run of the trunk; --features takes fewer, for a software driver. The
CPU runs it as Witness does: one session of one thread, called by many. VK_DRIVER_FILES chooses a driver.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import harness
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from witness.audio import decode
from witness.diarization import embedding, embedding_cut
from witness.diarization.embedding import BLOCK_SHAPE
from witness.models import session, store
from witness.models.session import Model, on_cores

CALL = Path(__file__).parent.parent / "tests" / "data" / "call.flac"


def main() -> None:
    parser = harness.options(__doc__)
    parser.add_argument("--model", action="append", choices=["builtin", "resnet34"], required=True)
    parser.add_argument("--recording", type=Path, default=CALL)
    parser.add_argument("--threads", type=lambda text: [int(one) for one in text.split(",")], default=[2])
    parser.add_argument("--rounds", type=int, default=20, help="blocks on the GPU")
    parser.add_argument("--features", type=int, help="of a block, instead of all")
    options = parser.parse_args()
    runtime = session.load_onnxruntime()
    begun = time.perf_counter()
    device = webgpu(runtime)
    registered = time.perf_counter() - begun
    row: dict[str, Any] = {"onnxruntime": runtime.__version__, "register_s": round(registered, 3)}
    for name in options.model:
        trunk, block, head = MODELS[name](options.recording)
        row[name] = measure(runtime, device, trunk, block[:, : options.features], head, options)
    harness.show(row, options.json)


def webgpu(runtime: Any) -> Any:
    """The plug-in's device; it chooses the card itself."""
    import onnxruntime_ep_webgpu as plugin

    runtime.register_execution_provider_library("webgpu", plugin.get_library_path())
    found = [device for device in runtime.get_ep_devices() if device.ep_name == plugin.get_ep_name()]
    if not found:
        raise SystemExit("no WebGPU device; is there a Vulkan loader and a driver?")
    return found[0]


def measure(
    runtime: Any, device: Any, trunk: bytes, block: np.ndarray, head: Any, options: argparse.Namespace
) -> dict[str, Any]:
    def opened(**more: Any) -> Any:
        wish = runtime.SessionOptions()
        wish.log_severity_level = 4
        for name, value in more.items():
            setattr(wish, name, value)
        wish.add_provider_for_devices([device], {})
        return runtime.InferenceSession(trunk, wish, enable_fallback=False)

    before = card_memory()
    begun = time.perf_counter()
    session = opened()
    created = time.perf_counter() - begun
    model = Model.of(session, "trunk")
    begun = time.perf_counter()
    answer = model(block)
    first = time.perf_counter() - begun
    times = []
    for _ in range(options.rounds):
        begun, cpu = time.perf_counter(), time.process_time()
        model(block)
        times.append((time.perf_counter() - begun, time.process_time() - cpu))
    memory = card_memory()

    cpu = Model(trunk, "trunk")
    expected = cpu(block)
    row: dict[str, Any] = {
        "create_s": round(created, 3),
        "first_block_s": round(first, 3),
        "block_ms": milliseconds([wall for wall, _ in times]),
        "cpu_time_ms": milliseconds([cpu for _, cpu in times]),
        "cosine_of_trunk": embedding_cut.cosine(answer, expected),
        "difference_of_trunk": float(np.linalg.norm(answer - expected) / np.linalg.norm(expected)),
        "card_MiB": [before, memory],
        "nodes": nodes(opened, block),
    }
    if head is not None:
        vectors = [head(pooled(frames)) for frames in (answer, expected)]
        row["cosine_of_vectors"] = embedding_cut.cosine(*vectors)
    for threads in options.threads:
        with on_cores(threads) as mapped:
            list(mapped(cpu, [block] * threads))
            begun = time.perf_counter()
            list(mapped(cpu, [block] * 3 * threads))
            row[f"cpu_{threads}_threads_block_ms"] = round(
                1000 * (time.perf_counter() - begun) / (3 * threads), 1
            )
    row["most_memory_MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return row


def milliseconds(seconds: list[float]) -> dict[str, float]:
    return {
        "median": round(1000 * statistics.median(seconds), 1),
        "least": round(1000 * min(seconds), 1),
        "most": round(1000 * max(seconds), 1),
    }


def pooled(frames: np.ndarray) -> np.ndarray:
    rows = embedding_cut.rows(frames)
    return embedding_cut.pool(rows, np.ones((1, len(rows))))


def nodes(opened: Any, block: np.ndarray) -> dict[str, int]:
    """Which provider ran how many nodes, as onnxruntime's profile has it."""
    with tempfile.TemporaryDirectory() as folder:
        session = opened(enable_profiling=True, profile_file_prefix=str(Path(folder, "profile")))
        Model.of(session, "trunk")(block)
        events = json.loads(Path(session.end_profiling()).read_text())
    ran = [event for event in events if event["name"].endswith("_kernel_time")]
    return dict(Counter(event["args"].get("provider", "?") for event in ran))


def card_memory() -> int | None:
    """MiB in use on an NVIDIA card; None: there is none."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def own(recording: Path) -> tuple[bytes, np.ndarray, Any]:
    """The package's own model, and a block of a recording."""
    voices = store.diarization_models("builtin", offline=True).embedding
    trunk, head = embedding_cut.open_cut(voices)
    samples = decode.load(str(recording)).samples[0]
    plan = embedding.plan([np.arange(embedding.BLOCK + 1)])
    _, feats = next(embedding.features(samples, plan))
    return trunk, feats[None], embedding_cut.open_head(head, voices.path)


def resnet34(_recording: Path) -> tuple[bytes, np.ndarray, None]:
    """A trunk of the shape of WeSpeaker's ResNet34-LM with random weights that keep the scale, and noise."""
    rng = np.random.default_rng(0)
    weights: list[onnx.TensorProto] = []
    graph: list[onnx.NodeProto] = []

    def convolve(source: str, inside: int, outside: int, size: int, stride: int) -> str:
        name = f"c{len(graph)}"
        kernel = rng.normal(0, (inside * size * size) ** -0.5, (outside, inside, size, size))
        weights.append(numpy_helper.from_array(kernel.astype(np.float32), f"{name}.w"))
        weights.append(numpy_helper.from_array(rng.normal(0, 0.1, outside).astype(np.float32), f"{name}.b"))
        shape = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [size // 2] * 4}
        graph.append(helper.make_node("Conv", [source, f"{name}.w", f"{name}.b"], [name], **shape))
        return name

    def apply(kind: str, *sources: str, **more: Any) -> str:
        name = f"n{len(graph)}"
        graph.append(helper.make_node(kind, list(sources), [name], **more))
        return name

    weights.append(numpy_helper.from_array(np.array([1]), "one"))
    flow = apply("Unsqueeze", apply("Transpose", "feats", perm=[0, 2, 1]), "one")
    flow, inside = apply("Relu", convolve(flow, 1, 32, 3, 1)), 32
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for number in range(blocks):
            outside, stride = 32 << stage, 2 if stage and not number else 1
            inner = apply("Relu", convolve(flow, inside, outside, 3, stride))
            straight = (
                flow if (inside, stride) == (outside, 1) else convolve(flow, inside, outside, 1, stride)
            )
            flow = apply("Relu", apply("Add", convolve(inner, outside, outside, 3, 1), straight))
            inside = outside
    made = helper.make_graph(
        graph,
        "trunk",
        [helper.make_tensor_value_info("feats", TensorProto.FLOAT, ["B", "T", 80])],
        [helper.make_tensor_value_info(flow, TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return model.SerializeToString(), rng.normal(0, 3, BLOCK_SHAPE).astype(np.float32), None


MODELS = {"builtin": own, "resnet34": resnet34}


if __name__ == "__main__":
    # Without it, the plug-in offers itself only where /sys/class/drm lists a card. It asks Vulkan either way.
    os.environ.setdefault("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1")
    main()
