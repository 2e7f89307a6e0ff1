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
    truth = [[0, -1, -1]] * 40 + [[1, -1, -1]] * 40 + [[2, -1, -1]]
    labels = run(truth)
    assert labels.max() == 1
    assert len(set(labels[80:, 0])) == 1


def test_a_vector_counts_for_the_time_between_windows():
    """Five vectors are too few for a speaker from windows 1 s apart, and enough from those 3 s apart."""
    truth = [[0, -1, -1]] * 150 + [[1, -1, -1]] * 5 + [[0, -1, -1]] * 150
    vectors, active = vectors_of(truth)
    rule = replace(BUILTIN, smallest=12)
    assert cluster(vectors, active, rule).count.found == 1
    assert cluster(vectors, active, rule, step=3.0).count.found == 2


def test_who_talk_at_the_same_time_are_two_people():
    """The last window has two local speakers, the second of whom sounds more like the first voice."""
    vectors, active = vectors_of([[0, -1, -1]] * 20 + [[1, -1, -1]] * 20 + [[0, 1, -1]])
    vectors[-1, 1] = vectors[-1, 0] * 0.9 + vectors[25, 0] * 0.3
    labels = cluster(vectors, active, PYANNOTE).labels
    assert labels[-1, 0] == labels[-1, 1] == labels[0, 0]  # one after the other: it may be one voice
    active[-1, 120, 1] = True  # and now in one frame both at once
    labels = cluster(vectors, active, PYANNOTE).labels
    assert labels[-1].tolist() == [labels[0, 0], labels[25, 0], NOBODY]


def test_the_way_to_name_three_is_the_one_with_the_greatest_sum():
    """The first and the third talk at once, and both sound like speaker 0, the third less so."""
    cosines = np.array([[[0.9, 0.1, 0.2], [0.8, 0.3, 0.0], [0.6, 0.5, 0.1]]])
    pairs = [(0, 1), (0, 2), (1, 2)]
    for together, named in (
        ([False, True, False], [0, 0, 1]),
        ([True, True, False], [0, 1, 1]),
        ([True, True, True], [2, 0, 1]),  # 0.2 + 0.8 + 0.5; 0 1 2 has 1.3
        ([False, False, True], [0, 0, 1]),
    ):
        assert clustering._apart(cosines, np.array([together]), pairs).tolist() == [named]
    two = cosines[:, :, :2]  # a third voice where there are two speakers: somebody has to be named twice
    assert clustering._apart(two, np.array([[True, True, True]]), pairs).tolist() in (
        [[0, 0, 1]],
        [[0, 1, 0]],
    )


def test_a_third_voice_where_two_are_known_keeps_its_speech():
    vectors, active = vectors_of([[0, -1, -1]] * 30 + [[1, -1, -1]] * 30 + [[0, 1, 0]])
    active[-1, 300] = True
    assert (cluster(vectors, active, PYANNOTE).labels[-1] >= 0).all()


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
def test_the_tree_is_the_plain_search(linkage):
    rng = np.random.default_rng(5)
    points = rng.normal(size=(60, 8)) + 2 * rng.normal(size=(4, 8))[rng.integers(4, size=60)]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    tree = clustering._tree(clustering._Groups.single(points), linkage)

    def cost(one, other):
        a, b = points[one], points[other]
        if linkage == "average":
            return cdist(a, b, "sqeuclidean").mean() ** 0.5
        weight = (len(a) * len(b) / (len(a) + len(b))) ** (clustering.BALANCE / 2)
        return ((a.mean(0) - b.mean(0)) ** 2).sum() ** 0.5 * weight

    clusters = {number: [number] for number in range(60)}
    for merge, (one, other, height, size) in enumerate(tree.merges):
        costs = {(a, b): cost(clusters[a], clusters[b]) for a in clusters for b in clusters if a < b}
        assert (one, other) == min(costs, key=costs.__getitem__)
        assert height == pytest.approx(costs[one, other])
        clusters[60 + merge] = clusters.pop(int(one)) + clusters.pop(int(other))
        assert size == len(clusters[60 + merge])


def test_a_few_odd_vectors_of_a_voice_are_no_reason_to_merge_two_others():
    """Two voices 40 degrees apart; ten vectors of the second are another 45 degrees off."""
    vectors, active = directions(*[0] * 10, *[40] * 10, 85)
    rule = Rule("average", 0.6, smallest=5)
    labels = cluster(vectors, active, rule, bounds=SpeakerBounds(2, 2)).labels[:, 0]
    assert same_partition(labels, np.repeat([0, 1, 1], [100, 100, 10]))
    tree = clustering._tree(clustering._Groups.single(vectors[:, 0].astype(float)), "average")
    assert not same_partition(tree.cut(len(labels) - 2), labels)


@pytest.mark.parametrize("linkage", ["average", "centroid", "balanced"])
def test_a_group_weighs_as_much_as_its_vectors(linkage):
    """The tree above some merges is the tree of the groups that they made."""
    rng = np.random.default_rng(1)
    points = np.repeat(np.eye(16)[:6], 20, axis=0) + rng.normal(0, 0.1, (120, 16))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    whole = clustering._tree(clustering._Groups.single(points), linkage)
    labels = whole.cut(80)
    sizes = np.bincount(labels).astype(float)
    means = clustering._means(points, np.ones(120), labels)
    rest = clustering._tree(clustering._Groups(means, sizes, labels), linkage)
    assert np.allclose(rest.merges[:, 2:], whole.merges[80:, 2:])
    assert len(clustering._eighth(points, np.ones(120), Rule("average", 1.0))) == 15


