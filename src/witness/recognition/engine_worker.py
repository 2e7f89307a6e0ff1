"""Child side of every recognizer: the messages between the parent and the engines.

`witness.child` carries them. The requests, and the replies to them:

    {"do": "load", ...}                              -> the fields of `Abilities`; the request has `Load`'s
    {"do": "count", "text": text}                    -> {"tokens": n}, of a prompt
    {"do": "languages", "ends": [n]} + samples       -> {"languages": [{code: probability}]}
    {"do": "hear", "number": n, "lengths": [n], ...} + samples -> {}; with the fields of `DecodeOptions`
    {"do": "done", "number": n}                      -> {"done": true once "heard" would not wait}
    {"do": "heard", "number": n}                     -> {"heard": [...]}, once for each number

Samples are float32, mono at 16 kHz; `lengths` counts those of each piece, of 1 to 30 s. An entry of "heard"
has the fields of `ChunkResult`. Several "hear" may be under way at the same time, one in each worker of the
engine. `ends` are the frames, FRAME_RATE a second, at which consecutive parts of a piece end; each dict holds
the probabilities of the languages in a part, only the detected language, or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple, NoReturn, Protocol

import numpy as np

from witness.child import Buffer, Message, serve
from witness.schema import Float32

PROMPT = 223
"""Most tokens of a prompt: half of the context of Whisper's decoder, less one; as openai/whisper."""


@dataclass(frozen=True)
class Load:
    """Model to load."""

    model: str
    """Path of a file or a folder."""
    gpu: bool
    threads: int
    aligner: str | None = None
    """Folder of a model that times words, for an engine that does not."""


@dataclass(frozen=True)
class DecodeOptions:
    """Options of one request to recognize pieces."""

    threads: int
    language: str | None
    """None: the engine detects it in each piece."""
    translate: bool = False
    """Into English."""
    prompt: str = ""
    """Text that could have been said before."""
    greedy: bool = False
    """Take the most probable token each time, instead of a search for the most probable text."""
    again: bool = False
    """Second try: the first text was doubtful, or had no words."""
    among: Sequence[str] | None = None
    """Skip pieces that may hold another of these languages (empty: all) than `language`."""


class EngineToken(NamedTuple):
    """Part of a text; times are in 1/100 s from the first sample."""

    text: str
    """Bytes as Latin-1."""
    start: int | None
    """None: the end of the token before."""
    end: int
    probability: float | None = None
    """Probability after the tokens before, 0 to 1; None: the engine does not tell."""


@dataclass(frozen=True)
class ChunkResult:
    """Text of a piece."""

    tokens: Sequence[EngineToken]
    language: str | None
    ended: bool = True
    """False: the engine never came to the end of the text."""
    logprob: float | None = None
    """Mean of the natural logarithms of the tokens' probabilities."""
    unclear: bool = False
    """Another language may be spoken there, so the engine skipped the piece."""


@dataclass(frozen=True)
class Abilities:
    """Properties of a loaded model and its engine."""

    device: str
    """"cpu", "vulkan: a card"."""
    languages: Sequence[str]
    """Codes; empty: unknown."""
    workers: int = 1
    """Simultaneous calls of `recognize`."""
    batch: int = 1
    """Most pieces in a call of `recognize`."""
    prompts: bool = True
    translates: bool = True
    compares_languages: bool = False
    """Tells the probability of each language in parts of a piece, and obeys `DecodeOptions.among`."""
    repeats_above: float | None = None
    """Seconds of a piece beyond which `DecodeOptions.again` changes no text; None: it may always."""


class WorkerEngine(Protocol):
    """Loaded model; its attributes are those of `Abilities`. Raises RuntimeError with one line."""

    device: str
    languages: Sequence[str]
    workers: int
    batch: int = 1
    prompts: bool = True
    translates: bool
    compares_languages: bool = False
    repeats_above: float | None = None

    def detect_languages(
        self,
        samples: Float32,
        ends: Sequence[int],  # noqa: ARG002
    ) -> Sequence[Mapping[str, float]]:
        """Return the probability of each language in each part of a piece; here, the language of it all."""
        if len(self.languages) == 1:
            return [{self.languages[0]: 1.0}]
        return [{self.detect_language(samples): 1.0}]

    def detect_language(self, samples: Float32) -> str:
        """Return the code of the language of a piece."""
        raise NotImplementedError

    def recognize(self, pieces: Sequence[Float32], options: DecodeOptions) -> Sequence[ChunkResult]:
        """Return the text of each piece, (n,) samples of at most 30 s."""
        return [self.recognize_piece(samples, options) for samples in pieces]

    def recognize_piece(self, samples: Float32, options: DecodeOptions) -> ChunkResult:
        """Return the text of a piece."""
        raise NotImplementedError

    def count(self, text: str) -> int:
        """Return the number of tokens of a prompt."""


Open = Callable[[Load], WorkerEngine]
"""Raises RuntimeError with one line."""


class Server:
    """Answers requests with the engine that the first request loads."""

    def __init__(self, open_: Open) -> None:
        self._open = open_
        self._engine: WorkerEngine | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._jobs: dict[int, Future[Sequence[ChunkResult]]] = {}

    def answer(self, request: Message, payload: bytes) -> tuple[Message, Sequence[Buffer]]:
        """Reply as the module's docstring says. Raises RuntimeError."""
        if request["do"] == "load":
            load = Load(**{field.name: request[field.name] for field in fields(Load)})
            self._engine = engine = self._open(load)
            self._pool = ThreadPoolExecutor(engine.workers)
            return {field.name: getattr(engine, field.name) for field in fields(Abilities)}, ()
        if self._engine is None or self._pool is None:
            raise RuntimeError("no model was loaded")
        if request["do"] == "done":
            return {"done": self._jobs[request["number"]].done()}, ()
        if request["do"] == "heard":
            return {"heard": [asdict(result) for result in self._jobs.pop(request["number"]).result()]}, ()
        if request["do"] == "count":
            return {"tokens": self._engine.count(request["text"])}, ()
        samples = np.frombuffer(payload, np.float32)
        if request["do"] == "languages":
            return {"languages": self._engine.detect_languages(samples, request["ends"])}, ()
        parts = np.split(samples, np.cumsum(request["lengths"])[:-1])
        options = DecodeOptions(**{field.name: request[field.name] for field in fields(DecodeOptions)})
        self._jobs[request["number"]] = self._pool.submit(self._engine.recognize, parts, options)
        return {}, ()


def run(open_: Open) -> NoReturn:
    """Serve until the parent is gone."""
    serve(Server(open_).answer)
