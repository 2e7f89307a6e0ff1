"""What a person wants otherwise for one recording than for the others of its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from witness import languages
from witness.errors import UsageError
from witness.options import MOST_SPEAKERS, Options

ANY = "any"
"""In the place of a language: the one that is heard, whatever the folder's is."""
MOST_TERMS = 1000
"""Names and terms of a vocabulary; a recognizer has room for far fewer."""
LONGEST_TERM = 100
"""Characters."""


@dataclass(frozen=True)
class RecordingWish:
    """As the fields of `Options` of the same names; None: as the folder's."""

    language: str | None = None
    """Or ANY."""
    whisper: str | None = None
    """One of `models`: a path of this machine is nothing that a browser may choose."""
    vocabulary: tuple[str, ...] = ()
    """More than the folder's."""
    speakers: int | None = None
    channels: str | None = None
    start: float | None = None
    """Of the part of the recording that is wanted, in seconds, as is `end`."""
    end: float | None = None

    def of(self, options: Options) -> Options:
        """The options with this wish. Raises UsageError."""
        changed: dict[str, Any] = {}
        for name in ("language", "whisper", "channels", "start", "end"):
            if (value := getattr(self, name)) is not None:
                changed[name] = value
        if self.language == ANY:
            changed["language"] = None
        if self.speakers is not None:
            changed |= {"speakers": self.speakers, "min_speakers": None, "max_speakers": None}
        if self.vocabulary:
            terms = dict.fromkeys((*options.vocabulary, *self.vocabulary))
            changed["vocabulary"] = tuple(terms)
        return replace(options, **changed)

    @property
    def of_models(self) -> RecordingWish:
        """The part of it that the choice of models depends on."""
        return RecordingWish(self.language, self.whisper)

    def told(self) -> dict[str, Any]:
        """As JSON, without what is as the folder's."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}


def models() -> tuple[str, ...]:
    """The names of the models that can be wished for."""
    from witness.models import catalogue  # which takes a while

    return ("auto", *(one.name for one in catalogue.TABLE if one.role == "whisper"))


def read(given: Mapping[str, Any]) -> RecordingWish:
    """The wish in JSON. Raises UsageError that says what cannot be wished for."""
    if not given:
        return RecordingWish()
    import msgspec

    try:
        wish = msgspec.convert(given, RecordingWish)
    except msgspec.ValidationError as error:
        raise UsageError(f"these settings cannot be used ({error})") from None
    if wish.language not in (None, ANY):
        wish = replace(wish, language=languages.parse(wish.language or ""))
    if wish.whisper is not None and wish.whisper not in models():
        raise UsageError(f"{wish.whisper[:40]!r} is not a model that can be chosen here")
    if wish.speakers is not None and not 1 <= wish.speakers <= MOST_SPEAKERS:
        raise UsageError(f"the number of speakers is one from 1 to {MOST_SPEAKERS}")
    wish = replace(wish, vocabulary=terms(wish.vocabulary))
    wish.of(Options())
    return wish


def terms(given: tuple[str, ...]) -> tuple[str, ...]:
    """Names and terms, each once and without spaces around it. Raises UsageError for what is none."""
    found = tuple(dict.fromkeys(" ".join(term.split()) for term in given if term.strip()))
    if len(found) > MOST_TERMS:
        raise UsageError(f"a vocabulary has at most {MOST_TERMS} names and terms; leave some out")
    for term in found:
        if len(term) > LONGEST_TERM or term.encode("utf-8", "ignore").decode() != term:
            raise UsageError(f"{term[:40]!r} is not a term of at most {LONGEST_TERM} characters")
    return found
