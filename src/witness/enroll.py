"""Recordings of one person -> a voiceprint. Refused where it would be a mixture of several, or a guess."""

from __future__ import annotations

from collections.abc import Sequence

from witness import pipeline
from witness.diarization import voices
from witness.errors import InputError, UsageError
from witness.models.store import stranger_threshold
from witness.transcript import assemble

OTHERS = 0.05  # share of the speech that others may have: the diarizer's slips
OTHERS_SECONDS = 2.0  # and no more than this


def enroll(name: str, recordings: Sequence[str], engine: pipeline.Engine) -> voices.Voice:
    """The voice of who speaks in all the recordings, and alone.

    Raises InputError if a recording has several speakers, too little speech or another voice than the first;
    ModelError if strangers cannot be told with these models.
    """
    name = voices.check_name(name)
    threshold = stranger_threshold(engine.chosen.embedding)
    if not recordings:
        raise UsageError("name a recording")
    whole: voices.Print | None = None
    for path in recordings:
        one = _alone(path, engine)
        if whole is not None and float(one.vector @ whole.vector) < threshold:
            raise InputError(f"{path} sounds like somebody else than {recordings[0]}; enroll one person")
        whole = one if whole is None else whole + one
    assert whole is not None  # noqa: S101 - there is a recording
    if whole.seconds < voices.LEAST_TO_ENROLL:
        raise InputError(
            f"{', '.join(recordings)}: {whole.seconds:.1f} s of speech is too little to know a voice by; "
            f"give {voices.LEAST_TO_ENROLL:g} s or more"
        )
    return voices.Voice(name, engine.chosen.embedding.sha256, whole.vector, whole.seconds)


def _alone(path: str, engine: pipeline.Engine) -> voices.Print:
    """The print of the only speaker."""
    transcript = engine.transcribe(path)
    speakers = sorted(transcript.speakers, key=lambda speaker: -speaker.seconds)
    others = sum(speaker.seconds for speaker in speakers[1:])
    if not speakers or transcript.findings is None:
        raise InputError(f"{path}: no speech was found; record the person again")
    if others > OTHERS_SECONDS or others > OTHERS * (others + speakers[0].seconds):
        raise InputError(
            f"{path}: {len(speakers)} speakers, {others:.1f} s of it not the main one's; "
            "cut out where the person speaks alone"
        )
    one = assemble.voiceprints(transcript.findings, transcript.asked)[speakers[0].id]
    if not one.total.any():
        raise InputError(f"{path}: no stretch of clean speech of a second or more; record the person again")
    return one
