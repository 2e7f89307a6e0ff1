"""Model files as callables, and callables on several cores. The only importer of onnxruntime.

A session has one thread, and many threads call it at once. That makes the result independent of the number of
threads, because no sum is ever split; and it is faster (docs/decisions/2026-11-22-constants.md, "One thread
per session").
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from witness import tracing
from witness.errors import ModelError
from witness.schema import Float32, Map, R, T

CPU = "CPUExecutionProvider"


@cache
def load_onnxruntime() -> Any:
    """Import onnxruntime at the first model: a run without models does not wait for it.

    Raises ModelError if it cannot be imported, as wheels before 1.27.1 cannot with glibc 2.41.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ModelError(
            f"onnxruntime cannot be loaded ({error}); fix: `witness doctor` names the fault"
        ) from error

    onnxruntime.disable_telemetry_events()  # it exists in the Windows builds only, and there it is on
    # The MIGraphX provider is talkative; its errors are raised all the same.
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime


class Model:
    """An ONNX model with one input and one output, as a function of one array.

    Safe to call from several threads at once; each call keeps one core busy.
    """

    name: str
    """Its file's name in messages."""
    input_name: str
    dimensions: tuple[int | str | None, ...]
    """Of its input: a size, or the name of a free dimension if it has one."""
    _trace: tracing.Trace | None = None

    def __init__(self, source: str | bytes, name: str, *, options: Any = None) -> None:
        """Open `source`, a path or the bytes of a model, on the CPU.

        `name` stands for the file in messages. Raises ModelError if onnxruntime cannot run it.
        """
        options = options or one_thread()
        self._trace = trace = tracing.current()
        if trace is not None and trace.folder is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(trace.folder / f"session-{id(self)}")
        opened = time.perf_counter()
        try:
            session = load_onnxruntime().InferenceSession(
                source, options, providers=[CPU], enable_fallback=False
            )
        except Exception as error:  # onnxruntime raises a dozen unrelated classes
            raise unusable_model(name, error) from error
        if options.enable_profiling and trace is not None:
            trace.sessions.append((name, opened, session.end_profiling))
        self._take(session, name)

    @classmethod
    def of(cls, session: Any, name: str) -> Model:
        """Return the model of an open session. Raises ModelError if it has other than one input."""
        model = cls.__new__(cls)
        model._take(session, name)
        return model

    def _take(self, session: Any, name: str) -> None:
        self._session, self.name = session, name
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1:
            raise ModelError(f"{self.name}: has {len(inputs)} inputs instead of one; is it the right file?")
        self.input_name, self._output = inputs[0].name, outputs[0].name
        self.dimensions = tuple(inputs[0].shape)

    @property
    def input_shape(self) -> tuple[int | None, ...]:
        """The shape of its input; None: any size."""
        return tuple(size if isinstance(size, int) else None for size in self.dimensions)

    def __call__(self, array: Float32) -> Float32:
        """Return the first output for `array`. Raises ModelError if the model refuses its shape."""
        begun, cpu = time.perf_counter(), time.thread_time()
        try:
            result = self._session.run(
                [self._output], {self.input_name: np.ascontiguousarray(array, np.float32)}
            )
        except Exception as error:
            raise ModelError(f"{self.name}: failed on input {array.shape} ({short_reason(error)})") from error
        if self._trace is not None:
            self._trace.call(self.name, array.shape, begun, cpu)
        return np.asarray(result[0], dtype=np.float32)


def folded(source: str | bytes, name: str) -> bytes:
    """Replace the parts of a model that depend on weights alone by their results, branches too.

    Raises ModelError.
    """
    options = one_thread()
    options.graph_optimization_level = load_onnxruntime().GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory() as scratch:
        options.optimized_model_filepath = str(Path(scratch, "model.onnx"))
        Model(source, name, options=options)
        return Path(options.optimized_model_filepath).read_bytes()


def runtime_version() -> str:
    return f"onnxruntime {load_onnxruntime().__version__}"


@contextmanager
def on_cores(threads: int) -> Iterator[Map]:
    """Give a `map` on `threads` threads, which all its calls share.

    Each call holds at most one item a thread, and the item that it waits for, so memory stays bounded.
    Meanwhile NumPy's own products of matrices have one thread.
    """
    with _BLAS, ThreadPoolExecutor(max_workers=threads) as pool:

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
            pool.shutdown(cancel_futures=True)  # the rest of the queue after an error or Ctrl-C


def run_once(function: Callable[[], R]) -> Callable[[], R]:
    """Have the first thread that calls `function` run it; each gets its result, or its error."""
    lock, done = threading.Lock(), Future[R]()

    def called() -> R:
        with lock:
            if not done.done():
                try:
                    done.set_result(function())
                except BaseException as error:
                    done.set_exception(error)
        return done.result()

    return called


class _OneThread:
    """NumPy's and SciPy's BLAS on one thread, as long as a thread is inside.

    OpenBLAS's threads wait for their next product in a loop, on the cores that the networks need: a third of
    the processor time of a diarization (docs/decisions/2026-11-23-stretches.md).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limits: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                from threadpoolctl import threadpool_limits

                self._limits = threadpool_limits(1, user_api="blas")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limits.restore_original_limits()


_BLAS = _OneThread()


def one_thread() -> Any:
    """Return onnxruntime's options for a session that keeps one core busy, and prints nothing."""
    options = load_onnxruntime().SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # no faster with it, and each thread reserves 70 MB more
    # The search for buffers to use again was half the time to open a model of a thousand nodes, and saves
    # nothing later (docs/decisions/2026-11-22-constants.md, "Opening a model").
    options.enable_mem_reuse = False
    options.log_severity_level = 4  # errors are raised, and stderr is ours
    return options


def unusable_model(name: str, error: Exception) -> ModelError:
    return ModelError(f"{name}: not a model that onnxruntime can run ({short_reason(error)})")


def short_reason(error: Exception) -> str:
    """Return the end of onnxruntime's message, which begins with source files of the machine that built it.

    The failed check stands before "was false".
    """
    text = " ".join(str(error).split()).rpartition("[ONNXRuntimeError] : ")[2].rpartition(" was false. ")[2]
    return text if len(text) <= 300 else text[-300:].partition(" ")[2]