@pytest.mark.slow
@pytest.mark.parametrize("rule", [PYANNOTE, BUILTIN], ids=["centroid", "average"])
def test_a_long_recording_is_clustered_as_a_short_one(rule, monkeypatch):
    rng = np.random.default_rng(2)
    truth = [[int(number), -1, -1] for number in np.repeat(rng.integers(6, size=120), 10)]
    vectors, active = vectors_of(truth, noise=0.5)
    whole = cluster(vectors, active, rule)
    monkeypatch.setattr(clustering, "MANY", 60)
    monkeypatch.setattr(clustering, "BLOCK", 100)
    groups = clustering._condense(vectors[:, 0], rule)
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


def groups_of(*angles: float) -> clustering._Groups:
    return clustering._Groups.single(directions(*angles)[0][:, 0].astype(float))


def test_a_vote_by_hand():
    """Two voices 35 degrees apart are 2 sin(17.5) = 0.6014 from each other.

    A draw of both says 2 at 0.54, 0.57 and 0.60, and 1 at 0.63 and 0.66; one of the first says 1.
    """
    groups, windows = groups_of(0, 35), np.arange(20)
    both, first = np.ones((1, 20), bool), np.arange(20)[None] < 10
    rule, free = Rule("centroid", 0.6), SpeakerBounds()
    assert clustering._vote(groups, windows, both, rule, free) == Count(2, 1, 0.6)
    assert clustering._vote(groups, windows, np.repeat(both, 7, axis=0), rule, free) == Count(2, 1, 0.6)
    assert clustering._vote(groups, windows, np.concatenate([both, first]), rule, free) == Count(1, 2, 0.7)
    assert clustering._vote(groups, windows, first, rule, free) == Count(1, None, 1.0)
    # Of five draws of both and one of the first 15 votes say 2, and 10 + 5 say 1: the smaller number.
    tie = np.concatenate([np.repeat(both, 5, axis=0), first])
    assert clustering._vote(groups, windows, tie, rule, free) == Count(1, 2, 0.5)


def test_a_vote_within_bounds():
    groups, windows, all_ = groups_of(0, 35), np.arange(20), np.ones((1, 20), bool)
    rule = Rule("centroid", 0.6)
    assert clustering._vote(groups, windows, all_, rule, SpeakerBounds(1, 1)) == Count(1)
    assert clustering._vote(groups, windows, all_, rule, SpeakerBounds(2)) == Count(2, None, 0.6)
    assert clustering._vote(groups, windows, all_, rule, SpeakerBounds(1, 2)) == Count(2, 1, 0.6)
    assert clustering._vote(groups, windows, all_, rule, SpeakerBounds(3, 4)) == Count(3)
    assert cluster(*directions(0, 35), rule, bounds=SpeakerBounds(3, 3)).count == Count(3)


def test_a_small_cluster_has_no_vote():
    """A tenth of 100 vectors is a speaker, a fiftieth is not; one in ten of a long recording needs 8."""
    rule, windows, whole = Rule("average", 1.0), np.arange(100), np.ones((1, 100), bool)
    points = np.eye(3)[np.repeat([0, 1], [90, 10])]
    assert (
        clustering._vote(clustering._Groups.single(points), windows, whole, rule, SpeakerBounds()).found == 2
    )
    points = np.eye(3)[np.repeat([0, 1], [98, 2])]
    assert (
        clustering._vote(clustering._Groups.single(points), windows, whole, rule, SpeakerBounds()).found == 1
    )


@pytest.mark.parametrize("windows", [1, 4, 5, 21, 60, 1800])
def test_draws_are_half_of_the_stretches_and_few_lack_a_sound(windows):
    drawn = clustering._draws(windows, 5)
    assert drawn.shape == (clustering.DRAWS, windows)
    stretches = -(-windows // 5)
    firsts = drawn[:, ::5]
    assert (firsts.sum(axis=1) == -(-stretches // 2)).all()
    assert np.array_equal(drawn, np.repeat(firsts, 5, axis=1)[:, :windows])
    if stretches >= 12:
        # A second of sound lies in 11 windows: most draws have some of them.
        heard = np.array([drawn[:, first : first + 11].any(axis=1) for first in range(windows - 10)])
        assert heard.mean() > 0.85
        assert heard.mean(axis=1).min() > 0.6


def test_the_same_recording_has_the_same_speakers_each_time():
    truth = [[int(number), -1, -1] for number in np.random.default_rng(3).integers(5, size=90)]
    vectors, active = vectors_of(truth, noise=0.9)
    first, again = (cluster(vectors, active, BUILTIN) for _ in range(2))
    assert np.array_equal(first.labels, again.labels)
    assert first.count == again.count


def test_near_a_tie_the_share_says_so():
    """2 sin(30) = 1.0: voices just under the threshold, and just over it; far from it draws agree."""
    for angle in (59.9, 60.1):
        count = cluster(*directions(0, angle, 0, angle), Rule("average", 1.0)).count
        assert {count.found, count.runner_up} == {1, 2}
        assert count.share < 0.7
    for angle, number in ((30, 1), (90, 2)):
        count = cluster(*directions(0, angle, 0, angle), Rule("average", 1.0)).count
        assert count.found == number
        assert count.share >= 0.9


def test_who_speaks_in_one_part_of_a_recording_is_somebody():
    truth = [[0, -1, -1]] * 100 + [[1, -1, -1]] * 13 + [[0, -1, -1]] * 100 + [[2, -1, -1]] * 13
    assert run(truth, rule=BUILTIN).max() == 2


def test_nobody_and_one_voice():
    rule = Rule("centroid", 0.6)
    assert cluster(*directions(0), rule).count == Count(1, None, 1.0)
    nothing = np.full((2, 3, 4), np.nan, np.float32), np.zeros((2, 589, 3), bool)
    assert cluster(*nothing, rule).count == Count(0)


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
    st.sampled_from([PYANNOTE, BUILTIN]),
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
