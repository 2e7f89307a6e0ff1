import numpy as np
import pytest
from scipy.special import softmax

from witness.diarization import vbx
from witness.errors import ModelError
from witness.schema import ModelFile


def random_parameters(rng: np.random.Generator, dims: int = 12, reduced: int = 6) -> dict[str, np.ndarray]:
    return {
        "mean1": rng.normal(size=dims),
        "lda": rng.normal(size=(dims, reduced)),
        "mean2": rng.normal(size=reduced),
        "mu": rng.normal(size=reduced),
        "tr": rng.normal(size=(reduced, reduced)),
        "psi": rng.uniform(0.1, 5.0, reduced),
    }


def test_golden_responsibilities_and_priors(golden):
    features, phi = golden("pipeline_plda_features"), golden("pipeline_plda_phi")
    labels = golden("pipeline_ahc_clusters")
    ones = np.ones(len(labels))
    gamma, prior = vbx.iterate(features, phi, softmax(7 * np.eye(2)[labels], axis=1), ones)
    assert np.abs(gamma - golden("pipeline_vbx_gamma")).max() < 1e-12
    assert np.abs(prior - golden("pipeline_vbx_pi")).max() < 1e-12
    assert np.array_equal(vbx.refine(features, phi, labels, ones), gamma)


def test_speakers_that_are_not_needed_go():
    rng = np.random.default_rng(0)
    phi = np.linspace(20, 1, 128)
    voices = rng.normal(size=(2, 128)) * np.sqrt(phi)
    features = np.repeat(voices, 60, axis=0) + rng.normal(size=(120, 128))
    labels = np.repeat(np.arange(6), 20)  # three clusters a voice
    gamma = vbx.refine(features, phi, labels, np.ones(120))
    assert gamma.shape == (120, 2)
    assert len(set(gamma.argmax(axis=1)[:60])) == len(set(gamma.argmax(axis=1)[60:])) == 1


def test_a_weight_is_a_number_of_vectors():
    rng = np.random.default_rng(1)
    phi = np.linspace(10, 1, 8)
    features = rng.normal(size=(30, 8)) * np.sqrt(1 + phi)
    labels = np.arange(30) % 3
    weights = rng.integers(1, 5, 30)
    repeated = np.repeat(np.arange(30), weights)
    once = vbx.refine(features, phi, labels, weights.astype(float))
    many = vbx.refine(features[repeated], phi, labels[repeated], np.ones(len(repeated)))
    assert np.allclose(once[repeated], many)


def test_strength_is_the_weight_of_a_vector_and_the_cost_of_a_speaker():
    rng = np.random.default_rng(7)
    phi = np.linspace(20, 1, 16)
    features = np.repeat(rng.normal(size=(2, 16)) * np.sqrt(phi), 40, axis=0) + rng.normal(size=(80, 16))
    labels, ones = np.repeat(np.arange(2), 40), np.ones(80)
    usual = vbx.refine(features, phi, labels, ones)
    assert np.array_equal(vbx.refine(features, phi, labels, ones, fa=0.07, fb=0.8), usual)
    assert usual.max(axis=1).min() > 0.99
    for weak in ({"fa": 1e-6}, {"fb": 1e6}):
        assert vbx.refine(features, phi, labels, ones, **weak).max() < 0.6


def test_projection_makes_both_covariances_diagonal():
    """What community-1 stores is a within-class whitening and between-class variances in it, in any order."""
    parts = random_parameters(np.random.default_rng(2))
    plda = vbx.from_parameters(parts)
    within = np.linalg.inv(parts["tr"].T @ parts["tr"])
    between = np.linalg.inv((parts["tr"].T / parts["psi"]) @ parts["tr"])
    assert np.allclose(plda.transform @ within @ plda.transform.T, np.eye(6))
    assert np.allclose(plda.transform @ between @ plda.transform.T, np.diag(plda.phi))
    assert np.allclose(plda.phi, np.sort(parts["psi"])[::-1])


def test_projection_step_by_step():
    parts = random_parameters(np.random.default_rng(3))
    plda = vbx.from_parameters(parts)
    vector = np.random.default_rng(4).normal(size=12)
    centered = vector - parts["mean1"]
    centered *= np.sqrt(12) / np.linalg.norm(centered)
    small = parts["lda"].T @ centered - parts["mean2"]
    small *= np.sqrt(6) / np.linalg.norm(small)
    wanted = plda.transform @ (small - parts["mu"])
    assert np.allclose(plda.project(vector[None].astype(np.float64))[0], wanted)


def write_all(folder, parts) -> dict[str, ModelFile]:
    files = {}
    for name, array in parts.items():
        np.save(
            folder / f"plda_{name}.npy", array.astype(np.float32 if name in ("lda", "mean2") else np.float64)
        )
        files[name] = ModelFile(f"plda-{name}", str(folder / f"plda_{name}.npy"), "")
    return files


def test_six_files_make_a_plda(tmp_path):
    parts = random_parameters(np.random.default_rng(5))
    plda = vbx.from_parameters(vbx.read(write_all(tmp_path, parts)))
    assert np.allclose(plda.lda, parts["lda"], atol=1e-6)
    assert plda.lda.dtype == np.float64  # two of the published six are stored in half of that
    assert np.allclose(plda.phi, np.sort(parts["psi"])[::-1])


@pytest.mark.parametrize("fault", ["no array", "pickle", "another size", "gone"])
def test_files_that_are_no_plda_are_refused_in_one_line(tmp_path, fault):
    parts = random_parameters(np.random.default_rng(6))
    files = write_all(tmp_path, parts)
    path = tmp_path / "plda_tr.npy"
    if fault == "no array":
        path.write_bytes(b"no array")
    elif fault == "pickle":
        np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    elif fault == "another size":
        np.save(path, np.eye(5))
    else:
        path.unlink()
    with pytest.raises(ModelError, match=r"plda_tr\.npy") as caught:
        vbx.read(files)
    assert "\n" not in str(caught.value)
