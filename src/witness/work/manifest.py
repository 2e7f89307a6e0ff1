"""The manifest of a batch: a file that only grows, with a line of JSON for each event of a recording.

A killed process leaves at most one torn line, at the end; it is skipped, and the next line begins on its own.
A line counts once all of it is there, so the file is true after every byte. It may come from anywhere:
invalid lines are dropped and named, no line makes a batch write outside its folder, and a link in its place
is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from witness.errors import OutputError, UsageError
from witness.storage import files
from witness.work.overrides import JobOverrides

LONGEST_NAME = 244
"""Bytes of a file name, which has 255 with .findings.npz."""

_MOST = (1 << 63) - 1
_HALF_LETTERS = "" if os.name == "nt" else r"\ud800-\udc7f\udd00-\udfff"
"""Characters that no file name has: surrogates stand only for bytes that are not UTF-8."""

Text = Annotated[str, Meta(pattern=rf"\A[^\x00{_HALF_LETTERS}]*\Z")]
Whole = Annotated[int, Meta(ge=-_MOST, le=_MOST)]
Count = Annotated[int, Meta(ge=0, le=_MOST)]
Seconds = Annotated[float, Meta(ge=0, lt=float(_MOST))]
Hash = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
State = Literal["begun", "done", "failed", "canceled"]


@dataclass(frozen=True)
class Entry:
    """One recording, at its latest event or while it waits. Its fields are the keys of a line."""

    output: Text
    """Its files below the manifest's folder, without their endings."""
    source: Text
    """Its absolute path at that time."""
    size: Count
    mtime_ns: Whole
    """Size and time when it was read; while both are unchanged, it need not be hashed again."""
    sha256: Hash | None
    settings: Text
    """Hash of everything that changes the result."""
    state: State
    """"begun": it waits or is worked on, and the files at `output` are the batch's own; "canceled": it is
    left alone until a person asks for it again."""
    error: Text | None = None
    code: Count = 0
    """The exit code for the error."""
    duration: Seconds | None = None
    """Seconds of audio."""
    seconds: Seconds = 0.0
    """Seconds of work."""
    speakers: Count | None = None
    doubts: tuple[Text, ...] = ()
    """Warnings after which a person should look at the recording."""
    wish: JobOverrides = JobOverrides()
    """Its own settings."""
    again: bool = False
    """A transcript of this recording exists already (only with "begun"): it gives way to a new one, which
    keeps a person's changes."""

    @classmethod
    def begun(
        cls,
        source: str,
        output: str,
        size_and_mtime: tuple[int, int],
        wish: JobOverrides = JobOverrides(),
        again: bool = False,
    ) -> Entry:
        """Return a recording that waits; the settings of its folder are not known yet."""
        return cls(output, source, *size_and_mtime, None, "", "begun", wish=wish, again=again)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "wish": self.wish.to_json()}

    @property
    def why(self) -> str | None:
        """The error, for a reader who sees the name of the recording beside it."""
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
        """A line about each invalid line."""
        self._done: dict[tuple[str, int], dict[str, dict[str, None]]] = defaultdict(dict)
        """(settings, size) -> hash -> outputs of recordings that are done."""
        self._hashes: dict[tuple[str, int, int], str] = {}
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

    def append(self, entry: Entry, *, synced: bool = False) -> None:
        """Add a line, which survives a power cut if `synced`, as long as its folder's names do.

        Raises OutputError if the disk is full or the file is a link.
        """
        line = (b"\n" if self._torn else b"") + json.dumps(entry.to_json()).encode() + b"\n"
        try:
            descriptor = files.own(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                self._torn = True  # until all of it is written
                while line:
                    line = line[os.write(descriptor, line) :]
                if synced:
                    os.fsync(descriptor)
                self._torn = False
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OutputError(
                f"{self.path}: cannot be written ({error.strerror}); fix: free disk space or fix the "
                "folder's permissions; then run the same command again to continue"
            ) from error
        self._take(entry)

    def sha256(self, source: str, size: int, mtime_ns: int) -> str | None:
        """Return the hash of a recording, which is read once; None: it cannot be read."""
        key = source, size, mtime_ns
        if key not in self._hashes:
            try:
                self._hashes[key] = files.sha256_at(source)
            except OSError:
                return None
        return self._hashes[key]

    def has_copies(self, item: Entry, settings: str) -> bool:
        """Return whether any other recording of the same size is done with these settings."""
        done = self._done.get((settings, item.size))
        if not done:
            return False
        return len(done) > 1 or next(iter(done.values())).keys() != {item.output}

    def copies(self, item: Entry, settings: str, sha256: str) -> list[Entry]:
        """Return the entries of other recordings with this content that are done with these settings."""
        outputs = self._done.get((settings, item.size), {}).get(sha256, {})
        return [self.entries[output] for output in outputs if output != item.output]

    def _take(self, entry: Entry) -> None:
        before = self.entries.get(entry.output)
        if before is not None and before.state == "done" and before.sha256 is not None:
            done = self._done[before.settings, before.size]
            del done[before.sha256][before.output]
            if not done[before.sha256]:
                del done[before.sha256]
        self.entries[entry.output] = entry
        self.sources[entry.source] = entry.output
        if entry.sha256 is not None:
            self._hashes[entry.source, entry.size, entry.mtime_ns] = entry.sha256
            if entry.state == "done":
                self._done[entry.settings, entry.size].setdefault(entry.sha256, {})[entry.output] = None


class _InvalidError(ValueError):
    """The reason why a line is not valid."""


def _is_torn(line: bytes) -> bool:
    """Return whether a line is the beginning of one that a killed process was writing."""
    begin = b'{"output": "'
    return not line.endswith(b"}") and (line.startswith(begin) or begin.startswith(line))


def _entry(line: bytes) -> Entry:
    """Return the entry of a line. Raises ValueError."""
    values = json.loads(line)
    names = {field.name for field in fields(Entry)}
    required = {field.name for field in fields(Entry)[:7]}
    if not isinstance(values, dict) or not required <= set(values) <= names:
        raise _InvalidError("its keys are not those of this version")
    try:
        entry = msgspec.convert(values, Entry)
    except msgspec.ValidationError as error:
        match = re.search(r"\$\.(\w+)", str(error))
        name = match[1] if match else "content"
        raise _InvalidError(f"its {name} cannot be {json.dumps(values.get(name))[:60]}") from error
    if not _is_below(entry.output):
        raise _InvalidError(f"its output cannot be {json.dumps(entry.output)[:60]}")
    try:
        return replace(entry, wish=entry.wish.checked())
    except UsageError as error:
        raise _InvalidError(f"its wish cannot be {json.dumps(values['wish'])[:60]}") from error


def _is_below(output: str) -> bool:
    """Return whether a path stays in its folder, with room for any ending."""
    path = PurePath(output)
    short = 0 < len(os.fsencode(path.name)) <= LONGEST_NAME
    return short and not path.anchor and ".." not in path.parts
