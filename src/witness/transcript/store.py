"""The transcript in a JSON file: what is there, in the words of whoever asked for it."""

from __future__ import annotations

from pathlib import Path

from witness import documents, files
from witness.errors import InputError
from witness.formats import document
from witness.formats.document import Document
from witness.schema import Transcript


class OtherJsonError(InputError):
    """It is JSON, but not of a transcript."""


def read(path: Path) -> Transcript:
    """The transcript in the JSON at `path`, without what the models found.

    Raises InputError, which names the file and the place in it, and OtherJsonError if it is another kind of
    JSON, as programs write beside transcripts.
    """
    return transcript(path, decoded(path, content(path)))


def content(path: Path) -> bytes:
    """What is in the JSON at `path`. Raises InputError."""
    try:
        return files.read(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); give a JSON transcript that Witness wrote"
        ) from error


def decoded(path: Path, content: bytes) -> Document:
    """The document that was read at `path`. Raises as `read`."""
    try:
        return document.decode(content)
    except documents.NotJsonError as error:
        raise InputError(f"{path} is not JSON ({error}); transcribe the recording again") from error
    except document.OtherSchemaError as error:
        raise OtherJsonError(
            f"{path} is not a transcript of Witness ({error}); give a file of -f json"
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); transcribe the recording again") from error


def transcript(path: Path, found: Document) -> Transcript:
    """The transcript in the document that was read at `path`. Raises InputError."""
    try:
        return document.transcript(found)
    except document.OlderError as error:
        fix = "transcribe the recording again" if found.stages is None else f"run: witness redo {path}"
        raise InputError(f"{path} cannot be shown yet, because {error}; {fix}") from error
    except ValueError as error:
        raise InputError(
            f"{path} is damaged ({error}); transcribe the recording again, or run witness redo"
        ) from error
