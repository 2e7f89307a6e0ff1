from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import cdist, pdist

from witness.diarization import clustering
from witness.diarization.clustering import NOBODY, SpeakerBounds, cluster
from witness.errors import UsageError
from witness.models import catalogue
from witness.schema import Corrections, Count, Rule

PYANNOTE = catalogue.SETS["standard"].rule
BUILTIN = catalogue.SETS["builtin"].rule


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


def run(speakers, bounds=SpeakerBounds(), noise=0.1, rule=PYANNOTE):
    return cluster(*vectors_of(speakers, noise), rule, bounds=bounds).labels


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return len(set(zip(a.ravel(), b.ravel(), strict=True))) == len(set(a.ravel())) == len(set(b.ravel()))


@pytest.mark.parametrize("rule", [PYANNOTE, BUILTIN], ids=["standard", "builtin"])
def test_each_voice_is_one_speaker(rule):
    truth = np.array([[0, 1, -1]] * 20 + [[2, 0, 1]] * 20 + [[1, -1, 2]] * 20)
    labels = run(truth.tolist(), rule=rule)
    assert same_partition(labels, truth)
    assert set(labels.ravel()) == {-1, 0, 1, 2}


def test_golden_partition(golden):
    active = golden("pipeline_segmentation_data") > 0.5
    labels = cluster(golden("pipeline_embeddings_data"), active, PYANNOTE).labels
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
@pytest.mark.parametrize("rule", [PYANNOTE, BUILTIN], ids=["standard", "builtin"])
def test_exact_number_of_speakers(count, voices, rule):
    truth = [[number % voices, -1, -1] for number in range(60)]
    labels = run(truth, SpeakerBounds(count, count), noise=0.4, rule=rule)
    assert set(labels[labels >= 0]) == set(range(count))


def test_exact_number_is_had_from_short_speech_too():
    vectors, active = vectors_of([[0, 1, 2]])
    active[:, :, 1:] = False
    active[0, 200:215, 1] = True
    active[0, 300:315, 2] = True
    labels = cluster(vectors, active, PYANNOTE, bounds=SpeakerBounds(3, 3)).labels
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


def test_a_vector_counts_for_the_time_between_windows():
    """Six vectors are too few for a speaker from windows 1 s apart, and enough from those 3 s apart."""
    truth = [[0, -1, -1]] * 60 + [[1, -1, -1]] * 6 + [[0, -1, -1]] * 60
    vectors, active = vectors_of(truth)
    rule = replace(BUILTIN, smallest=12)
    assert cluster(vectors, active, rule).count.found == 1
    assert cluster(vectors, active, rule, step=3.0).count.found == 2


def test_two_voices_of_one_window_are_two_speakers_where_the_rule_says_so():
    vectors, active = vectors_of([[0, -1, -1]] * 20 + [[1, -1, -1]] * 20 + [[0, 1, -1]])
    vectors[-1, 1] = vectors[-1, 0] * 0.9 + vectors[25, 0] * 0.3  # sounds like the first, but is not
    labels = cluster(vectors, active, replace(PYANNOTE, apart=True)).labels
    assert labels[-1, 0] != labels[-1, 1]
    assert labels[-1, 0] == labels[0, 0]
    labels = cluster(vectors, active, PYANNOTE).labels
    assert labels[-1, 0] == labels[-1, 1] == labels[0, 0]


def test_a_third_voice_where_two_are_known_keeps_its_speech():
    truth = [[0, -1, -1]] * 30 + [[1, -1, -1]] * 30 + [[0, 1, 0]]
    assert (run(truth, rule=replace(PYANNOTE, apart=True))[-1] >= 0).all()


@pytest.mark.parametrize("linkage", ["average", "centroid"])
@pytest.mark.parametrize("count", [2, 3, 60, 301])
def test_the_tree_is_scipys(linkage, count):
    rng = np.random.default_rng(count)
    points = rng.normal(size=(count, 32)) + 2 * rng.normal(size=(5, 32))[rng.integers(5, size=count)]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    tree = clustering._tree(single(points), linkage)
    if linkage == "average":
        wanted = scipy_linkage(pdist(points, "sqeuclidean"), "average")
        wanted[:, 2] **= 0.5
    else:
        wanted = scipy_linkage(points, "centroid")
    assert np.array_equal(tree.merges[:, [0, 1, 3]], wanted[:, [0, 1, 3]])
    assert np.allclose(tree.merges[:, 2], wanted[:, 2])
    for threshold in np.quantile(wanted[:, 2], [0, 0.3, 0.9, 1]):
        merged = int(np.searchsorted(tree.heights, threshold + 1e-9, side="right"))
        assert same_partition(tree.cut(merged), fcluster(wanted, threshold + 1e-9, "distance"))


