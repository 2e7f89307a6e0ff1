"""A child process that runs functions for the server, which sends it their arguments as pickles.

Clustering an hour of voices takes more memory than the server may have, and a damaged file may end the
process that reads it.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from witness.child import Buffer, Child, ChildError, DiedError, Limits, Message, RefusedError, serve
from witness.errors import WitnessError

P = ParamSpec("P")
R = TypeVar("R")

LIMITS = Limits(seconds=600.0)
"""Limits of one call; the outline of a day of sound takes a few minutes."""


class EndedError(WitnessError):
    """The process ended before it had a result; the next call starts another one."""


class Worker:
    """The child process; it starts at the first call, and runs one at a time. Any thread may call."""

    def __init__(self, prepare: Callable[[], None]) -> None:
        """Have the process call `prepare` when it starts."""
        self._prepare = prepare
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._closed = False

    def start(self) -> None:
        """Start the process before the first call: that takes half a second."""
        with self._lock, suppress(ChildError):  # the first call reports it
            self._started()

    def call(
        self, function: Callable[Concatenate[Path, P], R], path: Path, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return `function(path, ...)`, from the child. Raises WitnessError as the function does."""
        with self._lock:
            try:
                result: R = _ask(self._started(), function, path, *args, **kwargs)
                return result
            except RefusedError as error:
                raise WitnessError(f"{path.name}: {error}; this is a bug, please report it") from error
            except ChildError as error:
                self._child = None
                words = error.last_words if isinstance(error, DiedError) else ""
                raise EndedError(
                    f"{path.name}: the process that works on it ended ({error}){words}; try again"
                ) from error

    def _started(self) -> Child:
        if self._closed:
            raise EndedError("the server is ending; start it again")
        if self._child is None:
            self._child = Child("witness.serve.worker")
            _ask(self._child, self._prepare)
        return self._child

    def close(self) -> None:
        """End the process, also in the middle of a call."""
        self._closed = True
        if (child := self._child) is not None:
            child.kill()


def _ask(child: Child, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    _, reply = child.ask({}, pickle.dumps((function, args, kwargs)), limits=LIMITS)
    result, error = pickle.loads(reply)  # noqa: S301 - from a process of ours, with the same rights
    if error is not None:
        raise error
    return result


def _answer(_: Message, request: bytes) -> tuple[Message, list[Buffer]]:
    function, args, kwargs = pickle.loads(request)  # noqa: S301 - from the server
    try:
        result, error = function(*args, **kwargs), None
    except WitnessError as raised:
        result, error = None, raised
    return {}, [pickle.dumps((result, error))]


if __name__ == "__main__":
    serve(_answer)
