"""segmentation-3.0 and CAM++ as ONNX, from their PyTorch checkpoints, without PyTorch and without pickle.

A checkpoint is a zip: a pickle that describes the tensors, and a file of raw numbers for each. A pickle
is a program, which Python's own `pickle` runs. Here it is only read (`pickletools`), by a machine that knows
texts, numbers, dictionaries, tuples and tensors. Classes of other packages become placeholders: nothing of
theirs is imported, and an instruction that is not in the list ends the reading.

Every number is computed with operations that IEEE 754 defines to the last bit. So the bytes are the same on
every machine, and the catalogue can pin their sha256. It pins that of the checkpoints, too: only these two
reach this module, and nothing here has to withstand others.
"""

from __future__ import annotations

import io
import itertools
import math
import pickletools
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from witness.schema import SAMPLE_RATE, Float32, Float64

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Float32]
Shape = Sequence[str | int]
"""Of an input or output; a text names a free dimension."""

OPSET = 17
IR_VERSION = 8
"""Of ONNX 1.12, which brought opset 17."""


def onnx_of(name: str, content: bytes) -> bytes:
    """Return the ONNX file of a checkpoint's content, for the model of the catalogue called `name`.

    Raises ValueError if it is another checkpoint.
    """
    make = {"segmentation-3.0": segmentation, "campplus-zh-en": campplus}[name]
    arrays = read_checkpoint(content)
    with _refusing("its arrays do not fit together"):
        return make(arrays)


