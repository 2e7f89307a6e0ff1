"""The child's side of every recognizer: what the parent and the engines say to each other.

`witness.child` carries it. The requests, and the replies to them:

    {"do": "load", ...}                              -> the fields of `Abilities`; the request has `Load`'s
    {"do": "count", "text": text}                    -> {"tokens": n}, of a prompt
    {"do": "languages", "ends": [n]} + samples       -> {"languages": [{code: probability}]}
    {"do": "hear", "number": n, "lengths": [n], ...} + samples -> {}; with the fields of `DecodeOptions`
    {"do": "done", "number": n}                      -> {"done": whether that "hear" is}
    {"do": "heard", "number": n}                     -> {"heard": [...]}, what came of it, once

Samples are float32, mono at 16 kHz; `lengths` says how many belong to each piece, of 1 to 30 s. An entry of
"heard" has those of `ChunkResult`. So several "hear" may be under way at the same time, one in each of the
engine's workers. `ends` are the frames, FRAME_RATE a second, at which the parts of a piece end whose
languages are wanted, one after the other; a dict may have only the language that is told, or nothing.
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
"""The most tokens of a prompt: half of what Whisper's decoder sees at once, less one; as openai/whisper."""


@dataclass(frozen=True)
class Load:
    """What to load."""

    model: str
    """The path of a file or a folder."""
    gpu: bool
    """Whether to use one."""
    threads: int
    aligner: str | None = None
    """The folder of a model that tells when words are said, for an engine that does not."""


@dataclass(frozen=True)
class DecodeOptions:
    """How to hear."""

    threads: int
    language: str | None
    """None: the engine finds it out for each piece."""
    translate: bool = False
    """Into English."""
    prompt: str = ""
    """A text that could have been said before."""
    greedy: bool = False
    """Take the most probable token each time, instead of a search for the most probable text."""
    again: bool = False
    """The pieces did not convince, or no word was found in them."""
    among: Sequence[str] | None = None
    """If not None, nothing is heard where another of these (empty: all) may be spoken than `language`."""


class EngineToken(NamedTuple):
    """A part of the text; times are in 1/100 s from the first sample."""

    text: str
    """Its bytes as Latin-1."""
    start: int | None
    """None: the end of the token before."""
    end: int
    probability: float | None = None
    """What the engine gives it after the tokens before, 0 to 1; None: it does not tell."""


@dataclass(frozen=True)
class ChunkResult:
    """What was heard in a piece."""

    tokens: Sequence[EngineToken]
    language: str | None
    ended: bool = True
    """False: the engine never came to the end of the text."""
    logprob: float | None = None
    """Mean of the natural logarithms of the tokens' probabilities."""
    unclear: bool = False
    """Another language may be spoken there, so it was not heard."""


@dataclass(frozen=True)
class Abilities:
    """What the child says about its model."""

    device: str
    """What it runs on: "cpu", "vulkan: a card"."""
    languages: Sequence[str]
    """Their codes; empty: the model does not say."""
    workers: int = 1
    """How many calls of `hear` it works on at the same time."""
    batch: int = 1
    """The most pieces in a call of `hear`."""
    prompts: bool = True
    """Whether it takes a prompt."""
    translates: bool = True
    compares_languages: bool = False
    """Whether it tells how probable each language is in parts of a piece, and heeds `DecodeOptions.among`."""


class WorkerEngine(Protocol):
    """A loaded model; its attributes are those of `Abilities`."""

    device: str
    languages: Sequence[str]
    workers: int
    batch: int
    prompts: bool
    translates: bool
    compares_languages: bool

    def languages_of(self, samples: Float32, ends: Sequence[int]) -> Sequence[Mapping[str, float]]: ...

    def hear(self, pieces: Sequence[Float32], order: DecodeOptions) -> Sequence[ChunkResult]: ...

    def count(self, text: str) -> int: ...


Open = Callable[[Load], WorkerEngine]
"""Raises RuntimeError with one line."""


class Server:
    """Answers requests with the engine that the first one loads."""

    def __init__(self, open_: Open) -> None:
        self._open = open_
        self._engine: WorkerEngine | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._jobs: dict[int, Future[Sequence[ChunkResult]]] = {}

    def answer(self, request: Message, payload: bytes) -> tuple[Message, Sequence[Buffer]]:
        """As the module's docstring says. Raises RuntimeError."""
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
            return {"heard": [asdict(heard) for heard in self._jobs.pop(request["number"]).result()]}, ()
        if request["do"] == "count":
            return {"tokens": self._engine.count(request["text"])}, ()
        samples = np.frombuffer(payload, np.float32)
        if request["do"] == "languages":
            return {"languages": self._engine.languages_of(samples, request["ends"])}, ()
        parts = np.split(samples, np.cumsum(request["lengths"])[:-1])
        order = DecodeOptions(**{field.name: request[field.name] for field in fields(DecodeOptions)})
        self._jobs[request["number"]] = self._pool.submit(self._engine.hear, parts, order)
        return {}, ()


def run(open_: Open) -> NoReturn:
    """Serve until the parent is gone."""
    serve(Server(open_).answer)
