"""Views of a transcript: its page, its recording and outline, its differences, voices and words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import msgspec
from msgspec import Struct

from witness.audio import sound
from witness.diarization import voices
from witness.errors import InputError
from witness.formats import html, qdpx, reading
from witness.formats.registry import Format
from witness.options import PageAudio, Part
from witness.progress import Reporter
from witness.schema import Review, Sound, Transcript
from witness.storage import atomic, cache, files
from witness.text import printable
from witness.transcript import corrections, edits, previous, rebuild, speaker_voices, store, vocabulary
from witness.transcript.edits import Steps
from witness.transcript.reapply import Deviation
from witness.transcript.vocabulary import Offer

PLAYED = {
    *("aac", "flac", "m4a", "m4b", "mp3", "oga", "ogg", "opus", "wav"),
    *("mka", "mkv", "mov", "mp4", "webm"),
}
"""Endings that browsers play: https://developer.mozilla.org/docs/Web/Media/Guides/Formats"""


# --- the page ---


class Visit(Struct, frozen=True, kw_only=True, rename="camel"):
    """Facts that only the server has; their JSON keys are those of web/editor/saving.js."""

    id: str
    formats: Sequence[dict[str, str]]
    barred: str | None
    """The reason why this visitor may correct nothing."""
    noting: bool
    """This visitor may write notes, and nothing else."""
    working: bool = False
    not_again: str | None = None


class SavedSteps(Struct):
    """The steps that a page can undo and redo."""

    version: str
    steps: Steps
    undone: Steps
    review: Review
    page: str


def page(path: Path, visit: Visit, script: Sequence[str]) -> bytes:
    """Return the page; `script` are the addresses of its modules, the entry the last."""
    shown = edits.show(path)
    served = {
        **msgspec.to_builtins(visit),
        "version": shown.version,
        "review": asdict(shown.review),
        "steps": shown.steps,
        "undone": shown.undone,
        "refusal": visit.barred or shown.refusal,
        "noting": visit.noting and shown.refusal is None,
        "lack": shown.lack,
        "restorable": shown.restorable,
        "replaced": previous.read(path) is not None,
        "foreign": _other_language(shown.base),
        "history": store.history_path(path).name,
        "corrected": any(correction.kind != "note" for correction in shown.base.corrections),
        "asked": shown.base.asked.speakers,
    }
    linked = Sound(b"", link="sound")
    text = html.transcript_page(shown.base, reading.title(shown.base), linked, served, script)
    return text.encode("utf-8", "replace")


def _other_language(transcript: Transcript) -> str | None:
    """Return a message about speech that an English-only model left out; None: no such speech."""
    model = transcript.models["whisper"]
    if model is None or not any(utterance.not_english for utterance in transcript.utterances):
        return None
    return f"{model.name} knows English only, and this is another language: choose a model that knows it"


def saved_steps(path: Path) -> SavedSteps:
    shown = edits.show(path)
    return SavedSteps(shown.version, shown.steps, shown.undone, shown.review, html.identity(shown.base))


def project(folder: Path, paths: Sequence[Path]) -> tuple[str, bytes]:
    """Return name and content of a REFI-QDA project of transcripts of the folder. Raises InputError."""
    name = printable(folder.name or "notes")
    readings = [reading.read(store.read(path), smooth=True) for path in paths]
    return f"{name}.qdpx", qdpx.project(name, readings)


# --- the recording ---


class RecordingSource(Struct):
    """A recording and the part of it that was transcribed; None: all of it."""

    path: Path
    part: Part | None


def source(path: Path) -> RecordingSource:
    audio = store.read(path).audio
    return RecordingSource(Path(sound.located(audio, path.parent)[0]), audio.part)


def peaks(path: Path) -> bytes:
    """Return the outline of the recording, from the page beside the JSON or from the cache.

    Raises InputError if the recording cannot be found.
    """
    transcript = store.read(path)
    beside = store.sibling(path, Format.HTML)
    embedded = (
        html.sound_in(store.load(beside).content.decode("utf-8", "replace")) if beside.is_file() else None
    )
    if embedded is not None:
        return embedded.peaks
    part = transcript.audio.transcribed
    key = f"{transcript.audio.sha256}-{round(part.start * 1000)}-{round(part.end * 1000)}"

    def make() -> Sequence[bytes]:
        notes: list[str] = []
        outline = sound.take(
            *(transcript.audio, [("html", None)], PageAudio.LINK),
            beside=path.parent,
            reporter=Reporter(note=notes.append),
        )
        if outline is None:
            raise InputError(notes[0])
        return [outline.peaks]

    return cache.cached(cache.cache_folder() / "outlines" / key, ["outline"], make)[0]


