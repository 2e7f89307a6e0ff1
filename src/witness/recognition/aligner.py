"""A Whisper model of CTranslate2, whose attention to the sound times the tokens of a text; and its input.

The input is the log-mel spectrogram that Whisper was trained on (openai/whisper, `audio.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from witness.models import ct2_header
from witness.recognition.engine import EngineToken
from witness.schema import SAMPLE_RATE, Float32, Float64

FFT, HOP = 400, 160
"""Samples; as openai/whisper."""
WINDOW: Float32 = np.hanning(FFT + 1)[:-1].astype(np.float32)
FRAMES = 3000
"""Frames of a spectrogram: 30 s, 10 ms a frame."""
RANGE = 8.0
"""Factors of ten below the loudest bin at which everything is silence."""
EACH = 4
"""Most cores of a call. A lone call is faster with them, many calls at a time are no slower for it, and the
result is the same (docs/decisions/2026-11-23-cores.md)."""
START, NO_TIMES = "<|startoftranscript|>", "<|notimestamps|>"


class Aligner:
    """A loaded model. Several threads may use it. Raises RuntimeError with one line if it cannot be used."""

    def __init__(self, folder: str, header: ct2_header.Ct2Header, *, threads: int, workers: int) -> None:
        """Load the model in `folder`, whose header `ct2_header.inspect` gave.

        `threads`: cores to use; `workers`: simultaneous calls.
        """
        self._folder = Path(folder)
        self._bands = header.bands
        # int8: half the time of float32 with a processor that has instructions for it, and as good
        # (docs/decisions/2026-11-22-words.md); without them CTranslate2 takes another type.
        self.model = ctranslate2.models.Whisper(
            str(self._folder),
            device="cpu",
            compute_type="int8",
            inter_threads=workers,
            intra_threads=min(threads, EACH),
        )
        self.multilingual: bool = self.model.is_multilingual
        tokens = ct2_header.read_vocabulary(self._folder)
        self.ids = {token: number for number, token in enumerate(tokens)}
        self.end = self.ids[ct2_header.END_OF_TEXT]
        self._texts = [
            bytes(ct2_header.BYTES[character] for character in token if character in ct2_header.BYTES)
            for token in tokens[: self.end]
        ]
        special = tokens[self.ids[START] + 1 : self.ids["<|translate|>"]]
        self.languages = [token.strip("<|>") for token in special] if self.multilingual else ["en"]

    def encode(self, samples: Float32, frames: int = FRAMES) -> Float32:
        """(n,) samples, in so many frames of 10 ms -> (1, frames / 2, width): the encoder's output."""
        spectrum = log_mel(samples, self._bands, frames)[None]
        return np.array(self.model.encode(view(spectrum), to_cpu=True))

    def start(self, language: str | None, translate: bool = False) -> list[int]:
        """Return the first tokens of Whisper's text; English stands for a language that it does not know."""
        if not self.multilingual:
            return [self.ids[START]]
        task = "<|translate|>" if translate else "<|transcribe|>"
        code = language if language in self.languages else "en"
        return [self.ids[token] for token in (START, f"<|{code}|>", task)]

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a text. Raises RuntimeError if the folder lacks the tokenizer."""
        ids: list[int] = self._tokenizer.encode(f" {text.strip()}", add_special_tokens=False).ids
        return ids

    def times(
        self, encoded: Float32, start: Sequence[int], text: Sequence[int], samples: int
    ) -> list[EngineToken]:
        """Return the tokens of a text with their times; `encoded` stands for `samples`."""
        if not text:
            return []
        frames = max(2, min(FRAMES, samples // HOP))
        (alignment,) = self.model.align(view(encoded), list(start), [list(text)], frames)
        # Pairs (token, position of 20 ms) along the way through both; a token begins at its first pair.
        begins = [-1] * (len(text) + 1)
        for token, position in alignment.alignments:
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
                float(alignment.text_token_probs[token]),
            )
            for token, number in enumerate(text)
        ]

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        path = self._folder / ct2_header.TOKENIZER
        if not path.is_file():
            raise RuntimeError(f"{path.name}, which makes tokens of a text, is missing")
        return Tokenizer.from_file(str(path))


def view(array: Float32) -> Any:
    """Return CTranslate2's view of an array, which must be contiguous and outlive the view."""
    return ctranslate2.StorageView.from_array(array)


def log_mel(samples: Float32, bands: int, frames: int = FRAMES) -> Float32:
    """(n,) at 16 kHz -> (bands, frames), cut or silent after the end. `bands` is 80 or 128."""
    padded = np.zeros(frames * HOP + FFT, np.float32)
    used = samples[: frames * HOP]
    padded[FFT // 2 : FFT // 2 + len(used)] = used
    padded[: FFT // 2] = padded[FFT : FFT // 2 : -1]  # reflected, as torch.stft does
    windows = sliding_window_view(padded, FFT)[: frames * HOP : HOP] * WINDOW
    # Not scipy.fft, whose import takes longer than the spectra of several minutes.
    power = np.abs(np.fft.rfft(windows, axis=1)) ** 2
    spectrum = np.log10(np.maximum(power @ mel_filters(bands).T, 1e-10))
    levels: Float32 = (np.maximum(spectrum, spectrum.max() - RANGE) + 4.0) / 4.0
    return np.ascontiguousarray(levels.T, np.float32)


@cache
def mel_filters(bands: int) -> Float32:
    """(bands, 201): triangles of equal area on Slaney's mel scale, as librosa.filters.mel makes them."""
    bins = np.fft.rfftfreq(FFT, 1 / SAMPLE_RATE)
    edges = _hertz(np.linspace(0.0, _mel(SAMPLE_RATE / 2), bands + 2))
    widths = np.diff(edges)
    distances = edges[:, None] - bins
    rising = -distances[:-2] / widths[:-1, None]
    falling = distances[2:] / widths[1:, None]
    areas = 2.0 / (edges[2:] - edges[:-2])
    triangles: Float32 = (np.maximum(0.0, np.minimum(rising, falling)) * areas[:, None]).astype(np.float32)
    return triangles


def _mel(hertz: float) -> float:
    return 15.0 + math.log(hertz / 1000.0) * 27.0 / math.log(6.4)  # above 1 kHz


def _hertz(mels: Float64) -> Float64:
    return np.where(mels < 15.0, mels * 200.0 / 3.0, 1000.0 * np.exp((mels - 15.0) * np.log(6.4) / 27.0))
