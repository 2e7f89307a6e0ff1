"""segmentation-3.0 and CAM++ as ONNX, from their PyTorch checkpoints, without PyTorch and without pickle.

A checkpoint is a zip: a pickle that describes the tensors, and a file of raw numbers for each. A pickle
is a program, which Python's own `pickle` runs. Here it is only read (`pickletools`), by a machine that knows
texts, numbers, dictionaries, tuples and tensors. Classes of other packages become placeholders: nothing of
theirs is imported, and an instruction that is not in the list ends the reading.

The graphs are written field by field, not by `onnx.helper`, whose defaults may change, and every number is
computed with operations that IEEE 754 defines to the last bit. So the bytes are the same on every machine and
with every version of onnx, and the catalogue can pin their sha256.
"""

from __future__ import annotations

import io
import itertools
import math
import pickletools
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from witness.schema import SAMPLE_RATE, Float32, Float64

if TYPE_CHECKING:
    import onnx

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Float32]
Shape = Sequence[str | int]
"""Of an input or output; a text names a free dimension."""

OPSET = 17
IR_VERSION = 8
"""Of ONNX 1.12, which brought opset 17."""
LARGEST = 256 << 20
"""Bytes of all arrays together; CAM++ has 28 MB."""
LARGEST_PROGRAM = 4 << 20
"""Bytes of the pickle; that of CAM++, with 937 tensors, has 0.13 MB."""
STORAGES: dict[str, np.dtype[Any]] = {
    "torch FloatStorage": np.dtype("<f4"),
    "torch LongStorage": np.dtype("<i8"),
}
"""The kinds of numbers, by the names that the pickle gives them."""
TENSOR = "torch._utils _rebuild_tensor_v2"
DICTIONARY = "collections OrderedDict"

_MARK = object()
"""The begin of the items of a list, a tuple or a dictionary on the stack."""


def onnx_of(name: str, content: bytes) -> bytes:
    """Return the ONNX file of a checkpoint's content, for the model of the catalogue called `name`.

    Raises ValueError if it is another checkpoint.
    """
    make = {"segmentation-3.0": segmentation, "campplus-zh-en": campplus}[name]
    arrays = read_checkpoint(content)
    try:
        return make(arrays)
    except ValueError:
        raise
    except Exception as error:  # numpy and onnx raise many errors for arrays of other sizes
        raise ValueError(f"its arrays do not fit together ({' '.join(str(error).split())[:120]})") from error


# --- checkpoints ---


@dataclass(frozen=True)
class _Name:
    """A function or class that the pickle names. It is never looked up."""

    name: str


class _Foreign:
    """A placeholder for an object of another package."""


@dataclass(frozen=True)
class _Storage:
    """A file of numbers, as the pickle announces it."""

    dtype: np.dtype[Any]
    key: str
    count: int


