"""Corrections: checks, replacement rules, and the transcript that they make of a draft.

A draft comes from the models (`assemble`), or from a transcript without findings, whose earlier corrections
then stay.

Speaker numbers change with every clustering, so a correction refers to a speaker by spans of their speech and
applies to the speaker who talks most there. A corrected text and an added speaker refer to the words in a
span, and a text that the recognizer missed to the speech without words there.

The page derives the same in web/editor/derive.js and paragraphs.js; tests/data/page_cases.json
holds both to the same results.
"""

from __future__ import annotations

import heapq
import itertools
import unicodedata
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from witness.diarization import voices
from witness.errors import UsageError
from witness.progress import SILENT, Reporter
from witness.schema import (
    BREATH,
    CLOSING,
    LONG_PARAGRAPH,
    PARAGRAPH,
    PARAGRAPH_PAUSE,
    PHRASE_PAUSE,
    SENTENCE_ENDS,
    Correction,
    Float64,
    Spans,
    Speaker,
    Transcript,
    Turn,
    Utterance,
    Word,
    WordIndex,
    speaker_id,
)
from witness.text import clock, unspaced
from witness.text import count as number_of

LONGEST_TEXT = 10_000
"""Maximum number of characters in a corrected text."""
UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories that break a line. Joiners, which some scripts and emoji need, do not."""
FIELDS = {
    "name": ("name", "speaker"),
    **dict.fromkeys(("merge", "move"), ("other", "speaker")),
    **dict.fromkeys(("new", "split", "join", "note"), ("other",)),
    **dict.fromkeys(("text", "fill"), ("other", "text")),
    **dict.fromkeys(("start", "end"), ("at", "other")),
}
"""Kind of a correction -> its fields; a note may also have a text and codes."""
OPTIONAL = ("speaker", "name", "other", "text", "codes", "at")
ANCHORS = 10
"""Turns that identify a speaker: the longest, which another clustering is least likely to split."""
TIE = 0.99
"""Share of the largest amount of speech that counts as equal to it: spans are rounded."""
INSTANT = 0.001
"""Seconds: the resolution of the formats; spans of single words extend this far around the middle."""
SAME = 0.5
"""Least intersection over union of a span and an utterance that are the same."""
INAUDIBLE = 1.5
"""Least seconds of speech without a word that get a mark: the recognizer tries these again."""
NOT_ENGLISH = 0.5
"""Least seconds of marked speech in another language, for an English model."""
PUNCTUATION = ".,;:!?…\"'“”‘’«»()[]。，、！？؟،¿¡"
"""Signs around a word that a replacement keeps."""
CONTEXT = 8
"""Words before and after each occurrence in a preview."""
GHOST_SHARE = 0.02  # of all speech; this and GHOST_TURN are noScribe's rule, right for 69 % of its cases
GHOST_TURN = 2.0  # seconds


# --- drafts ---


@dataclass(frozen=True)
class Draft:
    """Speakers and words before corrections."""

    head: Transcript
    """Everything that corrections do not change, and the turns; without utterances and words."""
    words: tuple[list[Word] | None, ...]
    """Words of each track, with speakers; None: no recognizer ran on it."""
    spoken: tuple[list[Turn], ...]
    """Turns of each track, one at a time, wherever speech may have no words; "" is an unknown speaker."""
    not_english: tuple[Spans, ...]
    """Stretches of each track whose words an earlier build left out as not English; new drafts have none."""


def draft_of(transcript: Transcript) -> Draft:
    """Make a draft of a transcript without findings; its corrections stay."""
    count = 1 + max((utterance.track for utterance in transcript.utterances), default=0)
    words: list[list[Word]] = [[] for _ in range(count)]
    spoken: list[list[Turn]] = [[] for _ in range(count)]
    not_english: list[list[tuple[float, float]]] = [[] for _ in range(count)]
    for utterance in transcript.utterances:
        span = utterance.start, utterance.end
        words[utterance.track] += _marked_words(utterance, transcript.corrections)
        if not utterance.words:
            spoken[utterance.track].append(Turn(*span, utterance.speaker or ""))
        if utterance.not_english:
            not_english[utterance.track].append(span)
    for of_track in words:
        of_track.sort(key=lambda word: word.start)
    head = replace(transcript, utterances=(), words=(), warnings=())
    recognized = transcript.device["whisper"] is not None
    labeled = tuple(of_track if recognized else None for of_track in words)
    draft = Draft(head, labeled, tuple(spoken), tuple(map(tuple, not_english)))
    repeated = apply(draft).warnings  # a later `apply` adds these again while they hold
    lasting = tuple(line for line in transcript.warnings if line not in repeated)
    return replace(draft, head=replace(head, warnings=lasting))


def apply(draft: Draft, corrections: Sequence[Correction] = (), reporter: Reporter = SILENT) -> Transcript:
    """Apply corrections to a draft; `reporter` gets the new warnings of the transcript."""
    head = draft.head
    added = _added_speakers(draft, corrections)
    tracks, turns = _completed(draft, corrections, added)
    merged = merged_speakers(corrections, TurnIndex(turns))
    turns = unite_turns(sorted(_renamed(turn, merged) for turn in turns))
    index = TurnIndex(turns)
    results = [
        _apply_to_track(draft, number, words, merged, corrections, index)
        for number, words in enumerate(tracks)
    ]
    results = _kept_together(results)
    names = speaker_names([*_draft_names(head, corrections), *corrections], index)
    speakers = _speakers(turns, {speaker: all_names[-1] for speaker, all_names in names.items()})
    earlier = {index.speaker_within(each.other) for each in head.corrections if each.kind == "new"}
    by_hand = {*added.values(), *earlier}
    warnings = [line for result in results for line in result.warnings]
    warnings += [
        f"{' and '.join(several)} are the same speaker; {speaker} is now called {several[-1]}"
        for speaker, several in names.items()
        if len(several) > 1
    ]
    warnings += [
        f"{name} may be spurious: little speech in total, and never more than {GHOST_TURN:.0f} s at a time"
        for name in ghost_speakers(speakers, turns)
        if name not in by_hand
    ]
    for line in warnings:
        reporter.note(line)
    words = (word for result in results for word in result.words)
    return replace(
        head,
        speakers=speakers,
        turns=tuple(turns),
        utterances=tuple(_utterances(results, (*head.corrections, *corrections))),
        words=tuple(sorted(words, key=_times)),
        warnings=(*head.warnings, *warnings),
        corrections=(*head.corrections, *corrections),
    )


def _marked_words(utterance: Utterance, corrections: Sequence[Correction]) -> Sequence[Word]:
    """Return the words of an utterance with their `corrected` marks.

    Older documents have no marks on words: the corrections decide, and without any of them all are marked.
    """
    if not utterance.corrected or any(word.corrected for word in utterance.words):
        return utterance.words
    touched = touched_words(utterance.words, corrections) or range(len(utterance.words))
    return [structs.replace(word, corrected=number in touched) for number, word in enumerate(utterance.words)]


def _added_speakers(draft: Draft, corrections: Sequence[Correction]) -> dict[Correction, str]:
    """Assign a free id to each speaker that a person added."""
    free = map(speaker_id, itertools.count(draft.head.next_speaker))
    new = (correction for correction in dict.fromkeys(corrections) if correction.kind == "new")
    return dict(zip(new, free, strict=False))


def _completed(
    draft: Draft, corrections: Sequence[Correction], added: Mapping[Correction, str]
) -> tuple[list[list[Word] | None], list[Turn]]:
    """Return the words of each track and the turns, with missing words and speakers added."""
    turns = list(draft.head.turns)
    filled: Sequence[Sequence[Word]] = [words or [] for words in draft.words]
    if any(correction.kind == "fill" for correction in corrections):
        gaps = [
            [] if words is None else find_inaudible(draft.spoken[number], words, draft.not_english[number])
            for number, words in enumerate(draft.words)
        ]
        filled = fill_gaps(filled, gaps, corrections)
    completed: list[list[Word] | None] = []
    for words, complete in zip(draft.words, filled, strict=True):
        labeled, turns = add_speakers(complete, turns, added)
        completed.append(None if words is None else labeled)
    return completed, turns


@dataclass(frozen=True)
class _TrackResult:
    """Share of one track in the transcript."""

    words: Sequence[Word] = ()
    inaudible: Sequence[Utterance] = ()
    """Speech without words."""
    deleted: Sequence[tuple[Word, bool]] = ()
    """All words with their earlier times, and True for those that a person deleted; empty: none."""
    warnings: Sequence[str] = ()


def _apply_to_track(
    draft: Draft,
    number: int,
    words: Sequence[Word] | None,
    merged: Mapping[str, str],
    corrections: Sequence[Correction],
    index: TurnIndex,
) -> _TrackResult:
    """Apply corrections to the words of a track.

    A merge joins the words of two speakers and moves no other word, as a page shows it.
    """
    spoken = draft.spoken[number]
    if words is None:
        turns = unite_turns([_renamed(turn, merged) for turn in spoken])
        silent = [Utterance(turn.start, turn.end, turn.speaker or None, track=number) for turn in turns]
        return _TrackResult(inaudible=silent)
    renamed = [
        structs.replace(word, speaker=merged.get(word.speaker, word.speaker)) if word.speaker else word
        for word in words
    ]
    moved = move_words(renamed, corrections, index)
    inaudible = [
        replace(utterance, speaker=utterance.speaker or None, track=number)
        for utterance in find_inaudible(spoken, moved, draft.not_english[number], merged)
    ]
    marked = mark_paragraphs(moved, corrections)
    placed = _spell_in_place(marked, corrections)
    spelled = [word for word in placed if word is not None]
    deleted = [
        (word if after is None else structs.replace(word, text=after.text), after is None)
        for word, after in zip(marked, placed, strict=True)
    ]
    return _TrackResult(
        spelled,
        inaudible,
        deleted if len(spelled) < len(marked) else (),
        tuple(_mismatches(spelled, inaudible)),
    )


def _kept_together(results: Sequence[_TrackResult]) -> list[_TrackResult]:
    """Join words again between which only a deletion made a pause."""
    if not any(result.deleted for result in results):
        return list(results)
    whole = [[word for word, _ in result.deleted] if result.deleted else result.words for result in results]
    paragraphs = {
        id(word): number
        for number, utterance in enumerate(group_utterances(*whole))
        for word in utterance.words
    }
    joined = []
    for result in results:
        words, left = list[Word](), iter(result.words)
        before, parted = -1, False
        for earlier, gone in result.deleted:
            if gone:
                parted = True
                continue
            word, paragraph = next(left), paragraphs[id(earlier)]
            pauses = bool(words) and round(word.start - words[-1].end, 3) >= PHRASE_PAUSE
            if parted and paragraph == before and word.begins is None and pauses:
                word = structs.replace(word, begins=False)
            words.append(word)
            before, parted = paragraph, False
        joined.append(replace(result, words=words) if result.deleted else result)
    return joined


def _utterances(results: Sequence[_TrackResult], corrections: Sequence[Correction]) -> list[Utterance]:
    """Return the utterances of all tracks, in order."""
    inaudible = (utterance for result in results for utterance in result.inaudible)
    grouped = group_utterances(*(result.words for result in results))
    return sorted([*set_times(grouped, corrections), *inaudible], key=_times)


def _draft_names(head: Transcript, corrections: Sequence[Correction]) -> Iterator[Correction]:
    """Yield the names that speakers of the draft keep, as corrections.

    Of two merged speakers the first to speak gives the name, as in a page.
    """
    index = TurnIndex(head.turns)
    renamed = {index.speaker_within(each.speaker) for each in corrections if each.kind == "name"}
    first: dict[str, float] = {}
    for turn in head.turns:
        first[turn.speaker] = min(turn.start, first.get(turn.speaker, turn.start))
    for speaker in sorted(head.speakers, key=lambda each: first.get(each.id, 0.0), reverse=True):
        if speaker.name is not None and speaker.id not in renamed:
            yield Correction("name", anchor(speaker.id, head.turns), speaker.name)


def _mismatches(words: Sequence[Word], inaudible: Sequence[Utterance]) -> Iterator[str]:
    """Yield warnings about words without speech, and speech without words."""
    if invented := sum(not word.supported for word in words):
        are = "is" if invented == 1 else "are"
        yield f"{number_of(invented, 'word')} where no speech was heard {are} only in the JSON and the page"
    if unexplained := [utterance for utterance in inaudible if not utterance.not_english]:
        seconds = sum(utterance.end - utterance.start for utterance in unexplained)
        starts = ", ".join(clock(utterance.start) for utterance in unexplained[:5])
        more = ", ..." if len(unexplained) > 5 else ""
        yield f"[inaudible]: {seconds:.0f} s of speech without words, at {starts}{more}"


def ghost_speakers(speakers: Sequence[Speaker], turns: Sequence[Turn]) -> list[str]:
    """Return the ids of speakers that the diarizer may have invented. A warning only: some are real."""
    longest: dict[str, float] = {}
    for turn in turns:
        longest[turn.speaker] = max(longest.get(turn.speaker, 0.0), turn.duration)
    return [each.id for each in speakers if each.share < GHOST_SHARE and longest[each.id] <= GHOST_TURN]


def _times(item: Word | Utterance) -> tuple[float, float]:
    return item.start, item.end


def _renamed(turn: Turn, names: Mapping[str, str]) -> Turn:
    return replace(turn, speaker=names.get(turn.speaker, turn.speaker))


def unite_turns(turns: Sequence[Turn]) -> list[Turn]:
    """Unite overlapping turns of one speaker, which a merge of two tracks makes."""
    latest: dict[str, int] = {}
    united: list[Turn] = []
    for turn in turns:
        number = latest.get(turn.speaker)
        if number is not None and turn.start <= united[number].end:
            united[number] = replace(united[number], end=max(united[number].end, turn.end))
        else:
            latest[turn.speaker] = len(united)
            united.append(turn)
    return united


def _speakers(turns: Sequence[Turn], names: Mapping[str, str]) -> tuple[Speaker, ...]:
    seconds = seconds_by_speaker(turns)
    total = sum(seconds.values())
    return tuple(
        Speaker(key, spoken, spoken / total, names.get(key)) for key, spoken in sorted(seconds.items())
    )


# --- checks ---


def check(corrections: Sequence[Correction]) -> tuple[Correction, ...]:
    """Return the corrections of a document, normalized. Raises ValueError that names the invalid one."""
    checked = []
    for number, correction in enumerate(corrections):
        try:
            checked.append(_check(correction))
        except (ValueError, UsageError) as error:  # noqa: PERF203 - it names the correction
            raise ValueError(f"{error} - at `$.corrections[{number}]`") from error
    return tuple(checked)


def _check(correction: Correction) -> Correction:
    """Return a correction that has exactly the fields of its kind. Raises ValueError, UsageError."""
    action, name, text = correction.kind, correction.name, correction.text
    fields = {field for field in OPTIONAL if getattr(correction, field) not in (None, ())}
    if action == "note":
        fields -= {"text", "codes"}
    if wrong := fields.symmetric_difference(FIELDS[action]):
        raise ValueError(f"`{min(wrong)}` of a {action!r} correction")
    for start, end in (*correction.speaker, *correction.other):
        if start > end:
            raise ValueError(f"{start} to {end} is not a time span")
    codes = tuple(dict.fromkeys(map(voices.check_name, correction.codes)))
    if name is not None:
        name = voices.check_name(name)
    if text is not None:
        text = text.strip()
        lines = text.replace("\n", "") if action == "note" else text
        if (
            (action == "fill" and not text)
            or len(text) > LONGEST_TEXT
            or any(unicodedata.category(c) in UNPRINTABLE for c in lines)
        ):
            raise ValueError(f"{text[:40]!r} is not one line of text")
    return replace(correction, name=name, text=text, codes=codes)


# --- speakers ---


def anchor(speaker: str, turns: Iterable[Turn]) -> Spans:
    """Return spans that identify a speaker: the longest turns, in order, rounded to milliseconds."""
    longest = sorted((turn for turn in turns if turn.speaker == speaker), key=lambda turn: -turn.duration)
    return tuple(sorted((round(turn.start, 3), round(turn.end, 3)) for turn in longest[:ANCHORS]))


class TurnIndex:
    """Turns by time: finds the main speaker within spans."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        ordered = sorted(turns)
        self._names: list[str] = sorted({turn.speaker for turn in ordered})
        numbers = {name: number for number, name in enumerate(self._names)}
        self._starts = np.array([turn.start for turn in ordered])
        self._ends = np.array([turn.end for turn in ordered])
        self._speakers = np.array([numbers[turn.speaker] for turn in ordered], np.intp)
        self._total = self._by_speaker(self._ends - self._starts)
        self._cache: dict[Spans, str | None] = {}

    def speaker_within(self, spans: Spans) -> str | None:
        """Return the speaker who talks most within `spans`; None: all are silent.

        Of several who talk there all the time, the one who talks least elsewhere.
        """
        if spans not in self._cache:
            self._cache[spans] = self._main_speaker(spans)
        return self._cache[spans]

    def _main_speaker(self, spans: Spans) -> str | None:
        seconds = np.zeros(len(self._names))
        for start, end in spans:
            count = int(np.searchsorted(self._starts, end))  # the others begin later
            shared = np.minimum(end, self._ends[:count]) - np.maximum(start, self._starts[:count])
            seconds += self._by_speaker(np.maximum(shared, 0))
        if not seconds.any():
            return None
        leaders = np.flatnonzero(seconds >= TIE * seconds.max())
        return self._names[int(leaders[self._total[leaders].argmin()])]

    def _by_speaker(self, seconds: Float64) -> Float64:
        """Sum `seconds` of the first turns by speaker."""
        return np.bincount(self._speakers[: len(seconds)], seconds, len(self._names)).astype(np.float64)


