"""Results that are there already: whose they are, and whether a person has worked on them.

Only JSON says so; the other formats beside it are taken to be of the same transcript.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from witness.formats import document, output_paths
from witness.formats.registry import Format
from witness.storage import files
from witness.work.recordings import ENDINGS


@dataclass(frozen=True)
class Earlier:
    """What a JSON transcript on the disk says of itself."""

    path: Path
    source: str
    """The recording's path, as it was given."""
    sha256: str
    """Of the recording."""
    corrected: bool
    """Whether it holds what a person told `witness redo`."""

    def is_of(self, recording: str) -> bool:
        """Whether it is a transcript of the recording at this path, or of the same bytes elsewhere."""
        if self.source == os.path.abspath(recording) or self.source == recording == "-":  # noqa: PTH100
            return True
        try:
            return files.sha256_at(recording) == self.sha256
        except (OSError, ValueError):
            return False


def find(targets: Sequence[Path]) -> Earlier | None:
    """The transcript whose results may lie at `targets`; None: there is none that can be read."""
    places = dict.fromkeys(map(_json_beside, targets))
    return next((found for path in places if (found := _read(path)) is not None), None)


def _json_beside(target: Path) -> Path:
    """The JSON of the transcript that a file of any format is of."""
    form = output_paths.format_of(target.name)
    base = target.stem if form is None else target.name[: -len(form.ending) - 1]
    return target.with_name(f"{base}.json")


def _read(path: Path) -> Earlier | None:
    try:
        found = document.summary(files.read(path))
    except OSError:
        return None
    if found is None:
        return None
    return Earlier(path, found.audio.path, found.audio.sha256, found.holds_corrections)


def free(targets: Sequence[Path], recording: str) -> bool:
    """Whether results of `recording` may go to `targets`: those that are there are its own.

    Where nothing says whose they are, they are another's if a recording of that name lies beside this one.
    """
    if (earlier := find(targets)) is not None:
        return earlier.is_of(recording)
    there = [target for target in targets if os.path.lexists(target) and not target.is_dir()]
    if any(output_paths.format_of(target.name) == Format.JSON for target in there):
        return False
    return not there or recording == "-" or not _has_namesake(Path(recording))


def _has_namesake(recording: Path) -> bool:
    """Whether another recording of the same name, with another ending, lies in the same folder."""
    try:
        others = [path.name for path in recording.absolute().parent.iterdir()]
    except OSError:
        return False
    stems = (os.path.splitext(name) for name in others if name != recording.name)  # noqa: PTH122
    return any(stem == recording.stem and ending[1:].lower() in ENDINGS for stem, ending in stems)


def loss(targets: Sequence[Path]) -> str | None:
    """The line that refuses to write new results over a transcript that a person corrected; None: write."""
    earlier = find(targets)
    if earlier is None or not earlier.corrected:
        return None
    return (
        f"{earlier.path}: holds corrections, which a new transcript would lose; fix: witness convert "
        f"{earlier.path} for another format, another -o, or --force to lose them"
    )
