from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from conftest import ROOT
from witness.diarization import segmentation, segmentation_cut
from witness.diarization.segmentation import decode, powerset, step_of, stream, window_starts, windowed
from witness.errors import ModelError
from witness.models.catalogue import BUILTIN_FOLDER
from witness.models.session import Model, on_cores
from witness.schema import ModelFile, Segmentation


def model_file(path: Path) -> ModelFile:
    return ModelFile(path.name, str(path), "")


def segment(*arguments, **options) -> Segmentation:
    return Segmentation.joined(stream(*arguments, **options))


def scores_of(classes: np.ndarray) -> np.ndarray:
    """(windows, frames) class numbers -> scores with that class on top."""
    return np.log(np.eye(7, dtype=np.float32)[classes] * 0.9 + 0.01)


def test_powerset_order_is_pyannotes():
    assert powerset(3, 2).astype(int).tolist() == [
        [0, 0, 0],
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
        [1, 1, 0],
        [1, 0, 1],
        [0, 1, 1],
    ]


def test_powerset_tables_and_decoding_are_pyannotes(golden):
    for speakers, at_once in [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (4, 3), (4, 4)]:
        table = golden(f"powerset_mapping_{speakers}_{at_once}")
        assert np.array_equal(powerset(speakers, at_once), table > 0)
    assert np.array_equal(decode(golden("powerset_input_logits")), golden("powerset_hard_output") > 0)


@pytest.mark.parametrize(
    ("seconds", "windows"),
    [(0.3, 1), (10, 1), (10.001, 2), (11, 2), (26.015, 18), (15.049, 7), (3.289, 1), (30, 21)],
)
def test_windows_as_pyannote_counts_them(seconds, windows):
    assert len(window_starts(round(seconds * 16000), 1.0)) == windows


def test_windows_lie_where_they_can_share():
    for step in (1.0, 2.0, 2.5, 0.3):
        starts = window_starts(16000 * 3600, step)
        assert not (starts % segmentation_cut.GRID).any()
        assert np.abs(starts - np.arange(len(starts)) * step * 16000).max() <= segmentation_cut.GRID / 2


def test_windows_lie_closer_in_short_recordings():
    assert [step_of(minutes * 60 * 16000) for minutes in (1, 4, 5, 60)] == [1.0, 1.0, 2.0, 2.0]
    assert [step_of(minutes * 60 * 16000, fast=True) for minutes in (1, 4, 5, 60)] == [2.0, 2.0, 3.0, 3.0]
    shared = [step_of(seconds * 16000, stretches=True) for seconds in (30, 150, 225, 300, 3600)]
    assert shared == [1.0, 1.0, 1.5, 2.0, 2.0]
    ten_minutes = segment(
        np.zeros(600 * 16000, np.float32), lambda _, starts: np.zeros((len(starts), 589, 7))
    )
    assert len(ten_minutes.starts) == 296
    assert ten_minutes.step == pytest.approx(2.0, abs=0.01)


def test_no_samples_no_windows():
    assert segment(np.empty(0, np.float32), windowed(scores_of)).active.shape == (
        0,
        589,
        3,
    )


def test_each_window_sees_its_ten_seconds_and_silence_beyond_the_end():
    seen = []

    def model(windows):
        seen.extend(window[0].copy() for window in windows)
        return scores_of(np.zeros((len(windows), 589), int))

    samples = np.arange(1, 16000 * 12 + 501, dtype=np.float32)
    result = segment(samples, windowed(model), step=1.0)
    assert result.active.shape == (4, 589, 3)
    for start, window in zip(result.starts, seen, strict=True):
        expected = samples[start : start + 160000]
        assert np.array_equal(window[: len(expected)], expected)
        assert not window[len(expected) :].any()


def test_windows_of_silence_are_looked_at_once():
    """Of an hour that a damaged file claims between slivers of sound, only windows with sound cost time."""
    chance = np.random.default_rng(0)
    samples = np.zeros(16000 * 600, np.float32)
    for second in (0, 200, 421):
        samples[16000 * second :][:800] = chance.normal(0, 0.1, 800)
    model = segmentation.load(model_file(BUILTIN_FOLDER / "segmentation.onnx"))
    seen = 0

    def counting(sound, starts):
        nonlocal seen
        seen += len(starts)
        return model(sound, starts)

    result = segment(samples, counting, step=2.0)
    assert len(result.starts) == 296
    assert seen == 1 + 1 + 5 + 5, "one of silence, and those with sound"
    for window in (0, 95, 96, 99, 101, 206, 290):
        sound = samples[result.starts[window] :][:160_000]
        assert np.array_equal(result.active[window], decode(model(sound, np.zeros(1, int)))[0])


@pytest.mark.slow
def test_result_is_the_same_bytes_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    samples = (rng.normal(0, 0.1, 16000 * 25) * (np.sin(np.arange(16000 * 25) / 9000) > 0)).astype(np.float32)
    model = segmentation.load(model_file(BUILTIN_FOLDER / "segmentation.onnx"))
    one = segment(samples, model).active
    for threads in (2, 4):
        with on_cores(threads) as mapped:
            assert np.array_equal(segment(samples, model, mapper=mapped).active, one)


