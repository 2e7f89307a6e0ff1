"""The benchmarks' own arithmetic, on made-up material."""

import importlib.util
import sys

import numpy as np
import pytest

from conftest import ROOT
from witness.diarization import reconstruction
from witness.models import catalogue
from witness.schema import Segmentation, Turn


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_clustering", ROOT / "benchmarks" / "clustering.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def random_turns(rng: np.random.Generator, names: str) -> list[Turn]:
    starts = rng.uniform(0, 60, 25)
    return sorted(Turn(a, a + rng.uniform(0.1, 8), str(rng.choice(list(names)))) for a in starts)


def union(turns: list[Turn]) -> list[Turn]:
    """One speaker's turns that overlap as one: as pyannote.metrics counts speech."""
    found: list[Turn] = []
    for turn in sorted(turns, key=lambda turn: (turn.speaker, turn.start)):
        if found and found[-1].speaker == turn.speaker and turn.start <= found[-1].end:
            turn = Turn(found[-1].start, max(turn.end, found.pop().end), turn.speaker)
        found.append(turn)
    return sorted(found)


@pytest.mark.parametrize("seed", range(5))
def test_errors_are_pyannotes(bench, seed):
    pytest.importorskip("pyannote.metrics")
    from witness.bench import scoring

    rng = np.random.default_rng(seed)
    reference, hypothesis = union(random_turns(rng, "abc")), union(random_turns(rng, "vwxyz"))
    (score,) = scoring.score({"f": (reference, hypothesis)}, {"f": [(0.0, 62.0)]})
    found = bench.errors(reference, hypothesis, 62.0)
    assert found[:4] == pytest.approx(score.seconds["strict"], abs=1e-6)
    assert found[4:6] == pytest.approx(score.jaccard, abs=1e-6)
    assert found[6] == score.hypothesis_speakers - score.reference_speakers


def test_every_variant_runs(bench):
    """Two voices by turns, and a PLDA from other recordings of the same two."""
    rng = np.random.default_rng(0)
    windows, seconds = 60, 69.0
    said = [Turn(6.0 * n, 6.0 * n + 5.5, "ab"[n % 2]) for n in range(11)]
    active = np.zeros((windows, 589, 3), np.bool_)
    vectors = np.full((windows, 3, 40), np.nan, np.float32)
    for window in range(windows):
        middles = window + np.arange(589) * reconstruction.FRAME_STEP
        for local, name in enumerate("ab"):
            for turn in said:
                if turn.speaker == name:
                    active[window, :, local] |= (middles >= turn.start) & (middles < turn.end)
            if active[window, :, local].sum() >= 10:
                vectors[window, local] = np.eye(40)[local] * 5 + rng.normal(0, 0.3, 40)
    found = [bench.Case(f"r_{n}", seconds, Segmentation.regular(active), vectors, said) for n in range(4)]
    rule = catalogue.SETS["builtin"].rule
    for name, variant in bench.variants(rule, bench.folds(found, rule)).items():
        errors = bench.errors(said, variant(found[0]), seconds)
        assert errors[:3].sum() / errors[3] < 0.05, name
        assert errors[6] == 0, name
    row = bench.summary(np.array([errors, errors]), np.array([errors, errors]))
    assert row["interval"] == [0.0, 0.0]
    assert row["exact"] == 2
