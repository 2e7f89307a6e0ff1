"""Samples -> the log-mel spectrogram that Whisper was trained on."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from witness.schema import SAMPLE_RATE, Float32, Float64

FFT, HOP = 400, 160
"""Samples; these and what follows are of openai/whisper, `audio.py`."""
FRAMES = 3000
"""Of a spectrogram: Whisper hears 30 s, 10 ms a frame."""
RANGE = 8.0
"""Factors of ten below the loudest bin at which everything is silence."""


def log_mel(samples: Float32, bands: int, frames: int = FRAMES) -> Float32:
    """(n,) at 16 kHz -> (bands, frames), cut or silent after the end. `bands` is 80 or 128."""
    padded = np.zeros(frames * HOP + FFT, np.float32)
    heard = samples[: frames * HOP]
    padded[FFT // 2 : FFT // 2 + len(heard)] = heard
    padded[: FFT // 2] = padded[FFT : FFT // 2 : -1]  # reflected, as torch.stft does
    windows = sliding_window_view(padded, FFT)[: frames * HOP : HOP] * _window()
    # Not scipy.fft, whose import takes longer than the spectra of several minutes.
    power = np.abs(np.fft.rfft(windows, axis=1)) ** 2
    spectrum = np.log10(np.maximum(power @ filters(bands).T, 1e-10))
    levels: Float32 = (np.maximum(spectrum, spectrum.max() - RANGE) + 4.0) / 4.0
    return np.ascontiguousarray(levels.T, np.float32)


@cache
def _window() -> Float32:
    window: Float32 = np.hanning(FFT + 1)[:-1].astype(np.float32)
    return window


@cache
def filters(bands: int) -> Float32:
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
