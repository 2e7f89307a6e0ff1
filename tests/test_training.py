"""The training scripts, end to end on a made-up corpus; and the geometry that the product counts on."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import soundfile

torch = pytest.importorskip(
    "torch", reason="the training needs torch: pip install -r training/requirements.txt"
)

TRAINING = Path(__file__).parents[1] / "training"


@pytest.fixture(scope="module", autouse=True)
def training_path():
    """The scripts import one another by their bare names, as they do when run."""
    before = set(sys.modules)
    sys.path.insert(0, str(TRAINING))
    yield
    sys.path.remove(str(TRAINING))
    for name in set(sys.modules) - before:
        if (TRAINING / f"{name}.py").exists():
            del sys.modules[name]


@pytest.fixture(scope="module")
def cache(tmp_path_factory, training_path):  # noqa: ARG001 - wanted for its effect
    """A corpus of 24 voices: four clips of buzzing in bursts for each, and two of noise."""
    import data

    folder = tmp_path_factory.mktemp("corpus")
    generator = np.random.default_rng(0)
    rows, speakers, clips, position = [], [], [], 0
    for number in range(24):
        split = 1 if number < 4 else 0
        name = f"{'dev' if split else 'train'}/{'commonvoice' if number % 8 else 'librispeech'}/{number}"
        speakers.append(name if number < 20 else f"train_pseudo/commonvoice/run_{1000 * number}")
        for _ in range(4):
            time = np.arange(2 * 16_000) / 16_000
            voice = np.sign(np.sin(2 * np.pi * (90 + 9 * number) * time)) * (np.sin(2 * np.pi * time) > -0.5)
            clip = 0.3 * voice + 0.01 * generator.normal(size=len(time))
            rows.append([0, position, len(clip), number, split])
            clips.append(clip)
            position += len(clip)
    for _ in range(4):
        rows.append([0, position, 16_000, -1, 2])
        clips.append(0.1 * generator.normal(size=16_000))
        position += 16_000
    soundfile.write(folder / "part0.flac", np.concatenate(clips), 16_000)
    (folder / "part0.flac").rename(folder / "part0.ogg")  # read by its content, not by its name
    (folder / "index.json").write_text(json.dumps({"index": rows, "speakers": speakers}))
    cache = folder / "cache"
    data.DEV_COMMON_VOICE = 6
    data.decode([folder], cache, 1)
    return cache


def test_features_are_kaldis():
    kaldi = pytest.importorskip("kaldi_native_fbank")
    from features import Fbank

    samples = np.random.default_rng(0).normal(0, 0.1, 16_000).astype(np.float32)
    options = kaldi.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.window_type = "hamming"
    options.mel_opts.num_bins = 80
    reference = kaldi.OnlineFbank(options)
    reference.accept_waveform(16_000, (samples * 32768).tolist())
    reference.input_finished()
    wanted = np.stack([reference.get_frame(i) for i in range(reference.num_frames_ready)])
    found = Fbank()(torch.from_numpy(samples)[None])[0].numpy()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=2e-3)


def test_windows_are_stretches_of_meetings(tmp_path):
    import talk
    from augment import Dice

    lines = []
    for number in range(600):  # three take turns of 1.3, 0.6 and 2.1 s; every third turn starts early
        start, size = 2 * number - 0.5 * (number % 3 == 0), (1.3, 0.6, 2.1)[number % 3]
        start += 60 * (number >= 300)  # a break
        lines.append(f"SPEAKER m 1 {start + 1:.2f} {size} <NA> <NA> p{number % 3} <NA> <NA>")
    (tmp_path / "m.rttm").write_text("\n".join(lines))
    meetings = talk.load(tmp_path)
    table = torch.from_numpy(talk.table(meetings))
    silent = (~table.any(1)).long()
    assert silent.unfold(0, talk.LONGEST_SILENCE + 200, 1).sum(1).max() <= talk.LONGEST_SILENCE + 100
    drawn = [talk.windows(Dice.seeded("cpu", seed), table, 8, 2, 1000) for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert drawn[0].shape == (8, 2, 1000)
    assert drawn[0].any(2).all()
    wide = talk.windows(Dice.seeded("cpu", 1), table, 8, 4, 1000)
    assert wide.any(2).sum(1).tolist() == [3] * 8  # the fourth seat stays empty
    stretches = table.T.unfold(1, 1000, 1)
    for window in wide[0][wide[0].any(1)]:
        assert (stretches == window).all(-1).any()
    assert [len(talk.training_part(meetings * count)) for count in (7, 8, 16)] == [7, 7, 14]
    with pytest.raises(FileNotFoundError, match="no RTTM"):
        talk.load(tmp_path / "none")


@pytest.mark.slow
def test_same_seed_same_batch(cache):
    import augment
    import simulate

    import data

    corpus = data.Corpus.load(cache, "cpu")
    pool = data.voices(corpus)
    waves = []
    for seed in (1, 1, 2):
        dice = augment.Dice.seeded("cpu", seed)
        plan = simulate.plan_windows(dice, corpus, pool, 3)
        waves.append(simulate.render(dice, corpus, pool, plan))
    assert waves[0].isfinite().all()
    assert torch.equal(waves[0], waves[1])
    assert not torch.equal(waves[0], waves[2])


def test_nobody_is_in_training_and_dev(cache):
    import data

    corpus = data.Corpus.load(cache, "cpu")
    groups = [
        set(data.voices(corpus).speaker.tolist()),
        set(data.voices(corpus, dev=True).speaker.tolist()),
        set(data.voices(corpus, split=data.HELD_OUT).speaker.tolist()),
    ]
    assert all(groups)
    assert len(set.union(*groups)) == sum(map(len, groups))


def test_two_clips_of_a_voice_are_different_ones(cache):
    import data

    pool = data.voices(data.Corpus.load(cache, "cpu"))
    every = torch.arange(len(pool))
    for seed in range(5):
        one, other = pool.two(every, torch.rand(2, len(pool), generator=torch.Generator().manual_seed(seed)))
        assert (one != other).all()  # there are four of each
        assert (torch.isin(other, pool.order)).all()


def test_teacher_hears_every_clip_and_nothing_else(cache):
    import train_embedding
    from features import Fbank

    import data

    corpus = data.Corpus.load(cache, "cpu")
    pool = data.voices(corpus).some(3)
    heard = []

    def teacher(feats):
        heard.extend(feats.shape[:1])
        assert feats.mean(1).abs().max() < 1e-3
        return feats.mean(2)[:, :192] + feats.std(1)[:, :1]

    wanted = train_embedding.taught(teacher, corpus, Fbank(), pool)
    known = torch.zeros(len(corpus.frames), dtype=torch.bool)
    known[pool.order] = True
    torch.testing.assert_close(wanted.norm(dim=1), known.float())
    assert sum(heard) == len(pool.order)  # two seconds each: one piece


def test_student_is_rewarded_for_the_teachers_answer():
    from torch.nn.functional import normalize
    from train_embedding import losses

    generator = torch.Generator().manual_seed(0)
    wanted = normalize(torch.randn(6, 192, generator=generator))
    label = torch.tensor([0, 1, 2, 3, 4, 5])
    others = label, label // 2, label, torch.full((6,), 30.0)
    right, wrong = (losses(vectors, wanted, *others) for vectors in (wanted, wanted.roll(1, 0)))
    assert right[0] < 1e-5
    assert right[3] > 0.999
    assert wrong[0] > 0.5
    assert right[1] < wrong[1]


def test_teacher_is_the_network_of_the_catalogue(tmp_path):
    """The same arrays in torch and as the ONNX file that the product makes of them."""
    from teachers import CamPlus

    from witness.models import convert

    torch.manual_seed(0)
    net = CamPlus().eval()
    for name, values in net.named_buffers():
        if name.endswith("running_var"):
            values.uniform_(0.5, 2.0)
    torch.save(net.state_dict(), tmp_path / "campplus.pt")
    content = (tmp_path / "campplus.pt").read_bytes()
    assert convert.read_checkpoint(content).keys() <= net.state_dict().keys()
    session = onnxruntime.InferenceSession(convert.onnx_of("campplus-zh-en", content))
    feats = torch.randn(2, 230, 80, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = net(feats).numpy()
    np.testing.assert_allclose(session.run(None, {"feats": feats.numpy()})[0], wanted, rtol=2e-3, atol=2e-3)


def test_joined_segmentation_puts_the_people_of_the_other_in_order():
    """Of two that say the same with other numbers the joined one says it too."""
    import join
    from onnx import TensorProto, helper, numpy_helper

    logits = np.random.default_rng(0).normal(0, 3, (1, 40, 7)).astype(np.float32)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    moved = logits @ join.orders()[3]

    def saying(values, name):
        node = helper.make_node("Identity", ["said"], ["out"])
        wave = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 1, "T"])
        out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 40, 7])
        graph = helper.make_graph([node], name, [wave], [out], [numpy_helper.from_array(values, "said")])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    assert not np.allclose(moved, logits)
    for share in (0.5, 0.2):
        both = join.joined(saying(logits, "a"), saying(moved, "b"), share)
        session = onnxruntime.InferenceSession(both.SerializeToString())
        (found,) = session.run(None, {"waveform": np.zeros((1, 1, 10), np.float32)})
        np.testing.assert_allclose(found, np.maximum(logits, -12), atol=1e-3)


def test_loss_does_not_depend_on_the_order_of_speakers():
    from train_segmentation import order_free_loss

    scores = torch.randn(2, 50, 7, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    active = torch.rand(2, 3, 50, generator=torch.Generator().manual_seed(1)) < 0.4
    torch.testing.assert_close(order_free_loss(scores, active), order_free_loss(scores, active[:, [2, 0, 1]]))


def test_trunk_frame_sees_no_further_than_the_products_context():
    """The product gives each trunk frame 15 frames of context, 120 feature frames, to either side."""
    from models import EmbeddingNet

    feats = torch.randn(1, 800, 80, requires_grad=True)
    EmbeddingNet().eval().frames(feats)[..., 50].sum().backward()
    seen = feats.grad.abs().sum((0, 2)).nonzero()[:, 0]
    assert 50 * 8 - seen.min() <= 120
    assert seen.max() - 50 * 8 <= 120


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's exporter warns about itself
def test_recipe_from_end_to_end(cache, tmp_path, capsys):
    import evaluate
    import export
    import prune
    import train_embedding
    import train_segmentation
    from teachers import CamPlus

    torch.manual_seed(0)
    torch.save(CamPlus().state_dict(), tmp_path / "teacher.pt")
    common = ["--cache", str(cache), "--out", str(tmp_path), "--smoke"]
    teacher = ["--teacher", str(tmp_path / "teacher.pt")]
    again = ["--init", str(tmp_path / "embedding.npz"), "--checkpoint", str(tmp_path / "e.ckpt")]
    for number in range(8):  # one of which is kept from training
        lines = [f"SPEAKER m{number} 1 {2 * n} 2.4 <NA> <NA> p{n % 3} <NA> <NA>" for n in range(20)]
        (tmp_path / f"m{number}.rttm").write_text("\n".join(lines))
    train_embedding.main([*common, *teacher])
    train_embedding.main([*common, *teacher, *again, "--talk", str(tmp_path)])
    deeper = ["--deeper", "1", "--checkpoint", str(tmp_path / "s.ckpt")]
    train_segmentation.main([*common, *deeper])
    train_segmentation.main([*common, *deeper])
    assert "step 2 of 2" in capsys.readouterr().out  # the second run went on where the first ended
    weights = ["--weights", str(tmp_path / "segmentation.npz"), "--out", str(tmp_path / "pruned.npz")]
    prune.main(["--cache", str(cache), *weights, "--smoke"])
    files = ["--embedding", str(tmp_path / "embedding.npz"), "--segmentation", str(tmp_path / "pruned.npz")]
    export.main([*files, "--out", str(tmp_path)])
    evaluate.main(["smoke", "--models", str(tmp_path), "--cache", str(cache)])
    assert "count right" in capsys.readouterr().out
    assert json.loads((tmp_path / "clustering.json").read_text())["linkage"] in ("average", "centroid")


def test_pruning_takes_what_the_rest_can_say(monkeypatch):
    import prune
    from models import Conformer

    monkeypatch.setattr(prune, "AT_ONCE", 1)  # of two that say the same only one may go
    torch.manual_seed(0)
    layer = Conformer(8, inside=12, heads=2, kernel=3, dropout=0.0).eval()
    with torch.no_grad():
        layer.feed_in.weight[6:], layer.feed_in.bias[6:] = layer.feed_in.weight[:6], layer.feed_in.bias[:6]
        x = torch.randn(4, 50, 8)
        before = layer(x)
        inside = []
        layer.feed_in.register_forward_hook(lambda _, __, values: inside.append(values))
        layer(x)
        values = torch.nn.functional.pad(inside[0].relu().flatten(0, 1).double(), (0, 1), value=1.0)
        prune.prune(layer, values.t() @ values, 6)
        assert layer.feed_in.weight.shape == (6, 8)
        torch.testing.assert_close(layer(x), before, atol=1e-3, rtol=1e-3)
