"""Scores of turns: DER under every named convention, JER, speaker counts, intervals.

pyannote.metrics computes; here its numbers get names. "Collar 0.25" means two things in the field: 0.25 s in
all (pyannote.metrics: ±0.125 s around each reference boundary) and 0.25 s on each side (md-eval, dscore,
VoxSRC). They can differ by two points (docs/decisions/2026-11-22-constants.md), so no figure goes without a
name.

Turns of one speaker that overlap are merged, as in md-eval, dscore and spyder.
pyannote.metrics by itself counts such speech twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from witness._version import install
from witness.bench import lines, pooling
from witness.bench.pooling import Difference, Pooled
from witness.errors import InputError, OtherJsonError, WitnessError
from witness.formats import rttm
from witness.progress import SILENT, Reporter
from witness.schema import LONGEST, Float64, Turn
from witness.transcript import store


@dataclass(frozen=True)
class Convention:
    """Named parts of the time that DER leaves out."""

    name: str
    collar: float
    """Seconds around each reference boundary, both sides together, as pyannote.metrics counts them."""
    skip_overlap: bool
    meaning: str


CONVENTIONS = (
    Convention("strict", 0.0, False, "no collar, overlap counted"),
    Convention("collar-0.25-total", 0.25, False, "±0.125 s, overlap counted"),
    Convention("collar-0.25-total-no-overlap", 0.25, True, "±0.125 s, overlap skipped"),
    Convention("collar-0.25-each-side", 0.5, False, "±0.25 s (NIST, VoxSRC), overlap counted"),
    Convention("collar-0.25-each-side-no-overlap", 0.5, True, "±0.25 s (NIST), overlap skipped"),
)
PARTS = ("false alarm", "missed detection", "confusion", "total")
"""Fields of `Seconds`, by the names of pyannote.metrics."""


class Seconds(NamedTuple):
    """The errors in one recording under one convention, and the speech that they are a share of."""

    false_alarm: float
    missed_detection: float
    confusion: float
    speech: float
    """In the reference."""


@dataclass(frozen=True)
class FileScore:
    """One recording under every convention."""

    uri: str
    seconds: Mapping[str, Seconds]
    """By the name of the convention."""
    jaccard: tuple[float, float]
    """Sum of the reference speakers' Jaccard errors, and their number."""
    reference_speakers: int
    hypothesis_speakers: int
    merged: bool = True
    """True if overlapping turns of one speaker were merged."""

    def der(self, convention: str) -> float | None:
        """Percent; None without reference speech."""
        *errors, speech = self.seconds[convention]
        return 100 * sum(errors) / speech if speech else None

    @property
    def jer(self) -> float | None:
        """Percent; None without reference speakers."""
        return 100 * self.jaccard[0] / self.jaccard[1] if self.jaccard[1] else None


@dataclass(frozen=True)
class SpeakerCounts:
    """Comparison of the numbers of speakers."""

    exact: int
    """Number of files with the right number."""
    within_one: int
    """Number of files whose number is off by one at most."""
    bias: float
    """Speakers per file, hypothesis minus reference; below zero: too few are found."""


def read(path: Path, *, by_file: bool = False) -> dict[str, list[Turn]]:
    """Read the turns of an RTTM file, of a transcript (JSON), or of the files below a folder, by uri.

    The transcripts of a folder count if it has no .rttm file. `by_file`: a file about one recording in a
    folder counts by its own name. Raises InputError.
    """
    files, turn_files = [path], [path]
    if path.is_dir():
        turn_files = sorted(path.rglob("*.rttm"))
        files = turn_files or sorted(path.rglob("*.json"))
    by_uri: dict[str, list[Turn]] = {}
    for file in files:
        try:
            in_file = _turns(file)
        except OtherJsonError:
            if not path.is_dir():
                raise
            continue
        for uri, turns in in_file.items():
            name = file.stem if by_file and path.is_dir() and len(in_file) == 1 else uri
            if name in by_uri:
                raise InputError(f"{file}: {name} is in another file, too; give each recording once")
            by_uri[name] = turns
    if not by_uri and not turn_files:
        raise InputError(f"{path}: no RTTM file and no transcript (JSON) in this folder")
    return by_uri


def _turns(path: Path) -> dict[str, list[Turn]]:
    """Return the turns in a file by uri. Raises InputError, OtherJsonError."""
    if path.suffix.lower() == ".json":
        return {path.stem: list(store.read(path).turns)}
    return rttm.parse(lines.contents(path, "an RTTM or JSON file, or a folder of them"), str(path))


