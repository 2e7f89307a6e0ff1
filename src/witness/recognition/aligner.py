"""A Whisper model of CTranslate2: when the tokens of a text are said, by its attention to the sound."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np

from witness.models import ct2
from witness.recognition import mel
from witness.recognition.engine_worker import EngineToken
from witness.schema import SAMPLE_RATE, Float32

EACH = 4
"""Cores that a call may use. A lone one is faster with them, many at a time are no slower for it, and the
result is the same (docs/decisions/2026-11-23-cores.md)."""
START, NO_TIMES = "<|startoftranscript|>", "<|notimestamps|>"


class Aligner:
    """A loaded model. Several threads may use it. Raises RuntimeError with one line if it cannot be used."""

    def __init__(self, folder: str, header: ct2.Ct2Header, *, threads: int, workers: int) -> None:
        """`header`: what `ct2.inspect` says of the folder; `threads`: cores to use; `workers`: how many calls
        work at the same time."""
        self._folder = Path(folder)
        self._bands = header.bands
        self.workers = workers
        # int8: half the time of float32 where the processor has instructions for it, and as good
        # (docs/decisions/2026-11-22-words.md); CTranslate2 takes what the processor can do where it has none.
        self.model = ctranslate2.models.Whisper(
            str(self._folder),
            device="cpu",
            compute_type="int8",
            inter_threads=workers,
            intra_threads=min(threads, EACH),
        )
        self.multilingual: bool = self.model.is_multilingual
        tokens = ct2.read_vocabulary(self._folder)
        self.ids = {token: number for number, token in enumerate(tokens)}
        self.end = self.ids[ct2.END_OF_TEXT]
        self._texts = [
            bytes(ct2.BYTES[character] for character in token if character in ct2.BYTES)
            for token in tokens[: self.end]
        ]
        special = tokens[self.ids[START] + 1 : self.ids["<|translate|>"]]
        self.languages = [token.strip("<|>") for token in special] if self.multilingual else ["en"]

    def encode(self, samples: Float32, frames: int = mel.FRAMES) -> Float32:
        """(n,) samples, in so many frames of 10 ms -> (1, frames / 2, width): what the decoder attends to."""
        spectrum = mel.log_mel(samples, self._bands, frames)[None]
        return np.array(self.model.encode(view(spectrum), to_cpu=True))

    def start(self, language: str | None, translate: bool = False) -> list[int]:
        """What Whisper's text begins with, in a language that the model knows or any."""
        if not self.multilingual:
            return [self.ids[START]]
        task = "<|translate|>" if translate else "<|transcribe|>"
        known = language if language in self.languages else "en"
        return [self.ids[token] for token in (START, f"<|{known}|>", task)]

    def tokenize(self, text: str) -> list[int]:
        """The tokens of a text. Raises RuntimeError if the folder lacks what that takes."""
        found: list[int] = self._tokenizer.encode(f" {text.strip()}", add_special_tokens=False).ids
        return found

    def times(
        self, encoded: Float32, start: Sequence[int], text: Sequence[int], samples: int
    ) -> list[EngineToken]:
        """The tokens of a text; `encoded` stands for `samples`."""
        if not text:
            return []
        frames = max(2, min(mel.FRAMES, samples // mel.HOP))
        (found,) = self.model.align(view(encoded), list(start), [list(text)], frames)
        # Pairs (token, position of 20 ms) along the way through both; a token begins where it comes first.
        begins = [-1] * (len(text) + 1)
        for token, position in found.alignments:
            if token <= len(text) and begins[token] < 0:
                begins[token] = position
        for token in range(len(text) + 1):
            if begins[token] < 0:
                begins[token] = begins[token - 1] if token else 0
        last = 100 * samples // SAMPLE_RATE
        times = [min(2 * begin, last) for begin in begins]
        return [
            EngineToken(
                self._texts[number].decode("latin-1"),
                times[token],
                times[token + 1],
                float(found.text_token_probs[token]),
            )
            for token, number in enumerate(text)
        ]

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        path = self._folder / ct2.TOKENIZER
        if not path.is_file():
            raise RuntimeError(f"{path.name} is missing, which makes tokens of a text")
        return Tokenizer.from_file(str(path))


def view(array: Float32) -> Any:
    """The array, which must be contiguous and outlive the view, as CTranslate2 takes it."""
    return ctranslate2.StorageView.from_array(array)
