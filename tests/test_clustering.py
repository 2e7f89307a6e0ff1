import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from witness.clustering import NOBODY, SpeakerBounds, adaptive_threshold, cluster
from witness.errors import UsageError

PYANNOTE = {"method": "centroid", "threshold": 0.7045654963945799}


def vectors_of(speakers: list[list[int]], noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Windows of three local speakers, each the number of a voice or -1, with two clean seconds each."""
    rng = np.random.default_rng(seed)
    voices = np.eye(64)[:40] * 5
    vectors = np.full((len(speakers), 3, 64), np.nan, np.float32)
    active = np.zeros((len(speakers), 589, 3), np.bool_)
    for window, names in enumerate(speakers):
        for local, name in enumerate(names):
            if name >= 0:
                vectors[window, local] = voices[name] + rng.normal(0, noise, 64)
                active[window, local * 130 : local * 130 + 125, local] = True
    return vectors, active


def run(speakers, bounds=SpeakerBounds(), noise=0.1, duration=60.0, **kwargs):
    vectors, active = vectors_of(speakers, noise)
    return cluster(vectors, active, duration=duration, bounds=bounds, **(PYANNOTE | kwargs))


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return len(set(zip(a.ravel(), b.ravel(), strict=True))) == len(set(a.ravel())) == len(set(b.ravel()))


@pytest.mark.parametrize("method", ["average", "centroid"])
def test_each_voice_is_one_speaker(method):
    truth = np.array([[0, 1, -1]] * 20 + [[2, 0, 1]] * 20 + [[1, -1, 2]] * 20)
    labels = run(truth.tolist(), method=method)
    assert same_partition(labels, truth)
    assert set(labels.ravel()) == {-1, 0, 1, 2}


def test_golden_partition(golden):
    active = golden("pipeline_segmentation_data") > 0.5
    labels = cluster(golden("pipeline_embeddings_data"), active, duration=26.0, **PYANNOTE)
    hard = golden("pipeline_hard_clusters").astype(int)
    assert same_partition(labels, hard)
    kept = golden("pipeline_train_chunk_idx"), golden("pipeline_train_speaker_idx")
    assert same_partition(labels[kept], golden("pipeline_ahc_clusters"))


def test_the_vectors_with_a_say_are_pyannotes(golden):
    """Its training filter: single-active frames of at least a fifth of the window, no NaN."""
    active = golden("pipeline_segmentation_data") > 0.5
    vectors = golden("pipeline_embeddings_data")
    alone = active & (active.sum(axis=2, keepdims=True) == 1)
    train = np.isfinite(vectors).all(axis=2) & (alone.sum(axis=1) >= 0.2 * 589)
    assert np.array_equal(np.argwhere(train)[:, 0], golden("pipeline_train_chunk_idx"))
    assert np.array_equal(vectors[train], golden("pipeline_train_embeddings"))


def test_no_one_and_two_vectors():
    nobody = run([[-1, -1, -1]] * 3)
    assert (nobody == NOBODY).all()
    assert run([]).shape == (0, 3)
    assert run([[-1, 4, -1]]).tolist() == [[-1, 0, -1]]
    assert run([[4, -1, -1], [4, -1, -1]]).tolist() == [[0, -1, -1], [0, -1, -1]]
    assert run([[4, -1, -1], [5, -1, -1]]).tolist() in (
        [[0, -1, -1], [1, -1, -1]],
        [[1, -1, -1], [0, -1, -1]],
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("voices", [1, 2, 4])
@pytest.mark.parametrize("method", ["average", "centroid"])
def test_exact_number_of_speakers(count, voices, method):
    truth = [[number % voices, -1, -1] for number in range(60)]
    labels = run(truth, SpeakerBounds(count, count), noise=0.4, method=method)
    assert set(labels[labels >= 0]) == set(range(count))


def test_exact_number_is_had_from_short_speech_too():
    vectors, active = vectors_of([[0, 1, 2]])
    active[:, :, 1:] = False
    active[0, 200:215, 1] = True
    active[0, 300:315, 2] = True
    labels = cluster(vectors, active, duration=10.0, bounds=SpeakerBounds(3, 3), **PYANNOTE)
    assert sorted(labels[0]) == [0, 1, 2]


def test_more_speakers_than_vectors_gives_what_there_is():
    assert len(set(run([[0, -1, -1], [1, -1, -1]], SpeakerBounds(5, 5)).ravel()) - {-1}) == 2


def test_bounds_act_only_where_they_must():
    truth = [[number % 3, -1, -1] for number in range(60)]
    assert run(truth, SpeakerBounds(1, 5)).max() == 2
    assert run(truth, SpeakerBounds(1, 2)).max() == 1
    assert run(truth, SpeakerBounds(5)).max() == 4


def test_small_clusters_join_the_nearest_large_one():
    truth = [[0, -1, -1]] * 40 + [[1, -1, -1]] * 40 + [[2, -1, -1]] * 3
    labels = run(truth)
    assert labels.max() == 1
    assert len(set(labels[80:, 0])) == 1


def test_two_voices_of_one_window_are_two_speakers():
    vectors, active = vectors_of([[0, -1, -1]] * 20 + [[1, -1, -1]] * 20 + [[0, 1, -1]])
    vectors[-1, 1] = vectors[-1, 0] * 0.9 + vectors[25, 0] * 0.3  # sounds like the first, but is not
    labels = cluster(vectors, active, duration=60.0, **PYANNOTE)
    assert labels[-1, 0] != labels[-1, 1]
    assert labels[-1, 0] == labels[0, 0]


def test_a_third_voice_where_two_are_known_keeps_its_speech():
    truth = [[0, -1, -1]] * 30 + [[1, -1, -1]] * 30 + [[0, 1, 0]]
    assert (run(truth)[-1] >= 0).all()


def test_adaptive_threshold():
    assert adaptive_threshold(0.7, 600.0, 1000) == 0.7
    assert adaptive_threshold(0.7, 601.0, 299) == 0.7
    assert adaptive_threshold(0.7, 601.0, 300) == pytest.approx(0.75)


@pytest.mark.parametrize("bounds", [(3, 2), (0, None), (1, 0)])
def test_impossible_bounds(bounds):
    with pytest.raises(UsageError):
        SpeakerBounds(*bounds)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(-1, 5), min_size=3, max_size=3), max_size=25),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from(["average", "centroid"]),
)
def test_labels_are_always_well_formed(truth, least, more, method):
    vectors, active = vectors_of(truth, noise=0.6)
    bounds = SpeakerBounds(least, least + more)
    labels = cluster(vectors, active, method=method, threshold=0.8, duration=60.0, bounds=bounds)
    known = np.isfinite(vectors).all(axis=2)
    assert np.array_equal(labels >= 0, known)
    found = len(set(labels[known]))
    assert set(labels[known]) == set(range(found))
    assert found in bounds or known.sum() < least
