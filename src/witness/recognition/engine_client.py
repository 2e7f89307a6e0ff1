"""Parent side of an engine in a child process: requests, replies and failures.

An engine that fails on a GPU, early or late, continues in a new child on the CPU.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from witness.child import Child, DiedError, RefusedError
from witness.errors import TranscriptionError
from witness.models.recognizers import MODULES, install_command
from witness.options import Recognizer as Name
from witness.progress import AboutMachine
from witness.recognition import gpus
from witness.recognition.engine import Abilities, ChunkResult, DecodeOptions, Load
from witness.schema import Float32, ModelFile
from witness.storage import typed_json
from witness.storage.checkpoint import Journal

CHILDREN = {
    Name.WHISPER_CPP: "witness.recognition.whisper_cpp",
    Name.CTRANSLATE2: "witness.recognition.ctranslate",
    Name.ONNX_ASR: "witness.recognition.onnx_engine",
    Name.TRANSCRIBE_CPP: "witness.recognition.transcribe_cpp",
}
"""Recognizer -> the module that its child process runs."""
RELOAD = "`witness models verify` checks a model, `witness models fetch` gets a new one"
SMALLER = "a smaller model needs less memory"
NO_GPU = "GGML_VK_VISIBLE_DEVICES= keeps it off the GPU"

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """Pieces to recognize, and their texts in the journal."""

    message: dict[str, Any]
    when: str
    """Time of the pieces in words, for messages."""
    parts: Sequence[Float32]
    """Samples of the pieces that the journal lacks."""
    texts: Sequence[tuple[str, ChunkResult | None]]
    """Key of each piece in the journal, and its text there."""


class RemoteEngine:
    """Engine in a child process for one thread; another may call `kill`. It decodes nothing twice: a journal
    keeps its texts by the samples and the options.

    Every method but `kill` raises TranscriptionError, whose message says when and names the model.
    """

    def __init__(self, model: ModelFile, *, threads: int, journal: Journal) -> None:
        """Start the child, which uses a GPU if the engine can."""
        self.name = Name(model.engine or Name.WHISPER_CPP)
        self.path = str(Path(model.path).absolute())
        self.abilities = Abilities("cpu", ())
        self.warnings: list[str] = []
        """Warnings for the reader of the words; the caller empties the list."""
        self._threads = threads
        self._aligner = model.aligner
        self._journal = journal
        self._model = [model.sha256, self.name, _version(self.name), model.aligner]
        vulkan = self.name == Name.WHISPER_CPP and gpus.has_gpu_backend()
        self._gpu = vulkan or self.name == Name.TRANSCRIBE_CPP
        self._numbers = count()
        self._sent: dict[int, Request] = {}
        """Requests without a reply yet, in order."""
        self._starting = threading.Lock()
        self._killed = False
        self._child = _start(self.name, gpu=self._gpu)

    def load(self) -> None:
        """Load the model and set `abilities`."""
        self._with_fallback(self._load)

    def count(self, text: str) -> int:
        """Return the number of tokens of a prompt."""
        tokens: int = self._with_fallback(lambda: self._ask({"do": "count", "text": text}))["tokens"]
        return tokens

    def languages(self, samples: Float32, ends: Sequence[int], when: str) -> list[dict[str, float]]:
        """Return the probability of each language in each part of a piece; parts end at the frames `ends`.

        Empty: the engine cannot tell. An engine that does not compare languages returns one dict with the
        language of the whole piece. `when` is for messages.
        """
        key = self._key(f"languages {list(ends)}", samples)
        if (kept := _read(self._journal.get(key), list[dict[str, float]])) is not None:
            return kept
        request = {"do": "languages", "ends": list(ends)}
        reply = self._with_fallback(lambda: self._ask(request, when, [samples]))
        languages: list[dict[str, float]] = reply["languages"]
        self._journal.add(key, json.dumps(languages).encode())
        return languages

    def send(self, parts: Sequence[Float32], options: DecodeOptions, when: str) -> int:
        """Start to recognize at most `abilities.batch` pieces; return the number for `done` and `receive`."""
        text_options = json.dumps(asdict(replace(options, threads=0)))  # threads change no word
        keys = [self._key(text_options, part) for part in parts]
        texts = [(key, _read(self._journal.get(key), ChunkResult)) for key in keys]
        missing = [part for part, (_, kept) in zip(parts, texts, strict=True) if kept is None]
        number = next(self._numbers)
        message = {"do": "hear", "number": number, "lengths": list(map(len, missing)), **asdict(options)}
        self._sent[number] = request = Request(message, when, missing, texts)
        self._with_fallback(lambda: self._hear(request), sent=len(self._sent) - 1)
        return number

    def done(self, number: int) -> bool:
        """Return whether `receive` would not wait."""
        return not self._sent[number].parts or self._ask_about(number, "done")["done"]

    def receive(self, number: int) -> list[ChunkResult]:
        """Return the texts of a request, once."""
        reply = self._ask_about(number, "heard")["heard"] if self._sent[number].parts else ()
        new = iter(msgspec.convert(reply, list[ChunkResult]))
        texts = []
        for key, kept in self._sent.pop(number).texts:
            texts.append(kept or next(new))
            if kept is None:
                self._journal.add(key, json.dumps(asdict(texts[-1])).encode())
        return texts

    def _key(self, options: str, samples: Float32) -> str:
        """Name a result by the model, the device, the options and the samples."""
        return json.dumps([*self._model, self.abilities.device, options, sha256(samples.data).hexdigest()])

    def _ask_about(self, number: int, do: str) -> dict[str, Any]:
        request, when = {"do": do, "number": number}, self._sent[number].when
        return self._with_fallback(lambda: self._ask(request, when), sent=len(self._sent))

    def _hear(self, request: Request) -> dict[str, Any]:
        return self._ask(request.message, request.when, request.parts) if request.parts else {}

    def kill(self) -> None:
        """Kill the child, which holds nothing worth saving and may be deep inside the engine."""
        with self._starting:
            self._killed = True
            self._child.kill()

    def _load(self) -> dict[str, Any]:
        load = Load(self.path, self._gpu, self._threads, self._aligner)
        reply = self._ask({"do": "load", **asdict(load)})
        self.abilities = msgspec.convert(reply, Abilities)
        if self._gpu and self.abilities.device == "cpu":
            self._gpu = False
            self.warnings.append(
                AboutMachine(f"{self.name} can use a GPU but found none, so it ran on the CPU")
            )
        return reply

    def _with_fallback(self, work: Callable[[], dict[str, Any]], sent: int = 0) -> dict[str, Any]:
        """Return the result of `work`; if it fails with a GPU, try again without, in a new child.

        The new child first gets `sent` of the requests in `_sent` again.
        """
        try:
            return work()
        except TranscriptionError as error:
            with self._starting:
                if not self._gpu or self._killed:
                    raise
                self._gpu = False
                self._child.kill()
                self._child = _start(self.name, gpu=False)
            self.warnings.append(AboutMachine(f"{self.name} failed on the GPU, so the CPU went on: {error}"))
        if work != self._load:
            self._load()
        for request in islice(self._sent.values(), sent):
            self._hear(request)
        return work()

    def _ask(
        self, request: dict[str, Any], when: str | None = None, parts: Sequence[Float32] = ()
    ) -> dict[str, Any]:
        """Return the child's reply; `when` is None before the first samples."""
        payload = np.concatenate(parts).data if parts else b""
        try:
            return self._child.ask(request, payload)[0]
        except RefusedError as error:
            raise TranscriptionError(
                f"{self.path}: {error}; {RELOAD}"
                if when is None
                else f"{self.name} failed {when} with {self.path}: {error}; {self._fix()}"
            ) from error
        except DiedError as error:
            raise TranscriptionError(self._death(error, when)) from error

    def _fix(self) -> str:
        return SMALLER if self.abilities.device == "cpu" else f"{SMALLER}, and {NO_GPU}"

    def _death(self, error: DiedError, when: str | None) -> str:
        """Return the message about a child that died."""
        telling = [line for line in error.log[-20:] if re.search(r"error|fail|assert|terminate", line, re.I)]
        last = f" ({telling[-1]})" if telling else ""
        if last.startswith((" (ImportError", " (ModuleNotFoundError")):
            fix = install_command(self.name, "--force-reinstall")
            return f"{self.name} does not start{last}; fix: {fix}"
        if when is None:
            return f"{self.name} stopped with {error} while loading {self.path}{last}; {RELOAD}; {SMALLER}"
        return f"{self.name} stopped with {error} {when} with {self.path}{last}; {self._fix()}"


