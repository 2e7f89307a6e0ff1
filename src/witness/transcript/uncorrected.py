"""Who said what before a person corrected it, and the transcript that the corrections make of it.

A draft is what the machine found (`assemble`), or a transcript whose findings are not there: then corrections
lie on top of what it says. What follows from a correction is the same for both, and the same as in a page
(web/editor/derive.js).
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
from witness.transcript import corrections, merging

GHOST_SHARE = 0.02  # of all speech; this and GHOST_TURN are noScribe's rule, right for 69 % of what it names
GHOST_TURN = 2.0  # seconds


@dataclass(frozen=True)
class Draft:
    """Who said what, before anybody corrected it."""

    head: Transcript
    """All that corrections do not change, and the turns; without utterances and words."""
    words: tuple[list[Word] | None, ...]
    """Of each track, with their speakers; None: nobody listened for words there."""
    spoken: tuple[list[Turn], ...]
    """Of each track: who speaks, one at a time, wherever there may be no words; "" is nobody known."""
    not_english: tuple[Spans, ...]
    """Of each track: where in the recording an English model was given another language."""


def of(transcript: Transcript) -> Draft:
    """The draft that a transcript is whose findings are not there; what was corrected in it stays."""
    listened = transcript.device["whisper"] is not None
    count = 1 + max((one.track for one in transcript.utterances), default=0)
    words: list[list[Word]] = [[] for _ in range(count)]
    spoken: list[list[Turn]] = [[] for _ in range(count)]
    not_english: list[list[tuple[float, float]]] = [[] for _ in range(count)]
    for one in transcript.utterances:
        words[one.track] += _marked(one, transcript.corrections)
        if not one.words:
            spoken[one.track].append(Turn(one.start, one.end, one.speaker or ""))
        if one.not_english:
            not_english[one.track].append((one.start, one.end))
    for own in words:
        own.sort(key=lambda word: word.start)
    head = replace(transcript, utterances=(), words=(), warnings=())
    said = tuple(own if listened else None for own in words)
    draft = Draft(head, said, tuple(spoken), tuple(map(tuple, not_english)))
    again = corrected(draft).warnings  # those of them that are true after a correction, it tells again
    kept = tuple(line for line in transcript.warnings if line not in again)
    return replace(draft, head=replace(head, warnings=kept))


def corrected(draft: Draft, given: Sequence[Correction] = (), reporter: Reporter = SILENT) -> Transcript:
    """The transcript, with the corrections applied.

    It holds the warnings of the draft and its own, which `reporter` is told.
    """
    head = draft.head
    added = _added(draft, given)
    tracks, found = _completed(draft, given, added)
    merged = corrections.merges(given, corrections.Talk(found))
    turns = united(sorted(_renamed(turn, merged) for turn in found))
    talk = corrections.Talk(turns)
    said = [_said(draft, number, words, merged, given, talk) for number, words in enumerate(tracks)]
    names = corrections.names([*_earlier_names(head, given), *given], talk)
    speakers = _speakers(turns, {speaker: all_names[-1] for speaker, all_names in names.items()})
    earlier = {talk.whose(one.other) for one in head.corrections if one.kind == "new"}
    by_hand = {*added.values(), *earlier}
    lines = [line for one in said for line in one.warnings]
    lines += _several_names(names)
    lines += [
        f"{name} may be spurious: little speech in total, and never more than {GHOST_TURN:.0f} s at a time"
        for name in ghosts(speakers, turns)
        if name not in by_hand
    ]
    for line in lines:
        reporter.note(line)
    return replace(
        head,
        speakers=speakers,
        turns=tuple(turns),
        utterances=tuple(_in_order(said, (*head.corrections, *given))),
        words=tuple(sorted((word for one in said for word in one.words), key=_when)),
        warnings=(*head.warnings, *lines),
        corrections=(*head.corrections, *given),
    )


def _marked(utterance: Utterance, given: Sequence[Correction]) -> Sequence[Word]:
    """The words of an utterance, which say whether they were corrected.

    Those of an older document do not: it is told by the corrections, and if they do not tell, all were.
    """
    if not utterance.corrected or any(word.corrected for word in utterance.words):
        return utterance.words
    touched = corrections.touched(utterance.words, given) or range(len(utterance.words))
    return [structs.replace(word, corrected=place in touched) for place, word in enumerate(utterance.words)]


def _added(draft: Draft, given: Sequence[Correction]) -> dict[Correction, str]:
    """The speakers whom a person added, each with an id that nobody has."""
    taken = {turn.speaker for turn in draft.head.turns}
    free = (name for n in itertools.count(len(taken)) if (name := f"SPEAKER_{n:02d}") not in taken)
    return dict(zip((one for one in dict.fromkeys(given) if one.kind == "new"), free, strict=False))


def _completed(
    draft: Draft, given: Sequence[Correction], added: Mapping[Correction, str]
) -> tuple[list[list[Word] | None], list[Turn]]:
    """The words of each track and the turns, with the words and the speakers that were missing."""
    turns = list(draft.head.turns)
    filled: Sequence[Sequence[Word]] = [own or [] for own in draft.words]
    if any(one.kind == "fill" for one in given):
        unheard = [
            [] if own is None else merging.inaudible(draft.spoken[number], own, draft.not_english[number])
            for number, own in enumerate(draft.words)
        ]
        filled = corrections.fill(filled, unheard, given)
    words: list[list[Word] | None] = []
    for own, complete in zip(draft.words, filled, strict=True):
        given_words, turns = corrections.add(complete, turns, added)
        words.append(None if own is None else given_words)
    return words, turns


@dataclass(frozen=True)
class _Said:
    """What one track adds to the transcript."""

    words: Sequence[Word] = ()
    unheard: Sequence[Utterance] = ()
    """Speech without words."""
    warnings: Sequence[str] = ()


def _said(
    draft: Draft,
    number: int,
    words: Sequence[Word] | None,
    merged: Mapping[str, str],
    given: Sequence[Correction],
    talk: corrections.Talk,
) -> _Said:
    """What a track adds, of which these are the words.

    A merge gives what two speakers said to one, and moves no other word: what a person sees in a page is what
    this makes of it.
    """
    spoken = draft.spoken[number]
    if words is None:
        own = united([_renamed(turn, merged) for turn in spoken])
        return _Said(unheard=[Utterance(turn.start, turn.end, turn.speaker or None) for turn in own])
    renamed = [
        structs.replace(word, speaker=merged.get(word.speaker, word.speaker)) if word.speaker else word
        for word in words
    ]
    moved = corrections.move(renamed, given, talk)
    unheard = [
        replace(one, speaker=one.speaker or None)
        for one in merging.inaudible(spoken, moved, draft.not_english[number], merged)
    ]
    spelled = corrections.spell(corrections.divide(moved, given), given)
    return _Said(spelled, unheard, tuple(_cross_check(spelled, unheard)))


def _in_order(said: Sequence[_Said], given: Sequence[Correction]) -> list[Utterance]:
    """The utterances of all tracks."""
    unheard = (replace(one, track=track) for track, part in enumerate(said) for one in part.unheard)
    heard = corrections.timed(merging.utterances(*(part.words for part in said)), given)
    return sorted([*heard, *unheard], key=_when)


def _earlier_names(head: Transcript, given: Sequence[Correction]) -> Iterator[Correction]:
    """The names that speakers of the draft have, without those of whom `given` names anew.

    Of two who are merged, who speaks first gives the name, as in a page.
    """
    talk = corrections.Talk(head.turns)
    anew = {talk.whose(one.speaker) for one in given if one.kind == "name"}
    first: dict[str, float] = {}
    for turn in head.turns:
        first[turn.speaker] = min(turn.start, first.get(turn.speaker, turn.start))
    for speaker in sorted(head.speakers, key=lambda one: first.get(one.id, 0.0), reverse=True):
        if speaker.name is not None and speaker.id not in anew:
            yield Correction("name", corrections.anchor(speaker.id, head.turns), speaker.name)


def _several_names(names: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for speaker, given in names.items():
        if len(given) > 1:
            yield f"{' and '.join(given)} are the same speaker; {speaker} is now called {given[-1]}"


def _cross_check(words: Sequence[Word], unheard: Sequence[Utterance]) -> Iterator[str]:
    """Where one engine heard something and the other did not."""
    if invented := sum(not word.supported for word in words):
        are = "is" if invented == 1 else "are"
        yield f"{number_of(invented, 'word')} where no speech was heard {are} only in the JSON and the page"
    if unheard := [one for one in unheard if not one.not_english]:
        seconds = sum(utterance.end - utterance.start for utterance in unheard)
        places = ", ".join(clock(utterance.start) for utterance in unheard[:5])
        more = ", ..." if len(unheard) > 5 else ""
        yield f"[inaudible]: {seconds:.0f} s of speech without words, at {places}{more}"


def ghosts(speakers: Sequence[Speaker], turns: Sequence[Turn]) -> list[str]:
    """The speakers that may be a fault of the diarizer: reported, since some are real, and never dropped."""
    longest: dict[str, float] = {}
    for turn in turns:
        longest[turn.speaker] = max(longest.get(turn.speaker, 0.0), turn.duration)
    return [one.id for one in speakers if one.share < GHOST_SHARE and longest[one.id] <= GHOST_TURN]


def _when(item: Word | Utterance) -> tuple[float, float]:
    return item.start, item.end


def _renamed(turn: Turn, names: Mapping[str, str]) -> Turn:
    return replace(turn, speaker=names.get(turn.speaker, turn.speaker))


def united(turns: Sequence[Turn]) -> list[Turn]:
    """The same turns, those of one speaker that overlap (merged from two tracks) as one."""
    last: dict[str, int] = {}
    united: list[Turn] = []
    for turn in turns:
        place = last.get(turn.speaker)
        if place is not None and turn.start <= united[place].end:
            united[place] = replace(united[place], end=max(united[place].end, turn.end))
        else:
            last[turn.speaker] = len(united)
            united.append(turn)
    return united


def _speakers(turns: Sequence[Turn], names: Mapping[str, str]) -> tuple[Speaker, ...]:
    seconds: dict[str, float] = {}
    for turn in turns:
        seconds[turn.speaker] = seconds.get(turn.speaker, 0.0) + turn.duration
    total = sum(seconds.values())
    return tuple(
        Speaker(key, spoken, spoken / total, names.get(key)) for key, spoken in sorted(seconds.items())
    )
