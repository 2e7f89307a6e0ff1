"""Turns + words -> who said each word, utterances, and where one engine heard what the other did not.

Each word is weighed by the speakers' activity around it, and a Viterbi pass decides for all words together: a
change of speaker has a cost, a smaller one where a sentence ends or somebody pauses. A short reply within
another speaker's sentence survives if its evidence is strong; a word at the edge of a turn does not flip, and
the first or last words of a sentence hardly ever do.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from msgspec import structs

from witness.schema import (
    BREATH,
    CLOSING,
    FRAME_DURATION,
    FRAME_STEP,
    LONG_PARAGRAPH,
    PARAGRAPH,
    PARAGRAPH_PAUSE,
    PHRASE_PAUSE,
    SENTENCE_ENDS,
    Bool,
    Evidence,
    Float64,
    Int,
    Turn,
    Utterance,
    Word,
)

# Seconds around a word that count, less and less: the recognizer's times are that inexact. Where two voices
# overlap, the one that goes on said the word more often than the one that stops.
REACH_BEFORE, REACH_AFTER = 0.15, 0.35
LEAST_SUPPORT = 0.05  # of full activity; below it nobody is heard speaking
FLOOR = 0.02  # share of the evidence left to speakers who show none: a word's time may be quite wrong
CHANGE_COST = 1.0  # nats: evidence below e^2 to 1 does not change the speaker of a single word
CHANGE_COST_AT_BREAK = 0.3  # nats
CHANGE_COST_OF_FEW = 1.3  # nats: within a sentence, where fewer than FEW of its words lie on one side
FEW = 4
OVERLAP_SHARE = 0.5  # of a word's frames
TIMELESS = 0.05  # seconds: a word that is given less has no time of its own
NEAR = 1.5  # seconds: a recognizer can put the first or last word of a sentence that far into a pause
INAUDIBLE = 2.0  # seconds of speech without a word that are worth marking
NOT_ENGLISH = 0.5  # seconds of speech that an English model was not to write


def label(words: Sequence[Word], evidence: Evidence, active: Bool, names: Sequence[str]) -> list[Word]:
    """The same words with speaker, confidence, overlap and support filled in.

    `evidence` and `active` cover the same frames and speakers; `active`, (frames, speakers), is the final
    decision. `names` are the speakers' ids. A word where nobody is heard gets no speaker; but if most of its
    sentence is heard, and some of that less than NEAR away, its time is wrong and the evidence there counts.
    A word that takes less than TIMELESS goes with the word before it in its sentence, or after it, and is as
    sure as the evidence at its own time.
    """
    return settled(words, evidence, active, names)[0]


def settled(
    words: Sequence[Word], evidence: Evidence, active: Bool, names: Sequence[str]
) -> tuple[list[Word], int]:
    """As `label`; and how many of the words have the labels that they keep, whatever words follow."""
    if not words or not names:
        return [structs.replace(word, speaker=None, supported=False) for word in words], len(words)
    shares = np.array([_around(word, evidence) for word in words])  # (words, speakers)
    total = shares.sum(axis=1)
    heard_at = _heard_at(words, total >= LEAST_SUPPORT)
    supported = heard_at >= 0
    own = shares / np.maximum(total, 1e-9)[:, None]
    shares = own[_timed_at(words, heard_at)]
    scores = np.where(supported[:, None], np.log(shares + FLOOR), 0.0)
    path, came_from = _viterbi(scores, _change_costs(words))
    labeled = [
        structs.replace(
            word,
            speaker=names[speaker] if heard else None,
            speaker_confidence=float(min(share[speaker], there[speaker])) if heard else None,
            overlap=_overlapped(word, active),
            supported=bool(heard),
        )
        for word, speaker, share, there, heard in zip(
            words, path, shares, own[heard_at], supported, strict=True
        )
    ]
    # What a sentence is given depends on all of it.
    whole = next((place for place in range(len(words), 0, -1) if _ends_sentence(words[place - 1])), 0)
    return labeled, _agreed(came_from[:whole])


def utterances(*tracks: Sequence[Word]) -> list[Utterance]:
    """Labeled words of each track, in order -> utterances: what a speaker says without interruption.

    They end where the speaker changes or is silent for PARAGRAPH_PAUSE; and after a phrase during which
    somebody begins to speak in another track. A person may have said that one begins at a word, or that none
    does. One that is longer than LONG_PARAGRAPH is cut into parts of at least PARAGRAPH: at the end of a
    sentence if one ends there, and of the places that remain at the longest pause. They are in the order in
    which they begin.
    """
    groups: list[tuple[int, list[Word]]] = []
    latest: dict[int, list[Word]] = {}  # track -> its latest group
    open_: set[int] = set()  # tracks whose latest group was not interrupted
    phrases = [[(track, phrase) for phrase in _phrases(words)] for track, words in enumerate(tracks)]
    for track, phrase in heapq.merge(*phrases, key=lambda one: one[1][0].start):
        if track in latest and _goes_on(latest[track][-1], phrase[0], track in open_):
            latest[track] += phrase
        else:
            groups.append((track, phrase))
            latest[track] = phrase
        if phrase[0].supported:  # what nobody said interrupts nobody
            open_ = set()
        open_.add(track)
    found = [
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
    return sorted(found, key=lambda utterance: utterance.start)


def _phrases(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Consecutive words of one speaker up to the end of a sentence or a pause."""
    phrase: list[Word] = []
    for word in words:
        if phrase and (word.begins or word.speaker != phrase[-1].speaker or _parted(phrase[-1], word)):
            yield phrase
            phrase = []
        phrase.append(word)
    if phrase:
        yield phrase


