"""Variational Bayes over PLDA features: which speakers of a first clustering are needed, and who is whose.

The Gaussian mixture of pyannote community-1 (no speaker transitions; arXiv 2510.19572, section 3.1), a
simplification of VBx. Equation numbers are those of Landini, Profant, Diez, Burget: "Bayesian HMM clustering
of x-vector sequences (VBx)". In float64: in float32 speakrs lost a speaker of one recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from witness.errors import ModelError
from witness.schema import Float32, Float64, Int, ModelFile

# Of community-1: its config.yaml and the defaults of pyannote's `cluster_vbx`.
FA = 0.07  # how much a vector counts: neighbouring windows share most of their speech
FB = 0.8  # how much a speaker costs
ROUNDS = 20
LEAST_GAIN = 1e-4  # of the objective in a round
SHARPNESS = 7.0  # of the first clustering as a softmax
LEAST_PRIOR = 1e-7  # a speaker with less of the vectors is not needed


@dataclass(frozen=True)
class Plda:
    """A model of voice vectors: once projected, those of one speaker spread as a unit Gaussian."""

    mean1: Float64
    """(256,) of raw vectors."""
    lda: Float64
    """(256, 128)"""
    mean2: Float64
    """(128,) after `lda`."""
    mu: Float64
    """(128,) of what is centred, normalised and reduced."""
    transform: Float64
    """(128, 128), rows by falling `phi`."""
    phi: Float64
    """(128,) variance between speakers in each direction."""

    def project(self, vectors: Float32 | Float64) -> Float64:
        """(n, 256) raw voice vectors -> (n, 128) in which the variance within a speaker is 1."""
        dims, reduced = self.lda.shape
        centred = np.sqrt(dims) * _unit(vectors.astype(np.float64) - self.mean1)
        small = np.sqrt(reduced) * _unit(centred @ self.lda - self.mean2)
        features: Float64 = (small - self.mu) @ self.transform.T
        return features


def from_parameters(parts: Mapping[str, Float64]) -> Plda:
    """A `Plda` from the published arrays mean1, mean2, lda, mu, tr and psi, its transform made canonical."""
    from scipy.linalg import eigh

    tr, psi = parts["tr"], parts["psi"]
    within = np.linalg.inv(tr.T @ tr)
    between = np.linalg.inv((tr.T / psi) @ tr)
    phi, directions = eigh(between, within)
    order = slice(None, None, -1)
    return Plda(
        parts["mean1"],
        parts["lda"],
        parts["mean2"],
        parts["mu"],
        directions.T[order].copy(),
        phi[order].copy(),
    )


def read(files: Mapping[str, ModelFile]) -> dict[str, Float64]:
    """The arrays in six .npy files, as `from_parameters` takes them; none of no files. Raises ModelError."""
    parts = {name: _array(file.path) for name, file in files.items()}
    if not parts:
        return {}
    try:
        plda = from_parameters(parts)
        plda.project(np.ones((1, len(plda.mean1))))
    except (ValueError, KeyError, np.linalg.LinAlgError) as error:
        places = ", ".join(file.path for file in files.values())
        raise ModelError(f"{places}: do not fit together ({error}); give the six of one PLDA") from error
    return parts


def _array(path: str) -> Float64:
    try:
        array: Float64 = np.load(path, allow_pickle=False).astype(np.float64)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: is no array of numbers ({error}); fetch it again") from error
    return array


def refine(
    features: Float64, phi: Float64, labels: Int, weights: Float64, *, fa: float = FA, fb: float = FB
) -> Float64:
    """(n, speakers): how much each vector is each needed speaker's, from first `labels` 0, 1, ... of all n.

    `features` is (n, dims) with unit variance within a speaker and `phi` (dims,) between them; each counts as
    often as `weights` (n,) says.
    """
    from scipy.special import softmax

    gamma = softmax(SHARPNESS * np.eye(int(labels.max()) + 1)[labels], axis=1)
    gamma, prior = iterate(features, phi, gamma, weights, fa=fa, fb=fb)
    needed: Float64 = gamma[:, prior > LEAST_PRIOR]
    return needed


def iterate(
    features: Float64, phi: Float64, gamma: Float64, weights: Float64, *, fa: float = FA, fb: float = FB
) -> tuple[Float64, Float64]:
    """Responsibilities (n, speakers) and priors (speakers,), from responsibilities to begin with."""
    from scipy.special import log_softmax, logsumexp

    constant = -0.5 * ((features**2).sum(axis=1, keepdims=True) + features.shape[1] * np.log(2 * np.pi))
    rho = features * np.sqrt(phi)  # (18)
    prior = np.full(gamma.shape[1], 1 / gamma.shape[1])
    before = -np.inf
    for _ in range(ROUNDS):
        counted = gamma * weights[:, None]
        precision = 1 + fa / fb * counted.sum(axis=0)[:, None] * phi
        alpha = fa / fb * (counted.T @ rho) / precision  # (16)
        spread = 1 / precision  # (17)
        likelihood = fa * (rho @ alpha.T - 0.5 * (spread + alpha**2) @ phi + constant)  # (23)
        joint = likelihood + np.log(prior + 1e-8)
        gamma = np.exp(log_softmax(joint, axis=1))
        prior = weights @ gamma / weights.sum()
        evidence = float(weights @ logsumexp(joint, axis=1))
        objective = evidence + fb * 0.5 * float((np.log(spread) - spread - alpha**2 + 1).sum())  # (25)
        if objective - before < LEAST_GAIN:
            break
        before = objective
    return gamma, prior


def _unit(vectors: Float64) -> Float64:
    unit: Float64 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit
