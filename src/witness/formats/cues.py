"""Words -> subtitles: the words, the duration and the lines of each cue.

A dynamic program divides the words of a track into cues at the least cost: each cue costs something, and more
if it breaks a clause, leaves a word alone, or is too short to read. Widths are in columns; a Chinese
character takes two.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from rich.cells import cell_len, chop_cells

from witness.formats.reading import Reading, spread
from witness.schema import CLOSING, PARAGRAPH_PAUSE, SENTENCE_ENDS, Style, Word

SPEED = 20.0
"""Columns that people read in a second: a cue outlasts its speech if there is room. This and the next two are
common practice of broadcasters."""
SHORTEST = 0.7
"""Minimum seconds of a cue, if there is room."""
LONGEST = 7.0
"""Maximum seconds from the first to the last of several words in a cue."""
PAUSE = 0.8
"""Seconds of silence at which a cue should end."""
INSTANT = 0.001
"""The least seconds that the formats can express."""

USUAL = Style()

CLAUSE_ENDS = ",;:–—、，；：،؛"
CONJUNCTIONS = frozenset(
    """and but or nor so because that which who when where while if than as
    und aber oder denn sondern weil dass daß wenn als ob et mais ou donc car que qui quand lorsque
    y e o pero porque cuando aunque si ma perché che quando mas porém en maar want omdat dat""".split()  # noqa: SIM905
)
"""English, German, French, Spanish, Italian, Portuguese and Dutch ones: a line should begin with a
conjunction."""
SHORT = 3
"""Letters of a word that should not end a line, as of most articles and prepositions."""

# Costs of a division into cues; each cue costs 1.
AT_SENTENCE, AT_CLAUSE, AT_CONJUNCTION, AFTER_WORD, AFTER_SHORT = (
    0.0,
    0.3,
    0.6,
    1.0,
    1.4,
)  # by the end of a cue
ALONE = 3.0  # a single word without a sentence of its own
STRADDLE = 0.7  # the end of a sentence and the beginning of the next, which ends in another cue
BOTH = 1.5  # two speakers
SILENCE = 2.0  # for each second of a pause within
UNSEEN = 5.0  # less than SHORTEST
UNREAD = 4.0  # for each second that a reader lacks
UNEVEN = 2.0  # for the difference of two lines, as a share of a line


@dataclass(frozen=True)
class CueText:
    """An indivisible text: a word, or the mark of speech without words."""

    start: float
    end: float
    text: str
    """With a leading space where the script uses spaces; empty: only the speaker is shown."""
    speaker: str
    """The name to show."""
    mark: bool = False
    """A mark is a cue of its own, which names the speaker."""
    language: str | None = None

    @property
    def ends_sentence(self) -> bool:
        return self.mark or self.text.rstrip(CLOSING).endswith(tuple(SENTENCE_ENDS))


@dataclass(frozen=True)
class Cue:
    """A subtitle from `start` to `end`, in seconds."""

    start: float
    end: float
    parts: tuple[tuple[str, str], ...]
    """Each speaker, one or two, and the text: lines, with the name where the speaker changes."""
    languages: tuple[str | None, ...] = ()
    """The language of each part's first word."""


def from_reading(reading: Reading) -> list[Cue]:
    """Return the cues of a transcript, track by track."""
    tracks: dict[int, list[CueText]] = {}
    style = reading.transcript.style
    for line in reading.lines:
        items = tracks.setdefault(line.track, [])
        if line.words:
            items += words(line.words, line.speaker, style.line_width, line.language)
        else:
            items.append(CueText(line.start, line.end, line.text or "", line.speaker, mark=True))
    partial, findings = reading.transcript.partial, reading.transcript.findings
    if partial and (findings is None or len(findings.tracks) > 1):
        return []  # a cue of the other track may come before any of these
    return divide(list(tracks.values()), reading.transcript.audio.transcribed.end, style, partial=partial)


def words(
    said: Sequence[Word], speaker: str, width: int = Style.line_width, language: str | None = None
) -> Iterator[CueText]:
    """Yield the words of an utterance. A corrected passage, which is a single word, becomes several.

    A text that is wider than `width` columns and has no space is cut.
    """
    for word in said:
        texts = [part for text in re.findall(r"\s*\S+", word.text) for part in chop_cells(text, width)]
        for text, start, end in spread(word, texts):
            yield CueText(start, end, text, speaker, language=language)