def inaudible(
    turns: Sequence[Turn],
    words: Sequence[Word],
    not_english: Sequence[tuple[float, float]] = (),
    merged: Mapping[str, str] = {},
) -> list[Utterance]:
    """Utterances without words: INAUDIBLE seconds or more of speech in which no word was recognized, and of
    what is `not_english` NOT_ENGLISH seconds or more.

    `turns` do not overlap, and `words` are in order; both are of one track. A stretch belongs to the speaker
    who speaks for more than half of it; if nobody does, its speaker is not known. In another language each
    turn is a stretch. `merged`: speaker -> whom they were merged into, which moves no edge of a stretch.
    """

    def foreign(start: float, end: float) -> bool:
        return any(first <= (start + end) / 2 <= last for first, last in not_english)

    stretches: list[list[Turn]] = []
    for part in _without_words(turns, words):
        other = bool(stretches) and part.speaker != stretches[-1][-1].speaker
        parted = not stretches or _apart(stretches[-1][-1].end, part.start, words)
        if parted or (other and foreign(part.start, part.end)):
            stretches.append([])
        stretches[-1].append(part)
    found: list[Utterance] = []
    for parts in stretches:
        start, end = parts[0].start, parts[-1].end
        marked = foreign(start, end)
        if sum(part.duration for part in parts) < (NOT_ENGLISH if marked else INAUDIBLE):
            continue
        speaker = _speaker_of_most(
            [replace(one, speaker=merged.get(one.speaker, one.speaker)) for one in parts]
        )
        if found and found[-1].speaker == speaker and not _apart(found[-1].end, start, words):
            found[-1] = replace(found[-1], end=end)
        else:
            found.append(Utterance(start, end, speaker, not_english=marked))
    return found


def _apart(end: float, start: float, words: Sequence[Word]) -> bool:
    """Whether a pause or a word is between two parts of speech without words."""
    between = bisect_left(words, end, key=lambda word: word.start)
    return start - end >= BREATH or (between < len(words) and words[between].start <= start)


def _speaker_of_most(turns: Sequence[Turn]) -> str | None:
    """Who speaks for more than half of the time that these turns take together; None: nobody."""
    seconds: dict[str, float] = {}
    for turn in turns:
        seconds[turn.speaker] = seconds.get(turn.speaker, 0.0) + turn.duration
    most = max(seconds, key=lambda speaker: seconds[speaker])
    return most if seconds[most] > sum(seconds.values()) / 2 else None


def _without_words(turns: Sequence[Turn], words: Sequence[Word]) -> Iterator[Turn]:
    """The parts of the turns in which there is no word, in order."""
    for turn in sorted(turns):
        first = bisect_right(words, turn.start, key=lambda word: word.end)
        place = turn.start
        for word in words[first : bisect_left(words, turn.end, key=lambda word: word.start)]:
            if word.start > place:
                yield replace(turn, start=place, end=word.start)
            place = max(place, word.end)
        if place < turn.end:
            yield replace(turn, start=place)


def _goes_on(before: Word, word: Word, uninterrupted: bool) -> bool:
    near = uninterrupted and word.start - before.end < PARAGRAPH_PAUSE
    return word.speaker == before.speaker and not word.begins and (near or word.begins is False)


def _paragraphs(words: list[Word]) -> Iterator[list[Word]]:
    """What one speaker says, in parts that can be read."""
    while words[-1].end - words[0].start > LONG_PARAGRAPH:
        first = bisect_left(words, words[0].start + PARAGRAPH, key=lambda word: word.end) + 1
        last = bisect_right(words, words[0].start + LONG_PARAGRAPH, key=lambda word: word.end)
        if first > min(last, len(words) - 1):  # one word takes as long
            break
        places = [
            place for place in range(first, min(last, len(words) - 1) + 1) if words[place].begins is not False
        ]
        if not places:  # a person wants it whole
            break
        cut = max(
            places,
            key=lambda place: (
                _ends_sentence(words[place - 1]),
                words[place].start - words[place - 1].end,
            ),
        )
        yield words[:cut]
        words = words[cut:]
    yield words


def _ends_sentence(word: Word) -> bool:
    return word.text.rstrip(CLOSING).endswith(tuple(SENTENCE_ENDS))


