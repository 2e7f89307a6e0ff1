"""STM, speech by speaker for scorers: recording, channel, speaker, start, end, words.

https://github.com/usnistgov/SCTK/blob/master/doc/infmts.htm, "stm"
"""

from __future__ import annotations

from witness.formats import rttm
from witness.formats.reading import Reading


def write(reading: Reading) -> str:
    """Return a line for each line, in the order of their starts; without words if no recognizer ran."""
    uri = rttm.token(reading.title)
    return "".join(
        f"{uri} 1 {rttm.token(line.speaker)} {line.start:.3f} {line.end:.3f} "
        + " ".join((line.text or "").split())
        + "\n"
        for line in reading.said
    )
