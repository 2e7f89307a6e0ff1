"""Labels for Audacity: start, end and text, with tabs between them.

https://manual.audacityteam.org/man/importing_and_exporting_labels.html
"""

from __future__ import annotations

from witness.formats.reading import Reading


def write(reading: Reading) -> str:
    """Return a label for each line, in the order of their starts."""
    return "".join(
        f"{line.start:.6f}\t{line.end:.6f}\t"
        + " ".join((line.speaker if line.text is None else f"{line.speaker}: {line.text}").split())
        + "\n"
        for line in reading.lines
    )
