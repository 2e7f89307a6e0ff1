"""The names and terms of a folder: what people write there again and again in place of what was heard.

`.witness-words` in the folder says which words were corrected in which transcript, as of its last save, and
which of them a person has made vocabulary of the folder, or not. Later recordings of that folder, and of
those below it, are transcribed with that vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from witness.errors import InputError, OutputError
from witness.schema import Correction, Findings, WordIndex
from witness.storage import atomic, decode, files, transaction
from witness.text import without_commands
from witness.transcript import store
from witness.transcript.corrections import PUNCTUATION

NAME = ".witness-words"
OFTEN = 3
"""Corrections of the same kind after which their word is offered."""
LONGEST = 60
"""Characters of what may be a name or a term; a recognizer has room for few."""
SCHEMA = "witness-words/1"

Pair = tuple[str, str]
"""What was heard, and what a person wrote in its place."""


class ProjectWords(Struct, frozen=True):
    """The file."""

    vocabulary: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    """What shall not be offered again."""
    corrected: dict[str, tuple[Pair, ...]] = {}
    """By the name of the transcript."""
    schema: str = SCHEMA


class Offer(Struct, frozen=True):
    """A word that people have written often."""

    heard: str
    written: str
    times: int


def pairs(found: Findings, given: Sequence[Correction]) -> tuple[Pair, ...]:
    """What was heard and what was written, of the corrections of a transcript with these findings."""
    written: dict[tuple[int, tuple[int, ...]], Pair] = {}
    for number, track in enumerate(found.tracks):
        words = track.recognition.words if track.recognition is not None else ()
        places = WordIndex(words)
        for one in given:
            if one.kind != "text":
                continue
            begin = found.audio.transcribed.start
            there = places.within(tuple((start - begin, end - begin) for start, end in one.other)).tolist()
            heard = _bare("".join(words[n].text for n in there))
            if there:  # of several corrections of the same words the last one counts
                written[number, tuple(there)] = heard.casefold(), _bare(one.text or "")
    return tuple(sorted(pair for pair in written.values() if _is_term(*pair)))


def remember(path: Path, found: Sequence[Pair]) -> None:
    """Note what was corrected in the transcript at `path`, in place of what was noted before.

    Raises InputError, OutputError.
    """
    before, name = read(path.parent), store.name(path)
    if before.corrected.get(name, ()) == tuple(found):
        return
    with transaction.alone(path.parent, NAME[1:]):
        before = read(path.parent)
        corrected = {**before.corrected, name: tuple(found)}
        if not found:
            del corrected[name]
        _write(path.parent, structs.replace(before, corrected=corrected))


def read(folder: Path) -> ProjectWords:
    """What is known of a folder. Raises InputError if it cannot be read."""
    place = folder / NAME
    try:
        found = decode.from_json(files.read(place), ProjectWords)
    except FileNotFoundError:
        return ProjectWords()
    except (OSError, ValueError) as error:
        raise InputError(f"{place} is damaged ({error}); move it away") from error
    if found.schema != SCHEMA:
        raise InputError(f"{place} is of another version of Witness; move it away")
    return found


def offers(folder: Path) -> list[Offer]:
    """The words to offer, the most frequent first. Raises InputError."""
    found = read(folder)
    there = [pairs for name, pairs in found.corrected.items() if (folder / f"{name}.json").is_file()]
    times = Counter(pair for pairs in there for pair in pairs)
    settled = {one.casefold() for one in (*found.vocabulary, *found.declined)}
    return [
        Offer(heard, written, count)
        for (heard, written), count in times.most_common()
        if count >= OFTEN and written.casefold() not in settled
    ]


def settle(folder: Path, *, take: Sequence[str] = (), drop: Sequence[str] = ()) -> ProjectWords:
    """Make words vocabulary of the folder, or have them not, nor offered again.

    Raises InputError, OutputError.
    """
    with transaction.alone(folder, NAME[1:]):
        before = read(folder)
        vocabulary = [one for one in before.vocabulary if one not in drop]
        declined = [one for one in before.declined if one not in take]
        found = structs.replace(
            before,
            vocabulary=tuple(dict.fromkeys((*vocabulary, *take))),
            declined=tuple(dict.fromkeys((*declined, *drop))),
        )
        _write(folder, found)
    return found


def vocabulary(folder: Path, root: Path) -> tuple[str, ...]:
    """That of a folder and of those above it, up to `root`. Raises InputError."""
    terms: dict[str, None] = {}
    for one in (folder, *folder.parents):
        terms |= dict.fromkeys(read(one).vocabulary)
        if one == root:
            break
    return tuple(terms)


def _write(folder: Path, found: ProjectWords) -> None:
    try:
        atomic.replace(msgspec.json.format(msgspec.json.encode(found), indent=1), folder / NAME)
    except OSError as error:
        raise OutputError(f"{folder / NAME}: cannot be written ({error.strerror})") from error


def _bare(text: str) -> str:
    return without_commands(text).strip(f"{PUNCTUATION} ")


def _is_term(heard: str, written: str) -> bool:
    """Whether it is another word, and may be one that a recognizer does not know."""
    return bool(heard) and 1 < len(written) <= LONGEST and heard != written.casefold()
