"""A PyTorch checkpoint -> its arrays, without PyTorch and without pickle.

A checkpoint is a zip: a pickle that describes the tensors, and a file of raw numbers for each. A pickle
is a program, which Python's own `pickle` runs. Here it is only read (`pickletools`), by a machine that knows
texts, numbers, dictionaries, tuples and tensors. Classes of other packages become placeholders: nothing of
theirs is imported, and an instruction that is not in the list ends the reading.
"""

from __future__ import annotations

import io
import math
import pickletools
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

Array = np.ndarray[Any, Any]

LARGEST = 256 << 20
"""Bytes of all arrays together; CAM++ has 28 MB."""
LARGEST_PROGRAM = 4 << 20
"""Bytes of the pickle; that of CAM++, with 937 tensors, has 0.13 MB."""
STORAGES: dict[str, np.dtype[Any]] = {
    "torch FloatStorage": np.dtype("<f4"),
    "torch LongStorage": np.dtype("<i8"),
}
"""The kinds of numbers, by the names that the pickle gives them."""
TENSOR = "torch._utils _rebuild_tensor_v2"
DICTIONARY = "collections OrderedDict"

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {"BININT", "BININT1", "BININT2", "BINFLOAT", "BINUNICODE"}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Mark:
    """Where the items of a list, a tuple or a dictionary begin on the stack."""


@dataclass(frozen=True)
class _Name:
    """A function or class that the pickle names. It is never looked up."""

    name: str


class _Foreign:
    """Stands for an object of another package."""


@dataclass(frozen=True)
class _Storage:
    """A file of numbers, as the pickle announces it."""

    dtype: np.dtype[Any]
    key: str
    count: int


def read(content: bytes) -> dict[str, Array]:
    """The arrays of a checkpoint's state_dict, or of a checkpoint that is one, by name.

    Raises ValueError if it is no such file, or not whole, or announces more than LARGEST.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _Checkpoint(archive).arrays()
    except ValueError:
        raise
    except (
        zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OSError, EOFError, KeyError,
        IndexError, TypeError, AttributeError, OverflowError, RecursionError, MemoryError,
    ) as error:  # fmt: skip
        raise ValueError(f"not a PyTorch checkpoint ({' '.join(str(error).split())[:120]})") from error


class _Checkpoint:
    """An archive, and the machine that reads its pickle."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        if sum(info.file_size for info in archive.infolist()) > LARGEST:
            _refuse(f"it has more than {LARGEST >> 20} MiB")
        programs = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(programs) != 1:
            _refuse(f"it has {len(programs)} files data.pkl instead of one")
        self._root = programs[0].removesuffix("data.pkl")
        self._used = 0

    def arrays(self) -> dict[str, Array]:
        info = self._archive.getinfo(f"{self._root}data.pkl")
        if info.file_size > LARGEST_PROGRAM:
            _refuse("its data.pkl is too large")
        top = self._run(self._archive.read(info))
        found = top.get("state_dict", top) if isinstance(top, dict) else None
        if not isinstance(found, dict) or not found:
            _refuse("it holds no dictionary of arrays")
        for name, array in found.items():
            if not isinstance(name, str) or not isinstance(array, np.ndarray):
                _refuse("its dictionary holds something else than arrays")
        return found

    def _run(self, program: bytes) -> Any:
        """What the pickle describes."""
        stack: list[Any] = []
        memory: dict[int, Any] = {}
        given: Any
        for instruction, given, _ in pickletools.genops(program):
            name = instruction.name
            if name == "PROTO":
                continue
            if name == "STOP":
                return stack.pop()
            if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            elif name in _VALUES:
                stack.append(given)
            elif name == "GLOBAL":
                stack.append(_Name(str(given)))
            elif name == "MARK":
                stack.append(_Mark())
            elif name in ("BINPUT", "LONG_BINPUT"):
                memory[given] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                stack.append(memory[given])
            else:
                step = _STEPS.get(name)
                if step is None:
                    _refuse(f"its data.pkl has the instruction {name}")
                step(self, stack)
        return _refuse("its data.pkl has no end")

    def _call(self, stack: list[Any]) -> None:
        """REDUCE and NEWOBJ: a function or class and its arguments -> what it would make."""
        arguments, function = stack.pop(), stack.pop()
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            _refuse("its data.pkl calls something that is not a function")
        if function.name == TENSOR:
            stack.append(self._tensor(*arguments[:4]))
        elif function.name == DICTIONARY:
            stack.append({})
        else:
            stack.append(_Foreign())

    def _announce(self, stack: list[Any]) -> None:
        """BINPERSID: ("storage", kind, key, device, count) -> a storage."""
        _, kind, key, _, count = stack.pop()
        if not isinstance(kind, _Name) or kind.name not in STORAGES:
            _refuse("it has arrays of another kind than float32 and int64")
        if not isinstance(key, str) or not isinstance(count, int):
            _refuse("it has an array without a file")
        stack.append(_Storage(STORAGES[kind.name], key, count))

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any) -> Array:
        """An array of its own: a part of a storage, which must hold all of it one after the other."""
        if not isinstance(storage, _Storage) or not isinstance(shape, tuple):
            _refuse("it has an array without numbers")
        if not all(isinstance(size, int) and size >= 0 for size in (offset, *shape)):
            _refuse("it has an array of an impossible shape")
        # Rows one after the other: all that Witness's checkpoints have.
        usual = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
        if len(strides) != len(shape) or any(
            stride != step for size, stride, step in zip(shape, strides, usual, strict=True) if size > 1
        ):
            _refuse("it has an array in another order than by rows")
        count, size = math.prod(shape), storage.dtype.itemsize
        info = self._archive.getinfo(f"{self._root}data/{storage.key}")
        if info.file_size != storage.count * size or offset + count > storage.count:
            _refuse(f"its array {storage.key[:40]} has {info.file_size} bytes, which are not those announced")
        self._used += count * size
        if self._used > LARGEST:  # one file may serve many arrays
            _refuse(f"its arrays have more than {LARGEST >> 20} MiB")
        numbers = np.frombuffer(self._archive.read(info), storage.dtype, count, offset * size)
        return numbers.reshape(shape)


