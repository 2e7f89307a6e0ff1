"""A voice model file -> its trunk and its head, cut at the statistics pooling.

The mask of a speaker enters only in the pooling, so with the trunk on its own the ResNet runs once over
a recording and any number of masks is pooled from its frames. The place is found by structure, never by
the names an exporter happened to give, and the cut is proved on a test signal before it is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from witness import files
from witness.diarization.fbank import N_MELS
from witness.errors import ModelError
from witness.schema import Float32, Float64, ModelFile
from witness.sessions import Model

if TYPE_CHECKING:
    import onnx

EPSILON = 1e-7  # WeSpeaker's, under the square root of the standard deviation
LEAST_COSINE = 0.9999  # between the uncut model and head(pool(trunk))
_VERSION = 1  # of the cutting below: a change makes older cuts unusable


def pool(frames: Float64, weights: Float64) -> Float32:
    """Mean and standard deviation of trunk frames under each mask: (masks, 2 x features).

    `frames` is (frames, features), `weights` is (masks, frames) of 0 and 1 with at least two ones a row.
    sqrt(unbiased variance + 1e-7), as in WeSpeaker's TSTP. Float64: the variance is a difference of sums.
    """
    count = weights.sum(axis=1, keepdims=True)
    mean = weights @ frames / count
    variance = (weights @ frames**2 - count * mean**2) / (count - 1)
    return np.concatenate([mean, np.sqrt(np.maximum(variance, 0.0) + EPSILON)], axis=1).astype(np.float32)


def rows(trunk_output: Float32) -> Float64:
    """(1, channels, bands, frames) or (1, features, frames) -> (frames, features)."""
    return trunk_output.reshape(-1, trunk_output.shape[-1]).T.astype(np.float64)


def cosine(one: Float32, other: Float32) -> float:
    """Cosine similarity of two vectors of any shape."""
    return float((one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()))


def open_cut(model: ModelFile, cache: Path | None = None) -> tuple[bytes, bytes]:
    """The trunk `[B, T, 80] -> frames` and the head `[N, 2 x features] -> [N, 256]` of `model`, as ONNX.

    Cut on first use and kept under the user's cache folder by the model's sha256, with the sha256 of both
    parts beside them; where nothing can be kept, it is cut again every time, which takes half a second.
    Raises ModelError if the model has no such structure or the cut does not give the same vectors.
    """
    if not model.sha256:
        return cut(model)
    folder = folder_of(model, cache, _VERSION)
    trunk, head = files.cached(folder, ("trunk.onnx", "head.onnx"), lambda: cut(model))
    return trunk, head


def folder_of(model: ModelFile, cache: Path | None, version: int) -> Path:
    """Where the parts of a model are kept, told by its sha256."""
    return (cache or files.cache_folder()) / "cuts" / f"{model.sha256}-{version}"


def cut(model: ModelFile) -> tuple[bytes, bytes]:
    """The trunk and the head of `model` as serialised ONNX models. Raises ModelError."""
    import onnx

    try:
        whole = onnx.shape_inference.infer_shapes(onnx.load(model.path))
        pooled, statistics = _seams(whole.graph)
        extractor = onnx.utils.Extractor(whole)
        trunk = extractor.extract_model([whole.graph.input[0].name], [pooled])
        head = extractor.extract_model([statistics], [whole.graph.output[0].name])
    except ModelError:
        raise
    except Exception as error:  # protobuf and onnx raise whatever a foreign file makes them
        raise ModelError(
            f"{model.path}: cannot be cut at its pooling ({' '.join(str(error).split())[:200]}); "
            "is it a voice model with statistics pooling, feats [B,T,80] -> embs [B,256]?"
        ) from error
    result = trunk.SerializeToString(), head.SerializeToString()
    _prove(model, *result)
    return result


def _seams(graph: onnx.GraphProto) -> tuple[str, str]:
    """Names of the tensor that goes into the pooling and of the one that comes out of it."""
    sizes = [size.dim_value for size in graph.input[0].type.tensor_type.shape.dim]  # 0: any
    if len(sizes) != 3 or sizes[1] == 1 or sizes[2] not in (0, N_MELS):
        raise ValueError(f"its input is {sizes}, not features")
    makers = {output: node for node in graph.node for output in node.output}
    order = {output: place for place, node in enumerate(graph.node) for output in node.output}
    data = graph.input[0].name
    statistics = graph.output[0].name
    while (node := makers.get(statistics)) is not None and node.op_type != "Concat":
        # The data among its inputs; the others are weights, which an exporter may make by nodes as well.
        statistics = next((name for name in node.input if data in _ancestors(name, makers)), "")
    if node is None or len(node.input) != 2:
        raise ValueError("no Concat of mean and deviation before the output")
    mean, deviation = (_ancestors(name, makers) for name in node.input)
    # Where the two branches part: the last tensor that both are made from.
    shared = [name for name in mean & deviation & order.keys() if data in _ancestors(name, makers)]
    pooled = max(shared, key=order.__getitem__, default=None)
    if pooled is None:
        raise ValueError("mean and deviation have no tensor in common")
    return pooled, statistics


def _ancestors(name: str, makers: dict[str, onnx.NodeProto]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(makers[name].input if name in makers else ())
    return found


def _prove(model: ModelFile, trunk: bytes, head: bytes) -> None:
    """Raise ModelError unless the two halves give the whole's vectors on features from a fixed seed."""
    feats = np.random.default_rng(0).normal(0.0, 3.0, (1, 400, N_MELS)).astype(np.float32)
    whole = Model(model.path, model.path)(feats)
    frames = rows(Model(trunk, f"trunk of {model.path}")(feats))
    halves = Model(head, f"head of {model.path}")(pool(frames, np.ones((1, len(frames)))))
    if not (found := cosine(whole, halves)) >= LEAST_COSINE:  # also for NaN
        raise ModelError(
            f"{model.path}: cut at its pooling it gives other vectors (cosine {found:.6f}); "
            "only mean and standard deviation pooling is understood, use another voice model"
        )