def read_checkpoint(content: bytes) -> dict[str, Array]:
    """Return the arrays of a checkpoint, or of its state_dict, by name.

    Raises ValueError if it is no such file, or not whole, or announces more than LARGEST.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _Checkpoint(archive).arrays()
    except ValueError:
        raise
    except (
        zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError, EOFError, KeyError,
        IndexError, TypeError, AttributeError, OverflowError, RecursionError, MemoryError,
    ) as error:  # fmt: skip
        raise ValueError(f"not a PyTorch checkpoint ({' '.join(str(error).split())[:120]})") from error


class _Checkpoint:
    """An archive, and the machine that reads its pickle."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        if sum(info.file_size for info in archive.infolist()) > LARGEST:
            _refuse(f"it has more than {LARGEST >> 20} MiB")
        programs = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(programs) != 1:
            _refuse(f"it has {len(programs)} files data.pkl instead of one")
        self._root = programs[0].removesuffix("data.pkl")
        self._used = 0

    def arrays(self) -> dict[str, Array]:
        info = self._archive.getinfo(f"{self._root}data.pkl")
        if info.file_size > LARGEST_PROGRAM:
            _refuse("its data.pkl is too large")
        top = self._run(self._archive.read(info))
        arrays = top.get("state_dict", top) if isinstance(top, dict) else None
        if not isinstance(arrays, dict) or not arrays:
            _refuse("it holds no dictionary of arrays")
        for name, array in arrays.items():
            if not isinstance(name, str) or not isinstance(array, np.ndarray):
                _refuse("its dictionary holds something else than arrays")
        return arrays

    def _run(self, program: bytes) -> Any:
        stack: list[Any] = []
        memory: dict[int, Any] = {}
        argument: Any
        for instruction, argument, _ in pickletools.genops(program):
            match instruction.name:
                case "PROTO":
                    pass
                case "STOP":
                    return stack.pop()
                case "NONE":
                    stack.append(None)
                case "NEWTRUE" | "NEWFALSE":
                    stack.append(instruction.name == "NEWTRUE")
                case "BININT" | "BININT1" | "BININT2" | "BINFLOAT" | "BINUNICODE":
                    stack.append(argument)
                case "GLOBAL":
                    stack.append(_Name(str(argument)))
                case "MARK":
                    stack.append(_MARK)
                case "BINPUT" | "LONG_BINPUT":
                    memory[argument] = stack[-1]
                case "BINGET" | "LONG_BINGET":
                    stack.append(memory[argument])
                case "EMPTY_DICT":
                    stack.append({})
                case "EMPTY_LIST":
                    stack.append([])
                case "EMPTY_TUPLE":
                    stack.append(())
                case "TUPLE1" | "TUPLE2" | "TUPLE3":
                    items = [stack.pop() for _ in range(int(instruction.name[-1]))]
                    stack.append(tuple(reversed(items)))
                case "TUPLE":
                    stack.append(tuple(_pop_to_mark(stack)))
                case "APPENDS":
                    items = _pop_to_mark(stack)
                    stack[-1].extend(items)
                case "SETITEM":
                    value, key = stack.pop(), stack.pop()
                    _put(stack[-1], [key, value])
                case "SETITEMS":
                    items = _pop_to_mark(stack)
                    _put(stack[-1], items)
                case "BINPERSID":
                    stack.append(_storage(*stack.pop()))
                case "REDUCE" | "NEWOBJ":
                    arguments, function = stack.pop(), stack.pop()
                    stack.append(self._call(function, arguments))
                case "BUILD":  # fills placeholders and dictionaries of arrays, which need nothing more
                    stack.pop()
                case name:
                    _refuse(f"its data.pkl has the instruction {name}")
        return _refuse("its data.pkl has no end")

    def _call(self, function: Any, arguments: Any) -> Any:
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            _refuse("its data.pkl calls something that is not a function")
        if function.name == TENSOR:
            return self._tensor(*arguments[:4])
        return {} if function.name == DICTIONARY else _Foreign()

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any) -> Array:
        """Return a part of a storage as an array; its numbers must lie one after the other."""
        if not isinstance(storage, _Storage) or not isinstance(shape, tuple):
            _refuse("it has an array without numbers")
        if not all(isinstance(size, int) and size >= 0 for size in (offset, *shape)):
            _refuse("it has an array of an impossible shape")
        # Rows one after the other: all that Witness's checkpoints have.
        usual = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        if len(strides) != len(shape) or any(
            stride != step for size, stride, step in zip(shape, strides, usual, strict=True) if size > 1
        ):
            _refuse("it has an array in another order than by rows")
        count, size = math.prod(shape), storage.dtype.itemsize
        info = self._archive.getinfo(f"{self._root}data/{storage.key}")
        if info.file_size != storage.count * size or offset + count > storage.count:
            _refuse(f"its array {storage.key[:40]} has {info.file_size} bytes, which are not those announced")
        self._used += count * size
        if self._used > LARGEST:  # one file may serve many arrays
            _refuse(f"its arrays have more than {LARGEST >> 20} MiB")
        numbers = np.frombuffer(self._archive.read(info), storage.dtype, count, offset * size)
        return numbers.reshape(shape)


def _refuse(why: str) -> NoReturn:
    raise ValueError(f"not a checkpoint that Witness reads: {why}")


def _storage(_: Any, type_: Any, key: Any, _device: Any, count: Any) -> _Storage:
    if not isinstance(type_, _Name) or type_.name not in STORAGES:
        _refuse("it has arrays of another kind than float32 and int64")
    if not isinstance(key, str) or not isinstance(count, int):
        _refuse("it has an array without a file")
    return _Storage(STORAGES[type_.name], key, count)


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    # Not list.index, which compares arrays.
    mark = next((index for index in reversed(range(len(stack))) if stack[index] is _MARK), None)
    if mark is None:
        _refuse("its data.pkl takes more than it has")
    items = stack[mark + 1 :]
    del stack[mark:]
    return items


def _put(target: Any, items: list[Any]) -> None:
    """Put keys and values, in turn, into a dictionary; a placeholder needs none."""
    if isinstance(target, dict):
        target.update(zip(items[::2], items[1::2], strict=True))
    elif not isinstance(target, _Foreign):
        _refuse("its data.pkl fills something that is not a dictionary")