def _refuse(why: str) -> NoReturn:
    raise ValueError(f"not a checkpoint that Witness reads: {why}")


def _since_mark(stack: list[Any]) -> list[Any]:
    """The items above the last mark, which are taken from the stack with it."""
    marks = (index for index in reversed(range(len(stack))) if isinstance(stack[index], _Mark))
    if (place := next(marks, None)) is None:
        _refuse("its data.pkl takes more than it has")
    items = stack[place + 1 :]
    del stack[place:]
    return items


def _put(target: Any, items: list[Any]) -> None:
    """Put keys and values, in turn, into a dictionary; a placeholder needs none."""
    if isinstance(target, dict):
        target.update(zip(items[::2], items[1::2], strict=True))
    elif not isinstance(target, _Foreign):
        _refuse("its data.pkl fills something that is not a dictionary")


def _set_items(_: _Checkpoint, stack: list[Any]) -> None:
    items = _since_mark(stack)
    _put(stack[-1], items)


def _set_item(_: _Checkpoint, stack: list[Any]) -> None:
    value, key = stack.pop(), stack.pop()
    _put(stack[-1], [key, value])


def _append(_: _Checkpoint, stack: list[Any]) -> None:
    items = _since_mark(stack)
    if not isinstance(stack[-1], list):
        _refuse("its data.pkl extends something that is not a list")
    stack[-1].extend(items)


def _tuple(_: _Checkpoint, stack: list[Any]) -> None:
    items = _since_mark(stack)
    stack.append(tuple(items))


def _tuple_of(count: int) -> Callable[[_Checkpoint, list[Any]], None]:
    def step(_: _Checkpoint, stack: list[Any]) -> None:
        if len(stack) < count:
            _refuse("its data.pkl takes more than it has")
        items = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        stack.append(tuple(items))

    return step


_STEPS: dict[str, Callable[[_Checkpoint, list[Any]], Any]] = {
    "EMPTY_DICT": lambda _, stack: stack.append({}),
    "EMPTY_LIST": lambda _, stack: stack.append([]),
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "APPENDS": _append,
    "TUPLE": _tuple,
    **{name: _tuple_of(count) for name, count in _TUPLES.items()},
    "BINPERSID": _Checkpoint._announce,
    "REDUCE": _Checkpoint._call,
    "NEWOBJ": _Checkpoint._call,
    # What an object is filled with; those that come here are placeholders and dictionaries of arrays.
    "BUILD": lambda _, stack: stack.pop(),
}
