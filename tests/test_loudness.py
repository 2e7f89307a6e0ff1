"""Where a recording is too faint to be one of its voices."""

import numpy as np
import pytest

from witness import loudness, segmentation
from witness.schema import FRAMES, SAMPLE_RATE, WINDOW_SAMPLES
from witness.sessions import workers
from witness.spool import Spool


def noise(seconds, level, seed=0):
    return (level * np.random.default_rng(seed).standard_normal(int(seconds * SAMPLE_RATE))).astype(
        np.float32
    )


@pytest.fixture
def conversation():
    """A minute: ten seconds at -20 dBFS, the rest 50 dB below."""
    return np.concatenate([noise(20, 3e-4), noise(10, 0.1, 1), noise(30, 3e-4, 2)])


def test_the_limit_is_so_many_decibels_below_the_loud_parts(conversation):
    (loud,) = loudness._powers(conversation[20 * SAMPLE_RATE : 30 * SAMPLE_RATE + 1], 10 * SAMPLE_RATE)
    for faint in (10.0, 40.0):
        below = 10 * np.log10(loud / loudness.limit(conversation, faint))
        assert below == pytest.approx(faint, abs=1)


def test_what_is_seldom_loud_makes_nothing_faint():
    """A door, a telephone, applause: 45 dB above the voices, for a twentieth of the time."""
    voices, bursts = noise(60, 1e-3), noise(3, 0.2, 1)
    for second in (5, 25, 45):
        voices[second * SAMPLE_RATE : (second + 1) * SAMPLE_RATE] += bursts[:SAMPLE_RATE]
    assert loudness.above(voices[:WINDOW_SAMPLES], loudness.limit(voices, 30.0)).all()


def test_the_limit_is_the_same_however_it_is_computed(conversation):
    long = np.tile(conversation, 3)  # more than one piece
    spool = Spool()
    spool.append(long)
    with workers(2) as mapper:
        assert loudness.limit(spool, 40.0, mapper=mapper) == loudness.limit(long, 40.0)


@pytest.mark.parametrize("samples", [0, 1, 100, 1601])
def test_what_is_too_short_to_be_loud_has_a_limit_of_nothing(samples):
    assert loudness.limit(np.zeros(samples, np.float32), 40.0) == 0.0


def test_half_a_second_around_a_frame_decides():
    window = noise(10, 1e-4)
    window[5 * SAMPLE_RATE : 6 * SAMPLE_RATE] = noise(1, 0.1, 1)
    window[8 * SAMPLE_RATE : 8 * SAMPLE_RATE + 1600] = noise(0.1, 0.1, 2)
    heard = loudness.above(window, loudness.limit(window, 40.0))
    middles = np.arange(FRAMES) * 0.016875 + 0.031
    assert heard.shape == (FRAMES,)
    assert heard[(middles > 4.9) & (middles < 6.1)].all()
    assert heard[(middles > 7.9) & (middles < 8.2)].all()  # a syllable is no less loud for being alone
    assert not heard[(middles < 4.6) | ((middles > 6.4) & (middles < 7.6)) | (middles > 8.5)].any()


def test_a_rumble_is_not_loud():
    time = np.arange(WINDOW_SAMPLES) / SAMPLE_RATE
    voice = noise(10, 0.03) * (time < 3)
    rumble = np.sin(2 * np.pi * 30 * time).astype(np.float32)  # 30 dB louder
    assert loudness.limit(voice + 1.0 * rumble, 40.0) == pytest.approx(
        loudness.limit(voice.astype(np.float32), 40.0), rel=0.5
    )


def test_nobody_is_active_where_it_is_too_faint(conversation):
    def everybody(_, starts):
        scores = np.zeros((len(starts), FRAMES, 7), np.float32)
        scores[:, :, 4] = 1.0  # two of them
        return scores

    every = segmentation.segment(conversation, everybody)
    assert every.active[:, :, :2].all()
    found = segmentation.segment(conversation, everybody, faint=40.0)
    middles = found.starts[:, None] / SAMPLE_RATE + np.arange(FRAMES) * 0.016875 + 0.031
    spoken = found.active.any(2)
    assert spoken[(middles > 20) & (middles < 30)].all()
    assert not spoken[(middles < 19.7) | (middles > 30.3)].any()
    # What is 60 dB below is as good as nothing; what is 60 dB below everything is not.
    np.testing.assert_array_equal(
        segmentation.segment(conversation / 1000, everybody, faint=40.0).active, found.active
    )


def test_in_silence_nobody_is_loud_enough():
    silence = np.zeros(WINDOW_SAMPLES, np.float32)
    assert not loudness.above(silence, loudness.limit(silence, 40.0)).any()
