"""The transcript before a new one of the same recording, kept whole beside it.

`.NAME.earlier` holds the previous JSON, its edits, and the differences; `.NAME.earlier.npz` its findings.
Both are written in one transaction with the new transcript, and `swap` exchanges the two at any time.

Only one is kept. Before another one takes its place, it becomes a transcript of its own, `NAME.earlier.json`,
if it contains a person's work that its successor lacks.

A person's work on the earlier one is reapplied to the new one. Corrections refer to words: where the new
words are the old ones, each moves to them; where they differ, a person's text stays, and everything else
follows the new recognition. All differences are listed, so that a person can choose otherwise.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from witness.errors import ConflictError, InputError, UsageError
from witness.formats import findings, json_document, output_paths, reading
from witness.schema import Correction, Review, Sound, Spans, Transcript, Word, WordIndex
from witness.storage import files, typed_json
from witness.transcript import assemble, corrections, rebuild, store
from witness.transcript.corrections import PUNCTUATION, word_spans
from witness.transcript.store import StoredJson, Written

SCHEMA = "witness-earlier/1"
PIECE = 60
"""Most words that are compared at a time: the work grows with its square."""
SLACK = 0.15
"""Difference in seconds that two recognizers may have about the time of a word."""
REACH = 2.0
"""Seconds around missing words that may contain their replacement."""
MOST_PIECES = 100
"""Most words of a difference that a page can rewrite; it shows longer ones as text."""

Kind = Literal["words", "kept", "name", "place"]


@dataclass(frozen=True)
class Deviation:
    """A difference between the new transcript and the earlier one."""

    kind: Kind
    """"words": the words changed; "kept": a person's text stays over changed words; "name": a name without a
    speaker; "place": a correction without its words."""
    start: float
    end: float
    before: str
    now: str
    """Newly recognized text."""
    yours: bool
    """A person corrected or noted the words."""
    pieces: Spans = ()
    """The new words."""

    def replaces(self, other: Deviation) -> bool:
        """Return True for a later correction of the same words."""
        return bool(self.pieces) and (self.kind, self.pieces) == (other.kind, other.pieces)


class PreviousTranscript(Struct, frozen=True):
    """The hidden file."""

    document: msgspec.Raw
    """The JSON, unchanged."""
    history: msgspec.Raw = msgspec.Raw(b"null")
    """The hidden file of `edits`."""
    findings: bool = False
    """Its findings lie beside it."""
    kept: int = 0
    """Corrections and notes that apply to the new transcript."""
    differences: tuple[Deviation, ...] = ()
    seen: bool = False
    """A person has looked through the differences."""
    whole: bool = False
    """Its successor contains all of a person's work."""
    schema: str = SCHEMA


def read(path: Path) -> PreviousTranscript | None:
    """Read the transcript before the one at `path`; None: missing or unreadable."""
    try:
        previous = typed_json.decode(files.read(store.previous_path(path)), PreviousTranscript)
    except (OSError, ValueError):
        return None
    return previous if previous.schema == SCHEMA else None


def replace_with(
    path: Path, fresh: Transcript, *, also: Collection[str] = (), sound: Sound | None = None
) -> tuple[str, ...]:
    """Replace the transcript at `path` by a new one from the models, and reapply a person's work to it.

    Returns `Written.left`. Raises ConflictError for another recording, InputError if the old transcript is
    unreadable, OutputError; each without any change.
    """
    assert fresh.findings is not None  # noqa: S101 - it comes from the models
    with store.opened(path) as opened:
        before = rebuild.read(path)
        if before.document.audio.sha256 != fresh.audio.sha256:
            raise ConflictError(
                f"{path.name}: is of another recording, or that was changed; move it away, then try again"
            )
        transcript, previous = reapply(before, fresh)
        voices = findings.encode(fresh.findings)
        link = {"file": output_paths.beside(path).name, "sha256": files.sha256(voices)}
        messages = _release(before)
        hidden = _hidden_files(before, previous)
        written = opened.write(
            transcript, link, also=also, sound=sound, voices=voices, hidden=lambda _: hidden
        )
    return (*messages, *written.left)


