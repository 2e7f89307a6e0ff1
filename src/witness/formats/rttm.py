"""Turns <-> RTTM, the text format of diarization scorers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from witness.errors import InputError
from witness.formats.reading import Reading
from witness.schema import LONGEST, Turn
from witness.text import one_line

OTHER_LINES = re.compile(
    ";.*|SEGMENT|NOSCORE|NO_RT_METADATA|LEXEME|NON-LEX|NON-SPEECH|FILLER|EDIT|IP|SU|CB|A/P|SPKR-INFO"
)
"""First fields of lines without turns, by NIST's description of RTTM (RT-09)."""


def write(reading: Reading) -> str:
    """Return the turns of a transcript."""
    return serialize(reading.title, reading.transcript.turns)


def serialize(uri: str, turns: Iterable[Turn]) -> str:
    """Return a SPEAKER line per turn. White space in names becomes "_", because readers split the lines at
    it."""
    return "".join(
        f"SPEAKER {token(uri)} 1 {turn.start:.3f} {turn.duration:.3f} "
        f"<NA> <NA> {token(turn.speaker)} <NA> <NA>\n"
        for turn in turns
    )


def parse(text: str, name: str = "RTTM") -> dict[str, list[Turn]]:
    """Return the sorted turns of each uri.

    Raises InputError, which calls the file `name`, if a line is not RTTM.
    """
    by_uri: dict[str, list[Turn]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if not fields or OTHER_LINES.fullmatch(fields[0]):
            continue
        try:
            if fields[0] != "SPEAKER":
                raise ValueError
            start, duration = float(fields[3]), float(fields[4])
            if not (0 <= start <= LONGEST and 0 <= duration <= LONGEST):  # nor is not-a-number
                raise ValueError
            by_uri.setdefault(fields[1], []).append(Turn(start, start + duration, fields[7]))
        except (IndexError, ValueError) as error:
            raise InputError(f"{name}, line {number}: not an RTTM line: {line.strip()[:80]}") from error
    return {uri: sorted(turns) for uri, turns in by_uri.items()}


def token(text: str) -> str:
    """Return the text as one field of a line: "_" for white space."""
    return re.sub(r"\s+", "_", one_line(text).strip()) or "_"
