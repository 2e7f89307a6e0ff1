import numpy as np
import pytest

from conftest import SHARED, strict_der
from witness.diarization.clustering import cluster
from witness.diarization.reconstruction import (
    SHORTEST,
    drop_flickers,
    fill_pauses,
    frame_count,
    reconstruct,
    speaker_count,
    turns,
)
from witness.formats import rttm
from witness.models import catalogue
from witness.schema import Segmentation, Turn

RECORDINGS = {"pipeline": 26.0154, "single_speaker": 15.0486, "short": 3.2889}


def golden_segmentation(golden, name) -> Segmentation:
    return Segmentation.regular(golden(f"{name}_segmentation_data") > 0.5)


@pytest.mark.parametrize("name", RECORDINGS)
def test_speaker_count_is_pyannotes(golden, name):
    count = speaker_count(golden_segmentation(golden, name))
    assert np.array_equal(count, golden(f"{name}_speaker_counting_data")[:, 0])


def test_golden_clusters_give_the_golden_diarization(golden):
    labels = np.maximum(golden("pipeline_hard_clusters").astype(np.intp), -1)
    diarization = reconstruct(golden_segmentation(golden, "pipeline"), labels)
    expected = golden("pipeline_discrete_diarization_data") > 0  # the speakers in another order
    expected = expected[:, np.argsort(expected.argmax(axis=0), kind="stable")]
    assert np.array_equal(diarization.active, expected)


@pytest.mark.parametrize("name", RECORDINGS)
def test_turns_from_golden_segmentation_and_vectors_match_the_golden_rttm(golden, name):
    windows = golden_segmentation(golden, name)
    vectors = golden(f"{name}_embeddings_data").copy()
    vectors[windows.active.sum(axis=1) < 10] = np.nan  # pyannote gives inactive speakers values, too
    duration = RECORDINGS[name]
    labels = cluster(vectors, windows.active, catalogue.SETS["standard"].rule).labels
    diarization = reconstruct(windows, labels)
    hypothesis = turns(diarization.active.T, [f"S{n}" for n in range(diarization.active.shape[1])], duration)
    text = (SHARED / "data" / "golden" / f"{name}_expected.rttm").read_text()
    (reference,) = rttm.parse(text).values()
    assert strict_der([(reference, hypothesis, duration)]) <= 0.01


def windows_of(rows: list[list[int]]) -> Segmentation:
    """Ten-second windows in which each local speaker is active throughout or not at all."""
    active = np.zeros((len(rows), 589, 3), np.bool_)
    active[:] = np.array(rows, bool).reshape(len(rows), 1, 3)
    return Segmentation.regular(active)


def test_no_windows():
    diarization = reconstruct(
        Segmentation.regular(np.zeros((0, 589, 3), np.bool_)), np.zeros((0, 3), np.intp)
    )
    assert diarization.active.shape == (0, 0)
    assert diarization.exclusive().shape == (0,)
    assert turns(diarization.active.T, [], 0.0) == []


def test_nobody_known():
    windows = windows_of([[1, 0, 0]])
    diarization = reconstruct(windows, np.full((1, 3), -1))
    assert diarization.active.shape == (frame_count(windows), 0)


@pytest.mark.parametrize("much", [0, 1])
def test_on_a_tie_speaks_who_speaks_more(much):
    """In whichever order the speakers are numbered."""
    windows = windows_of([[1, 0, 0], [1, 0, 0], [1, 0, 0]])
    windows = Segmentation(windows.active, np.array([0, 0, 160_000]))  # the first two at the same place
    diarization = reconstruct(windows, np.array([[much, -1, -1], [1 - much, -1, -1], [much, -1, -1]]))
    assert diarization.active.shape[1] == 1


def test_windows_at_irregular_places_vote_where_they_are():
    active = np.zeros((3, 589, 3), np.bool_)
    active[:2, :, 0] = True
    windows = Segmentation(active, np.array([0, 2700, 80_000]))  # at frames 0, 10 and 296
    diarization = reconstruct(windows, np.array([[0, -1, -1]] * 3))
    assert frame_count(windows) == 296 + 594
    assert diarization.evidence[:][:, 0].tolist() == pytest.approx(
        [1.0] * 296 + [2 / 3] * 293 + [1 / 2] * 10 + [0.0] * 291
    )
    assert np.flatnonzero(diarization.active[:, 0]).tolist() == list(range(589))  # a half is rounded to even
    assert windows.frame_starts.tolist() == [0, 10, 296]


def test_exclusive_keeps_the_better_supported_speaker():
    windows = windows_of([[1, 1, 0]] * 3)
    windows.active[1:, :300, 1] = False
    diarization = reconstruct(windows, np.array([[0, 1, -1]] * 3))
    assert (diarization.active.sum(axis=1) == 2).any()
    alone = diarization.exclusive()
    assert np.array_equal(alone >= 0, diarization.active.any(axis=1))
    assert (alone == 0).sum() > (alone == 1).sum()


