"""Drafts: speakers and words before a person's corrections, and the transcript that corrections make of them.

A draft comes from the models (`assemble`), or from a transcript without findings, whose earlier corrections
then stay. Both lead to the same results as in a page (web/editor/derive.js).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from witness.progress import SILENT, Reporter
from witness.schema import Correction, Spans, Speaker, Transcript, Turn, Utterance, Word
from witness.text import clock
from witness.text import count as number_of
from witness.transcript import corrections as correcting
from witness.transcript.corrections import TurnIndex

GHOST_SHARE = 0.02  # of all speech; this and GHOST_TURN are noScribe's rule, right for 69 % of its cases
GHOST_TURN = 2.0  # seconds


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


def from_transcript(transcript: Transcript) -> Draft:
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
    merged = correcting.merged_speakers(corrections, TurnIndex(turns))
    turns = unite_turns(sorted(_renamed(turn, merged) for turn in turns))
    index = TurnIndex(turns)
    results = [
        _apply_to_track(draft, number, words, merged, corrections, index)
        for number, words in enumerate(tracks)
    ]
    names = correcting.speaker_names([*_draft_names(head, corrections), *corrections], index)
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
    touched = correcting.touched_words(utterance.words, corrections) or range(len(utterance.words))
    return [structs.replace(word, corrected=number in touched) for number, word in enumerate(utterance.words)]


def _added_speakers(draft: Draft, corrections: Sequence[Correction]) -> dict[Correction, str]:
    """Assign a free id to each speaker that a person added."""
    taken = {turn.speaker for turn in draft.head.turns}
    free = (name for n in itertools.count(len(taken)) if (name := f"SPEAKER_{n:02d}") not in taken)
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
            []
            if words is None
            else correcting.find_inaudible(draft.spoken[number], words, draft.not_english[number])
            for number, words in enumerate(draft.words)
        ]
        filled = correcting.fill_gaps(filled, gaps, corrections)
    completed: list[list[Word] | None] = []
    for words, complete in zip(draft.words, filled, strict=True):
        labeled, turns = correcting.add_speakers(complete, turns, added)
        completed.append(None if words is None else labeled)
    return completed, turns


@dataclass(frozen=True)
class _TrackResult:
    """Share of one track in the transcript."""

    words: Sequence[Word] = ()
    inaudible: Sequence[Utterance] = ()
    """Speech without words."""
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
        return _TrackResult(
            inaudible=[Utterance(turn.start, turn.end, turn.speaker or None) for turn in turns]
        )
    renamed = [
        structs.replace(word, speaker=merged.get(word.speaker, word.speaker)) if word.speaker else word
        for word in words
    ]
    moved = correcting.move_words(renamed, corrections, index)
    inaudible = [
        replace(utterance, speaker=utterance.speaker or None)
        for utterance in correcting.find_inaudible(spoken, moved, draft.not_english[number], merged)
    ]
    spelled = correcting.spell_words(correcting.mark_paragraphs(moved, corrections), corrections)
    return _TrackResult(spelled, inaudible, tuple(_mismatches(spelled, inaudible)))


def _utterances(results: Sequence[_TrackResult], corrections: Sequence[Correction]) -> list[Utterance]:
    """Return the utterances of all tracks, in order."""
    inaudible = (
        replace(utterance, track=track)
        for track, result in enumerate(results)
        for utterance in result.inaudible
    )
    grouped = correcting.group_utterances(*(result.words for result in results))
    return sorted([*correcting.set_times(grouped, corrections), *inaudible], key=_times)


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
            yield Correction("name", correcting.anchor(speaker.id, head.turns), speaker.name)


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
    seconds = correcting.seconds_by_speaker(turns)
    total = sum(seconds.values())
    return tuple(
        Speaker(key, spoken, spoken / total, names.get(key)) for key, spoken in sorted(seconds.items())
    )
