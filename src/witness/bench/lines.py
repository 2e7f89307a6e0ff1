"""Who said what, read from files: STM, CTM, SegLST, and Witness's own JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from witness.audio import fifo
from witness.errors import InputError
from witness.formats.document import SCHEMA
from witness.formats.registry import Format
from witness.storage import files

REFERENCES = (".stm", ".ctm", ".json")
"""Endings of what a folder of references holds; files of the first one that occurs are read."""
HYPOTHESES = (".json", ".stm", ".ctm")
"""The same for a folder of hypotheses: a transcript may lie beside its reference."""

SEGLST = f".{Format.SEGLST.ending}"

LABEL = re.compile(r"<[^<>\s]*>")  # of an STM line: <o,f0,male>
MARKS = re.compile(r"\[[^\[\]]*\]|<[^<>]*>")  # what is no word: [laughter], <unk>
IGNORED = "ignore_time_segment_in_scoring"


@dataclass(frozen=True)
class Row:
    """Words of one speaker with the times of their beginning and end, in seconds; perhaps a single word."""

    start: float
    end: float
    speaker: str | None
    """None: the format does not say."""
    text: str


@dataclass(frozen=True)
class Said:
    """What was said in one recording, or what somebody made of it."""

    lines: tuple[Row, ...]
    """In order of their starts."""
    language: str | None = None
    """ISO 639-1 code; None: the format does not say."""
    unsupported: tuple[Row, ...] = ()
    """Of a transcript of Witness: words where nobody was heard speaking, which its text leaves out."""
    inaudible: float = 0.0
    """Of a transcript of Witness: seconds of speech without words."""


def read(path: Path, endings: Sequence[str] = HYPOTHESES) -> dict[str, Said]:
    """What was said, by recording: of a file, or of the files below a folder.

    A folder is searched for files of the first of `endings` that occurs; a transcript there counts, and not
    the SegLST of it beside it. A file with one recording is called by its own name, and the recordings of
    others by the names in them.
    Raises InputError.
    """
    if not path.is_dir():
        return _file(path)
    paths = next((found for end in endings if (found := sorted(path.rglob(f"*{end}")))), [])
    by_uri: dict[str, Said] = {}
    for file in paths:
        whole = file.with_name(file.name.removesuffix(SEGLST) + ".json")
        if file.name.endswith(SEGLST) and whole in paths:
            continue
        if file.suffix == ".json" and _other(_json(file)):
            continue
        for uri, said in _file(file).items():
            if uri in by_uri:
                raise InputError(f"{file}: {uri} is in another file, too; give each recording once")
            by_uri[uri] = said
    if not by_uri:
        raise InputError(f"{path}: no {', '.join(endings)} file with words in this folder")
    return by_uri


def pair(reference: Mapping[str, Said], hypothesis: Mapping[str, Said]) -> dict[str, tuple[Said, Said]]:
    """The recordings of the reference, each with what the hypothesis has for it.

    Two single recordings belong together whatever they are called; a recording that the hypothesis lacks is
    all missed. Raises InputError if they have no recording in common.
    """
    if len(reference) == len(hypothesis) == 1:
        ((uri, said),) = reference.items()
        return {uri: (said, next(iter(hypothesis.values())))}
    if not set(reference) & set(hypothesis):
        raise InputError(
            f"reference ({', '.join(sorted(reference)[:3])}, ...) and hypothesis "
            f"({', '.join(sorted(hypothesis)[:3])}, ...) have no recording in common; name the files alike"
        )
    return {uri: (said, hypothesis.get(uri, Said(()))) for uri, said in sorted(reference.items())}


def transcript(document: Mapping[str, Any]) -> Said:
    """The words of a transcript (`"schema": "witness/1"`) as its text has them.

    Raises ValueError if no recognizer listened, KeyError or TypeError if it is not a transcript.
    """
    if not document["words"] and document["models"]["whisper"] is None:
        raise ValueError("no words were recognized; transcribe with a Whisper model")
    lines = [(_line(word, "start", "end", "text"), word["supported"]) for word in document["words"]]
    return Said(
        _ordered(line for line, supported in lines if supported),
        document["language"],
        _ordered(line for line, supported in lines if not supported),
        sum(one["end"] - one["start"] for one in document["utterances"] if one["text"] is None),
    )


# --- formats ---


def _file(path: Path) -> dict[str, Said]:
    readers: dict[str, Callable[[Path], dict[str, Said]]] = {".stm": _stm, ".ctm": _ctm, ".json": _document}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path}: not .stm, .ctm or .json; words are read from these formats")
    by_uri = readers[path.suffix.lower()](path)
    if not by_uri:
        raise InputError(f"{path}: no line with words; check that it is in the format of its name")
    if len(by_uri) == 1:
        return {path.name.removesuffix(path.suffix).removesuffix(".seglst"): next(iter(by_uri.values()))}
    return by_uri


def _stm(path: Path) -> dict[str, Said]:
    """Recording, channel, speaker, start, end, perhaps a label, words."""
    by_uri: dict[str, list[Row]] = {}
    for number, line, fields in _rows(path):
        try:
            uri, _, speaker, start, end, *words = fields
            times = _times(start, end)
        except ValueError:
            raise InputError(f"{path}, line {number}: not an STM line: {line.strip()[:80]}") from None
        if words and LABEL.fullmatch(words[0]):
            words = words[1:]
        text = " ".join(words)
        if text.lower() == IGNORED:
            raise InputError(
                f"{path}, line {number}: parts that are not scored are not supported; remove them"
            )
        by_uri.setdefault(uri, []).append(Row(*times, speaker, MARKS.sub(" ", text)))
    return {uri: Said(_ordered(lines)) for uri, lines in by_uri.items()}


def _ctm(path: Path) -> dict[str, Said]:
    """Recording, channel, start, duration, word, perhaps a confidence."""
    by_uri: dict[str, list[Row]] = {}
    for number, line, fields in _rows(path):
        try:
            uri, _, start, duration, word, *_ = fields
            times = _times(start, float(start) + float(duration))
        except ValueError:
            raise InputError(f"{path}, line {number}: not a CTM line: {line.strip()[:80]}") from None
        by_uri.setdefault(uri, []).append(Row(*times, None, MARKS.sub(" ", word)))
    return {uri: Said(_ordered(lines)) for uri, lines in by_uri.items()}


def _document(path: Path) -> dict[str, Said]:
    """A transcript of Witness, or SegLST: a list of objects with session_id, speaker, times and words."""
    document = _json(path)
    if _other(document):
        raise InputError(f"{path}: neither a transcript of Witness nor SegLST; give a file of -f json")
    try:
        if isinstance(document, dict):
            return {path.stem: transcript(document)}
        by_uri: dict[str, list[Row]] = {}
        for item in document:
            line = _line(item, "start_time", "end_time", "words")
            by_uri.setdefault(str(item["session_id"]), []).append(line)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: has no {error} where one is needed; give a file of -f json") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    return {uri: Said(_ordered(lines)) for uri, lines in by_uri.items()}


def _line(item: Mapping[str, Any], start: str, end: str, text: str) -> Row:
    speaker = item["speaker"]
    return Row(*_times(item[start], item[end]), None if speaker is None else str(speaker), str(item[text]))


def _times(start: Any, end: Any) -> tuple[float, float]:
    """Raises ValueError if these are not the times of a part of a recording."""
    times = float(start), float(end)
    if not (0 <= times[0] <= times[1] and math.isfinite(times[1])):
        raise ValueError(f"{start} to {end} is not a part of a recording")
    return times


def _ordered(lines: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(sorted(lines, key=lambda line: line.start))


def _other(document: Any) -> bool:
    """Whether it is JSON of another kind; batches and pages write some, too."""
    return not isinstance(document, list) and (
        not isinstance(document, dict) or document.get("schema") != SCHEMA
    )


def _rows(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """The number, the text and the fields of each line that is not empty and not a comment."""
    for number, line in enumerate(contents(path).splitlines(), start=1):
        fields = line.split()
        if fields and not fields[0].startswith(";;"):
            yield number, line, fields


def _json(path: Path) -> Any:
    try:
        return json.loads(contents(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not valid JSON; give a file of -f json") from error


def contents(path: Path, give: str = "an STM, CTM or JSON file, or a folder of them") -> str:
    """What is written in a file. Raises InputError, which says what to `give` instead."""
    try:
        content = fifo.read(path, files.LARGEST) if path.is_fifo() else files.read(path)
        return "\n".join(content.decode("utf-8-sig").splitlines())  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"{path}: could not be read ({reason}); give {give}") from error
