"""A voice model file -> its trunk and its head, cut at the statistics pooling.

The mask of a speaker matters only in the pooling. With the trunk cut off, the ResNet runs once over a
recording, and any number of masks is pooled from its frames. The place to cut is found by structure, never by
the names that an exporter happened to give, and the cut is tried on a test signal before it is used.
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

EPSILON = 1e-7  # WeSpeaker's (TSTP), added to the variance before the square root
LEAST_COSINE = 0.9999  # between the vectors of the uncut model and those of head(pool(trunk))
_VERSION = 1  # of `cut`; older cuts in the cache are not used


def pool(frames: Float64, weights: Float64) -> Float32:
    """(masks, 2 x features): mean and standard deviation of the trunk frames under each mask.

    `frames` is (frames, features); `weights` is (masks, frames) of 0 and 1 with two ones or more per row. The
    deviation is sqrt(unbiased variance + EPSILON). Float64, because the variance is a difference of sums.
    """
    count = weights.sum(axis=1, keepdims=True)
    mean = weights @ frames / count
    variance = (weights @ frames**2 - count * mean**2) / (count - 1)
    return np.concatenate([mean, np.sqrt(np.maximum(variance, 0.0) + EPSILON)], axis=1).astype(np.float32)


def rows(trunk_output: Float32) -> Float64:
    """A trunk's output, (1, channels, bands, frames) or (1, features, frames) -> (frames, features)."""
    return trunk_output.reshape(-1, trunk_output.shape[-1]).T.astype(np.float64)


def cosine(first: Float32, second: Float32) -> float:
    """Cosine similarity of two vectors of the same, any shape."""
    return float((first * second).sum() / np.sqrt((first**2).sum() * (second**2).sum()))


def open_cut(model: ModelFile, cache: Path | None = None) -> tuple[bytes, bytes]:
    """The trunk `[B, T, 80] -> frames` and the head `[N, 2 x features] -> [N, 256]` of `model`, as ONNX.

    They are kept in `cache`, by default the user's cache folder, by the sha256 of the model. Without a
    writable cache or a sha256 the model is cut every time, which takes half a second. Raises ModelError as
    `cut` does.
    """
    if not model.sha256:
        return cut(model)
    folder = folder_of(model, cache, _VERSION)
    trunk, head = files.cached(folder, ("trunk.onnx", "head.onnx"), lambda: cut(model))
    return trunk, head


def folder_of(model: ModelFile, cache: Path | None, version: int) -> Path:
    """The folder for the parts of a model, named after its sha256."""
    return (cache or files.cache_folder()) / "cuts" / f"{model.sha256}-{version}"


def cut(model: ModelFile) -> tuple[bytes, bytes]:
    """The trunk and the head of `model` as serialized ONNX models.

    Raises ModelError if it has no statistics pooling or the parts do not give the vectors of the whole.
    """
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
            "fix: use a voice model with statistics pooling, feats [B,T,80] -> embs [B,256]"
        ) from error
    result = trunk.SerializeToString(), head.SerializeToString()
    _prove(model, *result)
    return result


def _seams(graph: onnx.GraphProto) -> tuple[str, str]:
    """The names of the tensor that enters the pooling and of the one that leaves it."""
    sizes = [size.dim_value for size in graph.input[0].type.tensor_type.shape.dim]  # 0: any
    if len(sizes) != 3 or sizes[1] == 1 or sizes[2] not in (0, N_MELS):
        raise ValueError(f"its input is {sizes}, not features")
    makers = {output: node for node in graph.node for output in node.output}
    order = {output: place for place, node in enumerate(graph.node) for output in node.output}
    data = graph.input[0].name
    statistics = graph.output[0].name
    while (node := makers.get(statistics)) is not None and node.op_type != "Concat":
        # Follow the data; the other inputs are weights, which an exporter may also compute by nodes.
        statistics = next((name for name in node.input if data in _ancestors(name, makers)), "")
    if node is None or len(node.input) != 2:
        raise ValueError("no Concat of mean and deviation before the output")
    mean, deviation = (_ancestors(name, makers) for name in node.input)
    # Where the two branches part: the last tensor that both depend on.
    shared = [name for name in mean & deviation & order.keys() if data in _ancestors(name, makers)]
    pooled = max(shared, key=order.__getitem__, default=None)
    if pooled is None:
        raise ValueError("mean and deviation have no tensor in common")
    return pooled, statistics


def _ancestors(name: str, makers: dict[str, onnx.NodeProto]) -> set[str]:
    """All tensors that a tensor depends on, itself included."""
    tensors: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in tensors:
            tensors.add(name)
            waiting.extend(makers[name].input if name in makers else ())
    return tensors


def _prove(model: ModelFile, trunk: bytes, head: bytes) -> None:
    """Raise ModelError unless the two parts give the vectors of the whole for features of a fixed seed."""
    feats = np.random.default_rng(0).normal(0.0, 3.0, (1, 400, N_MELS)).astype(np.float32)
    whole = Model(model.path, model.path)(feats)
    frames = rows(Model(trunk, f"trunk of {model.path}")(feats))
    halves = Model(head, f"head of {model.path}")(pool(frames, np.ones((1, len(frames)))))
    if not (similarity := cosine(whole, halves)) >= LEAST_COSINE:  # also for NaN
        raise ModelError(
            f"{model.path}: cut at its pooling, it gives different vectors (cosine {similarity:.6f}); "
            "fix: use a voice model that pools mean and standard deviation"
        )
