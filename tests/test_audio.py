"""`audio`: tones come back at their pitch, level and length from every format; damage never surprises."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import av
import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from witness.audio import decode, ffmpeg, fifo, frames
from witness.errors import InputError
from witness.options import Channels
from witness.progress import Reporter
from witness.schema import SAMPLE_RATE
from witness.storage import files
from witness.text import clock

DATA = Path(__file__).parent / "data"
AWKWARD = Path(__file__).parents[2] / "shared" / "data" / "eval" / "awkward"
PITCHES = (440.0, 700.0, 1000.0, 1300.0, 1700.0, 2300.0, 2900.0, 3300.0)
"""Hz, one per channel."""
LEVEL = 0.4
LAYOUTS = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}

Floats = npt.NDArray[np.float32]


def tones(seconds: float, rate: int, channels: int = 1) -> Floats:
    """(frames, channels): a sine of LEVEL per channel."""
    t = np.arange(round(seconds * rate)) / rate
    return np.stack([LEVEL * np.sin(2 * np.pi * PITCHES[c] * t) for c in range(channels)], 1).astype(
        np.float32
    )


def noisy(seconds: float, rate: int) -> Floats:
    """(frames, 1): a tone in noise, so that nothing compresses to next to nothing."""
    noise = np.random.default_rng(7).standard_normal((round(seconds * rate), 1))
    return tones(seconds, rate) + (0.05 * noise).astype(np.float32)


def write(
    path: Path, sound: Floats | None, rate: int, codec: str, *, video: bool = False, **options: str
) -> str:
    """Mux by FFmpeg; `sound` None leaves the sound out, `options` are the container's."""
    with av.open(str(path), "w", options=options) as container:
        if video:
            picture = container.add_stream("mpeg4", rate=10)
            picture.width, picture.height, picture.pix_fmt = 64, 64, "yuv420p"
        if sound is not None:
            layout = LAYOUTS[sound.shape[1]]
            stream = container.add_stream(codec, rate=rate, layout=layout)
        if video:
            for i in range(10):
                image = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 20 * i, np.uint8), format="rgb24")
                image.pts, image.time_base = i, Fraction(1, 10)
                container.mux(picture.encode(image))
            container.mux(picture.encode(None))
        if sound is not None:
            for start in range(0, len(sound), 960):
                packed = np.ascontiguousarray(sound[start : start + 960].reshape(1, -1))
                frame = av.AudioFrame.from_ndarray(packed, format="flt", layout=layout)
                frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
    return str(path)


def pitch_and_level(track: Floats) -> tuple[float, float]:
    """Hz of the strongest frequency, and the amplitude of a sine of the same power; edges left out."""
    middle = track[1600:-1600].astype(np.float64)
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    return float(np.argmax(spectrum)) * SAMPLE_RATE / len(middle), float(np.sqrt(2 * np.mean(middle**2)))


def attempt(path: str | Path, channels: Literal["mix", "split"] = "mix") -> decode.Audio | str:
    """The recording, or the message that refuses it."""
    try:
        return decode.load(str(path), channels=channels)
    except InputError as error:
        return str(error)


def refusal(path: str | Path) -> str:
    with pytest.raises(InputError) as caught:
        decode.load(str(path))
    message = str(caught.value)
    assert "\n" not in message
    return message


def tracks(loaded: decode.Audio) -> np.ndarray:
    """(tracks, samples)"""
    return np.stack([track[:] for track in loaded.samples])


def check_tone(loaded: decode.Audio, seconds: float, *, channels: int = 1, slack: float = 0.0) -> None:
    assert tracks(loaded).dtype == np.float32
    assert loaded.source.duration == tracks(loaded).shape[1] / SAMPLE_RATE
    assert loaded.source.duration == pytest.approx(seconds, abs=slack + 2 / SAMPLE_RATE)
    assert loaded.source.channels == channels
    assert loaded.warnings == ()
    lossy = Path(loaded.source.path).suffix in (".mp3", ".ogg")  # by 0.5 dB at low rates
    if len(tracks(loaded)) == channels:
        for track, expected in zip(tracks(loaded), PITCHES, strict=False):
            pitch, level = pitch_and_level(track)
            assert pitch == pytest.approx(expected, abs=2)
            assert level == pytest.approx(LEVEL, rel=0.08 if lossy else 0.03)


# --- formats ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 44100, 96000])
@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW"])
def test_wav_of_every_kind(tmp_path: Path, subtype: str, rate: int) -> None:
    path = tmp_path / "tone.wav"
    soundfile.write(path, tones(1.5, rate), rate, subtype=subtype)
    check_tone(decode.load(str(path)), 1.5)


