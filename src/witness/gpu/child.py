"""The child process that runs models on an AMD GPU: `python -m witness.gpu.child`, for `gpu.process`.

ROCm's libraries print on stdout, may hang for half an hour while they compile, and may abort while they are
torn down (AMDMIGraphX#4792, onnxruntime#28087), so they live alone in a process that never tears down. Its
requests and replies, as `witness.child` carries them:

    {"do": "open", "shape": [..], ..} + ONNX   ->  {"shapes": []}
    {"do": "run", "shape": [..]} + float32     ->  {"shapes": [[..]]} + float32
    {"do": "try", "shapes": {..}, ..} + ONNX   ->  {"shapes": [[..], ..], ..} + float32 of each

where .. is the model's "name", "provider" options and "libraries" to load first. `open` demands the model
wholly on the GPU; `try` does not, and answers with a `strict.Trial`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from witness.child import Buffer, Message, serve
from witness.errors import DeviceError
from witness.gpu.strict import open_strictly, try_model
from witness.models.session import Model
from witness.schema import Float32


class _Server:
    """Opens one model, and runs it."""

    def __init__(self) -> None:
        self._model: Model | None = None

    def answer(self, request: Message, payload: bytes) -> tuple[Message, Sequence[Buffer]]:
        reply: Message = {}
        arrays: list[Float32] = []
        if request["do"] == "open":
            self._model = _open(payload, request)
        elif request["do"] == "try":
            reply, arrays = _try(payload, request)
        elif self._model is not None:
            arrays = [self._model(np.frombuffer(payload, np.float32).reshape(request["shape"]))]
        reply["shapes"] = [array.shape for array in arrays]
        return reply, [np.ascontiguousarray(array).data for array in arrays]


def _open(source: bytes, request: dict[str, Any]) -> Model:
    _load_libraries(request["libraries"])
    model = open_strictly(source, request["name"], tuple(request["shape"]), request["provider"])
    _check_libraries(request["libraries"])
    return model


def _try(source: bytes, request: dict[str, Any]) -> tuple[dict[str, Any], list[Float32]]:
    _load_libraries(request["libraries"])
    shapes = {name: tuple(shape) for name, shape in request["shapes"].items()}
    trial = try_model(source, request["name"], shapes, request["provider"])
    _check_libraries(request["libraries"])
    return {**vars(trial), "outputs": None}, trial.outputs


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
