"""All errors, with their exit codes on the command line.

A message is one line that names the file (or device) and the fix; only `cli` prints it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM


class WitnessError(Exception):
    """The root of all errors; by itself, a failure that is neither the input's fault nor the caller's."""

    exit_code = 1


class UsageError(WitnessError):
    """The request itself makes no sense, with any files."""

    exit_code = 2


class PartlyFailedError(WitnessError):
    """Some of several recordings failed; the results of the others were written."""

    exit_code = 3


class InputError(WitnessError):
    """The recording cannot be read."""

    exit_code = 4


class OtherJsonError(InputError):
    """Valid JSON that is not a transcript."""


class ReadError(InputError):
    """The disk or the drive that the recording is on failed; it may work a moment later."""


class ModelError(WitnessError):
    """A model file is missing, fails its sha256, or is not the kind of model that is needed."""

    exit_code = 5


class DeviceError(WitnessError):
    """The device that was asked for by name cannot run."""

    exit_code = 6


class GraphError(DeviceError):
    """A compiled graph is damaged, or made for another machine, model or shape."""


class CancelledError(WitnessError):
    """The caller of a Python function set its `cancel`."""


class OutputError(WitnessError):
    """A result cannot be written."""


class ConflictError(WitnessError):
    """The request does not fit the present state, which may differ from the one that the person saw."""

    def __init__(self, message: str, version: str | None = None) -> None:
        super().__init__(message)
        self.version = version
        """The present version."""


class ForeignError(InputError, OutputError):
    """A link, or something else that Witness did not write, is in the place of one of its own files."""


class ScratchError(OutputError):
    """There is no room for the decoded sound of this recording; there may be for that of another."""


class TranscriptionError(WitnessError):
    """The speech recognizer failed; the speakers can be known all the same."""


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Raise an OSError as an OutputError about the file at `path`."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); fix: free disk space or fix the folder's "
            "permissions"
        ) from error


_NO_MEMORY = (
    "bad_alloc",  # C++
    "Cannot allocate memory",  # the C library's ENOMEM, from the dynamic linker and others
    "cannot allocate memory",
    "failed to map segment",  # the dynamic linker
    "Failed to allocate memory",  # onnxruntime
    "can't start new thread",  # there is no room for its stack
)


def lacks_memory(error: BaseException | None) -> bool:
    """Tell whether `error` or one of its causes reports a lack of memory."""
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == ENOMEM):
            return True
        if any(words in str(error) for words in _NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


_EXHAUSTED = {EMFILE, ENFILE, ENOBUFS, EAGAIN, ENOMEM}


def lacks_resources(error: BaseException | None) -> bool:
    """Tell whether `error` or one of its causes reports a lack of files, processes, threads or memory."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            return True
        if "can't start new thread" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def broken_package(error: BaseException) -> str | None:
    """Return a message if the import of another package failed; None: `error` is something else.

    A package on PYTHONPATH, or one that is installed by half, may raise any error.
    """
    witness, culprit = os.path.dirname(__file__) + os.sep, None  # noqa: PTH120 - nothing heavy here
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename.startswith(witness):
            culprit = None
        elif code.co_name == "<module>":
            culprit = culprit or code.co_filename
        step = step.tb_next
    if isinstance(error, SyntaxError):
        culprit = culprit or error.filename
    if isinstance(error, ImportError):
        culprit = culprit or error.path or f"the package {error.name}"
    if culprit is None or culprit.startswith(witness):
        return None
    why = " ".join(f"{type(error).__name__}: {error}".split())
    fix = "install it again"
    if os.environ.get("PYTHONPATH"):
        fix = "unset PYTHONPATH, which leads to other packages than those of this installation, or " + fix
    return f"{culprit} cannot be imported ({why}); fix: {fix}"
