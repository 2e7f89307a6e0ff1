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
from witness.schema import Count, Rule

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


@pytest.mark.parametrize("rule", [PYANNOTE, BUILTIN], ids=["centroid", "average"])
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
@pytest.mark.parametrize("rule", [PYANNOTE, BUILTIN], ids=["centroid", "average"])
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
    tree = clustering._tree(clustering._Groups.single(points), linkage)
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


@pytest.mark.parametrize("linkage", ["average", "balanced"])
@pytest.mark.parametrize("distinct", [0.0, 0.3])
def test_the_tree_is_the_plain_search(linkage, distinct):
    rng = np.random.default_rng(5)
    points = rng.normal(size=(60, 8)) + 2 * rng.normal(size=(4, 8))[rng.integers(4, size=60)]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    heard = clustering._distinct(points, np.sort(rng.integers(30, size=60)), 1.2)
    assert 10 < (heard > 0).sum() < 120
    tree = clustering._tree(clustering._Groups.single(points, heard), linkage, distinct)

    def cost(one, other):
        a, b = points[one], points[other]
        squared = cdist(a, b, "sqeuclidean").mean()
        if linkage == "balanced":
            squared = ((a.mean(0) - b.mean(0)) ** 2).sum()
        squared += distinct * heard[np.ix_(one, other)].sum() / min(len(a), len(b))
        weight = (len(a) * len(b) / (len(a) + len(b))) ** 0.25 if linkage == "balanced" else 1
        return squared**0.5 * weight

    clusters = {number: [number] for number in range(60)}
    for merge, (one, other, height, size) in enumerate(tree.merges):
        costs = {(a, b): cost(clusters[a], clusters[b]) for a in clusters for b in clusters if a < b}
        assert (one, other) == min(costs, key=costs.__getitem__)
        assert height == pytest.approx(costs[one, other])
        clusters[60 + merge] = clusters.pop(int(one)) + clusters.pop(int(other))
        assert size == len(clusters[60 + merge])


@pytest.mark.parametrize("balanced", [False, True])
def test_a_few_odd_vectors_of_a_voice_are_no_reason_to_merge_two_others(balanced):
    """Two voices 40 degrees apart; ten vectors of the second are another 45 degrees off."""
    vectors, active = directions(*[0] * 10, *[40] * 10, 85)
    rule = Rule("average", 0.6, smallest=5, balanced=balanced)
    labels = cluster(vectors, active, rule, bounds=SpeakerBounds(2, 2)).labels[:, 0]
    truth = np.repeat([0, 1, 1], [100, 100, 10])
    assert same_partition(labels, truth) == balanced


def test_what_is_heard_side_by_side_is_two_people_unless_it_sounds_alike():
    """Two voices 70 degrees apart, 1.15, and now and then each closer to the other."""
    degrees = np.tile([0, 70, 0, 70], 10), np.tile([70, 0, 50, 20], 10)
    vectors, active = directions(*np.zeros(4))
    for local, angles in enumerate(degrees):
        vectors[:, local] = np.stack([np.cos(np.radians(angles)), np.sin(np.radians(angles))], axis=1)
    active[:, 400:, 1] = True
    rule = Rule("average", 1.1, smallest=5)
    assert cluster(vectors, active, rule).count.found == 1
    assert cluster(vectors, active, replace(rule, distinct=0.4)).count.found == 2
    assert cluster(vectors, active, replace(rule, threshold=1.2, distinct=0.4)).count.found == 1


def test_the_number_of_speakers_is_that_of_the_first_tree():
    vectors, active = directions(0, 30, 75, 180)
    for threshold in (0.4, 0.6, 0.9, 1.5):
        alone = cluster(vectors, active, Rule("average", threshold, smallest=5))
        both = cluster(vectors, active, Rule("average", threshold, smallest=5, balanced=True))
        assert both.count == alone.count
        assert both.labels.max() + 1 == both.count.found


@pytest.mark.parametrize("linkage", ["average", "centroid", "balanced"])
def test_a_group_weighs_as_much_as_its_vectors(linkage):
    """The tree above some merges is the tree of the groups that they made."""
    rng = np.random.default_rng(1)
    points = np.repeat(np.eye(16)[:6], 20, axis=0) + rng.normal(0, 0.1, (120, 16))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    heard = clustering._distinct(points, np.arange(120) // 2, 0.0)
    groups = clustering._Groups.single(points, heard)
    whole = clustering._tree(groups, linkage, 0.3)
    labels = whole.cut(80)
    eighth = clustering._eighth(groups, Rule("average", 1.0, distinct=0.3))
    assert len(eighth) == 15
    assert eighth.distinct.sum() <= heard.sum()
    within = heard * (labels[:, None] != labels)
    between = np.array([[within[labels == a][:, labels == b].sum() for b in range(40)] for a in range(40)])
    sizes = np.bincount(labels).astype(float)
    means = clustering._means(points, np.ones(120), labels)
    rest = clustering._tree(
        clustering._Groups(means, sizes, labels, between.astype(np.float32)), linkage, 0.3
    )
    assert np.allclose(rest.merges[:, 2:], whole.merges[80:, 2:])


@pytest.mark.parametrize("rule", [PYANNOTE, BUILTIN], ids=["centroid", "average"])
def test_a_long_recording_is_clustered_as_a_short_one(rule, monkeypatch):
    rng = np.random.default_rng(2)
    truth = [[int(number), -1, -1] for number in np.repeat(rng.integers(6, size=120), 10)]
    vectors, active = vectors_of(truth, noise=0.5)
    whole = cluster(vectors, active, rule)
    monkeypatch.setattr(clustering, "MANY", 60)
    monkeypatch.setattr(clustering, "BLOCK", 100)
    groups = clustering._condense(vectors[:, 0], np.arange(len(truth)), rule)
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


def test_the_threshold_reaches_for_the_top_of_the_tree():
    vectors, active = directions(0, 45, 180)
    assert cluster(vectors, active, Rule("average", 0.6)).count.found == 3
    # The top: the mean square of 2 (opposite) and of what is 135 degrees apart, as a distance 1.9254.
    assert cluster(vectors, active, Rule("average", 0.6, reach=0.1)).count.found == 3
    assert cluster(vectors, active, Rule("average", 0.6, reach=0.2)).count.found == 2
    assert cluster(*directions(0, 30), Rule("average", 0.6, reach=1.0)).count.found == 1


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

    tree = clustering._tree(clustering._Groups.single(points.view(Counting)), "centroid")
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
