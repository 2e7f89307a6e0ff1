"""Which recordings are listed, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from typing import Any

from witness.errors import UsageError
from witness.serve.library.folding import folded, plain
from witness.serve.library.library import STATES, ListedRecording
from witness.serve.library.query import Query, parse

SORTS: Mapping[str, Callable[[ListedRecording], Any]] = {
    "name": lambda one: (plain(one.name), plain(one.folder)),
    "folder": lambda one: (plain(one.folder), plain(one.name)),
    "date": lambda one: one.date or 0.0,
    "seconds": lambda one: one.seconds or 0.0,
    "speakers": lambda one: (len(one.speakers), [name.casefold() for name in one.speakers]),
    "state": lambda one: STATES.index(one.state),
    "tag": lambda one: [plain(tag) for tag in one.tags] or ["\U0010ffff"],
}
MOST_CHOICES = 1000
"""Names of each kind to choose from."""


@dataclass(frozen=True)
class Selection:
    """What recordings must be like; what is empty says nothing."""

    name: str = ""
    """A query, whose words are in the name or in that of the folder, or begin words there."""
    folder: str | None = None
    """They are in it, or below; empty: in no other than the desk's own."""
    state: str = ""
    tag: str = ""
    speaker: str = ""
    since: str = ""
    """The first day, as 2026-11-24, as is the last one."""
    until: str = ""

    def of(self, rows: Iterable[ListedRecording]) -> list[ListedRecording]:
        """Those that are so. Raises UsageError for what is no day and no query."""
        query = parse(self.name)
        first, last = _begin(self.since), _begin(self.until, days=1)

        def fits(row: ListedRecording) -> bool:
            return (
                (self.folder is None or _is_below(row.folder, self.folder))
                and self.state in ("", row.state)
                and (not self.tag or self.tag in row.tags)
                and (not self.speaker or self.speaker in row.speakers)
                and (first is None or (row.date or 0.0) >= first)
                and (last is None or (row.date or 0.0) < last)
                and (not self.name or is_called(row, query))
            )

        return [row for row in rows if fits(row)]


def is_called(row: ListedRecording, query: Query) -> bool:
    """Whether the words are in its name or in that of its folder, or words that begin so."""
    begun = query.each(lambda term: replace(term, goes_on=True))
    return bool(query.wanted) and begun.fits(folded(f"{row.folder}/{row.name}"))


def choices(rows: Iterable[ListedRecording]) -> dict[str, Sequence[str]]:
    """The folders, tags, states and speakers that there are."""
    folders: set[str] = set()
    tags: set[str] = set()
    states: set[str] = set()
    speakers: set[str] = set()
    for row in rows:
        folders.add(row.folder)
        tags.update(row.tags)
        states.add(row.state)
        speakers.update(row.speakers)
    for folder in list(folders):  # those above, which may hold no recording themselves
        folders.update(folder[:place] for place, sign in enumerate(folder) if sign == "/")
    named = {"folders": folders - {""}, "tags": tags, "speakers": speakers}
    found: dict[str, Sequence[str]] = {
        kind: sorted(names, key=lambda name: (plain(name), name))[:MOST_CHOICES]
        for kind, names in named.items()
    }
    return {**found, "states": [state for state in STATES if state in states]}


def _is_below(folder: str, wanted: str) -> bool:
    return folder == wanted or bool(wanted and folder.startswith(f"{wanted}/"))


def _begin(day: str, days: int = 0) -> float | None:
    """When a day begins on this machine, or one so many days later. Raises UsageError."""
    if not day:
        return None
    try:
        return datetime.combine(date.fromisoformat(day) + timedelta(days), time()).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{day[:20]!r} is not a day; write it as 2026-11-24") from error
