"""Functions that read files below the folder into the index, for a process of its own.

The transcript of a day takes 200 MB while it is read, and the interpreter for seconds: not the server's.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from witness.audio import decode
from witness.errors import InputError, WitnessError
from witness.formats import reading
from witness.schema import Transcript
from witness.serve.library.index import DamagedError, Index, IndexEntry, ListedNote
from witness.serve.library.passages import names, passages
from witness.text import printable
from witness.transcript import store

PRIORITY = 10
"""Added to the server's niceness for the process."""
NOT_ENGLISH = "not English, the only language that its model knows; transcribe it with another one"


def prepare() -> None:
    """Leave the processor to others."""
    if hasattr(os, "nice"):
        os.nice(PRIORITY)


def put_file(path: Path, index: Path, entry: IndexEntry) -> bool:
    """Read the file at `path` into the index; `entry` has its id, size and time.

    Returns False if the index was damaged, and is being built again. Raises WitnessError.
    """
    entry, transcript = _read(path, entry)
    try:
        try:
            Index(index).put(entry, passages(transcript) if transcript else ())
        except InputError as error:
            Index(index).put(replace(entry, state="failed", why=printable(f"{path}: {error}")))
    except DamagedError:
        return False
    except sqlite3.Error as error:
        raise WitnessError(str(error)) from error
    return True


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
