"""A process with a model open on the GPU, from the parent's side; `gpu.child` is the other side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from witness import child
from witness.child import Buffer, Child, Limits, Message
from witness.errors import DeviceError
from witness.gpu.rocm import OVERRIDES
from witness.progress import SILENT, Reporter
from witness.schema import Float32

T = TypeVar("T")

RUN_LIMIT = 60.0
"""Seconds for one block."""


class GpuDiedError(DeviceError):
    """The process ended before its work was done."""


class GpuProcess:
    """The child process, with one model open on the GPU."""

    def __init__(self) -> None:
        self._child = Child(
            "witness.gpu.child",
            {key: value for key, value in os.environ.items() if not OVERRIDES.match(key)},
        )

    def ask(
        self,
        request: dict[str, Any],
        payload: Buffer = b"",
        *,
        limit: float,
        reporter: Reporter = SILENT,
    ) -> tuple[Message, list[Float32]]:
        """Send a request; return the reply and its arrays.

        Raises DeviceError for a refusal, and if no reply comes within `limit` seconds; GpuDiedError if the
        process ends first.
        """
        try:
            reply, content = self._child.ask(
                request, payload, limits=Limits(limit), waiting=_progress(limit, reporter)
            )
        except child.DiedError as error:
            raise GpuDiedError(f"the GPU's process ended with {error}{error.last_words}") from error
        except child.ChildError as error:  # out of time is no race, so it is not worth a retry
            raise DeviceError(str(error)) from error
        numbers = np.frombuffer(content, np.float32)
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in reply["shapes"]], dtype=int)
        return reply, [
            part.reshape(shape)
            for part, shape in zip(np.split(numbers, ends[:-1]), reply["shapes"], strict=False)
        ]

    def run(self, array: Float32) -> Float32:
        payload = np.ascontiguousarray(array, np.float32).data
        return self.ask({"do": "run", "shape": array.shape}, payload, limit=RUN_LIMIT)[1][0]

    def finish(self) -> str | None:
        """End the process, whose results have all arrived; return a note if it ends badly."""
        if (cause := self._child.finish()) is None:
            return None
        return f"the GPU's process ended with {cause} after the work was done; the results are whole"

    def kill(self) -> None:
        self._child.kill()


def twice(action: Callable[[], T]) -> T:
    """Return the result of `action`, tried again if the process dies: the crashes seen so far are races."""
    try:
        return action()
    except GpuDiedError:
        return action()


@contextmanager
def killed_on_error(process: GpuProcess) -> Iterator[GpuProcess]:
    """Give the process, which outlives the block only if that raises nothing."""
    try:
        yield process
    except BaseException:
        process.kill()
        raise


def _progress(limit: float, reporter: Reporter) -> Callable[[float], None]:
    return lambda waited: reporter.progress("compiling", min(waited, limit), limit)