def read_uem(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Read the parts (start, end) of each recording to be scored, in seconds, by uri. Raises InputError.

    Each line of a UEM file is one part: uri, channel, start and end. Of a folder, all .uem files are read.
    """
    parts: dict[str, list[tuple[float, float]]] = {}
    for file in sorted(path.rglob("*.uem")) if path.is_dir() else [path]:
        for uri, span in lines.parsed(file, "a UEM", _uem_line, "a UEM file"):
            parts.setdefault(uri, []).append(span)
    if not parts and path.is_dir():
        raise InputError(f"{path}: holds no .uem file with a line in it")
    return parts


def _uem_line(fields: list[str]) -> tuple[str, tuple[float, float]]:
    start, end = float(fields[2]), float(fields[3])
    if not 0 <= start < end <= LONGEST:  # nor is not-a-number
        raise ValueError
    return fields[0], (start, end)


Recording = TypeVar("Recording")


def pair(
    reference: Mapping[str, Recording], hypothesis: Mapping[str, Recording], empty: Recording
) -> dict[str, tuple[Recording, Recording]]:
    """Pair each recording of the reference with that of the hypothesis, by name.

    Two single recordings belong together, whatever their names. A recording that the hypothesis lacks is
    `empty` there, and counts as missed; so are all if it has none. Raises InputError if the reference has no
    recording, or none in common with the hypothesis.
    """
    if not reference:
        raise InputError("the reference holds no SPEAKER line; check that it is RTTM")
    if len(reference) == len(hypothesis) == 1:
        ((uri, truth), (guess,)) = next(iter(reference.items())), hypothesis.values()
        return {uri: (truth, guess)}
    if hypothesis and not set(reference) & set(hypothesis):
        raise InputError(
            f"reference ({', '.join(sorted(reference)[:3])}, ...) and hypothesis "
            f"({', '.join(sorted(hypothesis)[:3])}, ...) have no recording in common; name the files alike"
        )
    return {uri: (truth, hypothesis.get(uri, empty)) for uri, truth in sorted(reference.items())}


def score(
    pairs: Mapping[str, tuple[list[Turn], list[Turn]]],
    uem: Mapping[str, list[tuple[float, float]]] | None = None,
    *,
    as_pyannote: bool = False,
    reporter: Reporter = SILENT,
) -> list[FileScore]:
    """Score every recording under every convention.

    Without `uem` a recording is scored from its first to its last turn, in reference or hypothesis. With
    `as_pyannote`, what overlapping turns of one speaker share counts twice. Raises WitnessError if
    pyannote.metrics is not installed, InputError if the UEM lacks a recording.
    """
    core, metrics = _pyannote()
    scores = []
    for done, (uri, (reference, hypothesis)) in enumerate(pairs.items(), start=1):
        if uem is not None and uri not in uem:
            raise InputError(f"the UEM has no line for {uri}; add one, or score without a UEM")
        parts = None if uem is None else core.Timeline([core.Segment(*part) for part in uem[uri]])
        sides = (reference, hypothesis) if as_pyannote else (merged(reference), merged(hypothesis))
        truth, guess = (_annotation(core, turns) for turns in sides)
        seconds = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the missing UEM: the docstring explains it
            for convention in CONVENTIONS:
                rate = metrics.DiarizationErrorRate(
                    collar=convention.collar, skip_overlap=convention.skip_overlap
                )
                detail = rate(truth, guess, uem=parts, detailed=True)
                seconds[convention.name] = Seconds(*(float(detail[part]) for part in PARTS))
            jaccard = metrics.JaccardErrorRate()(truth, guess, uem=parts, detailed=True)
        scores.append(
            FileScore(
                uri,
                seconds,
                (float(jaccard["speaker error"]), float(jaccard["speaker count"])),
                len({turn.speaker for turn in reference}),
                len({turn.speaker for turn in hypothesis}),
                not as_pyannote,
            )
        )
        reporter.progress("scoring", done, len(pairs))
    return scores


def merged(turns: Iterable[Turn]) -> list[Turn]:
    """Sort turns, and merge those of one speaker that overlap."""
    last: dict[str, Turn] = {}
    done = []
    for turn in sorted(turns):
        before = last.get(turn.speaker)
        if before is not None and turn.start < before.end:
            turn = replace(before, end=max(before.end, turn.end))
        elif before is not None:
            done.append(before)
        last[turn.speaker] = turn
    return sorted([*done, *last.values()])


def pool(scores: Sequence[FileScore]) -> dict[str, Pooled]:
    """Pool all files under every convention. Raises InputError if there is no reference speech at all."""
    pooled = {name: pooling.pool(errors) for name, errors in _seconds(scores).items()}
    if not pooled["strict"].total:
        raise InputError("the reference has no speech to score against; check it, and the UEM")
    return pooled


def compare(scores: Sequence[FileScore], others: Sequence[FileScore]) -> dict[str, Difference]:
    """Subtract the DER of `others`, of the same files in the same order; by the name of the convention."""
    theirs = _seconds(others)
    return {name: pooling.compare(errors, theirs[name]) for name, errors in _seconds(scores).items()}


def jer(scores: Sequence[FileScore]) -> float:
    """Return percent: the mean over all reference speakers of all files."""
    return 100 * sum(file.jaccard[0] for file in scores) / max(1.0, sum(file.jaccard[1] for file in scores))


def speaker_counts(scores: Sequence[FileScore]) -> SpeakerCounts:
    extra = np.array([file.hypothesis_speakers - file.reference_speakers for file in scores])
    return SpeakerCounts(int((extra == 0).sum()), int((np.abs(extra) <= 1).sum()), float(extra.mean()))


def _seconds(scores: Sequence[FileScore]) -> dict[str, Float64]:
    """Return the errors under each convention, (files, 4), in the order of `Seconds`."""
    names = [convention.name for convention in CONVENTIONS]
    return {name: np.array([file.seconds[name] for file in scores]) for name in names}


def _annotation(core: Any, turns: Sequence[Turn]) -> Any:
    """Make a `pyannote.core.Annotation` of turns; a line that occurs twice counts once."""
    result = core.Annotation()
    for number, turn in enumerate(dict.fromkeys(turns)):
        if turn.end > turn.start:
            result[core.Segment(turn.start, turn.end), number] = turn.speaker
    return result


def _pyannote() -> tuple[Any, Any]:
    try:
        import pyannote.core
        import pyannote.metrics.diarization
    except ImportError as error:
        raise WitnessError(f"scoring needs pyannote.metrics; fix: {install('bench')}") from error
    return pyannote.core, pyannote.metrics.diarization