def merged_speakers(corrections: Iterable[Correction], turns: TurnIndex) -> dict[str, str]:
    """Return speaker -> the speaker that absorbs them, for all merged speakers."""
    target: dict[str, str] = {}

    def final(speaker: str) -> str:
        while speaker in target:
            speaker = target[speaker]
        return speaker

    for correction in corrections:
        if correction.kind == "merge":
            stays = turns.speaker_within(correction.speaker)
            goes = turns.speaker_within(correction.other)
            if stays is not None and goes is not None and final(stays) != final(goes):
                target[final(goes)] = final(stays)
    return {speaker: final(speaker) for speaker in target}


def speaker_names(corrections: Iterable[Correction], turns: TurnIndex) -> dict[str, list[str]]:
    """Return speaker -> their names, the latest last; several after a merge of two named speakers."""
    names: dict[str, dict[str, None]] = {}
    for correction in corrections:
        speaker = turns.speaker_within(correction.speaker) if correction.kind == "name" else None
        if speaker is not None and correction.name is not None:
            earlier = names.setdefault(speaker, {})
            earlier.pop(correction.name, None)
            earlier[correction.name] = None
    return {speaker: list(ordered) for speaker, ordered in names.items()}


# --- words ---


def fill_gaps(
    tracks: Sequence[Sequence[Word]],
    gaps: Sequence[Sequence[Utterance]],
    corrections: Iterable[Correction],
) -> list[list[Word]]:
    """Add the words that a person wrote for utterances without words (`gaps`) to the words of each track.

    A text becomes one word as long as the utterance.
    """
    numbered = [(track, gap) for track, of_track in enumerate(gaps) for gap in of_track]
    texts: dict[int, str] = {}
    for correction in corrections:
        if correction.kind == "fill" and numbered:
            alike = [_intersection_over_union(correction.other, gap) for _, gap in numbered]
            if max(alike) > SAME:
                texts[alike.index(max(alike))] = correction.text or ""
    filled = [list(words) for words in tracks]
    for number, text in texts.items():
        track, gap = numbered[number]
        word = Word(gap.start, gap.end, f" {text}", gap.speaker, corrected=True)
        insort(filled[track], word, key=lambda other: other.start)
    return filled