def _around(word: Word, evidence: Evidence) -> Float64:
    """(speakers,): mean activity of each speaker; frames outside the word fade out."""
    first = max(0, int((word.start - REACH_BEFORE - FRAME_DURATION / 2) / FRAME_STEP))
    last = int((word.end + REACH_AFTER - FRAME_DURATION / 2) / FRAME_STEP) + 2
    near = evidence[first:last]
    middles = np.arange(first, first + len(near)) * FRAME_STEP + FRAME_DURATION / 2
    beyond = np.maximum((word.start - middles) / REACH_BEFORE, (middles - word.end) / REACH_AFTER)
    weights = np.clip(1.0 - np.maximum(beyond, 0.0), 0.0, 1.0)
    mean: Float64 = weights @ near / max(float(weights.sum()), 1e-9)
    return mean


def _overlapped(word: Word, active: Bool) -> bool:
    first = int(word.start / FRAME_STEP)
    frames = active[first : max(first + 1, int(word.end / FRAME_STEP))]
    return bool(len(frames)) and float((frames.sum(axis=1) > 1).mean()) >= OVERLAP_SHARE


def _change_costs(words: Sequence[Word]) -> Float64:
    """(words,): the cost of a change of speaker before each word."""
    breaks = np.array([True, *(_breaks(before, word) for before, word in pairwise(words)), True])
    places = np.arange(len(words))
    ends = np.flatnonzero(breaks)
    since = (
        places - ends[np.searchsorted(ends, places, "right") - 1]
    )  # words of the sentence before the change
    until = ends[np.searchsorted(ends, places, "left")] - places  # and after it
    few = np.minimum(since, until) < FEW
    return np.where(breaks[:-1], CHANGE_COST_AT_BREAK, np.where(few, CHANGE_COST_OF_FEW, CHANGE_COST))


def _breaks(before: Word, word: Word) -> bool:
    """Whether a sentence ends between two words, or somebody pauses."""
    return _ends_sentence(before) or word.start - before.end >= PHRASE_PAUSE


def _parted(before: Word, word: Word) -> bool:
    """As `_breaks`, to the millisecond, since the page must come to the same answer."""
    return _ends_sentence(before) or round(word.start - before.end, 3) >= PHRASE_PAUSE


def _heard_at(words: Sequence[Word], heard: Bool) -> Int:
    """(words,): the word whose evidence each one gets, its own if it is heard; -1: it is not heard at all."""
    at = np.where(heard, np.arange(len(words)), -1)
    sentences = np.cumsum([0, *map(_ends_sentence, words[:-1])])
    mostly = np.bincount(sentences, heard) > np.bincount(sentences) / 2
    known = np.flatnonzero(heard)
    for place in np.flatnonzero(~heard & mostly[sentences]).tolist():
        following = int(np.searchsorted(known, place))
        gaps = {
            int(other): max(words[place].start - words[other].end, words[other].start - words[place].end)
            for other in known[max(0, following - 1) : following + 1]
            if sentences[other] == sentences[place]
        }
        if gaps and min(gaps.values()) < NEAR:
            at[place] = min(gaps, key=lambda other: gaps[other])
    return at


def _agreed(came_from: Int) -> int:
    """How many of the words, (words, speakers), all paths have alike that any words to come can choose."""
    ends = set(range(came_from.shape[1]))
    for place in range(len(came_from) - 1, -1, -1):
        if len(ends) == 1:
            return place + 1
        ends = {int(came_from[place][end]) for end in ends}
    return 0


def _timed_at(words: Sequence[Word], heard_at: Int) -> Int:
    """(words,): the same as `heard_at`; for a word without a time, that of a neighbor in its sentence."""
    at = heard_at.copy()
    for place, word in enumerate(words):
        if word.end - word.start >= TIMELESS:
            continue
        if place and not _ends_sentence(words[place - 1]):
            near = place - 1
        elif place + 1 < len(words) and not _ends_sentence(word):
            near = place + 1
        else:
            continue
        if heard_at[place] >= 0 and at[near] >= 0:
            at[place] = at[near]
    return at


def _viterbi(scores: Float64, change_costs: Float64) -> tuple[Int, Int]:
    """(words,): the path through (words, speakers) log scores with the largest sum, changes paid for; and
    (words, speakers): through whom of the word before the best path to each comes."""
    best = scores[0].copy()
    came_from = np.zeros(scores.shape, np.intp)
    everyone = np.arange(scores.shape[1])
    for place in range(1, len(scores)):
        leader = int(best.argmax())
        changed = best[leader] - change_costs[place]
        came_from[place] = np.where(best >= changed, everyone, leader)
        best = np.maximum(best, changed) + scores[place]
    path = np.empty(len(scores), np.intp)
    path[-1] = best.argmax()
    for place in range(len(scores) - 1, 0, -1):
        path[place - 1] = came_from[place, path[place]]
    return path, came_from