@contextmanager
def _refusing(reason: str) -> Iterator[None]:
    """Make ValueErrors of the errors of many classes that numpy, onnx and zipfile raise for other files."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{reason} ({' '.join(str(error).split())[:120]})") from error


# --- checkpoints ---


def read_checkpoint(content: bytes) -> dict[str, Array]:
    """Return the arrays of a checkpoint, or of its state_dict, by name.

    Raises ValueError if it is no such file, or not whole.
    """
    with _refusing("not a PyTorch checkpoint"), zipfile.ZipFile(io.BytesIO(content)) as archive:
        programs = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(programs) != 1:
            raise ValueError(f"it has {len(programs)} files data.pkl instead of one")
        top = _run(archive.read(programs[0]), archive, programs[0].removesuffix("data.pkl"))
        arrays = top.get("state_dict", top) if isinstance(top, dict) else None
        if not isinstance(arrays, dict) or not arrays:
            raise ValueError("it holds no dictionary of arrays")
        for name, array in arrays.items():
            if not isinstance(name, str) or not isinstance(array, np.ndarray):
                raise ValueError("its dictionary holds something else than arrays")
        return arrays


def _tensor(numbers: Array, offset: int, shape: Sequence[int], strides: Sequence[int], *_: Any) -> Array:
    """Return a part of a file of numbers as an array. NumPy refuses it if it is not within the file."""
    size = numbers.itemsize
    return np.ndarray(shape, numbers.dtype, numbers, offset * size, [step * size for step in strides])


GLOBALS: dict[str, Any] = {
    "torch FloatStorage": np.dtype("<f4"),
    "torch LongStorage": np.dtype("<i8"),
    "torch._utils _rebuild_tensor_v2": _tensor,
}
"""The names in the pickle that mean something. All others are classes, whose objects become dictionaries."""
CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


def _run(program: bytes, archive: zipfile.ZipFile, root: str) -> Any:
    """Return the object that a pickle describes; its numbers are files in the folder `root`."""
    stack: list[Any] = []
    below: list[list[Any]] = []
    """Stacks under the marks."""
    memory: dict[int, Any] = {}
    argument: Any
    for instruction, argument, _ in pickletools.genops(program):
        match instruction.name:
            case "STOP":
                return stack.pop()
            case "NONE" | "NEWTRUE" | "NEWFALSE" | "EMPTY_TUPLE":
                stack.append(CONSTANTS[instruction.name])
            case "BININT" | "BININT1" | "BININT2" | "BINFLOAT" | "BINUNICODE":
                stack.append(argument)
            case "GLOBAL":
                stack.append(GLOBALS.get(argument))
            case "BINPUT" | "LONG_BINPUT":
                memory[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memory[argument])
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "MARK":
                below.append(stack)
                stack = []
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(instruction.name[-1])
                stack[-size:] = [tuple(stack[-size:])]
            case "TUPLE" | "APPENDS" | "SETITEMS":
                items, stack = stack, below.pop()
                if instruction.name == "TUPLE":
                    stack.append(tuple(items))
                elif instruction.name == "APPENDS":
                    stack[-1].extend(items)
                else:
                    stack[-1].update(zip(items[::2], items[1::2], strict=True))
            case "SETITEM":
                value, key = stack.pop(), stack.pop()
                stack[-1][key] = value
            case "BINPERSID":
                _, dtype, key, _, count = stack.pop()
                if not isinstance(dtype, np.dtype):
                    raise ValueError("it has arrays of another kind than float32 and int64")
                stack.append(np.frombuffer(archive.read(f"{root}data/{key}"), dtype, count))
            case "REDUCE" | "NEWOBJ":
                arguments, function = stack.pop(), stack.pop()
                stack.append(_tensor(*arguments) if function is _tensor else {})
            case "BUILD":  # fills dictionaries of classes and arrays, which need nothing more
                stack.pop()
            case name if name != "PROTO":
                raise ValueError(f"its data.pkl has the instruction {name}")
    raise ValueError("its data.pkl has no end")


# --- graphs ---


class _Graph:
    """A graph in the making: tensors are known by their names."""

    def __init__(self, arrays: Arrays) -> None:
        import onnx

        self._onnx = onnx
        self._arrays = arrays
        self._constants: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []

    def array(self, name: str) -> Float32:
        if name not in self._arrays:
            raise ValueError(f"the checkpoint has no {name}")
        return self._arrays[name]

    def count(self, pattern: str, *, first: int) -> int:
        """Count the arrays of a name with a number in it, from `first` on without a gap."""
        return next(
            number for number in itertools.count() if pattern.format(first + number) not in self._arrays
        )

    def constant(self, array: Array, name: str = "") -> str:
        name = name or f"constant_{len(self._constants)}"
        array = np.ascontiguousarray(array, np.int64 if array.dtype == np.int64 else np.float32)
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weights(self, name: str, *parts: str) -> list[str]:
        return [self.constant(self.array(f"{name}.{part}"), f"{name}.{part}") for part in parts]

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"{operator.lower()}_{len(self._nodes)}"
        node = self._onnx.helper.make_node(operator, inputs, [output])
        # One by one: all together they would be sorted, and the pinned bytes have them in this order.
        node.attribute.extend(self._onnx.helper.make_attribute(*item) for item in attributes.items())
        self._nodes.append(node)
        return output

    def convolve(self, tensor: str, name: str, **settings: Any) -> str:
        bias = self.weights(name, "bias") if f"{name}.bias" in self._arrays else []
        return self.node("Conv", tensor, *self.weights(name, "weight"), *bias, **settings)

    def finish(self, name: str, source: tuple[str, Shape], result: tuple[str, Shape]) -> bytes:
        helper = self._onnx.helper
        ends = [[helper.make_tensor_value_info(end, 1, shape)] for end, shape in (source, result)]
        model = helper.make_model(
            helper.make_graph(self._nodes, name, *ends, self._constants),
            ir_version=IR_VERSION,
            producer_name="witness",
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString(deterministic=True))


# --- segmentation-3.0 ---

LOWEST, NARROWEST = 50.0, 50.0
"""Hz: the least lower edge and the least width of a filter of SincNet."""


def segmentation(arrays: Arrays) -> bytes:
    """Build pyannote's PyanNet (SincNet, LSTM, three linear layers): samples [N, 1, T] to log probabilities
    [N, frames, 7].

    Raises ValueError if the checkpoint is of another network.
    """
    graph = _Graph(arrays)

    def normalized(tensor: str, name: str) -> str:
        return graph.node(
            "InstanceNormalization", tensor, *graph.weights(name, "weight", "bias"), epsilon=1e-5
        )

    tensor = normalized("input_values", "sincnet.wav_norm1d")
    for layer in range(3):
        if layer == 0:
            filters = graph.constant(_sinc(graph), "sincnet.conv1d.0.filters")
            tensor = graph.node("Abs", graph.node("Conv", tensor, filters, strides=[10]))
        else:
            weights = graph.weights(f"sincnet.conv1d.{layer}", "weight", "bias")
            tensor = graph.node("Conv", tensor, *weights, strides=[1])
        tensor = graph.node("MaxPool", tensor, kernel_shape=[3], strides=[3])
        tensor = graph.node("LeakyRelu", normalized(tensor, f"sincnet.norm1d.{layer}"), alpha=0.01)
    tensor = graph.node("Transpose", tensor, perm=[2, 0, 1])  # (frames, N, features), as LSTM takes it
    hidden = graph.array("lstm.weight_hh_l0").shape[-1]
    merged = graph.integers(0, 0, 2 * hidden)
    for layer in range(graph.count("lstm.weight_hh_l{}", first=0)):
        tensor = graph.node(
            "LSTM", tensor, *_recurrence(graph, layer, hidden), hidden_size=hidden, direction="bidirectional"
        )
        tensor = graph.node("Reshape", graph.node("Transpose", tensor, perm=[0, 2, 1, 3]), merged)
    tensor = graph.node("Transpose", tensor, perm=[1, 0, 2])
    for name in ("linear.0", "linear.1", "classifier"):
        weight = graph.constant(graph.array(f"{name}.weight").T, f"{name}.weight")
        tensor = graph.node("Add", graph.node("MatMul", tensor, weight), *graph.weights(name, "bias"))
        if name != "classifier":
            tensor = graph.node("LeakyRelu", tensor, alpha=0.01)
    graph.node("LogSoftmax", tensor, output="logits", axis=-1)
    free = "batch_size", "num_samples", "num_frames"
    return graph.finish(
        "PyanNet",
        ("input_values", (free[0], 1, free[1])),
        ("logits", (free[0], free[2], len(graph.array("classifier.bias")))),
    )


def _recurrence(graph: _Graph, layer: int, hidden: int) -> list[str]:
    """Return the weights of a layer in both directions, W, R and B of ONNX.

    PyTorch has the gates in the order input, forget, cell, output; ONNX input, output, forget, cell.
    """
    gates = np.arange(4 * hidden).reshape(4, hidden)[[0, 3, 1, 2]].ravel()

    def both(part: str) -> Float32:
        names = (f"lstm.{part}_l{layer}{way}" for way in ("", "_reverse"))
        return np.stack([graph.array(name)[gates] for name in names])

    bias = np.concatenate([both("bias_ih"), both("bias_hh")], axis=1)
    parts = both("weight_ih"), both("weight_hh"), bias
    return [graph.constant(part, f"lstm.{layer}.{name}") for part, name in zip(parts, "WRB", strict=True)]


def _sinc(graph: _Graph) -> Float32:
    """Return the band-pass filters of SincNet, 40 of cosines and 40 of sines: (80, 1, 251)."""
    low_hz, band_hz, window, times = (
        graph.array(f"sincnet.conv1d.0.filterbank.{name}_").astype(np.float64)
        for name in ("low_hz", "band_hz", "window", "n")
    )
    low = LOWEST + np.abs(low_hz)
    high = np.clip(low + NARROWEST + np.abs(band_hz), LOWEST, SAMPLE_RATE / 2)
    band = high - low
    (sine_low, cosine_low), (sine_high, cosine_high) = _sine(low * times), _sine(high * times)
    even = (sine_high - sine_low) / (times / 2) * window
    odd = (cosine_low - cosine_high) / (times / 2) * window
    cosines = np.concatenate([even, 2 * band, even[:, ::-1]], axis=1)
    sines = np.concatenate([odd, 0 * band, -odd[:, ::-1]], axis=1)
    return (np.concatenate([cosines, sines])[:, None] / np.tile(2 * band, (2, 1))[:, None]).astype(np.float32)


def _sine(angles: Float64) -> tuple[Float64, Float64]:
    """Return sine and cosine of angles of up to some thousands, the same on every processor, to about 1e-15.

    NumPy's own differ in the last bit from processor to processor. 2 pi is subtracted in two parts: the first
    has few bits, so that its multiples are exact; the rest is the series.
    """
    turns = np.rint(angles / (2 * math.pi))
    rest = (angles - turns * 6.28125) - turns * 0.0019353071795864769
    square = rest * rest

    def series(first: int) -> Float64:
        total = np.zeros_like(square)
        for power in range(first + 28, -1, -2):
            total = total * square + (-1.0) ** (power // 2) / math.factorial(power)
        return total

    return rest * series(1), series(0)


# --- CAM++ ---

PIECE = 100
"""Frames of a piece: a CAM layer has the mean of each piece, beside that of the whole stretch."""
DILATIONS = (1, 2, 2)
"""Of the convolutions in each dense block."""
MELS = 80
BANDS = MELS // 8
"""Of the first part's output: three strides of 2."""


