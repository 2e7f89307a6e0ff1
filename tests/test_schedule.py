"""Voices are computed while later windows are segmented; whatever comes first, the result is the same bytes.

And of a recording of many hours nothing is held that grows with it but the results.
"""

import random
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import soundfile

from conftest import CALL
from recordings import make
from witness import Options, Runtime, pipeline
from witness.diarization import embedding, reconstruction, segmentation
from witness.diarization.stream import Networks, stream
from witness.models.catalogue import BUILTIN_FOLDER
from witness.models.session import on_cores
from witness.schema import FRAME_SAMPLES, FRAMES, Map, ModelFile, Segmentation, map_serially

RATE = 16_000


def model_file(name: str) -> ModelFile:
    path = BUILTIN_FOLDER / f"{name}.onnx"
    return ModelFile(path.name, str(path), "")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WITNESS_CACHE", str(tmp_path_factory.mktemp("cache")))
        return segmentation.load(model_file("segmentation")), embedding.load(model_file("embedding"))


@pytest.fixture(scope="module")
def samples():
    """People talk, nobody does for a while, and they go on: two blocks of the voice model."""
    call, rate = soundfile.read(CALL, dtype="float32")
    call = np.repeat(call[: 13 * rate], RATE // rate)
    return np.concatenate([call, np.zeros(15 * RATE + 123, np.float32), call[::-1]])


def one_voice(_: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """A segmentation model that always hears the first speaker, at no cost."""
    scores = np.zeros((len(starts), FRAMES, len(segmentation.POWERSET)), np.float32)
    scores[..., 1] = 1
    return scores


def loud(sound: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """A segmentation model that hears the first speaker where it is loud, at hardly any cost."""
    scores = one_voice(sound, starts)
    length = FRAMES * FRAME_SAMPLES
    for window, start in zip(scores, starts, strict=True):
        level = np.abs(sound[start : start + length]).reshape(FRAMES, -1).mean(axis=1)
        window[:, 0] = 2 * (level < 0.001)
    return scores


def features(feats: np.ndarray) -> np.ndarray:
    """The trunk of a voice model that costs nothing."""
    return np.ascontiguousarray(feats[:, ::8].transpose(0, 2, 1))


def vector(pooled: np.ndarray) -> np.ndarray:
    """Its head."""
    return pooled[:, :20].astype(np.float32)


Heard = tuple[Segmentation, bytes]


def heard(samples, models, *, segmenting: Map = map_serially, voicing: Map = map_serially) -> Heard:
    """Both stages at the same time."""
    track = stream(samples, Networks(*models, voice_mapper=voicing), mapper=segmenting)
    return track.windows, track.vectors.tobytes()


def disorderly(seed: int, ahead: int, threads: int) -> Map:
    """A map that runs what it has in hand in a random order, with delays, some long before it is due."""
    dice = random.Random(seed)

    def delayed(function: Callable, item: object) -> object:
        time.sleep(dice.choice((0, 0, 0, 0.03)))
        return function(item)

    def mapped(function, items, /):
        with ThreadPoolExecutor(threads) as pool:
            items, waiting = iter(items), deque()
            while True:
                new = [item for _, item in zip(range(dice.randint(1, ahead)), items, strict=False)]
                places = dice.sample(range(len(new)), len(new))
                started = {place: pool.submit(delayed, function, new[place]) for place in places}
                waiting.extend(started[place] for place in range(len(new)))
                if not waiting:
                    return
                while waiting and (not new or dice.random() < 0.7):
                    yield waiting.popleft().result()

    return mapped


def apart(samples, models) -> Heard:
    """One after the other: all windows, then all voices."""
    segmenter, voice = models
    blocks = []

    def noted(trunk: Callable, feats: np.ndarray) -> np.ndarray:
        blocks.append(feats.shape[1])
        return trunk(feats)

    voice = replace(voice, trunk=partial(noted, voice.trunk), block_trunk=partial(noted, voice.block_trunk))
    windows = Segmentation.joined(segmentation.stream(samples, segmenter))
    vectors = embedding.embed(samples, [windows], voice)
    assert len(blocks) == 2
    assert sum(blocks) < 3500  # frames of the 4100 that the recording has: not the pause
    return windows, vectors.tobytes()


CHEAP = loud, embedding.VoiceModel(features, vector, features)
"""For what depends on the schedule alone."""


@pytest.fixture(scope="module")
def expected(samples, models):
    return apart(samples, models)


@pytest.fixture(scope="module")
def cheaply(samples):
    return apart(samples, CHEAP)


def same(track: Heard, expected: Heard) -> bool:
    windows, vectors = track
    return (
        np.array_equal(windows.active, expected[0].active)
        and np.array_equal(windows.starts, expected[0].starts)
        and vectors == expected[1]
    )


@pytest.mark.slow
def test_one_pool_for_both_of_any_size(samples, models, expected, cheaply):
    with on_cores(5) as both:
        assert same(heard(samples, models, segmenting=both, voicing=both), expected)
    for threads in (1, 2, 3):
        with on_cores(threads) as both:
            assert same(heard(samples, CHEAP, segmenting=both, voicing=both), cheaply)


def test_the_voices_elsewhere_as_on_a_gpu(samples, models, expected):
    with on_cores(2) as cores, on_cores(1) as waiting:
        assert same(heard(samples, models, segmenting=cores, voicing=waiting), expected)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_first(samples, cheaply, seed):
    one, other = (disorderly(dice, 1 + abs(dice) % 4, 1 + abs(dice) % 3) for dice in (seed, ~seed))
    assert same(heard(samples, CHEAP, segmenting=one, voicing=other), cheaply)


def test_everything_at_once_and_one_by_one(samples, cheaply):
    assert same(heard(samples, CHEAP), cheaply)

    def at_once(function, items, /):
        return iter(list(map(function, list(items))))

    assert same(heard(samples, CHEAP, segmenting=at_once, voicing=at_once), cheaply)


def test_blocks_run_while_later_windows_are_segmented():
    order = []

    def noted(name: str, function: Callable, *given: object) -> object:
        order.append(name)
        return function(*given)

    trunk = partial(noted, "block", features)
    voice = embedding.VoiceModel(trunk, vector, trunk)
    heard(np.full(90 * RATE, 0.1, np.float32), (partial(noted, "window", one_voice), voice))
    first, last = order.index("block"), len(order) - 1 - order[::-1].index("window")
    assert order[:first].count("window") < order.count("window") / 2
    assert order[:last].count("block") >= 1


class Hum:
    """Hours of sound that nobody stores."""

    def __init__(self, hours: float) -> None:
        self.length, self.longest = round(hours * 3600 * RATE), 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> np.ndarray:
        start, stop, _ = part.indices(self.length)
        self.longest = max(self.longest, stop - start)
        return (np.arange(start, stop) % 160 / 1600).astype(np.float32)


def peak(work: Callable[[], object]) -> tuple[object, float]:
    """What it gives, and the most megabytes that it held."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_four_hours_are_never_in_memory():
    hum = Hum(4)  # 922 MB as an array

    def windows() -> Iterator[Segmentation]:
        """Somebody speaks for two minutes of every hour."""
        for start in range(0, 4 * 3600 - 9, 2):
            active = np.zeros((1, 589, 3), np.bool_)
            active[0, :, 0] = start % 3600 < 120
            yield Segmentation(active, np.array([start * RATE]))

    voice = embedding.VoiceModel(features, vector, features)
    with on_cores(2) as both:
        vectors, held = peak(lambda: embedding.embed(hum, windows(), voice, mapper=both))
    spoken = np.isfinite(vectors[:, 0]).all(axis=1)
    assert spoken.sum() == 4 * 60
    assert not np.isfinite(vectors[:, 1:]).any()
    # Every voice is the hum's, the one after three hours too.
    assert np.allclose(vectors[1800 + 5, 0], vectors[3 * 1800 + 5, 0], atol=1e-3)
    assert hum.longest < 120 * RATE
    assert held < 60, f"{held:.0f} MB"


def test_segmentation_reads_a_window_at_a_time():
    hum = Hum(0.05)
    for piece in segmentation.stream(hum, one_voice):
        assert len(piece.active) < 20
    assert hum.longest < 60 * RATE


@pytest.mark.slow
def test_the_turns_of_a_long_meeting_of_many_take_three_bytes_a_frame_and_speaker():
    hours, people = 2, 40
    count = hours * 3600 - 9
    dice = np.random.default_rng(0)
    windows = Segmentation.regular(np.zeros((count, 589, 3), np.bool_))
    windows.active[:, 100:500, 0] = True
    labels = np.full((count, 3), -1, np.intp)
    labels[:, 0] = np.repeat(dice.integers(0, people, count // 10 + 1), 10)[:count]
    diarization, held = peak(lambda: reconstruction.reconstruct(windows, labels))
    frames, speakers = diarization.active.shape
    assert speakers == people
    assert diarization.evidence[:1000].shape == (1000, people)
    # Votes and activity, a byte each; numbers of each frame; and what a piece of it takes meanwhile.
    assert held * 1e6 < frames * (2 * speakers + 30) + reconstruction.ROWS * speakers * 30
    alone, held = peak(diarization.exclusive)
    assert alone.shape == (frames,)
    assert held * 1e6 < frames * 9 + reconstruction.ROWS * speakers * 30


def test_the_models_of_a_long_recording_make_room_and_come_back(tmp_path, monkeypatch):
    (short,) = make(tmp_path, 1, seconds=6)
    engine = pipeline.Engine(Options(models="builtin", whisper="none", offline=True), Runtime(device="cpu"))
    usual = engine.transcribe(str(short))
    assert "segmenter" in engine.__dict__
    monkeypatch.setattr(pipeline, "LONG", 1.0)
    long = engine.transcribe(str(short))
    assert not {"segmenter", "voice"} & set(engine.__dict__)
    assert engine.transcribe(str(short)).turns == long.turns == usual.turns
