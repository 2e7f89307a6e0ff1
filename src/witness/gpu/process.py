"""The process that runs models on an AMD GPU, from both sides; as a child, `python -m witness.gpu.process`.

ROCm's libraries print on stdout, may hang for half an hour while they compile, and may abort while they are
torn down (AMDMIGraphX#4792, onnxruntime#28087), so they live alone in a process that never tears down: its
parent kills it. Its requests and replies, as `witness.child` carries them:

    {"do": "open", "shape": [..], ..} + ONNX   ->  {"shapes": []}
    {"do": "run", "shape": [..]} + float32     ->  {"shapes": [[..]]} + float32
    {"do": "try", "shapes": {..}, ..} + ONNX   ->  {"shapes": [[..], ..], ..} + float32 of each

where .. is the model's "name", "provider" options and "libraries" to load first. `open` demands the model
wholly on the GPU; `try` does not, and answers with a `strict.Trial`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from witness.child import Buffer, Child, ChildError, DiedError, Limits, Message, serve
from witness.errors import DeviceError
from witness.gpu.rocm import OVERRIDES
from witness.gpu.strict import open_strictly, try_model
from witness.models.session import Model
from witness.progress import SILENT, Reporter
from witness.schema import Float32

T = TypeVar("T")

RUN_LIMIT = 60.0
"""Seconds for one block."""


class GpuDiedError(DeviceError):
    """The process ended before its work was done."""


class GpuProcess(Child):
    """The child process, with one model open on the GPU."""

    def __init__(self) -> None:
        super().__init__(
            __name__, {key: value for key, value in os.environ.items() if not OVERRIDES.match(key)}
        )

    def request(
        self, request: Message, payload: Buffer, *, limit: float, reporter: Reporter = SILENT
    ) -> tuple[Message, list[Float32]]:
        """Send a request; return the reply and its arrays.

        Raises DeviceError for a refusal, and if no reply comes within `limit` seconds; GpuDiedError if the
        process ends first.
        """

        def progress(waited: float) -> None:
            reporter.progress("compiling", min(waited, limit), limit)

        try:
            reply, content = self.ask(request, payload, limits=Limits(limit), waiting=progress)
        except DiedError as error:
            raise GpuDiedError(f"the GPU's process ended with {error}{error.last_words}") from error
        except ChildError as error:  # out of time is no race, so it is not worth a retry
            raise DeviceError(str(error)) from error
        shapes = reply.pop("shapes")
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes], dtype=int)
        parts = np.split(np.frombuffer(content, np.float32), ends[:-1])
        return reply, [part.reshape(shape) for part, shape in zip(parts, shapes, strict=False)]

    def run(self, array: Float32) -> Float32:
        payload = np.ascontiguousarray(array, np.float32).data
        return self.request({"do": "run", "shape": array.shape}, payload, limit=RUN_LIMIT)[1][0]


def twice(action: Callable[[], T]) -> T:
    """Return the result of `action`, tried again if the process dies: the crashes seen so far are races."""
    try:
        return action()
    except GpuDiedError:
        return action()


# --- the child's side ---


class _Server:
    """Opens one model, and runs it."""

    def __init__(self) -> None:
        self._model: Model | None = None

    def answer(self, request: Message, payload: bytes) -> tuple[Message, Sequence[Buffer]]:
        reply: Message = {}
        arrays: list[Float32] = []
        if request["do"] == "run" and self._model is not None:
            arrays = [self._model(np.frombuffer(payload, np.float32).reshape(request["shape"]))]
        else:
            _load_libraries(request["libraries"])
            name, provider = request["name"], request["provider"]
            if request["do"] == "open":
                self._model = open_strictly(payload, name, tuple(request["shape"]), provider)
            else:
                shapes = {key: tuple(shape) for key, shape in request["shapes"].items()}
                reply = dict(vars(try_model(payload, name, shapes, provider)))
                arrays = reply.pop("outputs")
            _check_libraries(request["libraries"])
        reply["shapes"] = [array.shape for array in arrays]
        return reply, [np.ascontiguousarray(array).data for array in arrays]


def _load_libraries(paths: list[str]) -> None:
    """Load libraries by absolute path before the provider, which then looks for no others.

    Raises DeviceError.
    """
    try:
        for path in paths:
            ctypes.CDLL(path)
    except OSError as error:
        raise DeviceError(f"a library does not load ({error})") from error


def _check_libraries(paths: list[str]) -> None:
    """Raise DeviceError if libraries of the same names were loaded from elsewhere."""
    expected = {Path(path).resolve() for path in paths}
    names = {path.name.partition(".so")[0] for path in expected}
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = {Path(line.split(maxsplit=5)[5]) for line in lines if "/" in line}
    loaded = {path for path in mapped if path.name.partition(".so")[0] in names}
    if loaded != expected:
        others = ", ".join(map(str, sorted(loaded - expected)))
        raise DeviceError(f"loaded {others}, which is not this ROCm's")


if __name__ == "__main__":
    serve(_Server().answer)
