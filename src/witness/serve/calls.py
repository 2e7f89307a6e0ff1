"""Typed calls of functions in a child process.

A function goes by its qualified name, from a list of those that the child may run. msgspec turns its
arguments and its result into JSON and back, by the type hints of the function; bytes that are a result, or
the last item of one, follow unchanged. An error of `witness.errors` goes by its class and its fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from witness import errors
from witness.child import Buffer, Child, Limits, Message, serve
from witness.errors import ConflictError, WitnessError

P = ParamSpec("P")
R = TypeVar("R")

ERRORS: dict[str, type[WitnessError]] = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, WitnessError)
}


class Refusal(Struct):
    """An error on its way to the parent."""

    error: str
    """The name of the nearest class in `witness.errors`."""
    message: str
    version: str | None = None
    """The current version of the transcript, of a ConflictError."""

    @classmethod
    def of(cls, error: WitnessError) -> Refusal:
        name = next(base.__name__ for base in type(error).__mro__ if base in ERRORS.values())
        return cls(name, str(error), error.version if isinstance(error, ConflictError) else None)

    def raise_error(self) -> NoReturn:
        error = ERRORS[self.error](self.message)
        if isinstance(error, ConflictError):
            error.version = self.version
        raise error


class Calls:
    """The functions that a child runs for its parent."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self.functions = {_name(function): function for function in functions}

    def call(
        self, child: Child, limits: Limits, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return the result of the function in the child.

        Raises the errors of `witness.errors` that the function raises, and those of `Child.ask`.
        """
        name = _name(function)
        assert name in self.functions, f"{name} is not on the child's list"  # noqa: S101 - a mistake of ours
        arguments = inspect.signature(function).bind(*args, **kwargs).arguments
        request = {"function": name, "arguments": msgspec.to_builtins(arguments, enc_hook=_encode)}
        reply, content = child.ask(request, limits=limits)
        if "refusal" in reply:
            msgspec.convert(reply["refusal"], Refusal).raise_error()
        hint = _hints(function)["return"]
        if hint is bytes:
            return cast("R", content)
        value = (*reply["result"], content) if _ends_with_bytes(hint) else reply["result"]
        return cast("R", msgspec.convert(value, hint, dec_hook=_decode))

    def serve(self) -> NoReturn:
        """Run functions for the parent until it is gone."""
        serve(self._reply)

    def _reply(self, request: Message, _: bytes) -> tuple[Message, list[Buffer]]:
        function = self.functions[request["function"]]
        hints = _hints(function)
        arguments = {
            name: msgspec.convert(value, hints[name], dec_hook=_decode)
            for name, value in request["arguments"].items()
        }
        try:
            result = function(**arguments)
        except WitnessError as error:
            return {"refusal": msgspec.to_builtins(Refusal.of(error))}, []
        if hints["return"] is bytes:
            return {}, [result]
        content = []
        if _ends_with_bytes(hints["return"]):
            *result, last = result
            content.append(last)
        return {"result": msgspec.to_builtins(result, enc_hook=_encode)}, content


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


def _ends_with_bytes(hint: Any) -> bool:
    return get_origin(hint) is tuple and get_args(hint)[-1] is bytes


def _encode(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} cannot go to another process")


def _decode(expected: type, value: Any) -> Any:
    return expected(value) if issubclass(expected, Path) else value
