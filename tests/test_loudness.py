"""Where a recording is too faint to be one of its voices."""

import numpy as np
import pytest

from witness.audio.spool import Spool
from witness.diarization import loudness, segmentation
from witness.models.session import on_cores
from witness.schema import FRAMES, SAMPLE_RATE, WINDOW_SAMPLES, Segmentation


def noise(seconds, level, seed=0):
    return (level * np.random.default_rng(seed).standard_normal(int(seconds * SAMPLE_RATE))).astype(
        np.float32
    )


@pytest.fixture
def conversation():
    """A minute: ten seconds at -20 dBFS, the rest 50 dB below."""
    return np.concatenate([noise(20, 3e-4), noise(10, 0.1, 1), noise(30, 3e-4, 2)])


def middles(heard):
    return np.arange(len(heard)) * 0.016875 + 0.031


@pytest.mark.parametrize(("level", "expected"), [(-28.0, True), (-32.0, False)])
def test_what_is_further_below_the_loud_parts_is_not_heard(level, expected):
    voice, fainter = noise(20, 0.1), noise(40, 0.1 * 10 ** (level / 20), 1)
    heard = loudness.is_loud(np.concatenate([voice, fainter]), 30.0)
    middle = middles(heard)
    assert heard[middle < 20].all()
    assert (heard[(middle > 20.5) & (middle < 59.5)] == expected).all()


def test_what_is_seldom_loud_makes_nothing_faint():
    """A door, a telephone, applause: 45 dB above the voices, for a twentieth of the time."""
    voices, bursts = noise(60, 1e-3), noise(3, 0.2, 1)
    for second in (5, 25, 45):
        voices[second * SAMPLE_RATE : (second + 1) * SAMPLE_RATE] += bursts[:SAMPLE_RATE]
    assert loudness.is_loud(voices, 30.0).all()


def test_it_is_the_same_however_it_is_computed(conversation):
    long = np.tile(conversation, 3)  # more than one piece
    spool = Spool()
    spool.append(long)
    with on_cores(2) as mapper:
        found = loudness.is_loud(spool, 40.0, mapper=mapper)
    np.testing.assert_array_equal(found, loudness.is_loud(long, 40.0))
    # Minutes are worked on by themselves, and yet no frame at their ends differs.
    minute = loudness.is_loud(conversation, 40.0)
    np.testing.assert_array_equal(found[1000:2000], minute[1000:2000])


@pytest.mark.parametrize("samples", [0, 1, 100, 1601])
def test_a_recording_may_be_as_short_as_it_likes(samples):
    assert loudness.is_loud(noise(samples / SAMPLE_RATE, 0.1), 40.0).shape == (-(-samples // 270),)


def test_half_a_second_around_a_frame_decides():
    window = noise(10, 1e-4)
    window[5 * SAMPLE_RATE : 7 * SAMPLE_RATE] = noise(2, 0.1, 1)
    window[8 * SAMPLE_RATE : 8 * SAMPLE_RATE + 1600] = noise(0.1, 0.1, 2)
    heard = loudness.is_loud(window, 40.0)
    middle = middles(heard)
    assert heard[(middle > 4.9) & (middle < 7.1)].all()
    assert heard[(middle > 7.9) & (middle < 8.2)].all()  # a syllable is no less loud for being alone
    assert not heard[(middle < 4.6) | ((middle > 7.4) & (middle < 7.6)) | (middle > 8.5)].any()


@pytest.mark.parametrize(("hertz", "level"), [(30, 0.5), (100, 0.02), (6000, 1.0)])
def test_neither_a_rumble_nor_a_hum_nor_a_whistle_is_loud(hertz, level):
    time = np.arange(40 * SAMPLE_RATE) / SAMPLE_RATE
    voice = noise(40, 0.01) * (time < 20)
    tone = (time > 22) * level * np.sin(2 * np.pi * hertz * time)  # 3 to 37 dB louder; broken off at the end
    heard = loudness.is_loud((voice + tone).astype(np.float32), 30.0)
    middle = middles(heard)
    assert heard[middle < 20].all()
    assert not heard[(middle > 22.5) & (middle < 39.4)].any()


def test_nobody_is_active_where_it_is_too_faint(conversation):
    def everybody(_, starts):
        scores = np.zeros((len(starts), FRAMES, 7), np.float32)
        scores[:, :, 4] = 1.0  # two of them
        return scores

    every = Segmentation.joined(segmentation.stream(conversation, everybody))
    assert every.active[:, :, :2].all()
    found = Segmentation.joined(segmentation.stream(conversation, everybody, faint=40.0))
    middles = found.starts[:, None] / SAMPLE_RATE + np.arange(FRAMES) * 0.016875 + 0.031
    spoken = found.active.any(2)
    assert spoken[(middles > 20) & (middles < 30)].all()
    assert not spoken[(middles < 19.7) | (middles > 30.3)].any()
    # What is 60 dB below is as good as nothing; what is 60 dB below everything is not.
    np.testing.assert_array_equal(
        Segmentation.joined(segmentation.stream(conversation / 1000, everybody, faint=40.0)).active,
        found.active,
    )


def test_in_silence_nobody_is_loud_enough():
    silence = np.zeros(WINDOW_SAMPLES, np.float32)
    assert not loudness.is_loud(silence, 40.0).any()
