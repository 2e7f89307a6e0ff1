"""Models on an AMD GPU through onnxruntime's MIGraphX provider: wholly, or not at all.

The provider's libraries may abort when they are torn down, and they print on stdout: only the child process
(`gpu.process`) opens a session with it.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from witness.errors import DeviceError, UsageError, WitnessError
from witness.models.session import CPU, Model, load_onnxruntime, one_thread, short_reason, unusable_model
from witness.schema import Float32

MIGRAPHX = "MIGraphXExecutionProvider"
Shapes = dict[str, tuple[int, ...]]
"""Name of an input -> its shape."""


class ProviderOptions(TypedDict):
    """The provider, as a request to the child describes it."""

    plugin: str | None
    """The library of AMD's plug-in; None: the built-in provider."""
    options: dict[str, str]
    """In the provider's own words."""


# --- sessions ---


def open_session(source: bytes, options: Any, provider: ProviderOptions | None, *, cpu: bool) -> Any:
    """Open a session with the provider, and with the CPU for the nodes that it leaves if `cpu` is true.

    Without `provider`, on the CPU. Raises DeviceError, or any error of onnxruntime's.
    """
    runtime = load_onnxruntime()
    if provider is None:
        return runtime.InferenceSession(source, options, providers=[CPU], enable_fallback=False)
    if not cpu:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if provider["plugin"] is None:
        providers: list[Any] = [(MIGRAPHX, provider["options"])]
        providers += [CPU] if cpu else []
        return runtime.InferenceSession(source, options, providers=providers, enable_fallback=False)
    devices = plugin_devices(provider["plugin"])
    gpu = int(provider["options"].get("device_id", 0))
    if gpu >= len(devices):
        # onnxruntime looks for cards in /sys/class/drm, which some containers hide.
        raise DeviceError(f"the plug-in finds {len(devices)} cards, so there is no number {gpu}")
    options.add_provider_for_devices([devices[gpu]], provider["options"])
    return runtime.InferenceSession(source, options, enable_fallback=False)


@cache
def plugin_devices(library: str) -> list[Any]:
    runtime = load_onnxruntime()
    if not records_assignment():
        raise DeviceError(f"the plug-in needs onnxruntime 1.24 or newer, and this is {runtime.__version__}")
    try:
        runtime.register_execution_provider_library(f"witness {MIGRAPHX}", library)
    except Exception as error:  # onnxruntime raises a dozen unrelated classes
        raise DeviceError(f"the plug-in does not start ({short_reason(error)})") from error
    return [device for device in runtime.get_ep_devices() if device.ep_name == MIGRAPHX]


def records_assignment() -> bool:
    """Return true if onnxruntime records the provider of each node, as it does since 1.24."""
    return hasattr(load_onnxruntime().InferenceSession, "get_provider_graph_assignment_info")


def ask_for_assignment(options: Any, folder: str) -> None:
    """Have a session with these `options` record its nodes for `assignment`; `folder` holds a profile."""
    if records_assignment():
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    else:
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "profile"))


