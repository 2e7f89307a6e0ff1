"""TSV as Whisper's own program writes it, with the speakers: start and end in milliseconds, speaker, text.

https://github.com/openai/whisper, utils.py, WriteTSV
"""

from __future__ import annotations

from witness.formats.csv import cell
from witness.formats.reading import Reading


def write(reading: Reading) -> str:
    """Return a row for each line. A text holds no tab and no line break, so nothing in it ends its cell.

    A cell that a spreadsheet would take for a formula begins with an apostrophe.
    """
    rows = [("start", "end", "speaker", "text")]
    rows += [
        (f"{1000 * line.start:.0f}", f"{1000 * line.end:.0f}", cell(line.speaker), cell(line.unmarked or ""))
        for line in reading.lines
    ]
    return "".join("\t".join(row) + "\n" for row in rows)
