"""Calls recorded with one side per channel: recognized, taken apart, and everything else left alone."""

import json
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from conftest import CALL, SHARED, strict_der
from witness import Options, diarize
from witness.audio import decode, ffmpeg, stereo
from witness.errors import InputError
from witness.formats import rttm
from witness.models import catalogue
from witness.options import Bounds, Layout
from witness.schema import FRAMES, LOCAL_SPEAKERS, WINDOW_SAMPLES, Findings, Segmentation, Source, Track
from witness.transcript import assemble, corrections

pytestmark = pytest.mark.usefixtures("open_models")

RATE = 8000


@pytest.fixture(scope="module")
def sides():
    """(2, n): the call with each speaker in a channel, silence elsewhere; and the reference turns."""
    samples, rate = soundfile.read(CALL, dtype="float32")
    assert rate == RATE
    (turns,) = rttm.parse(CALL.with_suffix(".rttm").read_text()).values()
    speakers = sorted({turn.speaker for turn in turns})
    found = np.zeros((2, len(samples)), np.float32)
    for turn in turns:
        part = slice(int(turn.start * rate), int(turn.end * rate))
        found[speakers.index(turn.speaker), part] = samples[part]
    return found, turns


def noise(shape, level: float = 1e-3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, level, shape).astype(np.float32)


def with_bleed(sides: np.ndarray, decibels: float, delay: float = 0.03) -> np.ndarray:
    """Each channel with the other's voice, later and quieter, as over a telephone's hybrid."""
    late = np.roll(sides[::-1], int(delay * RATE), axis=1) * 10 ** (decibels / 20)
    return sides + late.astype(np.float32)


def music(seconds: float = 30.0) -> np.ndarray:
    """(2, n): notes with harmonics that decay, each somewhere between the channels, and echoes."""
    chance = np.random.default_rng(3)
    found = noise((2, int(seconds * RATE)), 2e-4)
    time = np.arange(int(1.5 * RATE)) / RATE
    for start in np.arange(0, seconds - 1.5, 0.125):
        pitch = 110 * 2 ** (chance.integers(0, 36) / 12)
        note = sum(np.sin(2 * np.pi * pitch * n * time) / n for n in range(1, 5)) * np.exp(-4 * time)
        place = chance.uniform(0, np.pi / 2)
        first = int(start * RATE)
        for channel, gain in enumerate((np.cos(place), np.sin(place))):
            echo = np.roll(note, int(chance.uniform(0.005, 0.02) * RATE)) * 0.3
            found[channel, first : first + len(note)] += (0.1 * (gain * note + echo)).astype(np.float32)
    return found


def is_call(samples: np.ndarray) -> bool:
    levels = stereo.Levels()
    for first in range(0, samples.shape[1], 1237):  # blocks of any length
        levels.add(RATE, samples[:, first : first + 1237].T)
    return stereo.is_call(levels.powers)


@pytest.mark.parametrize("bleed", [None, -35, -20, -14])
@pytest.mark.parametrize("quieter", [0, -20])
def test_calls_are_found(sides, bleed, quieter):
    found, _ = sides
    if bleed is not None:
        found = with_bleed(found, bleed)
    found = found + noise(found.shape, 2e-4)
    assert is_call(
        found * np.array([[1.0], [10 ** (quieter / 20)]], np.float32)
    )  # the far end is often quiet