def assignment(session: Any, feeds: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (provider, operator) of every node; without onnxruntime's record, of all that run for `feeds`.

    There a graph that MIGraphX took is one node.
    """
    if records_assignment():
        return [
            (part.ep_name, node.op_type)
            for part in session.get_provider_graph_assignment_info()
            for node in part.get_nodes()
        ]
    session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_bytes())
    nodes = [event.get("args", {}) for event in events if event["name"].endswith("_kernel_time")]
    return [(node["provider"], node["op_name"]) for node in nodes]


# --- a model wholly on the GPU ---


def open_strictly(source: bytes, name: str, shape: tuple[int, ...], provider: ProviderOptions) -> Model:
    """Open a model wholly on one AMD GPU, its input pinned to one shape. Raises DeviceError: no CPU unasked.

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
            raise DeviceError(short_reason(error)) from error
    if (assigned := {device for device, _ in nodes}) != {MIGRAPHX}:
        raise DeviceError(f"its nodes are on {sorted(assigned)}, not on {MIGRAPHX} alone")
    return model


def pins(dimensions: Sequence[int | str | None], shape: Sequence[int]) -> dict[str, int]:
    """Return the size of each dimension that has a name. Raises DeviceError if the two do not fit."""
    if len(dimensions) != len(shape) or any(
        free != size and not isinstance(free, str) for free, size in zip(dimensions, shape, strict=True)
    ):
        raise DeviceError(f"its input {list(dimensions)} cannot be pinned to {list(shape)}")
    return {free: size for free, size in zip(dimensions, shape, strict=True) if isinstance(free, str)}


# --- any model, as far as it goes ---


@dataclass(frozen=True)
class Trial:
    """The result of running a model, with any inputs and outputs, on a provider."""

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
    """Run a model, its inputs pinned to `shapes`, on MIGraphX, and on the CPU the nodes that this leaves.

    Without `provider`, all of it on the CPU. Inputs of fixed sizes need no shape. Raises ModelError,
    DeviceError (before onnxruntime 1.24, too, which does not record the nodes), or UsageError if shapes are
    missing.
    """
    runtime = load_onnxruntime()
    if not records_assignment():
        raise DeviceError(f"`witness probe` needs onnxruntime 1.24 or newer; this is {runtime.__version__}")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    ask_for_assignment(options, "")
    try:
        source = _name_dimensions(source)
        whole = open_session(source, one_thread(), None, cpu=True)
        inputs = {node.name: node.shape for node in whole.get_inputs()}
        for dimension, size in pin_all(name, inputs, shapes).items():
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
            raise DeviceError(short_reason(error)) from error
        raise unusable_model(name, error) from error
    nodes: dict[str, dict[str, int]] = {}
    for device, operator in assignment(session, feeds):
        counts = nodes.setdefault(device, {})
        counts[operator] = counts.get(operator, 0) + 1
    inputs = {key: value.shape for key, value in feeds.items()}
    numbers = [np.asarray(output, np.float32) for output in outputs if isinstance(output, np.ndarray)]
    return Trial(inputs, nodes, open_s, float(np.median(times)), numbers)


def _name_dimensions(source: bytes) -> bytes:
    """Name each free dimension of the model's inputs: onnxruntime pins no others."""
    import onnx

    model = onnx.load_from_string(source)
    for value in model.graph.input:
        for number, dimension in enumerate(value.type.tensor_type.shape.dim):
            if dimension.WhichOneof("value") is None:
                dimension.dim_param = f"{value.name}_{number}"
    named: bytes = model.SerializeToString()
    return named


def pin_all(name: str, inputs: Mapping[str, Sequence[int | str | None]], shapes: Shapes) -> dict[str, int]:
    """Return the size of each dimension that has a name, in a model with these inputs.

    Raises UsageError if the shapes do not fit; inputs of fixed sizes need none.
    """
    pinned: dict[str, int] = {}
    try:
        if unknown := shapes.keys() - inputs.keys():
            raise DeviceError(f"it has no input {', '.join(sorted(unknown))}")
        for key, sizes in inputs.items():
            fixed = [size for size in sizes if isinstance(size, int)]
            pinned |= pins(sizes, shapes.get(key, fixed))
    except DeviceError as error:
        examples = [
            f"--shape {key}={'x'.join(str(size if isinstance(size, int) else 1) for size in sizes)}"
            for key, sizes in inputs.items()
            if not all(isinstance(size, int) for size in sizes)
        ]
        fix = f"give {' '.join(examples)} or other sizes" if examples else "it needs no --shape"
        raise UsageError(f"{name}: {error}; {fix}") from error
    return pinned


def _noise(tensor_type: str, shape: Sequence[int]) -> npt.NDArray[Any]:
    """Return an input of onnxruntime's type: noise for floats, ones for everything else."""
    types = {"float16": np.float16, "float": np.float32, "double": np.float64}
    name = tensor_type.removeprefix("tensor(").removesuffix(")")
    if name in types:
        return np.random.RandomState(0).normal(0.0, 1.0, shape).astype(types[name])
    return np.ones(shape, np.dtype(name))
