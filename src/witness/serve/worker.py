"""A child process that runs functions for the server, and typed calls of them.

Clustering an hour of voices takes more memory than the server may have, and a damaged file may end the
process that reads it. msgspec writes the arguments and the result, and checks them by the type hints of the
function: a process that a file has taken over can answer nothing else.
"""

from __future__ import annotations

import importlib
import inspect
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from witness import errors
from witness.child import Buffer, Child, ChildError, DiedError, Limits, Message, RefusedError, serve
from witness.errors import ConflictError, WitnessError
from witness.text import printable

P = ParamSpec("P")
R = TypeVar("R")

LIMITS = Limits(seconds=600.0)
"""Limits of one call; the outline of a day of sound takes a few minutes."""

MODULES = (
    "witness.serve.editing",
    "witness.serve.library.library",
    *(f"witness.transcript.{name}" for name in ("edits", "previous", "trash")),
)
"""Modules whose public functions the child runs."""

_ERRORS: dict[str, type[WitnessError]] = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, WitnessError)
}


class WorkerCall(Struct):
    """A function by its name, and its arguments by theirs."""

    module: str
    function: str
    arguments: dict[str, Any]


class WorkerAnswer(Struct):
    """A function's result, or the nearest class in `witness.errors` of its error and its arguments."""

    result: Any = None
    error: str | None = None
    details: tuple[str | None, ...] = ()


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
    assert function.__module__ in MODULES, f"{function.__module__} is not open to calls"  # noqa: S101
    arguments = inspect.signature(function).bind(*args, **kwargs).arguments
    request = WorkerCall(function.__module__, function.__name__, arguments)
    _, content = child.ask({}, msgspec.msgpack.encode(request, enc_hook=_encode), limits=LIMITS)
    reply = msgspec.msgpack.decode(content, type=WorkerAnswer)
    if reply.error is not None:
        raise _ERRORS[reply.error](*reply.details)
    return msgspec.convert(reply.result, _hints(function)["return"], dec_hook=_decode)


def _answer(_: Message, content: bytes) -> tuple[Message, list[Buffer]]:
    request = msgspec.msgpack.decode(content, type=WorkerCall)
    if request.module not in MODULES or request.function.startswith("_"):
        raise ValueError(f"{request.module}.{request.function} is not open to calls")
    function = getattr(importlib.import_module(request.module), request.function)
    hints = _hints(function)
    arguments = {
        name: msgspec.convert(value, hints[name], dec_hook=_decode)
        for name, value in request.arguments.items()
    }
    try:
        reply = WorkerAnswer(function(**arguments))
    except WitnessError as error:
        name = next(base.__name__ for base in type(error).__mro__ if base in _ERRORS.values())
        version = (error.version,) if isinstance(error, ConflictError) else ()
        reply = WorkerAnswer(error=name, details=(printable(str(error)), *version))
    return {}, [msgspec.msgpack.encode(reply, enc_hook=_encode)]


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


def _encode(value: object) -> bytes:
    if isinstance(value, Path):
        return os.fsencode(value)  # its name need not be UTF-8
    raise NotImplementedError(f"{type(value).__name__} cannot go to another process")


def _decode(expected: type, value: Any) -> Any:
    return expected(os.fsdecode(value)) if issubclass(expected, Path) else value


if __name__ == "__main__":
    serve(_answer)
