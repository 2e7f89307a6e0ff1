"""A model to compile: its ONNX file, the shape of its one input, and the same model on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from witness.errors import ModelError, UsageError
from witness.gpu.strict import Shapes
from witness.models.session import Model
from witness.schema import Float32
from witness.storage import files


@dataclass(frozen=True)
class Subject:
    """A model with one input and one output, for one shape of that input."""

    source: bytes
    """The content of its ONNX file."""
    name: str
    """What people call it."""
    shape: tuple[int, ...]
    """Of its input."""
    cpu: Callable[[Float32], Float32]
    """The same model on the CPU: what the GPU's answers are compared with, and what steps in for it."""


def from_file(path: Path, shapes: Shapes) -> Subject:
    """The model at `path`, for the one shape in `shapes`.

    Raises ModelError if it cannot be read, UsageError if the shape is missing or does not fit.
    """
    source, model = _open(path)
    example = "x".join(str(size or 1) for size in model.input_shape)
    shape = shapes.get(model.input_name)
    if shape is None or len(shapes) > 1:
        raise UsageError(f"give the shape of the input: --shape {model.input_name}={example} or other sizes")
    pairs = zip(model.input_shape, shape, strict=False)
    if len(shape) != len(model.input_shape) or any(size not in (None, wanted) for size, wanted in pairs):
        raise UsageError(f"--shape does not fit the input, which is like {model.input_name}={example}")
    return Subject(source, path.name, shape, model)


def from_file_for(path: Path, shape: tuple[int, ...]) -> Subject:
    """The model at `path`, for a shape that is taken as it is. Raises ModelError if it cannot be read."""
    source, model = _open(path)
    return Subject(source, path.name, shape, model)


def _open(path: Path) -> tuple[bytes, Model]:
    source = read(path)
    return source, Model(source, str(path))


LARGEST = 2 << 30
"""Bytes of an ONNX file; protobuf takes no larger ones."""


def read(path: Path) -> bytes:
    """The content of an ONNX file. Raises ModelError."""
    try:
        return files.read(path, LARGEST)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror}); name an ONNX file") from error


def parse_shapes(texts: Sequence[str]) -> Shapes:
    """["feats=1x998x80"] -> {"feats": (1, 998, 80)}. Raises UsageError."""
    shapes: Shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        parts = sizes.split("x")
        if not name or not all(part.isascii() and part.isdigit() and int(part) for part in parts):
            raise UsageError(f"--shape {text!r} is not like feats=1x998x80")
        shapes[name] = tuple(map(int, parts))
    return shapes
