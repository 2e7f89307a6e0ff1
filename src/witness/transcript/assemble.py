"""What the models found -> a transcript: who speaks, who said each word, what people corrected.

`witness redo` is these three alone. The models may have been given a part of the recording only; here, where
frames become turns and words get their speakers, times become those of the recording.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from witness.diarization import clustering, reconstruction, vbx, voices
from witness.errors import UsageError
from witness.formats.document import MOST_CORRECTIONS
from witness.options import Bounds, Layout, Mode, Part
from witness.reporter import SILENT, Reporter
from witness.schema import (
    FRAME_STEP,
    NO_SPEECH,
    Correction,
    Count,
    Findings,
    Recognition,
    Spans,
    Speaker,
    Track,
    Transcript,
    Turn,
    Utterance,
    Word,
    alone,
)
from witness.text import clock
from witness.text import count as number_of
from witness.tracing import Stopwatch
from witness.transcript import corrections, merging, replacements

STAGES = ("decode", "segmentation", "embedding", "clustering", "transcription", "merging")
"""In this order in `Transcript.timing`; a stage that did not run is None there."""

GHOST_SHARE = 0.02  # of all speech; this and GHOST_TURN are noScribe's rule, right for 69 % of what it names
GHOST_TURN = 2.0  # seconds

# Of each of several people on one side of a call: docs/decisions/2026-11-22-calls-and-turns.md.
SIDE_SECONDS, SIDE_SHARE = 10.0, 0.2  # least clean speech: seconds, or the share of the side if that is less
SIDE_APART = 1.25  # least distance of two voiceprints, in thresholds of the rule


@dataclass(frozen=True)
class Diarized:
    """Who speaks in one track, by the columns of `diarization`; two columns of one name are one speaker."""

    names: list[str]
    diarization: reconstruction.Diarization
    count: Count

    def turns(self, part: Part, *, exclusive: bool = False) -> list[Turn]:
        """In the recording, of which the models heard `part`; `exclusive`: only one speaker at a time."""
        active = self.diarization.active
        if exclusive:
            active = self.diarization.exclusive()[:, None] == np.arange(len(self.names))
            reconstruction.drop_flickers(active)
        turns = reconstruction.turns(active.T, self.names, part.duration)
        return [replace(turn, start=turn.start + part.start, end=turn.end + part.start) for turn in turns]

    def steadied(self) -> Diarized:
        """Without turns that nobody could hear; once pauses are filled, in which they may lie."""
        diarization = self.diarization.steadied()
        return Diarized(self.names[: diarization.active.shape[1]], diarization, self.count)

    def renamed(self, names: Mapping[str, str]) -> Diarized:
        """With other names; speakers who get the same one become one."""
        merged = [names.get(name, name) for name in self.names]
        unique = list(dict.fromkeys(merged))
        return Diarized(unique, self.diarization.merged([unique.index(name) for name in merged]), self.count)


@dataclass(frozen=True)
class Who:
    """Who speaks when, before anybody corrected it."""

    findings: Findings
    asked: Bounds
    tracks: tuple[Diarized, ...]
    """One for each of `findings.tracks`."""

    @cached_property
    def turns(self) -> list[Turn]:
        """Of all tracks, sorted."""
        return sorted(turn for track in self.tracks for turn in track.turns(self.findings.audio.heard))

    @property
    def counts(self) -> list[int]:
        """How many speakers there are: in each track, or on both sides of a call together."""
        if self.findings.channels == Layout.CALL:
            return [len({name for track in self.tracks for name in track.names})]
        return [len(track.names) for track in self.tracks]


@dataclass(frozen=True)
class Draft:
    """Who said what, before anybody corrected it."""

    who: Who
    words: tuple[list[Word] | None, ...]
    """Of each track, with their speakers; None: nobody listened for words there."""
    not_english: tuple[Spans, ...]
    """Of each track: where in the recording an English model was given another language."""
    recognitions: tuple[Recognition, ...]
    """Of the tracks in which somebody did."""


def redo(
    findings: Findings,
    asked: Bounds = Bounds(),
    given: Sequence[Correction] = (),
    reporter: Reporter = SILENT,
) -> Transcript:
    """A transcript from what the models found earlier, with another number of speakers and corrections.

    No model runs and no file is read. Raises UsageError if nothing can satisfy `asked`.
    """
    begun, watch = time.perf_counter(), Stopwatch()
    with watch.stage("clustering"):
        speakers = who(findings, asked, reporter)
    with watch.stage("merging"):
        draft = words(speakers, [track.recognition for track in findings.tracks])
        transcript = corrected(draft, given, reporter=reporter)
    return replace(transcript, timing=timing(watch, time.perf_counter() - begun, None))


def draft(findings: Findings, asked: Bounds = Bounds()) -> Draft:
    """What `redo` corrects; whoever keeps it can correct it many times. Raises UsageError."""
    return words(who(findings, asked), [track.recognition for track in findings.tracks])


def voiceprints(findings: Findings, asked: Bounds = Bounds()) -> dict[str, voices.Print]:
    """Speaker -> print, of the speakers that `redo` would find."""
    return _prints(findings, who(findings, asked).tracks)


def bounds(asked: Bounds) -> clustering.SpeakerBounds:
    """How many speakers there may be. Raises UsageError if nothing can satisfy it."""
    if asked.speakers is not None and (asked.min_speakers, asked.max_speakers) != (None, None):
        raise UsageError("--speakers is an exact number; leave out --min-speakers and --max-speakers")
    least = asked.min_speakers if asked.speakers is None else asked.speakers
    most = asked.max_speakers if asked.speakers is None else asked.speakers
    return clustering.SpeakerBounds(1 if least is None else least, most)


def timing(watch: Stopwatch, wall: float, mode: Mode | None) -> dict[str, float | str | None]:
    """`Transcript.timing`; `mode` is None if no words were recognized."""
    return {**{stage: watch.seconds.get(stage) for stage in STAGES}, "wall": wall, "mode": mode}


# --- who speaks ---


def who(findings: Findings, asked: Bounds = Bounds(), reporter: Reporter = SILENT) -> Who:
    """Cluster the voices of each track and put its windows together. Raises UsageError."""
    reporter.progress("clustering", 0, 1)
    wanted = bounds(asked)
    if findings.channels == Layout.CALL:
        tracks = _sides(findings, wanted)
    else:
        tracks = [_diarize(findings, number, wanted) for number in range(len(findings.tracks))]
    reconstruction.fill_pauses([track.diarization.active for track in tracks], findings.rule.pause)
    reporter.progress("clustering", 1, 1)
    return Who(findings, asked, tuple(track.steadied() for track in tracks))


def _sides(findings: Findings, wanted: clustering.SpeakerBounds) -> list[Diarized]:
    """Who speaks on each side of a call: two sides never share a speaker, and `wanted` is for both."""
    most = None if wanted.most is None else max(1, wanted.most - 1)
    free = [_side(findings, side, clustering.SpeakerBounds(1, most)) for side in (0, 1)]
    counts = [len(side.names) for side in free]
    if wanted.most == 1:
        return [side.renamed(dict.fromkeys(side.names, "SPEAKER_00")) for side in free]
    least, total = wanted.least, sum(counts)
    target = max(least, total if wanted.most is None else min(wanted.most, total))
    if total == target or not all(counts):
        return free
    # The split that changes what was found the least; where two are as good, the first side has more.
    first = min(range(target - 1, 0, -1), key=lambda n: abs(n - counts[0]) + abs(target - n - counts[1]))
    shares = (first, target - first)
    return [
        _diarize(findings, side, clustering.SpeakerBounds(share, share)) for side, share in enumerate(shares)
    ]


def _side(findings: Findings, number: int, wanted: clustering.SpeakerBounds) -> Diarized:
    """Who speaks on a side of a call: one person, unless there are several who are clearly strangers.

    What is left of the other side's voice, of noise and of what a telephone does to a voice is soon taken for
    another person: docs/decisions/2026-11-22-calls-and-turns.md.
    """
    found = _diarize(findings, number, wanted)
    while len(found.names) > 1 and not _strangers(findings, number, found):
        fewer = len(found.names) - 1
        found = _diarize(findings, number, clustering.SpeakerBounds(fewer, fewer))
    return found


def _strangers(findings: Findings, number: int, who: Diarized) -> bool:
    """Whether each of them speaks long enough to be known, and no two could be one person."""
    prints = list(_track_prints(findings.tracks[number], who).values())
    needed = min(SIDE_SECONDS, SIDE_SHARE * sum(one.seconds for one in prints))
    apart = SIDE_APART * findings.rule.threshold
    return all(one.seconds >= needed for one in prints) and all(
        math.dist(one.vector, other.vector) >= apart for one, other in combinations(prints, 2)
    )


def _diarize(findings: Findings, number: int, wanted: clustering.SpeakerBounds) -> Diarized:
    track = findings.tracks[number]
    prefix = "" if findings.channels == Layout.MIX else f"CH{number + 1}_"
    clusters = clustering.cluster(
        track.vectors,
        track.windows.active,
        findings.rule,
        step=track.windows.step,
        bounds=wanted,
        plda=vbx.from_parameters(findings.plda) if findings.plda else None,
    )
    diarization = reconstruction.reconstruct(track.windows, clusters.labels, most=wanted.most)
    names = [f"{prefix}SPEAKER_{number:02d}" for number in range(diarization.active.shape[1])]
    return Diarized(names, diarization, clusters.count)


# --- who said each word ---


def words(who: Who, recognitions: Sequence[Recognition | None]) -> Draft:
    """Give each word of each track its speaker, and its time in the recording."""
    start = who.findings.audio.heard.start
    labeled = tuple(
        None
        if heard is None
        else [
            replace(word, start=word.start + start, end=word.end + start)
            for word in merging.label(
                heard.words, track.diarization.evidence, track.diarization.active, track.names
            )
        ]
        for track, heard in zip(who.tracks, recognitions, strict=True)
    )
    not_english = tuple(
        tuple((first + start, last + start) for first, last in heard.not_english) if heard else ()
        for heard in recognitions
    )
    return Draft(who, labeled, not_english, tuple(heard for heard in recognitions if heard is not None))


# --- what people corrected ---


def corrected(
    draft: Draft,
    given: Sequence[Correction] = (),
    *,
    known: voices.Known | None = None,
    replaced: Sequence[tuple[str, str]] = (),
    reporter: Reporter = SILENT,
) -> Transcript:
    """The transcript, with the corrections applied, the names of those whose voices are `known`, and words
    `replaced` (`replacements`).

    Its timing is empty. It holds the warnings of the findings and its own, which `reporter` is told.
    """
    who, findings = draft.who, draft.who.findings
    warnings = list(findings.warnings)
    for line in _about_speakers(who):
        warnings.append(line)
        reporter.note(line)
    # What somebody corrected comes later, and so counts more.
    given = (*replacements.corrections(draft.words, replaced)[:MOST_CORRECTIONS], *given)
    added = _added(who, given)
    draft, found = _completed(draft, given, added)
    merged = corrections.merges(given, corrections.Talk(found))
    turns = _united(sorted(_renamed(turn, merged) for turn in found))
    if known is not None:
        given = (*_recognized(who, merged, turns, known, reporter), *given)
    talk = corrections.Talk(turns)
    said = [_said(draft, number, merged, given, talk) for number in range(len(who.tracks))]
    lines = [line for one in said for line in one.warnings]
    names = corrections.names(given, talk)
    speakers = _speakers(turns, {speaker: all_names[-1] for speaker, all_names in names.items()})
    lines += _several_names(names)
    lines += [
        f"{name} may be spurious: little speech in total, and never more than {GHOST_TURN:.0f} s at a time"
        for name in ghosts(speakers, turns)
        if name not in added.values()
    ]
    for line in lines:
        warnings.append(line)
        reporter.note(line)
    return Transcript(
        audio=findings.audio,
        models=findings.models,
        device=findings.device,
        timing={},
        language=next((heard.language for heard in draft.recognitions if heard.language), None),
        speakers=speakers,
        turns=tuple(turns),
        utterances=tuple(_in_order(said)),
        words=tuple(sorted((word for one in said for word in one.words), key=_when)),
        warnings=tuple(warnings),
        machine=findings.machine,
        counts=tuple(track.count for track in who.tracks),
        findings=findings,
        fast=findings.fast,
        asked=who.asked,
        corrections=tuple(given),
    )


def _added(who: Who, given: Sequence[Correction]) -> dict[Correction, str]:
    """The speakers whom a person added, each with an id that nobody has."""
    taken = {name for track in who.tracks for name in track.names}
    free = (name for n in itertools.count(len(taken)) if (name := f"SPEAKER_{n:02d}") not in taken)
    return dict(zip((one for one in dict.fromkeys(given) if one.kind == "new"), free, strict=False))


def _completed(
    draft: Draft, given: Sequence[Correction], added: Mapping[Correction, str]
) -> tuple[Draft, list[Turn]]:
    """The draft and its turns, with the words and the speakers that were missing."""
    part, turns = draft.who.findings.audio.heard, draft.who.turns
    tracks = [labeled or [] for labeled in draft.words]
    if any(one.kind == "fill" for one in given):
        unheard = [
            []
            if labeled is None
            else merging.inaudible(track.turns(part, exclusive=True), labeled, draft.not_english[number])
            for number, (track, labeled) in enumerate(zip(draft.who.tracks, draft.words, strict=True))
        ]
        tracks = corrections.fill(tracks, unheard, given)
    words: list[list[Word] | None] = []
    for labeled, complete in zip(draft.words, tracks, strict=True):
        given_words, turns = corrections.add(complete, turns, added)
        words.append(None if labeled is None else given_words)
    return replace(draft, words=tuple(words)), turns


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
    merged: Mapping[str, str],
    given: Sequence[Correction],
    talk: corrections.Talk,
) -> _Said:
    """A merge gives what two speakers said to one, and moves no other word: what a person sees in a page is
    what this makes of it."""
    part = draft.who.findings.audio.heard
    turns = draft.who.tracks[number].turns(part, exclusive=True)
    labeled = draft.words[number]
    if labeled is None:
        only = _united([_renamed(turn, merged) for turn in turns])
        return _Said(unheard=[Utterance(turn.start, turn.end, turn.speaker) for turn in only])
    renamed = [
        replace(word, speaker=merged.get(word.speaker, word.speaker)) if word.speaker else word
        for word in labeled
    ]
    moved = corrections.move(renamed, given, talk)
    unheard = merging.inaudible(turns, moved, draft.not_english[number], merged)
    spelled = corrections.spell(corrections.divide(moved, given), given)
    return _Said(spelled, unheard, tuple(_cross_check(spelled, unheard)))


def _in_order(said: Sequence[_Said]) -> list[Utterance]:
    """The utterances of all tracks."""
    unheard = (replace(one, track=track) for track, part in enumerate(said) for one in part.unheard)
    return sorted([*merging.utterances(*(part.words for part in said)), *unheard], key=_when)


def _about_speakers(who: Who) -> Iterator[str]:
    """Where the number of speakers is not what was asked for, and where there are none."""
    wanted = bounds(who.asked)
    for count in who.counts:
        if count and count not in wanted:
            yield f"{wanted} were asked for, but only {count} could be told apart"
    if not who.turns:
        yield NO_SPEECH


def _recognized(
    who: Who, merged: Mapping[str, str], turns: Sequence[Turn], known: voices.Known, reporter: Reporter
) -> Iterator[Correction]:
    """The names of the speakers whose voices are known."""
    prints = _prints(who.findings, [track.renamed(merged) for track in who.tracks])
    named = []
    for speaker, (voice, score) in voices.recognize(prints, known).items():
        reporter.note(f"{speaker} sounds like {voice.name} (score {score:.1f}, {voices.THRESHOLD} needed)")
        named.append(Correction("name", corrections.anchor(speaker, turns), voice.name))
    return reversed(named)


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


def _prints(findings: Findings, tracks: Sequence[Diarized]) -> dict[str, voices.Print]:
    prints: dict[str, voices.Print] = {}
    for track, who in zip(findings.tracks, tracks, strict=True):
        for name, one in _track_prints(track, who).items():
            prints[name] = prints[name] + one if name in prints else one
    return prints


def _track_prints(track: Track, who: Diarized) -> dict[str, voices.Print]:
    seconds = [float(count) * FRAME_STEP for count in alone(who.diarization.active).sum(axis=0)]
    owners = reconstruction.owners(track.windows, who.diarization.active)
    return dict(zip(who.names, voices.prints(track, owners, seconds), strict=True))


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


def _united(turns: Sequence[Turn]) -> list[Turn]:
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
