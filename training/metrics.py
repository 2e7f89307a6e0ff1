"""The two figures that training watches: equal error rate, and diarization error inside one window."""

import itertools

import numpy as np


def equal_error_rate(same: np.ndarray, different: np.ndarray) -> tuple[float, float]:
    """Scores of same-speaker and different-speaker pairs -> (rate in per cent, threshold)."""
    same, different = np.sort(same), np.sort(different)
    thresholds = np.quantile(np.concatenate([same, different]), np.linspace(0, 1, 8001))
    accepted = 1 - np.searchsorted(different, thresholds) / len(different)
    rejected = np.searchsorted(same, thresholds) / len(same)
    at = np.argmin(abs(accepted - rejected))
    return 100 * float(accepted[at] + rejected[at]) / 2, float(thresholds[at])


def pair_scores(
    vectors: np.ndarray, speakers: np.ndarray, clips: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of all pairs of pieces from different clips: (same speaker, different speakers)."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    one, other = np.triu_indices(len(unit), 1)
    apart = clips[one] != clips[other]
    one, other = one[apart], other[apart]
    scores = (
        np.einsum("ij,ij->i", unit[one], unit[other]) if len(one) < 50_000 else (unit @ unit.T)[one, other]
    )
    same = speakers[one] == speakers[other]
    return scores[same], scores[~same]


def window_errors(hypothesis: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """(frames, speakers) 0/1 arrays -> [false alarm, missed, confusion, total] in frames, under the best
    mapping.
    """
    width = max(hypothesis.shape[1], reference.shape[1])
    hypothesis = np.pad(hypothesis.astype(int), ((0, 0), (0, width - hypothesis.shape[1])))
    reference = np.pad(reference.astype(int), ((0, 0), (0, width - reference.shape[1])))
    said, heard = reference.sum(1), hypothesis.sum(1)
    together = reference.T @ hypothesis
    correct = max(
        sum(together[i, j] for i, j in enumerate(order)) for order in itertools.permutations(range(width))
    )
    confusion = int(np.minimum(said, heard).sum()) - correct
    return np.array(
        [np.maximum(heard - said, 0).sum(), np.maximum(said - heard, 0).sum(), confusion, said.sum()]
    )


def describe(errors: np.ndarray) -> str:
    """[false alarm, missed, confusion, total] -> "12.3 % (fa 1.0 miss 2.0 conf 9.3)"."""
    alarm, missed, confusion, total = (float(value) for value in errors)
    share = 100 / max(total, 1)
    return (
        f"{(alarm + missed + confusion) * share:.1f} % (fa {alarm * share:.1f} miss {missed * share:.1f}"
        f" conf {confusion * share:.1f})"
    )
