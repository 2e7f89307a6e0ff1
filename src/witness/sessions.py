"""Model file -> callable. The only importer of onnxruntime: which provider runs what, on how many cores.

One session with one thread, called from many threads at once, beats one session with many threads for
the LSTM of the segmentation (on two cores 12 ms against 15 ms a window, four windows a call; 14 against 29
one by one), and it makes the result independent of the number of threads: no sum is ever split.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from witness import tracing
from witness.errors import DeviceError, ModelError, UsageError, WitnessError
from witness.schema import Float32, Map, R, T

MIGRAPHX = "MIGraphXExecutionProvider"
CPU = "CPUExecutionProvider"


@cache
def _onnxruntime() -> Any:
    """The module, imported by the first who opens a model: whoever wants a `Runtime` need not wait for it."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()  # it exists in the Windows builds only, and there it is on
    # The MIGraphX provider chats on it; what goes wrong is raised all the same.
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime


class Model:
    """An ONNX model with one input and one output, as a function of one array.

    Safe to call from several threads at once; each call keeps one core busy.
    """

    _trace: tracing.Trace | None = None

    def __init__(self, source: str | bytes, name: str, *, options: Any = None) -> None:
        """Open `source`, a path or the bytes of a model, on the CPU.

        `name` stands for the file in messages. Raises ModelError if onnxruntime cannot run it.
        """
        options = options or _one_thread()
        self._trace = trace = tracing.current()
        if trace is not None and trace.folder is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(trace.folder / f"session-{id(self)}")
        opened = time.perf_counter()
        try:
            session = _onnxruntime().InferenceSession(source, options, providers=[CPU], enable_fallback=False)
        except Exception as error:  # onnxruntime raises a dozen unrelated classes
            raise ModelError(f"{name}: not a model that onnxruntime can run ({_line(error)})") from error
        if options.enable_profiling and trace is not None:
            trace.sessions.append((name, opened, session.end_profiling))
        self._take(session, name)

    def _take(self, session: Any, name: str) -> None:
        self._session, self.name = session, name
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1:
            raise ModelError(f"{self.name}: has {len(inputs)} inputs instead of one; is it the right file?")
        self.input_name, self._output = inputs[0].name, outputs[0].name
        self.input_shape: tuple[int | None, ...] = tuple(
            size if isinstance(size, int) else None for size in inputs[0].shape
        )

    def __call__(self, array: Float32) -> Float32:
        """The first output for `array`. Raises ModelError if the model refuses its shape."""
        begun, cpu = time.perf_counter(), time.thread_time()
        try:
            result = self._session.run(
                [self._output], {self.input_name: np.ascontiguousarray(array, np.float32)}
            )
        except Exception as error:
            raise ModelError(f"{self.name}: failed on input {array.shape} ({_line(error)})") from error
        if self._trace is not None:
            self._trace.call(self.name, array.shape, begun, cpu)
        return np.asarray(result[0], dtype=np.float32)


def folded(path: str) -> bytes:
    """The model at `path` with what is made of weights alone already made. Raises ModelError."""
    options = _one_thread()
    options.graph_optimization_level = _onnxruntime().GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as scratch:
        options.optimized_model_filepath = str(Path(scratch, "model.onnx"))
        Model(path, path, options=options)
        return Path(options.optimized_model_filepath).read_bytes()


class StrictMIGraphX(Model):
    """A model wholly on one AMD GPU, its input pinned to one shape, or DeviceError: never the CPU unasked.

    The provider's own cache of compiled graphs loads wrong programs without an error as soon as a
    dimension is free, and `get_providers()` names the provider even if every node runs on the CPU; so
    the shape is pinned and checked, and the assignment of nodes is read back. The provider's libraries may
    abort when they are torn down and print on stdout: for `migraphx_child` only.
    """

    def __init__(self, source: bytes, name: str, shape: tuple[int, ...], provider: ProviderOptions) -> None:
        options = _strict(pins(Model(source, name)._session.get_inputs()[0].shape, shape))
        try:
            session = _onnxruntime().InferenceSession(
                source, options, providers=[(MIGRAPHX, provider)], enable_fallback=False
            )
        except Exception as error:
            if "fallback to CPU EP has been explicitly disabled" in str(error):
                raise DeviceError(
                    "it does not take all of the model's nodes; `witness probe` says which"
                ) from error
            raise DeviceError(_line(error)) from error
        self._take(session, name)
        if self.input_shape != shape:
            raise DeviceError(f"its input was pinned to {list(self.input_shape)}, not {list(shape)}")
        if (assigned := {provider for provider, _ in _assignment(self._session)}) != {MIGRAPHX}:
            raise DeviceError(f"its nodes are on {sorted(assigned)}, not on MIGraphX alone")


ProviderOptions = dict[str, str]
"""What the MIGraphX provider is told, in its own words."""


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
    file = Path(_onnxruntime().__file__).parent / "capi" / "libonnxruntime_providers_migraphx.so"
    return file if MIGRAPHX in _onnxruntime().get_available_providers() and file.exists() else None


