"""A voice model file -> its trunk and its head, cut at the statistics pooling.

The mask of a speaker matters only in the pooling. With the trunk cut off, the ResNet runs once over a
recording, and any number of masks is pooled from its frames. The place to cut is found by structure, never by
the names that an exporter happened to give, and the cut is tried on a test signal before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from witness.diarization import onnx_graph
from witness.diarization.fbank import N_MELS
from witness.errors import ModelError
from witness.models.session import Model
from witness.schema import Float32, Float64, ModelFile
from witness.storage.cache import cache_folder, cached

if TYPE_CHECKING:
    import onnx

STRIDE = 8  # features per trunk frame: three stages of stride 2
CONTEXT = 15  # trunk frames, 1.2 s; ResNet34 sees 112 features (14 trunk frames) to either side
EPSILON = 1e-7  # WeSpeaker's (TSTP), added to the variance before the square root
LEAST_COSINE = 0.9999  # between vectors that should be the same
PROOF = 50  # trunk frames of the signal that a cut is tried on
AROUND = 57  # trunk frames to either side of it; not a multiple of the 100 features that CAM++ pools
_VERSION = 1  # of `cut`; older cuts in the cache are not used


class NotInBlocksError(ModelError):
    """A voice model that must be given each stretch of speech whole: `stretches` has the way to use it."""


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

    They are kept in `cache`, by default the user's cache folder, by the sha256 of the model, and so is why it
    cannot be cut. Without a writable cache or a sha256 the model is cut every time, which takes half a
    second. Raises ModelError as `cut` does.
    """
    if not model.sha256:
        return cut(model)

    def make() -> tuple[bytes, bytes]:
        try:
            return cut(model)
        except NotInBlocksError as error:
            return b"", str(error).encode()

    folder = folder_of(model, cache, _VERSION)
    trunk, head = cached(folder, ("trunk.onnx", "head.onnx"), make)
    if not trunk:
        raise NotInBlocksError(head.decode())
    return trunk, head


def folder_of(model: ModelFile, cache: Path | None, version: int) -> Path:
    """The folder for the parts of a model, named after its sha256."""
    return (cache or cache_folder()) / "cuts" / f"{model.sha256}-{version}"


def cut(model: ModelFile) -> tuple[bytes, bytes]:
    """The trunk and the head of `model` as serialized ONNX models.

    Raises NotInBlocksError if it takes samples or has no statistics pooling, if the parts do not give the
    vectors of the whole, or if their vectors for a stretch depend on distant speech; other ModelErrors if it
    is of no use at all.
    """
    import onnx

    whole = onnx_graph.read(model.path)
    _check(whole.graph, model.path)
    try:
        whole = onnx.shape_inference.infer_shapes(whole)
        # Of several outputs the last is the voice vector, as WeSpeaker has it.
        start, end = onnx_graph.data(whole.graph).name, whole.graph.output[-1].name
        pooled, statistics = _seams(whole.graph, end)
        extractor = onnx.utils.Extractor(whole)
        ends = (start, end), (start, pooled), (statistics, end)
        complete, trunk, head = (extractor.extract_model([a], [b]).SerializeToString() for a, b in ends)
    except Exception as error:  # protobuf and onnx raise errors of any class over a foreign file
        raise NotInBlocksError(
            f"{model.path}: cannot be cut at its pooling ({' '.join(str(error).split())[:200]})"
        ) from error
    if flaw := _flaw(model, complete, trunk, head):
        raise NotInBlocksError(f"{model.path}: {flaw}")
    return trunk, head


def open_head(head: bytes, path: str) -> Callable[[Float32], Float32]:
    """(n, 2 x features) statistics -> (n, dims) voice vectors, by the head of the model at `path`.

    Raises ModelError.
    """
    model = Model(head, f"head of {path}")
    if model.input_shape[0] != 1:
        return model
    return lambda statistics: np.concatenate([model(row[None]) for row in statistics])