def add_speakers(
    words: Sequence[Word], turns: Sequence[Turn], added: Mapping[Correction, str]
) -> tuple[list[Word], list[Turn]]:
    """Give words of a track to speakers that a person added: correction -> speaker.

    Returns the words and the turns: the new speakers talk during these words, the earlier ones no longer do.
    """
    labeled, turns = list(words), list(turns)
    for correction, indexes in _targets(words, added, "new"):
        lost: dict[str | None, list[tuple[float, float]]] = {}
        for run in _breaths(labeled, indexes):
            start = labeled[run[0]].start
            end = max(labeled[run[-1]].end, start + INSTANT)
            lost.setdefault(labeled[run[0]].speaker, []).append((start, end))
        holes = {speaker: sorted(times) for speaker, times in lost.items()}
        turns = [
            *(part for turn in turns for part in _outside(turn, holes.get(turn.speaker, ()))),
            *(Turn(start, end, added[correction]) for times in lost.values() for start, end in times),
        ]
        for index in indexes:
            labeled[index] = _assigned(added[correction], labeled[index])
    return labeled, sorted(turns)


def move_words(words: Sequence[Word], corrections: Iterable[Correction], turns: TurnIndex) -> list[Word]:
    """Give each word in a moved span to the speaker of the correction.

    An assigned word counts as spoken, with or without support by the diarizer.
    """
    speakers: dict[int, str] = {}
    for correction, indexes in _targets(words, corrections, "move"):
        if (speaker := turns.speaker_within(correction.speaker)) is not None:
            speakers |= dict.fromkeys(indexes, speaker)
    return [
        _assigned(speakers[number], word) if number in speakers else word for number, word in enumerate(words)
    ]