@pytest.mark.parametrize(
    ("name", "subtype", "rate"),
    [
        ("tone.flac", "PCM_16", 8000),
        ("tone.flac", "PCM_24", 96000),
        ("tone.ogg", "VORBIS", 44100),
        ("tone.ogg", "VORBIS", 8000),
        ("tone.opus", "OPUS", 48000),
        ("tone.mp3", "MPEG_LAYER_III", 44100),
        ("tone.mp3", "MPEG_LAYER_III", 8000),
        ("tone.aiff", "PCM_16", 22050),
        ("tone.w64", "PCM_16", 16000),
        ("tone.caf", "PCM_16", 16000),
        ("tone.au", "ULAW", 8000),
    ],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_what_libsndfile_writes(tmp_path: Path, name: str, subtype: str, rate: int, channels: int) -> None:
    path = tmp_path / name
    form = {".opus": "OGG"}.get(path.suffix)
    soundfile.write(path, tones(1.5, rate, channels), rate, subtype=subtype, format=form)
    slack = 0.03 if subtype == "VORBIS" else 0.0  # FFmpeg keeps the padding of a file of few pages
    check_tone(decode.load(str(path), channels="split"), 1.5, channels=channels, slack=slack)


@pytest.mark.parametrize(
    ("name", "codec", "rate"),
    [
        ("tone.m4a", "aac", 44100),
        ("tone.m4a", "aac", 8000),
        ("tone.m4a", "alac", 16000),
        ("tone.mp4", "aac", 48000),
        ("tone.webm", "libopus", 48000),
        ("tone.mkv", "libopus", 16000),
        ("tone.mka", "flac", 96000),
        ("tone.mov", "pcm_s16le", 44100),
        ("tone.mp3", "libmp3lame", 24000),
        ("tone.ts", "aac", 44100),
    ],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_what_ffmpeg_writes(tmp_path: Path, name: str, codec: str, rate: int, channels: int) -> None:
    path = write(tmp_path / name, tones(1.5, rate, channels), rate, codec)
    check_tone(decode.load(path, channels="split"), 1.5, channels=channels, slack=3 * 1024 / rate)


def test_sound_of_a_video(tmp_path: Path) -> None:
    path = write(tmp_path / "meeting.mp4", tones(1.0, 44100, 2), 44100, "aac", video=True)
    check_tone(decode.load(path, channels="split"), 1.0, channels=2, slack=0.05)


@pytest.mark.parametrize(
    ("name", "codec"), [("six.wav", "pcm_s16le"), ("six.m4a", "aac"), ("six.mka", "libopus")]
)
@pytest.mark.parametrize("channels", [6, 8])  # 8 planar channels crash PyAV's own conversion
def test_many_channels(tmp_path: Path, name: str, codec: str, channels: int) -> None:
    path = write(tmp_path / name, tones(1.0, 48000, channels), 48000, codec)
    split = decode.load(path, channels="split")
    assert tracks(split).shape[0] == channels
    # Encoders reorder channels and filter the low-frequency one; each tone must be somewhere.
    rounded = (round(pitch_and_level(track)[0], -2) for track in tracks(split))
    pitches = {pitch for pitch in rounded if pitch > 300}
    assert pitches <= {round(pitch, -2) for pitch in PITCHES}
    assert len(pitches) >= channels - 1
    mixed = decode.load(path)
    assert tracks(mixed).shape[0] == 1
    assert mixed.source.channels == channels
    np.testing.assert_allclose(tracks(mixed)[0], tracks(split).mean(axis=0), atol=1e-5)


def test_more_channels_than_a_layout_has_names_for(tmp_path: Path) -> None:
    path = tmp_path / "array.wav"
    sound = np.tile(tones(0.5, 48000), (1, 24)) * np.arange(24, dtype=np.float32) / 24
    soundfile.write(path, sound, 48000, subtype="PCM_16")
    assert tracks(decode.load(str(path), channels="split")).shape == (24, 8000)


def test_mix_is_the_mean_and_split_the_channels(tmp_path: Path) -> None:
    path = tmp_path / "two.wav"
    sound = tones(1.0, SAMPLE_RATE, 2)
    soundfile.write(path, sound, SAMPLE_RATE, subtype="FLOAT")
    np.testing.assert_array_equal(tracks(decode.load(str(path), channels="split")), sound.T)
    mixed = decode.load(str(path))
    np.testing.assert_array_equal(tracks(mixed)[0], (sound[:, 0] + sound[:, 1]) / np.float32(2))
    assert mixed.source.channels == 2


def test_split_of_one_channel_is_mix(tmp_path: Path) -> None:
    path = tmp_path / "one.wav"
    soundfile.write(path, tones(1.0, 8000), 8000)
    np.testing.assert_array_equal(
        tracks(decode.load(str(path), channels="split")), tracks(decode.load(str(path), channels="mix"))
    )


@pytest.mark.parametrize("rate", [8000, 44100])
def test_resampling_keeps_time(tmp_path: Path, rate: int) -> None:
    path = tmp_path / "tone.wav"
    soundfile.write(path, tones(2.0, rate), rate, subtype="FLOAT")
    expected = tones(2.0, SAMPLE_RATE)[:, 0]
    samples = tracks(decode.load(str(path)))[0]
    np.testing.assert_allclose(samples[800:-800], expected[800:-800], atol=1e-4)


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_block_size_changes_nothing(tmp_path: Path, rate: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "call.flac"
    soundfile.write(path, np.repeat(noisy(3.0, rate), 2, axis=1), rate)
    whole = tracks(decode.load(str(path), channels="mix"))
    for block in (1, 777, 1 << 30):
        monkeypatch.setattr(frames, "BLOCK", block)
        assert tracks(decode.load(str(path), channels="mix")).tobytes() == whole.tobytes()
        split = tracks(decode.load(str(path), channels="split"))
        np.testing.assert_array_equal(split[0], split[1])
        assert split.shape == (2, whole.shape[1])
        assert split.flags.c_contiguous


def test_source_tells_path_and_hash(tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    soundfile.write(path, tones(0.5, 8000), 8000)
    source = decode.load(str(path)).source
    assert source.path == str(path)
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_progress_rises_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    soundfile.write(path, np.zeros((8000 * 60, 1), np.float32), 8000)
    seen: list[tuple[str, float, float]] = []
    decode.load(str(path), reporter=Reporter(lambda *call: seen.append(call)))
    assert len(seen) > 3
    assert {stage for stage, _, _ in seen} == {"decode"}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1:] == pytest.approx((60.0, 60.0))


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW"])
@pytest.mark.parametrize("channels", [1, 3])
def test_samples_are_those_of_libsndfile_to_the_last_bit(tmp_path: Path, subtype: str, channels: int) -> None:
    path = tmp_path / "exact.wav"
    soundfile.write(path, tones(1.0, SAMPLE_RATE, channels) / LEVEL, SAMPLE_RATE, subtype=subtype)
    expected, _ = soundfile.read(path, dtype="float32", always_2d=True)
    np.testing.assert_array_equal(tracks(decode.load(str(path), channels="split")), expected.T)


def test_only_the_frame_that_no_encoder_was_given_is_silenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though many are looked at together."""
    monkeypatch.setattr(ffmpeg, "_NOT_SOUND", 0.9)
    sound = noisy(2.0, SAMPLE_RATE)
    sound[20_000] = 0.95
    path = write(tmp_path / "loud.mka", sound, SAMPLE_RATE, "flac")
    loaded = decode.load(path)
    silent = np.flatnonzero(tracks(loaded)[0] == 0)
    quiet = np.flatnonzero(np.convolve(tracks(loaded)[0] == 0, np.ones(20), "valid") == 20)
    first, last = quiet[0], quiet[-1] + 19
    assert first <= 20_000 <= last
    assert last - first + 1 == np.count_nonzero((silent >= first) & (silent <= last))
    assert last - first < 5_000  # one frame of FLAC
    (warning,) = loaded.warnings
    assert f"is damaged in 1 place, first at {clock(first / SAMPLE_RATE, 1)}" in warning


# --- samples in memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "subtype"),
    [("float32", "FLOAT"), ("float64", "DOUBLE"), ("int16", "PCM_16"), ("int32", "PCM_32")],
)
@pytest.mark.parametrize("channels", ["mix", "split", "auto"])
@pytest.mark.parametrize("shape", ["(n,)", "(n, 1)", "(n, 2)"])
@pytest.mark.parametrize("rate", [8000, SAMPLE_RATE])
def test_an_array_is_what_a_file_of_its_samples_is(
    tmp_path: Path, dtype: str, subtype: str, channels: Channels, shape: str, rate: int
) -> None:
    path = tmp_path / "two.wav"
    soundfile.write(path, tones(2.0, rate, 2 if shape == "(n, 2)" else 1), rate, subtype=subtype)
    array, _ = soundfile.read(path, dtype=dtype, always_2d=shape != "(n,)")
    assert array.dtype == dtype
    assert array.ndim == (1 if shape == "(n,)" else 2)
    file, memory = decode.load(path, channels=channels), decode.load((array, rate), channels=channels)
    assert tracks(memory).tobytes() == tracks(file).tobytes()
    assert memory.channels == file.channels
    assert memory.warnings == file.warnings == ()
    assert memory.source.path == "<samples>"
    assert memory.source.duration == file.source.duration
    assert memory.source.channels == file.source.channels


def test_the_two_sides_of_a_call_in_an_array_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    samples, rate = soundfile.read(DATA / "call.flac", dtype="int16")
    call = np.zeros((len(samples), 2), np.int16)
    call += np.random.default_rng(0).integers(-3, 4, call.shape).astype(np.int16)
    for second in range(0, len(samples) // rate, 4):
        part = slice(second * rate, (second + 4) * rate)
        call[part, second // 4 % 2] += samples[part]
    soundfile.write(path, call, rate)
    file, memory = (decode.load(each, channels=Channels.AUTO) for each in (path, (call, rate)))
    assert memory.channels == file.channels == "call"
    assert tracks(memory).tobytes() == tracks(file).tobytes()
    (warning,) = memory.warnings
    assert warning.startswith("<samples>: its channels are the two sides of a call")


def test_an_array_in_any_memory_order_is_the_same_recording() -> None:
    sound = tones(1.0, 8000, 2)
    wide = np.zeros((2 * len(sound), 3), np.float32)
    wide[::2, :2] = sound
    loaded = [decode.load((array, 8000)) for array in (sound, np.asfortranarray(sound), wide[::2, :2])]
    assert len({each.source.sha256 for each in loaded}) == 1
    assert loaded[0].source.sha256 == hashlib.sha256(sound.tobytes()).hexdigest()
    assert len({tracks(each).tobytes() for each in loaded}) == 1
    assert decode.load((-sound, 8000)).source.sha256 != loaded[0].source.sha256


def test_progress_of_an_array_rises_to_the_end() -> None:
    seen: list[tuple[str, float, float]] = []
    decode.load((np.zeros(8000 * 60, np.int16), 8000), reporter=Reporter(lambda *call: seen.append(call)))
    assert {(stage, total) for stage, _, total in seen} == {("decode", 60.0)}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert len({done for _, done, _ in seen}) > 3
    assert seen[-1][1] == 60.0


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(0),
        np.zeros((0, 2), np.int16),
        np.zeros((5, 0)),
        np.float32(0.5),
        np.zeros((100, 2, 2)),
        np.zeros((2, 16000)),
        np.zeros(100, np.uint8),
        np.zeros(100, np.bool_),
        np.zeros(100, np.complex64),
        np.array(["a"] * 100),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_an_array_that_is_no_recording(array: np.ndarray) -> None:
    with pytest.raises(InputError) as caught:
        decode.load((array, 16000))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(
        f"<samples>: an array of {array.dtype} of shape {array.shape} is not a recording; "
    )
    assert "(samples,) or (samples, channels)" in message


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30, 1e300])
@pytest.mark.parametrize("channels", ["mix", "split", "auto"])
def test_a_sample_of_an_array_that_is_none(dtype: type, bad: float, channels: Channels) -> None:
    sound = np.zeros((8000 * 75, 2), np.float64)
    sound[8000 * 65 + 4000, 1] = bad
    with np.errstate(over="ignore"):
        array = sound.astype(dtype)
    with pytest.raises(InputError, match=r"^<samples>: the sample at 00:01:05\.5 is (nan|inf|1e\+30); fix: "):
        decode.load((array, 8000), channels=channels)


@pytest.mark.parametrize("rate", [0, -16000, 999, 1_000_001, float("nan"), 2**40])
def test_a_rate_that_no_array_has(rate: int) -> None:
    with pytest.raises(InputError, match=rf"^<samples>: states {rate} samples per second; fix: "):
        decode.load((np.zeros(16000, np.float32), rate))


def test_an_array_of_less_than_a_sample() -> None:
    with pytest.raises(InputError, match=r"^<samples>: less than one sample at 16 kHz; fix: "):
        decode.load((np.zeros(1, np.float32), 96000))


def test_integers_in_an_array_of_floats_are_scaled_down() -> None:
    loaded = decode.load((tones(1.0, SAMPLE_RATE) * 2**15, SAMPLE_RATE))
    assert np.abs(tracks(loaded)).max() == pytest.approx(LEVEL, rel=1e-3)
    assert [warning.split(":")[0] for warning in loaded.warnings] == ["<samples>"]


# --- levels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
def test_float_wav_is_not_silence(tmp_path: Path, subtype: str) -> None:
    path = tmp_path / "float.wav"
    soundfile.write(path, tones(1.0, SAMPLE_RATE), SAMPLE_RATE, subtype=subtype)
    np.testing.assert_allclose(tracks(decode.load(str(path)))[0], tones(1.0, SAMPLE_RATE)[:, 0], atol=1e-7)


@pytest.mark.parametrize(
    ("scale", "bits"), [(2.0**15, 16), (1.5 * 2.0**15, 16), (2.0**23, 24), (2.0**31, 32)]
)
def test_integers_stored_as_floats_are_scaled_down(tmp_path: Path, scale: float, bits: int) -> None:
    path = tmp_path / "loud.wav"
    soundfile.write(path, tones(1.0, SAMPLE_RATE) * scale, SAMPLE_RATE, subtype="FLOAT")
    loaded = decode.load(str(path))
    assert np.abs(tracks(loaded)).max() == pytest.approx(LEVEL * scale / 2 ** (bits - 1), rel=1e-3)
    (warning,) = loaded.warnings
    assert f"{bits}-bit" in warning
    assert "loud.wav" in warning


@pytest.mark.parametrize("peak", [1.0, 2.0, 10.0])
def test_mild_overs_stay(tmp_path: Path, peak: float) -> None:
    path = tmp_path / "hot.wav"
    soundfile.write(path, tones(1.0, SAMPLE_RATE) / LEVEL * peak, SAMPLE_RATE, subtype="FLOAT")
    loaded = decode.load(str(path))
    assert np.abs(tracks(loaded)).max() == pytest.approx(peak, rel=1e-3)
    assert loaded.warnings == ()


@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channels", ["mix", "split"])
def test_not_a_number_is_refused_with_its_time(
    tmp_path: Path, bad: float, subtype: str, channels: Literal["mix", "split"]
) -> None:
    path = tmp_path / "broken.wav"
    sound = np.zeros((8000 * 75, 2))
    sound[8000 * 65 + 4000, 1] = bad
    soundfile.write(path, sound, 8000, subtype=subtype)
    with pytest.raises(InputError, match=r"broken\.wav.* 00:01:05\.5 is (nan|inf); fix: export it again"):
        decode.load(str(path), channels=channels)


def test_absurd_levels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "absurd.wav"
    soundfile.write(path, np.full((8000, 1), 1e30), 8000, subtype="FLOAT")
    assert "is 1e+30; " in refusal(path)
    soundfile.write(path, np.full((8000, 1), 1e300), 8000, subtype="DOUBLE")
    assert "is inf; " in refusal(path)


def test_channels_that_cancel_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "inverted.flac"
    sound = tones(1.0, 8000)
    soundfile.write(path, np.hstack([sound, -sound]), 8000)
    (warning,) = decode.load(str(path)).warnings
    assert "--channels split" in warning
    assert decode.load(str(path), channels="split").warnings == ()
    soundfile.write(path, np.hstack([sound, 0 * sound]), 8000)
    assert decode.load(str(path)).warnings == ()


# --- names and standard input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "two words.wav",
        'it\'s "quoted".wav',
        "📞 звонок.wav",
        "-weird.wav",
        "http:x.wav",
        "%d.wav",
        "a\udcff\udce9.wav",
    ],
)
def test_names_survive(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    soundfile.write("plain.wav", tones(0.5, 8000), 8000)
    try:
        Path("plain.wav").rename(name)
    except OSError:
        pytest.skip(f"the file system takes no name like {name!r}")
    assert decode.load(name).source.path == name
    os.truncate(name, 1000)
    (warning,) = decode.load(name).warnings
    assert warning.isprintable()
    os.truncate(name, 10)
    assert refusal(name).isprintable()


def test_name_with_a_line_break_makes_one_line(tmp_path: Path) -> None:
    assert r"no\nfile.wav" in refusal(tmp_path / "no\nfile.wav")


def stdin_of(content: bytes) -> SimpleNamespace:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    return SimpleNamespace(buffer=Pipe(content), closed=False, isatty=lambda: False)


@pytest.mark.parametrize("name", ["call.wav", "call.m4a"])
def test_standard_input(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    write(path, tones(1.0, 16000), 16000, "aac" if path.suffix == ".m4a" else "pcm_s16le")
    monkeypatch.setattr("sys.stdin", stdin_of(path.read_bytes()))
    loaded = decode.load("-")
    assert loaded.source.path == "-"
    assert loaded.source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    np.testing.assert_array_equal(tracks(loaded), tracks(decode.load(str(path))))


def test_standard_input_without_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", stdin_of(b""))
    assert "standard input: is empty" in refusal("-")
    monkeypatch.setattr("sys.stdin", stdin_of(b"hello\n" * 100))
    assert "standard input: is not in a format" in refusal("-")
    monkeypatch.setattr("sys.stdin", None)
    assert "standard input: is closed" in refusal("-")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(closed=True))
    assert "standard input: is closed" in refusal("-")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(closed=False, isatty=lambda: True))
    assert "terminal" in refusal("-")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_named_pipe(tmp_path: Path) -> None:
    path, pipe = tmp_path / "call.flac", tmp_path / "pipe"
    soundfile.write(path, tones(1.0, 8000), 8000)
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()
    loaded = decode.load(str(pipe))
    writer.join()
    assert loaded.source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    check_tone(loaded, 1.0)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_named_pipe_into_which_nobody_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fifo, "PATIENCE", 0.1)
    os.mkfifo(tmp_path / "pipe")
    why = "pipe: no program has written into this pipe for 0.1 s; fix: start the program that writes into it"
    assert why in refusal(tmp_path / "pipe")
    ours = os.open(tmp_path / "pipe", os.O_RDWR)  # who begins and says no more
    os.write(ours, b"fLaC")
    assert why in refusal(tmp_path / "pipe")
    os.close(ours)


# --- what cannot be read ------------------------------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    message = refusal(tmp_path / "none.wav")
    assert "none.wav: no such file" in message


def test_folder(tmp_path: Path) -> None:
    assert f"{tmp_path}: is a folder" in refusal(tmp_path)


def test_permission_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.wav"
    path.write_bytes(b"RIFF")

    def deny(*_: object, **__: object) -> None:  # a mode of 0 does not keep root out
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(files, "at_once", deny)
    assert "secret.wav: could not be read (permission denied)" in refusal(path)


def test_failing_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files, "at_once", fail)
    assert "call.wav: could not be read (Input/output error)" in refusal(tmp_path / "call.wav")


def test_device() -> None:
    assert f"{os.devnull}: is a device" in refusal(os.devnull)


def test_zero_byte_in_the_name() -> None:
    assert r"a\x00b.wav: could not be read" in refusal("a\0b.wav")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.wav", b"", "is empty"),
        ("text.wav", b"It was a dark and stormy night.\n" * 200, "not in a format"),
        ("text.mp3", b"It was a dark and stormy night.\n" * 200, "not in a format"),
        ("text.txt", b"It was a dark and stormy night.\n" * 200, "not in a format"),
        ("table.csv", b"start,end,text\n0,1,hello\n" * 50, "not in a format"),
        ("noise.bin", np.random.default_rng(3).bytes(50_000), "not in a format"),
        ("noise.mp3", np.random.default_rng(4).bytes(300_000), "no "),
        ("zeros.wav", bytes(50_000), "not in a format"),
        (
            "list.m3u8",
            b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nt.ts\n#EXT-X-ENDLIST\n",
            "not in a format",
        ),
        ("list.ffconcat", b"ffconcat version 1.0\nfile t.wav\n", "not in a format"),
    ],
)
def test_not_a_recording(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    write(tmp_path / "t.ts", tones(0.5, 44100), 44100, "aac")  # which a playlist must not reach
    soundfile.write(tmp_path / "t.wav", tones(0.5, 8000), 8000)
    path = tmp_path / name
    path.write_bytes(content)
    message = refusal(path)
    assert name in message
    assert said in message


SCRIPTS = {
    "a thousand years.wav": b"-SE\n\nt: 100+5/50\noff: -\nNOW t\n+9999999:00:00 off\n",
    "sbagen.mp3": b"## SBaGen\na: 200+10/80\nb: -\n00:00 a\n00:10 b\n",
    "hls.m3u8": b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n/etc/hostname\n#EXT-X-ENDLIST\n",
    "concat.wav": b"ffconcat version 1.0\nfile call.wav\n",
    "dash.mp4": b"<?xml version='1.0'?><MPD xmlns='urn:mpeg:dash:schema:mpd:2011' type='static'></MPD>",
    "picture.wav": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0",
    "subtitles.wav": b"1\n00:00:01,000 --> 999:00:02,000\nhello\n\n",
    "meta.wav": b";FFMETADATA1\ntitle=x\n[CHAPTER]\nSTART=0\nEND=99999999999\n",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_only_describes_sound_is_no_recording(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(SCRIPTS[name])
    assert "is not in a format of recordings" in refusal(tmp_path / name)


def test_more_sound_than_the_bytes_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of digital silence, of 14 bytes each."""
    path = tmp_path / "silence.flac"
    soundfile.write(path, np.zeros(16000 * 60), 16000)
    allowed = path.stat().st_size / ffmpeg._LEAST
    monkeypatch.setattr(ffmpeg, "_FREE", 61.0 - allowed)
    assert decode.load(str(path)).source.duration == 60
    monkeypatch.setattr(ffmpeg, "_FREE", 50.0 - allowed)
    assert "silence.flac: claims more than 00:00:50 of sound" in refusal(path)


def test_video_without_sound(tmp_path: Path) -> None:
    path = write(tmp_path / "silent.mp4", None, 44100, "aac", video=True)
    message = refusal(path)
    assert "silent.mp4: has no sound track" in message


@pytest.mark.parametrize("name", ["nothing.wav", "nothing.aiff", "nothing.caf"])
def test_no_samples(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    soundfile.write(path, np.zeros((0, 1), np.float32), 16000)
    message = refusal(path)
    assert name in message
    assert "0 samples" in message


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_a_few_samples(tmp_path: Path, rate: int) -> None:
    path = tmp_path / "click.wav"
    for count in (1, 2, 3, 10, 100):
        soundfile.write(path, np.full((count, 2), 0.1), rate)
        loaded = attempt(path, "split")
        if isinstance(loaded, str):  # less than a sample is left at 16 kHz
            assert "0 samples" in loaded
            assert count < 3
            continue
        assert tracks(loaded).shape[0] == 2
        assert tracks(loaded).shape[1] == pytest.approx(count * SAMPLE_RATE / rate, abs=1)


def test_m4a_without_its_index(tmp_path: Path) -> None:
    path = write(tmp_path / "call.m4a", noisy(3.0, 16000), 16000, "aac")
    os.truncate(path, Path(path).stat().st_size // 2)
    assert "call.m4a: is cut short" in refusal(path)


def test_unknown_codec(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "call.mkv", tones(1.0, 48000), 48000, "libopus"))
    path.write_bytes(path.read_bytes().replace(b"A_OPUS", b"A_ZZZZ"))
    assert "call.mkv" in refusal(path)


@pytest.mark.parametrize("rate", [1, 100, 4_000_000_000])
def test_impossible_sample_rate(tmp_path: Path, rate: int) -> None:
    path = tmp_path / "slow.wav"
    soundfile.write(path, tones(0.5, 8000), 8000)
    content = bytearray(path.read_bytes())
    content[24:28] = struct.pack("<I", rate)
    path.write_bytes(content)
    assert "slow.wav" in refusal(path)


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name, codec in (("call.mp3", "libmp3lame"), ("call.mka", "flac"), ("call.mp4", "aac")):
        path = Path(write(tmp_path / name, noisy(2.0, 16000), 16000, codec))
        content = bytearray(path.read_bytes())
        content[len(content) // 2 : len(content) // 2 + 500] = bytes(500)
        path.write_bytes(content[:-100])
        decode.load(str(path))
    path = tmp_path / "text.mp3"
    path.write_bytes(b"no sound\n" * 1000)
    refusal(path)
    assert capfd.readouterr() == ("", "")


# --- cut short, lying, damaged ------------------------------------------------------------------------------

SECONDS = 6.0


def make(folder: Path, kind: str) -> Path:
    """A whole recording of SECONDS, of noise and a tone."""
    path = folder / f"call.{kind.split('-')[-1]}"
    match kind:
        case "wav" | "flac" | "ogg" | "mp3" | "aiff":
            soundfile.write(path, noisy(SECONDS, 16000), 16000)
        case "vbr-mp3":
            sound = (
                noisy(SECONDS, 44100) * np.linspace(0, 1, round(SECONDS * 44100), dtype=np.float32)[:, None]
            )
            soundfile.write(path, sound, 44100, bitrate_mode="VARIABLE", compression_level=0.2)
        case "bare-mp3":
            write(path, noisy(SECONDS, 44100), 44100, "libmp3lame", write_xing="0")
        case "opus":
            soundfile.write(path, noisy(SECONDS, 48000), 48000, format="OGG", subtype="OPUS")
        case "streamed-m4a":
            write(path, noisy(SECONDS, 44100), 44100, "aac", movflags="faststart")
        case "m4a":
            write(path, noisy(SECONDS, 44100), 44100, "aac")
        case _:
            write(path, noisy(SECONDS, 48000), 48000, "libopus")
    return path


TELLING = ["wav", "aiff", "flac", "ogg", "opus", "mp3", "vbr-mp3", "streamed-m4a", "webm", "mkv"]
"""Kinds in which a lost end shows."""
SILENT = ["m4a", "bare-mp3"]
"""Without its end the first cannot be read at all; the second states no length that could be missed."""


@pytest.mark.parametrize("kind", [*TELLING, *SILENT])
def test_whole_files_do_not_warn(tmp_path: Path, kind: str) -> None:
    loaded = decode.load(str(make(tmp_path, kind)))
    assert loaded.warnings == ()
    assert loaded.source.duration == pytest.approx(SECONDS, abs=0.06)


@pytest.mark.parametrize("kind", [*TELLING, *SILENT])
def test_cut_short(tmp_path: Path, kind: str) -> None:
    path = make(tmp_path, kind)
    content = path.read_bytes()
    whole = tracks(decode.load(str(path)))[0]
    held = 0
    for share in (0.0001, 0.001, 0.01, 0.03, 0.1, 0.25, 0.37, 0.5, 0.63, 0.75, 0.9, 0.97):
        path.write_bytes(content[: max(1, int(share * len(content)))])
        loaded = attempt(path)
        if isinstance(loaded, str):
            assert path.name in loaded
            assert "\n" not in loaded
            assert share < 0.3 or kind == "m4a", loaded
            continue
        samples = tracks(loaded)[0]
        # What there is, and nothing that is not: no silence is put for what was lost.
        assert loaded.source.duration <= share * SECONDS + 0.5
        assert held <= len(samples) <= len(whole)
        held = len(samples)
        exact = len(samples) - 4000  # a decoder may fade out what it has half of
        np.testing.assert_allclose(samples[: max(exact, 0)], whole[: max(exact, 0)], atol=0.02)
        assert np.count_nonzero(samples[-4000:]) > 0.9 * len(samples[-4000:])
        if kind in TELLING:
            assert len(loaded.warnings) == 1, share
            assert f"{path.name}: ends early" in loaded.warnings[0]
            assert "\n" not in loaded.warnings[0]
    assert held > 0.8 * len(whole) or kind == "m4a"


def test_warning_says_what_was_promised(tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    soundfile.write(path, np.zeros((8000 * 700, 1), np.float32), 8000)
    os.truncate(path, 44 + 2 * 8000 * 312)
    (warning,) = decode.load(str(path)).warnings
    promised = "the header promises 00:11:40.0, the file holds 00:05:12.0"
    assert warning == f"{path}: ends early ({promised}); the sound up to there was used"


@pytest.mark.parametrize(
    ("riff", "data"),
    [(0xFFFFFFFF, 0xFFFFFFFF), (0, 0), (36, 0), (0x7FFFF024, 0x7FFFF000), (0x80000024, 0x80000000)],
)
def test_wav_written_to_a_pipe_is_whole(tmp_path: Path, riff: int, data: int) -> None:
    path = tmp_path / "piped.wav"
    soundfile.write(path, tones(2.0, 8000), 8000)
    content = bytearray(path.read_bytes())
    content[4:8], content[40:44] = struct.pack("<I", riff), struct.pack("<I", data)
    path.write_bytes(content)
    check_tone(decode.load(str(path)), 2.0)


def test_wav_from_ffmpegs_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe:
        name = "pipe.wav"

        def __init__(self) -> None:
            self.content = b""

        def write(self, data: bytes) -> int:
            self.content += bytes(data)
            return len(data)

    pipe = Pipe()
    with av.open(pipe, "w", format="wav") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        packed = (tones(2.0, 8000).T * 32767).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(packed), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
    assert pipe.content[4:8] == b"\xff\xff\xff\xff"
    monkeypatch.setattr("sys.stdin", stdin_of(pipe.content))
    check_tone(decode.load("-"), 2.0)


@pytest.mark.parametrize(
    "kind", ["flac", "ogg", "opus", "mp3", "vbr-mp3", "bare-mp3", "streamed-m4a", "m4a", "webm"]
)
def test_damage_in_the_middle(tmp_path: Path, kind: str) -> None:
    path = make(tmp_path, kind)
    content = bytearray(path.read_bytes())
    length = 20_000 if kind == "flac" else 4_000  # in FLAC, more than one frame of 4096 samples
    middle = len(content) // 2
    content[middle : middle + length] = np.random.default_rng(5).bytes(length)
    path.write_bytes(content)
    loaded = decode.load(str(path))
    assert loaded.warnings
    assert all(path.name in warning and "\n" not in warning for warning in loaded.warnings)
    assert np.isfinite(tracks(loaded)).all()
    assert loaded.source.duration < SECONDS + 0.5


def test_gap_in_the_time_stamps_becomes_silence(tmp_path: Path) -> None:
    """As browsers record a call: no packets while the microphone is off."""
    sound = tones(3.0, 48000)
    path = tmp_path / "call.webm"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libopus", rate=48000, layout="mono")
        for start in range(0, len(sound), 960):
            if 48000 <= start < 96000:
                continue
            packed = np.ascontiguousarray(sound[start : start + 960].reshape(1, -1))
            frame = av.AudioFrame.from_ndarray(packed, format="flt", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 48000, start, Fraction(1, 48000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    loaded = decode.load(str(path))
    assert loaded.source.duration == pytest.approx(3.0, abs=0.05)
    assert np.abs(tracks(loaded)[0, 17600:30400]).max() < 0.01
    for part in (tracks(loaded)[0, :16000], tracks(loaded)[0, 32000:48000]):
        assert pitch_and_level(part)[1] == pytest.approx(LEVEL, rel=0.05)
    (warning,) = loaded.warnings
    assert "call.webm: lacks 1.0 s of sound, first at 00:00:01.0" in warning


def with_gaps(path: Path, rate: int, gap: float, count: int = 1) -> int:
    """`count` + 1 times a tone of 1024 samples in Matroska, with gaps of so many seconds; all samples."""
    sound = (tones(1024 / rate, rate).T * 32767).astype(np.int16)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=rate, layout="mono")
        for number in range(count + 1):
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(sound), format="s16", layout="mono")
            frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
            frame.pts = number * (1024 + round(gap * rate))
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return 1024 * (count + 1)


def test_silence_in_a_gap_is_not_resampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of it at 1 MHz took a minute and a half."""
    heard = with_gaps(tmp_path / "gap.mka", 192_000, 600.0)
    fed = []

    class Counting(decode.soxr.ResampleStream):  # type: ignore[misc,name-defined]
        def resample_chunk(self, block: Floats, last: bool = False) -> Floats:
            fed.append(len(block))
            return super().resample_chunk(block, last)  # type: ignore[no-any-return]

    monkeypatch.setattr(decode.soxr, "ResampleStream", Counting)
    loaded = decode.load(str(tmp_path / "gap.mka"))
    assert sum(fed) == heard
    assert loaded.source.duration == pytest.approx(600 + heard / 192_000, abs=2e-3)


def test_many_gaps_do_not_shift_what_follows(tmp_path: Path) -> None:
    """Each stretch of 1024 samples at 44.1 kHz is 371.5 samples of the result."""
    heard = with_gaps(tmp_path / "gaps.mka", 44_100, 0.5, count=400)
    loaded = decode.load(str(tmp_path / "gaps.mka"))
    assert loaded.source.duration == pytest.approx(400 * 0.5 + heard / 44_100, abs=2e-3)


def test_later_start_than_the_pictures_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "late.mkv"
    with av.open(str(path), "w") as container:
        picture = container.add_stream("mpeg4", rate=10)
        picture.width, picture.height, picture.pix_fmt = 64, 64, "yuv420p"
        stream = container.add_stream("flac", rate=16000, layout="mono")
        for i in range(30):
            image = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 8 * i, np.uint8), format="rgb24")
            image.pts, image.time_base = i, Fraction(1, 10)
            container.mux(picture.encode(image))
        container.mux(picture.encode(None))
        packed = (tones(2.0, 16000).T * 32767).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(packed), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 16000, 16000, Fraction(1, 16000)
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    loaded = decode.load(str(path))
    assert loaded.source.duration == pytest.approx(3.0, abs=0.01)
    assert not tracks(loaded)[0, :15900].any()
    assert pitch_and_level(tracks(loaded)[0, 16000:]) == pytest.approx((PITCHES[0], LEVEL), rel=0.01)


def test_only_one_of_several_tracks_is_used_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "two.mka"
    with av.open(str(path), "w") as container:
        streams = [container.add_stream("flac", rate=16000, layout="mono") for _ in range(2)]
        for stream in streams:
            packed = (tones(1.0, 16000).T * 32767).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(packed), format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 16000, 0, Fraction(1, 16000)
            container.mux(stream.encode(frame))
    (warning,) = decode.load(str(path)).warnings
    assert "two.mka: has 2 sound tracks, and only number 1 was used" in warning


def test_chained_ogg_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "radio.ogg"
    soundfile.write(path, tones(2.0, 16000), 16000)
    path.write_bytes(2 * path.read_bytes())
    check_tone(decode.load(str(path)), 4.0, slack=0.05)


def test_joined_mp3_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "joined.mp3"
    soundfile.write(path, tones(2.0, 16000), 16000)
    path.write_bytes(2 * path.read_bytes())
    loaded = decode.load(str(path))
    assert loaded.source.duration == pytest.approx(4.0, abs=0.2)
    assert loaded.warnings == ()


def test_tags_in_any_encoding(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "call.mp3", tones(1.0, 16000), 16000, "libmp3lame"))
    body = b"TIT2" + struct.pack(">I", 6) + b"\0\0" + b"\x03\xff\xfe\xe9\xe8\xe7"
    size = bytes([0, 0, len(body) >> 7, len(body) & 127])
    path.write_bytes(b"ID3\x03\0\0" + size + body + path.read_bytes())
    assert decode.load(str(path)).source.duration == pytest.approx(1.0, abs=0.1)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    return {kind: make(folder, kind).read_bytes() for kind in [*TELLING, *SILENT]}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_damage_gives_sound_or_an_input_error(
    recordings: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(sorted(recordings)))
    content = bytearray(recordings[kind])
    # Formats are most easily confused in their first bytes.
    places = st.one_of(st.integers(0, 600), st.integers(0, len(content) - 1))
    for place in data.draw(st.lists(places, max_size=20)):
        content[place] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(1, len(content)))]
    path = tmp_path_factory.getbasetemp() / f"damaged.{kind.split('-')[-1]}"
    path.write_bytes(content)
    loaded = attempt(path, data.draw(st.sampled_from(["mix", "split"])))
    if isinstance(loaded, str):
        assert path.name in loaded
        assert "\n" not in loaded
        return
    assert np.isfinite(tracks(loaded)).all()
    assert tracks(loaded).shape[1] > 0


# --- recordings ---------------------------------------------------------------------------------------------


def test_the_call_sounds_where_its_reference_says() -> None:
    loaded = decode.load(str(DATA / "call.flac"))
    assert loaded.warnings == ()
    assert 60 < loaded.source.duration < 75
    frames = tracks(loaded)[0, : tracks(loaded).shape[1] // 160 * 160].reshape(-1, 160)  # of 10 ms
    level = 10 * np.log10(np.mean(frames**2, axis=1) + 1e-12)
    talking = np.zeros((2, len(level)), bool)
    for line in (DATA / "call.rttm").read_text().splitlines():
        _, _, _, start, duration, _, _, speaker, *_ = line.split()
        first = round(float(start) * 100)
        talking[["agent", "caller"].index(speaker), first : first + round(float(duration) * 100)] = True
    assert np.median(level[~talking.any(axis=0)]) < -58
    assert np.median(level[talking.any(axis=0)]) > -36
    assert np.percentile(level[~talking.any(axis=0)], 95) < np.percentile(level[talking.any(axis=0)], 25)
    assert talking.all(axis=0).sum() > 200  # 2 s of overlap


@pytest.mark.skipif(not AWKWARD.is_dir(), reason=f"no recordings in {AWKWARD}")
@pytest.mark.parametrize("path", sorted(AWKWARD.glob("*.flac")), ids=lambda path: path.stem)
def test_awkward_recordings(path: Path) -> None:
    info = soundfile.info(path)
    split = decode.load(str(path), channels="split")
    assert tracks(split).shape[0] == split.source.channels == info.channels
    assert split.source.duration == pytest.approx(info.duration, abs=1e-3)
    expected, _ = soundfile.read(path, dtype="float32", always_2d=True)
    if info.samplerate == SAMPLE_RATE:
        np.testing.assert_array_equal(tracks(split), expected.T)
    assert split.warnings == ()


def test_progress_of_a_recording_that_does_not_state_its_length(tmp_path):
    """By the bytes that were read; it would be 100 % from the beginning otherwise."""
    noise = np.random.default_rng(0).normal(0, 0.1, 120 * 16000).astype(np.float32)
    path = tmp_path / "live.flac"
    soundfile.write(path, noise, 16000)
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0  # the number of samples in STREAMINFO, 36 bits: 0 is "unknown"
    content[22:26] = bytes(4)
    path.write_bytes(content)
    shares: list[float] = []
    decode.load(str(path), reporter=Reporter(lambda _, done, total: shares.append(done / total)))
    assert len(shares) > 10
    assert shares[0] < 0.2
    assert np.diff(shares).min() > -1e-9
    assert shares[-1] > 0.95


PEAK = r"""
import re, sys
from pathlib import Path
from witness.audio import decode
from witness.errors import InputError

try:
    loaded = decode.load(sys.argv[1])
    print(loaded.source.duration, *loaded.warnings)
except InputError as error:
    print(error)
print(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts memory in KiB and makes sparse files")
@pytest.mark.parametrize(
    ("name", "codec", "answer"),
    [
        ("zeros.mp3", "", "has no sound track"),
        ("zeros.mp2", "", "has no sound track"),
        ("zeros.ac3", "", "has no sound track"),
        ("sound.mp3", "libmp3lame", "no sound follow"),
        ("sound.flac", "flac", "the sound up to there was used"),
        ("sound.wav", "pcm_s16le", "no sound follow"),
    ],
)
def test_gigabytes_of_zeros_take_little_memory_and_time(
    tmp_path: Path, name: str, codec: str, answer: str
) -> None:
    path = tmp_path / name
    if codec:
        write(path, tones(5, 44100), 44100, codec)
    path.touch()
    os.truncate(path, 1 << 31)
    child = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, timeout=100, check=True
    )
    said, peak = child.stdout.decode().splitlines()
    assert answer in said
    assert not codec or said.startswith("5.")
    assert int(peak) << 10 < 330e6
