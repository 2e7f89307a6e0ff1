"""The shipped defaults against recordings with references. Reported, never tuned on."""

import json

import pytest

from conftest import ROOT, strict_der
from witness import Options, diarize, rttm

# What the README says: strict, collar 0, overlap counted, pooled.
RECORDED = json.loads((ROOT / "benchmarks" / "results" / "accuracy_builtin.json").read_text())["groups"]


@pytest.mark.parametrize("recordings", ["sim_*", "pyannote_sample", "ami_*"])
def test_no_worse_than_the_recorded_figures(evaluation, recordings):
    pairs = []
    for path in sorted(evaluation.glob(f"{recordings}.rttm")):
        found = diarize(path.with_suffix(".flac"), Options(models="builtin", offline=True))
        (reference,) = rttm.parse(path.read_text()).values()
        pairs.append((reference, found.turns, found.audio.duration))
    assert pairs
    assert 100 * strict_der(pairs) <= RECORDED[recordings]["der"] + 0.5  # another CPU rounds otherwise