def spell_words(words: Sequence[Word], corrections: Iterable[Correction]) -> list[Word]:
    """Put corrected texts in place: the first word of each span gets the text and the time, the others go.

    An empty text removes the first word, too, and marks the speaker's word before or after as corrected.
    """
    return [word for word in _spell_in_place(words, corrections) if word is not None]


def _spell_in_place(words: Sequence[Word], corrections: Iterable[Correction]) -> list[Word | None]:
    """Put corrected texts in place; None: the word went."""
    texts: dict[int, str] = {}  # number of the word -> its new text
    replaced: dict[int, set[int]] = {}  # number of the word -> those whose place its text takes, too
    for correction, indexes in _targets(words, corrections, "text"):
        texts |= {index: "" if number else correction.text or "" for number, index in enumerate(indexes)}
        if correction.text and len(indexes) > 1:
            replaced.setdefault(indexes[0], set()).update(indexes[1:])
    spelled: list[Word | None] = []
    latest = -1  # the word before that is left
    erased: list[str | None] = []  # the speaker of a removed word, until a word follows that can be marked
    for number, word in enumerate(words):
        text = word.text
        if number in texts:
            space = text[: len(text) - len(text.lstrip())]
            text = space + texts[number] if texts[number] else ""
        before = spelled[latest] if latest >= 0 else None
        if text or not word.text:
            if number in texts or word.speaker in erased:
                probability = word.probability if text == word.text else None
                word = structs.replace(word, text=text, corrected=True, probability=probability)
            taken = itertools.takewhile(lambda index: not texts[index], sorted(replaced.get(number, ())))
            end = max([word.end, *(words[index].end for index in taken)])
            spelled.append(structs.replace(word, end=end) if end > word.end else word)
            latest = number
            erased = []
            continue
        spelled.append(None)
        if before is not None and before.speaker == word.speaker:
            spelled[latest] = structs.replace(before, corrected=True)
        else:
            erased = [word.speaker]
    return spelled


