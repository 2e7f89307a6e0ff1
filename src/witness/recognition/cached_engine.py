"""An engine that hears nothing twice: what it heard is in a journal, by the samples and how to hear them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

from witness.options import Recognizer
from witness.recognition.engine_client import Remote
from witness.recognition.engine_worker import Abilities, ChunkResult, DecodeOptions
from witness.schema import Float32, ModelFile
from witness.storage import decode
from witness.storage.checkpoint import Journal

T = TypeVar("T")

_PACKAGES = {
    Recognizer.WHISPER_CPP: "pywhispercpp",
    Recognizer.CTRANSLATE2: "ctranslate2",
    Recognizer.ONNX_ASR: "onnx-asr",
    Recognizer.TRANSCRIBE_CPP: "transcribe-cpp",
}


class ResumingEngine:
    """Part of a `Remote`, which is asked only for what the journal does not have."""

    def __init__(self, engine: Remote, model: ModelFile, journal: Journal) -> None:
        """`model` is that of the engine."""
        self._engine = engine
        self._journal = journal
        self._model = [model.sha256, engine.name, _version(engine.name), model.aligner]
        self._number = 0
        self._sent: dict[int, tuple[int | None, list[tuple[str, ChunkResult | None]]]] = {}
        """What was sent and not received: the engine's number, None if it was not asked, the name of each
        piece in the journal, and what is there."""

    @property
    def abilities(self) -> Abilities:
        """As `Remote.abilities`."""
        return self._engine.abilities

    def languages(self, samples: Float32, ends: Sequence[int], when: str) -> list[dict[str, float]]:
        """As `Remote.languages`."""
        name = self._name(f"languages {list(ends)}", samples)
        if (before := _read(self._journal.get(name), list[dict[str, float]])) is not None:
            return before
        told = self._engine.languages(samples, ends, when)
        self._journal.add(name, json.dumps(told).encode())
        return told

    def send(self, parts: Sequence[Float32], order: DecodeOptions, when: str) -> int:
        """As `Remote.send`."""
        how = json.dumps(asdict(replace(order, threads=0)))  # they change no word
        names = [self._name(how, part) for part in parts]
        group = [(name, _read(self._journal.get(name), ChunkResult)) for name in names]
        missing = [part for part, (_, heard) in zip(parts, group, strict=True) if heard is None]
        asked = self._engine.send(missing, order, when) if missing else None
        number, self._number = self._number, self._number + 1
        self._sent[number] = asked, group
        return number

    def done(self, number: int) -> bool:
        """As `Remote.done`."""
        asked, _ = self._sent[number]
        return asked is None or self._engine.done(asked)

    def receive(self, number: int) -> list[ChunkResult]:
        """As `Remote.receive`."""
        asked, group = self._sent.pop(number)
        heard = iter(() if asked is None else self._engine.receive(asked))
        found = []
        for name, before in group:
            if before is None:
                found.append(next(heard))
                self._journal.add(name, json.dumps(asdict(found[-1])).encode())
            else:
                found.append(before)
        return found

    def _name(self, how: str, samples: Float32) -> str:
        """What goes by this name was made of the same, in the same way."""
        heard = sha256(samples.data).hexdigest()
        return json.dumps([*self._model, self._engine.abilities.device, how, heard])


def _read(kept: bytes | None, kind: type[T]) -> T | None:
    """What was kept, if it is such."""
    with suppress(ValueError):
        return None if kept is None else decode.from_json(kept, kind)
    return None


def _version(name: Recognizer) -> str | None:
    try:
        return version(_PACKAGES[name])
    except PackageNotFoundError:
        return None