def swap(path: Path, version: str) -> Written:
    """Exchange the transcript with the previous one, including its edits.

    Raises ConflictError, InputError, OutputError.
    """
    with store.opened(path) as opened:
        opened.expect(version)
        previous = read(path)
        if previous is None:
            raise InputError(f"{path.name}: there is no earlier transcript anymore")
        current = rebuild.read(path)
        differences = tuple(
            replace(each, before=each.now, now=each.before, pieces=())
            for each in previous.differences
            if each.kind == "words"
        )
        hidden = _hidden_files(
            current, PreviousTranscript(msgspec.Raw(files.read(path)), differences=differences, seen=True)
        )
        return _restore(opened, current, previous, hidden)


def mark_seen(path: Path, version: str) -> Written:
    """Note that a person has seen all differences. Raises ConflictError, InputError, OutputError."""
    with store.opened(path) as opened:
        opened.expect(version)
        previous = read(path)
        if previous is not None:
            content = msgspec.json.encode(structs.replace(previous, seen=True))
            opened.write_hidden({store.previous_path(path).name: content})
        return Written(version)


def _release(current: rebuild.Saved) -> tuple[str, ...]:
    """Turn the transcript before `current` into one of its own, if a person's work would be lost with it.

    Returns a line about that. Raises InputError, OutputError.
    """
    previous = read(current.path)
    head = None if previous is None else json_document.decode_head(bytes(previous.document))
    if previous is None or previous.whole or head is None or not head.holds_corrections:
        return ()
    free = store.free_path(current.path, "earlier")
    with store.opened(free) as opened:
        _restore(opened, current, previous)
    return (f"{free} is the transcript before the last two: not all of its corrections are in those",)


def _restore(
    opened: store.Store,
    current: rebuild.Saved,
    previous: PreviousTranscript,
    hidden: Mapping[str, bytes] = {},
) -> Written:
    """Write the transcript before `current` with its findings and edits, and `hidden` files with it.

    The recording keeps its current path. Raises InputError, OutputError.
    """
    stored = StoredJson(current.path, bytes(previous.document))
    link = stored.document.findings
    voices = renamed_link = None
    if link is not None and previous.findings:
        with suppress(OSError):
            voices = files.read(store.previous_path(current.path, findings=True))
            renamed_link = {**structs.asdict(link), "file": output_paths.beside(opened.path).name}
    transcript = stored.transcript
    audio = replace(transcript.audio, path=current.document.audio.path)
    history: dict[str, Any] = msgspec.json.decode(previous.history) or {}

    def hidden_of(version: str) -> dict[str, bytes]:
        name = store.history_path(opened.path).name
        return {**hidden, name: msgspec.json.encode({**history, "version": version})}

    transcript = json_document.in_milliseconds(replace(transcript, audio=audio))
    return opened.write(transcript, renamed_link, voices=voices, hidden=hidden_of)


def _hidden_files(before: rebuild.Saved, previous: PreviousTranscript) -> dict[str, bytes]:
    """Return the files that keep the transcript `before` as the previous one, by name."""
    path = before.path
    voices = None
    if before.loaded is not None:
        with suppress(OSError):
            voices = files.read(rebuild.findings_path(before))
    history = b"null"
    with suppress(OSError, ValueError):
        history = files.read(store.history_path(path))
        msgspec.json.decode(history)
    previous = structs.replace(previous, history=msgspec.Raw(history), findings=voices is not None)
    hidden = {store.previous_path(path).name: msgspec.json.encode(previous)}
    if voices is not None:
        hidden[store.previous_path(path, findings=True).name] = voices
    return hidden


# --- a person's work, reapplied ---


@dataclass(frozen=True)
class _TrackWord:
    """A word and its track."""

    word: Word
    track: int

    @property
    def middle(self) -> float:
        return (self.word.start + self.word.end) / 2

    def overlaps(self, span: tuple[float, float]) -> bool:
        """Return True if the middle of either lies in the other."""
        start, end = span
        return start <= self.middle <= end or self.word.start <= (start + end) / 2 < self.word.end

    @property
    def token(self) -> str:
        return _token(self.word.text)