def mark_paragraphs(words: Sequence[Word], corrections: Iterable[Correction]) -> list[Word]:
    """Set `begins` of the words at which a person split or joined paragraphs."""
    begins: dict[int, bool] = {}
    for correction, indexes in _targets(words, corrections, "split", "join"):
        begins |= dict.fromkeys(indexes[:1], correction.kind == "split")
    return [
        structs.replace(word, begins=begins[number]) if number in begins else word
        for number, word in enumerate(words)
    ]


def touched_words(words: Sequence[Word], corrections: Sequence[Correction]) -> set[int]:
    """Return the indexes of the words whose text or speaker a person changed."""
    targets = _targets(words, corrections, "fill", "new", "move", "text")
    return {index for _, indexes in targets for index in indexes}


def _targets(
    words: Sequence[Word], corrections: Iterable[Correction], *actions: str
) -> Iterator[tuple[Correction, list[int]]]:
    """Yield each correction of some kinds, with the rising indexes of its words."""
    index = WordIndex(words)
    for correction in corrections:
        if correction.kind in actions:
            yield correction, index.within(correction.other).tolist()


def _assigned(speaker: str, word: Word) -> Word:
    return structs.replace(word, speaker=speaker, speaker_confidence=None, supported=True, corrected=True)


def _intersection_over_union(spans: Spans, gap: Utterance) -> float:
    shared = sum(max(0.0, min(end, gap.end) - max(start, gap.start)) for start, end in spans)
    either = sum(end - start for start, end in spans) + gap.end - gap.start - shared
    return shared / max(either, 1e-9)