def test_pauses_belong_to_the_turn_and_to_nobody_else():
    windows = windows_of([[1, 1, 0]])
    # 47 frames are 0.79 s, 48 are 0.81; around the third only one of the two goes on.
    for first, last, speakers in ((0, 9, 2), (300, 347, 2), (400, 448, 2), (460, 480, 2), (500, 589, 2)):
        windows.active[0, first:last, :speakers] = False
    windows.active[0, 448:460, 1] = False
    labels = np.array([[0, 1, -1]])
    without, diarization = (reconstruct(windows, labels) for _ in range(2))
    fill_pauses([diarization.active], 0.8)
    changed = np.flatnonzero((diarization.active != without.active).any(axis=1))
    assert list(changed) == [*range(300, 347), *range(460, 480)]
    assert diarization.active[300:347].all()
    assert diarization.active[460:480].tolist() == [[True, False]] * 20
    assert set(diarization.exclusive()[460:480]) == {0}
    assert not diarization.evidence[:][changed].any()


def test_no_pause_while_the_other_side_speaks():
    near, far = np.ones((100, 1), np.bool_), np.zeros((100, 1), np.bool_)
    near[20:40] = near[60:80] = False
    far[50:70] = True
    fill_pauses([near, far], 0.8)
    assert list(np.flatnonzero(~near[:, 0])) == [*range(60, 80)]
    assert list(np.flatnonzero(far[:, 0])) == [*range(50, 70)]


def test_two_local_speakers_of_one_cluster_count_once():
    diarization = reconstruct(windows_of([[1, 1, 0]]), np.array([[0, 0, -1]]))
    assert diarization.evidence[:].max() == 1.0
    assert diarization.active.shape[1] == 1


def test_order_of_appearance_drops_those_never_heard():
    windows = windows_of([[1, 0, 0]] + [[0, 0, 0]] * 9 + [[0, 1, 0]])
    labels = np.full((11, 3), -1)
    labels[0, 0], labels[10, 1] = 2, 0  # cluster 1 exists nowhere
    diarization = reconstruct(windows, labels)
    assert diarization.active.shape[1] == 2
    assert diarization.active[:, 0].argmax() < diarization.active[:, 1].argmax()


def test_turns_begin_and_end_at_the_middles_of_frames():
    active = np.zeros((100, 2), np.bool_)
    active[10:20, 0] = True
    active[15:100, 1] = True
    spoken = turns(active.T, ["A", "B"], 1.5)
    assert spoken == [
        Turn(pytest.approx(10 * 0.016875 + 0.03096875), pytest.approx(20 * 0.016875 + 0.03096875), "A"),
        Turn(pytest.approx(15 * 0.016875 + 0.03096875), 1.5, "B"),
    ]


def test_no_turn_beyond_the_recording():
    active = np.ones((600, 1), np.bool_)
    assert turns(active.T, ["A"], 0.3) == [Turn(pytest.approx(0.03096875), 0.3, "A")]
    assert turns(active[:1].T, ["A"], 0.01) == []


def flickers(text: str) -> np.ndarray:
    """(frames, 2) of a drawing: A and B speak alone, 2 both, - nobody."""
    return np.array([[sign in "A2", sign in "B2"] for sign in text])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("-AAAAA-BBBBBB-", "-------BBBBBB-"),  # 5 frames are 0.08 s, 6 are 0.1 s
        ("AAAAAABAAAAAA", "AAAAAAAAAAAAA"),  # what is around goes on
        ("AAAABAAAABBBBBB", "AAAAAAAAABBBBBB"),  # pieces become one before they are judged
        ("AAAAAABBBAAAAAA", "AAAAAAAAAAAAAAA"),
        ("AAAAAA22AAAAAA", "AAAAAAAAAAAAAA"),  # the other goes on anyway
        ("222222-222222", "222222-222222"),  # a pause is no flicker
        ("AAAAAA-BB-AAAAAA", "AAAAAA----AAAAAA"),
        ("BAAAAAAB", "-AAAAAA-"),
        ("AAAAAABBBBBB", "AAAAAABBBBBB"),
        ("ABABABABAB", "----------"),
        ("", ""),
    ],
)
def test_nobody_speaks_for_less_than_can_be_heard(before, after):
    active = flickers(before).reshape(-1, 2)
    drop_flickers(active)
    expected = flickers(after).reshape(-1, 2)
    if before != "ABABABABAB":  # here it does not matter who is left
        assert np.array_equal(active, expected)
    active = np.concatenate([active, np.zeros((1, 2), np.bool_)])  # a recording ends within its last frame
    assert all(turn.duration > 0.1 for turn in turns(active.T, ["A", "B"], 10.0))


def test_speakers_who_only_flicker_are_none():
    rng = np.random.default_rng(0)
    active = np.repeat(rng.random((20, 589 // 4 + 1, 3)) < 0.4, 4, axis=1)[:, :589]
    active[0, :, 2], active[0, 500:504, 2], active[1:, :, 2] = False, True, False
    windows = Segmentation.regular(active, step=10.0)
    before = reconstruct(windows, np.tile(np.arange(3), (20, 1)))
    assert before.active.shape[1] == 3
    assert min(turn.duration for turn in turns(before.active.T, list("ABC"), 200.0)) < 0.1
    after = before.steadied()
    assert after.active.shape == after.evidence.votes.shape == (len(before.active), 2)
    lengths = [turn.duration for turn in turns(after.active.T, list("AB"), 200.0)]
    assert len(lengths) > 50
    assert min(lengths) > (SHORTEST - 0.5) * 0.016875
