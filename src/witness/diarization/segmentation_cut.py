"""A segmentation model file -> its front and its back, cut after the first convolution.

All that the convolution needs of a window beside its samples is their gain and mean, so windows that overlap
can share it: a quarter of a window's arithmetic. The place to cut is found by structure, never by the names
that an exporter happened to give, and the cut is tried on a test signal before it is used. A model of another
structure stays whole.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from witness.diarization import onnx_graph
from witness.diarization.embedding_cut import folder_of
from witness.models.session import Model, folded
from witness.schema import WINDOW_SAMPLES, Float32, Int, ModelFile
from witness.storage.cache import cached

if TYPE_CHECKING:
    import onnx

GRID = 30  # samples; windows begin at multiples: the stride of PyanNet's convolution and pooling together
LARGEST_ERROR = 1e-3  # of a log probability, cut against whole; about 1e-5 is usual in float32
BATCH = 4  # windows per call of the back: 20 % less CPU time than one, and more gain nothing
BACK = "back of "  # name of the back in traces, before the path of the model
FILES = "front.onnx", "back.onnx", "level.npy"
_VERSION = 1  # of `cut`; older cuts in the cache are not used


@dataclass(frozen=True)
class Front:
    """The two parts of a model, and what connects them.

    The whole model levels a window (instance normalization), convolves it and keeps the largest magnitude of
    every few values. With the gain g and the mean m of the window, that is the largest |g (c - m k) + a| over
    values c of the convolution of the original sound. This is convex in c, so it is largest at the largest or
    the smallest c. Both are computed once and serve all windows.
    """

    extremes: Model
    """(1, 1, samples) -> (1, 2 x channels, places): the largest c, then the smallest times -1."""
    back: Model
    """(windows, channels, places) -> (windows, 589, 7)"""
    hop: int
    """Samples from one place to the next."""
    places: int
    """The number of places in a window."""
    weight: float
    """The gain is weight / sqrt(variance + epsilon)."""
    epsilon: float
    sums: Float32
    """(channels, 1), k: the sum of each kernel."""
    offsets: Float32
    """(channels, 1), a: what silence becomes."""
    batch: int
    """Windows per call of the back."""

    def __call__(self, sound: Float32, starts: Int, /) -> Float32:
        """(windows, 589, 7) scores of the windows of `sound` at `starts`, multiples of the hop."""
        largest, smallest = np.split(self.extremes(sound[None, None])[0], 2)
        lower = np.empty((len(largest), self.places), np.float32)
        scores = []
        for first in range(0, len(starts), self.batch):
            batch = starts[first : first + self.batch]
            inputs = np.empty((len(batch), *lower.shape), np.float32)
            for upper, start in zip(inputs, batch, strict=True):
                gain, level = self._even(sound[start : start + WINDOW_SAMPLES])
                window = slice(start // self.hop, start // self.hop + self.places)
                np.add(largest[:, window], level, out=upper)
                np.subtract(smallest[:, window], level, out=lower)
                np.maximum(upper, lower, out=upper)
                upper *= gain
            scores.append(self.back(inputs))
        return np.concatenate(scores)

    def _even(self, window: Float32) -> tuple[np.float32, Float32]:
        """g, and a/g - m k (channels, 1)."""
        mean = window.mean(dtype=np.float64)
        variance = max(0.0, float(np.square(window).mean(dtype=np.float64) - mean**2))
        gain = self.weight / np.sqrt(variance + self.epsilon)
        return np.float32(gain), (self.offsets / gain - mean * self.sums).astype(np.float32)


def open_front(model: ModelFile, cache: Path | None = None) -> Front | None:
    """`model` in two parts; None if it has another structure. Raises ModelError if it cannot be run.

    The parts are kept in `cache`, by default the user's cache folder, by the sha256 of the model.
    """

    def make() -> tuple[bytes, bytes, bytes]:
        return cut(model) or (b"", b"", b"")

    parts = cached(folder_of(model, cache, _VERSION), FILES, make) if model.sha256 else make()
    return _join(model, *parts) if parts[0] else None


def cut(model: ModelFile) -> tuple[bytes, bytes, bytes] | None:
    """The contents of `FILES`; None if the model does not begin as PyanNet does. Raises ModelError."""
    onnx_graph.read(model.path)  # for its refusals
    content = folded(model.path, model.path)
    try:
        parts = _cut(_without_branches(content, model))
        return parts if parts and _proved(_join(model, *parts), Model(model.path, model.path)) else None
    except Exception:  # onnx and protobuf raise errors of any class over a foreign model; it stays whole
        return None


def _without_branches(content: bytes, model: ModelFile) -> onnx.ModelProto:
    """Return the folded model `content` with shapes; work that all windows share is folded, too."""
    import onnx

    whole = onnx.shape_inference.infer_shapes(onnx.load_from_string(content))
    if not onnx_graph.decide(whole, (1, 1, WINDOW_SAMPLES)):
        return whole
    return _without_branches(folded(whole.SerializeToString(), model.path), model)


def _cut(whole: onnx.ModelProto) -> tuple[bytes, bytes, bytes] | None:
    """As `cut`, of a model whose weights are folded; whether the parts give the same is not tried."""
    import onnx
    from onnx import helper, numpy_helper

    graph = whole.graph
    chain: list[onnx.NodeProto] = []
    data = onnx_graph.data(graph).name
    needed = onnx_graph.ancestors(
        graph.output[0].name, graph
    )  # a branch that was not taken leaves nodes behind
    for operator in ("InstanceNormalization", "Conv", "Abs", "MaxPool"):
        users = [node for node in graph.node if data in node.input and needed & set(node.output)]
        if [node.op_type for node in users] != [operator]:
            return None
        chain += users
        data = users[0].output[0]
    even, convolution, _, pooling = (
        {item.name: helper.get_attribute_value(item) for item in node.attribute} for node in chain
    )
    values = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    weight, shift = (values[name].item() for name in chain[0].input[1:])
    kernels, *bias = (values[name] for name in chain[1].input[1:])
    (stride,), (pool,) = convolution["strides"], pooling["kernel_shape"]
    plain = (
        kernels.shape[1] == 1
        and convolution.get("dilations", [1]) == [1]
        and pooling["strides"] == [pool]
        and GRID % (stride * pool) == 0
        and ((WINDOW_SAMPLES - kernels.shape[2]) // stride + 1) % pool == 0
        and not any([*convolution.get("pads", []), *pooling.get("pads", [])])
    )
    if not plain:
        return None

    kernels = kernels.astype(np.float32) * np.float32(np.sign(weight))  # so that the gain is positive
    nodes = [
        helper.make_node("Conv", ["sound", "kernels"], ["above"], strides=[stride]),
        helper.make_node("Neg", ["above"], ["below"]),
        *(
            helper.make_node("MaxPool", [side], [f"{side} most"], kernel_shape=[pool], strides=[pool])
            for side in ("above", "below")
        ),
        helper.make_node("Concat", ["above most", "below most"], ["extremes"], axis=1),
    ]
    front = helper.make_graph(
        nodes,
        "front",
        [helper.make_tensor_value_info("sound", onnx.TensorProto.FLOAT, [1, 1, "samples"])],
        [helper.make_tensor_value_info("extremes", onnx.TensorProto.FLOAT, [1, 2 * len(kernels), "places"])],
        [numpy_helper.from_array(kernels, "kernels")],
    )
    back = onnx.utils.Extractor(whole).extract_model([data], [graph.output[0].name])
    sums = kernels.sum(axis=(1, 2), dtype=np.float64)
    offsets = np.sign(weight) * shift * sums + (bias[0] if bias else 0.0)
    level = io.BytesIO()
    constants = [stride * pool, abs(weight), even.get("epsilon", 1e-5)]
    np.save(level, np.concatenate([constants, sums, offsets]), allow_pickle=False)
    model = helper.make_model(front, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), back.SerializeToString(), level.getvalue()


def _join(model: ModelFile, front: bytes, back: bytes, level: bytes) -> Front:
    """The parts, opened; `level` is .npy of hop, weight and epsilon, then sums and offsets."""
    hop, weight, epsilon, *channels = np.load(io.BytesIO(level), allow_pickle=False)
    sums, offsets = np.array(channels, np.float32).reshape(2, -1, 1)
    extremes = Model(front, f"front of {model.path}")
    places = extremes(np.zeros((1, 1, WINDOW_SAMPLES), np.float32)).shape[2]
    rest = Model(back, BACK + model.path)
    batch = rest.input_shape[0] or BATCH  # speakrs exports a batch of 1
    return Front(extremes, rest, int(hop), places, weight, epsilon, sums, offsets, batch)


def _proved(front: Front, whole: Model) -> bool:
    """Compare the scores of both for noise of a fixed seed, in three windows, two of them overlapping."""
    sound = np.random.default_rng(0).normal(0.01, 0.1, 2 * WINDOW_SAMPLES).astype(np.float32)
    sound[WINDOW_SAMPLES:] *= 0.01
    starts = np.array([0, 100, WINDOW_SAMPLES // front.hop]) * front.hop
    expected = [whole(sound[None, None, start : start + WINDOW_SAMPLES]) for start in starts]
    return bool(np.abs(front(sound, starts) - np.concatenate(expected)).max() <= LARGEST_ERROR)
