"""A transcript made anew from its JSON and the stages beside it: no recording, no model, seconds.

What a person corrected is kept in the JSON and applied again by every later redo.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

from witness import files
from witness.diarization import voices
from witness.errors import InputError, UsageError
from witness.formats import findings, page, writers
from witness.options import Bounds
from witness.reporter import SILENT, Reporter
from witness.schema import Correction, Findings, Spans, Transcript, Turn
from witness.transcript import assemble, corrections

LONGEST_TEXT = 10_000
"""Characters that a correction may put in the place of words."""
UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")
"""Kinds of characters that would break a line. Joiners, which some scripts and emoji need, do not."""


@dataclass(frozen=True)
class Kept:
    """A JSON transcript as it lies on the disk."""

    path: Path
    link: dict[str, str]
    findings: Findings
    asked: Bounds
    corrections: tuple[Correction, ...]
    turns: tuple[Turn, ...]
    names: dict[str, str | None]
    """Of every speaker by id."""

    def find(self, speaker: str) -> str:
        """The id of a speaker given by id or by name. Raises UsageError."""
        found = [key for key, name in self.names.items() if speaker in (key, name)]
        if len(found) != 1:
            whom = ", ".join(f"{key} ({name})" if name else key for key, name in self.names.items())
            several = "is not a speaker" if not found else "are several speakers"
            raise UsageError(f"{speaker!r} {several} in {self.path}; there: {whom or 'nobody'}")
        return found[0]

    def anchor(self, speaker: str) -> Spans:
        """Where a speaker given by id or by name talks."""
        return corrections.anchor(self.find(speaker), self.turns)


def read(path: Path) -> Kept:
    """The JSON at `path` and its stages. Raises InputError if either cannot be used."""
    content = _bytes(path, "name a JSON transcript of witness")
    try:
        document = json.loads(content)
        link = document["stages"]
        kept = Kept(
            path,
            link,
            _stages(path, link) if link else _no_stages(path),
            Bounds(**document["asked"]),
            tuple(_correction(entry) for entry in document["corrections"]),
            tuple(Turn(turn["start"], turn["end"], turn["speaker"]) for turn in document["turns"]),
            {speaker["id"]: speaker["name"] for speaker in document["speakers"]},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no JSON transcript of this witness; transcribe again") from error
    return kept


def naming(kept: Kept, given: str) -> Correction:
    """`SPEAKER_00=Anna`, the left side an id or a name. Raises UsageError."""
    speaker, sign, name = given.partition("=")
    if not sign:
        raise UsageError(f"--name {given}: write it as SPEAKER_00=Anna")
    return Correction("name", kept.anchor(speaker.strip()), voices.check_name(name))


def merging(kept: Kept, given: str) -> list[Correction]:
    """`SPEAKER_00,SPEAKER_02`, ids or names, two or more; the first stays. Raises UsageError."""
    speakers = [part.strip() for part in given.split(",")]
    if len(set(speakers)) < 2:
        raise UsageError(f"--merge {given}: write it as SPEAKER_00,SPEAKER_02")
    first = kept.anchor(speakers[0])
    return [Correction("merge", first, other=kept.anchor(other)) for other in speakers[1:]]


def from_file(kept: Kept, path: Path) -> list[Correction]:
    """What was corrected in a page of this recording and saved there. Raises InputError."""
    content = _bytes(path, "name a file that a page of witness saved")
    try:
        document = json.loads(content)
        if document["schema"] != page.CORRECTIONS:
            raise ValueError(document["schema"])
        sha256 = document["sha256"]
        found = [_checked(_correction(entry)) for entry in document["corrections"]]
    except (ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InputError(f"{path} holds no corrections of a page ({why}); save them again there") from error
    if sha256 != kept.findings.audio.sha256:
        raise InputError(f"{path} is for another recording than {kept.path}; name the file of its own page")
    return found


def redo(
    kept: Kept,
    asked: Bounds = Bounds(),
    more: Sequence[Correction] = (),
    *,
    forget: bool = False,
    reporter: Reporter = SILENT,
) -> Transcript:
    """The transcript with `more` corrections, and another number of speakers if any is asked for.

    `forget` drops the earlier corrections. Raises UsageError if nothing can satisfy `asked`.
    """
    earlier = (
        []
        if forget
        else [
            known
            for known in kept.corrections
            if known not in more and not _replaced(known, more, kept.turns)
        ]
    )
    bounds = asked if any(value is not None for value in astuple(asked)) else kept.asked
    return assemble.redo(kept.findings, bounds, (*earlier, *more), reporter=reporter)


def replace(kept: Kept, transcript: Transcript) -> None:
    """Put `transcript` in the place of the JSON; its stages stay as they are. Raises OutputError."""
    files.write(writers.encode(writers.to_json(transcript, kept.link)), kept.path)


def _replaced(known: Correction, more: Sequence[Correction], turns: Sequence[Turn]) -> bool:
    """Whether a name was given to somebody who now gets another."""
    return known.kind == "name" and any(
        new.kind == "name"
        and corrections.whose(new.speaker, turns) == corrections.whose(known.speaker, turns)
        for new in more
    )


def _correction(entry: dict[str, Any]) -> Correction:
    if entry["kind"] not in ("name", "merge", "move", "text"):
        raise ValueError(f"kind {entry['kind']!r}")
    return Correction(
        entry["kind"], _spans(entry["speaker"]), entry["name"], _spans(entry["other"]), entry.get("text")
    )


def _spans(pairs: Any) -> Spans:
    return tuple((float(start), float(end)) for start, end in pairs)


def _checked(correction: Correction) -> Correction:
    """The correction, if it has all that its kind needs and nothing else. Raises ValueError, UsageError."""
    kind, name, text = correction.kind, correction.name, correction.text
    for spans, needed in (
        (correction.speaker, kind != "text"),
        (correction.other, kind != "name"),
    ):
        if bool(spans) != needed:
            raise ValueError(f"places of a {kind!r}")
        for start, end in spans:
            if not -1 <= start <= end < math.inf:
                raise ValueError(f"{start} to {end} is no time")
    if (kind == "name") != (name is not None) or (kind == "text") != (text is not None):
        raise ValueError(f"words of a {kind!r}")
    if name is not None:
        name = voices.check_name(_string(name))
    if text is not None:
        text = _string(text).strip()
        if len(text) > LONGEST_TEXT or any(unicodedata.category(c) in UNPRINTABLE for c in text):
            raise ValueError(f"{text[:40]!r} is no text of a line")
    return replaced(correction, name=name, text=text)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _no_stages(path: Path) -> Findings:
    raise InputError(
        f"{path} was written without its stages (--no-stages, or not into a file); transcribe again with -o"
    )


def _stages(path: Path, link: dict[str, str]) -> Findings:
    name = link["file"]
    if Path(name).name != name:
        raise ValueError(name)
    file = path.with_name(name)
    if not file.exists():  # renamed together with the JSON, or the name is no UTF-8
        file = writers.beside(path)
    content = _bytes(file, f"{path.name} needs it beside itself: copy it there, or transcribe again")
    if files.sha256(content) != link["sha256"]:
        raise InputError(f"{file} does not belong to {path} (its sha256 differs); transcribe again")
    return findings.decode(content, str(file))


def _bytes(path: Path, cure: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {cure}") from error
