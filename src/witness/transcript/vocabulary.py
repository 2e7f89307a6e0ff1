"""Names and terms of a folder: words that people write there again and again as corrections.

`.witness-words` in the folder lists the corrected words of each transcript, as of its last save, and the
words that a person accepted as vocabulary or declined. Later recordings in that folder, and below it, are
transcribed with that vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from witness.errors import InputError, OutputError
from witness.schema import Correction, Findings, WordIndex
from witness.storage import atomic, files, transaction, typed_json
from witness.text import without_commands
from witness.transcript import store
from witness.transcript.corrections import PUNCTUATION

NAME = ".witness-words"
OFTEN = 3
"""Equal corrections after which their word is offered."""
LONGEST = 60
"""Characters of the longest name or term; a recognizer takes few."""
SCHEMA = "witness-words/1"

Pair = tuple[str, str]
"""Recognized text, and a person's text."""


class ProjectWords(Struct, frozen=True):
    """The file."""

    vocabulary: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    """Words that are not offered again."""
    corrected: dict[str, tuple[Pair, ...]] = {}
    """Corrections by name of the transcript."""
    schema: str = SCHEMA


class Offer(Struct, frozen=True):
    """A frequent correction."""

    heard: str
    written: str
    times: int


def corrected_pairs(findings: Findings, corrections: Sequence[Correction]) -> tuple[Pair, ...]:
    """Return the recognized and the corrected texts of a transcript with these findings."""
    begin = findings.audio.transcribed.start
    pairs: dict[tuple[int, tuple[int, ...]], Pair] = {}
    for track_number, track in enumerate(findings.tracks):
        words = track.recognition.words if track.recognition is not None else ()
        index = WordIndex(words)
        for correction in corrections:
            if correction.kind != "text":
                continue
            spans = tuple((start - begin, end - begin) for start, end in correction.other)
            numbers = index.within(spans).tolist()
            recognized = _without_signs("".join(words[number].text for number in numbers))
            if numbers:  # the last of several corrections of the same words counts
                corrected = _without_signs(correction.text or "")
                pairs[track_number, tuple(numbers)] = recognized.casefold(), corrected
    return tuple(sorted(pair for pair in pairs.values() if _is_term(*pair)))


def remember(path: Path, pairs: Sequence[Pair]) -> None:
    """Replace the corrections of the transcript at `path` in the file. Raises InputError, OutputError."""
    name = store.base_name(path)
    if read(path.parent).corrected.get(name, ()) == tuple(pairs):
        return
    with transaction.alone(path.parent, NAME[1:]):
        words = read(path.parent)
        corrected = {**words.corrected, name: tuple(pairs)}
        if not pairs:
            del corrected[name]
        _write(path.parent, structs.replace(words, corrected=corrected))


def read(folder: Path) -> ProjectWords:
    """Read the file of a folder; empty without one. Raises InputError."""
    path = folder / NAME
    try:
        words = typed_json.decode(files.read(path), ProjectWords)
    except FileNotFoundError:
        return ProjectWords()
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); move it away") from error
    if words.schema != SCHEMA:
        raise InputError(f"{path} is of another version of Witness; move it away")
    return words


def offers(folder: Path) -> list[Offer]:
    """Return the words to offer, the most frequent first. Raises InputError."""
    words = read(folder)
    existing = [pairs for name, pairs in words.corrected.items() if (folder / f"{name}.json").is_file()]
    times = Counter(pair for pairs in existing for pair in pairs)
    decided = {word.casefold() for word in (*words.vocabulary, *words.declined)}
    return [
        Offer(recognized, corrected, count)
        for (recognized, corrected), count in times.most_common()
        if count >= OFTEN and corrected.casefold() not in decided
    ]


def decide(folder: Path, *, take: Sequence[str] = (), drop: Sequence[str] = ()) -> ProjectWords:
    """Take words into the vocabulary of the folder, and drop or decline others.

    Raises InputError, OutputError.
    """
    with transaction.alone(folder, NAME[1:]):
        before = read(folder)
        vocabulary = [word for word in before.vocabulary if word not in drop]
        declined = [word for word in before.declined if word not in take]
        words = structs.replace(
            before,
            vocabulary=tuple(dict.fromkeys((*vocabulary, *take))),
            declined=tuple(dict.fromkeys((*declined, *drop))),
        )
        _write(folder, words)
    return words


def terms(folder: Path, root: Path) -> tuple[str, ...]:
    """Return the vocabulary of a folder and of those above it, up to `root`. Raises InputError."""
    collected: dict[str, None] = {}
    for each in (folder, *folder.parents):
        collected |= dict.fromkeys(read(each).vocabulary)
        if each == root:
            break
    return tuple(collected)


def _write(folder: Path, words: ProjectWords) -> None:
    try:
        atomic.replace(msgspec.json.format(msgspec.json.encode(words), indent=1), folder / NAME)
    except OSError as error:
        raise OutputError(f"{folder / NAME}: cannot be written ({error.strerror})") from error


def _without_signs(text: str) -> str:
    return without_commands(text).strip(f"{PUNCTUATION} ")


def _is_term(recognized: str, corrected: str) -> bool:
    """Return True for a different word that a recognizer may not know."""
    return bool(recognized) and 1 < len(corrected) <= LONGEST and recognized != corrected.casefold()
