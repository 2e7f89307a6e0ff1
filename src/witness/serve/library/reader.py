"""A file below the folder -> its entry in the index. Also the process that does it.

The transcript of a day takes 200 MB while it is read, and the interpreter for seconds: not the server's.
Request and reply, as `witness.child` carries them:

    {"index": path, "path": path, "entry": what is known of the file}  ->  {"damaged": whether the index was}
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from witness.audio import decode
from witness.child import Child, DiedError, Message, RefusedError, serve
from witness.errors import InputError, WitnessError
from witness.formats import notes
from witness.schema import Transcript
from witness.serve.library.index import DamagedError, Index, IndexEntry, ListedNote
from witness.serve.library.passages import names, passages
from witness.transcript import store

PRIORITY = 10
"""How much nicer than the server the process is to others."""


NOT_ENGLISH = "not English, the only language that its model knows; transcribe it with another one"
"""What the list says of a recording that has no words therefore."""


class Reader:
    """The process; it starts when it is needed. One thread may `take`; any may `close` meanwhile."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._closed = threading.Event()

    def take(self, index: Index, path: Path, entry: IndexEntry) -> None:
        """As the function of this name; a file that ends the process twice is put down as failed.

        Raises DamagedError, WitnessError.
        """
        why = ""
        for _ in range(2):
            if self._child is None:
                self._child = Child("witness.serve.library.reader")
            request = {"index": str(index.path), "path": str(path), "entry": asdict(entry)}
            try:
                reply, _ = self._child.ask(request)
            except RefusedError as error:
                raise WitnessError(str(error)) from error
            except DiedError as error:
                self._child = None
                if self._closed.is_set():
                    return
                why = f"{path}: the process that read it ended ({error}){error.last_words}"
                continue
            if reply["damaged"]:
                raise DamagedError("the index of words was damaged and is being made again")
            return
        index.put(replace(entry, state="failed", why=why))

    def close(self) -> None:
        """End the process."""
        self._closed.set()
        if (child := self._child) is not None:
            child.kill()


def take(index: Index, path: Path, entry: IndexEntry) -> None:
    """Read the file at `path`, of which `entry` has the id, size and time, and put it into the index.

    Raises DamagedError, sqlite3.Error.
    """
    read, transcript = _read(path, entry)
    try:
        index.put(read, passages(transcript) if transcript else ())
    except InputError as error:
        index.put(replace(read, state="failed", why=f"{path}: {error}"))


def _read(path: Path, entry: IndexEntry) -> tuple[IndexEntry, Transcript | None]:
    """What is known of a file once it is read, and the transcript in it; None: there is none."""
    try:
        transcript = store.read(path)
    except store.OtherJsonError:
        return replace(entry, state="other"), None
    except InputError as error:
        return replace(entry, state="failed", why=str(error)), None
    read = replace(
        entry,
        state=transcript.state,
        until=transcript.review.until,
        notes=tuple(_notes(transcript)),
        seconds=transcript.audio.duration,
        speakers=tuple(names(transcript).values()),
        date=_date(Path(transcript.audio.path), path.parent) or entry.date,
        tags=transcript.tags,
        why=_foreign(transcript),
    )
    return read, transcript


def _foreign(transcript: Transcript) -> str | None:
    """What to say of a recording most of whose speech the model could not know; None: it could."""
    said = sum(one.end - one.start for one in transcript.utterances)
    missed = sum(one.end - one.start for one in transcript.utterances if one.not_english)
    return NOT_ENGLISH if missed > said / 2 else None


def _date(recording: Path, beside: Path) -> float | None:
    """When the recording was made, according to itself; or else when the file was last changed."""
    for one in (beside / recording.name, recording):
        with suppress(OSError, ValueError):
            changed = one.stat().st_mtime
            with suppress(InputError):
                return decode.recorded(str(one)) or changed
            return changed
    return None


def _notes(transcript: Transcript) -> Iterator[ListedNote]:
    called = names(transcript)
    for one in notes.of(transcript):
        speaker = ", ".join(called.get(speaker, speaker) for speaker in one.speakers)
        yield ListedNote(one.start, one.quote, speaker, one.text, one.codes)


def _answer(request: Message, _: bytes) -> tuple[Message, list[bytes]]:
    entry = IndexEntry(
        **{
            **request["entry"],
            **{key: tuple(request["entry"][key]) for key in ("speakers", "tags")},
            "notes": (),
        }
    )
    try:
        take(Index(Path(request["index"])), Path(request["path"]), entry)
    except DamagedError:
        return {"damaged": True}, []
    return {"damaged": False}, []


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(PRIORITY)
    serve(_answer)
