"""Edits in a child process of `WorkerClient`: `python -m witness.serve.editing.transcript_worker`.

Request and reply, as `witness.child` carries them:

    {"do": "save", "path": "/calls/a.json", ...}  ->  {"version": ...}, or {"refused": line, "kind": class}
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from msgspec import structs

from witness import errors
from witness.audio import sound
from witness.child import Buffer, Message, serve
from witness.diarization import voices
from witness.formats import page
from witness.formats.registry import Format
from witness.options import Part, chosen
from witness.serve.editing import export_options, exports, views
from witness.storage import files
from witness.transcript import edits, occurrences, previous, project_words, redo, store, trash, voiceprints

Reply = tuple[Message, list[Buffer]]


def _html(path: Path, given: Message) -> Reply:
    return {}, [views.html(path, given["rest"], given["script"]).encode("utf-8", "replace")]


def _show(path: Path, _: Message) -> Reply:
    shown = edits.show(path)
    state = {"version": shown.version, "steps": shown.steps, "undone": shown.undone}
    return {**state, "review": asdict(shown.review), "page": page.identity(shown.base)}, []


def _save(path: Path, given: Message) -> Reply:
    return _told(edits.save(path, edits.read_edit(given["edit"])))


def _add(path: Path, given: Message) -> Reply:
    return _told(edits.add(path, given["version"], given["corrections"]))


def _name(path: Path, given: Message) -> Reply:
    return _told(edits.name(path, given["version"], given["speaker"], given["name"]))


def _note(path: Path, given: Message) -> Reply:
    return _told(edits.note(path, given["version"], given["steps"]))


def _occurrences(path: Path, given: Message) -> Reply:
    content = store.content(path)
    transcript = store.transcript(path, store.decoded(path, content))
    found = occurrences.find(transcript, given["heard"], given["written"])
    shown = ("place", "before", "old", "new", "after")
    return {
        "version": files.sha256(content),
        "places": [{key: getattr(one, key) for key in shown} for one in found],
    }, []


def _rewrite(path: Path, given: Message) -> Reply:
    return _told(
        edits.rewrite(path, given["version"], given["heard"], given["written"], set(given["places"]))
    )


def _tag(path: Path, given: Message) -> Reply:
    return _told(edits.tag(path, given["add"], given["remove"]))


def _move(path: Path, given: Message) -> Reply:
    return {"place": str(trash.move(path, Path(given["place"]), _recording_of(given)))}, []


def _throw(path: Path, given: Message) -> Reply:
    return structs.asdict(trash.throw(path, Path(given["root"]), _recording_of(given))), []


def _restore(path: Path, given: Message) -> Reply:
    return {"place": str(trash.restore(path, given["thrown"]))}, []


def _recording_of(given: Message) -> Path | None:
    return None if given["recording"] is None else Path(given["recording"])


def _recount(path: Path, given: Message) -> Reply:
    return _told(edits.recount(path, given["version"], given["speakers"]))


def _original(path: Path, given: Message) -> Reply:
    return _told(edits.original(path, given["version"]))


def _told(saved: store.Written) -> Reply:
    return {"version": saved.version, "left": saved.left}, []


def _export(path: Path, given: Message) -> Reply:
    wanted = export_options.read(given.get("options", {}))
    name, content = exports.content(path, chosen(Format, given["format"]), wanted)
    return {"name": name}, [content]


def _audible(path: Path, given: Message) -> Reply:
    name, content = exports.audible(path, export_options.read(given["options"]))
    return {"name": name}, [content]


def _preview(path: Path, given: Message) -> Reply:
    wanted = export_options.read(given["options"])
    return {"text": exports.preview(path, chosen(Format, given["format"]), wanted)}, []


def _project(_: Path, given: Message) -> Reply:
    return {}, [views.project(given["name"], list(map(Path, given["paths"])))]


def _outline(path: Path, _: Message) -> Reply:
    return {}, [views.peaks(path)]


def _recording(path: Path, _: Message) -> Reply:
    return {"recording": str(views.recording(path))}, []


def _source(path: Path, _: Message) -> Reply:
    """Where the recording itself is, and which part of it was transcribed."""
    audio = store.read(path).audio
    place, _note = sound.located(audio, path.parent)
    part = {} if audio.part is None else {"start": audio.part.start, "end": audio.part.end}
    return {"recording": str(place), "part": part}, []


def _differences(path: Path, _: Message) -> Reply:
    found = previous.read(path)
    if found is None:
        return {"there": False}, []
    told = {"there": True, "kept": found.kept, "seen": found.seen}
    return {**told, "differences": [asdict(one) for one in found.differences]}, []


def _looked_through(path: Path, given: Message) -> Reply:
    return _told(previous.look_through(path, given["version"]))


def _swap(path: Path, given: Message) -> Reply:
    return _told(previous.swap(path, given["version"]))


def _words(folder: Path, given: Message) -> Reply:
    """The vocabulary of a folder, and what is offered for it; "take" and "drop" change it."""
    if "take" in given:
        project_words.settle(folder, take=given["take"], drop=given["drop"])
    all_terms = project_words.vocabulary(folder, Path(given["root"]))
    offers = [structs.asdict(one) for one in project_words.offers(folder)]
    return {"own": project_words.read(folder).vocabulary, "vocabulary": all_terms, "offers": offers}, []


def _enroll(path: Path, given: Message) -> Reply:
    saved = redo.read(path)
    if "speaker" in given:
        voice = voiceprints.remember(saved, given["name"], given["speaker"])
    else:
        voice = voiceprints.enroll(saved, given["name"], Part(given["start"], given["end"]))
    voices.write(voice, Path(given["known"]))
    return {"name": voice.name, "seconds": voice.seconds}, []


def _find(path: Path, given: Message) -> Reply:
    """Where a voice is heard; without "speaker" nowhere, and with "other" it is no transcript."""
    try:
        saved = redo.read(path)
    except store.OtherJsonError:
        return {"other": True}, []
    voice = voices.read_one(voices.place(given["name"], Path(given["known"])))
    found = voiceprints.find(saved, voice)
    if found is None:
        return {}, []
    speaker, score = found
    called = saved.names[speaker] or speaker
    return {
        "speaker": speaker,
        "called": called,
        "likely": voiceprints.in_words(called, voice.name, score),
        "start": voiceprints.longest(saved.turns, speaker),
        "version": files.sha256(files.read(path)),
    }, []


def _suggest(path: Path, given: Message) -> Reply:
    """Whom the speakers sound like."""
    known = voices.read_all(Path(given["known"]))
    found = voiceprints.suggest(redo.read(path), known)
    told = {
        speaker: {"name": voice.name, "sure": score >= voices.SURE}
        for speaker, (voice, score) in found.items()
    }
    return {"speakers": told}, []


ACTIONS: dict[str, Callable[[Path, Message], Reply]] = {
    "html": _html,
    "show": _show,
    "save": _save,
    "add": _add,
    "name": _name,
    "note": _note,
    "occurrences": _occurrences,
    "rewrite": _rewrite,
    "tag": _tag,
    "move": _move,
    "throw": _throw,
    "restore": _restore,
    "recount": _recount,
    "original": _original,
    "source": _source,
    "differences": _differences,
    "looked_through": _looked_through,
    "swap": _swap,
    "words": _words,
    "export": _export,
    "audible": _audible,
    "preview": _preview,
    "project": _project,
    "outline": _outline,
    "recording": _recording,
    "enroll": _enroll,
    "find": _find,
    "suggest": _suggest,
}


def _answer(request: Message, _: bytes) -> Reply:
    try:
        return ACTIONS[request["do"]](Path(request["path"]), request)
    except errors.WitnessError as error:
        kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__]
        more = {"version": error.version} if isinstance(error, errors.ConflictError) else {}
        return {"refused": str(error), "kind": kinds[0], **more}, []


if __name__ == "__main__":
    page.prepare()
    gc.freeze()  # what was imported stays; to look through it took a fifth of an hour's page
    serve(_answer)
