"""Final utterances of a transcript while the recognizer is still at work.

An utterance is final once no later word can be in it or before it, or change the speakers of its words:
docs/decisions/2026-11-23-text-while-it-works.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from witness.diarization.voices import Known
from witness.schema import BREATH, Recognition, Transcript, Utterance, Word
from witness.transcript import assemble, corrections
from witness.transcript.assemble import DiarizedRecording


@dataclass(frozen=True)
class PartialTrack:
    """Recognized words of a track so far."""

    recognition: Recognition
    """Its words are final, with their times."""
    until: float
    """Seconds: no later word of the track begins before; infinite: the track is complete."""


OnPartial = Callable[[Transcript], None]
"""Receives the final part of the transcript, from another thread: its first utterances, and
the speakers and turns of the whole recording."""

NOT_BEGUN = PartialTrack(Recognition((), None, "cpu"), 0.0)


def final_part(
    speakers: DiarizedRecording,
    tracks: Sequence[PartialTrack],
    enrolled: Known | None = None,
    rules: Sequence[tuple[str, str]] = (),
) -> Transcript:
    """Return a transcript of the final utterances, the first ones of the complete transcript.

    Its words are those of its utterances; the speakers and turns are those of the whole recording.
    """
    device = {**speakers.findings.device, "whisper": tracks[0].recognition.device}
    findings = replace(speakers.findings, device=device)
    recognitions = [track.recognition for track in tracks]
    draft = assemble.label_words(replace(speakers, findings=findings), recognitions)
    start = findings.audio.transcribed.start
    settled: list[list[Word] | None] = []
    certain = inf
    for track, diarized, labeled in zip(tracks, speakers.tracks, draft.words, strict=True):
        words, until = labeled or [], track.until
        if until < inf:
            evidence, active = diarized.diarization.evidence, diarized.diarization.active
            _, count = assemble.label(track.recognition.words, evidence, active, diarized.names)
            until = min([until + start, *(word.start for word in words[count:])])
            words = words[:count]
        certain = min(certain, until)
        settled.append(words)
    draft = replace(draft, words=tuple(settled))
    transcript = corrections.apply(draft, assemble.automatic_corrections(speakers, draft, enrolled, rules))
    is_open = [track.until < inf for track in tracks]
    latest = {utterance.track: utterance for utterance in transcript.utterances if utterance.words}
    final: list[Utterance] = []
    for utterance in transcript.utterances:
        end = utterance.end if utterance.words else utterance.end + 2 * BREATH
        if end > certain or (is_open[utterance.track] and utterance is latest.get(utterance.track)):
            break
        final.append(utterance)
    spoken = (word for utterance in final for word in utterance.words)
    return replace(
        transcript,
        utterances=tuple(final),
        words=tuple(sorted(spoken, key=lambda word: (word.start, word.end))),
        warnings=findings.warnings,
        partial=any(is_open),
    )


class PartialTranscripts:
    """Sends the final part of the transcript to a listener during recognition."""

    SHARE = 0.02
    """Most of the time that this may take, in processor time of its thread."""

    def __init__(self, listener: OnPartial | None) -> None:
        self._listener = listener
        self._speakers: tuple[DiarizedRecording, Known | None, Sequence[tuple[str, str]]] | None = None
        self._sent = 0
        self._next = 0.0
        self.tracks: list[PartialTrack] = []

    def begin(
        self, speakers: DiarizedRecording, enrolled: Known | None, rules: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Start sending, now that the speakers are known."""
        self._speakers = speakers, enrolled, rules

    def update(self, track: int, recognition: Recognition, until: float) -> None:
        """Take the words of a track so far; a `recognizer.Listener`, called in the recognizer's thread."""
        self.tracks[track] = PartialTrack(recognition, until)
        if self._listener is None or self._speakers is None or time.monotonic() < self._next:
            return
        begun = time.thread_time()
        speakers, enrolled, rules = self._speakers
        transcript = final_part(speakers, self.tracks, enrolled, rules)
        self._next = time.monotonic() + (time.thread_time() - begun) / self.SHARE
        if len(transcript.utterances) > self._sent:
            self._sent = len(transcript.utterances)
            self._listener(transcript)
