"""Model file -> callable. The only importer of onnxruntime: which provider runs what, on how many cores.

One session with one thread, called from many threads at once, beats one session with many threads for
the LSTM of the segmentation (on two cores 12 ms against 15 ms a window, four windows a call; 14 against 29
one by one), and it makes the result independent of the number of threads: no sum is ever split.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import onnxruntime as ort

from witness import tracing
from witness.errors import DeviceError, ModelError
from witness.schema import Float32

MIGRAPHX = "MIGraphXExecutionProvider"
CPU = "CPUExecutionProvider"

ort.disable_telemetry_events()  # it exists in the Windows builds only, and there it is on
ort.set_default_logger_severity(
    4
)  # the MIGraphX provider chats on it; what goes wrong is raised all the same

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Cores that this process may use; less than the machine's inside a container or under taskset."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


@dataclass(frozen=True)
class Runtime:
    """What changes the speed of a run and nothing else; the counterpart of `pipeline.Options`."""

    device: Literal["auto", "cpu", "migraphx"] = "auto"
    gpu: int = 0
    threads: int = 0
    """Cores for the diarizer; 0 means all that this process may use."""
    serial: bool = False
    """Run the speech recogniser after the diarizer instead of beside it."""

    @property
    def worker_count(self) -> int:
        return self.threads or cores()


class Model:
    """An ONNX model with one input and one output, as a function of one array.

    Safe to call from several threads at once; each call keeps one core busy.
    """

    def __init__(self, source: str | bytes, name: str, *, options: ort.SessionOptions | None = None) -> None:
        """Open `source`, a path or the bytes of a model, on the CPU.

        `name` stands for the file in messages. Raises ModelError if onnxruntime cannot run it.
        """
        self.name = name
        self._open(source, options or _one_thread(), [CPU])

    def _open(self, source: str | bytes, options: ort.SessionOptions, providers: list[Any]) -> None:
        self._trace = trace = tracing.current()
        if trace is not None and trace.folder is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(trace.folder / f"session-{id(self)}")
        opened = time.perf_counter()
        try:
            self._session = ort.InferenceSession(source, options, providers=providers, enable_fallback=False)
        except Exception as error:  # onnxruntime raises a dozen unrelated classes
            raise ModelError(f"{self.name}: not a model that onnxruntime can run ({_line(error)})") from error
        if options.enable_profiling and trace is not None:
            trace.sessions.append((self.name, opened, self._session.end_profiling))
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1:
            raise ModelError(f"{self.name}: has {len(inputs)} inputs instead of one; is it the right file?")
        self._input, self._output = inputs[0].name, outputs[0].name
        self.input_shape: tuple[int | None, ...] = tuple(
            size if isinstance(size, int) else None for size in inputs[0].shape
        )

    def __call__(self, array: Float32) -> Float32:
        """The first output for `array`. Raises ModelError if the model refuses its shape."""
        begun = time.perf_counter()
        try:
            result = self._session.run([self._output], {self._input: np.ascontiguousarray(array, np.float32)})
        except Exception as error:
            raise ModelError(f"{self.name}: failed on input {array.shape} ({_line(error)})") from error
        if self._trace is not None:
            self._trace.call(self.name, array.shape, begun)
        return np.asarray(result[0], dtype=np.float32)


class StrictMIGraphX(Model):
    """A model wholly on one AMD GPU, its input pinned to one shape, or DeviceError: never the CPU unasked.

    The provider's own cache of compiled graphs loads wrong programs without an error as soon as a
    dimension is free, and `get_providers()` names the provider even if every node runs on the CPU; so
    the shape is pinned and checked, no cache folder is given, and the assignment of nodes is read back.
    """

    def __init__(self, source: bytes, name: str, shape: tuple[int, ...], *, gpu: int = 0) -> None:
        # These variables beat the options given in code: another cache folder, another precision.
        for variable in [key for key in os.environ if key.startswith("ORT_MIGRAPHX_")]:
            del os.environ[variable]
        self.name = name
        if MIGRAPHX not in ort.get_available_providers():
            raise DeviceError("this onnxruntime has no MIGraphX; cure: pip install onnxruntime-migraphx")
        options = _one_thread()
        for dimension, size in zip(Model(source, name)._session.get_inputs()[0].shape, shape, strict=True):
            if isinstance(dimension, str):
                options.add_free_dimension_override_by_name(dimension, size)
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        try:
            self._open(source, options, [(MIGRAPHX, {"device_id": str(gpu)})])
        except ModelError as error:
            raise DeviceError(
                f"MIGraphX cannot run on GPU {gpu}: {error}; check the card, ROCm 7 and MIGraphX, "
                "or use --device cpu"
            ) from error
        if self.input_shape != shape:
            raise DeviceError(f"{name}: MIGraphX pinned {self.input_shape}, not {shape}; cure: --device cpu")
        assigned = {part.ep_name for part in self._session.get_provider_graph_assignment_info()}
        if assigned != {MIGRAPHX}:
            raise DeviceError(f"{name}: ran on {sorted(assigned)}, not MIGraphX alone; cure: --device cpu")


def ordered_map(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """`map` on `threads` threads, results in the order of `items`, at most one item a thread in hand.

    `items` is drawn from in the caller's thread, so a lazy producer stays bounded in memory.
    """
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _one_thread() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what goes wrong is raised, and stderr is ours
    return options


def _line(error: Exception) -> str:
    """The end of what onnxruntime says: the beginning is source files of the machine that built it."""
    text = " ".join(str(error).split())
    return text.rpartition("[ONNXRuntimeError] : ")[2][-300:]
