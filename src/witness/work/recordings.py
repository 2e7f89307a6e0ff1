"""Which recordings a batch has, and the names of their files in its folder."""

from __future__ import annotations

import glob
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from witness.audio.source import ENDINGS, refuse_address
from witness.errors import UsageError
from witness.formats.output_paths import names
from witness.formats.registry import Format
from witness.work.manifest import Manifest
from witness.work.overrides import JobOverrides

INNER = tuple(f".{form.ending.rpartition('.')[0]}".casefold() for form in Format if "." in form.ending)
"""What stands in names of files before their last ending to tell two formats apart."""


@dataclass(frozen=True)
class Item:
    """A recording of a batch, as it was when it was looked at."""

    source: str
    """Its absolute path."""
    output: str
    """Its files below the batch's folder, without their endings."""
    size: int
    mtime_ns: int
    overrides: JobOverrides = JobOverrides()
    again: bool = False
    """Whether it has a transcript, whose place a new one takes with all that a person did to it."""


def find(inputs: Sequence[str], out: Path) -> list[tuple[str, str]]:
    """(absolute path, path in the tree) of every recording, sorted.

    A folder gives its recordings with their paths below it; several folders keep their names. Hidden files
    and `out` are left out. Raises UsageError if there is no recording at all, InputError for an address.
    """
    for given in inputs:
        refuse_address(given)
    folders = [given for given in inputs if Path(given).is_dir()]
    places: dict[str, str] = {}
    for given in inputs:
        if Path(given).is_dir():
            root = os.path.abspath(given)  # noqa: PTH100 - without following links, here and below
            above = Path(root).name if len(folders) > 1 else ""
            for path in _walk(root, out):
                if Path(path).suffix[1:].lower() in ENDINGS:
                    places.setdefault(path, os.path.join(above, os.path.relpath(path, root)))  # noqa: PTH118
        elif Path(given).exists() or not glob.has_magic(given):
            path = os.path.abspath(given)  # noqa: PTH100
            places.setdefault(path, Path(path).name)
        else:
            for match in glob.glob(given, recursive=True):  # noqa: PTH207
                if Path(match).is_file():
                    path = os.path.abspath(match)  # noqa: PTH100
                    places.setdefault(path, Path(path).name)
    if not places:
        raise UsageError(f"no recording in {', '.join(inputs)}; name files, folders or patterns")
    return sorted(places.items())


def _walk(root: str, out: Path) -> Iterator[str]:
    """The files below a folder, without what is hidden and what is in `out`."""
    excluded = out.resolve()
    for folder, below, found in os.walk(root):
        below[:] = [name for name in below if name[0] != "." and Path(folder, name).resolve() != excluded]
        yield from (os.path.join(folder, name) for name in found if name[0] != ".")  # noqa: PTH118


def assign(recordings: Iterable[tuple[str, str]], manifest: Manifest) -> list[tuple[str, str]]:
    """(source, output) of each recording that `find` found. An output once assigned stays; none is shared.

    Outputs that differ only in case or in the composition of accents are one file on some disks, so they
    count as one here: `a.wav` and `a.mp3` become `a.wav.json` and `a.mp3.json`, and a third one in the way
    gets a number made from its path. `a.openai.wav` becomes `a.openai.wav.json`, because `a.openai.json` is
    another format of `a.wav`.
    """
    recordings = list(recordings)
    sources = {source for source, _ in recordings}
    taken = {"report": ""}
    for source, name in manifest.sources.items():
        if source in sources or Path(source).exists():
            taken.setdefault(_key(name), source)
    choices = [names(place, source) for source, place in recordings]
    uses = Counter(_key(stem) for stem, *_ in choices)
    assigned = []
    for (source, _), (stem, *longer) in zip(recordings, choices, strict=True):
        earlier = manifest.sources.get(source)
        alone = uses[_key(stem)] == 1 and not _key(stem).endswith(INNER)
        candidates = [earlier] if earlier is not None else [stem] if alone else []
        candidates += longer
        name = next(name for name in candidates if taken.get(_key(name), source) == source)
        taken[_key(name)] = source
        assigned.append((source, name))
    return assigned


def _key(name: str) -> str:
    """Equal for names that some disk takes for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def size_and_mtime(path: str) -> tuple[int, int]:
    """Of a file, in bytes and nanoseconds; whoever finds both unchanged need not read it. Raises OSError."""
    stat = Path(path).stat()
    return stat.st_size, stat.st_mtime_ns
