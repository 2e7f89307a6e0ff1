"""How readable subtitles are: cues that are too short, too fast, too wide, overlap, or hold a single word.

    witness batch FOLDER -o OUT -f srt
    python benchmarks/subtitles.py OUT/*.srt

A cue is short under 0.7 s and fast over 20 characters a second, with the speaker's name. An orphan is a word
alone that is neither a sentence nor `[inaudible]`.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

from rich.cells import cell_len

from witness.formats import cues
from witness.schema import CLOSING, SENTENCE_ENDS, Style

TIMES = re.compile(r"(\d+):(\d\d):(\d\d),(\d\d\d) --> (\d+):(\d\d):(\d\d),(\d\d\d)")
NAME = re.compile(r"^((CH\d+_)?SPEAKER_\d+|UNKNOWN): ?")


def count(srt: str) -> Counter[str]:
    """The cues of an SRT file, and how many of them have which fault."""
    found: Counter[str] = Counter()
    before, sentence_ended = 0.0, True
    for block in filter(None, srt.split("\n\n")):
        _, times, *lines = block.strip().splitlines()
        hours, minutes, seconds, thousandths, *last = map(int, TIMES.fullmatch(times).groups())
        start = hours * 3600 + minutes * 60 + seconds + thousandths / 1000
        end = last[0] * 3600 + last[1] * 60 + last[2] + last[3] / 1000
        text = " ".join(lines)
        said = NAME.sub("", text)
        ends = said.rstrip(CLOSING).endswith(tuple(SENTENCE_ENDS))
        found["cues"] += 1
        found["short"] += end - start < cues.SHORTEST - 0.002  # times are rounded
        found["fast"] += cell_len(text) > cues.SPEED * (end - start + 0.002)
        found["wide"] += max(map(cell_len, lines)) > Style.line_width or len(lines) > 2
        found["overlapping"] += start < before
        found["orphans"] += len(said.split()) == 1 and said != "[inaudible]" and not (sentence_ended and ends)
        before, sentence_ended = end, ends or said == "[inaudible]"
    return found


if __name__ == "__main__":
    total: Counter[str] = Counter()
    for name in sys.argv[1:]:
        total.update(count(Path(name).read_text()))
    sys.stdout.write(json.dumps(dict(total)) + "\n")
