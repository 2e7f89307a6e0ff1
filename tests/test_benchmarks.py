"""The benchmarks' own arithmetic, on made-up material."""

import importlib.util
import sys

import numpy as np
import pytest

from conftest import ROOT
from witness.diarization import clustering, reconstruction
from witness.models import catalogue
from witness.schema import Segmentation, Track, Turn


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("bench_clustering", ROOT / "benchmarks" / "clustering.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_every_row_of_the_rule_runs(bench):
    """Two voices by turns, who now and then talk at the same time."""
    pytest.importorskip("pyannote.metrics")
    rng = np.random.default_rng(0)
    windows, seconds = 60, 69.0
    said = [Turn(6.0 * n, 6.0 * n + 6.2, "ab"[n % 2]) for n in range(11)]
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
    case = bench.Case("r", seconds, Track(Segmentation.regular(active), vectors), said)
    rule = catalogue.SETS["builtin"].rule
    before = vars(clustering).copy()
    for name, row in bench.ROWS.items():
        errors = bench.errors(case, row(case, rule).labels, rule)
        assert errors[:3].sum() / errors[3] < 0.05, name
        assert errors[4] == 0, name
    assert vars(clustering) == before  # what a row changes is changed back
    row = bench.summary(np.array([errors, errors]), np.array([errors, errors]))
    assert row["less shipped, interval"] == [0.0, 0.0]
    assert row["right"] == "2 of 2"
    votes = bench.votes([case], rule)
    assert (votes["right"], votes["right with one cut"], votes["changed"]) == (1, 1, 0)
    assert votes["by share"]["share up to 1.0"] == {"recordings": 1, "right": 1, "runner-up right": 0}
