"""What a batch has done, in a file that is only ever appended to: a JSON line per recording.

A process that is killed leaves at most one torn line, at the end; it is skipped, and the next line begins on
its own. A line counts when all of it is there, so the file is true after every byte. It may come from
anywhere: what is not valid is dropped and named, no line makes a batch write outside its folder, and a link
in its place is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

from witness.errors import OutputError, UsageError
from witness.storage import files
from witness.work import overrides

_LONGEST = 244
"""Bytes of a file name, which has 255 with .findings.npz."""

_LARGEST = 1 << 63
"""What no size, time or code reaches."""


State = Literal["begun", "done", "failed", "canceled"]


@dataclass(frozen=True)
class Entry:
    """What became of one recording. Its fields are the keys of a line."""

    output: str
    """Its files below the manifest's folder, without their endings."""
    source: str
    """Where it was, absolute."""
    size: int
    mtime_ns: int
    """Size and time when it was read; while both are unchanged, it need not be hashed again."""
    sha256: str | None
    settings: str
    """Hash of everything that changes the result."""
    state: State
    """"begun": it waits or is worked on, and what lies at `output` is the batch's own; "canceled": it is not
    wanted until somebody asks for it again."""
    error: str | None = None
    code: int = 0
    """The exit code for the error."""
    duration: float | None = None
    """Seconds of audio."""
    seconds: float = 0.0
    """Seconds of work."""
    speakers: int | None = None
    """How many were found."""
    doubts: tuple[str, ...] = ()
    """Warnings after which somebody should look at the recording."""
    wish: Mapping[str, Any] = field(default_factory=dict)
    """What a person wanted otherwise for it, as `wishes.RecordingWish.told`."""
    again: bool = False
    """Of one that has begun: it has a transcript already."""

    @property
    def why(self) -> str | None:
        """The error, for whoever sees beside it which recording it is about."""
        return None if self.error is None else self.error.removeprefix(f"{self.source}: ")


class Manifest:
    """The latest entry of each output, and the file behind it."""

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one. Raises OutputError if it cannot be read or is a link."""
        files.refuse_link(path)
        self.path = path
        self.entries: dict[str, Entry] = {}
        self.sources: dict[str, str] = {}
        """Source -> output."""
        self.dropped: list[str] = []
        """A line about each line that is not valid and is not used."""
        try:
            content = files.read(path)
        except FileNotFoundError:
            content = b""
        except OSError as error:
            raise OutputError(
                f"{path}: cannot be read ({error.strerror}); delete it to start from scratch"
            ) from error
        self._torn = not content.endswith(b"\n") and bool(content)
        for number, line in enumerate(content.split(b"\n"), start=1):
            if line and not _is_torn(line):
                try:
                    self._take(_entry(line))
                except (ValueError, RecursionError) as error:
                    why = str(error) if isinstance(error, _InvalidError) else "it is not JSON of this version"
                    self.dropped.append(f"{path}: line {number} is not used: {why}")

    def append(self, entry: Entry) -> None:
        """Add a line. Raises OutputError if the disk is full or it is a link."""
        line = (b"\n" if self._torn else b"") + json.dumps(asdict(entry)).encode() + b"\n"
        try:
            descriptor = files.own(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                self._torn = True  # until all of it is written
                while line:
                    line = line[os.write(descriptor, line) :]
                self._torn = False
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OutputError(
                f"{self.path}: cannot be written ({error.strerror}); fix: free disk space or fix the "
                "folder's permissions; then run the same command again to continue"
            ) from error
        self._take(entry)

    def _take(self, entry: Entry) -> None:
        self.entries[entry.output] = entry
        self.sources[entry.source] = entry.output


class _InvalidError(ValueError):
    """The reason why a line is not valid."""


def _is_torn(line: bytes) -> bool:
    """Whether a line is the beginning of one of ours, whose writer was killed."""
    begin = b'{"output": "'
    return not line.endswith(b"}") and (line.startswith(begin) or begin.startswith(line))


def _entry(line: bytes) -> Entry:
    """The entry of a line. Raises ValueError."""
    document = json.loads(line)
    required = {field.name for field in fields(Entry)[:7]}
    known = {field.name for field in fields(Entry)}
    if not isinstance(document, dict) or not required <= set(document) <= known:
        raise _InvalidError("its keys are not those of this version")
    for name, value in document.items():
        if not _CHECKS[name](value):
            raise _InvalidError(f"its {name} cannot be {json.dumps(value)[:60]}")
    return Entry(**{**document, "doubts": tuple(document.get("doubts", ()))})


def _is_text(value: Any) -> bool:
    """Whether it is a string that a file name can have: surrogates only for bytes that are not UTF-8."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeError:
        return False
    return True


def _is_below(value: Any) -> bool:
    """Whether it is a path that stays in its folder, with room for any ending."""
    if not _is_text(value):
        return False
    path = PurePath(value)
    short = 0 < len(os.fsencode(path.name)) <= _LONGEST
    return short and not path.anchor and ".." not in path.parts


def _is_whole(value: Any) -> bool:
    return type(value) is int and -_LARGEST < value < _LARGEST


def _is_count(value: Any) -> bool:
    return _is_whole(value) and value >= 0


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < _LARGEST


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _is_wish(value: Any) -> bool:
    try:
        return isinstance(value, dict) and overrides.read(value) is not None
    except UsageError:
        return False


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "output": _is_below,
    "source": _is_text,
    "size": _is_count,
    "mtime_ns": _is_whole,
    "sha256": lambda value: value is None or _is_hash(value),
    "settings": _is_text,
    "state": lambda value: value in get_args(State),
    "error": lambda value: value is None or _is_text(value),
    "code": _is_count,
    "duration": lambda value: value is None or _is_seconds(value),
    "seconds": _is_seconds,
    "speakers": lambda value: value is None or _is_count(value),
    "doubts": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "wish": _is_wish,
    "again": lambda value: isinstance(value, bool),
}