def _breaths(words: Sequence[Word], indexes: Sequence[int]) -> list[list[int]]:
    """Group the indexes of consecutive words that a speaker says in one breath."""
    runs: list[list[int]] = []
    for index in indexes:
        before = runs[-1][-1] if runs else -2
        if (
            index == before + 1
            and words[index].speaker == words[before].speaker
            and words[index].start - words[before].end < BREATH
        ):
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs


def _outside(turn: Turn, holes: Sequence[tuple[float, float]]) -> Iterator[Turn]:
    """Yield the rest of a turn between `holes`, which are in order."""
    start = turn.start
    for first, last in holes:
        if first >= turn.end:
            break
        if first > start:
            yield replace(turn, start=start, end=first)
        start = max(start, last)
    if start < turn.end:
        yield replace(turn, start=start)


# --- paragraphs ---


def group_utterances(*tracks: Sequence[Word]) -> list[Utterance]:
    """Group the labeled words of each track, in order, into uninterrupted utterances, sorted by start.

    An utterance ends where the speaker changes or is silent for PARAGRAPH_PAUSE, and after a phrase during
    which a speaker in another track begins. A person can begin one at a word, or forbid that. One that is
    longer than LONG_PARAGRAPH is cut into parts of at least PARAGRAPH: at the end of a sentence if possible,
    and there at the longest pause.
    """
    groups: list[tuple[int, list[Word]]] = []
    latest: dict[int, list[Word]] = {}  # track -> its latest group
    uninterrupted: set[int] = set()  # tracks whose latest group is still open
    phrases = [
        [(track, phrase) for phrase in _split(words, _separates)] for track, words in enumerate(tracks)
    ]
    for track, phrase in heapq.merge(*phrases, key=lambda numbered: numbered[1][0].start):
        if track in latest and _continues(latest[track][-1], phrase[0], track in uninterrupted):
            latest[track] += phrase
        else:
            groups.append((track, phrase))
            latest[track] = phrase
        if phrase[0].supported:  # an invented word interrupts no speaker
            uninterrupted = set()
        uninterrupted.add(track)
    utterances = [
        Utterance(
            part[0].start,
            part[-1].end,
            part[0].speaker,
            tuple(part),
            track,
            any(word.corrected for word in part),
        )
        for track, group in groups
        for part in _paragraphs(group)
    ]
    return sorted(utterances, key=lambda utterance: utterance.start)


def set_times(utterances: Sequence[Utterance], corrections: Iterable[Correction]) -> list[Utterance]:
    """Set the starts and ends that a person chose; the words keep their times."""
    edges = [correction for correction in corrections if correction.kind in ("start", "end")]
    if not edges:
        return list(utterances)
    timed = list(utterances)
    spoken = [number for number, utterance in enumerate(timed) if utterance.words]
    for side, edge in (("start", 0), ("end", -1)):
        spoken.sort(key=lambda number: (timed[number].words[edge].start, timed[number].track))
        words = [timed[number].words[edge] for number in spoken]
        for correction, indexes in _targets(words, edges, side):
            if not indexes or correction.at is None:
                continue
            number = spoken[indexes[0]]
            before, at = timed[number], round(correction.at, 3)
            start = min(at, before.end) if side == "start" else before.start
            end = max(at, before.start) if side == "end" else before.end
            timed[number] = replace(before, start=start, end=end, corrected=True)
    return timed


