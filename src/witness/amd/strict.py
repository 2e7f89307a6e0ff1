"""Models on an AMD GPU through onnxruntime's MIGraphX provider: wholly, or not at all.

The provider's libraries may abort when they are torn down, and they print on stdout: whatever opens a session
with it runs in the child process (`amd.child`) only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from witness import sessions
from witness.errors import DeviceError, UsageError, WitnessError
from witness.schema import Float32
from witness.sessions import CPU, Model

MIGRAPHX = "MIGraphXExecutionProvider"

ProviderOptions = dict[str, str]
"""What the MIGraphX provider is told, in its own words."""
Shapes = dict[str, tuple[int, ...]]
"""Name of an input -> its shape."""


def provider_options(folder: str, *, gpu: int, fp16: bool, exhaustive: bool) -> ProviderOptions:
    """`folder` must belong to one model, shape, precision, GPU and library version alone."""
    return {
        "device_id": str(gpu),
        "migraphx_model_cache_dir": folder,
        "migraphx_fp16_enable": str(int(fp16)),
        "migraphx_exhaustive_tune": str(int(exhaustive)),
    }


def provider_library() -> Path | None:
    """The file of the MIGraphX provider; None if this onnxruntime has none."""
    runtime = sessions.onnxruntime()
    file = Path(runtime.__file__).parent / "capi" / "libonnxruntime_providers_migraphx.so"
    return file if MIGRAPHX in runtime.get_available_providers() and file.exists() else None


def open_strictly(source: bytes, name: str, shape: tuple[int, ...], provider: ProviderOptions) -> Model:
    """A model wholly on one AMD GPU, its input pinned to one shape. Raises DeviceError: no CPU unasked.

    The provider's own cache of compiled graphs loads wrong programs without an error as soon as a dimension
    is free, and `get_providers()` names the provider even if every node runs on the CPU; so the shape is
    pinned and checked, and the assignment of the nodes is read back.
    """
    options = sessions.one_thread()
    for dimension, size in pins(Model(source, name).dimensions, shape).items():
        options.add_free_dimension_override_by_name(dimension, size)
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        session = sessions.onnxruntime().InferenceSession(
            source, options, providers=[(MIGRAPHX, provider)], enable_fallback=False
        )
    except Exception as error:
        if "fallback to CPU EP has been explicitly disabled" in str(error):
            raise DeviceError(
                "it does not take all of the model's nodes; `witness probe` says which"
            ) from error
        raise DeviceError(sessions.reason(error)) from error
    model = Model.of(session, name)
    if model.input_shape != shape:
        raise DeviceError(f"its input was pinned to {list(model.input_shape)}, not {list(shape)}")
    if (assigned := {where for where, _ in _assignment(session)}) != {MIGRAPHX}:
        raise DeviceError(f"its nodes are on {sorted(assigned)}, not on MIGraphX alone")
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


def try_model(source: bytes, name: str, shapes: Shapes, provider: ProviderOptions | None) -> Trial:
    """Run a model, its inputs pinned to `shapes`, on MIGraphX and what that leaves on the CPU.

    Without `provider`, all of it on the CPU. Inputs of fixed sizes need no shape. Raises ModelError,
    DeviceError, or UsageError if shapes are missing.
    """
    runtime = sessions.onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        whole = runtime.InferenceSession(
            source, sessions.one_thread(), providers=[CPU], enable_fallback=False
        )
        for dimension, size in _pin_all(name, whole, shapes).items():
            options.add_free_dimension_override_by_name(dimension, size)
        providers: list[Any] = [CPU] if provider is None else [(MIGRAPHX, provider), CPU]
        begun = time.perf_counter()
        session = runtime.InferenceSession(source, options, providers=providers, enable_fallback=False)
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
            raise DeviceError(sessions.reason(error)) from error
        raise sessions.unusable(name, error) from error
    nodes: dict[str, dict[str, int]] = {}
    for where, operator in _assignment(session):
        counts = nodes.setdefault(where, {})
        counts[operator] = counts.get(operator, 0) + 1
    inputs = {key: value.shape for key, value in feeds.items()}
    numbers = [np.asarray(output, np.float32) for output in outputs if isinstance(output, np.ndarray)]
    return Trial(inputs, nodes, open_s, float(np.median(times)), numbers)


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


def _assignment(session: Any) -> list[tuple[str, str]]:
    """(provider, operator) of every node."""
    return [
        (part.ep_name, node.op_type)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]
