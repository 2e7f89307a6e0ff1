"""AMD's plug-in provider under the checks of the built-in one: a double of it in the real onnxruntime."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import mmh3
import numpy as np
import pytest

from witness.errors import DeviceError, UsageError
from witness.gpu import graph_cache, migraphx, probe, rocm, strict
from witness.gpu.graph_cache import Tuning
from witness.gpu.migraphx import Subject
from witness.gpu.rocm import Provider
from witness.models import session
from witness.models.session import Model
from witness.options import Precision, Runtime

SHAPE = (1, 64, 80)

pytestmark = pytest.mark.skipif(
    not strict.records_assignment(), reason="plug-ins need onnxruntime 1.24 or newer"
)


@pytest.fixture
def card(plug_in):
    """A machine with a card and the plug-in installed."""
    patched = plug_in(rocm.PLUGIN)
    patched.setenv("FAKE_ARCH", f"{mmh3.hash64('gfx1201', 0, False, signed=False)[0]:x}")
    return patched


@pytest.fixture
def target(card, trunk) -> migraphx.CompileTarget:
    card.setenv("FAKE_COMPILE_MS", "1")
    subject = Subject(trunk, "trunk", SHAPE, Model(trunk, "trunk"))
    return migraphx.CompileTarget(rocm.find_stack(rocm.choose_card(None)), subject)


def test_it_is_preferred_where_it_is_installed(card, plugin_double):
    assert rocm.find_provider() == Provider(plugin_double, plugin=True)
    card.setitem(sys.modules, rocm.PLUGIN, SimpleNamespace(__spec__=object()))  # PyPI's is empty
    found = rocm.find_provider()
    assert found is not None
    assert not found.plugin


@pytest.mark.parametrize("plugin", [False, True])
def test_memory_is_to_grow_as_it_is_asked_for_where_the_provider_knows_the_word(tmp_path, plugin):
    """An option that a provider does not know is an error of onnxruntime."""
    found = Provider(tmp_path / "provider.so", plugin=plugin)
    wish = rocm.provider_options(found, str(tmp_path), gpu=0, fp16=False, exhaustive=False)
    asked = wish["options"].get("migraphx_arena_extend_strategy")
    assert asked == (None if plugin else "kSameAsRequested")


def test_it_compiles_once_and_gives_what_the_cpu_gives(target, log):
    graph = migraphx.warm(target)
    assert graph.measured.cosine >= 0.9999
    assert (
        rocm.hashes_of([target.stack.provider.library])[target.stack.provider.library][:16]
        in graph.key.runtime
    )
    assert migraphx.warm(target) == graph
    subject, runtime = target.subject, Runtime("migraphx")
    with migraphx.accelerate(subject, runtime, calls=1) as model:
        assert model is not None
        given = np.random.default_rng(5).normal(0, 3, SHAPE).astype(np.float32)
        np.testing.assert_allclose(model(given), subject.cpu(given), atol=1e-4)
    assert model.device == "migraphx"
    assert log("COMPILE") == ["COMPILE 1x64x80"]


def test_the_built_in_provider_does_not_get_its_graphs(target, card):
    graph = migraphx.warm(target)
    card.delitem(sys.modules, rocm.PLUGIN)
    built_in = replace(target, stack=rocm.find_stack(rocm.choose_card(None)))
    difference = built_in.key.difference(graph.key)
    assert difference is not None
    assert difference.startswith("it is for runtime ")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"FAKE_LEFT": "Relu"}, "does not take all of the model's nodes"),
        ({"FAKE_LEFT": "Conv"}, "does not take all of the model's nodes"),
        ({"FAKE_NDEV": "0"}, "does not start .*no ROCm-capable device"),
        ({"FAKE_WRONG": "1"}, "the GPU gives other numbers than the CPU"),
        ({"FAKE_ARCH": "9880cf1608079e0d"}, "it was compiled for another GPU than gfx1201"),
        ({"FAKE_CRASH": "compile"}, "the GPU's process ended with"),
        ({"FAKE_EP": "AnotherExecutionProvider"}, "finds 0 cards"),
    ],
)
def test_nothing_runs_on_the_cpu_unasked(target, card, settings, complaint):
    for name, value in settings.items():
        card.setenv(name, value)
    with pytest.raises(DeviceError, match=complaint):
        migraphx.warm(target)
    assert not list(graph_cache.root().rglob("*.mxr"))


def test_a_card_that_onnxruntime_does_not_list(target):
    second = replace(target.stack, card=replace(target.stack.card, index=1))
    with pytest.raises(DeviceError, match="finds 1 cards, so there is no number 1"):
        migraphx.warm(replace(target, stack=second))


def test_precision_and_tuning_reach_it(target):
    other = replace(target, precision=Precision.FP16, tuning=Tuning.EXHAUSTIVE)
    graph = migraphx.warm(other)
    assert graph_cache.read_facts(graph.path.read_bytes()).precision == Precision.FP16
    assert graph.measured.cosine < 1.0


def test_its_variables_are_not_passed_on(target, card, tmp_path):
    card.setenv("ORT_MIGRAPHX_CACHE_DIR", str(tmp_path))
    migraphx.warm(target)
    assert not list(tmp_path.glob("*.mxr"))


@pytest.mark.usefixtures("card")
def test_dimensions_without_a_name_are_pinned_too(trunk, tmp_path):
    """As in exports of Silero VAD."""
    import onnx

    model = onnx.load_from_string(trunk)
    for dimension in model.graph.input[0].type.tensor_type.shape.dim[:2]:
        dimension.Clear()
    onnx.save(model, tmp_path / "nameless.onnx")
    row = probe.probe(tmp_path / "nameless.onnx", {"q": SHAPE}, None, 60)
    assert row["inputs"] == "q 1x64x80"
    assert (row["left to the CPU"], float(row["cosine"])) == ("-", pytest.approx(1))
    with pytest.raises(UsageError, match=r"give --shape q=1x1x80 or other sizes"):
        probe.probe(tmp_path / "nameless.onnx", {}, None, 60)


def test_a_probe_says_what_it_takes(card, tmp_path):
    card.setenv("FAKE_COMPILE_MS", "1")
    row = probe.probe(tmp_path / "trunk.onnx", {"q": SHAPE}, None, 60)
    taken, nodes = row["nodes on the GPU"].split(" of ")
    assert taken == nodes
    assert int(taken) > 1
    assert row["left to the CPU"] == "-"
    assert float(row["cosine"]) > 0.9999


def test_an_onnxruntime_that_is_too_old(card):
    card.setattr(strict, "records_assignment", lambda: False)
    strict.plugin_devices.cache_clear()
    with pytest.raises(DeviceError, match=r"needs onnxruntime 1\.24 or newer"):
        strict.plugin_devices("/nowhere")


def test_before_onnxruntime_1_24_a_profile_says_what_ran_where(card, trunk, tmp_path):
    card.setattr(strict, "records_assignment", lambda: False)
    options = session.one_thread()
    strict.ask_for_assignment(options, str(tmp_path))
    opened = strict.open_session(trunk, options, None, cpu=True)
    nodes = strict.assignment(opened, {"q": np.zeros(SHAPE, np.float32)})
    assert {where for where, _ in nodes} == {session.CPU}
    assert len(nodes) > 1
