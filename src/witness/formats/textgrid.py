"""TextGrid, the tiers of Praat: https://www.fon.hum.uva.nl/praat/manual/TextGrid_file_formats.html."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from witness.formats import tiers
from witness.formats.reading import Reading
from witness.formats.tiers import Interval


def write(reading: Reading) -> str:
    """For each speaker a tier of what they say, and "NAME - words" if there are words."""
    found: dict[str, list[Interval]] = {}
    for name, lines in tiers.tiers(reading).items():
        found[name] = [tiers.interval(line) for line in lines]
        if spoken := list(tiers.words(lines)):
            found[f"{name} - words"] = spoken
    found = found or {"speech": []}  # Praat reads no file without a tier
    ends = [intervals[-1].end for intervals in found.values() if intervals]
    end = max(1, round(1000 * reading.transcript.audio.duration), *ends)
    parts = [
        'File type = "ooTextFile"\nObject class = "TextGrid"\n\n'
        f"xmin = 0\nxmax = {_seconds(end)}\ntiers? <exists>\nsize = {len(found)}\nitem []:\n"
    ]
    for number, (name, intervals) in enumerate(found.items(), start=1):
        whole = list(_whole(intervals, end))
        parts.append(
            f'    item [{number}]:\n        class = "IntervalTier"\n        name = {_quoted(name)}\n'
            f"        xmin = 0\n        xmax = {_seconds(end)}\n        intervals: size = {len(whole)}\n"
        )
        parts += [
            f"        intervals [{place}]:\n            xmin = {_seconds(one.start)}\n"
            f"            xmax = {_seconds(one.end)}\n            text = {_quoted(one.text)}\n"
            for place, one in enumerate(whole, start=1)
        ]
    return "".join(parts)


def _whole(intervals: Iterable[Interval], end: int) -> Iterator[Interval]:
    """The intervals and, without a text, those between them: a tier has no gaps."""
    last = 0
    for one in intervals:
        if one.start > last:
            yield Interval(last, one.start, "")
        yield one
        last = one.end
    if last < end:
        yield Interval(last, end, "")


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3f}"


def _quoted(text: str) -> str:
    return '"' + " ".join(text.split()).replace('"', '""') + '"'