def reapply(before: rebuild.Saved, fresh: Transcript) -> tuple[Transcript, PreviousTranscript]:
    """Reapply a person's work on the transcript `before` to `fresh`, which has findings; compare the two.

    Raises InputError if `before` is too old to assign words to utterances.
    """
    earlier = before.transcript
    try:
        old = before.draft()
    except UsageError:  # that number of speakers is no longer possible
        old = corrections.draft_of(earlier)
    assert fresh.findings is not None  # noqa: S101 - it comes from the models
    new = assemble.make_draft(fresh.findings, fresh.asked)
    matches = _Matches(_by_time(enumerate(old.words)), _by_time(enumerate(new.words)))
    combined: dict[Correction, None] = dict.fromkeys(fresh.corrections)
    differences: list[Deviation] = []
    lost = 0
    for correction in before.corrections:
        moved, difference = _move(correction, matches)
        needs_words = correction.other != () and correction.kind != "merge"
        lost += needs_words and not matches.find(correction.other).now
        combined[moved] = None
        if difference is not None:
            differences = [other for other in differences if not difference.replaces(other)]
            differences.append(difference)
    transcript = json_document.in_milliseconds(corrections.apply(new, tuple(combined)))
    differences += _lost_names(before, transcript)
    differences += _changed_words(earlier, transcript)
    differences.sort(key=lambda difference: (difference.start, difference.end))
    transcript = replace(
        transcript,
        timing=fresh.timing,
        style=earlier.style,
        tags=earlier.tags,
        corrected=before.corrected,
        review=_shortened(earlier.review, differences),
        findings=fresh.findings,
    )
    whole = not lost and not any(each.yours and each.kind != "kept" for each in differences)
    kept = len(before.corrections) - lost
    return transcript, PreviousTranscript(
        msgspec.Raw(files.read(before.path)), kept=kept, differences=tuple(differences), whole=whole
    )


def _move(correction: Correction, matches: _Matches) -> tuple[Correction, Deviation | None]:
    """Move a correction to the new words."""
    if correction.kind in ("name", "merge"):
        return correction, None
    match = matches.find(correction.other)
    if not match.now:
        if correction.kind in ("fill", "text"):  # `_changed_words` compares the words themselves
            return correction, None
        start, end = correction.other[0][0], correction.other[-1][1]
        is_note = correction.kind == "note"
        remark = (correction.text or ", ".join(correction.codes)) if is_note else ""
        return correction, Deviation("place", start, end, remark or _text(match.then), "", True)
    spans = word_spans(each.word for each in match.now)
    moved = replace(correction, other=spans)
    if correction.kind not in ("fill", "text"):
        return moved, None
    moved = replace(moved, kind="text")
    text, text_now = correction.text or "", _text(match.now)
    if match.same or _token(text) == _token(text_now):
        return moved, None
    start, end = match.now[0].word.start, match.now[-1].word.end
    return moved, Deviation("kept", start, end, text, text_now, True, spans)


def _lost_names(before: rebuild.Saved, transcript: Transcript) -> Iterator[Deviation]:
    """Yield the names that no speaker has anymore."""
    remaining = {speaker.name for speaker in transcript.speakers}
    for speaker, name in before.names.items():
        if name is not None and name not in remaining:
            turns = [turn for turn in before.turns if turn.speaker == speaker]
            longest = max(turns, key=lambda turn: turn.duration, default=None)
            start, end = (longest.start, longest.end) if longest else (0.0, 0.0)
            yield Deviation("name", start, end, name, "", True)


def _changed_words(earlier: Transcript, transcript: Transcript) -> Iterator[Deviation]:
    """Yield the differences between the written words."""
    old, new = (
        _by_time((utterance.track, utterance.words) for utterance in each.utterances)
        for each in (earlier, transcript)
    )
    index = WordIndex(earlier.words)
    noted = {earlier.words[n] for note in reading.noted_passages(earlier) for n in index.within(note.spans)}
    for same, first, last, begin, end in _align(old, new):
        if same:
            continue
        removed, inserted = old[first:last], new[begin:end]
        words = [each.word for each in removed or inserted]
        yield Deviation(
            "words",
            words[0].start,
            max(word.end for word in words),
            _text(removed),
            _text(inserted),
            any(each.word.corrected or each.word in noted for each in removed),
            word_spans(each.word for each in inserted) if len(inserted) <= MOST_PIECES else (),
        )


def _shortened(before: Review, differences: Sequence[Deviation]) -> Review:
    """End a person's progress at the first changed words."""
    first = min((each.start for each in differences if each.kind == "words"), default=None)
    return before if first is None else Review(until=min(before.until, round(first, 3)))


# --- alignment ---