def single(points: np.ndarray) -> clustering._Groups:
    """Groups of one vector each, with two seconds of clean speech."""
    return clustering._Groups.single(points, np.full(len(points), 2.0))


CORRECTIONS = Corrections(loose=-0.7, clean=0.3, share=0.1)


def test_corrected_heights_are_those_of_the_formula():
    rng = np.random.default_rng(5)
    points = np.eye(16)[rng.integers(4, size=60)] + rng.normal(0, 0.25, (60, 16))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    seconds = rng.uniform(1, 8, 60)
    groups = clustering._Groups.single(points, seconds)
    plain = clustering._tree(groups, "centroid")
    tree = clustering._corrected(groups, plain, CORRECTIONS, 3)
    assert (np.diff(tree.merges[:, 2]) >= 0).all()

    def height(one: list[int], other: list[int]) -> float:
        if min(len(one), len(other)) < 3:
            return 0.0
        likeness = min(float((points[part] @ points[part].T).mean()) for part in (one, other))
        squared = float(cdist(points[one], points[other], "sqeuclidean").mean())
        squared += -0.7 * (1 - likeness) + 0.3 * np.log(min(seconds[one].mean(), seconds[other].mean()))
        return max(0.0, squared + 0.1 * np.log(max(len(one), len(other)) / 60)) ** 0.5

    members = {number: [number] for number in range(60)}
    reached = dict.fromkeys(range(60), 0.0)
    for merge, (one, other, found, size) in enumerate(tree.merges, start=60):
        members[merge] = members[int(one)] + members[int(other)]
        own = height(members[int(one)], members[int(other)])
        reached[merge] = max(own, reached[int(one)], reached[int(other)])
        assert found == pytest.approx(reached[merge])
        assert size == len(members[merge])
    children = {
        frozenset((frozenset(members[int(a)]), frozenset(members[int(b)]))) for a, b, _, _ in tree.merges
    }
    assert len(children) == 59  # the same merges as before, in another order
    assert sum(value > 0 for value in tree.merges[:, 2]) > 2


def test_a_distance_counts_for_less_where_little_speech_is_behind_it():
    """Two voices 60 degrees apart, heard for 6.75 s or for 1 s in each window."""
    vectors, active = directions(0, 60)
    rule = Rule("centroid", 1.1, smallest=5, shortest=0.1, corrections=CORRECTIONS)
    assert cluster(vectors, active, rule).count == Count(2, 1, pytest.approx(1.2264 - 1.1, abs=1e-3))
    active[:, 60:, 0] = False
    assert cluster(vectors, active, rule).count == Count(1, 2, pytest.approx(1.1 - 0.967, abs=1e-3))


@pytest.mark.parametrize("linkage", ["average", "centroid"])
def test_a_group_weighs_as_much_as_its_vectors(linkage):
    """The tree above some merges is the tree of the groups that they made."""
    rng = np.random.default_rng(1)
    points = np.repeat(np.eye(16)[:6], 20, axis=0) + rng.normal(0, 0.1, (120, 16))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    seconds = rng.uniform(1, 8, 120)
    groups = clustering._Groups.single(points, seconds)
    whole = clustering._tree(groups, linkage)
    labels = whole.cut(80)
    assert len(clustering._eighth(groups, Rule(linkage, 1.0))) == 15
    sizes = np.bincount(labels).astype(float)
    means = clustering._means(points, np.ones(120), labels)
    clean = np.bincount(labels, seconds) / sizes
    fewer = clustering._Groups(means, sizes, clean, labels)
    rest = clustering._tree(fewer, linkage)
    assert np.allclose(rest.merges[:, 2:], whole.merges[80:, 2:])
    corrected = [clustering._corrected(*pair, CORRECTIONS, 12) for pair in ((groups, whole), (fewer, rest))]
    assert np.allclose(*(np.unique(tree.merges[:, 2].round(9))[-5:] for tree in corrected))


@pytest.mark.parametrize("rule", [PYANNOTE, BUILTIN], ids=["standard", "builtin"])
def test_a_long_recording_is_clustered_as_a_short_one(rule, monkeypatch):
    rng = np.random.default_rng(2)
    truth = [[int(number), -1, -1] for number in np.repeat(rng.integers(6, size=120), 10)]
    vectors, active = vectors_of(truth, noise=0.5)
    whole = cluster(vectors, active, rule)
    monkeypatch.setattr(clustering, "MANY", 60)
    monkeypatch.setattr(clustering, "BLOCK", 100)
    groups = clustering._condense(vectors[:, 0], np.full(len(truth), 2.0), rule)
    assert len(groups) <= 60
    assert groups.weights.sum() == len(groups.of) == len(truth)
    means = clustering._means(clustering._unit(vectors[:, 0]), np.ones(len(truth)), groups.of)
    assert np.allclose(groups.points, means)
    condensed = cluster(vectors, active, rule)
    assert same_partition(condensed.labels, whole.labels)
    assert condensed.count.found == whole.count.found == 6