def save(path: Path, input_shape: list, output_shape: list) -> ModelFile:
    """A model that ignores its input and gives zeros of `output_shape`."""
    inputs = [helper.make_tensor_value_info("sound", TensorProto.FLOAT, input_shape)]
    outputs = [helper.make_tensor_value_info("result", TensorProto.FLOAT, [None] * len(output_shape))]
    nodes = [
        helper.make_node("ReduceMax", ["sound"], ["one"], keepdims=0),
        helper.make_node("Mul", ["one", "zeros"], ["result"]),
    ]
    zeros = numpy_helper.from_array(np.zeros(output_shape, np.float32), "zeros")
    graph = helper.make_graph(nodes, "g", inputs, outputs, [zeros])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return model_file(path)


def test_names_and_shapes_are_read_from_the_model(tmp_path):
    model = segmentation.load(save(tmp_path / "m.onnx", ["batch", 1, "samples"], [1, 589, 7]))
    assert segment(np.zeros(16000, np.float32), model).active.shape == (1, 589, 3)


def test_a_model_for_one_window_at_a_time_sees_all_of_them(tmp_path):
    model = segmentation.load(save(tmp_path / "m.onnx", [1, 1, "samples"], [1, 589, 7]))
    assert model(np.zeros(160_000 + 540, np.float32), np.array([0, 270, 540])).shape == (3, 589, 7)
    assert segment(np.zeros(16000 * 15, np.float32), model, step=1.0).active.shape == (
        6,
        589,
        3,
    )


