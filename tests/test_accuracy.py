"""The shipped defaults against recordings with references. Reported, never tuned on."""

import itertools
import json
import re

import numpy as np
import pytest
import soundfile

from conftest import ROOT, SHARED, strict_der
from witness import Options, diarize
from witness.bench import scoring
from witness.diarization import segmentation
from witness.diarization.fbank import fbank, frame_count
from witness.formats import rttm
from witness.models.catalogue import BUILTIN_FOLDER
from witness.models.session import Model
from witness.schema import FRAME_DURATION, FRAME_STEP, FRAMES, ModelFile

# What the README says: strict, collar 0, overlap counted, pooled.
RECORDED = json.loads((ROOT / "benchmarks" / "results" / "accuracy_builtin.json").read_text())["groups"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "recordings", [pytest.param("sim_*", marks=pytest.mark.figures), "pyannote_sample", "ami_*"]
)
@pytest.mark.usefixtures("open_models")
def test_no_worse_than_the_recorded_figures(evaluation, recordings):
    pairs = []
    for path in sorted(evaluation.glob(f"{recordings}.rttm")):
        found = diarize(path.with_suffix(".flac"), Options(models="builtin", offline=True))
        (reference,) = rttm.parse(path.read_text()).values()
        pairs.append((scoring.merged(reference), found.turns, found.audio.duration))
    assert pairs
    assert 100 * strict_der(pairs) <= RECORDED[recordings]["der"] + 0.5  # another CPU rounds otherwise


def test_segmentation_inside_single_windows(evaluation):
    """5.3 % of the speech in windows a second apart, each with its own names (training/cards)."""
    file = BUILTIN_FOLDER / "segmentation.onnx"
    model = segmentation.load(ModelFile("segmentation", str(file), ""))
    samples, rate = soundfile.read(evaluation / "pyannote_sample.flac", dtype="float32")
    (reference,) = rttm.parse((evaluation / "pyannote_sample.rttm").read_text()).values()
    names = sorted({turn.speaker for turn in reference})
    wrong = total = 0
    for second in range(len(samples) // rate - 9):
        middles = second + np.arange(FRAMES) * FRAME_STEP + FRAME_DURATION / 2
        spoken = np.zeros((FRAMES, 3), np.bool_)
        for turn in reference:
            spoken[(middles >= turn.start) & (middles < turn.end), names.index(turn.speaker)] = True
        found = segmentation.decode(model(samples[second * rate :][: 10 * rate], np.zeros(1, np.intp)))[0]
        correct = max((found[:, order] & spoken).sum() for order in itertools.permutations(range(3)))
        wrong += np.maximum(found.sum(axis=1), spoken.sum(axis=1)).sum() - correct
        total += spoken.sum()
    assert 100 * wrong / total < 7.0


@pytest.mark.figures
@pytest.mark.parametrize(
    ("corpus", "who", "most"),
    [("train", r".", 5.5), ("train2", r"_(?:[1-9]|1[0-5])[a-z]$", 8.0)],  # 5.0 and 7.3
    ids=["everybody", "children"],
)
def test_strangers_by_three_seconds_of_speech(corpus, who, most):
    """Equal error rate of the first 3 s of every held-out clip; with all pieces of everybody 4.25 %
    (training/cards).
    """
    folder = SHARED / "data" / corpus
    if not folder.is_dir():
        pytest.skip(f"the training speech is not here (shared/data/{corpus})")
    index = json.loads((folder / "index.json").read_text())
    chosen = [bool(re.search(who, name)) for name in index["speakers"]]
    rows = np.array([row for row in index["index"] if row[4] == 1 and chosen[row[3]]])
    model = Model(str(BUILTIN_FOLDER / "embedding.onnx"), "embedding")
    vectors, speakers = [], []
    for part in np.unique(rows[:, 0]):
        held_out = rows[rows[:, 0] == part]
        end = int((held_out[:, 1] + held_out[:, 2]).max())
        speech, rate = soundfile.read(folder / f"part{part}.ogg", frames=end, dtype="float32")
        for _, start, length, speaker, _ in held_out:
            samples = speech[start : start + length][: 3 * rate]
            if len(samples) < rate:
                continue
            feats = fbank(samples, 0, frame_count(len(samples)))
            vector = model((feats - feats.mean(axis=0))[None])[0]
            vectors.append(vector / np.linalg.norm(vector))
            speakers.append(speaker)
    alike = np.array(vectors) @ np.array(vectors).T
    pairs = np.triu(np.ones(alike.shape, np.bool_), 1)
    same = np.equal.outer(speakers, speakers)
    own, others = np.sort(alike[pairs & same]), np.sort(alike[pairs & ~same])
    missed = np.arange(len(own)) / len(own)  # at a threshold of each own score
    taken = 1 - np.searchsorted(others, own) / len(others)
    assert len(own) > 200
    assert 100 * missed[np.argmax(missed >= taken)] < most