# --- graphs ---


class _Graph:
    """A graph in the making: tensors are known by their names."""

    def __init__(self, arrays: Arrays) -> None:
        import onnx

        self._onnx = onnx
        self._arrays = arrays
        self._graph = onnx.GraphProto()

    def array(self, name: str) -> Float32:
        if name not in self._arrays:
            raise ValueError(f"the checkpoint has no {name}")
        return self._arrays[name]

    def count(self, pattern: str, *, first: int) -> int:
        """Count the arrays of a name with a number in it, from `first` on without a gap."""
        return next(
            number for number in itertools.count() if pattern.format(first + number) not in self._arrays
        )

    def constant(self, array: np.ndarray[Any, Any], name: str = "") -> str:
        name = name or f"constant_{len(self._graph.initializer)}"
        proto = self._onnx.TensorProto
        data_type = proto.INT64 if array.dtype == np.int64 else proto.FLOAT
        array = np.asarray(array, "<i8" if data_type == proto.INT64 else "<f4", order="C")
        self._graph.initializer.append(
            proto(dims=array.shape, data_type=data_type, name=name, raw_data=array.tobytes())
        )
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weight(self, name: str) -> str:
        return self.constant(self.array(name), name)

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"{operator.lower()}_{len(self._graph.node)}"
        made = [self._attribute(name, value) for name, value in attributes.items()]
        self._graph.node.append(
            self._onnx.NodeProto(op_type=operator, input=inputs, output=[output], attribute=made)
        )
        return output

    def _attribute(self, name: str, value: Any) -> onnx.AttributeProto:
        proto = self._onnx.AttributeProto
        if isinstance(value, float):
            return proto(name=name, type=proto.FLOAT, f=value)
        if isinstance(value, int):
            return proto(name=name, type=proto.INT, i=value)
        if isinstance(value, str):
            return proto(name=name, type=proto.STRING, s=value.encode())
        return proto(name=name, type=proto.INTS, ints=value)

    def finish(self, name: str, source: tuple[str, Shape], result: tuple[str, Shape]) -> bytes:
        self._graph.name = name
        self._graph.input.append(self._value(*source))
        self._graph.output.append(self._value(*result))
        opset = self._onnx.OperatorSetIdProto(domain="", version=OPSET)
        model = self._onnx.ModelProto(
            ir_version=IR_VERSION, producer_name="witness", graph=self._graph, opset_import=[opset]
        )
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString(deterministic=True))

    def _value(self, name: str, shape: Shape) -> onnx.ValueInfoProto:
        sizes = self._onnx.TensorShapeProto()
        for size in shape:
            sizes.dim.add(**({"dim_param": size} if isinstance(size, str) else {"dim_value": size}))
        tensor = self._onnx.TypeProto.Tensor(elem_type=self._onnx.TensorProto.FLOAT, shape=sizes)
        return self._onnx.ValueInfoProto(name=name, type=self._onnx.TypeProto(tensor_type=tensor))


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
        weights = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
        return graph.node("InstanceNormalization", tensor, *weights, epsilon=1e-5)

    tensor = normalized("input_values", "sincnet.wav_norm1d")
    for layer in range(3):
        if layer == 0:
            filters = graph.constant(_sinc(graph), "sincnet.conv1d.0.filters")
            tensor = graph.node("Abs", graph.node("Conv", tensor, filters, strides=[10]))
        else:
            name = f"sincnet.conv1d.{layer}"
            weights = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
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
        tensor = graph.node("Add", graph.node("MatMul", tensor, weight), graph.weight(f"{name}.bias"))
        if name != "classifier":
            tensor = graph.node("LeakyRelu", tensor, alpha=0.01)
    graph.node("LogSoftmax", tensor, output="logits", axis=-1)
    free = "batch_size", "num_samples", "num_frames"
    return graph.finish(
        "PyanNet",
        ("input_values", (free[0], 1, free[1])),
        ("logits", (free[0], free[2], len(graph.array("classifier.bias")))),
    )