def directions(*angles: float) -> tuple[np.ndarray, np.ndarray]:
    """A window for each angle, in degrees, on a circle; ten of each."""
    radians = np.radians(np.repeat(angles, 10))
    vectors = np.full((len(radians), 3, 2), np.nan, np.float32)
    vectors[:, 0] = np.stack([np.cos(radians), np.sin(radians)], axis=1)
    active = np.zeros((len(radians), 589, 3), np.bool_)
    active[:, :400, 0] = True
    return vectors, active


def test_the_runner_up_and_its_margin():
    """Two voices 30 degrees apart are sin(15) * 2 = 0.5176 from each other."""
    rule = Rule("centroid", 0.6)
    assert cluster(*directions(0, 30), rule).count == Count(1, 2, pytest.approx(0.6 - 0.5176, abs=1e-4))
    assert cluster(*directions(0, 45), rule).count == Count(2, 1, pytest.approx(0.7654 - 0.6, abs=1e-4))
    assert cluster(*directions(0), rule).count.found == 1
    forced = cluster(*directions(0, 30), rule, bounds=SpeakerBounds(2, 2)).count
    assert forced == Count(2)
    assert cluster(np.full((2, 3, 4), np.nan, np.float32), np.zeros((2, 589, 3), bool), rule).count == Count(
        0
    )


def test_variational_clustering_is_community_1s(golden):
    """From golden features to golden responsibilities, through what `cluster` calls."""
    features, phi = golden("pipeline_plda_features"), golden("pipeline_plda_phi")

    class Projected:
        def __init__(self) -> None:
            self.phi = phi

        def project(self, vectors):
            assert np.allclose(vectors, golden("pipeline_train_embeddings"))
            return features

    active = golden("pipeline_segmentation_data") > 0.5
    rule = catalogue.SETS["community-1"].rule
    clusters = cluster(golden("pipeline_embeddings_data"), active, rule, plda=Projected())
    hard = golden("pipeline_hard_clusters").astype(int)
    assert np.array_equal(clusters.labels, np.maximum(hard, -1))
    assert clusters.count == Count(2)
    three = cluster(
        golden("pipeline_embeddings_data"), active, rule, plda=Projected(), bounds=SpeakerBounds(3, 3)
    )
    assert three.count == Count(3)
    assert set(three.labels.ravel()) == {-1, 0, 1, 2}


def test_a_thousand_equal_vectors_take_no_time():
    """Every merge leaves all the others without their nearest neighbor; few of them are looked up again."""
    points = np.ones((1000, 4)) / 2
    looked_up = []
    argmin = np.ndarray.argmin

    class Counting(np.ndarray):
        def argmin(self, *args, **kwargs):
            if self.ndim == 2:
                looked_up.append(len(self))
            return argmin(self, *args, **kwargs)

    tree = clustering._tree(single(points.view(Counting)), "centroid")
    assert len(tree.merges) == 999
    assert 1000 <= sum(looked_up) < 10_000


def test_more_speakers_than_groups_are_as_many_as_there_are_groups(monkeypatch):
    """Of many vectors neighbors are merged first; the tree has fewer leaves than there are vectors."""
    monkeypatch.setattr(clustering, "MANY", 40)
    monkeypatch.setattr(clustering, "BLOCK", 40)
    vectors = np.random.default_rng(0).normal(size=(50, 3, 16)).astype(np.float32)
    active = np.zeros((50, 589, 3), np.bool_)
    for speaker in range(3):
        active[:, speaker * 190 : (speaker + 1) * 190, speaker] = True
    assert 1 < cluster(vectors, active, PYANNOTE, bounds=SpeakerBounds(120, 120)).count.found <= 40


@pytest.mark.parametrize("bounds", [(3, 2), (0, None), (1, 0), (1.5, None), (1, 2.5), (1, float("nan"))])
def test_impossible_bounds(bounds):
    with pytest.raises(UsageError, match="; fix: "):
        SpeakerBounds(*bounds)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(-1, 5), min_size=3, max_size=3), max_size=25),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from([PYANNOTE, BUILTIN, replace(PYANNOTE, apart=True)]),
)
def test_labels_are_always_well_formed(truth, least, more, rule):
    vectors, active = vectors_of(truth, noise=0.6)
    bounds = SpeakerBounds(least, least + more)
    clusters = cluster(vectors, active, rule, bounds=bounds)
    labels = clusters.labels
    valid = np.isfinite(vectors).all(axis=2)
    assert np.array_equal(labels >= 0, valid)
    speakers = len(set(labels[valid]))
    assert set(labels[valid]) == set(range(speakers))
    assert speakers in bounds or valid.sum() < least
    assert speakers == clusters.count.found
