import kaldi_native_fbank as knf
import numpy as np
import pytest

from witness.diarization import fbank as module
from witness.diarization.fbank import fbank, frame_count


def kaldi(samples: np.ndarray) -> np.ndarray:
    options = knf.FbankOptions()
    options.frame_opts.dither = 0.0
    options.frame_opts.window_type = "hamming"
    options.frame_opts.samp_freq = 16000
    options.mel_opts.num_bins = 80
    computer = knf.OnlineFbank(options)
    computer.accept_waveform(16000, (samples * 32768).tolist())
    computer.input_finished()
    return np.stack([computer.get_frame(i) for i in range(computer.num_frames_ready)])


@pytest.fixture
def speech_like() -> np.ndarray:
    """Noise whose level and color change, with silence in between."""
    rng = np.random.default_rng(1)
    t = np.arange(5 * 16000) / 16000
    noise = np.cumsum(rng.normal(0, 0.01, t.size)) * 0.05 + rng.normal(0, 0.1, t.size)
    wave = (noise + 0.3 * np.sin(2 * np.pi * 220 * t)) * (np.sin(2 * np.pi * 0.7 * t) > -0.3)
    return wave.astype(np.float32)


def test_equals_kaldi(speech_like):
    ours, theirs = fbank(speech_like), kaldi(speech_like)
    assert ours.shape == theirs.shape
    assert ours.dtype == np.float32
    assert np.abs(ours - theirs).max() < 2e-3
    assert np.abs(ours - theirs).mean() < 2e-5


def test_digital_silence_is_kaldis_floor():
    assert np.allclose(fbank(np.zeros(16000, np.float32)), np.log(np.float32(1.1920929e-07)))


@pytest.mark.parametrize(
    ("samples", "frames"), [(0, 0), (399, 0), (400, 1), (559, 1), (560, 2), (160000, 998), (16000, 98)]
)
def test_snip_edges(samples, frames):
    assert frame_count(samples) == frames
    assert fbank(np.zeros(samples, np.float32)).shape == (frames, 80)


def test_any_piece_equals_the_whole(speech_like, monkeypatch):
    whole = fbank(speech_like)
    monkeypatch.setattr(module, "BLOCK", 37)
    # Not to the last bit: a matrix product sums in another order at the edges of its blocks.
    assert np.allclose(fbank(speech_like), whole, atol=1e-4)
    assert np.allclose(fbank(speech_like, 100, 213), whole[100:213], atol=1e-4)
