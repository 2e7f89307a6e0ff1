"""What the page of a transcript shows: the page itself, the recording, and the outline of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from witness.audio import sound
from witness.errors import InputError
from witness.formats import page, qdpx, reading
from witness.formats.registry import Format
from witness.options import PageAudio
from witness.progress import Reporter
from witness.schema import Sound, Transcript
from witness.storage import atomic, cache
from witness.transcript import edits, previous, store

PLAYED = {
    *("aac", "flac", "m4a", "m4b", "mp3", "oga", "ogg", "opus", "wav"),
    *("mka", "mkv", "mov", "mp4", "webm"),
}
"""Endings of what browsers play as it is: https://developer.mozilla.org/docs/Web/Media/Guides/Formats"""


def project(name: str, paths: Sequence[Path]) -> bytes:
    """A REFI-QDA project of some transcripts. Raises InputError."""
    return qdpx.project(name, [reading.read(store.read(path), smooth=True) for path in paths])


def html(path: Path, rest: Mapping[str, Any], script: Sequence[str]) -> str:
    """The page of the transcript; `rest` is what static/saving.js needs beside what is shown.

    `script` are the addresses of the page's modules, the entry the last.
    """
    shown = edits.show(path)
    served = {
        **rest,
        "version": shown.version,
        "review": asdict(shown.review),
        "steps": shown.steps,
        "undone": shown.undone,
        "refusal": rest["barred"] or shown.refusal,
        "noting": rest["noting"] and shown.refusal is None,
        "lack": shown.lack,
        "restorable": shown.restorable,
        "replaced": previous.read(path) is not None,
        "foreign": _foreign(shown.base),
        "history": store.history_of(path).name,
        "corrected": any(one.kind != "note" for one in shown.base.corrections),
        "asked": shown.base.asked.speakers,
    }
    linked = Sound(b"", link="sound")
    return page.transcript_page(shown.base, reading.title(shown.base), linked, served, script)


def _foreign(transcript: Transcript) -> str | None:
    """What is to be said of speech that the model, which knows English only, could not be given."""
    model = transcript.models["whisper"]
    if model is None or not any(one.not_english for one in transcript.utterances):
        return None
    return f"{model.name} knows English only, and this is another language: choose a model that knows it"


def peaks(path: Path) -> bytes:
    """The outline of the recording, from the page beside the JSON or from the cache of earlier times.

    Raises InputError if it cannot be found.
    """
    transcript = store.read(path)
    there = store.sibling(path, Format.HTML)
    beside = page.sound_in(store.content(there).decode("utf-8", "replace")) if there.is_file() else None
    if beside is not None:
        return beside.peaks
    part = transcript.audio.transcribed
    key = f"{transcript.audio.sha256}-{round(part.start * 1000)}-{round(part.end * 1000)}"

    def make() -> Sequence[bytes]:
        notes: list[str] = []
        told = Reporter(note=notes.append)
        heard = sound.take(
            transcript.audio, [("html", None)], PageAudio.LINK, beside=path.parent, reporter=told
        )
        if heard is None:
            raise InputError(notes[0])
        return [heard.peaks]

    return cache.cached(cache.cache_folder() / "outlines" / key, ["outline"], make)[0]


def recording(path: Path) -> Path:
    """The recording of the transcript, or what browsers can play of it. Raises InputError, OutputError."""
    audio = store.read(path).audio
    there = Path(sound.located(audio, path.parent)[0])
    if there.suffix[1:].lower() in PLAYED:
        return there

    def make() -> Sequence[bytes]:
        whole = replace(audio, part=None)
        heard = sound.take(whole, [("html", None)], PageAudio.EMBED, beside=path.parent)
        if heard is None or heard.opus is None:
            raise InputError(f"{there}: cannot be made into sound for a browser; convert it to WAV")
        return [heard.opus]

    folder = cache.cache_folder() / "sounds" / audio.sha256
    content = cache.cached(folder, ["sound.webm"], make)[0]
    made = folder / "sound.webm"
    if not made.is_file():  # the cache cannot be written
        atomic.write(content, made, private=True)
    return made
