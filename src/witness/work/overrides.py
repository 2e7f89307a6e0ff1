"""Settings of one recording that differ from those of its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from witness import languages
from witness.errors import UsageError
from witness.options import MOST_SPEAKERS, Options

ANY = "any"
"""A language override: detect it, although the folder has a language."""
MOST_TERMS = 1000
"""Names and terms of a vocabulary; a recognizer has room for far fewer."""
LONGEST_TERM = 100
"""Characters."""


@dataclass(frozen=True)
class JobOverrides:
    """Fields of `Options`, by the same names; None keeps the folder's value."""

    language: str | None = None
    """Or ANY."""
    whisper: str | None = None
    """One of `model_names`: a browser must not choose a path of this machine."""
    vocabulary: tuple[str, ...] = ()
    """Terms beside the folder's."""
    speakers: int | None = None
    channels: str | None = None
    start: float | None = None
    """The beginning of the part to transcribe, in seconds, as is `end`."""
    end: float | None = None

    def apply(self, options: Options) -> Options:
        """Return the options with these overrides. Raises UsageError."""
        changed = self.to_json()
        if self.language == ANY:
            changed["language"] = None
        if self.speakers is not None:
            changed |= {"min_speakers": None, "max_speakers": None}
        if self.vocabulary:
            changed["vocabulary"] = tuple(dict.fromkeys((*options.vocabulary, *self.vocabulary)))
        return replace(options, **changed)

    @property
    def for_models(self) -> JobOverrides:
        """The overrides that change the choice of models."""
        return JobOverrides(self.language, self.whisper)

    def to_json(self) -> dict[str, Any]:
        """Return the overrides without those that keep the folder's value."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    def checked(self) -> JobOverrides:
        """Return the overrides with the code of the language. Raises UsageError that names the bad one."""
        if self == JobOverrides():
            return self
        if self.whisper is not None and self.whisper not in model_names():
            raise UsageError(f"{self.whisper[:40]!r} is not a model that can be chosen here")
        if self.speakers is not None and not 1 <= self.speakers <= MOST_SPEAKERS:
            raise UsageError(f"the number of speakers must be between 1 and {MOST_SPEAKERS}")
        language = self.language if self.language in (None, ANY) else languages.parse(self.language or "")
        checked = replace(self, language=language, vocabulary=clean_terms(self.vocabulary))
        checked.apply(Options())
        return checked


def model_names() -> tuple[str, ...]:
    """Return the names of the models that an override can choose."""
    from witness.models import catalogue  # which takes a while

    return ("auto", *(model.name for model in catalogue.TABLE if model.role == "whisper"))


def parse(values: Mapping[str, Any]) -> JobOverrides:
    """Return the overrides in JSON. Raises UsageError that names the bad one."""
    import msgspec

    try:
        return msgspec.convert(values, JobOverrides).checked()
    except msgspec.ValidationError as error:
        raise UsageError(f"these settings cannot be used ({error})") from None


def clean_terms(terms: tuple[str, ...]) -> tuple[str, ...]:
    """Return names and terms, each once and without spaces around it. Raises UsageError for a bad one."""
    cleaned = tuple(dict.fromkeys(" ".join(term.split()) for term in terms if term.strip()))
    if len(cleaned) > MOST_TERMS:
        raise UsageError(f"a vocabulary has at most {MOST_TERMS} names and terms; leave some out")
    for term in cleaned:
        if len(term) > LONGEST_TERM or term.encode("utf-8", "ignore").decode() != term:
            raise UsageError(f"{term[:40]!r} is not a term of at most {LONGEST_TERM} characters")
    return cleaned
