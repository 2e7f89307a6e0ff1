"""Results of the models -> a draft of a transcript: speakers by time, and the speaker of each word.

`witness redo` repeats this and applies corrections (`corrections`). The models may have read a part of the
recording; frames become times in the whole recording here.

Each word is weighed by the speakers' activity around it, and a Viterbi pass decides for all words together: a
change of speaker has a cost, a smaller one where a sentence ends or a pause begins. A short reply within
another speaker's sentence survives if its evidence is strong; a word at the edge of a turn does not flip, and
the first or last words of a sentence hardly ever do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np
from msgspec import structs

from witness.diarization import clustering, reconstruction, vbx, voices
from witness.errors import UsageError
from witness.formats.json_document import MOST_CORRECTIONS
from witness.options import Bounds, Layout, Mode, Part
from witness.progress import SILENT, Reporter
from witness.schema import (
    FIRST_SPEAKER,
    FRAME_DURATION,
    FRAME_STEP,
    NO_SPEECH,
    PHRASE_PAUSE,
    Bool,
    Correction,
    Count,
    Evidence,
    Findings,
    Float64,
    Int,
    Recognition,
    Track,
    Transcript,
    Turn,
    Word,
    sole_speech,
    speaker_id,
)
from witness.tracing import Stopwatch
from witness.transcript import corrections
from witness.transcript.corrections import ends_sentence

STAGES = ("decode", "segmentation", "embedding", "clustering", "transcription", "merging")
"""Keys of `Transcript.timing`, in order; a stage that did not run has None."""

# Conditions for several people on one side of a call: docs/decisions/2026-11-22-calls-and-turns.md.
SIDE_SECONDS, SIDE_SHARE = 10.0, 0.2  # least clean speech: seconds, or the share of the side if that is less
SIDE_APART = 1.25  # least distance of two voiceprints, in thresholds of the rule

# Seconds around a word that count, less and less: the recognizer's times are that inexact. Where two voices
# overlap, the speaker who continues said the word more often than the one who stops.
REACH_BEFORE, REACH_AFTER = 0.15, 0.35
LEAST_SUPPORT = 0.05  # of full activity; with less a word has no speaker
FLOOR = 0.02  # share of the evidence left to speakers who show none: a word's time may be quite wrong
CHANGE_COST = 1.0  # nats: evidence below e^2 to 1 does not change the speaker of a single word
CHANGE_COST_AT_BREAK = 0.3  # nats
CHANGE_COST_OF_FEW = 1.3  # nats: within a sentence, with fewer than FEW of its words on one side
FEW = 4
OVERLAP_SHARE = 0.5  # of a word's frames
TIMELESS = 0.05  # seconds: a shorter word has no time of its own
NEAR = 1.5  # seconds: a recognizer can put the first or last word of a sentence that far into a pause


@dataclass(frozen=True)
class DiarizedTrack:
    """Speakers of one track, by the columns of `diarization`; two columns of one name are one speaker."""

    names: list[str]
    diarization: reconstruction.Diarization
    count: Count

    def turns(self, part: Part, *, exclusive: bool = False) -> list[Turn]:
        """Return turns in the time of the recording; the models read `part`. `exclusive`: one at a time."""
        active = self.diarization.active
        if exclusive:
            active = self.diarization.exclusive()[:, None] == np.arange(len(self.names))
            reconstruction.drop_flickers(active)
        turns = reconstruction.turns(active.T, self.names, part.duration)
        return [replace(turn, start=turn.start + part.start, end=turn.end + part.start) for turn in turns]

    def steadied(self) -> DiarizedTrack:
        """Drop inaudibly short turns, once pauses that contain them are filled."""
        diarization = self.diarization.steadied()
        return DiarizedTrack(self.names[: diarization.active.shape[1]], diarization, self.count)

    def renamed(self, names: Mapping[str, str]) -> DiarizedTrack:
        """Rename speakers; speakers with equal new names become one."""
        merged = [names.get(name, name) for name in self.names]
        unique = list(dict.fromkeys(merged))
        columns = [unique.index(name) for name in merged]
        return DiarizedTrack(unique, self.diarization.merged(columns), self.count)

    def add_prints(self, prints: dict[str, voices.Print], track: Track) -> None:
        """Add the voices of the track to `prints`: speaker -> print."""
        active = self.diarization.active
        add_prints(prints, self.names, track, reconstruction.owners(track.windows, active), active)


@dataclass(frozen=True)
class DiarizedRecording:
    """Speakers by time, before any correction."""

    findings: Findings
    asked: Bounds
    tracks: tuple[DiarizedTrack, ...]
    """One for each of `findings.tracks`."""
    first_speaker: int = FIRST_SPEAKER
    """As in `Transcript`."""

    def numbered(self) -> DiarizedRecording:
        """Number the speakers of all tracks in the order of their first turns."""
        ids = [turn.speaker for turn in self.turns] + [name for track in self.tracks for name in track.names]
        numbers = {
            old: speaker_id(number, old.partition("SPEAKER_")[0])
            for number, old in enumerate(dict.fromkeys(ids), start=self.first_speaker)
        }
        tracks = (replace(track, names=[numbers[name] for name in track.names]) for track in self.tracks)
        return replace(self, tracks=tuple(tracks))

    @cached_property
    def turns(self) -> list[Turn]:
        """Turns of all tracks, sorted."""
        part = self.findings.audio.transcribed
        return sorted(turn for track in self.tracks for turn in track.turns(part))

    @property
    def counts(self) -> list[int]:
        """Number of speakers in each track, or on both sides of a call together."""
        if self.findings.channels == Layout.CALL:
            return [len({name for track in self.tracks for name in track.names})]
        return [len(track.names) for track in self.tracks]

    def voiceprints(self) -> dict[str, voices.Print]:
        """Return speaker -> print, over all tracks."""
        prints: dict[str, voices.Print] = {}
        for track, diarized in zip(self.findings.tracks, self.tracks, strict=True):
            diarized.add_prints(prints, track)
        return prints


def make_draft(
    findings: Findings,
    asked: Bounds = Bounds(),
    reporter: Reporter = SILENT,
    first_speaker: int = FIRST_SPEAKER,
) -> corrections.Draft:
    """Make a draft of earlier findings, with another number of speakers if `asked`. Raises UsageError.

    No model runs, and no file is read.
    """
    speakers = diarize(findings, asked, reporter, first_speaker)
    return label_words(speakers, [track.recognition for track in findings.tracks], reporter)


def speaker_bounds(asked: Bounds) -> clustering.SpeakerBounds:
    """Return the allowed numbers of speakers. Raises UsageError for contradictory options."""
    if asked.speakers is not None and (asked.min_speakers, asked.max_speakers) != (None, None):
        raise UsageError("--speakers is an exact number; leave out --min-speakers and --max-speakers")
    fewest = asked.min_speakers if asked.speakers is None else asked.speakers
    limit = asked.max_speakers if asked.speakers is None else asked.speakers
    return clustering.SpeakerBounds(1 if fewest is None else fewest, limit)


def timing(watch: Stopwatch, wall: float, mode: Mode | None) -> dict[str, float | str | None]:
    """Return `Transcript.timing`; `mode` is None without word recognition."""
    return {**{stage: watch.seconds.get(stage) for stage in STAGES}, "wall": wall, "mode": mode}


# --- speakers ---


def diarize(
    findings: Findings,
    asked: Bounds = Bounds(),
    reporter: Reporter = SILENT,
    first_speaker: int = FIRST_SPEAKER,
) -> DiarizedRecording:
    """Cluster the voices of each track and put its windows together. Raises UsageError.

    The numbers of transcripts of earlier versions, whose `first_speaker` is 0, begin again in each track.
    """
    reporter.progress("clustering", 0, 1)
    bounds = speaker_bounds(asked)
    if findings.channels == Layout.CALL:
        tracks = _diarize_sides(findings, bounds)
    else:
        tracks = [_diarize_track(findings, number, bounds) for number in range(len(findings.tracks))]
    reconstruction.fill_pauses([track.diarization.active for track in tracks], findings.rule.pause)
    reporter.progress("clustering", 1, 1)
    speakers = DiarizedRecording(findings, asked, tuple(track.steadied() for track in tracks), first_speaker)
    return speakers.numbered() if first_speaker else speakers


def _diarize_sides(findings: Findings, bounds: clustering.SpeakerBounds) -> list[DiarizedTrack]:
    """Diarize both sides of a call, which never share a speaker; `bounds` holds for both together."""
    limit = None if bounds.most is None else max(1, bounds.most - 1)
    free = [_diarize_side(findings, side, clustering.SpeakerBounds(1, limit)) for side in (0, 1)]
    counts = [len(side.names) for side in free]
    if bounds.most == 1:
        return [side.renamed(dict.fromkeys(side.names, speaker_id(0))) for side in free]
    least, total = bounds.least, sum(counts)
    target = max(least, total if bounds.most is None else min(bounds.most, total))
    if total == target or not all(counts):
        return free
    # The split that changes the free counts least; of two equal ones, more for the first side.
    first = min(range(target - 1, 0, -1), key=lambda n: abs(n - counts[0]) + abs(target - n - counts[1]))
    return [
        _diarize_track(findings, side, clustering.SpeakerBounds(share, share))
        for side, share in enumerate((first, target - first))
    ]


def _diarize_side(findings: Findings, number: int, bounds: clustering.SpeakerBounds) -> DiarizedTrack:
    """Diarize a side of a call: one person, unless several are clearly strangers.

    Echo of the other side, noise and the telephone's distortion of a voice easily look like another person:
    docs/decisions/2026-11-22-calls-and-turns.md.
    """
    side = _diarize_track(findings, number, bounds)
    while len(side.names) > 1 and not _are_strangers(findings, number, side):
        fewer = len(side.names) - 1
        side = _diarize_track(findings, number, clustering.SpeakerBounds(fewer, fewer))
    return side


def _are_strangers(findings: Findings, number: int, side: DiarizedTrack) -> bool:
    """Return True if all speak long enough for a voiceprint, and no two could be one person."""
    prints: dict[str, voices.Print] = {}
    side.add_prints(prints, findings.tracks[number])
    needed = min(SIDE_SECONDS, SIDE_SHARE * sum(each.seconds for each in prints.values()))
    apart = SIDE_APART * findings.rule.threshold
    return all(each.seconds >= needed for each in prints.values()) and all(
        math.dist(first.vector, second.vector) >= apart for first, second in combinations(prints.values(), 2)
    )


def add_prints(
    prints: dict[str, voices.Print], names: Sequence[str], track: Track, owners: Int, active: Bool
) -> None:
    """Add the voices of a track to `prints`: speaker -> print.

    `owners`, (windows, 3), as `voices.prints` takes them; `active`, (frames, speakers), gives the seconds of
    clean speech.
    """
    seconds = [float(count) * FRAME_STEP for count in sole_speech(active).sum(axis=0)]
    for name, each in zip(names, voices.prints(track, owners, seconds), strict=True):
        prints[name] = prints[name] + each if name in prints else each


def _diarize_track(findings: Findings, number: int, bounds: clustering.SpeakerBounds) -> DiarizedTrack:
    track = findings.tracks[number]
    prefix = "" if findings.channels == Layout.MIX else f"CH{number + 1}_"
    clusters = clustering.cluster(
        track.vectors,
        track.windows.active,
        findings.rule,
        step=track.windows.step,
        bounds=bounds,
        plda=vbx.from_parameters(findings.plda) if findings.plda else None,
    )
    diarization = reconstruction.reconstruct(track.windows, clusters.labels, at_once=bounds.most)
    names = [speaker_id(column, prefix) for column in range(diarization.active.shape[1])]
    return DiarizedTrack(names, diarization, clusters.count)


# --- the draft ---


def label_words(
    speakers: DiarizedRecording, recognitions: Sequence[Recognition | None], reporter: Reporter = SILENT
) -> corrections.Draft:
    """Give each word of each track its speaker, and its time in the recording.

    The warnings are those of the findings and new ones about the number of speakers; `reporter` gets these.
    """
    findings, part = speakers.findings, speakers.findings.audio.transcribed
    labeled = tuple(
        None
        if recognition is None
        else [
            structs.replace(word, start=word.start + part.start, end=word.end + part.start)
            for word in label(
                recognition.words, track.diarization.evidence, track.diarization.active, track.names
            )[0]
        ]
        for track, recognition in zip(speakers.tracks, recognitions, strict=True)
    )
    warnings = list(_count_warnings(speakers))
    for line in warnings:
        reporter.note(line)
    languages = (recognition.language for recognition in recognitions if recognition and recognition.language)
    head = Transcript(
        audio=findings.audio,
        models=findings.models,
        device=findings.device,
        timing={},
        language=next(languages, None),
        speakers=(),
        turns=tuple(speakers.turns),
        utterances=(),
        words=(),
        warnings=(*findings.warnings, *warnings),
        machine=findings.machine,
        counts=tuple(track.count for track in speakers.tracks),
        first_speaker=speakers.first_speaker,
        findings=findings,
        fast=findings.fast,
        asked=speakers.asked,
    )
    spoken = tuple(track.turns(part, exclusive=True) for track in speakers.tracks)
    return corrections.Draft(head, labeled, spoken, ((),) * len(spoken))


def automatic_corrections(
    speakers: DiarizedRecording,
    draft: corrections.Draft,
    enrolled: voices.Known | None,
    rules: Sequence[tuple[str, str]],
    reporter: Reporter = SILENT,
) -> list[Correction]:
    """Return the corrections that need no person: names of enrolled voices, and replacement `rules`."""
    named: list[Correction] = []
    if enrolled is not None:
        turns = corrections.unite_turns(speakers.turns)
        for speaker, (voice, score) in voices.recognize(speakers.voiceprints(), enrolled).items():
            reporter.note(
                f"{speaker} sounds like {voice.name} (score {score:.1f}, {voices.THRESHOLD} needed)"
            )
            named.append(Correction("name", corrections.anchor(speaker, turns), voice.name))
    return [*named[::-1], *corrections.apply_rules(draft.words, rules)[:MOST_CORRECTIONS]]


def _count_warnings(speakers: DiarizedRecording) -> Iterator[str]:
    """Yield warnings about too few speakers, and about none."""
    bounds = speaker_bounds(speakers.asked)
    for count in speakers.counts:
        if count and count not in bounds:
            yield f"{bounds} were asked for, but only {count} could be told apart"
    if not speakers.turns:
        yield NO_SPEECH


# --- the speaker of each word ---


def label(
    words: Sequence[Word], evidence: Evidence, active: Bool, names: Sequence[str]
) -> tuple[list[Word], int]:
    """Fill in speaker, confidence, overlap and support of words.

    Returns the words, and how many of them keep their labels whatever words follow. `evidence` and `active`
    cover the same frames and speakers; `active`, (frames, speakers), is the final decision. `names` are the
    speakers' ids. A word in silence gets no speaker; but if the diarizer hears most of its sentence, some of
    that less than NEAR away, its time is wrong and the evidence there counts. A word shorter than TIMELESS
    takes the evidence of the word before it in its sentence, or after it; its confidence comes from its own
    time.
    """
    if not words or not names:
        return [structs.replace(word, speaker=None, supported=False) for word in words], len(words)
    activity = np.array([_activity_around(word, evidence) for word in words])  # (words, speakers)
    total = activity.sum(axis=1)
    sources = _evidence_sources(words, total >= LEAST_SUPPORT)
    supported = sources >= 0
    own_shares = activity / np.maximum(total, 1e-9)[:, None]
    shares = own_shares[_timed_sources(words, sources)]
    scores = np.where(supported[:, None], np.log(shares + FLOOR), 0.0)
    path, came_from = _viterbi(scores, _change_costs(words))
    labeled = [
        structs.replace(
            word,
            speaker=names[speaker] if is_supported else None,
            speaker_confidence=float(min(share[speaker], at_source[speaker])) if is_supported else None,
            overlap=_is_overlapped(word, active),
            supported=bool(is_supported),
        )
        for word, speaker, share, at_source, is_supported in zip(
            words, path, shares, own_shares[sources], supported, strict=True
        )
    ]
    # The labels of a sentence depend on all of it.
    complete = next((end for end in range(len(words), 0, -1) if ends_sentence(words[end - 1])), 0)
    return labeled, _settled_count(came_from[:complete])


def _activity_around(word: Word, evidence: Evidence) -> Float64:
    """Return (speakers,): mean activity of each speaker; frames outside the word fade out."""
    first = max(0, int((word.start - REACH_BEFORE - FRAME_DURATION / 2) / FRAME_STEP))
    last = int((word.end + REACH_AFTER - FRAME_DURATION / 2) / FRAME_STEP) + 2
    near = evidence[first:last]
    middles = np.arange(first, first + len(near)) * FRAME_STEP + FRAME_DURATION / 2
    beyond = np.maximum((word.start - middles) / REACH_BEFORE, (middles - word.end) / REACH_AFTER)
    weights = np.clip(1.0 - np.maximum(beyond, 0.0), 0.0, 1.0)
    mean: Float64 = weights @ near / max(float(weights.sum()), 1e-9)
    return mean


def _is_overlapped(word: Word, active: Bool) -> bool:
    first = int(word.start / FRAME_STEP)
    frames = active[first : max(first + 1, int(word.end / FRAME_STEP))]
    return bool(len(frames)) and float((frames.sum(axis=1) > 1).mean()) >= OVERLAP_SHARE


def _change_costs(words: Sequence[Word]) -> Float64:
    """Return (words,): the cost of a change of speaker before each word."""
    breaks = np.array([True, *(_is_break(before, word) for before, word in pairwise(words)), True])
    numbers = np.arange(len(words))
    ends = np.flatnonzero(breaks)
    # Words of the sentence before the change, and after it.
    since = numbers - ends[np.searchsorted(ends, numbers, "right") - 1]
    until = ends[np.searchsorted(ends, numbers, "left")] - numbers
    few = np.minimum(since, until) < FEW
    return np.where(breaks[:-1], CHANGE_COST_AT_BREAK, np.where(few, CHANGE_COST_OF_FEW, CHANGE_COST))


def _is_break(before: Word, word: Word) -> bool:
    return ends_sentence(before) or word.start - before.end >= PHRASE_PAUSE


def _evidence_sources(words: Sequence[Word], audible: Bool) -> Int:
    """Return (words,): the index of the word whose evidence each word takes, its own if audible; -1: none."""
    sources = np.where(audible, np.arange(len(words)), -1)
    sentences = np.cumsum([0, *map(ends_sentence, words[:-1])])
    mostly_audible = np.bincount(sentences, audible) > np.bincount(sentences) / 2
    candidates = np.flatnonzero(audible)
    for number in np.flatnonzero(~audible & mostly_audible[sentences]).tolist():
        following = int(np.searchsorted(candidates, number))
        gaps = {
            int(other): max(words[number].start - words[other].end, words[other].start - words[number].end)
            for other in candidates[max(0, following - 1) : following + 1]
            if sentences[other] == sentences[number]
        }
        if gaps and min(gaps.values()) < NEAR:
            sources[number] = min(gaps, key=lambda other: gaps[other])
    return sources


def _timed_sources(words: Sequence[Word], sources: Int) -> Int:
    """Return `sources`, but for a word without a time that of a neighbor in its sentence."""
    timed = sources.copy()
    for number, word in enumerate(words):
        if word.end - word.start >= TIMELESS:
            continue
        if number and not ends_sentence(words[number - 1]):
            neighbor = number - 1
        elif number + 1 < len(words) and not ends_sentence(word):
            neighbor = number + 1
        else:
            continue
        if sources[number] >= 0 and timed[neighbor] >= 0:
            timed[number] = timed[neighbor]
    return timed


def _settled_count(came_from: Int) -> int:
    """Count the first words that have the same speaker in all paths, whatever words follow."""
    ends = set(range(came_from.shape[1]))
    for number in range(len(came_from) - 1, -1, -1):
        if len(ends) == 1:
            return number + 1
        ends = {int(came_from[number][end]) for end in ends}
    return 0


def _viterbi(scores: Float64, change_costs: Float64) -> tuple[Int, Int]:
    """Return (words,): the path through (words, speakers) log scores with the largest sum less changes; and
    (words, speakers): the speaker of the word before on the best path to each."""
    best = scores[0].copy()
    came_from = np.zeros(scores.shape, np.intp)
    everyone = np.arange(scores.shape[1])
    for number in range(1, len(scores)):
        leader = int(best.argmax())
        changed = best[leader] - change_costs[number]
        came_from[number] = np.where(best >= changed, everyone, leader)
        best = np.maximum(best, changed) + scores[number]
    path = np.empty(len(scores), np.intp)
    path[-1] = best.argmax()
    for number in range(len(scores) - 1, 0, -1):
        path[number - 1] = came_from[number, path[number]]
    return path, came_from