KEEP_BLOCKS = ":".join(
    f"glibc.malloc.{name}"
    for name in ("hugetlb=1", "arena_max=1", "mmap_max=0", "trim_threshold=2147483647", "top_pad=67108864")
)
"""Settings that let glibc 2.35 and later keep freed memory, in large pages."""


def _start(name: Name, *, gpu: bool) -> Child:
    """Start a child that waits for its model, with GPUs or without."""
    environment = {
        # Threads that wait without sleeping take the cores from the diarizer, and then from each other:
        # docs/decisions/2026-11-22-constants.md, "The recognizer's threads".
        "OMP_WAIT_POLICY": "passive",
        "GGML_NO_BACKTRACE": "1",  # no debugger after a failed assertion
        # CTranslate2 takes and returns large blocks all the time, and the system would fill each with zeros
        # again. docs/decisions/2026-11-24-time-of-recognition.md, "Blocks that are kept".
        "GLIBC_TUNABLES": KEEP_BLOCKS,
        **os.environ,
    }
    if not gpu:  # a faulty driver crashes on the question for its devices
        environment["GGML_VK_VISIBLE_DEVICES"] = ""
    return Child(CHILDREN[name], environment)


def _read(content: bytes | None, type_: type[T]) -> T | None:
    with suppress(ValueError):
        return None if content is None else typed_json.decode(content, type_)
    return None


def _version(name: Name) -> str | None:
    try:
        return version(MODULES[name][0])
    except PackageNotFoundError:
        return None
