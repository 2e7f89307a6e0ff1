"""Checks of a model file that read its graph before onnxruntime runs it.

onnxruntime refuses some models in words for its own developers, runs others that are of no use here, and may
end the process over a third kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from witness.errors import ModelError

if TYPE_CHECKING:
    import onnx


def read(path: str) -> onnx.ModelProto:
    """The model at `path`.

    Raises ModelError if it cannot be read, has other than one input, or computes in half precision: over some
    of those models onnxruntime ends the process, and it refuses others.
    """
    import onnx

    try:
        model = onnx.load(path)
    except Exception as error:  # protobuf and onnx raise errors of any class over a foreign file
        why = " ".join(str(error).split())[:200]
        raise ModelError(
            f"{path}: cannot be read as an ONNX model ({why}); fix: download or export it again"
        ) from error
    inputs = _inputs(model.graph)
    if len(inputs) != 1:
        raise ModelError(f"{path}: has {len(inputs)} inputs instead of one; is it the right file?")
    halves = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    casts = (node for node in working(model.graph) if node.op_type == "Cast")
    targets = {attribute.i for node in casts for attribute in node.attribute if attribute.name == "to"}
    if halves & {inputs[0].type.tensor_type.elem_type, *targets}:
        raise ModelError(
            f"{path}: computes in half precision (float16), which can crash onnxruntime on the CPU; "
            "fix: use the float32 file of this model"
        )
    return model


def _inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that a caller gives; old exporters list the weights, too."""
    weights = {item.name for item in graph.initializer}
    return [item for item in graph.input if item.name not in weights]


def data(graph: onnx.GraphProto) -> onnx.ValueInfoProto:
    """The one input of a model that was `read`."""
    return _inputs(graph)[0]


def sizes(value: onnx.ValueInfoProto) -> tuple[int | None, ...]:
    """The shape of an input or output; None: any size."""
    return tuple(size.dim_value or None for size in value.type.tensor_type.shape.dim)


def working(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that depend on the input, in running order. The others make weights."""
    reached = {data(graph).name}
    for node in graph.node:
        if reached & set(_taken(node)):
            reached |= set(node.output) - {""}
            yield node


def _taken(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node takes, and those that the branches in it take by name."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _taken(inner)


def ancestors(name: str, graph: onnx.GraphProto, stop: Sequence[str] = ()) -> set[str]:
    """All tensors that a tensor depends on, itself included, up to nodes of the types in `stop`."""
    makers = {output: node for node in graph.node for output in node.output if output}
    tensors: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in tensors:
            tensors.add(name)
            if name in makers and makers[name].op_type not in stop:
                waiting.extend(_taken(makers[name]))
    return tensors


def decide(model: onnx.ModelProto, shape: tuple[int, ...]) -> bool:
    """Make conditions of `If` constant where they follow from the input's shape; whether there were any.

    `shape` is that of the input. Its first dimension may be any number, so a condition that is not the same
    for one and two of them stays. PyTorch's first exporter makes such branches of functions that it compiled.
    """
    import onnx
    from onnx.reference import ReferenceEvaluator

    graph, name = model.graph, data(model.graph).name
    weights = {item.name for item in graph.initializer}
    decided = False
    for node in graph.node:
        if node.op_type != "If" or node.input[0] in weights:
            continue
        if name in ancestors(node.input[0], graph, stop=("Shape", "Size")):
            continue
        part = ReferenceEvaluator(onnx.utils.Extractor(model).extract_model([name], [node.input[0]]))
        single, double = (
            bool(np.asarray(part.run(None, {name: np.zeros((count, *shape[1:]), np.float32)})).item())
            for count in (1, 2)
        )
        if single == double:
            node.input[0] = f"{node.input[0]} decided"
            graph.initializer.append(onnx.numpy_helper.from_array(np.array(single), node.input[0]))
            decided = True
    return decided
