import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import soundfile
from onnx import TensorProto, helper, numpy_helper

from conftest import CALL
from witness.diarization import embedding, embedding_cut, segmentation
from witness.diarization.embedding_cut import NotInBlocksError
from witness.diarization.fbank import fbank, frame_count
from witness.errors import ModelError
from witness.models.catalogue import BUILTIN_FOLDER
from witness.models.session import Model, on_cores
from witness.progress import Reporter
from witness.schema import ModelFile, Segmentation

CHANNELS, BANDS, SIZE = 6, 10, 16


def model_file(path: Path) -> ModelFile:
    return ModelFile(path.name, str(path), hashlib.sha256(path.read_bytes()).hexdigest())


def voice_model(
    path: Path, *, pooling: str = "rank4", tail: str = "gemm", seed: int = 3, shape: tuple = ("B", "T", 80)
) -> ModelFile:
    """A small voice model with the strides of a ResNet34, exported in one of several ways."""
    rng = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {"axis1": np.array([1]), "flat": np.array([0, CHANNELS * BANDS, -1])}
    nodes = [
        helper.make_node("Transpose", ["q"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Unsqueeze", ["t", "axis1"], ["c0"]),
    ]
    for layer, inputs in enumerate([1, CHANNELS, CHANNELS]):
        weights[f"w{layer}"] = (rng.normal(0, 1, (CHANNELS, inputs, 3, 3)) / 4).astype(np.float32)
        conv = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
        nodes += [
            helper.make_node("Conv", [f"c{layer}", f"w{layer}"], [f"v{layer}"], **conv),
            helper.make_node("Relu", [f"v{layer}"], [f"c{layer + 1}"]),
        ]
    top = "c3"
    if pooling == "rank3":
        nodes.append(helper.make_node("Reshape", ["c3", "flat"], ["r3"]))
        top = "r3"
    weights |= {"eps": np.float32(1e-7), "one": np.array(1, np.int64), "minus": np.array(-1, np.int64)}
    nodes += [
        helper.make_node("ReduceMean", [top], ["mu"], axes=[-1], keepdims=0),
        helper.make_node("ReduceMean", [top], ["mu1"], axes=[-1], keepdims=1),
        helper.make_node("Sub", [top, "mu1"], ["d"]),
        helper.make_node("Mul", ["d", "d"], ["dd"]),
        helper.make_node("ReduceMean", ["dd"], ["var"], axes=[-1], keepdims=0),
        helper.make_node("Shape", [top], ["shape"]),
        helper.make_node("Gather", ["shape", "minus"], ["n"]),
        helper.make_node("Sub", ["n", "one"], ["n1"]),
        helper.make_node("Cast", ["n"], ["nf"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["n1"], ["n1f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["var", "nf"], ["sum"]),
        helper.make_node("Div", ["sum", "n1f"], ["unbiased"]),
        helper.make_node("Add", ["unbiased", "eps"], ["safe"]),
        helper.make_node("Sqrt", ["safe"], ["std"]),
        helper.make_node("Flatten", ["mu"], ["a"]),
        helper.make_node("Flatten", ["std" if pooling != "max" else "peak"], ["b"]),
        helper.make_node("Concat", ["a", "b"], ["stats"], axis=1),
    ]
    if pooling == "max":
        nodes.insert(-3, helper.make_node("ReduceMax", [top], ["peak"], axes=[-1], keepdims=0))
    wide = 2 * CHANNELS * BANDS
    weights["fc"] = (rng.normal(0, 1, (SIZE, wide)) / wide**0.5).astype(np.float16)
    weights["bias"] = rng.normal(0, 1, SIZE).astype(np.float32)
    # Stored as 16 bits and widened by a node, so that a weight is made by nodes like the data.
    nodes.append(helper.make_node("Cast", ["fc"], ["fc32"], to=TensorProto.FLOAT))
    if tail == "gemm":
        nodes.append(helper.make_node("Gemm", ["stats", "fc32", "bias"], ["out"], transB=1))
    else:
        weights["mean_vec"] = rng.normal(0, 1, SIZE).astype(np.float32)
        nodes += [
            helper.make_node("Transpose", ["fc32"], ["fct"], perm=[1, 0]),
            helper.make_node("MatMul", ["stats", "fct"], ["y"]),
            helper.make_node("Add", ["bias", "y"], ["z"]),
            helper.make_node("Sub", ["z", "mean_vec"], ["out"]),
        ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("q", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [shape[0], SIZE])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return model_file(path)


@pytest.mark.parametrize("pooling", ["rank4", "rank3"])
@pytest.mark.parametrize("tail", ["gemm", "matmul-add-sub"])
def test_cut_is_found_by_structure(tmp_path, pooling, tail):
    file = voice_model(tmp_path / "voice.onnx", pooling=pooling, tail=tail)
    trunk, head = (Model(part, "part") for part in embedding_cut.cut(file))
    feats = np.random.default_rng(5).normal(0, 2, (1, 203, 80)).astype(np.float32)
    frames = embedding_cut.rows(trunk(feats))
    assert frames.shape == (26, CHANNELS * BANDS)
    whole = Model(file.path, "whole")(feats)
    assert np.allclose(head(embedding_cut.pool(frames, np.ones((1, 26)))), whole, atol=1e-5)


def test_another_pooling_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"voice\.onnx.*cosine"):
        embedding_cut.cut(voice_model(tmp_path / "voice.onnx", pooling="max"))


def splice(file: ModelFile, tensor: str, nodes: list, **weights: np.ndarray) -> ModelFile:
    """The model with `nodes`, which make "new" of "old", between `tensor` and all that take it."""
    model = onnx.load(file.path)
    for node in model.graph.node:
        node.input[:] = ["new" if name == tensor else name for name in node.input]
    made = [place for place, node in enumerate(model.graph.node, 1) if tensor in node.output]
    for place, node in enumerate(nodes, made[0] if made else 0):
        node.input[:] = [tensor if name == "old" else name for name in node.input]
        model.graph.node.insert(place, node)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()
    )
    onnx.checker.check_model(model)
    onnx.save(model, file.path)
    return model_file(Path(file.path))


NODE = helper.make_node


def test_a_model_without_pooling_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"segmentation\.onnx: takes samples"):
        embedding_cut.cut(model_file(BUILTIN_FOLDER / "segmentation.onnx"))
    file = voice_model(tmp_path / "voice.onnx")
    model = onnx.load(file.path)
    model.graph.output[0].name = "mu"  # without the deviation
    onnx.save(model, file.path)
    with pytest.raises(ModelError, match=r"voice\.onnx: cannot be cut at its pooling"):
        embedding_cut.cut(file)


def test_a_model_that_looks_at_all_it_is_given_is_refused(tmp_path):
    """As squeeze-excitation does: where a block begins would change every vector in it."""
    squeeze = [
        NODE("ReduceMean", ["old"], ["level"], axes=[2, 3], keepdims=1),
        NODE("Sigmoid", ["level"], ["gate"]),
        NODE("Mul", ["old", "gate"], ["new"]),
    ]
    file = splice(voice_model(tmp_path / "voice.onnx"), "c1", squeeze)
    with pytest.raises(
        ModelError, match=r"voice\.onnx: its vectors depend on .* over 1\.2 s away \(cosine 0\.9"
    ):
        embedding_cut.cut(file)


DYNAMIC = [
    NODE("DynamicQuantizeLinear", ["old"], ["small", "scale", "zero"]),
    NODE("DequantizeLinear", ["small", "scale", "zero"], ["new"]),
]
STATIC = [
    NODE("QuantizeLinear", ["old", "scale", "zero"], ["small"]),
    NODE("DequantizeLinear", ["small", "scale", "zero"], ["new"]),
]
HALF = [
    NODE("Cast", ["old"], ["half"], to=TensorProto.FLOAT16),
    NODE("Cast", ["half"], ["new"], to=TensorProto.FLOAT),
]
ATTENTION = [NODE("Softmax", ["old"], ["weight"], axis=-1), NODE("Mul", ["old", "weight"], ["new"])]


@pytest.mark.parametrize(
    ("tensor", "nodes", "says"),
    [
        ("c1", DYNAMIC, "is quantized"),
        ("c1", STATIC, "is quantized"),
        ("q", HALF, "computes in half precision"),
    ],
)
def test_what_is_of_no_use_here_is_said_in_our_words(tmp_path, tensor, nodes, says):
    weights = {"scale": np.float32(0.01), "zero": np.uint8(0)} if nodes is STATIC else {}
    file = splice(voice_model(tmp_path / "voice.onnx"), tensor, nodes, **weights)
    with pytest.raises(ModelError, match=f"^{file.path}: {says}.*; fix: [^\n]*$"):
        embedding_cut.cut(file)


def test_a_model_that_pools_with_attention_is_not_cut(tmp_path):
    file = splice(voice_model(tmp_path / "voice.onnx"), "c3", ATTENTION)
    with pytest.raises(NotInBlocksError, match=r"voice\.onnx: pools with attention"):
        embedding_cut.cut(file)


@pytest.mark.parametrize("shape", [("B", 200, 80), (1, 200, 80), (32, "T", 80)])
def test_a_model_for_one_length_is_refused(tmp_path, shape):
    with pytest.raises(
        ModelError, match=r"voice\.onnx: takes \[.*, 80\] only, not speech of any length; fix"
    ):
        embedding_cut.cut(voice_model(tmp_path / "voice.onnx", shape=shape))


def test_a_model_for_one_voice_at_a_time_gives_all_of_them(tmp_path):
    many, one = (
        embedding.load(voice_model(tmp_path / f"{size}.onnx", shape=(size, "T", 80))) for size in ("B", 1)
    )
    statistics = np.random.default_rng(6).normal(0, 1, (5, 2 * CHANNELS * BANDS)).astype(np.float32)
    assert np.allclose(one.head(statistics), many.head(statistics), atol=1e-5)


def test_of_two_outputs_the_last_is_the_voice_vector(tmp_path):
    """As WeSpeaker's exports have it, whose first is from before the last layer."""
    file = voice_model(tmp_path / "voice.onnx")
    expected = embedding_cut.cut(file)
    model = onnx.load(file.path)
    model.graph.node.append(NODE("Relu", ["stats"], ["early"]))
    model.graph.output.insert(0, helper.make_tensor_value_info("early", TensorProto.FLOAT, ["B", None]))
    onnx.save(model, file.path)
    statistics = np.ones((1, 2 * CHANNELS * BANDS), np.float32)
    head, same = (
        Model(part, "head")(statistics)
        for part in (embedding_cut.cut(model_file(Path(file.path)))[1], expected[1])
    )
    assert np.array_equal(head, same)


def test_cut_is_kept_and_a_damaged_one_made_again(tmp_path, monkeypatch):
    file = voice_model(tmp_path / "voice.onnx")
    cache = tmp_path / "cache"
    trunk, head = embedding_cut.open_cut(file, cache)
    (path,) = cache.rglob("trunk.onnx")
    assert path.read_bytes() == trunk
    sums = [hashlib.sha256(part).hexdigest() for part in (trunk, head)]
    assert json.loads((path.parent / "sha256.json").read_text()) == sums
    cuts = []
    cut = embedding_cut.cut
    monkeypatch.setattr(embedding_cut, "cut", lambda model: cuts.append(model) or cut(model))
    assert embedding_cut.open_cut(file, cache) == (trunk, head)
    assert not cuts
    path.write_bytes(trunk[:-100] + bytes(100))
    assert embedding_cut.open_cut(file, cache) == (trunk, head)
    assert len(cuts) == 1
    assert path.read_bytes() == trunk


def test_where_nothing_can_be_kept_it_is_cut_again(tmp_path):
    file = voice_model(tmp_path / "voice.onnx")
    (tmp_path / "cache").write_text("in the way")
    assert embedding_cut.open_cut(file, tmp_path / "cache") == embedding_cut.cut(file)


def test_pooling_is_mean_and_unbiased_deviation_under_the_mask():
    frames = np.random.default_rng(0).normal(100, 0.5, (50, 4))
    weights = np.zeros((2, 50))
    weights[0, 3:20] = 1
    weights[1, ::2] = 1
    for row, chosen in zip(embedding_cut.pool(frames, weights), (frames[3:20], frames[::2]), strict=True):
        expected = [*chosen.mean(0), *np.sqrt(chosen.var(0, ddof=1) + 1e-7)]
        assert np.allclose(row, expected, rtol=1e-6)


def whole(total: int) -> list[embedding.Block]:
    """Blocks of a recording without a pause."""
    return list(embedding.plan([np.arange(total)]))


@pytest.mark.parametrize("total", [1, 14, 125, 330, 331, 344, 345, 346, 700, 1500, 9000])
def test_plan_answers_for_each_frame_once_with_context(total):
    blocks = whole(total)
    assert [frame for block in blocks for frame in block.frames[block.new]] == list(range(total))
    for block in blocks:
        start, stop = block.frames[0], block.frames[-1] + 1
        assert np.array_equal(block.frames, np.arange(start, stop))
        assert start == 0 or block.new.start >= embedding.CONTEXT
        assert stop == total or len(block.frames) - block.new.stop >= embedding.CONTEXT
    assert all(len(block.frames) == embedding.BLOCK for block in blocks[:-1])
    if total > 1500:  # two minutes
        assert sum(len(block.frames) for block in blocks) / total <= 1.15


def test_plan_does_not_depend_on_the_pieces():
    frames = np.flatnonzero(np.random.default_rng(0).random(2000) > 0.3)
    expected = [(block.frames.tolist(), block.new) for block in embedding.plan([frames])]
    cut = embedding.plan(np.split(frames, [1, 30, 30, 900]))
    assert [(block.frames.tolist(), block.new) for block in cut] == expected


def test_ten_minutes_take_few_calls_of_one_shape():
    total = frame_count(600 * 16000)
    blocks = whole(-(-total // embedding.STRIDE))
    full = [block for block in blocks if len(block.frames) == embedding.BLOCK]
    assert len(full) == embedding.full_blocks(600 * 16000) == 24
    assert len(blocks) == 25
    # The limit on calls of a GPU is 45.
    for seconds in (0.01, 1, 26, 26.5, 51):
        samples = int(seconds * 16000)
        blocks = whole(-(-frame_count(samples) // embedding.STRIDE))
        feats = embedding.features(np.zeros(samples, np.float32), blocks)
        shapes = [(1, *part.shape) for _, part in feats]
        assert embedding.full_blocks(samples) == shapes.count(embedding.BLOCK_SHAPE)


@pytest.fixture(scope="module")
def builtin(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WITNESS_CACHE", str(tmp_path_factory.mktemp("cache")))
        return embedding.load(model_file(BUILTIN_FOLDER / "embedding.onnx"))


@pytest.fixture(scope="module")
def call():
    """40 s: two blocks."""
    samples, rate = soundfile.read(CALL, dtype="float32", frames=40 * 8000)
    samples = np.repeat(samples, 16000 // rate)  # crude, but both ways under test get the same
    model = segmentation.load(model_file(BUILTIN_FOLDER / "segmentation.onnx"))
    with on_cores(2) as two:
        return samples, Segmentation.joined(segmentation.stream(samples, model, mapper=two))


@pytest.fixture(scope="module")
def measured(builtin, call):
    """The vectors of all at once, on one thread; and the features that the trunk was given."""
    samples, windows = call
    model, lengths = counted(builtin)
    return embedding.embed(samples, [windows], model), sum(lengths)


@pytest.fixture(scope="module")
def regular(measured):
    return measured[0]


@pytest.mark.slow
def test_blocks_give_what_one_unbroken_pass_gives(builtin, call, regular, monkeypatch):
    samples, windows = call
    monkeypatch.setattr(embedding, "BLOCK", 10**6)
    whole = embedding.embed(samples, [windows], builtin)
    assert np.array_equal(np.isnan(regular), np.isnan(whole))
    assert np.nanmax(np.abs(regular - whole)) < 1e-3 * np.nanmax(np.abs(whole))


def counted(model: embedding.VoiceModel) -> tuple[embedding.VoiceModel, list[int]]:
    """The model, and the features of each call of its trunk."""
    lengths: list[int] = []

    def trunk(feats):
        lengths.append(feats.shape[1])
        return model.trunk(feats)

    return embedding.VoiceModel(trunk, model.head, trunk), lengths


@pytest.mark.slow
def test_pauses_are_not_run_and_change_nothing(builtin, monkeypatch):
    """What is left of a recording with pauses gives what one unbroken pass over all of it gives."""
    rng = np.random.default_rng(4)
    samples = rng.normal(0, 0.1, 16000 * 80).astype(np.float32)
    active = np.zeros((36, 589, 3), np.bool_)
    for window in (0, 1, 5, 20, 35):  # 2 s apart
        active[window, rng.integers(0, 300) : rng.integers(330, 589), window % 3] = True
    windows = Segmentation.regular(active, 2.0)
    model, lengths = counted(builtin)
    vectors = embedding.embed(samples, [windows], model)
    assert 0.2 < sum(lengths) / frame_count(len(samples)) < 0.6
    lengths.clear()
    monkeypatch.setattr(embedding, "CONTEXT", 10**6)  # around speech, that is everything
    monkeypatch.setattr(embedding, "BLOCK", 10**6)
    expected = embedding.embed(samples, [windows], model, context=2000)
    assert sum(lengths) == frame_count(len(samples))
    assert np.isfinite(vectors).any(axis=2).sum() == 5
    np.testing.assert_allclose(vectors, expected, rtol=1e-3, atol=1e-3)


def test_a_fast_run_hears_speech_alone(builtin, call, measured):
    samples, windows = call
    expected, all_of_it = measured
    model, speech = counted(builtin)
    vectors = embedding.embed(samples, [windows], model, context=embedding.FAST_CONTEXT)
    assert 0 < sum(speech) < all_of_it
    valid = np.isfinite(expected).all(axis=2)
    assert np.array_equal(np.isfinite(vectors).all(axis=2), valid)
    cosines = [embedding_cut.cosine(*pair) for pair in zip(vectors[valid], expected[valid], strict=True)]
    assert np.mean(cosines) > 0.97


@pytest.mark.slow
@pytest.mark.parametrize("context", [embedding.CONTEXT, embedding.FAST_CONTEXT])
def test_any_number_of_threads_and_pieces_gives_the_same_bytes(builtin, call, regular, context):
    samples, windows = call
    expected = regular
    if context != embedding.CONTEXT:
        expected = embedding.embed(samples, [windows], builtin, context=context)
    pieces = [
        Segmentation(windows.active[first : first + 3], windows.starts[first : first + 3])
        for first in range(0, len(windows.starts), 3)
    ]
    told, blocks = [], 0

    def counted(function, items):
        nonlocal blocks
        for item in items:
            blocks += 1
            yield function(item)
            assert len(told) == 1 + blocks  # as soon as it is done

    reporter = Reporter(lambda _, done, total: told.append((done, total)))
    vectors = embedding.embed(samples, pieces, builtin, context=context, mapper=counted, reporter=reporter)
    assert vectors.tobytes() == expected.tobytes()
    told.clear()
    with on_cores(3) as three:
        vectors = embedding.embed(samples, pieces, builtin, context=context, mapper=three, reporter=reporter)
    assert vectors.tobytes() == expected.tobytes()
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]


def test_windows_may_lie_anywhere(builtin, call, regular):
    """Those at irregular places give what they give among the regular ones."""
    samples, windows = call
    places = np.array([0, 1, 4, 5, 11, len(windows.active) - 1])
    few = Segmentation(windows.active[places], windows.starts[places])
    irregular = embedding.embed(samples, [few], builtin)
    assert np.isfinite(irregular).any()
    np.testing.assert_allclose(irregular, regular[places], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_close_to_one_pass_per_window(builtin, call, regular):
    """pyannote's way, kept here as the reference: each window alone, less its own mean."""
    samples, windows = call
    masks = embedding.clean_masks(windows.active)
    index = np.arange(125) * 589 // 125
    cosines = []
    inside = np.flatnonzero(windows.starts < len(samples) - 160000)
    for number in inside[::2]:  # each shares nine tenths with its neighbors
        start = windows.starts[number]
        feats = fbank(samples[start : start + 160000])
        frames = embedding_cut.rows(builtin.trunk((feats - feats.mean(axis=0))[None]))
        for speaker in np.flatnonzero(masks[number].sum(axis=0) >= embedding.MIN_ACTIVE):
            weights = masks[number, index, speaker][None].astype(float)
            reference = builtin.head(embedding_cut.pool(frames, weights))[0]
            cosines.append(embedding_cut.cosine(reference, regular[number, speaker]))
    assert len(cosines) > 20
    assert np.mean(cosines) > 0.97  # 0.970 to 0.998 over 30 recordings when the way was chosen


def test_too_little_speech_gives_nan_and_silence_costs_nothing(builtin):
    runs = []
    counting = embedding.VoiceModel(
        lambda feats: runs.append(1) or builtin.trunk(feats), builtin.head, builtin.trunk
    )
    active = np.zeros((5, 589, 3), np.bool_)
    silent = embedding.embed(np.zeros(14 * 16000, np.float32), [Segmentation.regular(active)], counting)
    assert np.isnan(silent).all()
    assert not runs
    active[2, 100:109, 0] = True  # nine frames
    active[2, 100:150, 1] = True
    vectors = embedding.embed(np.zeros(14 * 16000, np.float32), [Segmentation.regular(active)], counting)
    assert np.isfinite(vectors).all(axis=2).tolist() == [
        [i == 2 and s == 1 for s in range(3)] for i in range(5)
    ]
    assert runs


def test_overlap_is_left_out_where_enough_else_remains():
    active = np.zeros((1, 589, 3), np.bool_)
    active[0, 0:100, 0] = True
    active[0, 70:200, 1] = True
    active[0, 180:215, 2] = True  # 15 clean frames: too few
    masks = embedding.clean_masks(active)
    assert np.flatnonzero(masks[0, :, 0]).tolist() == list(range(70))
    assert np.flatnonzero(masks[0, :, 1]).tolist() == list(range(100, 180))
    assert np.flatnonzero(masks[0, :, 2]).tolist() == list(range(180, 215))


def test_mean_is_taken_over_ten_seconds_inside_the_recording():
    samples = np.random.default_rng(2).normal(0, 0.1, 16000 * 31).astype(np.float32)
    total = frame_count(len(samples))
    feats = fbank(samples)
    parts = embedding.features(samples, whole(-(-total // 8)))
    got = np.concatenate([part[b.new.start * 8 : b.new.stop * 8] for b, part in parts])
    assert got.shape == feats.shape
    expected = {0: (0, 998), 499: (0, 998), 1500: (1001, 1999), total - 1: (total - 998, total)}
    for frame, (low, high) in expected.items():
        assert np.allclose(got[frame], feats[frame] - feats[low:high].mean(axis=0), atol=1e-4)


def test_recording_shorter_than_one_feature_frame(builtin):
    vectors = embedding.embed(
        np.zeros(300, np.float32), [Segmentation.regular(np.ones((1, 589, 3), np.bool_))], builtin
    )
    assert np.isnan(vectors).all()


def test_a_trunk_with_another_stride_is_refused(tmp_path):
    file = voice_model(tmp_path / "voice.onnx")
    model = onnx.load(file.path)
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Conv" and node.input[0] == "c2" and attribute.name == "strides":
                attribute.ints[:] = [2, 1]
    onnx.save(model, file.path)
    with pytest.raises(ModelError, match=r"100 frames for 400 features"):
        embedding.load(model_file(Path(file.path)))
