"""A transcript made again, in seconds, from its JSON and the findings beside it: no recording and no model.

Corrections are saved in the JSON and applied again by every later redo.
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
"""Maximum number of characters in a corrected text."""
UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories that would break a line. Joiners, which some scripts and emoji need, would not."""


@dataclass(frozen=True)
class Saved:
    """A JSON transcript on disk, and the findings that belong to it."""

    path: Path
    link: dict[str, str]
    """The name and sha256 of the file with the findings."""
    findings: Findings
    asked: Bounds
    corrections: tuple[Correction, ...]
    turns: tuple[Turn, ...]
    names: dict[str, str | None]
    """Speaker id -> name."""

    def find(self, speaker: str) -> str:
        """The id of a speaker given by id or by name. Raises UsageError."""
        ids = [key for key, name in self.names.items() if speaker in (key, name)]
        if len(ids) != 1:
            everybody = ", ".join(f"{key} ({name})" if name else key for key, name in self.names.items())
            problem = "does not name a speaker" if not ids else "names several speakers"
            raise UsageError(f"{speaker!r} {problem} in {self.path}; its speakers: {everybody or 'none'}")
        return ids[0]

    def anchor(self, speaker: str) -> Spans:
        """Where a speaker, given by id or by name, talks. Raises UsageError."""
        return corrections.anchor(self.find(speaker), self.turns)


def read(path: Path) -> Saved:
    """The JSON at `path` and its findings. Raises InputError if either cannot be used."""
    content = _bytes(path, "give a JSON transcript that Witness wrote")
    try:
        document = json.loads(content)
        link = document["stages"]
        saved = Saved(
            path,
            link,
            _findings(path, link) if link else _no_findings(path),
            Bounds(**document["asked"]),
            tuple(_checked(_correction(entry)) for entry in document["corrections"]),
            tuple(Turn(turn["start"], turn["end"], turn["speaker"]) for turn in document["turns"]),
            {speaker["id"]: speaker["name"] for speaker in document["speakers"]},
        )
    except (ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
        raise InputError(
            f"{path} is not a JSON transcript of this version of Witness; transcribe the recording again"
        ) from error
    return saved


def naming(saved: Saved, given: str) -> Correction:
    """The correction for `SPEAKER_00=Anna`; the left side is an id or a name. Raises UsageError."""
    speaker, sign, name = given.partition("=")
    if not sign:
        raise UsageError(f"--name {given}: write it as SPEAKER_00=Anna")
    return Correction("name", saved.anchor(speaker.strip()), voices.check_name(name))


def merging(saved: Saved, given: str) -> list[Correction]:
    """The corrections for `A,B,...`: two or more ids or names; the first one stays. Raises UsageError."""
    speakers = [part.strip() for part in given.split(",")]
    if len(set(speakers)) < 2:
        raise UsageError(f"--merge {given}: write it as SPEAKER_00,SPEAKER_02")
    first = saved.anchor(speakers[0])
    return [Correction("merge", first, other=saved.anchor(other)) for other in speakers[1:]]


def from_file(saved: Saved, path: Path) -> list[Correction]:
    """The corrections that a page of this recording saved to a file. Raises InputError."""
    content = _bytes(path, "give a file of corrections that a Witness page saved")
    try:
        document = json.loads(content)
        if document["schema"] != page.CORRECTIONS:
            raise ValueError(document["schema"])
        sha256 = document["sha256"]
        corrected = [_checked(_correction(entry)) for entry in document["corrections"]]
    except (ValueError, KeyError, TypeError, AttributeError, UsageError) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InputError(
            f"{path} does not hold corrections from a page ({why}); save them in the page again"
        ) from error
    if sha256 != saved.findings.audio.sha256:
        raise InputError(
            f"{path} belongs to a different recording than {saved.path}; give the file from its own page"
        )
    return corrected


def redo(
    saved: Saved,
    asked: Bounds = Bounds(),
    more: Sequence[Correction] = (),
    *,
    forget: bool = False,
    reporter: Reporter = SILENT,
) -> Transcript:
    """The transcript with `more` corrections, and with another number of speakers if one is asked for.

    `forget` drops earlier corrections. Raises UsageError if nothing can satisfy `asked`.
    """
    earlier = [
        old
        for old in saved.corrections
        if not forget and old not in more and not _replaced(old, more, saved.turns)
    ]
    bounds = asked if any(value is not None for value in astuple(asked)) else saved.asked
    return assemble.redo(saved.findings, bounds, (*earlier, *more), reporter=reporter)


def replace(saved: Saved, transcript: Transcript) -> None:
    """Write `transcript` over the JSON; the file with the findings stays as it is. Raises OutputError."""
    files.write(writers.encode(writers.to_json(transcript, saved.link)), saved.path)


def _replaced(old: Correction, more: Sequence[Correction], turns: Sequence[Turn]) -> bool:
    """Whether it named somebody who now gets another name."""
    return old.kind == "name" and any(
        new.kind == "name" and corrections.whose(new.speaker, turns) == corrections.whose(old.speaker, turns)
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
    """The correction itself, if it has exactly what its kind needs. Raises ValueError, UsageError."""
    kind, name, text = correction.kind, correction.name, correction.text
    for spans, needed in (
        (correction.speaker, kind != "text"),
        (correction.other, kind != "name"),
    ):
        if bool(spans) != needed:
            raise ValueError(f"the places of a {kind!r} correction")
        for start, end in spans:
            if not -1 <= start <= end < math.inf:
                raise ValueError(f"{start} to {end} is not a time span")
    if (kind == "name") != (name is not None) or (kind == "text") != (text is not None):
        raise ValueError(f"the name or text of a {kind!r} correction")
    if name is not None:
        name = voices.check_name(_string(name))
    if text is not None:
        text = _string(text).strip()
        if len(text) > LONGEST_TEXT or any(unicodedata.category(c) in UNPRINTABLE for c in text):
            raise ValueError(f"{text[:40]!r} is not one line of text")
    return replaced(correction, name=name, text=text)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _no_findings(path: Path) -> Findings:
    raise InputError(
        f"{path} was written without its findings (--no-stages, or not to a file); transcribe again with -o"
    )


def _findings(path: Path, link: dict[str, str]) -> Findings:
    name = link["file"]
    if Path(name).name != name:
        raise ValueError(name)
    file = path.with_name(name)
    if not file.exists():  # renamed together with the JSON, or the name is not UTF-8
        file = writers.beside(path)
    content = _bytes(file, f"{path.name} needs it in the same folder: copy it there, or transcribe again")
    if files.sha256(content) != link["sha256"]:
        raise InputError(f"{file} does not belong to {path} (its sha256 differs); transcribe again")
    return findings.decode(content, str(file))


def _bytes(path: Path, fix: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {fix}") from error
