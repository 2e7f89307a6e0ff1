"""The child process that runs transcribe.cpp: `python -m witness.recognition.transcribe_cpp`.

It reads the models of whisper.cpp, and its wheels have Vulkan inside; but it tells no times of words. Those
are found by a small model on the CPU, beside the GPU's work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import transcribe_cpp

from witness.languages import LANGUAGES
from witness.models import ct2
from witness.models.ggml import inspect
from witness.recognition import engine_worker
from witness.recognition.aligner import Aligner
from witness.recognition.engine_worker import ChunkResult, DecodeOptions, Load
from witness.schema import Float32

SEED = 1
"""Of the bolder tries; with 0 they would not be the same again."""
FULL = 240
"""Tokens of a text that was cut off: it stops at 256, which may be fewer when they are counted again."""
KINDS = ("gpu", "igpu")
"""Of devices, the best first. Software drivers are neither, and are hidden unless GGML_VK_VISIBLE_DEVICES
names them."""
WORKERS = 4
"""The most pieces whose words are timed at the same time: a GPU hears one after the other."""
THREADS = 8
"""On the CPU at most: they wait without sleeping. Where another program runs, more of them take up to four
times as long (docs/decisions/2026-11-23-cores.md)."""

T = TypeVar("T")


class TranscribeCppEngine:
    """A loaded model, a `WorkerEngine`. Raises RuntimeError with one line if the file cannot be used or
    transcribe.cpp fails."""

    def __init__(self, load: Load) -> None:
        if load.aligner is None:
            raise RuntimeError("there is no model that tells when words are said")
        header = inspect(load.model)
        self.translates = header.languages > 1
        self.languages: Sequence[str] = LANGUAGES[: header.languages]
        self.prompts, self.compares_languages = True, False
        self.each = 1
        # Pieces that are decoded together save little and get other words:
        # docs/decisions/2026-11-22-vulkan.md, "Batches".
        self.batch = 1
        self._aligner = Aligner(
            load.aligner,
            ct2.inspect(Path(load.aligner)),
            threads=load.threads,
            workers=min(load.threads, WORKERS),
        )
        device = best(transcribe_cpp.backends()) if load.gpu else None
        self.device = "cpu" if device is None else f"vulkan: {device.description}"
        # One piece is on the GPU while others are timed. On a CPU both would share the cores.
        self.workers = 1 if device is None else 1 + self._aligner.workers
        self._turn = Lock()
        self._model = _tried(
            lambda: transcribe_cpp.Model(load.model, device=device, backend="auto" if device else "cpu")
        )
        self._session = _tried(lambda: self._model.session(n_threads=min(load.threads, THREADS)))

    def languages_of(self, samples: Float32, ends: Sequence[int]) -> Sequence[Mapping[str, float]]:  # noqa: ARG002
        """The language that is spoken in the whole piece."""
        if len(self.languages) == 1:
            return [{self.languages[0]: 1.0}]
        return [{str(self._result(samples, DecodeOptions(1, None)).language): 1.0}]

    def hear(self, pieces: Sequence[Float32], order: DecodeOptions) -> Sequence[ChunkResult]:
        """What is said in each piece, (n,) samples of at most 30 s."""
        return [self._hear(samples, order) for samples in pieces]

    def count(self, text: str) -> int:
        """The tokens of a prompt."""
        return len(self._model.tokenize(f" {text.strip()}"))

    def _hear(self, samples: Float32, order: DecodeOptions) -> ChunkResult:
        result = self._result(samples, order)
        language = order.language or result.language or self.languages[0]
        if not result.text.strip():
            return ChunkResult([], language)
        start = self._aligner.start(language, order.translate)
        text = self._aligner.tokenize(result.text)
        aligned = self._aligner.times(self._aligner.encode(samples), start, text, len(samples))
        # Its probabilities are those of another model, which would have written something else.
        times = [token._replace(probability=None) for token in aligned]
        return ChunkResult(times, language, ended=len(text) < FULL)

    def _result(self, samples: Float32, order: DecodeOptions) -> Any:
        """transcribe.cpp's result: its text and language."""
        # As for whisper.cpp: another, bolder try where the text is improbable, repeats itself or never ends.
        options = transcribe_cpp.WhisperRunOptions(
            initial_prompt=order.prompt or None,
            compression_ratio_thold=2.4,
            logprob_thold=-1.0,
            no_speech_thold=0.6,
            temperature_inc=0.2,
            seed=SEED,
        )
        with self._turn:
            return _tried(
                lambda: self._session.run(
                    samples.data,
                    task="translate" if order.translate else "transcribe",
                    language=order.language,
                    # There is no search with several candidates. With time stamps Whisper finds another way
                    # through the sound, and goes on where it has stopped too early.
                    timestamps="segment" if order.again else "none",
                    family=options,
                )
            )


def best(devices: Sequence[Any]) -> Any:
    """The Vulkan device to use, of `transcribe_cpp.backends()`: a card before a part of the processor.

    None if there is none.
    """
    ranks = {kind: rank for rank, kind in enumerate(KINDS)}
    able = [device for device in devices if device.kind == "vulkan"]
    return min(able, key=lambda device: ranks.get(device.device_type, math.inf), default=None)


def _tried(work: Callable[[], T]) -> T:
    """What `work` returns. The library's errors are raised as RuntimeError with one line."""
    try:
        return work()
    except transcribe_cpp.TranscribeError as error:
        raise RuntimeError(" ".join(str(error).split())) from error


if __name__ == "__main__":
    engine_worker.run(TranscribeCppEngine)
