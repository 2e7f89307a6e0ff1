"""The child process that runs models on an AMD GPU: `python -m witness.amd.child`, for `migraphx`.

ROCm's libraries print on stdout, may hang for half an hour while they compile, and may abort while they are
torn down (AMDMIGraphX#4792, onnxruntime#28087), so they live alone in a process that never tears down.
Messages are JSON lines: requests on stdin, one reply to each on the stdout that it was started with.

    {"do": "open", "shape": [..], ..} + ONNX   ->  {}
    {"do": "run", "shape": [..]} + float32     ->  {"shapes": [[..]]} + float32
    {"do": "try", "shapes": {..}, ..} + ONNX   ->  {"shapes": [[..], ..], ..} + float32 of each
    {"do": "done"}                             ->  {}, and the process ends

where .. is "size" of the ONNX file, "name", "provider" options and "libraries" to be loaded first. `open`
wants the model wholly on the GPU; `try` does not, and answers with a `sessions.Trial`. A failure is
{"error": line}. When stdin ends, so does this process.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from witness.errors import DeviceError
from witness.schema import Float32
from witness.sessions import Model, StrictMIGraphX, try_model


def main() -> None:
    """Serve until the parent is done or gone. The argument is a pipe that only the parent's end can close."""
    _die_with_parent(int(sys.argv[1]))
    # Ctrl-C goes to every process of the terminal; what becomes of this one is the parent's to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stdin, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # The provider's own list of folders to search ends in an empty one, which is the current folder.
    os.chdir("/")
    model: Model | None = None
    while line := stdin.readline():
        request = json.loads(line)
        payload = stdin.read(request.get("size", 0))
        reply: dict[str, Any] = {}
        arrays: list[Float32] = []
        try:
            if request["do"] == "open":
                model = _open(payload, request)
            elif request["do"] == "try":
                reply, arrays = _try(payload, request)
            elif request["do"] == "run" and model is not None:
                arrays = [model(np.frombuffer(payload, np.float32).reshape(request["shape"]))]
        except Exception as error:
            reply, arrays = {"error": " ".join(str(error).split()) or type(error).__name__}, []
        reply["shapes"] = [array.shape for array in arrays]
        replies.write(json.dumps(reply).encode() + b"\n")
        for array in arrays:
            replies.write(np.ascontiguousarray(array).data)
        replies.flush()
        if request["do"] == "done":
            break
    os._exit(0)


def _open(source: bytes, request: dict[str, Any]) -> Model:
    _load_libraries(request["libraries"])
    model = StrictMIGraphX(source, request["name"], tuple(request["shape"]), request["provider"])
    _check_libraries(request["libraries"])
    return model


def _try(source: bytes, request: dict[str, Any]) -> tuple[dict[str, Any], list[Float32]]:
    _load_libraries(request["libraries"])
    shapes = {name: tuple(shape) for name, shape in request["shapes"].items()}
    trial = try_model(source, request["name"], shapes, request["provider"])
    _check_libraries(request["libraries"])
    return {**vars(trial), "outputs": None}, trial.outputs


def _die_with_parent(pipe: int) -> None:
    """End this process when the other end of `pipe` is closed, whatever it is doing.

    By a signal (SIGIO, which ends a process), because onnxruntime keeps all threads of Python waiting while
    it makes a session, and nobody should find a process that goes on compiling for half an hour.
    """
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


def _load_libraries(paths: list[str]) -> None:
    """By absolute path and before the provider, which then takes these and looks for no others."""
    try:
        for path in paths:
            ctypes.CDLL(path)
    except OSError as error:
        raise DeviceError(f"a library does not load ({error})") from error


def _check_libraries(paths: list[str]) -> None:
    """Raise DeviceError if libraries of the same names were loaded from elsewhere."""
    wanted = {Path(path).resolve() for path in paths}
    kinds = {path.name.partition(".so")[0] for path in wanted}
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = {Path(line.split(maxsplit=5)[5]) for line in lines if "/" in line}
    loaded = {path for path in mapped if path.name.partition(".so")[0] in kinds}
    if loaded != wanted:
        raise DeviceError(f"loaded {', '.join(map(str, sorted(loaded - wanted)))}, which is not this ROCm's")


if __name__ == "__main__":
    main()
