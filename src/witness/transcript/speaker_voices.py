"""Voices in a transcript by its turns, corrected or not, without another clustering."""

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
)
from witness.transcript import assemble
from witness.transcript.rebuild import Saved

TRACK = re.compile(r"CH(\d+)_")
"""Prefix of speaker ids in a recording with several tracks."""
HALF = WINDOW_SAMPLES / SAMPLE_RATE / 2


def prints(findings: Findings, turns: Sequence[Turn], part: Part | None = None) -> dict[str, voices.Print]:
    """Return speaker -> print for the speakers of these turns; `part`: only from their speech there."""
    by_speaker: dict[str, voices.Print] = {}
    for number, track in enumerate(findings.tracks, start=1):
        of_track = [turn for turn in turns if _is_in_track(turn.speaker, number, findings.channels)]
        names = sorted({turn.speaker for turn in of_track})
        active = _activity(findings, track, of_track, names)
        owners = reconstruction.owners(track.windows, active)
        if part is not None:
            start, end = (edge - findings.audio.transcribed.start for edge in (part.start, part.end))
            middles = track.windows.starts / SAMPLE_RATE + HALF
            rows = (middles >= start) & (middles < end)
            first, last = _frames(start, end)
            active, owners = active[first:last], owners[rows]
            windows = Segmentation(track.windows.active[rows], track.windows.starts[rows])
            track = Track(windows, track.vectors[rows])
        assemble.add_prints(by_speaker, names, track, owners, active)
    return by_speaker


def enroll_part(saved: Saved, name: str, part: Part) -> voices.Voice:
    """Make a voice of the one person who speaks in a part of the recording.

    Raises InputError for several people or too little speech; UsageError for an invalid name.
    """
    name, model = voices.check_name(name), _voice_model(saved)
    in_part = prints(saved.findings, saved.turns, part)
    if others := voices.others(each.seconds for each in in_part.values()):
        raise InputError(
            f"several people speak there, {others:.1f} s of it not the main one; select what one person says"
        )
    return voices.enrolled(name, model, _longest(in_part))


def enroll_speaker(saved: Saved, name: str, speaker: str) -> voices.Voice:
    """Make a voice of all clean speech of a speaker, given by id or name.

    Raises InputError for too little speech; UsageError for an unknown speaker or an invalid name.
    """
    name, model, speaker = voices.check_name(name), _voice_model(saved), saved.find(speaker)
    return voices.enrolled(name, model, prints(saved.findings, saved.turns).get(speaker))


def enroll_sample(transcript: Transcript, name: str) -> voices.Voice:
    """Make a voice of a short recording of one person.

    Raises InputError for too little speech; UsageError for an invalid name.
    """
    name = voices.check_name(name)
    findings = transcript.findings
    model = None if findings is None else findings.models["embedding"]
    best = None if findings is None else _longest(prints(findings, transcript.turns))
    if best is None or model is None or not best.total.any():
        raise InputError(f"the sample of {name} has less than 1 s of clean speech; send a longer one")
    return voices.new_voice(name, model, best)


def find_speaker(saved: Saved, voice: voices.Voice) -> tuple[str, float] | None:
    """Return the speaker who sounds like the voice, and their score; None: no speaker does.

    Raises InputError if the transcript and the voice have different voice models, ModelError if the model is
    not installed.
    """
    if _voice_model(saved).sha256 != voice.embedding:
        raise InputError(f"{saved.path}: was made with another voice model; transcribe the recording again")
    return next(((speaker, score) for speaker, (_, score) in suggest(saved, (voice,)).items()), None)


def suggest(saved: Saved, enrolled: Sequence[voices.Voice]) -> dict[str, tuple[voices.Voice, float]]:
    """Return speaker -> the voice that they sound like, and the score; without speakers that match no voice.

    Ignores voices of another voice model. Raises as `find_speaker`.
    """
    model = _voice_model(saved)
    comparable = tuple(voice for voice in enrolled if voice.embedding == model.sha256)
    if not comparable:
        return {}
    by_speaker = prints(saved.findings, saved.turns)
    return voices.recognize(by_speaker, voices.Known(comparable, cohort.load(model)))


def describe_match(speaker: str, name: str, score: float) -> str:
    """Return a sentence about the certainty of a match."""
    if score >= voices.SURE:
        return f"{speaker} sounds like {name}"
    return f"{speaker} may be {name}; listen to both before you decide"


def longest_turn_start(turns: Sequence[Turn], speaker: str) -> float:
    """Return the start of a speaker's longest turn, a good place to listen."""
    of_speaker = [turn for turn in turns if turn.speaker == speaker]
    return max(of_speaker, key=lambda turn: turn.duration).start if of_speaker else 0.0


def _voice_model(saved: Saved) -> ModelFile:
    """Return the voice model of a transcript. Raises InputError if it has no voices."""
    model = saved.findings.models["embedding"]
    if model is None:
        raise InputError(f"{saved.path}: has no voices; transcribe the recording again")
    return model


def _longest(by_speaker: dict[str, voices.Print]) -> voices.Print | None:
    return max(by_speaker.values(), key=lambda each: each.seconds, default=None)


def _is_in_track(speaker: str, number: int, channels: Layout) -> bool:
    """Return True if a speaker may talk in a track: of several, the one that the id names."""
    match = TRACK.match(speaker)
    return channels == Layout.MIX or match is None or int(match[1]) == number


def _activity(findings: Findings, track: Track, turns: Sequence[Turn], names: Sequence[str]) -> Bool:
    """Return (frames, speakers): activity by the turns."""
    active = np.zeros((reconstruction.frame_count(track.windows), len(names)), np.bool_)
    begin = findings.audio.transcribed.start
    for turn in turns:
        first, last = _frames(turn.start - begin, turn.end - begin)
        active[first:last, names.index(turn.speaker)] = True
    return active


def _frames(start: float, end: float) -> tuple[int, int]:
    """Return the frames between two times in the transcribed part: the inverse of `reconstruction.turns`."""
    first, last = (max(0, round((edge - FRAME_DURATION / 2) / FRAME_STEP)) for edge in (start, end))
    return first, last
