"""What the models found -> a draft of a transcript: who speaks, who said each word.

`witness redo` is this and what people corrected (`drafts`). The models may have been given a part of the
recording only; here, where frames become turns and words get their speakers, times become those of the
recording.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from msgspec import structs

from witness.diarization import clustering, reconstruction, vbx, voices
from witness.errors import UsageError
from witness.formats.document import MOST_CORRECTIONS
from witness.options import Bounds, Layout, Mode, Part
from witness.progress import SILENT, Reporter
from witness.schema import (
    FRAME_STEP,
    NO_SPEECH,
    Correction,
    Count,
    Findings,
    Recognition,
    Track,
    Transcript,
    Turn,
    sole_speech,
)
from witness.tracing import Stopwatch
from witness.transcript import corrections, merging, replacements, uncorrected

STAGES = ("decode", "segmentation", "embedding", "clustering", "transcription", "merging")
"""In this order in `Transcript.timing`; a stage that did not run is None there."""

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
        return sorted(turn for track in self.tracks for turn in track.turns(self.findings.audio.transcribed))

    @property
    def counts(self) -> list[int]:
        """How many speakers there are: in each track, or on both sides of a call together."""
        if self.findings.channels == Layout.CALL:
            return [len({name for track in self.tracks for name in track.names})]
        return [len(track.names) for track in self.tracks]


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
        found = words(speakers, [track.recognition for track in findings.tracks], reporter)
        transcript = uncorrected.corrected(found, given, reporter)
    return replace(transcript, timing=timing(watch, time.perf_counter() - begun, None))


def draft(findings: Findings, asked: Bounds = Bounds()) -> uncorrected.Draft:
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


def words(
    who: Who, recognitions: Sequence[Recognition | None], reporter: Reporter = SILENT
) -> uncorrected.Draft:
    """Give each word of each track its speaker, and its time in the recording.

    The warnings are those of the findings and of the number of speakers, which `reporter` is told.
    """
    findings, part = who.findings, who.findings.audio.transcribed
    labeled = tuple(
        None
        if heard is None
        else [
            structs.replace(word, start=word.start + part.start, end=word.end + part.start)
            for word in merging.label(
                heard.words, track.diarization.evidence, track.diarization.active, track.names
            )
        ]
        for track, heard in zip(who.tracks, recognitions, strict=True)
    )
    not_english = tuple(
        tuple((first + part.start, last + part.start) for first, last in heard.not_english) if heard else ()
        for heard in recognitions
    )
    about = list(_about_speakers(who))
    for line in about:
        reporter.note(line)
    head = Transcript(
        audio=findings.audio,
        models=findings.models,
        device=findings.device,
        timing={},
        language=next((one.language for one in recognitions if one and one.language), None),
        speakers=(),
        turns=tuple(who.turns),
        utterances=(),
        words=(),
        warnings=(*findings.warnings, *about),
        machine=findings.machine,
        counts=tuple(track.count for track in who.tracks),
        findings=findings,
        fast=findings.fast,
        asked=who.asked,
    )
    spoken = tuple(track.turns(part, exclusive=True) for track in who.tracks)
    return uncorrected.Draft(head, labeled, spoken, not_english)


def known_to_run(
    who: Who,
    draft: uncorrected.Draft,
    known: voices.Known | None,
    replaced: Sequence[tuple[str, str]],
    reporter: Reporter = SILENT,
) -> list[Correction]:
    """The corrections that need no person: the names of those whose voices are `known`, and words `replaced`
    (`replacements`)."""
    named: list[Correction] = []
    if known is not None:
        turns = uncorrected.united(who.turns)
        for speaker, (voice, score) in voices.recognize(_prints(who.findings, who.tracks), known).items():
            reporter.note(
                f"{speaker} sounds like {voice.name} (score {score:.1f}, {voices.THRESHOLD} needed)"
            )
            named.append(Correction("name", corrections.anchor(speaker, turns), voice.name))
    return [*named[::-1], *replacements.corrections(draft.words, replaced)[:MOST_CORRECTIONS]]


def _about_speakers(who: Who) -> Iterator[str]:
    """Where the number of speakers is not what was asked for, and where there are none."""
    wanted = bounds(who.asked)
    for count in who.counts:
        if count and count not in wanted:
            yield f"{wanted} were asked for, but only {count} could be told apart"
    if not who.turns:
        yield NO_SPEECH


def _prints(findings: Findings, tracks: Sequence[Diarized]) -> dict[str, voices.Print]:
    prints: dict[str, voices.Print] = {}
    for track, who in zip(findings.tracks, tracks, strict=True):
        for name, one in _track_prints(track, who).items():
            prints[name] = prints[name] + one if name in prints else one
    return prints


def _track_prints(track: Track, who: Diarized) -> dict[str, voices.Print]:
    seconds = [float(count) * FRAME_STEP for count in sole_speech(who.diarization.active).sum(axis=0)]
    owners = reconstruction.owners(track.windows, who.diarization.active)
    return dict(zip(who.names, voices.prints(track, owners, seconds), strict=True))
