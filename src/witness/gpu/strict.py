"""Models on an AMD GPU through onnxruntime's MIGraphX provider: wholly, or not at all.

The provider's libraries may abort when they are torn down, and they print on stdout: whatever opens a session
with it runs in the child process (`amd.child`) only.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from witness.errors import DeviceError, UsageError, WitnessError
from witness.gpu.provider import (
    MIGRAPHX,
    Wish,
    ask_for_assignment,
    assignment,
    open_session,
    says_assignment,
)
from witness.models.session import Model, load_onnxruntime, one_thread, reason, unusable
from witness.schema import Float32

Shapes = dict[str, tuple[int, ...]]
"""Name of an input -> its shape."""


def open_strictly(source: bytes, name: str, shape: tuple[int, ...], provider: Wish) -> Model:
    """A model wholly on one AMD GPU, its input pinned to one shape. Raises DeviceError: no CPU unasked.

    The provider's own cache of compiled graphs loads wrong programs without an error as soon as a dimension
    is free, and `get_providers()` names the provider even if every node runs on the CPU; so the shape is
    pinned and checked, onnxruntime is forbidden to use the CPU, and the assignment of the nodes is read back.
    """
    options = one_thread()
    for dimension, size in pins(Model(source, name).dimensions, shape).items():
        options.add_free_dimension_override_by_name(dimension, size)
    with tempfile.TemporaryDirectory(prefix="witness-session-") as folder:
        ask_for_assignment(options, folder)
        try:
            session = open_session(source, options, provider, cpu=False)
            model = Model.of(session, name)
            if model.input_shape != shape:
                raise DeviceError(f"its input was pinned to {list(model.input_shape)}, not {list(shape)}")
            nodes = assignment(session, {model.input_name: np.zeros(shape, np.float32)})
        except WitnessError:
            raise
        except Exception as error:
            if "fallback to CPU EP has been explicitly disabled" in str(error):
                raise DeviceError(
                    "it does not take all of the model's nodes; `witness probe` says which"
                ) from error
            raise DeviceError(reason(error)) from error
    if (assigned := {where for where, _ in nodes}) != {MIGRAPHX}:
        raise DeviceError(f"its nodes are on {sorted(assigned)}, not on {MIGRAPHX} alone")
    return model


def pins(dimensions: Sequence[int | str | None], shape: Sequence[int]) -> dict[str, int]:
    """The size of each dimension that has a name. Raises DeviceError if the two do not fit."""
    if len(dimensions) != len(shape) or any(
        size != wanted and not isinstance(size, str) for size, wanted in zip(dimensions, shape, strict=True)
    ):
        raise DeviceError(f"its input {list(dimensions)} cannot be pinned to {list(shape)}")
    return {size: wanted for size, wanted in zip(dimensions, shape, strict=True) if isinstance(size, str)}


@dataclass(frozen=True)
class Trial:
    """What a provider made of a model that may have any inputs and outputs."""

    inputs: Shapes
    nodes: dict[str, dict[str, int]]
    """Provider -> operator -> number of nodes."""
    open_s: float
    """Seconds to open it."""
    run_ms: float
    """Milliseconds of a run, the median of five."""
    outputs: list[Float32]
    """For noise of a fixed seed."""


def try_model(source: bytes, name: str, shapes: Shapes, provider: Wish | None) -> Trial:
    """Run a model, its inputs pinned to `shapes`, on MIGraphX and what that leaves on the CPU.

    Without `provider`, all of it on the CPU. Inputs of fixed sizes need no shape. Raises ModelError,
    DeviceError (before onnxruntime 1.24, too: nothing says there which nodes are where), or UsageError if
    shapes are missing.
    """
    runtime = load_onnxruntime()
    if not says_assignment():
        raise DeviceError(f"`witness probe` needs onnxruntime 1.24 or newer; this is {runtime.__version__}")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    ask_for_assignment(options, "")
    try:
        source = _with_names(source)
        whole = open_session(source, one_thread(), None, cpu=True)
        for dimension, size in _pin_all(name, whole, shapes).items():
            options.add_free_dimension_override_by_name(dimension, size)
        begun = time.perf_counter()
        session = open_session(source, options, provider, cpu=True)
        open_s = time.perf_counter() - begun
        feeds = {node.name: _noise(node.type, node.shape) for node in session.get_inputs()}
        outputs = session.run(None, feeds)
        times = []
        for _ in range(5):
            begun = time.perf_counter()
            session.run(None, feeds)
            times.append(1e3 * (time.perf_counter() - begun))
    except WitnessError:
        raise
    except Exception as error:
        if provider is not None:
            raise DeviceError(reason(error)) from error
        raise unusable(name, error) from error
    nodes: dict[str, dict[str, int]] = {}
    for where, operator in assignment(session, feeds):
        counts = nodes.setdefault(where, {})
        counts[operator] = counts.get(operator, 0) + 1
    inputs = {key: value.shape for key, value in feeds.items()}
    numbers = [np.asarray(output, np.float32) for output in outputs if isinstance(output, np.ndarray)]
    return Trial(inputs, nodes, open_s, float(np.median(times)), numbers)


def _with_names(source: bytes) -> bytes:
    """The model with a name for each free dimension of its inputs: onnxruntime pins no others."""
    import onnx

    model = onnx.load_from_string(source)
    for value in model.graph.input:
        for number, dimension in enumerate(value.type.tensor_type.shape.dim):
            if dimension.WhichOneof("value") is None:
                dimension.dim_param = f"{value.name}_{number}"
    named: bytes = model.SerializeToString()
    return named


def _pin_all(name: str, session: Any, shapes: Shapes) -> dict[str, int]:
    """As `pins`, for all inputs of a session. Raises UsageError that shows how to give the shapes."""
    inputs = {node.name: node.shape for node in session.get_inputs()}
    examples = [
        f"--shape {key}={'x'.join(str(size if isinstance(size, int) else 1) for size in sizes)}"
        for key, sizes in inputs.items()
        if not all(isinstance(size, int) for size in sizes)
    ]
    wanted = "; give " + " ".join(examples) + " or other sizes" if examples else "; it needs no --shape"
    if unknown := shapes.keys() - inputs.keys():
        raise UsageError(f"{name} has no input {', '.join(sorted(unknown))}{wanted}")
    pinned: dict[str, int] = {}
    try:
        for key, sizes in inputs.items():
            fixed = [size for size in sizes if isinstance(size, int)]
            pinned |= pins(sizes, shapes.get(key, fixed))
    except DeviceError as error:
        raise UsageError(f"{name}: {error}{wanted}") from error
    return pinned


def _noise(kind: str, shape: Sequence[int]) -> npt.NDArray[Any]:
    """An input of onnxruntime's type `kind`: noise for floats, ones for everything else."""
    types = {"float16": np.float16, "float": np.float32, "double": np.float64}
    name = kind.removeprefix("tensor(").removesuffix(")")
    if name in types:
        return np.random.RandomState(0).normal(0.0, 1.0, shape).astype(types[name])
    return np.ones(shape, np.dtype(name))
