"""What a person did to a transcript, carried to a new one of the same recording.

Corrections are tied to words. Where the new words are the old ones, each goes to them; where they are others,
what a person wrote stays in their place, and what nobody corrected is as it is heard now. Every place where
the two transcripts differ is told, so that a person can choose otherwise.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from witness.errors import UsageError
from witness.formats import document, notes
from witness.schema import Correction, Review, Spans, Transcript, Word, WordIndex
from witness.transcript import assemble, redo, store, uncorrected
from witness.transcript.corrections import INSTANT, PUNCTUATION

PIECE = 60
"""Most words that are compared at a time: the work grows with the square of it."""
SLACK = 0.15
"""Seconds by which two recognizers may differ about when the same word is said."""
REACH = 2.0
"""Seconds around words that are not there in which something else may stand for them."""
MOST_PIECES = 100
"""Words of a difference that a page can write otherwise; more are shown as another text."""

Kind = Literal["words", "kept", "name", "place"]


@dataclass(frozen=True)
class Deviation:
    """A place where the new transcript is not what the earlier one was."""

    kind: Kind
    """"words": something else is heard now; "kept": a person's words stand although something else is heard;
    "name": a name that nobody has anymore; "place": the words that something was tied to are not there."""
    start: float
    end: float
    before: str
    now: str
    """What is heard now."""
    yours: bool
    """A person has corrected or noted something there."""
    pieces: Spans = ()
    """The words of the new transcript in this place."""

    def replaces(self, other: Deviation) -> bool:
        """Whether it is a later correction of the same words."""
        return bool(self.pieces) and (self.kind, self.pieces) == (other.kind, other.pieces)


@dataclass(frozen=True)
class Carried:
    """A new transcript with what a person did to the earlier one."""

    transcript: Transcript
    kept: int
    """Corrections and notes that found their place."""
    differences: tuple[Deviation, ...]
    whole: bool
    """All that a person did is to be seen in it."""


@dataclass(frozen=True)
class _DraftWord:
    """A word of a draft, and the track in which it is."""

    word: Word
    track: int

    @property
    def middle(self) -> float:
        return (self.word.start + self.word.end) / 2

    def is_at(self, span: tuple[float, float]) -> bool:
        """Whether it is said within a part of the recording, or that part lies in it."""
        start, end = span
        return start <= self.middle <= end or self.word.start <= (start + end) / 2 < self.word.end

    @property
    def token(self) -> str:
        return _bare(self.word.text)


def carry(before: redo.Saved, fresh: Transcript) -> Carried:
    """The transcript `fresh` from the models, with its findings, and what a person did to the one `before`.

    Raises InputError if that one is too old to say which words belong together.
    """
    shown = store.transcript(before.path, before.document)
    try:
        old = (
            uncorrected.from_transcript(shown)
            if before.found is None
            else assemble.make_draft(before.found, before.asked)
        )
    except UsageError:  # so many speakers cannot be had anymore
        old = uncorrected.from_transcript(shown)
    assert fresh.findings is not None  # noqa: S101 - it comes from the models
    new = assemble.make_draft(fresh.findings, fresh.asked)
    places = _Places(_said(old.words), _said(new.words))
    given: dict[Correction, None] = dict.fromkeys(fresh.corrections)
    differences: list[Deviation] = []
    lost = 0
    for one in before.corrections:
        placed, difference = _placed(one, places)
        lost += one.other != () and one.kind != "merge" and not places.of(one.other).now
        given[placed] = None
        if difference is not None:
            differences = [other for other in differences if not difference.replaces(other)]
            differences.append(difference)
    found = document.in_milliseconds(uncorrected.apply(new, tuple(given)))
    differences += _names(before, found)
    differences += _words(shown, found)
    differences.sort(key=lambda one: (one.start, one.end))
    carried = replace(
        found,
        timing=fresh.timing,
        style=shown.style,
        tags=shown.tags,
        corrected=before.corrected,
        review=_review(shown.review, differences),
        findings=fresh.findings,
    )
    whole = not lost and not any(one.yours and one.kind != "kept" for one in differences)
    return Carried(carried, len(before.corrections) - lost, tuple(differences), whole)


def _placed(one: Correction, places: _Places) -> tuple[Correction, Deviation | None]:
    """A correction at the words that are there now."""
    if one.kind in ("name", "merge"):
        return one, None
    place = places.of(one.other)
    if not place.now:
        if one.kind in ("fill", "text"):  # the words themselves are compared
            return one, None
        start, end = one.other[0][0], one.other[-1][1]
        about = (one.text or ", ".join(one.codes)) if one.kind == "note" else ""
        return one, Deviation("place", start, end, about or place.text_before, "", True)
    moved = replace(one, other=place.spans)
    if one.kind not in ("fill", "text"):
        return moved, None
    moved = replace(moved, kind="text")
    text = one.text or ""
    if place.same or _bare(text) == _bare(place.text_now):
        return moved, None
    start, end = place.now[0].word.start, place.now[-1].word.end
    return moved, Deviation("kept", start, end, text, place.text_now, True, place.spans)


def _names(before: redo.Saved, found: Transcript) -> Iterator[Deviation]:
    """The names that somebody had, and nobody has now."""
    there = {one.name for one in found.speakers}
    for speaker, name in before.names.items():
        if name is not None and name not in there:
            own = [turn for turn in before.turns if turn.speaker == speaker]
            longest = max(own, key=lambda turn: turn.duration, default=None)
            start, end = (longest.start, longest.end) if longest else (0.0, 0.0)
            yield Deviation("name", start, end, name, "", True)


def _words(shown: Transcript, found: Transcript) -> Iterator[Deviation]:
    """Where other words are written than before."""
    old, new = _written(shown), _written(found)
    noted = WordIndex(shown.words)
    mine = {shown.words[n] for note in notes.of(shown) for n in noted.within(note.place)}
    for same, first, last, begin, end in _aligned(old, new):
        if same:
            continue
        gone, come = old[first:last], new[begin:end]
        at = [said.word for said in gone or come]
        yield Deviation(
            "words",
            at[0].start,
            max(word.end for word in at),
            _text(gone),
            _text(come),
            any(said.word.corrected or said.word in mine for said in gone),
            _spans(come) if len(come) <= MOST_PIECES else (),
        )


def _review(before: Review, differences: Sequence[Deviation]) -> Review:
    """How far a person has got: up to where other words are written than those that they have seen."""
    first = min((one.start for one in differences if one.kind == "words"), default=None)
    return before if first is None else Review(until=min(before.until, round(first, 3)))


# --- which word is which ---


@dataclass(frozen=True)
class _Place:
    """Words of the earlier draft, and those that are said there now."""

    then: Sequence[_DraftWord]
    now: Sequence[_DraftWord]
    same: bool
    """Whether they are the same words."""

    @property
    def spans(self) -> Spans:
        return _spans(self.now)

    @property
    def text_before(self) -> str:
        return _text(self.then)

    @property
    def text_now(self) -> str:
        return _text(self.now)


class _Places:
    """Where the words of one draft are in another."""

    def __init__(self, old: Sequence[_DraftWord], new: Sequence[_DraftWord]) -> None:
        self._old, self._new = old, new
        self._numbers = WordIndex([said.word for said in old])
        self._same: dict[int, int] = {}
        """The number of a word -> that of the new one which is the same."""
        for same, first, last, begin, end in _aligned(old, new):
            if same:
                self._same |= zip(range(first, last), range(begin, end), strict=True)
        self._found: dict[Spans, _Place] = {}

    def of(self, spans: Spans) -> _Place:
        """The words in a place of the earlier recording, and what is said there now."""
        if spans not in self._found:
            self._found[spans] = self._look(spans)
        return self._found[spans]

    def _look(self, spans: Spans) -> _Place:
        numbers = self._numbers.within(spans).tolist()
        then = [self._old[number] for number in numbers]
        heard = [self._same[number] for number in numbers if number in self._same]
        if numbers and len(heard) == len(numbers) == heard[-1] - heard[0] + 1:
            return _Place(then, self._new[heard[0] : heard[-1] + 1], True)
        if numbers:
            now = self._between(numbers[0], numbers[-1])
        else:  # nothing was heard there
            now = [said for said in self._new if any(said.is_at(span) for span in spans)]
        tracks = [said.track for said in now]
        most = max(tracks, key=tracks.count, default=0)
        return _Place(then, [said for said in now if said.track == most], False)

    def _between(self, first: int, last: int) -> list[_DraftWord]:
        """What is said now where the words from `first` to `last` were, which are not all there.

        Up to the next words that are, but no further than REACH; and no further than their own times where
        words beside them are not there either.
        """
        before = next((n for n in range(first - 1, -1, -1) if n in self._same), None)
        after = next((n for n in range(last + 1, len(self._old)) if n in self._same), None)
        begin = 0 if before is None else self._same[before] + 1
        end = len(self._new) if after is None else self._same[after]
        reach = (REACH if first - 1 == before else SLACK, REACH if last + 1 == after else SLACK)
        start = self._old[first].word.start - reach[0]
        return self._within(begin, end, start, self._old[last].word.end + reach[1])

    def _within(self, begin: int, end: int, start: float, till: float) -> list[_DraftWord]:
        return [said for said in self._new[begin:end] if start <= said.middle <= till]


def _aligned(
    old: Sequence[_DraftWord], new: Sequence[_DraftWord]
) -> Iterator[tuple[bool, int, int, int, int]]:
    """Runs of both: whether they are the same words, the numbers in `old` and those in `new`.

    Piece by piece, parted in the longest pauses.
    """
    middles = [said.middle for said in new]
    first = begin = 0
    while first < len(old) or begin < len(new):
        last, end = len(old), len(new)
        if last - first > PIECE:
            last = max(
                range(first + PIECE // 2, first + PIECE),
                key=lambda n: old[n].word.start - old[n - 1].word.end,
            )
            end = bisect(middles, (old[last - 1].word.end + old[last].word.start) / 2, begin)
        same = [(first + a, begin + b) for a, b in _common(old[first:last], new[begin:end])]
        for a, b in [*same, (last, end)]:
            if (first, begin) != (a, b):
                yield False, first, a, begin, b
            if a < last:
                yield True, a, a + 1, b, b + 1
            first, begin = a + 1, b + 1
        first, begin = last, end


def _common(old: Sequence[_DraftWord], new: Sequence[_DraftWord]) -> list[tuple[int, int]]:
    """The longest sequence of words that are in both at about the same time, by their numbers.

    A comparison of texts alone would take a phrase for the same that is said again seconds later.
    """
    width = len(new) + 1
    best = [[0.0] * width for _ in range(len(old) + 1)]
    for a in range(len(old) - 1, -1, -1):
        token, middle = old[a].token, old[a].middle
        for b in range(len(new) - 1, -1, -1):
            most = max(best[a + 1][b], best[a][b + 1])
            apart = abs(new[b].middle - middle)
            if apart < REACH and new[b].token == token:
                most = max(most, best[a + 1][b + 1] + 1 - apart / (10 * REACH))
            best[a][b] = most
    found, a, b = [], 0, 0
    while a < len(old) and b < len(new):
        if best[a][b] == best[a + 1][b]:
            a += 1
        elif best[a][b] == best[a][b + 1]:
            b += 1
        else:
            found.append((a, b))
            a, b = a + 1, b + 1
    return found


def _said(tracks: Sequence[Sequence[Word] | None]) -> list[_DraftWord]:
    """The words of all tracks in the order of time."""
    found = [_DraftWord(word, number) for number, words in enumerate(tracks) for word in words or ()]
    return sorted(found, key=lambda said: said.middle)


def _written(transcript: Transcript) -> list[_DraftWord]:
    found = [_DraftWord(word, one.track) for one in transcript.utterances for word in one.words]
    return sorted(found, key=lambda said: said.middle)


def _spans(said: Sequence[_DraftWord]) -> Spans:
    middles = [round(one.middle, 3) for one in said]
    return tuple((middle - INSTANT, middle + INSTANT) for middle in middles)


def _text(said: Sequence[_DraftWord]) -> str:
    return "".join(one.word.text for one in said).strip()


def _bare(text: str) -> str:
    """A word as it is compared."""
    text = text.strip().casefold()
    return text.strip(PUNCTUATION) or text