def campplus(arrays: Arrays) -> bytes:
    """Build CAM++ as 3D-Speaker defines it: features [B, T, 80] to voice vectors [B, 192], not normalized.

    No ReLU follows the last normalization, unlike in copies of it elsewhere. Raises ValueError if the
    checkpoint is of another network.
    """
    graph = _Graph(arrays)
    tensor = _head(graph)
    tensor = graph.convolve(tensor, "xvector.tdnn.linear", strides=[2], pads=[2, 2])
    tensor = _active(graph, tensor, "xvector.tdnn.nonlinear.batchnorm")
    for block, dilation in enumerate(DILATIONS, start=1):
        layers = graph.count(f"xvector.block{block}.tdnnd{{}}.linear1.weight", first=1)
        for layer in range(1, layers + 1):
            name = f"xvector.block{block}.tdnnd{layer}"
            inner = graph.convolve(_active(graph, tensor, f"{name}.nonlinear1.batchnorm"), f"{name}.linear1")
            inner = _active(graph, inner, f"{name}.nonlinear2.batchnorm")
            near = graph.convolve(
                inner, f"{name}.cam_layer.linear_local", pads=[dilation, dilation], dilations=[dilation]
            )
            mask = graph.convolve(_context(graph, inner), f"{name}.cam_layer.linear1")
            mask = graph.convolve(graph.node("Relu", mask), f"{name}.cam_layer.linear2")
            mask = _spread(graph, graph.node("Sigmoid", mask), near)
            tensor = graph.node("Concat", tensor, graph.node("Mul", near, mask), axis=1)
        name = f"xvector.transit{block}"
        tensor = graph.convolve(_active(graph, tensor, f"{name}.nonlinear.batchnorm"), f"{name}.linear")
    statistics = _pooled(graph, _active(graph, tensor, "xvector.out_nonlinear.batchnorm"))
    vector = graph.convolve(statistics, "xvector.dense.linear")
    vector = _normalized(graph, vector, "xvector.dense.nonlinear.batchnorm", learned=False)
    graph.node("Squeeze", vector, graph.integers(2), output="embs")
    size = len(graph.array("xvector.dense.linear.weight"))
    return graph.finish("CAMPPlus", ("feats", ("B", "T", MELS)), ("embs", ("B", size)))


