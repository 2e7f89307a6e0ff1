"""The voices in a transcript by the turns that it has, corrected or not: nothing is clustered again."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from witness.diarization import cohort, reconstruction, voices
from witness.errors import InputError
from witness.options import Layout, Part
from witness.schema import (
    FRAME_DURATION,
    FRAME_STEP,
    SAMPLE_RATE,
    WINDOW_SAMPLES,
    Bool,
    Findings,
    ModelFile,
    Segmentation,
    Track,
    Transcript,
    Turn,
    sole_speech,
)
from witness.transcript.redo import Saved

TRACK = re.compile(r"CH(\d+)_")
"""What the id of a speaker begins with if the recording has several tracks."""
HALF = WINDOW_SAMPLES / SAMPLE_RATE / 2


def prints(findings: Findings, turns: Sequence[Turn], part: Part | None = None) -> dict[str, voices.Print]:
    """Speaker -> print, of those who have these turns; `part`: only from what they say there."""
    found: dict[str, voices.Print] = {}
    for number, track in enumerate(findings.tracks, start=1):
        own = [turn for turn in turns if _is_heard(turn.speaker, number, findings.channels)]
        names = sorted({turn.speaker for turn in own})
        active = _activity(findings, track, own, names)
        owners = reconstruction.owners(track.windows, active)
        rows = np.ones(len(owners), np.bool_)
        if part is not None:
            start, end = (edge - findings.audio.transcribed.start for edge in (part.start, part.end))
            middles = track.windows.starts / SAMPLE_RATE + HALF
            rows = (middles >= start) & (middles < end)
            first, last = _frames(start, end)
            active = active[first:last]
        seconds = [float(count) * FRAME_STEP for count in sole_speech(active).sum(axis=0)]
        windows = Segmentation(track.windows.active[rows], track.windows.starts[rows])
        heard = voices.prints(Track(windows, track.vectors[rows]), owners[rows], seconds)
        for name, one in zip(names, heard, strict=True):
            found[name] = found[name] + one if name in found else one
    return found


def enroll(saved: Saved, name: str, part: Part) -> voices.Voice:
    """The voice of the one person who speaks in a part of the recording.

    Raises InputError if it is not one, or too little; UsageError if the name is none.
    """
    name, embedding = voices.check_name(name), _model(saved)
    heard = prints(saved.findings, saved.turns, part)
    if others := voices.others(one.seconds for one in heard.values()):
        raise InputError(
            f"several people speak there, {others:.1f} s of it not the main one; select what one person says"
        )
    best = max(heard.values(), key=lambda one: one.seconds, default=None)
    return voices.enrolled(name, embedding, best)


def remember(saved: Saved, name: str, speaker: str) -> voices.Voice:
    """The voice of a speaker, given by id or by name, from all of their clean speech in the recording.

    Raises InputError if there is too little; UsageError if there is no such speaker, or the name is none.
    """
    name, embedding, speaker = voices.check_name(name), _model(saved), saved.find(speaker)
    return voices.enrolled(name, embedding, prints(saved.findings, saved.turns).get(speaker))


def _model(saved: Saved) -> ModelFile:
    """The voice model of a transcript. Raises InputError if it has no voices."""
    embedding = saved.findings.models["embedding"]
    if embedding is None:
        raise InputError(f"{saved.path}: has no voices; transcribe the recording again")
    return embedding


def introduce(transcript: Transcript, name: str) -> voices.Voice:
    """The voice of whoever speaks in a short recording, which is believed to be one person.

    Raises InputError if there is too little of it; UsageError if the name is none.
    """
    name = voices.check_name(name)
    findings = transcript.findings
    embedding = None if findings is None else findings.models["embedding"]
    heard = [] if findings is None else list(prints(findings, transcript.turns).values())
    best = max(heard, key=lambda one: one.seconds, default=None)
    if best is None or embedding is None or not best.total.any():
        raise InputError(f"the sample of {name} has less than 1 s of clean speech; send a longer one")
    return voices.Voice(name, embedding.sha256, best.vector, best.seconds, embedding.name)


def find(saved: Saved, voice: voices.Voice) -> tuple[str, float] | None:
    """The speaker who sounds like the voice, and their score; None: nobody does.

    Raises InputError if the transcript was made with another voice model than the voice, ModelError if that
    is not on this machine.
    """
    if _model(saved).sha256 != voice.embedding:
        raise InputError(f"{saved.path}: was made with another voice model; transcribe the recording again")
    return next(((speaker, score) for speaker, (_, score) in suggest(saved, (voice,)).items()), None)


def suggest(saved: Saved, known: Sequence[voices.Voice]) -> dict[str, tuple[voices.Voice, float]]:
    """Speaker -> whom they sound like, and their score; those who sound like nobody are left out.

    Voices of another voice model than the transcript's are, too. Raises as `find`.
    """
    embedding = _model(saved)
    own = tuple(voice for voice in known if voice.embedding == embedding.sha256)
    if not own:
        return {}
    heard = prints(saved.findings, saved.turns)
    return voices.recognize(heard, voices.Known(own, cohort.load(embedding)))


def in_words(who: str, name: str, score: float) -> str:
    """How much somebody sounds like a person, for whoever is to decide."""
    if score >= voices.SURE:
        return f"{who} sounds like {name}"
    return f"{who} may be {name}; listen to both before you decide"


def longest(turns: Sequence[Turn], speaker: str) -> float:
    """When the longest turn of a speaker begins, which is what to listen to."""
    own = [turn for turn in turns if turn.speaker == speaker]
    return max(own, key=lambda turn: turn.duration).start if own else 0.0


def _is_heard(speaker: str, number: int, channels: Layout) -> bool:
    """Whether a speaker may be heard in a track: of several, the one that the id names."""
    match = TRACK.match(speaker)
    return channels == Layout.MIX or match is None or int(match[1]) == number


def _activity(findings: Findings, track: Track, turns: Sequence[Turn], names: Sequence[str]) -> Bool:
    """(frames, speakers): who speaks, by the turns."""
    active = np.zeros((reconstruction.frame_count(track.windows), len(names)), np.bool_)
    begin = findings.audio.transcribed.start
    for turn in turns:
        first, last = _frames(turn.start - begin, turn.end - begin)
        active[first:last, names.index(turn.speaker)] = True
    return active


def _frames(start: float, end: float) -> tuple[int, int]:
    """The frames between two times in what was heard, as `reconstruction.turns` makes times of frames."""
    first, last = (max(0, round((edge - FRAME_DURATION / 2) / FRAME_STEP)) for edge in (start, end))
    return first, last
