"""Engine that decodes nothing twice: a journal keeps its texts by the samples and the options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

from witness.options import Recognizer
from witness.recognition.engine_client import RemoteEngine
from witness.recognition.engine_worker import Abilities, ChunkResult, DecodeOptions
from witness.schema import Float32, ModelFile
from witness.storage import typed_json
from witness.storage.checkpoint import Journal

T = TypeVar("T")

_PACKAGES = {
    Recognizer.WHISPER_CPP: "pywhispercpp",
    Recognizer.CTRANSLATE2: "ctranslate2",
    Recognizer.ONNX_ASR: "onnx-asr",
    Recognizer.TRANSCRIBE_CPP: "transcribe-cpp",
}


class CachedEngine:
    """Part of a `RemoteEngine`, which decodes only pieces that the journal lacks."""

    def __init__(self, engine: RemoteEngine, model: ModelFile, journal: Journal) -> None:
        """Wrap an engine that runs `model`."""
        self._engine = engine
        self._journal = journal
        self._model = [model.sha256, engine.name, _version(engine.name), model.aligner]
        self._number = 0
        self._sent: dict[int, tuple[int | None, list[tuple[str, ChunkResult | None]]]] = {}
        """Requests not received yet: the engine's number, None if it has nothing to do; the journal's key of
        each piece, and its text there."""

    @property
    def abilities(self) -> Abilities:
        """As `RemoteEngine.abilities`."""
        return self._engine.abilities

    def languages(self, samples: Float32, ends: Sequence[int], when: str) -> list[dict[str, float]]:
        """As `RemoteEngine.languages`."""
        key = self._key(f"languages {list(ends)}", samples)
        if (kept := _read(self._journal.get(key), list[dict[str, float]])) is not None:
            return kept
        languages = self._engine.languages(samples, ends, when)
        self._journal.add(key, json.dumps(languages).encode())
        return languages

    def send(self, parts: Sequence[Float32], options: DecodeOptions, when: str) -> int:
        """As `RemoteEngine.send`."""
        text_options = json.dumps(asdict(replace(options, threads=0)))  # threads change no word
        keys = [self._key(text_options, part) for part in parts]
        group = [(key, _read(self._journal.get(key), ChunkResult)) for key in keys]
        missing = [part for part, (_, kept) in zip(parts, group, strict=True) if kept is None]
        request = self._engine.send(missing, options, when) if missing else None
        number, self._number = self._number, self._number + 1
        self._sent[number] = request, group
        return number

    def done(self, number: int) -> bool:
        """As `RemoteEngine.done`."""
        request, _ = self._sent[number]
        return request is None or self._engine.done(request)

    def receive(self, number: int) -> list[ChunkResult]:
        """As `RemoteEngine.receive`."""
        request, group = self._sent.pop(number)
        new = iter(() if request is None else self._engine.receive(request))
        texts = []
        for key, kept in group:
            if kept is None:
                texts.append(next(new))
                self._journal.add(key, json.dumps(asdict(texts[-1])).encode())
            else:
                texts.append(kept)
        return texts

    def _key(self, options: str, samples: Float32) -> str:
        """Name a result by the model, the device, the options and the samples."""
        return json.dumps(
            [*self._model, self._engine.abilities.device, options, sha256(samples.data).hexdigest()]
        )


def _read(content: bytes | None, type_: type[T]) -> T | None:
    with suppress(ValueError):
        return None if content is None else typed_json.decode(content, type_)
    return None


def _version(name: Recognizer) -> str | None:
    try:
        return version(_PACKAGES[name])
    except PackageNotFoundError:
        return None
