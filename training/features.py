"""Kaldi's filterbank features in torch, and the mean that the pipeline removes from them.

The same numbers as `torchaudio.compliance.kaldi.fbank(num_mel_bins=80, dither=0, window_type="hamming")`.
"""

import numpy as np
import torch
from torch import nn

SAMPLE_RATE = 16_000
FRAME_LENGTH, FRAME_SHIFT = 400, 160  # samples: 25 ms and 10 ms
FFT = 512
MELS = 80


def mel_weights(mels: int, bins: int, fft: int, low: float = 20.0, high: float = 8000.0) -> torch.Tensor:
    """(bins, mels) triangles on Kaldi's mel scale, for the `bins` first bins of an FFT of that length."""

    def mel(hertz: np.ndarray | float) -> np.ndarray:
        return 1127.0 * np.log(1 + np.asarray(hertz) / 700.0)

    edges = np.linspace(mel(low), mel(high), mels + 2)
    at = mel(np.arange(bins) * SAMPLE_RATE / fft)
    left, center, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (at[:, None] - left) / (center - left)
    falling = (right - at[:, None]) / (right - center)
    return torch.from_numpy(np.maximum(0, np.minimum(rising, falling)).astype(np.float32))


class Fbank(nn.Module):
    """(batch, samples) in [-1, 1] -> (batch, 1 + (samples - 400) // 160, 80), no mean removed."""

    def __init__(self) -> None:
        super().__init__()
        weights = mel_weights(MELS, FFT // 2 + 1, FFT)
        weights[-1] = 0  # Kaldi leaves the last bin out
        self.register_buffer("mel", weights)
        self.register_buffer("window", torch.from_numpy(np.hamming(FRAME_LENGTH).astype(np.float32)))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        frames = (samples * 32768.0).unfold(-1, FRAME_LENGTH, FRAME_SHIFT)
        frames = frames - frames.mean(-1, keepdim=True)
        frames = torch.cat([frames[..., :1] * (1 - 0.97), frames[..., 1:] - 0.97 * frames[..., :-1]], -1)
        power = torch.fft.rfft(frames * self.window, FFT).abs() ** 2
        return torch.log(torch.clamp(power @ self.mel, min=1.1920929e-07))
