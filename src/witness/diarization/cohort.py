"""Voices of strangers that give the cosine of two voices its meaning, for any voice model and line.

The likeness of two people differs from model to model, and on one telephone line all people sound more alike.
So a cosine is compared with those of both voices with strangers, whose speech the package brings: adaptive
symmetric score normalization (AS-norm, Matejka et al., "Analysis of Score Normalization in Multilingual
Speaker Recognition", Interspeech 2017). Its accuracy: docs/benchmarks.md, "Known people".
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from witness.diarization import voice_model
from witness.diarization.voice_model import AnyVoiceModel
from witness.errors import ModelError
from witness.models import catalogue, on_disk
from witness.schema import (
    FRAMES,
    LOCAL_SPEAKERS,
    SAMPLE_RATE,
    WINDOW_SAMPLES,
    Float64,
    ModelFile,
    Segmentation,
)
from witness.storage.cache import cache_folder, cached

SPEECH = Path(__file__).parent / "cohort.ogg"
"""VOICES people, CLIP samples of each; made by training/cohort.py (in c2f3b41)."""
VOICES = 100
CLIP = 5 * SAMPLE_RATE
BAND = 300, 3400
"""Hz: half of the people, every other pair of a low and a high voice, are on the telephone."""
HISS = 1e-3  # of the telephone line; the clips have a peak of 0.5
NEAREST = 30
"""Of the cohort, those most alike to a voice: to one on the telephone, others on the telephone."""
_VERSION = 1  # of the vectors in the cache


@dataclass(frozen=True)
class Cohort:
    """Strangers' voices, by one voice model."""

    vectors: Float64
    """(VOICES, dims), of length 1."""

    def scores(self, voices: Float64, others: Float64) -> Float64:
        """(voices, others): the likeness of two voices beyond that of either to strangers.

        The voices are (n, dims), of length 1. In standard deviations of the cosines with the NEAREST
        strangers, the mean of both sides.
        """
        alike = voices @ others.T
        (mean, spread), (other_mean, other_spread) = self._strangers(voices), self._strangers(others)
        from_voices = (alike - mean[:, None]) / spread[:, None]
        scores: Float64 = (from_voices + (alike - other_mean) / other_spread) / 2
        return scores

    def score(self, voice: Float64, other: Float64) -> float:
        """`scores` of two voices, (dims,) each."""
        return float(self.scores(voice[None], other[None])[0, 0])

    def _strangers(self, voices: Float64) -> tuple[Float64, Float64]:
        """(n,) each: mean and deviation of the cosines of voices (n, dims) with their NEAREST strangers."""
        near = np.sort(voices @ self.vectors.T, axis=1)[:, -NEAREST:]
        return near.mean(axis=1), np.maximum(near.std(axis=1), 1e-6)


def load(file: ModelFile, model: AnyVoiceModel | None = None) -> Cohort:
    """The cohort by the voice model in `file`, which is opened unless it is given.

    The vectors are computed once, in about ten seconds, and kept in the user's cache folder by the sha256
    of the model. Raises ModelError.
    """

    def make() -> tuple[bytes]:
        content = io.BytesIO()
        np.save(content, _embedded(model or voice_model.load(_located(file))), allow_pickle=False)
        return (content.getvalue(),)

    if not file.sha256:
        (content,) = make()
    else:
        folder = cache_folder() / "cohorts" / f"{file.sha256}-{_VERSION}"
        (content,) = cached(folder, ("vectors.npy",), make)
    return Cohort(np.load(io.BytesIO(content), allow_pickle=False))


def _located(file: ModelFile) -> ModelFile:
    """A model whose file is known: a transcript knows no more than its name and sha256. Raises ModelError."""
    if file.path:
        return file
    entry = catalogue.find_by_sha256(file.sha256)
    path = on_disk.locate(entry) if entry else None
    if path is None:
        raise ModelError(
            f"the voice model {file.name} is not on this machine, and neither are strangers' voices by it; "
            "fix: transcribe a recording with it and --known once"
        )
    return replace(file, path=str(path))


def _embedded(model: AnyVoiceModel) -> Float64:
    """(VOICES, dims): the voices of the package by this model. Raises ModelError."""
    from scipy.signal import butter, sosfilt

    from witness.audio import decode

    (speech,) = decode.load(str(SPEECH)).samples
    active = np.zeros((1, FRAMES, LOCAL_SPEAKERS), np.bool_)
    active[0, : FRAMES * CLIP // WINDOW_SAMPLES, 0] = True
    alone = Segmentation.regular(active)
    band = butter(6, BAND, "bandpass", fs=SAMPLE_RATE, output="sos")
    hiss = np.random.default_rng(0).normal(0.0, HISS, CLIP)
    vectors = []
    for number in range(VOICES):
        clip = speech[number * CLIP : (number + 1) * CLIP]
        if number // 2 % 2:
            clip = (sosfilt(band, clip) + hiss).astype(np.float32)
        vectors.append(voice_model.embed(clip, [alone], model)[0, 0])
    unit = np.stack(vectors).astype(np.float64)
    if not np.isfinite(unit).all():
        raise ModelError("a voice of the cohort has no vector; fix: install Witness again")
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return unit