def _normalized(graph: _Graph, tensor: str, name: str, learned: bool = True) -> str:
    if learned:
        parameters = graph.weights(name, "weight", "bias")
    else:
        size = graph.array(f"{name}.running_mean").shape
        parameters = [graph.constant(np.ones(size)), graph.constant(np.zeros(size))]
    parameters += graph.weights(name, "running_mean", "running_var")
    return graph.node("BatchNormalization", tensor, *parameters, epsilon=1e-5)


def _active(graph: _Graph, tensor: str, name: str) -> str:
    return graph.node("Relu", _normalized(graph, tensor, name))


def _head(graph: _Graph) -> str:
    """Build the residual network over features and time: [B, T, 80] -> [B, 320, T]."""
    around = {"pads": [1, 1, 1, 1]}
    tensor = graph.node("Unsqueeze", graph.node("Transpose", "feats", perm=[0, 2, 1]), graph.integers(1))
    tensor = _active(graph, graph.convolve(tensor, "head.conv1", **around), "head.bn1")
    for layer in (1, 2):
        for block in (0, 1):
            name = f"head.layer{layer}.{block}"
            strides = [1, 1] if block else [2, 1]
            inner = graph.convolve(tensor, f"{name}.conv1", strides=strides, **around)
            inner = graph.convolve(_active(graph, inner, f"{name}.bn1"), f"{name}.conv2", **around)
            inner = _normalized(graph, inner, f"{name}.bn2")
            if not block:
                tensor = graph.convolve(tensor, f"{name}.shortcut.0", strides=strides)
                tensor = _normalized(graph, tensor, f"{name}.shortcut.1")
            tensor = graph.node("Relu", graph.node("Add", inner, tensor))
    tensor = _active(graph, graph.convolve(tensor, "head.conv2", strides=[2, 1], **around), "head.bn2")
    channels = len(graph.array("head.conv2.weight"))
    return graph.node("Reshape", tensor, graph.integers(0, channels * BANDS, -1))


def _context(graph: _Graph, tensor: str) -> str:
    """Build the context of a CAM layer, [B, channels, pieces]: the mean of all frames and of each piece."""
    pieces = graph.node(
        "AveragePool", tensor, kernel_shape=[PIECE], strides=[PIECE], ceil_mode=1, count_include_pad=0
    )
    return graph.node("Add", graph.node("ReduceMean", tensor, axes=[2], keepdims=1), pieces)


def _spread(graph: _Graph, pieces: str, like: str) -> str:
    """Spread each piece's value over its frames: [B, channels, pieces] -> [B, channels, T] of `like`."""
    frames = graph.node("Unsqueeze", pieces, graph.integers(3))
    frames = graph.node("Expand", frames, graph.integers(1, 1, 1, PIECE))
    frames = graph.node("Reshape", frames, graph.integers(0, 0, -1))
    end = graph.node("Shape", like, start=2, end=3)
    return graph.node("Slice", frames, graph.integers(0), end, graph.integers(2))


def _pooled(graph: _Graph, tensor: str) -> str:
    """Pool [B, features, T] to [B, 2 x features, 1]: mean and unbiased standard deviation over time."""
    mean = graph.node("ReduceMean", tensor, axes=[2], keepdims=1)
    apart = graph.node("Sub", tensor, mean)
    total = graph.node("ReduceSum", graph.node("Mul", apart, apart), graph.integers(2), keepdims=1)
    count = graph.node("Cast", graph.node("Shape", tensor, start=2, end=3), to=1)
    less = graph.node("Sub", count, graph.constant(np.ones(1)))
    return graph.node("Concat", mean, graph.node("Sqrt", graph.node("Div", total, less)), axis=1)
