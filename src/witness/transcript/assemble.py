"""What the models found -> a transcript; `witness redo` is this alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from witness import tracing
from witness.diarization import clustering, reconstruction, vbx, voices
from witness.errors import UsageError
from witness.formats import writers
from witness.schema import (
    FRAME_STEP,
    Bool,
    Bounds,
    Correction,
    Count,
    Note,
    Progress,
    Recognition,
    Speaker,
    Stages,
    Transcript,
    Turn,
    Utterance,
    Word,
    no_note,
    no_progress,
)
from witness.transcript import corrections, merging

STAGES = ("decode", "segmentation", "embedding", "clustering", "transcription", "merging")
"""In this order in `Transcript.timing`; a stage that did not run is None there."""

GHOST_SHARE = 0.02  # of all speech; with GHOST_TURN noScribe's rule, right for 69 % of what it names
GHOST_TURN = 2.0  # seconds


def redo(
    stages: Stages,
    asked: Bounds = Bounds(),
    known: Sequence[Correction] = (),
    *,
    note: Note = no_note,
) -> Transcript:
    """A transcript from what the models found earlier, with another number of speakers and corrections.

    No model runs and no file is read. Raises UsageError if nothing can satisfy `asked`.
    """
    begun = time.perf_counter()
    work = Work(note=note, asked=asked, corrections=tuple(known))
    return work.transcript(stages, work.diarize(stages), begun)


def voiceprints(stages: Stages, asked: Bounds = Bounds()) -> dict[str, voices.Print]:
    """Speaker -> print, of the speakers that `redo` would find."""
    return _prints(stages, Work(asked=asked).diarize(stages))


def bounds(asked: Bounds) -> clustering.SpeakerBounds:
    """How many speakers there may be. Raises UsageError if nothing can satisfy it."""
    if asked.speakers is not None and (asked.min_speakers, asked.max_speakers) != (None, None):
        raise UsageError("--speakers says all; leave out --min-speakers and --max-speakers")
    least = asked.min_speakers if asked.speakers is None else asked.speakers
    most = asked.max_speakers if asked.speakers is None else asked.speakers
    return clustering.SpeakerBounds(1 if least is None else least, most)


@dataclass(frozen=True)
class Diarized:
    """Who speaks in one track, by the columns of `found`; two columns of one name are one speaker."""

    names: list[str]
    found: reconstruction.Diarization
    count: Count

    def turns(self, duration: float, *, exclusive: bool = False) -> list[Turn]:
        active: Iterable[Bool] = self.found.active.T
        if exclusive:
            alone = self.found.exclusive()
            active = (alone == speaker for speaker in range(len(self.names)))
        return reconstruction.turns(active, self.names, duration)

    def renamed(self, names: dict[str, str]) -> Diarized:
        merged = [names.get(name, name) for name in self.names]
        kept = list(dict.fromkeys(merged))
        return Diarized(kept, self.found.merged([kept.index(name) for name in merged]), self.count)


@dataclass(kw_only=True)
class Work:
    """One recording on its way from what the models found to a transcript."""

    progress: Progress = no_progress
    note: Note = no_note
    asked: Bounds = Bounds()
    corrections: tuple[Correction, ...] = ()
    known: voices.Known | None = None
    timing: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    serial: bool = False
    """The words wait for the speakers."""

    def diarize(self, stages: Stages) -> list[Diarized]:
        """Who speaks in each track."""
        with self.timed("clustering"):
            self.progress("clustering", 0, 1)
            wanted = bounds(self.asked)
            if stages.channels == "call":
                found = self._sides(stages, wanted)
            else:
                found = [self._diarize(stages, number, wanted) for number in range(len(stages.tracks))]
            reconstruction.fill_pauses([track.found.active for track in found], stages.rule.pause)
            self.progress("clustering", 1, 1)
        return found

    def _sides(self, stages: Stages, wanted: clustering.SpeakerBounds) -> list[Diarized]:
        """Who speaks on each side of a call: two sides never share a speaker, and `wanted` is for both."""
        most = None if wanted.most is None else max(1, wanted.most - 1)
        found = [self._diarize(stages, side, clustering.SpeakerBounds(1, most)) for side in (0, 1)]
        counts = [len(side.names) for side in found]
        if wanted.most == 1:
            return [side.renamed(dict.fromkeys(side.names, "SPEAKER_00")) for side in found]
        least, total = wanted.least, sum(counts)
        target = max(least, total if wanted.most is None else min(wanted.most, total))
        if total == target or not all(counts):
            return found
        # The split that changes what was found the least; where two are as good, the first side has more.
        first = min(range(target - 1, 0, -1), key=lambda n: abs(n - counts[0]) + abs(target - n - counts[1]))
        shares = (first, target - first)
        return [
            self._diarize(stages, side, clustering.SpeakerBounds(share, share))
            for side, share in enumerate(shares)
        ]

    def _diarize(self, stages: Stages, number: int, wanted: clustering.SpeakerBounds) -> Diarized:
        track = stages.tracks[number]
        prefix = "" if stages.channels == "mix" else f"CH{number + 1}_"
        active = track.windows.active
        plda = vbx.from_parameters(stages.plda) if stages.plda else None
        clusters = clustering.cluster(
            track.vectors, active, stages.rule, step=track.windows.step, bounds=wanted, plda=plda
        )
        found = reconstruction.reconstruct(track.windows, clusters.labels, most=wanted.most)
        names = [f"{prefix}SPEAKER_{number:02d}" for number in range(found.active.shape[1])]
        return Diarized(names, found, clusters.count)

    def transcript(self, stages: Stages, diarized: list[Diarized], begun: float) -> Transcript:
        """The result, corrected. What the stages already warned of is not said again."""
        self.warnings[:] = stages.warnings
        duration = stages.audio.duration
        counts = [len(track.names) for track in diarized]
        if stages.channels == "call":
            counts = [len({name for track in diarized for name in track.names})]
        for count in counts:
            if count and count not in bounds(self.asked):
                self.warn(f"{bounds(self.asked)} asked for, but only {count} could be told apart")
        heard = sorted(turn for track in diarized for turn in track.turns(duration))
        if not heard:
            self.warn("no speech was found in this recording")
        merged = corrections.merges(self.corrections, heard)
        named = [track.renamed(merged) for track in diarized]
        turns = _united(sorted(turn for track in named for turn in track.turns(duration)))
        self._recognise_voices(stages, named, turns)
        with self.timed("merging"):
            words, utterances = self._merge(stages, diarized, merged, turns)
        recognitions = [track.recognition for track in stages.tracks if track.recognition]
        speakers = _speakers(turns, self._names(turns))
        for name in ghosts(speakers, turns):
            self.warn(f"{name} may be nobody: little speech in all, and never {GHOST_TURN:.0f} s at a time")
        return Transcript(
            audio=stages.audio,
            models=stages.models,
            device=stages.device,
            timing=self._times(time.perf_counter() - begun, recognitions),
            language=next((found.language for found in recognitions if found.language), None),
            speakers=speakers,
            turns=tuple(turns),
            utterances=tuple(utterances),
            words=tuple(words),
            warnings=tuple(self.warnings),
            counts=tuple(track.count for track in diarized),
            stages=stages,
            fast=stages.fast,
            asked=self.asked,
            corrections=self.corrections,
        )

    def _recognise_voices(self, stages: Stages, diarized: list[Diarized], turns: list[Turn]) -> None:
        """Name the speakers that are known; what somebody corrected comes later, and so counts more."""
        if self.known is None:
            return
        for speaker, (voice, alike) in voices.recognise(_prints(stages, diarized), self.known).items():
            self.note(
                f"{speaker} sounds like {voice.name} (cosine {alike:.2f}, {self.known.threshold} needed)"
            )
            found = Correction("name", corrections.anchor(speaker, turns), voice.name)
            self.corrections = (found, *self.corrections)

    def _names(self, turns: list[Turn]) -> dict[str, str]:
        found = corrections.names(self.corrections, turns)
        for speaker, given in found.items():
            if len(given) > 1:
                self.warn(f"{' and '.join(given)} are one speaker here; {speaker} is called {given[-1]}")
        return {speaker: given[-1] for speaker, given in found.items()}

    def _times(self, wall: float, recognitions: list[Recognition]) -> dict[str, float | str | None]:
        mode = None
        if recognitions and "transcription" in self.timing:  # or it was an earlier run that heard them
            mode = "serial" if self.serial else "parallel"
        return {**{stage: self.timing.get(stage) for stage in STAGES}, "wall": wall, "mode": mode}

    def warn(self, line: str) -> None:
        self.warnings.append(line)
        self.note(line)

    def _merge(
        self, stages: Stages, diarized: list[Diarized], merged: dict[str, str], turns: list[Turn]
    ) -> tuple[list[Word], list[Utterance]]:
        """Words and utterances. A merge gives what two speakers said to one, and moves no other word: what
        a person sees in a page is what this makes of it."""
        words: list[Word] = []
        utterances: list[Utterance] = []
        for number, (track, who) in enumerate(zip(stages.tracks, diarized, strict=True)):
            alone = _united(
                [
                    replace(turn, speaker=merged.get(turn.speaker, turn.speaker))
                    for turn in who.turns(stages.audio.duration, exclusive=True)
                ]
            )
            if track.recognition is None:
                utterances += [Utterance(turn.start, turn.end, turn.speaker, track=number) for turn in alone]
                continue
            labelled = merging.label(track.recognition.words, who.found.evidence, who.found.active, who.names)
            labelled = [
                replace(word, speaker=merged[word.speaker]) if word.speaker in merged else word
                for word in labelled
            ]
            labelled = corrections.move(labelled, self.corrections, turns)
            unheard = merging.inaudible(alone, labelled)
            labelled = corrections.spell(labelled, self.corrections)
            words += labelled
            found = merging.utterances(labelled) + unheard
            utterances += [replace(utterance, track=number) for utterance in found]
            self._cross_check(labelled, unheard)
        return sorted(words, key=_when), sorted(utterances, key=_when)

    def _cross_check(self, words: list[Word], unheard: list[Utterance]) -> None:
        """Say where one engine heard something and the other did not."""
        if invented := sum(not word.supported for word in words):
            self.warn(f"{invented} words where no speech was heard are in JSON and page only")
        if unheard:
            seconds = sum(utterance.end - utterance.start for utterance in unheard)
            places = ", ".join(writers.clock(utterance.start) for utterance in unheard[:5])
            more = ", ..." if len(unheard) > 5 else ""
            self.warn(f"[inaudible]: {seconds:.0f} s of speech without words, at {places}{more}")

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        begun, trace = time.perf_counter(), tracing.current()
        with nullcontext() if trace is None else trace.stage(stage):
            yield
        self.timing[stage] = self.timing.get(stage, 0.0) + time.perf_counter() - begun


def _prints(stages: Stages, diarized: list[Diarized]) -> dict[str, voices.Print]:
    found: dict[str, voices.Print] = {}
    for track, who in zip(stages.tracks, diarized, strict=True):
        alone = who.found.active & (who.found.active.sum(axis=1, keepdims=True) == 1)
        seconds = [float(count) * FRAME_STEP for count in alone.sum(axis=0)]
        owners = reconstruction.owners(track.windows, who.found)
        for name, one in zip(who.names, voices.prints(track, owners, seconds), strict=True):
            found[name] = found[name] + one if name in found else one
    return found


def _when(item: Word | Utterance) -> tuple[float, float]:
    return item.start, item.end


def ghosts(speakers: Sequence[Speaker], turns: Sequence[Turn]) -> list[str]:
    """The speakers that may be a fault of the diarizer: reported, since some are real, and never dropped."""
    longest: dict[str, float] = {}
    for turn in turns:
        longest[turn.speaker] = max(longest.get(turn.speaker, 0.0), turn.duration)
    return [one.id for one in speakers if one.share < GHOST_SHARE and longest[one.id] <= GHOST_TURN]


def _united(turns: list[Turn]) -> list[Turn]:
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


def _speakers(turns: list[Turn], names: dict[str, str]) -> tuple[Speaker, ...]:
    seconds: dict[str, float] = {}
    for turn in turns:
        seconds[turn.speaker] = seconds.get(turn.speaker, 0.0) + turn.duration
    total = sum(seconds.values())
    return tuple(
        Speaker(key, spoken, spoken / total, names.get(key)) for key, spoken in sorted(seconds.items())
    )