def divide(
    tracks: Sequence[Sequence[CueText]], end: float, style: Style = USUAL, *, partial: bool = False
) -> list[Cue]:
    """Return the subtitles of the speech up to `end`, in seconds, in the order of their starts.

    The items of a track are in order and do not overlap; neither do its cues. If the style has names in the
    text, a cue names its speaker wherever the speaker changes, in whatever track. `partial`: items of the
    only track will follow; return the cues that they cannot change.
    """
    crowded = len(tracks) > 1
    spans = sorted(
        (cue for items in tracks if items for cue in _CueTrack(items, end, style, crowded).cues(partial)),
        key=lambda cue: cue[:2],
    )
    cues, named = [], None
    for start, end, items in spans:
        parts, languages = [], []
        for speaker, group in groupby(items, key=lambda item: item.speaker):
            said = list(group)
            label = "" if speaker == named and not said[0].mark else _label(said[0], style)
            parts.append((speaker, "\n".join(_lines(label, said, style))))
            languages.append(said[0].language)
            named = speaker
        cues.append(Cue(start, end, tuple(parts), tuple(languages)))
    return cues


class _CueTrack:
    """The items of a track, with sums that make each way to divide them cheap to weigh.

    A cue from `first` to `last` ends before the latter.
    """

    def __init__(self, items: Sequence[CueText], end: float, style: Style, crowded: bool) -> None:
        """Prepare the sums. In a `crowded` recording, with cues of other tracks between, any cue may need
        a name."""
        self.items = items
        self.style = style
        self.end = max(end, items[-1].end)
        pairs = list(pairwise(items))
        self.edges = [0, *accumulate(cell_len(item.text) for item in items)]  # columns before each item
        self.margins = [cell_len(item.text) - cell_len(item.text.lstrip()) for item in items]
        changes = [
            True,
            *(before.speaker != item.speaker or item.mark or before.mark for before, item in pairs),
        ]
        self.labels = [
            cell_len(_label(item, style)) if change or crowded else 0
            for item, change in zip(items, changes, strict=True)
        ]
        # The cost of ending a cue before each item. The comma of a first word ends no clause: "Okay,".
        self.breaks = [0.0]
        for before, item in pairs:
            cost = _break(before, item)
            begins = self.breaks[-1] == AT_SENTENCE and item.start - before.end < PAUSE
            self.breaks.append(AFTER_SHORT if begins and cost == AT_CLAUSE else cost)
        self.breaks.append(0.0)
        # The first item of each item's speech of one speaker, and of its sentence.
        self.runs = _latest(changes)
        self.sentences = _latest([cost == 0 for cost in self.breaks[:-1]])
        gaps = [item.start - before.end for before, item in pairs]
        self.quiet = [0.0, *accumulate((gap if gap >= PAUSE else 0.0 for gap in gaps), initial=0.0)]

    def cues(self, partial: bool = False) -> Iterator[tuple[float, float, Sequence[CueText]]]:
        """Yield start, end and items of each cue of the cheapest division; `partial`: of each final cue."""
        best, begins = [0.0], [0]
        for last in range(1, len(self.items) + 1):
            ways = []
            for first in range(last - 1, -1, -1):
                if not self._fits(first, last):
                    break
                ways.append((best[first] + self._cost(first, last), first))
            cost, first = min(ways)
            best.append(cost)
            begins.append(first)
        edges = [self._last_sure(begins) if partial else len(self.items)]
        while edges[-1]:
            edges.append(begins[edges[-1]])
        end = 0.0
        cues = list(pairwise(reversed(edges)))
        for (first, last), following in zip(cues, [*cues, None][1:], strict=True):
            if partial and following is None:  # its end depends on the items that follow
                return
            start, before = max(self.items[first].start, end), end
            end = max(self._end(first, last), start + INSTANT)
            if end - start < SHORTEST and following is not None:  # the next one begins later, if it can
                end = max(end, min(start + SHORTEST, self._end(*following) - SHORTEST))
            if end - start < SHORTEST:  # or this one earlier
                start = max(before, end - SHORTEST)
            yield start, end, self.items[first:last]

    def _last_sure(self, begins: Sequence[int]) -> int:
        """Return the last item before which every division ends a cue, whatever items follow."""
        count = len(self.items)
        ends = set()
        for first in range(count - 1, -1, -1):  # a cue from there may include later items
            if not self._fits(first, count):
                break
            ends.add(first)
        while len(ends) > 1:
            latest = max(ends)
            ends = (ends - {latest}) | {begins[latest]}
        return min(ends, default=0)

    def _fits(self, first: int, last: int) -> bool:
        """Return True if the items have room, with a line for each speaker if there are two."""
        if last - first == 1:
            return True
        if self.style.words is not None and last - first > self.style.words:
            return False
        run = self.runs[last - 1]
        if any(item.mark for item in (self.items[first], self.items[last - 1])):
            return False
        long = self.items[last - 1].end - self.items[first].start > LONGEST
        if long or self.items[first + 1].start - self.items[first].end >= PARAGRAPH_PAUSE:
            return False
        if run > first:
            widths = (
                self.labels[first] + self._columns(first, run),
                self.labels[run] + self._columns(run, last),
            )
            both = max(widths) <= self.style.line_width
            return self.style.lines > 1 and self.runs[run - 1] <= first and both
        begin, room = first, self.style.line_width - self.labels[first]
        for _ in range(self.style.lines):
            # The first item of the next line.
            room += self.edges[begin] + self.margins[begin]
            begin = bisect_right(self.edges, room, begin + 1, last + 1) - 1
            if begin >= last:
                return True
            room = self.style.line_width
        return False

    def _cost(self, first: int, last: int) -> float:
        start = self.items[first].start
        shown = self._end(first, last) - start
        ends = self.breaks[last]
        return (
            1.0
            + ends
            + (ALONE if last - first == 1 and (ends or self.sentences[first] < first) else 0.0)
            + (STRADDLE if ends and self.sentences[last - 1] > first else 0.0)
            + (BOTH if self.runs[last - 1] > first else 0.0)
            + SILENCE * (self.quiet[last] - self.quiet[first + 1])
            + (UNSEEN if shown < SHORTEST - INSTANT else 0.0)
            + UNREAD * max(0.0, self._reading(first, last) - shown)
        )

    def _end(self, first: int, last: int) -> float:
        """Return the end of a cue: of its last word or of reading it, but before the next one begins."""
        following = self.items[last].start if last < len(self.items) else self.end
        needed = self.items[first].start + max(SHORTEST, self._reading(first, last))
        return min(max(self.items[last - 1].end, needed), following)

    def _reading(self, first: int, last: int) -> float:
        """Return the seconds that reading the items takes."""
        run = self.runs[last - 1]
        label = self.labels[first] + (self.labels[run] if run > first else 0)
        return (label + self._columns(first, last)) / SPEED

    def _columns(self, first: int, last: int) -> int:
        """Return the width of the items in a line."""
        return self.edges[last] - self.edges[first] - self.margins[first]


