"""Recordings of one person -> a voiceprint. Refuses what would be a mixture of people, or a guess."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from witness import pipeline
from witness.diarization import voices
from witness.errors import InputError, UsageError
from witness.options import Bounds
from witness.progress import SILENT, Reporter
from witness.storage import files
from witness.transcript import assemble


def enroll(
    name: str, recordings: Sequence[str], engine: pipeline.Engine, reporter: Reporter = SILENT
) -> voices.Voice:
    """The voice of the one person who speaks in all the recordings.

    A note tells of a recording in which there may be two. Raises InputError if a recording has several
    speakers, too little speech or another voice than the first; ModelError.
    """
    name = voices.check_name(name)
    if not recordings:
        raise UsageError("no recording was given; name one")
    whole: voices.Print | None = None
    for path in recordings:
        part = _only_speaker(path, engine, reporter)
        if whole is not None and engine.cohort.score(part.vector, whole.vector) < voices.THRESHOLD:
            raise InputError(f"{path} sounds like a different person than {recordings[0]}; enroll one person")
        whole = part if whole is None else whole + part
    return voices.enrolled(name, engine.chosen.embedding, whole, tuple(map(_recording, recordings)))


def again(folder: Path, engine: pipeline.Engine, reporter: Reporter = SILENT) -> Iterator[voices.Voice]:
    """The voices in `folder` that another voice model made, made again with this one from their recordings.

    Raises InputError as `voices.read_all`, and in the end for those that could not be made.
    """
    left = []
    for voice in voices.read_all(folder):
        if voice.embedding == engine.chosen.embedding.sha256:
            continue
        try:
            yield enroll(voice.name, _unchanged(voice), engine, reporter)
        except InputError as error:
            left.append(f"{voice.name} ({error})")
    if left:
        raise InputError(f"{folder}: not made again: {', '.join(left)}; fix: enroll them by name")


def _unchanged(voice: voices.Voice) -> list[str]:
    """The recordings of a voice. Raises InputError unless they are what they were."""
    if not voice.recordings:
        raise InputError("was enrolled from a transcript, so its speech is not available here")
    for recording in voice.recordings:
        try:
            same = files.sha256_at(Path(recording.path)) == recording.sha256
        except OSError as error:
            raise InputError(f"{recording.path} cannot be read ({error.strerror})") from error
        if not same:
            raise InputError(f"{recording.path} is no longer what it was")
    return [recording.path for recording in voice.recordings]


def _recording(path: str) -> voices.VoiceSource:
    return voices.VoiceSource(str(Path(path).absolute()), files.sha256_at(Path(path)))


def _only_speaker(path: str, engine: pipeline.Engine, reporter: Reporter) -> voices.Print:
    """The voiceprint of the only speaker of a recording. Raises InputError if there are others, or none."""
    transcript = engine.transcribe(path)
    speakers = sorted(transcript.speakers, key=lambda speaker: -speaker.seconds)
    if not speakers or transcript.findings is None:
        raise InputError(f"{path}: no speech was found; record the person again")
    if others := voices.others(speaker.seconds for speaker in speakers):
        raise InputError(
            f"{path}: {len(speakers)} speakers, and {others:.1f} s are not the main speaker's; "
            "cut out where the person speaks alone"
        )
    halves = list(assemble.diarize(transcript.findings, Bounds(speakers=2)).voiceprints().values())
    if len(halves) == 2 and all(half.seconds >= voices.LEAST_TO_NAME for half in halves):
        alike = engine.cohort.score(halves[0].vector, halves[1].vector)
        if alike < voices.THRESHOLD:
            raise InputError(
                f"{path}: sounds like two people (score {alike:.1f}, {voices.THRESHOLD} needed); cut out "
                "where the person speaks alone"
            )
        if any(count.close and count.runner_up == 2 for count in transcript.counts):
            reporter.note(
                f"{path}: there may be two people in it; listen, and cut out where one speaks alone"
            )
    voiceprint = assemble.diarize(transcript.findings, transcript.asked).voiceprints()[speakers[0].id]
    if not voiceprint.total.any():
        raise InputError(f"{path}: no clean speech of 1 s or more at a time; record the person again")
    return voiceprint