def runtime_version() -> str:
    return f"onnxruntime {_onnxruntime().__version__}"


def pins(free: Sequence[int | str | None], shape: Sequence[int]) -> dict[str, int]:
    """The size of each dimension of `free` that has a name. Raises DeviceError if the two do not fit."""
    if len(free) != len(shape) or any(
        size != wanted and not isinstance(size, str) for size, wanted in zip(free, shape, strict=True)
    ):
        raise DeviceError(f"its input {list(free)} cannot be pinned to {list(shape)}")
    return {size: wanted for size, wanted in zip(free, shape, strict=True) if isinstance(size, str)}


@dataclass(frozen=True)
class Trial:
    """What a provider made of a model that may have any inputs and outputs."""

    inputs: dict[str, tuple[int, ...]]
    nodes: dict[str, dict[str, int]]
    """By provider, how many nodes of each operator."""
    open_s: float
    run_ms: float
    """Median of five."""
    outputs: list[Float32]
    """For noise of a fixed seed."""


def try_model(
    source: bytes, name: str, shapes: dict[str, tuple[int, ...]], provider: ProviderOptions | None
) -> Trial:
    """Run `source`, its inputs pinned to `shapes`, on MIGraphX and the CPU what that leaves; or CPU alone.

    Inputs of fixed sizes need no shape. Raises ModelError, DeviceError, or UsageError if shapes are missing.
    """
    options = _onnxruntime().SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        whole = _onnxruntime().InferenceSession(source, _one_thread(), providers=[CPU], enable_fallback=False)
        for dimension, size in _pin_all(name, whole, shapes).items():
            options.add_free_dimension_override_by_name(dimension, size)
        providers: list[Any] = [CPU] if provider is None else [(MIGRAPHX, provider), CPU]
        begun = time.perf_counter()
        session = _onnxruntime().InferenceSession(source, options, providers=providers, enable_fallback=False)
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
            raise DeviceError(_line(error)) from error
        raise ModelError(f"{name}: not a model that onnxruntime can run ({_line(error)})") from error
    nodes: dict[str, dict[str, int]] = {}
    for where, operator in _assignment(session):
        counts = nodes.setdefault(where, {})
        counts[operator] = counts.get(operator, 0) + 1
    sizes = {key: value.shape for key, value in feeds.items()}
    numbers = [np.asarray(output, np.float32) for output in outputs if isinstance(output, np.ndarray)]
    return Trial(sizes, nodes, open_s, float(np.median(times)), numbers)


def _pin_all(name: str, session: Any, shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    free = {node.name: node.shape for node in session.get_inputs()}
    examples = [
        f"--shape {key}={'x'.join(str(size if isinstance(size, int) else 1) for size in sizes)}"
        for key, sizes in free.items()
        if not all(isinstance(size, int) for size in sizes)
    ]
    wanted = "; give " + " ".join(examples) + " or other sizes" if examples else "; it needs no --shape"
    if unknown := shapes.keys() - free.keys():
        raise UsageError(f"{name} has no input {', '.join(sorted(unknown))}{wanted}")
    try:
        found: dict[str, int] = {}
        for key, sizes in free.items():
            fixed = [size for size in sizes if isinstance(size, int)]
            found |= pins(sizes, shapes.get(key, fixed))
    except DeviceError as error:
        raise UsageError(f"{name}: {error}{wanted}") from error
    return found


def _noise(kind: str, shape: Sequence[int]) -> npt.NDArray[Any]:
    """An input of onnxruntime's type `kind`: noise for floats, ones for everything else."""
    types = {"float16": np.float16, "float": np.float32, "double": np.float64}
    name = kind.removeprefix("tensor(").removesuffix(")")
    if name in types:
        return np.random.RandomState(0).normal(0.0, 1.0, shape).astype(types[name])
    return np.ones(shape, np.dtype(name))


def _strict(pinned: dict[str, int]) -> Any:
    options = _one_thread()
    for dimension, size in pinned.items():
        options.add_free_dimension_override_by_name(dimension, size)
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return options


def _assignment(session: Any) -> list[tuple[str, str]]:
    """(provider, operator) of every node."""
    return [
        (part.ep_name, node.op_type)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    ]


@contextmanager
def on_cores(threads: int) -> Iterator[Map]:
    """A `map` on `threads` threads, which all maps that are made of it share.

    Each has at most one item a thread in hand beside the one that it waits for, so memory stays bounded.
    """
    with ThreadPoolExecutor(max_workers=threads) as pool:

        def mapped(function: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
            waiting: deque[Future[R]] = deque()
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

        try:
            yield mapped
        finally:
            pool.shutdown(cancel_futures=True)  # what an error or Ctrl-C left in the queue


def _one_thread() -> Any:
    options = _onnxruntime().SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # no faster with it, and each thread reserves 70 MB more
    options.log_severity_level = 4  # what goes wrong is raised, and stderr is ours
    return options


def _line(error: Exception) -> str:
    """The end of what onnxruntime says: the beginning is source files of the machine that built it."""
    text = " ".join(str(error).split())
    return text.rpartition("[ONNXRuntimeError] : ")[2][-300:]