def _check(graph: onnx.GraphProto, path: str) -> None:
    """Raise ModelError for what would fail later, and be harder to understand."""
    shape = onnx_graph.sizes(onnx_graph.data(graph))
    sound = len(shape) == 2 or (len(shape) == 3 and shape[1] == 1)
    features = len(shape) == 3 and (shape[2] == N_MELS or (shape[2] is None and shape[1] is None))
    if not sound and not features:
        raise ModelError(
            f"{path}: takes {list(shape)}, neither [B, T, {N_MELS}] nor [B, samples]; fix: use a voice model "
            f"that takes {N_MELS} log mel energies as Kaldi computes them, or samples"
        )
    if shape[-1 if sound else 1] is not None or shape[0] not in (None, 1):
        raise ModelError(
            f"{path}: takes {list(shape)} only, not speech of any length; fix: export it with a free length"
        )
    kinds = {node.op_type for node in onnx_graph.working(graph)}
    if kinds & {"QuantizeLinear", "DynamicQuantizeLinear"}:
        raise ModelError(
            f"{path}: is quantized, and its voice vectors differ from those of the original; "
            "fix: use the float32 file of this model"
        )
    if sound:
        raise NotInBlocksError(f"{path}: takes samples, not features")
    if "Softmax" in kinds:
        raise NotInBlocksError(f"{path}: pools with attention, not mean and standard deviation")


def _seams(graph: onnx.GraphProto, end: str) -> tuple[str, str]:
    """The names of the tensor that enters the pooling and of the one that leaves it."""
    makers = {output: node for node in graph.node for output in node.output}
    order = {output: index for index, node in enumerate(graph.node) for output in node.output}
    reached = {output for node in onnx_graph.working(graph) for output in node.output}
    statistics = end
    while (node := makers.get(statistics)) is not None and node.op_type != "Concat":
        # Follow the data; the other inputs are weights, which an exporter may also compute by nodes.
        statistics = next((name for name in node.input if name in reached), "")
    if node is None or len(node.input) != 2:
        raise ValueError("no Concat of mean and deviation before the output")
    mean, deviation = (onnx_graph.ancestors(name, graph) for name in node.input)
    # Where the two branches part: the last tensor that both depend on.
    pooled = max(mean & deviation & reached, key=order.__getitem__, default=None)
    if pooled is None:
        raise ValueError("mean and deviation have no tensor in common")
    return pooled, statistics


def _flaw(model: ModelFile, whole: bytes, trunk: bytes, head: bytes) -> str | None:
    """Return the reason that the parts do not give the vectors of the whole, wherever a block begins.

    Tried on noise of a fixed seed, alone and between louder noise: a network that looks at all it is given,
    as one with squeeze-excitation does, gives the same speech another vector in every block.
    """
    rng = np.random.default_rng(0)
    feats = rng.normal(0.0, 3.0, (1, PROOF * STRIDE, N_MELS)).astype(np.float32)
    before, after = rng.normal(3.0, 6.0, (2, 1, AROUND * STRIDE, N_MELS)).astype(np.float32)
    front, back = Model(trunk, f"trunk of {model.path}"), open_head(head, model.path)
    output = front(feats)
    if output.ndim > 2 and output.shape[-1] != PROOF:
        return f"gives {output.shape[-1]} frames for {PROOF * STRIDE} features, not one per {STRIDE}"
    frames = rows(output)
    inside = rows(front(np.concatenate([before, feats, after], axis=1)))[AROUND:][:PROOF]
    clean = np.ones((1, PROOF))
    clean[:, :CONTEXT] = clean[:, -CONTEXT:] = 0.0
    try:
        together, alone, between = back(
            np.concatenate([pool(frames, np.ones_like(clean)), pool(frames, clean), pool(inside, clean)])
        )
    except (ModelError, ValueError):  # of other sizes
        return "does not pool mean and standard deviation of frames"
    if not (likeness := cosine(Model(whole, model.path)(feats), together)) >= LEAST_COSINE:  # also for NaN
        return f"cut at its pooling, it gives different vectors (cosine {likeness:.6f})"
    if not (likeness := cosine(alone, between)) >= LEAST_COSINE:
        distance = f"{CONTEXT * STRIDE / 100:.1f} s"
        return (
            f"its vectors depend on sound over {distance} away (cosine {likeness:.6f}), as with "
            "squeeze-excitation"
        )
    return None
