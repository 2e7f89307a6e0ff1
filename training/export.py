# ruff: noqa: T201 - a training script: what it prints is its result
"""Weights of a training run -> ONNX, checked against torch, weights stored in half precision.

Half precision is for the size of the file only: every weight is cast back to fp32 in the graph, and the
arithmetic is fp32. The check runs both in ONNX Runtime and in torch, with the weights rounded alike.
"""

import argparse
from pathlib import Path

import join
import numpy as np
import onnx
import onnxruntime
import slices
import torch
from models import EmbeddingNet, SegmentationNet
from onnx import TensorProto, helper, numpy_helper
from torch import nn

OPSET = 17
SMALLEST = 256  # values: shorter tensors (normalization) stay in fp32
EXACT = "taps"  # in the name of others that do: many of these numbers make one
SILENCE = 0.4
"""Nats in favor of nobody: there are more kinds of noise in the world than in the simulations, where so
much costs nothing (RUNS.md)."""
TOLERANCE = 1e-4  # largest difference between ONNX Runtime and torch, relative to the largest output


def average(paths: list[Path]) -> dict[str, torch.Tensor]:
    """Return the mean of several snapshots, or a single one unchanged."""
    states = [slices.load(path) for path in paths]
    if len(states) == 1:
        return states[0]
    return {
        name: sum(state[name].float() for state in states) / len(states)
        if first.is_floating_point()
        else first
        for name, first in states[0].items()
    }


def is_halved(name: str, size: int) -> bool:
    """Tell whether the file holds these weights in half precision."""
    return size >= SMALLEST and EXACT not in name


def round_weights(net: nn.Module) -> None:
    """Round the weights that the file holds in half precision."""
    for name, values in (*net.named_parameters(), *net.named_buffers()):
        if values.is_floating_point() and is_halved(name, values.numel()):
            values.data = values.data.half().float()


def halve(model: onnx.ModelProto) -> None:
    """Large fp32 initializers become fp16 with a Cast behind them."""
    casts, kept = [], []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32 or not is_halved(tensor.name, array.size):
            kept.append(tensor)
            continue
        half = numpy_helper.from_array(array.astype(np.float16), f"{tensor.name}_half")
        kept.append(half)
        casts.append(
            helper.make_node("Cast", [half.name], [tensor.name], f"{tensor.name}_cast", to=TensorProto.FLOAT)
        )
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    nodes = casts + list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def export(
    net: nn.Module, example: torch.Tensor, path: Path, names: tuple[str, str], axes: dict[str, dict[int, str]]
) -> None:
    net.eval()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        net, example, str(path), input_names=[names[0]], output_names=[names[1]],
        dynamic_axes=axes, opset_version=OPSET, dynamo=False,
    )  # fmt: skip
    model = onnx.load(path)
    halve(model)
    model.producer_name, model.doc_string = "witness training/export.py", ""
    onnx.checker.check_model(model)
    onnx.save(model, path)


def check(net: nn.Module, inputs: list[torch.Tensor], path: Path, shapes: list[tuple[int, ...]]) -> float:
    """The largest relative difference over the inputs; raises if it or a shape is not right."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name, worst = session.get_inputs()[0].name, 0.0
    for value, shape in zip(inputs, shapes, strict=True):
        (found,) = session.run(None, {name: value.numpy()})
        with torch.no_grad():
            wanted = net(value).numpy()
        if found.shape != shape:
            raise SystemExit(f"{path}: shape {found.shape}, expected {shape}")
        worst = max(worst, float(abs(found - wanted).max() / abs(wanted).max()))
    if not worst < TOLERANCE:
        raise SystemExit(f"{path}: ONNX Runtime and torch differ by {worst:.1e} of the largest value")
    return worst


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Export weights to ONNX; several snapshots are averaged.")
    parser.add_argument("--embedding", type=Path, nargs="*", default=[])
    parser.add_argument("--segmentation", type=Path, nargs="*", default=[])
    parser.add_argument(
        "--real", type=Path, help="ONNX of segmentation-3.0, to be joined with ours (join.py)"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    if args.real and not args.segmentation:
        parser.error("--real is joined with --segmentation")
    torch.manual_seed(0)
    if args.embedding:
        net, path = EmbeddingNet(), args.out / "embedding.onnx"
        net.load_state_dict(average(args.embedding))
        net.eval().simplify()
        round_weights(net)
        axes = {"feats": {0: "B", 1: "T"}, "embs": {0: "B"}}
        export(net, torch.randn(1, 400, 80), path, ("feats", "embs"), axes)
        worst = check(
            net,
            [torch.randn(2, 998, 80), torch.randn(1, 131, 80)],
            path,
            [(2, EmbeddingNet.SIZE), (1, EmbeddingNet.SIZE)],
        )
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, differs from torch by {worst:.1e}")
    if args.segmentation:
        net, path = SegmentationNet.of(average(args.segmentation)), args.out / "segmentation.onnx"
        net.out.bias.data[0] += SILENCE
        net.eval().simplify()
        round_weights(net)
        axes = {"waveform": {0: "N", 2: "T"}, "logprobs": {0: "N", 1: "F"}}
        export(net, torch.randn(2, 1, 160_000), path, ("waveform", "logprobs"), axes)
        inputs = [0.1 * torch.randn(3, 1, 160_000), 0.1 * torch.randn(1, 1, 80_000)]
        worst = check(net, inputs, path, [(3, 589, 7), (1, 293, 7)])
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, differs from torch by {worst:.1e}")
    if args.real:
        real = onnx.load(args.real)
        halve(real)
        both = join.joined(onnx.load(path), real)
        onnx.checker.check_model(both)
        onnx.save(both, path)
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB with {args.real}")


if __name__ == "__main__":
    main()