def find_inaudible(
    turns: Sequence[Turn],
    words: Sequence[Word],
    not_english: Sequence[tuple[float, float]] = (),
    merged: Mapping[str, str] = {},
) -> list[Utterance]:
    """Return speech without words: at least INAUDIBLE seconds, or NOT_ENGLISH seconds of `not_english`.

    `turns` do not overlap, and `words` are in order; both belong to one track. The speaker of a stretch talks
    for more than half of it, else it has none. In another language each turn is a stretch. `merged`, speaker
    -> their new id, moves no edge of a stretch.
    """

    def is_foreign(start: float, end: float) -> bool:
        return any(first <= (start + end) / 2 <= last for first, last in not_english)

    stretches: list[list[Turn]] = []
    for part in _without_words(turns, words):
        changes = bool(stretches) and part.speaker != stretches[-1][-1].speaker
        separate = not stretches or _is_apart(stretches[-1][-1].end, part.start, words)
        if separate or (changes and is_foreign(part.start, part.end)):
            stretches.append([])
        stretches[-1].append(part)
    inaudible: list[Utterance] = []
    for parts in stretches:
        start, end = parts[0].start, parts[-1].end
        foreign = is_foreign(start, end)
        if sum(part.duration for part in parts) < (NOT_ENGLISH if foreign else INAUDIBLE):
            continue
        speaker = _majority_speaker(
            [replace(part, speaker=merged.get(part.speaker, part.speaker)) for part in parts]
        )
        if inaudible and inaudible[-1].speaker == speaker and not _is_apart(inaudible[-1].end, start, words):
            inaudible[-1] = replace(inaudible[-1], end=end)
        else:
            inaudible.append(Utterance(start, end, speaker, not_english=foreign))
    return inaudible


def ends_sentence(word: Word) -> bool:
    """Return True if the word ends a sentence."""
    return word.text.rstrip(CLOSING).endswith(tuple(SENTENCE_ENDS))


def _split(words: Sequence[Word], separates: Callable[[Word, Word], bool]) -> Iterator[list[Word]]:
    """Yield consecutive words of one speaker, split between words that `separates` holds for."""
    run: list[Word] = []
    for word in words:
        if run and (word.speaker != run[-1].speaker or separates(run[-1], word)):
            yield run
            run = []
        run.append(word)
    if run:
        yield run


def _separates(before: Word, word: Word) -> bool:
    """Return True between sentences and at pauses, to the millisecond, as the page decides it."""
    pauses = round(word.start - before.end, 3) >= PHRASE_PAUSE
    return bool(word.begins) or ends_sentence(before) or pauses


def _continues(before: Word, word: Word, uninterrupted: bool) -> bool:
    near = uninterrupted and word.start - before.end < PARAGRAPH_PAUSE
    return word.speaker == before.speaker and not word.begins and (near or word.begins is False)


def _paragraphs(words: list[Word]) -> Iterator[list[Word]]:
    """Cut an utterance into parts of readable length."""
    while words[-1].end - words[0].start > LONG_PARAGRAPH:
        first = bisect_left(words, words[0].start + PARAGRAPH, key=lambda word: word.end) + 1
        last = bisect_right(words, words[0].start + LONG_PARAGRAPH, key=lambda word: word.end)
        if first > min(last, len(words) - 1):  # one word takes as long
            break
        candidates = [n for n in range(first, min(last, len(words) - 1) + 1) if words[n].begins is not False]
        if not candidates:  # a person joined all of them
            break
        cut = max(candidates, key=lambda n: (ends_sentence(words[n - 1]), words[n].start - words[n - 1].end))
        yield words[:cut]
        words = words[cut:]
    yield words


def _is_apart(end: float, start: float, words: Sequence[Word]) -> bool:
    """Return True if a pause or a word lies between two parts of speech without words."""
    between = bisect_left(words, end, key=lambda word: word.start)
    return start - end >= BREATH or (between < len(words) and words[between].start <= start)


def _majority_speaker(turns: Sequence[Turn]) -> str | None:
    """Return the speaker of more than half of the time of these turns; None: no such speaker."""
    seconds = seconds_by_speaker(turns)
    leader = max(seconds, key=lambda speaker: seconds[speaker])
    return leader if seconds[leader] > sum(seconds.values()) / 2 else None


