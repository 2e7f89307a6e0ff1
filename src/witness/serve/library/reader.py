"""Reads files below the folder into the index, in a child process.

The transcript of a day takes 200 MB while it is read, and the interpreter for seconds: not the server's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from witness.audio import decode
from witness.child import Child, DiedError, Limits, RefusedError
from witness.errors import InputError, WitnessError
from witness.formats import reading
from witness.schema import Transcript
from witness.serve.calls import Calls
from witness.serve.library.index import DamagedError, Index, IndexEntry, ListedNote
from witness.serve.library.passages import names, passages
from witness.text import printable
from witness.transcript import store

PRIORITY = 10
"""Added to the server's niceness for the process."""
NOT_ENGLISH = "not English, the only language that its model knows; transcribe it with another one"


def put_file(index: Path, path: Path, entry: IndexEntry) -> bool:
    """Read the file at `path` into the index; `entry` has its id, size and time.

    Returns False if the index was damaged, and is being built again. Raises sqlite3.Error.
    """
    entry, transcript = _read(path, entry)
    try:
        try:
            Index(index).put(entry, passages(transcript) if transcript else ())
        except InputError as error:
            Index(index).put(replace(entry, state="failed", why=printable(f"{path}: {error}")))
    except DamagedError:
        return False
    return True


CALLS = Calls(put_file)


class Reader:
    """The process; it starts at the first file. One thread may `take`; any may `close` meanwhile."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._closed = threading.Event()

    def take(self, index: Index, path: Path, entry: IndexEntry) -> None:
        """Read a file as `put_file` does; one that ends the process twice gets the state "failed".

        Raises DamagedError, WitnessError.
        """
        why = ""
        for _ in range(2):
            if self._child is None:
                self._child = Child("witness.serve.library.reader")
            try:
                done = CALLS.call(self._child, Limits(), put_file, index.path, path, entry)
            except RefusedError as error:
                raise WitnessError(str(error)) from error
            except DiedError as error:
                self._child = None
                if self._closed.is_set():
                    return
                why = f"{path}: the process that read it ended ({error}){error.last_words}"
                continue
            if not done:
                raise DamagedError
            return
        index.put(replace(entry, state="failed", why=printable(why)))

    def close(self) -> None:
        """End the process."""
        self._closed.set()
        if (child := self._child) is not None:
            child.kill()


def _read(path: Path, entry: IndexEntry) -> tuple[IndexEntry, Transcript | None]:
    """Return the entry of a file, and the transcript in it; None: it has none."""
    try:
        transcript = store.read(path)
    except store.OtherJsonError:
        return replace(entry, state="other"), None
    except InputError as error:
        return replace(entry, state="failed", why=printable(str(error))), None
    said = sum(utterance.end - utterance.start for utterance in transcript.utterances)
    missed = sum(
        utterance.end - utterance.start for utterance in transcript.utterances if utterance.not_english
    )
    entry = replace(
        entry,
        state=transcript.state,
        until=transcript.review.until,
        notes=tuple(_notes(transcript)),
        seconds=transcript.audio.duration,
        speakers=tuple(names(transcript).values()),
        date=_date(Path(transcript.audio.path), path.parent) or entry.date,
        tags=transcript.tags,
        why=NOT_ENGLISH if missed > said / 2 else None,
    )
    return entry, transcript


def _date(recording: Path, folder: Path) -> float | None:
    """Return the date in the recording, or else that of its last change."""
    for path in (folder / recording.name, recording):
        with suppress(OSError, ValueError):
            changed = path.stat().st_mtime
            with suppress(InputError):
                return decode.recorded(str(path)) or changed
            return changed
    return None


def _notes(transcript: Transcript) -> Iterator[ListedNote]:
    called = names(transcript)
    for note in reading.noted_passages(transcript):
        speaker = ", ".join(called.get(speaker, speaker) for speaker in note.speakers)
        yield ListedNote(note.start, note.quote, speaker, note.text, note.codes)


if __name__ == "__main__":
    from witness.serve.library import reader  # its functions go by the module's name

    if hasattr(os, "nice"):
        os.nice(PRIORITY)
    reader.CALLS.serve()
