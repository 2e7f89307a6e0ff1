"""CSV, a table for spreadsheets: https://www.rfc-editor.org/rfc/rfc4180."""

from __future__ import annotations

import csv
import io
import unicodedata

from witness.formats.reading import Reading
from witness.text import one_line


def write(reading: Reading) -> str:
    """Return a row for each line: start, end, speaker and text.

    A cell that a spreadsheet would take for a formula begins with an apostrophe.
    """
    out = io.StringIO(newline="")
    rows = csv.writer(out)
    rows.writerow(["start", "end", "speaker", "text"])
    for line in reading.lines:
        speaker = one_line(reading.transcript.name(line.speaker_id) or "")
        rows.writerow([f"{line.start:.3f}", f"{line.end:.3f}", cell(speaker), cell(line.unmarked or "")])
    return out.getvalue()


def cell(text: str) -> str:
    """Guard against formulas (owasp.org/www-community/attacks/CSV_Injection); signs have wide forms, too."""
    first = unicodedata.normalize("NFKC", text.lstrip()[:1])
    return f"'{text}" if first in ("=", "+", "-", "@") else text
