"""Models for onnx-asr whose words are known: they hear tones, and have the interface of NeMo's exports.

`write` makes a folder as onnx-asr reads it. The encoder takes NeMo's 80 mel bands, which the library
normalizes over the piece (so a piece needs both tones), and keeps one vector per 80 ms: how much more sound
there is at LOW than at HIGH, and the other way round. "tdt", "rnnt" and "ctc" say one token when a tone
begins, VOCABULARY's first for LOW and its second for HIGH; "aed" (Canary) says one word in the language that
it is asked for. The weights are fixed, so texts and times are known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LOW, HIGH = 300.0, 3000.0
"""Hz; each inside the bands that stand for it."""
VOCABULARY = ("▁grün", "▁tief")
BANDS, SKIP, SURE = 80, 8, 0.7
DURATIONS = 5
CANARY = (
    *("▁", "<|startofcontext|>", "<|startoftranscript|>", "<|emo:undefined|>", "<|en|>", "<|de|>", "<|pnc|>"),
    *("<|noitn|>", "<|notimestamp|>", "<|nodiarize|>", "<|endoftext|>", "▁hello", "▁hallo"),
)

Inputs = dict[str, tuple[int, list[int | str]]]


def write(folder: Path, kind: str = "tdt", tokens: Sequence[str] = VOCABULARY, suffix: str = "") -> Path:
    """A model of that kind; `suffix` comes before the ".onnx" of its files: ".int8" for instance."""
    folder.mkdir(parents=True, exist_ok=True)
    words = CANARY if kind == "aed" else ("<unk>", *tokens, "<blk>")
    vocabulary = "".join(f"{token} {number}\n" for number, token in enumerate(words))
    (folder / "vocab.txt").write_text(vocabulary, "utf-8")
    config = {"model_type": f"nemo-conformer-{kind}", "features_size": BANDS, "subsampling_factor": SKIP}
    (folder / "config.json").write_text(json.dumps(config))
    if kind == "ctc":
        save(folder / f"model{suffix}.onnx", *_ctc())
    elif kind == "aed":
        save(folder / f"encoder-model{suffix}.onnx", *_embeddings())
        save(folder / f"decoder-model{suffix}.onnx", *_translator())
    else:
        save(folder / f"encoder-model{suffix}.onnx", *_encoder())
        save(folder / f"decoder_joint-model{suffix}.onnx", *_joint(DURATIONS if kind == "tdt" else 0))
    return folder


def save(path: Path, nodes: list, weights: dict, inputs: Inputs, outputs: Inputs) -> None:
    graph = helper.make_graph(
        nodes,
        "tones",
        [helper.make_tensor_value_info(name, *shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, *shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def _heard(top: str) -> tuple[list, dict, Inputs]:
    """(1, 2, frames) `top`: LOW against HIGH, and HIGH against LOW; and the number of frames."""
    contrast = np.zeros((2, BANDS), np.float32)
    contrast[0, 4:14], contrast[0, 45:60] = 1 / 10, -1 / 15
    contrast[1] = -contrast[0]
    pool = {"kernel_shape": [SKIP], "strides": [SKIP], "ceil_mode": 1}
    nodes = [
        helper.make_node("AveragePool", ["audio_signal"], ["pooled"], **pool),
        helper.make_node("MatMul", ["contrast", "pooled"], [top]),
        helper.make_node("Add", ["length", "rest"], ["more"]),
        helper.make_node("Div", ["more", "skip"], ["encoded_lengths"]),
    ]
    weights = {
        "contrast": contrast,
        "rest": np.array([SKIP - 1], np.int64),
        "skip": np.array([SKIP], np.int64),
    }
    inputs = {
        "audio_signal": (TensorProto.FLOAT, [1, BANDS, "time"]),
        "length": (TensorProto.INT64, [1]),
    }
    return nodes, weights, inputs


def _encoder() -> tuple[list, dict, Inputs, Inputs]:
    outputs = {
        "outputs": (TensorProto.FLOAT, [1, 2, "frames"]),
        "encoded_lengths": (TensorProto.INT64, [1]),
    }
    return *_heard("outputs"), outputs


def _joint(durations: int) -> tuple[list, dict, Inputs, Inputs]:
    """A token where its tone is heard, unless it is the latest; with durations, always of one frame."""
    size = 4 + durations
    heard, said = np.zeros((2, size), np.float32), np.zeros((4, size), np.float32)
    heard[0, 1] = heard[1, 2] = 10
    said[1, 1] = said[2, 2] = -1000
    bias = np.full(size, -50.0, np.float32)
    bias[1] = bias[2] = -10 * SURE
    bias[3] = 0
    if durations:
        bias[4 + 1] = 0
    nodes = [
        helper.make_node("Squeeze", ["encoder_outputs", "last"], ["vector"]),
        helper.make_node("MatMul", ["vector", "heard"], ["evidence"]),
        helper.make_node("Squeeze", ["targets", "first"], ["latest"]),
        helper.make_node("Gather", ["said", "latest"], ["again"]),
        helper.make_node("Add", ["evidence", "bias"], ["sum"]),
        helper.make_node("Add", ["sum", "again"], ["outputs"]),
        helper.make_node("Identity", ["input_states_1"], ["output_states_1"]),
        helper.make_node("Identity", ["input_states_2"], ["output_states_2"]),
        helper.make_node("Identity", ["target_length"], ["prednet_lengths"]),
    ]
    weights = {"heard": heard, "said": said, "bias": bias}
    weights |= {"last": np.array([2], np.int64), "first": np.array([0], np.int64)}
    state = (TensorProto.FLOAT, [1, 1, 1])
    inputs = {
        "encoder_outputs": (TensorProto.FLOAT, [1, 2, 1]),
        "targets": (TensorProto.INT32, [1, 1]),
        "target_length": (TensorProto.INT32, [1]),
        "input_states_1": state,
        "input_states_2": state,
    }
    outputs = {
        "outputs": (TensorProto.FLOAT, [1, size]),
        "prednet_lengths": (TensorProto.INT32, [1]),
        "output_states_1": state,
        "output_states_2": state,
    }
    return nodes, weights, inputs, outputs


def _ctc() -> tuple[list, dict, Inputs, Inputs]:
    nodes, weights, inputs = _heard("contrasts")
    weights["heard"] = np.array([[0, 10, 0, 0], [0, 0, 10, 0]], np.float32)
    weights["bias"] = np.array([-50, -10 * SURE, -10 * SURE, 0], np.float32)
    nodes += [
        helper.make_node("Transpose", ["contrasts"], ["frames"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["frames", "heard"], ["evidence"]),
        helper.make_node("Add", ["evidence", "bias"], ["sum"]),
        helper.make_node("LogSoftmax", ["sum"], ["logprobs"], axis=-1),
    ]
    return nodes, weights, inputs, {"logprobs": (TensorProto.FLOAT, [1, "frames", 4])}


def _embeddings() -> tuple[list, dict, Inputs, Inputs]:
    nodes, weights, inputs = _heard("contrasts")
    nodes += [
        helper.make_node("Transpose", ["contrasts"], ["encoder_embeddings"], perm=[0, 2, 1]),
        helper.make_node("ReduceMax", ["encoder_embeddings"], ["most"], axes=[2], keepdims=0),
        helper.make_node("Cast", ["most"], ["encoder_mask"], to=TensorProto.INT64),
    ]
    outputs = {
        "encoder_embeddings": (TensorProto.FLOAT, [1, "frames", 2]),
        "encoder_mask": (TensorProto.INT64, [1, "frames"]),
    }
    return nodes, weights, inputs, outputs


def _translator() -> tuple[list, dict, Inputs, Inputs]:
    """The word of the language in place 5 of the prompt; after it, where there is no place 5, the end."""
    size = len(CANARY)
    say = np.full((size, size), -50.0, np.float32)
    say[0, CANARY.index("<|endoftext|>")] = 0
    say[CANARY.index("<|en|>"), CANARY.index("▁hello")] = 0
    say[CANARY.index("<|de|>"), CANARY.index("▁hallo")] = 0
    nodes = [
        helper.make_node("Concat", ["input_ids", "zeros"], ["longer"], axis=1),
        helper.make_node("Gather", ["longer", "place"], ["asked"], axis=1),
        helper.make_node("Gather", ["say", "asked"], ["logits"]),
        helper.make_node("Concat", ["decoder_mems", "memory"], ["decoder_hidden_states"], axis=2),
        helper.make_node("Identity", ["encoder_embeddings"], ["unused"]),
        helper.make_node("Identity", ["encoder_mask"], ["unused_too"]),
    ]
    weights = {
        "zeros": np.zeros((1, 6), np.int64),
        "place": np.array([5], np.int64),
        "say": say,
        "memory": np.zeros((1, 1, 1, 1), np.float32),
    }
    inputs = {
        "input_ids": (TensorProto.INT64, [1, "ids"]),
        "encoder_embeddings": (TensorProto.FLOAT, [1, "frames", 2]),
        "encoder_mask": (TensorProto.INT64, [1, "frames"]),
        "decoder_mems": (TensorProto.FLOAT, [1, 1, "steps", 1]),
    }
    outputs = {
        "logits": (TensorProto.FLOAT, [1, 1, size]),
        "decoder_hidden_states": (TensorProto.FLOAT, [1, 1, "after", 1]),
        "unused": (TensorProto.FLOAT, [1, "frames", 2]),
        "unused_too": (TensorProto.INT64, [1, "frames"]),
    }
    return nodes, weights, inputs, outputs
