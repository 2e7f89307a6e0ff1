"""The child process that runs CTranslate2: `python -m witness.recognition.ctranslate`.

Several pieces are recognized at the same time, each on one thread unless there are many cores. So the words
do not depend on the number of threads, and none spins while it waits for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np

from witness.models import ct2
from witness.recognition import mel, server
from witness.recognition.server import PROMPT, Heard, Order
from witness.schema import SAMPLE_RATE, Float32

WORKERS = 4
"""The most pieces, or batches of them, at the same time; more cores share them. Each takes memory."""
BATCH = 4
"""Pieces that are decoded together: every step reads all weights once instead of once for each.
docs/decisions/2026-11-22-words.md, "Batches"."""
BEAMS = 5
"""Of a careful search; Whisper's own default."""
LONGEST = 448
"""Tokens that Whisper's decoder sees at once, those of the prompt included."""
START, PREVIOUS, NO_TIMES = "<|startoftranscript|>", "<|startofprev|>", "<|notimestamps|>"


class Engine:
    """A loaded model, as `server.Engine`. Raises RuntimeError with one line if it cannot be used."""

    def __init__(self, model: str, threads: int) -> None:
        self.device = "cpu"
        self.batch = BATCH
        self.prompts = True
        self._folder = Path(model)
        self._bands = ct2.inspect(self._folder).bands
        self.workers = min(threads, WORKERS)
        # int8: half the time of float32 where the processor has instructions for it, and as good (the note
        # above); CTranslate2 takes what the processor can do where it has none.
        self._model = ctranslate2.models.Whisper(
            str(self._folder),
            device="cpu",
            compute_type="int8",
            inter_threads=self.workers,
            intra_threads=max(1, threads // self.workers),
        )
        self.translates = self._model.is_multilingual
        self._told: tuple[Float32, Float32] | None = None
        tokens = ct2.vocabulary(self._folder)
        self._ids = {token: number for number, token in enumerate(tokens)}
        self._end = self._ids[ct2.END_OF_TEXT]
        self._texts = [
            bytes(ct2.BYTES[character] for character in token if character in ct2.BYTES)
            for token in tokens[: self._end]
        ]
        special = tokens[self._ids[START] + 1 : self._ids["<|translate|>"]]
        self.languages: Sequence[str] = ["en"]
        if self._model.is_multilingual:
            self.languages = [token.strip("<|>") for token in special]

    def language(self, samples: Float32) -> str | None:
        """The code of the language that is spoken."""
        self._told = samples, self._encode(samples)
        return self._language(self._told[1])

    def hear(self, pieces: Sequence[Float32], order: Order) -> Sequence[Heard]:
        """What is said in each piece, (n,) samples of at most 30 s."""
        encoded = [self._encode(piece) for piece in pieces]
        languages = [order.language or self._language(one) for one in encoded]
        starts = [self._start(language, order.translate) for language in languages]
        before = self._before(order.prompt)
        longest = min(LONGEST, len(before) + 5 + LONGEST // 2)
        batch = np.concatenate(encoded)
        results = self._model.generate(
            _view(batch),
            [[*before, *start, self._ids[NO_TIMES]] for start in starts],
            beam_size=BEAMS if order.careful else 1,
            max_length=longest,
            return_scores=True,
            suppress_blank=True,
        )
        heard = []
        for place, result in enumerate(results):
            numbers = result.sequences_ids[0]
            text = [number for number in numbers if number < self._end]
            full = len(numbers) + len(before) + len(starts[place]) + 1 >= longest
            times = self._times(encoded[place], starts[place], text, len(pieces[place]))
            heard.append(Heard(times, languages[place], not full, float(result.scores[0])))
        return heard

    def count(self, text: str) -> int:
        """The tokens of a prompt."""
        return len(self._tokenize(text))

    def _encode(self, samples: Float32) -> Float32:
        """(1, 1500, width): what the decoder attends to. The last one that told a language is kept: its piece
        is heard next."""
        if self._told is not None and np.array_equal(self._told[0], samples):
            return self._told[1]
        spectrum = mel.log_mel(samples, self._bands)[None]
        return np.array(self._model.encode(_view(spectrum), to_cpu=True))

    def _language(self, encoded: Float32) -> str:
        if not self._model.is_multilingual:
            return "en"
        found: str = self._model.detect_language(_view(encoded))[0][0][0]
        return found.strip("<|>")

    def _start(self, language: str, translate: bool) -> list[int]:
        """What Whisper's text begins with."""
        if not self._model.is_multilingual:
            return [self._ids[START]]
        task = "<|translate|>" if translate else "<|transcribe|>"
        return [self._ids[token] for token in (START, f"<|{language}|>", task)]

    def _before(self, prompt: str) -> list[int]:
        """The tokens of a text that could have been said before; of a long one, the last."""
        return [self._ids[PREVIOUS], *self._tokenize(prompt)[-PROMPT:]] if prompt else []

    def _tokenize(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.encode(f" {text.strip()}", add_special_tokens=False).ids
        return found

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        path = self._folder / ct2.TOKENIZER
        if not path.is_file():
            raise RuntimeError(f"{path.name} is missing, which a prompt or a vocabulary needs")
        return Tokenizer.from_file(str(path))

    def _times(
        self, encoded: Float32, start: list[int], text: list[int], samples: int
    ) -> list[tuple[str, int | None, int]]:
        """The tokens of a text with the times that the attention of some heads gives them."""
        if not text:
            return []
        frames = max(2, min(mel.FRAMES, samples // mel.HOP))
        (found,) = self._model.align(_view(encoded), start, [text], frames)
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
            (self._texts[number].decode("latin-1"), times[token], times[token + 1])
            for token, number in enumerate(text)
        ]


def _view(array: Float32) -> Any:
    """The array, which must be contiguous and outlive the view, as CTranslate2 takes it."""
    return ctranslate2.StorageView.from_array(array)


if __name__ == "__main__":
    server.run(lambda model, _, threads: Engine(model, threads))