@dataclass(frozen=True)
class _Match:
    """Words of the earlier draft, and the new words at their place."""

    then: Sequence[_TrackWord]
    now: Sequence[_TrackWord]
    same: bool
    """They are the same words."""


class _Matches:
    """Finds words of one draft in another."""

    def __init__(self, old: Sequence[_TrackWord], new: Sequence[_TrackWord]) -> None:
        self._old, self._new = old, new
        self._index = WordIndex([each.word for each in old])
        self._same: dict[int, int] = {}
        """Number of an old word -> number of the same new word."""
        for same, first, last, begin, end in _align(old, new):
            if same:
                self._same |= zip(range(first, last), range(begin, end), strict=True)
        self._cache: dict[Spans, _Match] = {}

    def find(self, spans: Spans) -> _Match:
        """Return the words in a part of the earlier recording, and the new words there."""
        if spans not in self._cache:
            self._cache[spans] = self._find(spans)
        return self._cache[spans]

    def _find(self, spans: Spans) -> _Match:
        numbers = self._index.within(spans).tolist()
        then = [self._old[number] for number in numbers]
        same = [self._same[number] for number in numbers if number in self._same]
        if numbers and len(same) == len(numbers) == same[-1] - same[0] + 1:
            return _Match(then, self._new[same[0] : same[-1] + 1], True)
        if numbers:
            now = self._between(numbers[0], numbers[-1])
        else:  # speech without words
            now = [each for each in self._new if any(each.overlaps(span) for span in spans)]
        tracks = [each.track for each in now]
        main_track = max(tracks, key=tracks.count, default=0)
        return _Match(then, [each for each in now if each.track == main_track], False)

    def _between(self, first: int, last: int) -> list[_TrackWord]:
        """Return the new words in place of the old words `first` to `last`, if some are missing.

        They extend to the next words that both have, but at most by REACH; and by SLACK where the old words
        beside them are missing, too.
        """
        before = next((n for n in range(first - 1, -1, -1) if n in self._same), None)
        after = next((n for n in range(last + 1, len(self._old)) if n in self._same), None)
        begin = 0 if before is None else self._same[before] + 1
        end = len(self._new) if after is None else self._same[after]
        start = self._old[first].word.start - (REACH if first - 1 == before else SLACK)
        until = self._old[last].word.end + (REACH if last + 1 == after else SLACK)
        return [each for each in self._new[begin:end] if start <= each.middle <= until]


def _align(old: Sequence[_TrackWord], new: Sequence[_TrackWord]) -> Iterator[tuple[bool, int, int, int, int]]:
    """Yield runs of both: True for equal words, the range in `old`, the range in `new`.

    Works piece by piece, cut at the longest pauses.
    """
    middles = [each.middle for each in new]
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


def _common(old: Sequence[_TrackWord], new: Sequence[_TrackWord]) -> list[tuple[int, int]]:
    """Return the longest common subsequence, by numbers, of equal words at about the same time.

    Without times, a phrase would match its repetition seconds later.
    """
    width = len(new) + 1
    best = [[0.0] * width for _ in range(len(old) + 1)]
    for a in range(len(old) - 1, -1, -1):
        token, middle = old[a].token, old[a].middle
        for b in range(len(new) - 1, -1, -1):
            score = max(best[a + 1][b], best[a][b + 1])
            apart = abs(new[b].middle - middle)
            if apart < REACH and new[b].token == token:
                score = max(score, best[a + 1][b + 1] + 1 - apart / (10 * REACH))
            best[a][b] = score
    pairs, a, b = [], 0, 0
    while a < len(old) and b < len(new):
        if best[a][b] == best[a + 1][b]:
            a += 1
        elif best[a][b] == best[a][b + 1]:
            b += 1
        else:
            pairs.append((a, b))
            a, b = a + 1, b + 1
    return pairs


def _by_time(tracks: Iterable[tuple[int, Sequence[Word] | None]]) -> list[_TrackWord]:
    """Return the words of numbered tracks in the order of time."""
    words = [_TrackWord(word, track) for track, of_track in tracks for word in of_track or ()]
    return sorted(words, key=lambda each: each.middle)


def _text(words: Sequence[_TrackWord]) -> str:
    return "".join(each.word.text for each in words).strip()


def _token(text: str) -> str:
    """Return a word without case and punctuation."""
    text = text.strip().casefold()
    return text.strip(PUNCTUATION) or text
