"""What is final of a transcript while words are still being recognized.

An utterance is final once no word that is still to come can be in it or before it, and none can give another
speaker to what it holds: docs/decisions/2026-11-23-text-while-it-works.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from witness.diarization.voices import Known
from witness.schema import BREATH, Recognition, Transcript, Utterance, Word
from witness.transcript import assemble, merging, uncorrected
from witness.transcript.assemble import Who


@dataclass(frozen=True)
class TrackSoFar:
    """What is recognized of a track."""

    recognition: Recognition
    """Its words are final, with their times."""
    until: float
    """Seconds, before which no other word of the track begins; infinite: it is done."""


Heard = Callable[[Transcript], None]
"""Called with the transcript as far as it is final, from another thread. It has the utterances with which the
complete one begins; the speakers and turns are those of the whole recording."""

NOT_BEGUN = TrackSoFar(Recognition((), None, "cpu"), 0.0)


def transcript(
    who: Who,
    tracks: Sequence[TrackSoFar],
    known: Known | None = None,
    replaced: Sequence[tuple[str, str]] = (),
) -> Transcript:
    """The transcript with those utterances alone that are final, all of which the complete one begins with.

    Its words are those of its utterances; the speakers and turns are those of the whole recording.
    """
    findings = replace(who.findings, device={**who.findings.device, "whisper": tracks[0].recognition.device})
    draft = assemble.words(replace(who, findings=findings), [track.recognition for track in tracks])
    start = findings.audio.transcribed.start
    words: list[list[Word] | None] = []
    certain = inf
    for track, diarized, labeled in zip(tracks, who.tracks, draft.words, strict=True):
        given = labeled or []
        until = track.until
        if until < inf:
            heard = track.recognition.words
            evidence, active = diarized.diarization.evidence, diarized.diarization.active
            _, count = merging.settled(heard, evidence, active, diarized.names)
            until = min([until + start, *(word.start for word in given[count:])])
            given = given[:count]
        certain = min(certain, until)
        words.append(given)
    draft = replace(draft, words=tuple(words))
    found = uncorrected.corrected(draft, assemble.known_to_run(who, draft, known, replaced))
    open_ = [track.until < inf for track in tracks]
    last = {one.track: one for one in found.utterances if one.words}
    final: list[Utterance] = []
    for one in found.utterances:
        end = one.end if one.words else one.end + 2 * BREATH
        if end > certain or (open_[one.track] and one is last.get(one.track)):
            break
        final.append(one)
    said = sorted((word for one in final for word in one.words), key=lambda word: (word.start, word.end))
    return replace(
        found, utterances=tuple(final), words=tuple(said), warnings=findings.warnings, partial=any(open_)
    )


class SoFar:
    """What is recognized while the work goes on, for whoever wants to be told."""

    SHARE = 0.02
    """Most of the time that telling may take, in processor time of its thread."""

    def __init__(self, heard: Heard | None) -> None:
        self._heard = heard
        self._who: tuple[Who, Known | None, Sequence[tuple[str, str]]] | None = None
        self._told = 0
        self._again = 0.0
        self.tracks: list[TrackSoFar] = []

    def begin(self, who: Who, known: Known | None, replaced: Sequence[tuple[str, str]] = ()) -> None:
        """It is known who speaks when."""
        self._who = who, known, replaced

    def hear(self, track: int, heard: Recognition, until: float) -> None:
        """As `recognizer.Listener`, which the recognizer's thread calls."""
        self.tracks[track] = TrackSoFar(heard, until)
        if self._heard is None or self._who is None or time.monotonic() < self._again:
            return
        begun = time.thread_time()
        who, known, replaced = self._who
        found = transcript(who, self.tracks, known, replaced)
        self._again = time.monotonic() + (time.thread_time() - begun) / self.SHARE
        if len(found.utterances) > self._told:
            self._told = len(found.utterances)
            self._heard(found)
