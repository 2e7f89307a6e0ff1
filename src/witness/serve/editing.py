"""Views and exports of a transcript, which the server has made in a process of its own (`worker`)."""

from __future__ import annotations

import gc
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from witness.audio import sound
from witness.diarization import voices
from witness.errors import InputError, UsageError
from witness.formats import html, output_paths, qdpx, reading, writers
from witness.formats.registry import Format
from witness.options import PageAudio, Part
from witness.progress import Reporter
from witness.schema import LONGEST, Sound, Spans, Transcript
from witness.storage import atomic, cache, files
from witness.text import printable
from witness.transcript import (
    anonymous,
    corrections,
    edits,
    previous,
    rebuild,
    speaker_voices,
    store,
    vocabulary,
)

PLAYED = {
    *("aac", "flac", "m4a", "m4b", "mp3", "oga", "ogg", "opus", "wav"),
    *("mka", "mkv", "mov", "mp4", "webm"),
}
"""Endings that browsers play: https://developer.mozilla.org/docs/Web/Media/Guides/Formats"""
EXCERPT = 4000
"""Characters of a preview."""


def prepare() -> None:
    """Make the first call as fast as the next."""
    html.prepare()
    gc.freeze()  # the imported modules stay; to look through them took a fifth of an hour's page


# --- the page ---


def page(path: Path, visit: Mapping[str, Any], script: Sequence[str]) -> bytes:
    """Return the page; `script` are the addresses of its modules, the entry the last.

    `visit` has the facts that only the server has, by the names of web/editor/saving.js. `barred` is the
    reason why this visitor may correct nothing.
    """
    shown = edits.show(path)
    served = {
        **visit,
        "version": shown.version,
        "review": asdict(shown.review),
        "steps": shown.steps,
        "undone": shown.undone,
        "refusal": visit["barred"] or shown.refusal,
        "noting": visit["noting"] and shown.refusal is None,
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


def saved_steps(path: Path) -> dict[str, Any]:
    """Return the steps that a page can undo and redo."""
    shown = edits.show(path)
    return {
        "version": shown.version,
        "steps": shown.steps,
        "undone": shown.undone,
        "review": shown.review,
        "page": html.identity(shown.base),
    }


def project(folder: Path, paths: Sequence[Path]) -> tuple[str, bytes]:
    """Return name and content of a REFI-QDA project of transcripts of the folder. Raises InputError."""
    name = printable(folder.name or "notes")
    readings = [reading.read(store.read(path), smooth=True) for path in paths]
    return f"{name}.qdpx", qdpx.project(name, readings)


# --- the recording ---


def source(path: Path) -> tuple[Path, Part | None]:
    """Return the path of the recording, and the part of it that was transcribed; None: all of it."""
    audio = store.read(path).audio
    return Path(sound.located(audio, path.parent)[0]), audio.part


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

    return cache.cached(cache.cache_folder() / cache.OUTLINES / key, ["outline"], make, private=True)[0]


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

    folder = cache.cache_folder() / cache.SOUNDS / audio.sha256
    content = cache.cached(folder, ["sound.webm"], make, private=True)[0]
    playable = folder / "sound.webm"
    if not playable.is_file():  # the cache cannot be written
        atomic.write(content, playable, private=True)
    return playable


# --- corrections, differences and words ---


def find_occurrences(path: Path, heard: str, written: str) -> dict[str, Any]:
    """Return the places of words that may be written otherwise."""
    stored = store.load(path)
    matches = corrections.find_occurrences(stored.transcript, heard, written)
    shown = ("place", "before", "old", "new", "after")
    places = [{name: getattr(match, name) for name in shown} for match in matches]
    return {"version": stored.version, "places": places}


def differences(path: Path) -> dict[str, Any]:
    """Compare with the earlier transcript, if there is one."""
    earlier = previous.read(path)
    if earlier is None:
        return {"there": False}
    return {"there": True, "kept": earlier.kept, "seen": earlier.seen, "differences": earlier.differences}


def folder_words(
    folder: Path, root: Path, take: Sequence[str] = (), drop: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the vocabulary of a folder below `root`, after taking terms into it and dropping others."""
    if take or drop:
        vocabulary.decide(folder, take=take, drop=drop)
    return {
        "own": vocabulary.read(folder).vocabulary,
        "vocabulary": vocabulary.terms(folder, root),
        "offers": vocabulary.offers(folder),
    }


# --- voices ---


def enroll(path: Path, folder: Path, name: str, voice_of: str | Part) -> dict[str, Any]:
    """Keep the voice of a speaker, or of the one person who speaks in a part, in a folder."""
    saved = rebuild.read(path)
    if isinstance(voice_of, Part):
        voice = speaker_voices.enroll_part(saved, name, voice_of)
    else:
        voice = speaker_voices.enroll_speaker(saved, name, voice_of)
    voices.write(voice, folder)
    return {"name": voice.name, "seconds": voice.seconds}


def find_voice(path: Path, folder: Path, name: str) -> dict[str, Any] | None:
    """Return the speaker who sounds like a voice; `start` is the beginning of the longest turn.

    Raises OtherJsonError, InputError.
    """
    saved = rebuild.read(path)
    voice = voices.read_one(voices.path_of(name, folder))
    best = speaker_voices.find_speaker(saved, voice)
    if best is None:
        return None
    speaker, score = best
    called = saved.names[speaker] or speaker
    return {
        "speaker": speaker,
        "called": called,
        "likely": speaker_voices.describe_match(called, voice.name, score),
        "start": speaker_voices.longest_turn_start(saved.turns, speaker),
        "version": files.sha256(files.read(path)),
    }


def suggest(path: Path, folder: Path) -> dict[str, Any]:
    """Return the known people that the speakers sound like, by speaker."""
    matches = speaker_voices.suggest(rebuild.read(path), voices.read_all(folder))
    return {
        speaker: {"name": voice.name, "sure": score >= voices.SURE}
        for speaker, (voice, score) in matches.items()
    }


# --- exports ---


Choice = Literal["keep", "drop"]


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export; None: as in the transcript."""

    names: Literal["keep", "drop", "anonymous"] = "keep"
    times: Choice | None = None
    fillers: Choice | None = None
    pauses: Annotated[float, Meta(ge=0, le=LONGEST)] | None = None
    """Seconds: the shortest pause that is marked; 0: no marks."""
    hidden: Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=200)] = ()
    """Words to leave out beside names, where these are left out."""

    @property
    def style(self) -> dict[str, Any]:
        """The argument of `Transcript.styled`."""
        names = "none" if self.names == "drop" else None
        rest = {"times": self.times, "fillers": self.fillers, "pauses": self.pauses}
        return {**rest, "speaker_names": names}


