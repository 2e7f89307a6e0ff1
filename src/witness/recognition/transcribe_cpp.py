"""The child process that runs transcribe.cpp: `python -m witness.recognition.transcribe_cpp`.

It reads the models of whisper.cpp, and its wheels include Vulkan; but it does not time words. A small model
on the CPU does, beside the GPU's work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import transcribe_cpp

from witness.languages import LANGUAGES
from witness.models import ct2_header
from witness.models.ggml_header import inspect
from witness.recognition import engine
from witness.recognition.aligner import Aligner
from witness.recognition.engine import Abilities, ChunkResult, DecodeOptions, Load, SpeechEngine
from witness.schema import Float32

SEED = 1
"""Seed of the bolder tries; with 0 they would differ each time."""
FULL = 240
"""Tokens of a text that was cut off: decoding stops at 256, and a second count may give fewer."""
DEVICE_TYPES = ("gpu", "igpu")
"""The best first. Software drivers have another type, and are hidden unless GGML_VK_VISIBLE_DEVICES names
them."""
WORKERS = 4
"""Most pieces whose words are timed at the same time: a GPU decodes one after the other."""
THREADS = 8
"""Most threads on the CPU: they wait without sleeping. Beside another program, more of them take up to four
times as long (docs/decisions/2026-11-23-cores.md)."""

T = TypeVar("T")


class TranscribeCppEngine(SpeechEngine):
    """Model of transcribe.cpp.

    Pieces that are decoded together save little and get other words (docs/decisions/2026-11-22-vulkan.md,
    "Batches"), so a batch is one piece.
    """

    def __init__(self, load: Load) -> None:
        if load.aligner is None:
            raise RuntimeError("there is no model that times words")
        header = inspect(load.model)
        timed = min(load.threads, WORKERS)
        aligner = ct2_header.inspect(Path(load.aligner))
        self._aligner = Aligner(load.aligner, aligner, threads=load.threads, workers=timed)
        device = best_device(transcribe_cpp.backends()) if load.gpu else None
        languages = LANGUAGES[: header.languages]
        self.abilities = Abilities(
            f"vulkan: {device.description}" if device else "cpu",
            languages,
            # One piece is on the GPU while others are timed. On a CPU both would share the cores.
            workers=1 + timed if device else 1,
            translates=len(languages) > 1,
        )
        self._turn = Lock()
        self._model = _call(
            lambda: transcribe_cpp.Model(load.model, device=device, backend="auto" if device else "cpu")
        )
        self._session = _call(lambda: self._model.session(n_threads=min(load.threads, THREADS)))

    def detect_language(self, samples: Float32) -> str:
        """Return the code of the language of a piece."""
        return str(self._run(samples, DecodeOptions(1, None)).language)

    def count(self, text: str) -> int:
        """Return the number of tokens of a prompt."""
        return len(self._model.tokenize(f" {text.strip()}"))

    def recognize_piece(self, samples: Float32, options: DecodeOptions) -> ChunkResult:
        """Return the text of a piece."""
        result = self._run(samples, options)
        language = options.language or result.language or self.abilities.languages[0]
        if not result.text.strip():
            return ChunkResult([], language)
        start = self._aligner.start(language, options.translate)
        text = self._aligner.tokenize(result.text)
        aligned = self._aligner.times(self._aligner.encode(samples), start, text, len(samples))
        # Its probabilities are those of another model, which would have written something else.
        times = [token._replace(probability=None) for token in aligned]
        return ChunkResult(times, language, ended=len(text) < FULL)

    def _run(self, samples: Float32, options: DecodeOptions) -> Any:
        """Return transcribe.cpp's result: its text and language."""
        # As for whisper.cpp: another, bolder try where the text is improbable, repeats itself or never ends.
        family = transcribe_cpp.WhisperRunOptions(
            initial_prompt=options.prompt or None,
            compression_ratio_thold=2.4,
            logprob_thold=-1.0,
            no_speech_thold=0.6,
            temperature_inc=0.2,
            seed=SEED,
        )
        with self._turn:
            return _call(
                lambda: self._session.run(
                    samples.data,
                    task="translate" if options.translate else "transcribe",
                    language=options.language,
                    # There is no search with several candidates. With time stamps Whisper takes another way
                    # through the sound, and continues where it has stopped too early.
                    timestamps="segment" if options.again else "none",
                    family=family,
                )
            )


def best_device(devices: Sequence[Any]) -> Any:
    """Choose a Vulkan device of `transcribe_cpp.backends()`, cards first, or return None."""
    ranks = {device_type: rank for rank, device_type in enumerate(DEVICE_TYPES)}
    able = [device for device in devices if device.kind == "vulkan"]
    return min(able, key=lambda device: ranks.get(device.device_type, math.inf), default=None)


def _call(work: Callable[[], T]) -> T:
    """Return the result of `work`; raise the library's errors as RuntimeError with one line."""
    try:
        return work()
    except transcribe_cpp.TranscribeError as error:
        raise RuntimeError(" ".join(str(error).split())) from error


if __name__ == "__main__":
    engine.run(TranscribeCppEngine)
