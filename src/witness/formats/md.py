"""Markdown: https://spec.commonmark.org. No text can become markup."""

from __future__ import annotations

import re

from witness.formats.reading import Reading
from witness.text import clock, one_line


def write(reading: Reading) -> str:
    """Return a title, the speakers' shares, the warnings, and a paragraph for each line; pauses as in txt."""
    parts = [f"# {_escaped(reading.title)}", _escaped(reading.summary)]
    parts += [f"> {_escaped(warning)}" for warning in reading.warnings]
    for line in reading.lines:
        bare = line.text is None  # speakers and times only
        head = [f"**{_escaped(line.speaker)}**"] if reading.named or bare else []
        head += [f"[{clock(line.start)}]"] if reading.timed or bare else []
        parts += [line.pause] if line.pause else []
        parts.append(" ".join([*head, *([] if line.text is None else [_escaped(line.text)])]))
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#|~&])", r"\\\1", one_line(text))
