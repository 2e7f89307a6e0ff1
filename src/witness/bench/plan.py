"""What an accuracy benchmark is to run: recordings with their references, settings, and where it all goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from witness.bench import corpora, scoring
from witness.bench.corpora import Corpus
from witness.errors import InputError
from witness.formats.registry import Format
from witness.options import Options, Runtime
from witness.schema import Turn

NO_AUDIO = {".uem", ".lab", *(f".{form.ending.rpartition('.')[2].lower()}" for form in Format)}
"""Endings of files that lie beside recordings and are none."""

Split = Literal["dev", "test"]


@dataclass(frozen=True)
class Case:
    """A recording and what is said to be in it."""

    name: str
    audio: Path
    reference: tuple[Turn, ...]

    @property
    def length(self) -> float:
        """Seconds to the end of the last turn: what is known of the duration before the recording is read."""
        return max((turn.end for turn in self.reference), default=0.0)


@dataclass(frozen=True)
class AccuracyPlan:
    """Everything that a run of the benchmark is told."""

    cases: tuple[Case, ...]
    out: Path
    """The folder of the run; made if it is not there."""
    missing: tuple[str, ...] = ()
    """Names of references without audio, which are not scored."""
    options: Options = field(default_factory=Options)
    runtime: Runtime = field(default_factory=Runtime)
    split: Split | None = None
    """What the recordings are said to be; on "test" nothing may be tuned."""
    tuned_on: Path | None = None
    """The folder of the finished DEV run that settings on "test" come from."""
    as_pyannote: bool = False
    """How `scoring.score` counts."""
    uem: Mapping[str, list[tuple[float, float]]] | None = None
    """The parts of each recording that are scored; None: from its first to its last turn."""


def find(
    audio: Path, references: Path, corpus: Corpus | None = None
) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """The recordings below `audio` with an RTTM below `references`, and the names of those without audio.

    A recording is named after its file without the ending, and so is an RTTM file about one recording; one
    about several goes by the names in it. Of a `corpus`, references may have its own format, and the name of
    a recording may go on after that of its reference (`corpora.belongs`). Raises InputError.
    """
    own = None if corpus is None else corpora.read(references, corpus)
    turns = _references(references) if own is None else own
    files = _recordings(audio)
    cases, missing = [], []
    for name, reference in sorted(turns.items()):
        names = [name] if corpus is None else [other for other in files if corpora.belongs(other, name)]
        paths = [path for other in names for path in files.get(other, [])]
        if len(paths) > 1:
            raise InputError(f"{paths[0]}: {paths[1]} has the same name; keep one of them below {audio}")
        if paths:
            cases.append(Case(name, paths[0], tuple(reference)))
        else:
            missing.append(name)
    if not cases:
        raise InputError(f"{audio}: no recording there has the name of a reference in {references}")
    return tuple(cases), tuple(missing)


def unscored(audio: Path, cases: Sequence[Case]) -> set[str]:
    """The names of the recordings below `audio` that are in no case."""
    return set(_recordings(audio)) - {case.audio.stem for case in cases}


def _recordings(folder: Path) -> dict[str, list[Path]]:
    """The files below a folder that may be recordings, by their names."""
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in NO_AUDIO and not path.name.startswith(".") and path.is_file():
            files.setdefault(path.stem, []).append(path)
    return files


def _references(folder: Path) -> dict[str, Sequence[Turn]]:
    """The turns of each recording, by its name; from one RTTM file or from all below a folder."""
    turns: dict[str, Sequence[Turn]] = {}
    for path in sorted(folder.rglob("*.rttm")) if folder.is_dir() else [folder]:
        in_file = scoring.read(path)
        for uri, reference in in_file.items():
            name = path.stem if len(in_file) == 1 and folder.is_dir() else uri
            if name in turns:
                raise InputError(f"{path}: {name} is in another file, too; give each recording once")
            if "/" in name:
                raise InputError(f"{path}: {name} cannot be the name of a file; rename it in this file")
            turns[name] = reference
    if not turns:
        raise InputError(f"{folder}: holds no reference; give a folder of RTTM files")
    return turns