def seconds_by_speaker(turns: Sequence[Turn]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for turn in turns:
        seconds[turn.speaker] = seconds.get(turn.speaker, 0.0) + turn.duration
    return seconds


def _without_words(turns: Sequence[Turn], words: Sequence[Word]) -> Iterator[Turn]:
    """Yield the parts of the turns between words, in order."""
    for turn in sorted(turns):
        first = bisect_right(words, turn.start, key=lambda word: word.end)
        last = bisect_left(words, turn.end, key=lambda word: word.start)
        yield from _outside(turn, [(word.start, word.end) for word in words[first:last]])


# --- replacement rules ---


@dataclass(frozen=True)
class Occurrence:
    """An occurrence of words that a rule would replace."""

    place: int
    """Milliseconds from the beginning of the recording; its identity within a transcript."""
    track: int
    before: str
    old: str
    new: str
    after: str
    correction: Correction


def apply_rules(
    tracks: Sequence[Sequence[Word] | None], rules: Sequence[tuple[str, str]]
) -> list[Correction]:
    """Return the text corrections that replacement rules make in the words of each track, in order.

    A rule has the recognized words, in any case, and their replacement. It matches words of one speaker in a
    phrase; of the matches at the same word the longest counts, and of equally long ones the first.
    """
    return [correction for words in tracks for *_, correction in _matches(words or (), rules)]


def find_occurrences(transcript: Transcript, recognized: str, replacement: str) -> list[Occurrence]:
    """Return all occurrences of recognized words, in order. Raises UsageError for an unusable text."""
    if not recognized.strip() or not replacement.strip():
        raise UsageError("give the words to replace, and the words to write in their place")
    tracks: dict[int, list[Word]] = {}
    for utterance in transcript.utterances:
        tracks.setdefault(utterance.track, []).extend(utterance.words)
    occurrences = []
    for track, words in tracks.items():
        words.sort(key=lambda word: word.start)
        for first, end, correction in _matches(words, [(recognized, replacement)]):
            occurrences.append(
                Occurrence(
                    place=_middle(words[first]),
                    track=track,
                    before=_joined(words[max(0, first - CONTEXT) : first]),
                    old=_joined(words[first:end]),
                    new=correction.text or "",
                    after=_joined(words[end : end + CONTEXT]),
                    correction=correction,
                )
            )
    try:
        check([occurrence.correction for occurrence in occurrences])
    except ValueError as error:
        raise UsageError(f"{replacement[:40]!r} cannot be written ({error})") from error
    return sorted(occurrences, key=lambda occurrence: (occurrence.place, occurrence.track))


def word_spans(words: Iterable[Word]) -> Spans:
    """Return a span around the middle of each word."""
    middles = [round((word.start + word.end) / 2, 3) for word in words]
    return tuple((middle - INSTANT, middle + INSTANT) for middle in middles)


def _middle(word: Word) -> int:
    return round(1000 * round((word.start + word.end) / 2, 3))


def _joined(words: Sequence[Word]) -> str:
    return "".join(word.text for word in words).strip()


def _matches(
    words: Sequence[Word], rules: Sequence[tuple[str, str]]
) -> Iterator[tuple[int, int, Correction]]:
    """Yield the runs of words that rules replace, by the indexes of the first and after the last."""
    replacements: dict[tuple[str, ...], str] = {}
    for recognized, replacement in rules:
        replacements.setdefault(tuple(_tokens(recognized)), replacement)
    longest = max(map(len, replacements), default=0)
    first = 0
    for phrase in _split(words, _separates_rules):
        stop = first + len(phrase)
        while first < stop:
            tokens: list[str] = []
            end, text = first, ""
            for last in range(first, stop):
                more = _tokens(words[last].text)
                tokens += more
                if len(tokens) > longest:
                    break
                if more and tuple(tokens) in replacements:
                    end, text = last + 1, replacements[tuple(tokens)]
            if end > first:
                text = _with_punctuation(words[first].text.strip(), words[end - 1].text.strip(), text)
                if [text] != [word.text.strip() for word in words[first:end]]:
                    correction = Correction("text", (), other=word_spans(words[first:end]), text=text)
                    yield first, end, correction
            first = max(end, first + 1)


def _with_punctuation(first: str, last: str, replacement: str) -> str:
    """Add the signs before the first replaced word and after the last."""
    before = first[: len(first) - len(first.lstrip(PUNCTUATION))]
    after = last[len(last.rstrip(PUNCTUATION)) :]
    return f"{before}{replacement}{after}"


def _tokens(text: str) -> list[str]:
    """Split a text into words without signs, or into characters in scripts without spaces."""
    tokens: list[str] = []
    for word in text.casefold().split():
        bare = word.strip(PUNCTUATION)
        tokens += list(bare) if any(map(unspaced, bare)) else [bare] if bare else []
    return tokens


def _separates_rules(before: Word, word: Word) -> bool:
    ends = before.text.rstrip().endswith(tuple(SENTENCE_ENDS))
    return ends or word.start - before.end >= PHRASE_PAUSE
