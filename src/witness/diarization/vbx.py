"""Variational Bayes over PLDA features: the speakers of a first clustering that are needed, and their
vectors.

The Gaussian mixture of pyannote community-1 (no speaker transitions; arXiv 2510.19572, section 3.1), a
simplification of VBx. Equation numbers are those of Landini, Profant, Diez, Burget: "Bayesian HMM clustering
of x-vector sequences (VBx)". In float64, because in float32 speakrs lost a speaker of one recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from witness.errors import ModelError
from witness.schema import Float32, Float64, Int, ModelFile

# These are community-1's: its config.yaml, and pyannote's `cluster_vbx`.
ROUNDS = 20
LEAST_GAIN = 1e-4  # of the objective in one round; with less the iteration ends
SHARPNESS = 7.0  # of the first clustering, made soft by a softmax
LEAST_PRIOR = 1e-7  # share of the vectors; a speaker with less is not needed


FA = 0.07  # weight of a vector; below 1 because neighboring windows share most of their speech
FB = 0.8  # cost of a speaker


@dataclass(frozen=True)
class Plda:
    """A model of voice vectors: once projected, those of one speaker spread as a unit Gaussian.

    The sizes are those of community-1.
    """

    mean1: Float64
    """(256,) mean of raw vectors."""
    lda: Float64
    """(256, 128) reduction of centered, normalized vectors."""
    mean2: Float64
    """(128,) mean after `lda`."""
    mu: Float64
    """(128,) mean of centered, normalized and reduced vectors."""
    transform: Float64
    """(128, 128) projection; rows by falling `phi`."""
    phi: Float64
    """(128,) variance between speakers in each direction."""

    def project(self, vectors: Float32 | Float64) -> Float64:
        """(n, 256) raw voice vectors -> (n, 128) with variance 1 within a speaker."""
        dims, reduced = self.lda.shape
        centered = np.sqrt(dims) * _unit(vectors.astype(np.float64) - self.mean1)
        small = np.sqrt(reduced) * _unit(centered @ self.lda - self.mean2)
        features: Float64 = (small - self.mu) @ self.transform.T
        return features


def from_parameters(parts: Mapping[str, Float64]) -> Plda:
    """A `Plda` from the published arrays mean1, mean2, lda, mu, tr and psi.

    `tr` and `psi` are diagonalized again, since published ones may be scaled differently and in any order.
    Raises KeyError, ValueError or LinAlgError if the arrays do not fit together.
    """
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
    """The arrays of a PLDA from six .npy files, for `from_parameters`; empty without files.

    Raises ModelError if a file cannot be read or they do not fit together.
    """
    parts = {name: _array(file.path) for name, file in files.items()}
    try:
        check(parts)
    except ValueError as error:
        places = ", ".join(file.path for file in files.values())
        raise ModelError(
            f"{places}: do not fit together ({error}); fix: give the six files of one PLDA"
        ) from error
    return parts


def check(parts: Mapping[str, Float64], size: int | None = None) -> None:
    """Raise ValueError unless the arrays are a PLDA of vectors of `size` numbers (None: of any), or none."""
    if not parts:
        return
    try:
        with np.errstate(all="ignore"):
            plda = from_parameters(parts)
            projected = plda.project(np.eye(len(plda.mean1) if size is None else size))
    except (KeyError, IndexError, ValueError) as error:  # LinAlgError is a ValueError
        raise ValueError(f"the arrays of the PLDA do not fit together ({error})") from error
    if not (np.isfinite(projected).all() and np.isfinite(plda.phi).all()):
        raise ValueError("the arrays of the PLDA hold no numbers")


def _array(path: str) -> Float64:
    try:
        array: Float64 = np.load(path, allow_pickle=False).astype(np.float64)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: is not an array of numbers ({error}); fix: fetch it again") from error
    return array


def refine(
    features: Float64, phi: Float64, labels: Int, weights: Float64, fa: float = FA, fb: float = FB
) -> Float64:
    """(n, speakers): the probability that each vector is of each speaker that is needed.

    `features` is (n, dims), with unit variance within a speaker and variance `phi` (dims,) between speakers;
    `labels` (n,) is the first clustering, 0, 1, ... without a gap; a vector counts `weights` (n,) times.
    """
    from scipy.special import softmax

    gamma = softmax(SHARPNESS * np.eye(int(labels.max()) + 1)[labels], axis=1)
    gamma, prior = iterate(features, phi, gamma, weights, fa, fb)
    needed: Float64 = gamma[:, prior > LEAST_PRIOR]
    return needed


def iterate(
    features: Float64, phi: Float64, gamma: Float64, weights: Float64, fa: float = FA, fb: float = FB
) -> tuple[Float64, Float64]:
    """Responsibilities (n, speakers) and priors (speakers,), from first responsibilities `gamma`.

    The other arguments are those of `refine`. Ends after ROUNDS, or when the objective stops rising.
    """
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