def _latest(marks: Sequence[bool]) -> list[int]:
    """Return for each index the last marked index up to it; the first is marked."""
    return list(accumulate((index if mark else 0 for index, mark in enumerate(marks)), max))


def _break(before: CueText, item: CueText) -> float:
    """Return the cost of parting two items."""
    if before.ends_sentence or item.mark or before.speaker != item.speaker:
        return AT_SENTENCE
    if item.start - before.end >= PAUSE or before.text.rstrip(CLOSING).endswith(tuple(CLAUSE_ENDS)):
        return AT_CLAUSE
    if item.text.strip().casefold() in CONJUNCTIONS:
        return AT_CONJUNCTION
    return AFTER_WORD if len(before.text.strip()) > SHORT else AFTER_SHORT


def _label(item: CueText, style: Style) -> str:
    """Return the name before the text, if the style shows names, cut to a line; the name alone without a
    text."""
    if item.text and style.speaker_names != "text":
        return ""
    width = style.line_width
    name = item.speaker if cell_len(item.speaker) < width else f"{chop_cells(item.speaker, width - 2)[0]}…"
    return f"{name}: " if item.text else name


def _lines(label: str, said: Sequence[CueText], style: Style) -> list[str]:
    """Divide into as few lines as possible, of similar length, with good breaks."""
    texts = [label + said[0].text.lstrip(), *(item.text for item in said[1:])]
    lines: list[str] = []
    for left in range(style.lines, 0, -1):
        widths = [0, *accumulate(map(cell_len, texts))]
        if widths[-1] <= style.line_width or left == 1:
            break
        count = min(left, max(2, -(-widths[-1] // style.line_width)))  # of lines for the rest
        ways = [
            (
                max(first, rest / (count - 1)) > style.line_width,
                _break(said[cut - 1], said[cut])
                + UNEVEN * abs(first - rest / (count - 1)) / style.line_width,
                cut,
            )
            for cut in range(1, len(texts))
            for first, rest in [(widths[cut], widths[-1] - widths[cut] - texts[cut].startswith(" "))]
        ]
        if label and not lines and (not ways or min(ways)[0]):  # the first word goes into the next line
            lines.append(label.rstrip())
            texts[:1] = [texts[0][len(label) :]]
            continue
        if not ways:
            break
        cut = min(ways)[2]
        lines.append("".join(texts[:cut]))
        texts = [texts[cut].lstrip(), *texts[cut + 1 :]]
        said = said[cut:]
    return [*lines, "".join(texts)]