def _recurrence(graph: _Graph, layer: int, hidden: int) -> tuple[str, str, str]:
    """Return the weights of a layer in both directions, W, R and B of ONNX.

    PyTorch has the gates in the order input, forget, cell, output; ONNX input, output, forget, cell.
    """
    gates = np.arange(4 * hidden).reshape(4, hidden)[[0, 3, 1, 2]].ravel()

    def both(part: str) -> Float32:
        names = (f"lstm.{part}_l{layer}{way}" for way in ("", "_reverse"))
        return np.stack([graph.array(name)[gates] for name in names])

    bias = np.concatenate([both("bias_ih"), both("bias_hh")], axis=1)
    parts = both("weight_ih"), both("weight_hh"), bias
    first, second, third = (
        graph.constant(part, f"lstm.{layer}.{name}") for part, name in zip(parts, "WRB", strict=True)
    )
    return first, second, third


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

    def normalized(tensor: str, name: str, learned: bool = True) -> str:
        mean, variance = f"{name}.running_mean", f"{name}.running_var"
        if learned:
            scale, shift = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
        else:
            size = graph.array(mean).shape
            scale, shift = graph.constant(np.ones(size)), graph.constant(np.zeros(size))
        parameters = scale, shift, graph.weight(mean), graph.weight(variance)
        return graph.node("BatchNormalization", tensor, *parameters, epsilon=1e-5)

    def active(tensor: str, name: str) -> str:
        return graph.node("Relu", normalized(tensor, name))

    def convolved(tensor: str, name: str, **settings: Any) -> str:
        bias = [graph.weight(f"{name}.bias")] if f"{name}.bias" in arrays else []
        return graph.node("Conv", tensor, graph.weight(f"{name}.weight"), *bias, **settings)

    tensor = _head(graph, convolved, normalized, active)
    tensor = active(
        convolved(tensor, "xvector.tdnn.linear", strides=[2], pads=[2, 2]), "xvector.tdnn.nonlinear.batchnorm"
    )
    for block, dilation in enumerate(DILATIONS, start=1):
        layers = graph.count(f"xvector.block{block}.tdnnd{{}}.linear1.weight", first=1)
        for layer in range(1, layers + 1):
            name = f"xvector.block{block}.tdnnd{layer}"
            inner = convolved(active(tensor, f"{name}.nonlinear1.batchnorm"), f"{name}.linear1")
            inner = active(inner, f"{name}.nonlinear2.batchnorm")
            near = convolved(
                inner, f"{name}.cam_layer.linear_local", pads=[dilation, dilation], dilations=[dilation]
            )
            mask = convolved(_context(graph, inner), f"{name}.cam_layer.linear1")
            mask = convolved(graph.node("Relu", mask), f"{name}.cam_layer.linear2")
            mask = _spread(graph, graph.node("Sigmoid", mask), near)
            tensor = graph.node("Concat", tensor, graph.node("Mul", near, mask), axis=1)
        name = f"xvector.transit{block}"
        tensor = convolved(active(tensor, f"{name}.nonlinear.batchnorm"), f"{name}.linear")
    statistics = _pooled(graph, active(tensor, "xvector.out_nonlinear.batchnorm"))
    vector = convolved(statistics, "xvector.dense.linear")
    vector = normalized(vector, "xvector.dense.nonlinear.batchnorm", learned=False)
    graph.node("Squeeze", vector, graph.integers(2), output="embs")
    size = len(graph.array("xvector.dense.linear.weight"))
    return graph.finish("CAMPPlus", ("feats", ("B", "T", MELS)), ("embs", ("B", size)))


def _head(
    graph: _Graph,
    convolved: Callable[..., str],
    normalized: Callable[[str, str], str],
    active: Callable[[str, str], str],
) -> str:
    """Build the residual network over features and time: [B, T, 80] -> [B, 320, T]."""
    around = {"pads": [1, 1, 1, 1]}
    tensor = graph.node("Unsqueeze", graph.node("Transpose", "feats", perm=[0, 2, 1]), graph.integers(1))
    tensor = active(convolved(tensor, "head.conv1", **around), "head.bn1")
    for layer in (1, 2):
        for block in (0, 1):
            name = f"head.layer{layer}.{block}"
            strides = [1, 1] if block else [2, 1]
            inner = active(convolved(tensor, f"{name}.conv1", strides=strides, **around), f"{name}.bn1")
            inner = normalized(convolved(inner, f"{name}.conv2", **around), f"{name}.bn2")
            if not block:
                tensor = normalized(
                    convolved(tensor, f"{name}.shortcut.0", strides=strides), f"{name}.shortcut.1"
                )
            tensor = graph.node("Relu", graph.node("Add", inner, tensor))
    tensor = active(convolved(tensor, "head.conv2", strides=[2, 1], **around), "head.bn2")
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
