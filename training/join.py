"""Two segmentations -> one that hears with both: ours, and pyannote/segmentation-3.0 (export.py --real).

Both tell who of three people speaks in each frame of a window, and number them as they like. So the people of
the second are put into that order, of six, in which the two agree most, and the log-probabilities are
averaged. They err on different sounds: ours takes breath and handling noise of real meetings for speech, the
other one takes one voice for two where people change microphones (RUNS.md).
"""

import itertools

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper

from witness.diarization.segmentation import POWERSET

SHARE = 0.5
"""Of ours in the mean; measured, RUNS.md."""
FAINT = -12.0  # nats: what is rarer counts as if it were so


def orders() -> np.ndarray:
    """(6, 7, 7): for each order of three people, the matrix that moves the classes of a powerset."""
    number = {tuple(row): place for place, row in enumerate(POWERSET.tolist())}
    found = np.zeros((6, 7, 7), np.float32)
    for place, order in enumerate(itertools.permutations(range(3))):
        for target, row in enumerate(POWERSET):
            found[place, number[tuple(row[list(order)].tolist())], target] = 1
    return found


def joined(ours: onnx.ModelProto, real: onnx.ModelProto, share: float = SHARE) -> onnx.ModelProto:
    """waveform (N, 1, T) -> log-probabilities (N, frames, 7) of both together."""
    ours, real = (compose.add_prefix(model, name) for model, name in ((ours, "ours/"), (real, "real/")))
    heard = ours.graph.input[0].name
    for node in real.graph.node:
        for place, name in enumerate(node.input):
            if name == real.graph.input[0].name:
                node.input[place] = heard
    moves = orders()
    constants = {
        "orders": moves,
        "pairs": moves.transpose(2, 1, 0).reshape(49, 6),  # (class of ours, class of the other), order
        "flat": np.array([0, 49], np.int64),
        "faint": np.array(FAINT, np.float32),
        "ours/share": np.array(share, np.float32),
        "real/share": np.array(1 - share, np.float32),
    }
    nodes = []

    def node(kind: str, inputs: list[str], output: str, **settings: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], output, **settings))
        return output

    a = node("Max", [ours.graph.output[0].name, "faint"], "ours/levels")
    b = node("Max", [real.graph.output[0].name, "faint"], "real/levels")
    turned = node("Transpose", [node("Exp", [a], "ours/likely")], "ours/turned", perm=[0, 2, 1])
    together = node("MatMul", [turned, node("Exp", [b], "real/likely")], "together")
    agreement = node("MatMul", [node("Reshape", [together, "flat"], "by pair"), "pairs"], "agreement")
    best = node("ArgMax", [agreement], "best", axis=1, keepdims=0)
    b = node("MatMul", [b, node("Gather", ["orders", best], "order", axis=0)], "real/moved")
    a = node("Mul", [a, "ours/share"], "ours/part")
    mean = node("Add", [a, node("Mul", [b, "real/share"], "real/part")], "mean")
    node("LogSoftmax", [mean], "logprobs", axis=-1)
    graph = helper.make_graph(
        [*ours.graph.node, *real.graph.node, *nodes],
        "two segmentations",
        [helper.make_tensor_value_info("waveform", TensorProto.FLOAT, ["N", 1, "T"])],
        [helper.make_tensor_value_info("logprobs", TensorProto.FLOAT, ["N", "F", 7])],
        [
            *ours.graph.initializer,
            *real.graph.initializer,
            *(numpy_helper.from_array(value, name) for name, value in constants.items()),
        ],
    )
    for item in graph.node:
        for place, name in enumerate(item.input):
            if name == heard:
                item.input[place] = "waveform"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "witness training/join.py"
    return model
