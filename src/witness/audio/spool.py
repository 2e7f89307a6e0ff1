"""Decoded sound in a temporary file, read and written a piece at a time.

A recording may last a day, and a day of one track is 5.5 GB. The file has no name, so nothing is left behind
however the process ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Iterator

import numpy as np

from witness.errors import ScratchError
from witness.schema import SAMPLE_RATE, Float32, Samples

PIECE = 1 << 20
"""Samples in a piece of `pieces`: 66 s, 4 MiB."""

LARGE = "/var/tmp"  # noqa: S108  only a folder to make nameless files in

_SIZE = np.dtype(np.float32).itemsize


class Spool:
    """(samples,) float32 in a temporary file: `len`, slices to read and to write, `append`.

    Slices are those of an array, except that they copy and take no step (ValueError). Safe to use from
    several threads. Raises ScratchError if the disk is full or fails.
    """

    def __init__(self) -> None:
        self._folder = folder()
        self._lock = threading.Lock()
        self._count = 0
        try:
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115  closed below
        except OSError as error:
            raise self._trouble(error) from error
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return self._count

    def append(self, samples: Float32) -> None:
        """Put (n,) `samples` at the end."""
        self._write(self._count, samples)
        self._count += len(samples)

    def __getitem__(self, part: slice) -> Float32:
        start, stop = self._range(part)
        samples = np.empty(max(0, stop - start), np.float32)
        rest = samples.view(np.uint8).data
        with self._lock:
            try:
                self._file.seek(start * _SIZE)
                while rest:
                    if not (read := self._file.readinto(rest)):
                        raise OSError(0, "the file became shorter")
                    rest = rest[read:]
            except OSError as error:
                raise self._trouble(error) from error
        return samples

    def __setitem__(self, part: slice, samples: Float32) -> None:
        start, stop = self._range(part)
        if stop - start != len(samples):
            raise ValueError(f"{len(samples)} samples do not fit into {stop - start}")
        self._write(start, samples)

    def _range(self, part: slice) -> tuple[int, int]:
        """Return the first sample of a slice and the sample after its last. Raises ValueError for a step."""
        start, stop, step = part.indices(self._count)
        if step != 1:
            raise ValueError(f"a spool has no slices with a step of {step}; read without a step first")
        return start, stop

    def _write(self, start: int, samples: Float32) -> None:
        if not len(samples):
            return
        rest = np.ascontiguousarray(samples, np.float32).view(np.uint8).data
        with self._lock:
            try:
                self._file.seek(start * _SIZE)
                while rest:  # a disk that is nearly full takes what fits and reports no error
                    rest = rest[self._file.write(rest) :]
            except OSError as error:
                raise self._trouble(error) from error

    def _trouble(self, error: OSError) -> ScratchError:
        return ScratchError(
            f"{self._folder}: cannot hold the decoded sound ({error.strerror}), "
            f"{SAMPLE_RATE * 3600 * _SIZE / 1e6:.0f} MB per hour and track; "
            "fix: free disk space there, or set TMPDIR to a folder with more"
        )


def pieces(samples: Samples, size: int = PIECE) -> Iterator[tuple[int, Float32]]:
    """Yield the samples in pieces of at most `size`: (first sample, (n,) samples) each."""
    for start in range(0, len(samples), size):
        yield start, samples[start : start + size]


def folder() -> str:
    """Return the folder of large temporary files: TMPDIR, TEMP or TMP, or a folder that is rarely memory."""
    chosen = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    if not chosen and os.access(LARGE, os.W_OK | os.X_OK):
        return LARGE
    return tempfile.gettempdir()
