"""Readers of words with their speakers: STM, CTM, SegLST, and Witness's own JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from witness.audio import fifo
from witness.errors import InputError
from witness.formats.json_document import SCHEMA
from witness.formats.registry import Format
from witness.storage import files

T = TypeVar("T")

REFERENCES = (".stm", ".ctm", ".json")
"""Endings of the files in a folder of references; files of the first one that occurs are read."""
HYPOTHESES = (".json", ".stm", ".ctm")
"""The same for a folder of hypotheses: a transcript may lie beside its reference."""

SEGLST = f".{Format.SEGLST.ending}"

LABEL = re.compile(r"<[^<>\s]*>")  # of an STM line: <o,f0,male>
MARKS = re.compile(r"\[[^\[\]]*\]|<[^<>]*>")  # not words: [laughter], <unk>
IGNORED = "ignore_time_segment_in_scoring"
WORDS = "an STM, CTM or JSON file, or a folder of them"


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
    """Words of one recording, of a reference or a transcript."""

    lines: tuple[Row, ...]
    """In order of their starts."""
    language: str | None = None
    """ISO 639-1 code; None: the format does not say."""
    unsupported: tuple[Row, ...] = ()
    """Of a transcript of Witness: words without a speaker's voice, which its text leaves out."""
    inaudible: float = 0.0
    """Of a transcript of Witness: seconds of speech without words."""


def read(path: Path, endings: Sequence[str] = HYPOTHESES) -> dict[str, Said]:
    """Read the words of a file, or of the files below a folder, by recording.

    A folder is searched for files of the first of `endings` that occurs; a transcript there counts, and not
    the SegLST of it beside it. A file with one recording is called by its own name, and the recordings of
    others by the names in them.
    Raises InputError.
    """
    if not path.is_dir():
        return _read_file(path)
    paths = next((matches for end in endings if (matches := sorted(path.rglob(f"*{end}")))), [])
    by_uri: dict[str, Said] = {}
    for file in paths:
        whole = file.with_name(file.name.removesuffix(SEGLST) + ".json")
        if file.name.endswith(SEGLST) and whole in paths:
            continue
        if file.suffix == ".json" and _is_other_json(_json(file)):
            continue
        for uri, said in _read_file(file).items():
            if uri in by_uri:
                raise InputError(f"{file}: {uri} is in another file, too; give each recording once")
            by_uri[uri] = said
    if not by_uri:
        raise InputError(f"{path}: no {', '.join(endings)} file with words in this folder")
    return by_uri


def transcript(document: Mapping[str, Any]) -> Said:
    """Take the words of a transcript (`"schema": "witness/1"`) as its text has them.

    Raises ValueError if no recognizer listened, KeyError or TypeError if it is not a transcript.
    """
    if not document["words"] and document["models"]["whisper"] is None:
        raise ValueError("no words were recognized; transcribe with a Whisper model")
    lines = [(_line(word, "start", "end", "text"), word["supported"]) for word in document["words"]]
    return Said(
        _ordered(line for line, supported in lines if supported),
        document["language"],
        _ordered(line for line, supported in lines if not supported),
        sum(part["end"] - part["start"] for part in document["utterances"] if part["text"] is None),
    )


# --- formats ---


def _read_file(path: Path) -> dict[str, Said]:
    ending = path.suffix.lower()
    if ending == ".json":
        by_uri = _document(path)
    elif ending in ROWS:
        by_uri = _by_recording(parsed(path, *ROWS[ending]))
    else:
        raise InputError(f"{path}: not .stm, .ctm or .json; words are read from these formats")
    if not by_uri:
        raise InputError(f"{path}: no line with words; check that it is in the format of its name")
    if len(by_uri) == 1:
        return {path.name.removesuffix(path.suffix).removesuffix(".seglst"): next(iter(by_uri.values()))}
    return by_uri


def _stm(fields: list[str]) -> tuple[str, Row]:
    """Parse recording, channel, speaker, start, end, perhaps a label, words."""
    uri, _, speaker, start, end, *words = fields
    if words and LABEL.fullmatch(words[0]):
        words = words[1:]
    return uri, Row(*_times(start, end), speaker, MARKS.sub(" ", " ".join(words)))


def _ctm(fields: list[str]) -> tuple[str, Row]:
    """Parse recording, channel, start, duration, word, perhaps a confidence."""
    uri, _, start, duration, word, *_ = fields
    return uri, Row(*_times(start, float(start) + float(duration)), None, MARKS.sub(" ", word))


ROWS = {".stm": ("an STM", _stm), ".ctm": ("a CTM", _ctm)}


def _document(path: Path) -> dict[str, Said]:
    """Read a transcript of Witness, or SegLST: objects with session_id, speaker, times and words."""
    document = _json(path)
    if _is_other_json(document):
        raise InputError(f"{path}: neither a transcript of Witness nor SegLST; give a file of -f json")
    try:
        if isinstance(document, dict):
            return {path.stem: transcript(document)}
        return _by_recording(
            (str(item["session_id"]), _line(item, "start_time", "end_time", "words")) for item in document
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: has no {error} where one is needed; give a file of -f json") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def _by_recording(parts: Iterable[tuple[str, Row]]) -> dict[str, Said]:
    by_uri: dict[str, list[Row]] = {}
    for uri, row in parts:
        by_uri.setdefault(uri, []).append(row)
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


def _is_other_json(document: Any) -> bool:
    """Tell whether it is other JSON; batches and pages write some, too."""
    return not isinstance(document, list) and (
        not isinstance(document, dict) or document.get("schema") != SCHEMA
    )


def parsed(path: Path, form: str, parse: Callable[[list[str]], T], give: str = WORDS) -> Iterator[T]:
    """Yield the parsed fields of each line that is not empty and not a comment. Raises InputError.

    `form` names the format ("an STM"), and `give` the files that a person should give instead.
    """
    for number, line in enumerate(contents(path, give).splitlines(), start=1):
        fields = line.split()
        if not fields or fields[0].startswith(";;"):
            continue
        if fields[-1].lower() == IGNORED:
            raise InputError(
                f"{path}, line {number}: parts that are not scored are not supported; remove them"
            )
        try:
            row = parse(fields)
        except (IndexError, ValueError) as error:
            raise InputError(f"{path}, line {number}: not {form} line: {line.strip()[:80]}") from error
        yield row


def _json(path: Path) -> Any:
    try:
        return json.loads(contents(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not valid JSON; give a file of -f json") from error


def contents(path: Path, give: str = WORDS) -> str:
    """Read the text of a file. Raises InputError, which names the files to `give` instead."""
    try:
        content = fifo.read(path, files.LARGEST) if path.is_fifo() else files.read(path)
        return "\n".join(content.decode("utf-8-sig").splitlines())  # some editors begin a file with a mark
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"{path}: could not be read ({reason}); give {give}") from error
