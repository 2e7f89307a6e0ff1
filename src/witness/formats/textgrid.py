"""TextGrid, the tiers of Praat: https://www.fon.hum.uva.nl/praat/manual/TextGrid_file_formats.html."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from witness.formats.reading import Interval, Reading, interval, tiers, word_intervals


def write(reading: Reading) -> str:
    """Return for each speaker a tier of lines, and "NAME - words" if there are words."""
    by_name: dict[str, list[Interval]] = {}
    for name, lines in tiers(reading).items():
        by_name[name] = [interval(line) for line in lines]
        if words := list(word_intervals(lines)):
            by_name[f"{name} - words"] = words
    by_name = by_name or {"speech": []}  # Praat reads no file without a tier
    ends = [intervals[-1].end for intervals in by_name.values() if intervals]
    end = max(1, round(1000 * reading.transcript.audio.duration), *ends)
    parts = [
        'File type = "ooTextFile"\nObject class = "TextGrid"\n\n'
        f"xmin = 0\nxmax = {_seconds(end)}\ntiers? <exists>\nsize = {len(by_name)}\nitem []:\n"
    ]
    for number, (name, intervals) in enumerate(by_name.items(), start=1):
        whole = list(_with_gaps(intervals, end))
        parts.append(
            f'    item [{number}]:\n        class = "IntervalTier"\n        name = {_quoted(name)}\n'
            f"        xmin = 0\n        xmax = {_seconds(end)}\n        intervals: size = {len(whole)}\n"
        )
        parts += [
            f"        intervals [{index}]:\n            xmin = {_seconds(part.start)}\n"
            f"            xmax = {_seconds(part.end)}\n            text = {_quoted(part.text)}\n"
            for index, part in enumerate(whole, start=1)
        ]
    return "".join(parts)


def _with_gaps(intervals: Iterable[Interval], end: int) -> Iterator[Interval]:
    """Yield the intervals and, without a text, the gaps between them: Praat requires both."""
    last = 0
    for part in (*intervals, Interval(end, end, "")):
        if part.start > last:
            yield Interval(last, part.start, "")
        if part.start < part.end:
            yield part
        last = part.end


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3f}"


def _quoted(text: str) -> str:
    return '"' + " ".join(text.split()).replace('"', '""') + '"'
