"""The rules compared in benchmarks/words.py: the measures by hand, and that merging holds its own there."""

import sys

import numpy as np
import pytest

from conftest import ROOT, SHARED
from witness.diarization.reconstruction import Diarization
from witness.schema import Evidence, Turn, Word

sys.path.insert(0, str(ROOT / "benchmarks"))
import words

TURNS = [Turn(0.0, 2.0, "A"), Turn(2.0, 3.0, "B"), Turn(3.0, 4.2, "A"), Turn(4.2, 6.0, "B")]


def heard(items: list[tuple[float, float, str, int]]) -> words.Heard:
    """From (start, end, text, segment)."""
    found = [Word(start, end, f" {text}") for start, end, text, _ in items]
    segments = [segment for *_, segment in items]
    nobody = Diarization(
        Evidence(np.zeros((0, 2), np.uint8), np.zeros(0, np.uint8)), np.zeros((0, 2), np.bool_)
    )
    return words.Heard("x", [], found, [], [], segments, segments, nobody, ["A", "B"], TURNS)


def test_the_other_rules_by_hand():
    found = heard([(0.5, 1.0, "a", 0), (2.1, 2.5, "b", 0), (2.9, 4.3, "c", 1), (9.0, 9.5, "d", 2)])
    # Segment 0 lies 1.5 s under the first turn, 0.5 s under the second; nobody speaks after 6 s.
    assert words.largest_turn(found, found.segments) == ["A", "A", "A", None]
    assert words.largest_sum(found) == ["A", "B", "A", None]


def test_word_diarization_error_by_hand():
    truth = ["x", "x", "y", "y", None, "y"]
    assert words.wrong_words(truth, ["1", "1", "2", "2", "2", "2"]) == (0, 5)
    assert words.wrong_words(truth, ["1", "2", "2", "2", None, None]) == (2, 5)
    assert words.wrong_words(truth, ["1"] * 6) == (2, 5)  # one name cannot stand for two speakers
    assert words.wrong_words(truth, [None] * 6) == (5, 5)


def test_the_material_is_always_the_same_and_goes_together():
    once, again = (
        words._heard(
            "x",
            words.speak(TURNS, rng),
            8.0,
            words.hear(TURNS, 8.0, rng, exact=False),
            rng,
        )
        for rng in (np.random.default_rng(3), np.random.default_rng(3))
    )
    assert once.words == again.words
    assert len(once.words) == len(once.truth) == len(once.segments) == len(once.sentences) > 10
    assert all(before.end <= word.start for before, word in zip(once.words, once.words[1:], strict=False))


def test_an_exact_diarizer_hears_the_turns():
    found = words.hear(TURNS, 8.0, np.random.default_rng(0), exact=True)
    for turn in TURNS:
        frames = slice(
            round((turn.start + 0.1) / words.FRAME_STEP), round((turn.end - 0.1) / words.FRAME_STEP)
        )
        assert found.active[frames, "AB".index(turn.speaker)].all()
        assert not found.active[frames, 1 - "AB".index(turn.speaker)].any()


@pytest.mark.slow
def test_merging_beats_the_other_rules(tmp_path):
    """On a twelfth of the material: well below the original's rule, below whisperX's."""
    folder = SHARED / "data" / "voxconverse" / "dev"
    if not folder.is_dir():
        pytest.skip("VoxConverse's references are not here (shared/data/voxconverse)")
    for path in sorted(folder.glob("*.rttm"))[1::12]:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    material = list(words.simulated(tmp_path, "all", "noisy"))
    original, _, whisperx, ours = (
        sum(words.wrong_words(item.truth, rule(item))[0] for item in material)
        for rule in words.RULES.values()
    )
    assert ours < 0.6 * original
    assert ours < 0.9 * whisperx