def recording(path: Path) -> Path:
    """Return the recording, or a copy that browsers play. Raises InputError, OutputError."""
    audio = store.read(path).audio
    original = Path(sound.located(audio, path.parent)[0])
    if original.suffix[1:].lower() in PLAYED:
        return original

    def make() -> Sequence[bytes]:
        whole = sound.take(replace(audio, part=None), [("html", None)], PageAudio.EMBED, beside=path.parent)
        if whole is None or whole.opus is None:
            raise InputError(f"{original}: cannot be made into sound for a browser; convert it to WAV")
        return [whole.opus]

    folder = cache.cache_folder() / "sounds" / audio.sha256
    content = cache.cached(folder, ["sound.webm"], make)[0]
    playable = folder / "sound.webm"
    if not playable.is_file():  # the cache cannot be written
        atomic.write(content, playable, private=True)
    return playable


# --- corrections, differences and words ---


class FoundPlace(Struct):
    """A place where words may be written otherwise."""

    place: int
    before: str
    old: str
    new: str
    after: str


class FoundPlaces(Struct):
    """All of them, in one version of the transcript."""

    version: str
    places: list[FoundPlace]


class Differences(Struct):
    """Differences between a transcript and the earlier one."""

    kept: int
    seen: bool
    differences: tuple[Deviation, ...]


class FolderWords(Struct):
    """The vocabulary of a folder."""

    own: tuple[str, ...]
    vocabulary: tuple[str, ...]
    """With that of the folders above."""
    offers: list[Offer]


def occurrences_of(path: Path, heard: str, written: str) -> FoundPlaces:
    stored = store.load(path)
    matches = corrections.find_occurrences(stored.transcript, heard, written)
    places = msgspec.convert(matches, list[FoundPlace], from_attributes=True)
    return FoundPlaces(stored.version, places)


def differences(path: Path) -> Differences | None:
    """Compare with the earlier transcript; None: there is no earlier one."""
    earlier = previous.read(path)
    return None if earlier is None else Differences(earlier.kept, earlier.seen, earlier.differences)


def folder_words(folder: Path, root: Path, take: Sequence[str] = (), drop: Sequence[str] = ()) -> FolderWords:
    """Return the vocabulary of a folder below `root`, after taking terms into it and dropping others."""
    if take or drop:
        vocabulary.decide(folder, take=take, drop=drop)
    terms = vocabulary.terms(folder, root)
    return FolderWords(vocabulary.read(folder).vocabulary, terms, vocabulary.offers(folder))


# --- voices ---


class EnrolledVoice(Struct):
    """A voice that was kept."""

    name: str
    seconds: float


class VoiceMatch(Struct):
    """The speaker who sounds like a voice."""

    speaker: str
    called: str
    likely: str
    start: float
    """Seconds: the beginning of the longest turn."""
    version: str


class VoiceSearch(Struct):
    """The search for a voice in a JSON file."""

    is_transcript: bool = True
    match: VoiceMatch | None = None


class Suggestion(Struct):
    """The name of the person that a speaker sounds like."""

    name: str
    sure: bool


def enroll(path: Path, folder: Path, name: str, voice_of: str | Part) -> EnrolledVoice:
    """Keep the voice of a speaker, or of the one person who speaks in a part, in a folder."""
    saved = rebuild.read(path)
    if isinstance(voice_of, Part):
        voice = speaker_voices.enroll_part(saved, name, voice_of)
    else:
        voice = speaker_voices.enroll_speaker(saved, name, voice_of)
    voices.write(voice, folder)
    return EnrolledVoice(voice.name, voice.seconds)


def find_voice(path: Path, folder: Path, name: str) -> VoiceSearch:
    try:
        saved = rebuild.read(path)
    except store.OtherJsonError:
        return VoiceSearch(is_transcript=False)
    voice = voices.read_one(voices.path_of(name, folder))
    best = speaker_voices.find_speaker(saved, voice)
    if best is None:
        return VoiceSearch()
    speaker, score = best
    called = saved.names[speaker] or speaker
    match = VoiceMatch(
        *(speaker, called, speaker_voices.describe_match(called, voice.name, score)),
        *(speaker_voices.longest_turn_start(saved.turns, speaker), files.sha256(files.read(path))),
    )
    return VoiceSearch(match=match)


def suggest(path: Path, folder: Path) -> dict[str, Suggestion]:
    """Return the known people that the speakers sound like, by speaker."""
    matches = speaker_voices.suggest(rebuild.read(path), voices.read_all(folder))
    return {
        speaker: Suggestion(voice.name, score >= voices.SURE) for speaker, (voice, score) in matches.items()
    }
