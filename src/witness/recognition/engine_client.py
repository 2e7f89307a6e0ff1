"""Parent side of an engine in a child process: requests, replies and failures.

An engine that fails on a GPU, early or late, continues in a new child on the CPU.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from witness.child import Child, DiedError, RefusedError
from witness.errors import TranscriptionError
from witness.models.recognizers import INSTALL
from witness.options import Recognizer as Name
from witness.progress import AboutMachine
from witness.recognition import gpus
from witness.recognition.engine_worker import Abilities, ChunkResult, DecodeOptions, EngineToken, Load
from witness.schema import Float32, ModelFile

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

Request = tuple[dict[str, Any], str, Sequence[Float32]]
"""A request, its time in words for messages, and its samples."""


class RemoteEngine:
    """Engine in a child process for one thread; another may call `kill`.

    Every method but `kill` raises TranscriptionError, whose message says when and names the model.
    """

    def __init__(self, model: ModelFile, *, threads: int, gpu: bool) -> None:
        """Start the child. `gpu`: use a GPU if the engine can."""
        self.name = Name(model.engine or Name.WHISPER_CPP)
        self.path = str(Path(model.path).absolute())
        self.abilities = Abilities("cpu", ())
        self.warnings: list[str] = []
        """Warnings for the reader of the words; the caller empties the list."""
        self._threads = threads
        self._aligner = model.aligner
        able = self.name == Name.TRANSCRIBE_CPP or (self.name == Name.WHISPER_CPP and gpus.has_gpu_backend())
        self._gpu = gpu and able
        self._number = 0
        self._sent: dict[int, Request] = {}
        """Requests to recognize pieces without a reply yet, in order."""
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
        request = {"do": "languages", "ends": list(ends)}
        reply = self._with_fallback(lambda: self._ask(request, when, [samples]))
        languages: list[dict[str, float]] = reply["languages"]
        return languages

    def send(self, parts: Sequence[Float32], options: DecodeOptions, when: str) -> int:
        """Start to recognize at most `abilities.batch` pieces; return the number for `done` and `receive`."""
        number, self._number = self._number, self._number + 1
        lengths = [len(part) for part in parts]
        request = {"do": "hear", "number": number, "lengths": lengths, **asdict(options)}
        self._sent[number] = request, when, parts
        self._with_fallback(lambda: self._ask(*self._sent[number]), sent=len(self._sent) - 1)
        return number

    def done(self, number: int) -> bool:
        """Return whether `receive` would not wait."""
        done: bool = self._ask_about(number, "done")["done"]
        return done

    def receive(self, number: int) -> list[ChunkResult]:
        """Return the texts of a request, once."""
        results = self._ask_about(number, "heard")["heard"]
        del self._sent[number]
        return [
            ChunkResult(**{**result, "tokens": [EngineToken(*token) for token in result["tokens"]]})
            for result in results
        ]

    def _ask_about(self, number: int, do: str) -> dict[str, Any]:
        request, when = {"do": do, "number": number}, self._sent[number][1]
        return self._with_fallback(lambda: self._ask(request, when), sent=len(self._sent))

    def kill(self) -> None:
        """Kill the child, which holds nothing worth saving and may be deep inside the engine."""
        with self._starting:
            self._killed = True
            self._child.kill()

    def _load(self) -> dict[str, Any]:
        load = Load(self.path, self._gpu, self._threads, self._aligner)
        reply = self._ask({"do": "load", **asdict(load)})
        self.abilities = Abilities(**reply)
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
            self._ask(*request)
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
            return f"{self.name} does not start{last}; fix: {INSTALL[self.name]} --force-reinstall"
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