UNCHANGED = ExportOptions()


def read_options(value: Any) -> ExportOptions:
    """Check the options in a request. Raises UsageError."""
    try:
        return msgspec.convert(value, ExportOptions)
    except msgspec.ValidationError as error:
        raise UsageError(f"these options cannot be used ({error})") from error


def export(
    path: Path, form: Format, options: ExportOptions = UNCHANGED, title: str = anonymous.TITLE
) -> tuple[str, bytes]:
    """Return name and content of the file of a format; a page has its sound inside if that is short.

    An anonymous one has this `title`, and no path to the recording. Raises InputError, WitnessError.
    """
    output_paths.check_libraries([form])
    if form == Format.JSON and options == UNCHANGED:
        return output_paths.name_of(printable(store.base_name(path)), form), store.load(path).content
    transcript, title, covered = _styled(path, options, title)
    audio = store.read(path).audio
    how = PageAudio.EMBED if audio.transcribed.duration < sound.EMBEDDED else PageAudio.NONE
    played = sound.take(audio, [(form, None)], how, beside=path.parent, covered=covered)
    name = output_paths.name_of(printable(title), form)
    if options.names != "anonymous":
        return name, writers.content(transcript, form, played, path.with_name(name))
    undated = None if played is None else replace(played, recorded=None)
    return name, writers.content(transcript, form, undated)


def export_sound(path: Path, options: ExportOptions, title: str = anonymous.TITLE) -> tuple[str, bytes]:
    """Return name and content of the recording as MP3; a tone covers names that are left out.

    Raises InputError, OutputError.
    """
    audio = store.read(path).audio
    _, title, covered = _styled(path, options, title)
    recording, _ = sound.located(audio, path.parent)
    return f"{printable(title)}.mp3", sound.mp3(recording, audio, covered)


def preview(path: Path, form: Format, options: ExportOptions) -> str:
    """Return the beginning of the file, of Word that of its paragraphs. Raises InputError, WitnessError."""
    if form.about.sound:  # the page on the desk looks the same; the options change its text
        form = Format.TXT
    _, written = export(path, form, options)
    if form == Format.DOCX:
        import docx

        return "\n".join(part.text for part in docx.Document(io.BytesIO(written)).paragraphs)[:EXCERPT]
    return written.decode("utf-8", "replace")[:EXCERPT]


def _styled(path: Path, options: ExportOptions, title: str) -> tuple[Transcript, str, Spans]:
    """Return the transcript with the options, its title, and the stretches whose sound a tone covers."""
    transcript = store.read(path).styled(options.style)
    if options.names != "anonymous":
        return transcript, store.base_name(path), ()
    without_names = anonymous.anonymize(transcript, options.hidden, title)
    return without_names.transcript, title, without_names.covered
