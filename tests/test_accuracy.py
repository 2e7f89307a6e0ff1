"""The shipped defaults against recordings with references. Reported, never tuned on."""

import pytest
from pyannote.core import Annotation, Segment, Timeline
from pyannote.metrics.diarization import DiarizationErrorRate

from witness import Options, diarize, rttm

# Figures of the prototype models with the script they came with, strict: collar 0, overlap counted, pooled.
PROTOTYPE = {"sim_*": 0.202, "pyannote_sample": 0.174}


def annotation(turns) -> Annotation:
    result = Annotation()
    for number, turn in enumerate(turns):
        result[Segment(turn.start, turn.end), number] = turn.speaker
    return result


@pytest.mark.parametrize("recordings", PROTOTYPE)
def test_no_worse_than_the_prototypes_own_figures(evaluation, recordings):
    error = DiarizationErrorRate()
    paths = sorted(evaluation.glob(f"{recordings}.rttm"))
    assert paths
    for path in paths:
        found = diarize(str(path.with_suffix(".flac")), Options(models="builtin", offline=True))
        (reference,) = rttm.parse(path.read_text()).values()
        whole = Timeline([Segment(0, found.audio.duration)])
        error(annotation(reference), annotation(found.turns), uem=whole)
    assert abs(error) <= PROTOTYPE[recordings]
