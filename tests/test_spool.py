"""Sound in a temporary file: the same samples as in an array, and one clear line if the disk fails."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import soundfile

from conftest import CALL
from witness.audio import decode, spool
from witness.audio.spool import Spool
from witness.errors import OutputError
from witness.recognition.chunking import Loudness

FILES = Path("/proc/self/fd")  # that are open


@pytest.fixture
def noise():
    return np.random.default_rng(0).normal(0, 0.1, 100_003).astype(np.float32)


def spooled(samples: np.ndarray, *sizes: int) -> Spool:
    """The samples, appended in parts of those sizes and the rest."""
    sound = Spool()
    for part in np.split(samples, np.cumsum(sizes)):
        sound.append(part)
    return sound


def test_slices_are_those_of_an_array(noise):
    sound = spooled(noise, 1, 0, 4095, 77_777)
    assert len(sound) == len(noise)
    edges = (None, 0, 1, 4095, 4096, 99_999, len(noise), len(noise) + 5, 10**12, -1, -4097)
    for start in edges:
        for stop in edges:
            part = sound[start:stop]
            assert part.dtype == np.float32
            assert np.array_equal(part, noise[start:stop])


def test_what_is_written_over_is_what_is_read(noise):
    sound = spooled(noise, 50_000)
    sound[49_990:50_011] = -noise[49_990:50_011]
    sound[0:0] = noise[:0]
    expected = noise.copy()
    expected[49_990:50_011] *= -1
    assert np.array_equal(sound[:], expected)
    with pytest.raises(ValueError, match="fit"):
        sound[0:3] = noise[:2]


@pytest.mark.parametrize("step", [2, -1, -2])
def test_a_step_is_refused(noise, step):
    sound = spooled(noise)
    with pytest.raises(ValueError, match=f"a step of {step}"):
        sound[::step]
    with pytest.raises(ValueError, match=f"a step of {step}"):
        sound[::step] = noise[::step]
    assert np.array_equal(sound[::1], noise)


def test_what_is_not_contiguous_is_taken_too(noise):
    sound = Spool()
    sound.append(noise[::2])
    sound.append(noise.reshape(-1, 1)[:, 0][::-1])
    assert np.array_equal(sound[:], np.concatenate([noise[::2], noise[::-1]]))


def test_nothing_at_all():
    sound = Spool()
    assert len(sound) == 0
    assert sound[:].shape == sound[3:9].shape == (0,)
    assert list(spool.pieces(sound)) == []


def test_pieces_of_an_array_and_of_a_file(noise):
    for samples in (noise, spooled(noise)):
        parts = list(spool.pieces(samples, 33_333))
        assert [start for start, _ in parts] == [0, 33_333, 66_666, 99_999]
        assert np.array_equal(np.concatenate([part for _, part in parts]), noise)


def test_many_threads_read_what_they_asked_for(noise):
    sound, wrong = spooled(noise), []

    def read(seed: int) -> None:
        dice = np.random.default_rng(seed)
        for _ in range(300):
            start, stop = np.sort(dice.integers(0, len(noise), 2))
            if not np.array_equal(sound[start:stop], noise[start:stop]):
                wrong.append((start, stop))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_whisper_hears_the_same_from_a_file(noise):
    noise[20_000:60_000] = 0
    array, file = Loudness.of(noise), Loudness.of(spooled(noise, 12_345))
    assert np.array_equal(array.sounding, file.sounding)
    assert array.energy.tobytes() == file.energy.tobytes()


def test_each_channel_is_a_separate_track(tmp_path):
    sound = np.random.default_rng(1).integers(-9000, 9000, (16_001, 6)).astype(np.int16)
    soundfile.write(tmp_path / "5.1.wav", sound, 16_000)
    loaded = decode.load(str(tmp_path / "5.1.wav"), channels="split")
    assert [len(track) for track in loaded.samples] == [16_001] * 6
    assert loaded.source.duration == 16_001 / 16_000
    for track, expected in zip(loaded.samples, sound.T, strict=True):
        assert np.array_equal(track[15_998:], expected[15_998:] / np.float32(32768))


def test_the_file_has_no_name_and_goes_with_its_samples(tmp_path, monkeypatch, noise):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert spool.folder() == str(tmp_path)
    open_before = len(list(FILES.iterdir())) if FILES.exists() else None
    sound = spooled(noise)
    assert list(tmp_path.iterdir()) == []
    del sound
    if open_before is not None:
        assert len(list(FILES.iterdir())) == open_before


def test_where_it_is_unless_somebody_says(monkeypatch):
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", "/elsewhere")
    expected = spool.LARGE if os.access(spool.LARGE, os.W_OK) else "/elsewhere"
    assert spool.folder() == expected
    monkeypatch.setattr(spool, "LARGE", "/there/is/no/such/folder")
    assert spool.folder() == "/elsewhere"


def test_no_folder_at_all(monkeypatch):
    monkeypatch.setattr(spool, "folder", lambda: "/there/is/no/such/folder")
    with pytest.raises(OutputError, match=r"such/folder: cannot hold the decoded sound \(No such file"):
        Spool()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(noise, monkeypatch):
    sound = spooled(noise)
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(sound, "_file", full)
        with pytest.raises(OutputError, match=r"No space left on device.*230 MB per hour.*TMPDIR"):
            sound.append(noise)
    assert len(sound) == len(noise)


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource")
def test_a_disk_that_fills_while_decoding_is_one_line():
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
        "from witness.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "run", str(CALL), "--models", "builtin", "--offline"]
    done = subprocess.run([*command, "--whisper", "none"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert ": cannot hold the decoded sound (File too large)" in line
