"""The parent's side of `migraphx_child`: one process with one model open on the GPU."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from witness.amd.rocm import OVERRIDES
from witness.errors import DeviceError
from witness.reporter import SILENT, Reporter
from witness.schema import Float32

RUN_LIMIT = 60.0  # seconds for one block
END_LIMIT = 5.0  # seconds to end after the work is done


class DiedError(DeviceError):
    """The child ended before its work was done."""


class Worker:
    """The child process, with one model open on the GPU."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed by kill()
        environment = {key: value for key, value in os.environ.items() if not OVERRIDES.match(key)}
        home = Path(__file__).parents[2]  # `python -m` looks for modules in the current folder first
        theirs, self._alive = os.pipe()
        self._child = subprocess.Popen(
            [sys.executable, "-m", "witness.amd.child", str(theirs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=home,
            env=environment,
            pass_fds=[theirs],
        )
        os.close(theirs)
        pipes = self._child.stdin, self._child.stdout
        self._stdin, self._stdout = cast("tuple[IO[bytes], IO[bytes]]", pipes)  # not None: asked for

    def ask(
        self,
        request: dict[str, Any],
        payload: bytes | memoryview = b"",
        *,
        limit: float,
        reporter: Reporter = SILENT,
    ) -> tuple[dict[str, Any], list[Float32]]:
        """The reply and its arrays. Raises DeviceError if it is a refusal, DiedError if there is none."""
        with suppress(OSError):  # it is dead, and the reply that does not come says so
            self._stdin.write(json.dumps({**request, "size": len(payload)}).encode() + b"\n")
            self._stdin.write(payload)
            self._stdin.flush()
        begun = time.monotonic()
        while not select.select([self._stdout], [], [], 0.5)[0]:
            waited = time.monotonic() - begun
            reporter.progress("compiling", min(waited, limit), limit)
            if waited > limit:
                self.kill()
                raise DeviceError(f"no answer within {limit:.0f} s")  # no race, so not worth a retry
        line = self._stdout.readline()
        if not line.endswith(b"\n"):
            raise DiedError(self._obituary())
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise DeviceError(str(reply["error"]))
        arrays = []
        for shape in reply["shapes"]:
            size = int(np.prod(shape)) * np.dtype(np.float32).itemsize
            content = self._stdout.read(size)
            if len(content) < size:
                raise DiedError(self._obituary())
            arrays.append(np.frombuffer(content, np.float32).reshape(shape))
        return reply, arrays

    def run(self, array: Float32) -> Float32:
        """The model's output for `array`. Raises DeviceError or DiedError."""
        payload = np.ascontiguousarray(array, np.float32).data.cast("B")
        request = {"do": "run", "shape": array.shape}
        return self.ask(request, payload, limit=RUN_LIMIT)[1][0]

    def finish(self) -> str | None:
        """End the child, whose results are all here; what is to be said about how it ended."""
        with suppress(DeviceError):
            self.ask({"do": "done"}, limit=END_LIMIT)
        try:
            code = self._child.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        self.kill()
        if code == 0:
            return None
        return f"the GPU's process ended with {_cause(code)} after the work was done; the results are whole"

    def kill(self) -> None:
        """End the child, now; not an error if it has ended."""
        if self._stdin.closed:
            return
        self._child.kill()
        self._child.wait()
        os.close(self._alive)
        for file in (self._stdin, self._stdout, self._log):
            with suppress(OSError):  # about a request that was never read
                file.close()

    def _obituary(self) -> str:
        try:
            cause = _cause(self._child.wait(END_LIMIT))
        except subprocess.TimeoutExpired:
            cause = "half a reply"
        self._log.seek(0)
        lines = [" ".join(line.split()) for line in self._log.read().decode("utf-8", "replace").splitlines()]
        last = next((line for line in reversed(lines) if line), "")
        self.kill()
        return f"the GPU's process ended with {cause}" + (f" ({last[-200:]})" if last else "")


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
