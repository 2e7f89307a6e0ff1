"""The shipped defaults against recordings with references. Reported, never tuned on."""

import pytest

from conftest import strict_der
from witness import Options, diarize, rttm

# Figures of the prototype models with the script they came with, strict: collar 0, overlap counted, pooled.
PROTOTYPE = {"sim_*": 0.202, "pyannote_sample": 0.174}


@pytest.mark.parametrize("recordings", PROTOTYPE)
def test_no_worse_than_the_prototypes_own_figures(evaluation, recordings):
    pairs = []
    for path in sorted(evaluation.glob(f"{recordings}.rttm")):
        found = diarize(path.with_suffix(".flac"), Options(models="builtin", offline=True))
        (reference,) = rttm.parse(path.read_text()).values()
        pairs.append((reference, found.turns, found.audio.duration))
    assert pairs
    assert strict_der(pairs) <= PROTOTYPE[recordings]
