"""The child process that runs transcribe.cpp: `python -m witness.recognition.transcribe_cpp`.

It reads the models of whisper.cpp, and its wheels have Vulkan inside; but it tells no times of words. Those
are found by a small model on the CPU, beside the GPU's work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import transcribe_cpp

from witness.recognition import server
from witness.recognition.aligner import Aligner
from witness.recognition.ggml import inspect
from witness.recognition.languages import LANGUAGES
from witness.recognition.server import Heard, Load, Order
from witness.schema import Float32

BATCH = 8
"""Pieces that a GPU decodes together."""
WORKERS = 2
"""One batch is on the GPU while the words of another are timed."""
SEED = 1
"""Of the bolder tries; 0 would be another one each time."""
FULL = 240
"""Tokens of a text that was cut off: it stops at 256, which may be fewer when they are counted again."""
KINDS = ("gpu", "igpu")
"""Of devices, the best first. Software drivers are of neither kind and are used only if there is no other,
which takes GGML_VK_VISIBLE_DEVICES."""


class Engine:
    """A loaded model, as `server.Engine`. Raises RuntimeError with one line if the file cannot be used or
    transcribe.cpp fails."""

    def __init__(self, load: Load) -> None:
        if load.aligner is None:
            raise RuntimeError("there is no model that tells when words are said")
        header = inspect(load.model)
        self.translates = header.languages > 1
        self.languages: Sequence[str] = LANGUAGES[: header.languages]
        self.prompts = True
        self._aligner = Aligner(load.aligner, load.threads)
        device = best(transcribe_cpp.backends()) if load.gpu else None
        self.device = "cpu" if device is None else f"vulkan: {device.description}"
        # On a CPU the pieces would only wait for each other.
        self.workers, self.batch = (1, 1) if device is None else (WORKERS, BATCH)
        self._model = _tried(
            lambda: transcribe_cpp.Model(load.model, device=device, backend="auto" if device else "cpu")
        )
        self._session = _tried(lambda: self._model.session(n_threads=load.threads))

    def language(self, samples: Float32) -> str | None:
        """The code of the language that is spoken."""
        if len(self.languages) == 1:
            return self.languages[0]
        (found,) = self._texts([samples], Order(1, None))
        return str(found.language)

    def hear(self, pieces: Sequence[Float32], order: Order) -> Sequence[Heard]:
        """What is said in each piece."""
        with ThreadPoolExecutor(self._aligner.workers) as pool:
            encoded = pool.map(self._aligner.encode, pieces)  # while the GPU works
            texts = self._texts(pieces, order)
            return list(pool.map(self._heard, texts, encoded, map(len, pieces), [order] * len(pieces)))

    def count(self, text: str) -> int:
        """The tokens of a prompt."""
        return len(self._model.tokenize(f" {text.strip()}"))

    def _texts(self, pieces: Sequence[Float32], order: Order) -> Sequence[Any]:
        """transcribe.cpp's results."""
        options = transcribe_cpp.WhisperRunOptions(
            initial_prompt=order.prompt or None,
            compression_ratio_thold=2.4,
            logprob_thold=-1.0,
            no_speech_thold=0.6,
            temperature_inc=0.2,
            seed=SEED,
        )
        # There is no search with several candidates. With time stamps Whisper goes another way through the
        # text, and on where it stopped too early.
        found: Sequence[Any] = _tried(
            lambda: self._session.run_batch(
                pieces,
                task="translate" if order.translate else "transcribe",
                language=order.language,
                timestamps="segment" if order.careful else "none",
                family=options,
            )
        )
        return found

    def _heard(self, result: Any, encoded: Float32, samples: int, order: Order) -> Heard:
        tokens = self._aligner.tokenize(result.text) if result.text.strip() else []
        language = order.language or result.language or self.languages[0]
        times = self._aligner.times(encoded, self._aligner.start(language, order.translate), tokens, samples)
        return Heard(times, language, ended=len(tokens) < FULL)


def best(devices: Sequence[Any]) -> Any:
    """The Vulkan device to use, of `transcribe_cpp.backends()`; None if there is none."""
    ranks = {kind: rank for rank, kind in enumerate(KINDS)}
    able = [device for device in devices if device.kind == "vulkan"]
    return min(able, key=lambda device: ranks.get(device.device_type, math.inf), default=None)


def _tried(work: Any) -> Any:
    """What `work` returns, the library's errors as one line."""
    try:
        return work()
    except transcribe_cpp.TranscribeError as error:
        raise RuntimeError(" ".join(str(error).split())) from error


if __name__ == "__main__":
    server.run(Engine)