def save_pyannet(
    path: Path, *, weight: float, bias: bool, pads: int = 0, batch: str | int = "N", branch: str | None = None
) -> ModelFile:
    """A model that begins as PyanNet does, with another end.

    With a `branch`, the convolution is in an If, as PyTorch's first exporter has it: for one channel, or for
    sound with a positive sample.
    """
    rng = np.random.default_rng(3)
    values = {
        "weight": np.array([weight]),
        "shift": np.array([0.2]),
        "kernels": rng.normal(0, 0.2, (4, 1, 251)),
        "bias": rng.normal(0, 1, 4),
        "scale": np.ones(4),
        "zero": np.zeros(4),
    }
    nodes = [
        helper.make_node("InstanceNormalization", ["sound", "weight", "shift"], ["even"]),
        helper.make_node(
            "Conv",
            ["even", "kernels", *(["bias"] if bias else [])],
            ["heard"],
            strides=[10],
            pads=[pads, pads],
        ),
        helper.make_node("Abs", ["heard"], ["loud"]),
        helper.make_node("MaxPool", ["loud"], ["most"], kernel_shape=[3], strides=[3]),
        helper.make_node("InstanceNormalization", ["most", "scale", "zero"], ["again"]),
        helper.make_node("LeakyRelu", ["again"], ["result"]),
    ]
    if branch:
        values |= {"second": np.array([1]), "limit": np.array([1 if branch == "channels" else 0])}
        value = TensorProto.FLOAT
        taken = helper.make_graph(
            [nodes[1]], "then", [], [helper.make_tensor_value_info("heard", value, None)]
        )
        other = helper.make_node("Neg", ["even"], ["other"])
        rest = helper.make_graph([other], "else", [], [helper.make_tensor_value_info("other", value, None)])
        condition = {
            "channels": [
                helper.make_node("Shape", ["even"], ["shape"]),
                helper.make_node("Cast", ["shape"], ["sizes"], to=TensorProto.FLOAT),
                helper.make_node("Cast", ["second"], ["place"], to=TensorProto.INT64),
                helper.make_node("Gather", ["sizes", "place"], ["size"]),
                helper.make_node("Equal", ["size", "limit"], ["condition"]),
            ],
            "sound": [
                helper.make_node("ReduceMax", ["even"], ["size"], keepdims=0),
                helper.make_node("Greater", ["size", "limit"], ["condition"]),
            ],
        }[branch]
        choice = helper.make_node("If", ["condition"], ["chosen"], then_branch=taken, else_branch=rest)
        nodes[1:3] = [*condition, choice, helper.make_node("Abs", ["chosen"], ["loud"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("sound", TensorProto.FLOAT, [batch, 1, "T"])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, [batch, 4, "P"])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return model_file(path)


SOUND = np.random.default_rng(1).normal(0.05, 0.1, 16000 * 14).astype(np.float32)
STARTS = np.array([0, 1, 60, 200]) * 270


@pytest.mark.parametrize(("weight", "bias"), [(0.7, True), (-0.7, True), (1.0, False)])
def test_windows_share_the_first_convolution(tmp_path, weight, bias):
    file = save_pyannet(tmp_path / "m.onnx", weight=weight, bias=bias)
    shared = segmentation_cut.open_front(file)
    assert shared is not None
    assert shared.hop == 30
    expected = windowed(Model(file.path, "whole"))(SOUND, STARTS)
    assert np.allclose(shared(SOUND, STARTS), expected, atol=1e-4)


@pytest.mark.parametrize("batch", ["N", 1])
@pytest.mark.parametrize("branch", [None, "channels"])
def test_exports_with_branches_or_for_one_window_share_it_too(tmp_path, batch, branch):
    file = save_pyannet(tmp_path / "m.onnx", weight=0.7, bias=False, batch=batch, branch=branch)
    assert ("If" in {node.op_type for node in onnx.load(file.path).graph.node}) == (branch is not None)
    shared = segmentation_cut.open_front(file)
    assert shared is not None
    expected = windowed(Model(file.path, "whole"), batch=1)(SOUND, STARTS)
    assert np.allclose(shared(SOUND, STARTS), expected, atol=1e-4)


def test_a_branch_that_the_sound_decides_stays(tmp_path):
    file = save_pyannet(tmp_path / "m.onnx", weight=0.7, bias=False, branch="sound")
    assert Model(file.path, "whole")(SOUND[None, None]).shape[1] == 4
    assert segmentation_cut.open_front(file) is None


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
@pytest.mark.parametrize("inside", [True, False])
def test_half_precision_is_refused_before_it_runs(tmp_path, kind, inside):
    """onnxruntime 1.27 ends the process over such exports of the real model."""
    sound = TensorProto.FLOAT if inside else kind
    nodes = [
        helper.make_node("Cast", ["sound"], ["half"], to=kind),
        helper.make_node("Abs", ["half"], ["loud"]),
        helper.make_node("Cast", ["loud"], ["result"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes if inside else nodes[1:],
        "g",
        [helper.make_tensor_value_info("sound" if inside else "half", sound, ["N", 1, "T"])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, ["N", 1, "T"])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    with pytest.raises(ModelError, match=r"m\.onnx: computes in half precision .* fix: use the float32 file"):
        segmentation.load(model_file(tmp_path / "m.onnx"))


def test_a_trained_pyannet_shares_it_and_finds_the_same():
    path = ROOT.parent / "shared" / "data" / "prototype" / "segmentation.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    file = model_file(path)
    shared, whole = segmentation.load(file), windowed(Model(file.path, "whole"))
    assert isinstance(shared, segmentation_cut.Front)
    sound = SOUND * np.linspace(0, 1, len(SOUND), dtype=np.float32) ** 2
    for starts in (STARTS, STARTS[:1]):
        assert np.allclose(shared(sound, starts), whole(sound, starts), atol=1e-3)
    assert np.isfinite(shared(np.zeros_like(SOUND), STARTS)).all()


def test_a_model_of_another_structure_stays_whole(tmp_path):
    assert segmentation_cut.open_front(save(tmp_path / "m.onnx", ["N", 1, "T"], [1, 589, 7])) is None
    padded = save_pyannet(tmp_path / "p.onnx", weight=1.0, bias=True, pads=5)
    assert segmentation_cut.open_front(padded) is None


def test_the_cut_is_kept_by_the_models_sha256_and_made_again_if_damaged(tmp_path, monkeypatch):
    file = replace(save_pyannet(tmp_path / "m.onnx", weight=1.0, bias=True), sha256="abc")
    expected = segmentation_cut.open_front(file, tmp_path / "cache")(SOUND, STARTS)
    (back,) = (tmp_path / "cache").rglob("back.onnx")
    cut = segmentation_cut.cut
    monkeypatch.setattr(segmentation_cut, "cut", lambda _: pytest.fail("was kept"))
    assert np.array_equal(segmentation_cut.open_front(file, tmp_path / "cache")(SOUND, STARTS), expected)
    monkeypatch.setattr(segmentation_cut, "cut", cut)
    back.write_bytes(back.read_bytes()[:-1])
    assert np.array_equal(segmentation_cut.open_front(file, tmp_path / "cache")(SOUND, STARTS), expected)
    assert segmentation_cut.open_front(replace(file, sha256="abd"), tmp_path / "cache") is not None
    assert len(list((tmp_path / "cache").rglob("back.onnx"))) == 2


@pytest.mark.parametrize(
    ("given", "result", "says"),
    [
        (["B", "T", 80], [1, 256], r"takes \[None, None, 80\]"),
        (["N", 1, 80000], [1, 293, 7], "80000"),
        ([32, 1, 160000], [32, 589, 7], "takes 32 windows at a time"),
        (["N", 2, "T"], [1, 589, 7], "2"),
        (["N", 1, "T"], [1, 293, 7], "293"),
        (["N", 1, "T"], [1, 589, 3], "589, 3"),
    ],
)
def test_a_model_of_another_kind_is_refused(tmp_path, given, result, says):
    with pytest.raises(ModelError, match=says) as caught:
        segmentation.load(save(tmp_path / "wrong.onnx", given, result))
    assert "wrong.onnx" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x08" * 50])
def test_a_file_that_is_no_model_is_refused(tmp_path, content):
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ModelError, match=r"m\.onnx"):
        segmentation.load(model_file(tmp_path / "m.onnx"))