def test_what_is_no_call_is_left_alone(sides):
    found, _ = sides
    mono = found.sum(axis=0)
    hum = 0.01 * np.sin(2 * np.pi * 50 * np.arange(len(mono)) / RATE).astype(np.float32)
    room = np.stack([found[0] + 0.5 * found[1], 0.5 * found[0] + found[1]])  # 6 dB to either side
    others = {
        "mono in two channels": np.stack([mono, mono]),
        "mono, one side louder": np.stack([mono, 0.1 * mono]) + noise(found.shape, 1e-4),
        "mono, one side the other way round": np.stack([mono, -mono]),
        "a dead channel": np.stack([mono, np.zeros_like(mono)]),
        "a channel of noise": np.stack([mono, noise(len(mono))]),
        "a channel of hum": np.stack([mono, hum]),
        "a room": room + noise(found.shape),
        "a room, apart": np.stack([room[0], np.roll(room[1], 40)]) + noise(found.shape),
        "music": music(),
        "silence": np.zeros((2, 5 * RATE), np.float32),
        "nearly nothing": found[:, : RATE // 5],
        "nothing": found[:, :0],
    }
    assert [name for name, samples in others.items() if is_call(samples)] == []


def test_the_other_voice_is_silenced_and_the_own_one_kept(sides):
    found, turns = sides
    speakers = sorted({turn.speaker for turn in turns})
    clean = np.repeat(found, 2, axis=1)  # 16 kHz, roughly
    heard = np.repeat(with_bleed(found, -18) + noise(found.shape, 1e-4), 2, axis=1)
    stereo.silence_bleed(heard)
    for track, speaker in enumerate(speakers):
        own = np.zeros(heard.shape[1], bool)
        other = own.copy()
        for turn in turns:
            part = slice(int(turn.start * 16000), int(turn.end * 16000))
            (own if turn.speaker == speaker else other)[part] = True
        kept = np.square(heard[track, own]).sum() / np.square(clean[track, own]).sum()
        assert kept > 0.97
        alone = other & ~own
        bled = np.square(clean[1 - track, alone]).sum() * 10**-1.8
        assert np.square(heard[track, alone]).sum() < 0.03 * bled


@pytest.fixture(scope="module")
def call(sides, tmp_path_factory):
    path = tmp_path_factory.mktemp("call") / "call.wav"
    half = sides[0][:, : 30 * RATE]
    soundfile.write(path, (with_bleed(half, -20) + noise(half.shape, 1e-4)).T, RATE)
    return path


@pytest.mark.slow
def test_auto_takes_a_call_apart_and_says_so(call, sides):
    notes = []
    found = diarize(call, Options(models="builtin", offline=True), note=notes.append)
    assert len([line for line in notes if "two sides of a call" in line]) == 1
    assert sum("two sides of a call" in line for line in found.warnings) == 1
    assert {speaker.id for speaker in found.speakers} == {"CH1_SPEAKER_01", "CH2_SPEAKER_02"}
    assert found.audio.channels == 2
    apart = strict_der([(sides[1], found.turns, found.audio.duration)])
    mixed = diarize(call, Options(models="builtin", offline=True, channels="mix"))
    assert not any("call" in line and "sides" in line for line in mixed.warnings)
    assert {speaker.id for speaker in mixed.speakers} == {"SPEAKER_01", "SPEAKER_02"}
    assert apart < 0.05
    assert strict_der([(sides[1], mixed.turns, mixed.audio.duration)]) < 0.05

    # The number of speakers is that of the whole call.
    counts = {}
    for wanted in (1, 2, 3, 4):
        again = corrections.apply(assemble.make_draft(found.findings, Bounds(speakers=wanted)))
        counts[wanted] = len(again.speakers), len({name[:3] for name in (s.id for s in again.speakers)})
    assert counts == {1: (1, 1), 2: (2, 2), 3: (3, 2), 4: (4, 2)}
    assert len(corrections.apply(assemble.make_draft(found.findings, Bounds(min_speakers=3))).speakers) == 3
    assert len(corrections.apply(assemble.make_draft(found.findings, Bounds(max_speakers=2))).speakers) == 2


def test_a_call_is_decoded_once_and_has_the_sides_that_split_gives(call, monkeypatch):
    """But for rounding: the sides are kept as their mean and half their difference until the end is known."""
    silenced = []
    monkeypatch.setattr(stereo, "silence_bleed", lambda sides: silenced.append(len(sides)))
    decoded = []
    frames = ffmpeg.Media.frames
    monkeypatch.setattr(ffmpeg.Media, "frames", lambda *given: decoded.append(1) or frames(*given))
    auto, split = (decode.load(str(call), channels=how) for how in ("auto", "split"))
    assert (len(decoded), silenced) == (2, [2])
    for ours, theirs in zip(auto.samples, split.samples, strict=True):
        np.testing.assert_allclose(ours[:], theirs[:], rtol=0, atol=2e-7)


def test_a_call_that_goes_on_in_one_channel_is_refused(call, tmp_path):
    samples, _ = soundfile.read(call, dtype="float32")
    for name, sound in (("two", samples), ("one", samples[: 5 * RATE, 0])):
        soundfile.write(tmp_path / f"{name}.mp3", sound, RATE)
    joined = tmp_path / "joined.mp3"
    joined.write_bytes((tmp_path / "two.mp3").read_bytes() + (tmp_path / "one.mp3").read_bytes())
    assert decode.load(str(joined)).channels == "mix"
    with pytest.raises(InputError, match=r"changes from 2 to 1 channels at 00:00:30.*--channels mix"):
        decode.load(str(joined), channels="auto")


@pytest.mark.parametrize("rate", [RATE, 44_100])
def test_auto_is_mix_where_there_is_no_call(tmp_path, sides, rate):
    mono = sides[0].sum(axis=0)
    soundfile.write(tmp_path / "two.wav", np.stack([mono, 0.5 * mono]).T, rate)
    soundfile.write(tmp_path / "three.wav", np.stack([*sides[0], mono]).T, rate)
    soundfile.write(tmp_path / "one.wav", mono, rate)
    for name in ("one.wav", "two.wav", "three.wav"):
        auto, mixed = (decode.load(str(tmp_path / name), channels=how) for how in ("auto", "mix"))
        assert auto.channels == "mix"
        assert np.array_equal(auto.samples[0][:], mixed.samples[0][:])
        assert auto.warnings == mixed.warnings


@pytest.mark.slow
def test_split_and_a_call_from_standard_input(call, tmp_path):
    import subprocess
    import sys

    split = decode.load(str(call), channels="split")
    assert (split.channels, split.warnings) == ("split", ())
    command = [sys.executable, "-m", "witness", "-", "-f", "json", "--models", "builtin", "--offline", "-q"]
    samples, rate = soundfile.read(call, frames=15 * RATE, dtype="float32")
    soundfile.write(tmp_path / "part.wav", samples, rate)
    with (tmp_path / "part.wav").open("rb") as file:
        result = subprocess.run(
            [*command, "--whisper", "none"], stdin=file, capture_output=True, check=True, timeout=120
        )
    speakers = json.loads(result.stdout)["speakers"]
    assert [speaker["id"] for speaker in speakers] == ["CH1_SPEAKER_01", "CH2_SPEAKER_02"]


def test_a_room_with_two_microphones():
    path = SHARED / "data" / "eval" / "awkward" / "google_multi.flac"
    if not path.exists():
        pytest.skip("the awkward recordings are not here (shared/data/eval)")
    assert decode.load(str(path), channels="auto").channels == "mix"


def one_side(angle: float, others: int, windows: int = 60):
    """Findings of a call; in `others` windows of the first side the voice is one that is `angle` off."""
    active = np.zeros((windows, FRAMES, LOCAL_SPEAKERS), np.bool_)
    active[:, 100:400, 0] = True  # 5 s in each window, which do not overlap
    vectors = np.full((windows, LOCAL_SPEAKERS, 256), np.nan, np.float32)
    vectors[:, 0] = np.random.default_rng(0).normal(0, 0.01, (windows, 256))
    vectors[:, 0, 0] += 1
    vectors[::-1][:others, 0, :2] += (np.cos(angle) - 1, np.sin(angle))
    first = Track(Segmentation(active, np.arange(windows) * WINDOW_SAMPLES), vectors)
    second = replace(first, vectors=np.roll(vectors[:1].repeat(windows, axis=0), 5, axis=2))
    return Findings(
        audio=Source("call.wav", windows * 10.0, 2, "0" * 64),
        models={},
        device={},
        rule=catalogue.SETS["builtin"].rule,
        plda={},
        channels=Layout.CALL,
        tracks=(first, second),
    )


@pytest.mark.parametrize(
    ("angle", "others", "people"),
    [
        (1.1, 30, 1),  # a cosine of 0.45: as far as a bad line drives a voice from itself
        (1.5, 30, 2),  # 0.07: a stranger
        (1.5, 3, 2),  # who speaks for 15 s of five minutes
        (1.5, 1, 1),  # for 5 s
    ],
)
def test_there_is_one_person_on_a_side_unless_others_are_clearly_strangers(angle, others, people):
    findings = one_side(angle, others)
    findings = replace(findings, rule=replace(findings.rule, smallest=1))
    who = assemble.diarize(findings)
    assert [len(track.names) for track in who.tracks] == [people, 1]
    mixed = assemble.diarize(replace(findings, channels=Layout.SPLIT))
    assert [len(track.names) for track in mixed.tracks] == [2, 1]  # where nothing speaks for one person
    asked = assemble.diarize(findings, Bounds(speakers=3))
    assert [len(track.names) for track in asked.tracks] == [2, 1]  # whoever asks for more gets more
