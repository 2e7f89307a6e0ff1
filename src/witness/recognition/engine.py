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
from dataclasses import asdict, dataclass
from typing import NamedTuple, NoReturn, Protocol

import msgspec
import numpy as np

from witness.child import Message, serve
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
    """Abilities of a loaded model and its engine."""

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


class SpeechEngine(Protocol):
    """Loaded model. Raises RuntimeError with one line."""

    abilities: Abilities

    def detect_languages(
        self,
        samples: Float32,
        ends: Sequence[int],  # noqa: ARG002
    ) -> Sequence[Mapping[str, float]]:
        """Return the probability of each language in each part of a piece; here, the language of it all."""
        if len(self.abilities.languages) == 1:
            return [{self.abilities.languages[0]: 1.0}]
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


Open = Callable[[Load], SpeechEngine]
"""Raises RuntimeError with one line."""


def run(open_: Open) -> NoReturn:
    """Answer requests, with the engine that the first of them loads, until the parent is gone."""
    jobs: dict[int, Future[Sequence[ChunkResult]]] = {}
    engine: SpeechEngine
    pool: ThreadPoolExecutor

    def answer(request: Message, payload: bytes) -> Message:
        nonlocal engine, pool
        do, samples = request["do"], np.frombuffer(payload, np.float32)
        if do == "load":
            engine = open_(msgspec.convert(request, Load))
            pool = ThreadPoolExecutor(engine.abilities.workers)
            return asdict(engine.abilities)
        if do == "count":
            return {"tokens": engine.count(request["text"])}
        if do == "languages":
            return {"languages": engine.detect_languages(samples, request["ends"])}
        if do == "done":
            return {"done": jobs[request["number"]].done()}
        if do == "heard":
            return {"heard": [asdict(result) for result in jobs.pop(request["number"]).result()]}
        parts = np.split(samples, np.cumsum(request["lengths"])[:-1])
        options = msgspec.convert(request, DecodeOptions)
        jobs[request["number"]] = pool.submit(engine.recognize, parts, options)
        return {}

    serve(lambda request, payload: (answer(request, payload), ()))
