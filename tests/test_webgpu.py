"""The voice model through WebGPU: on a double of the plug-in, and on a software driver where there is one."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from conftest import a_card
from witness.diarization import embedding_cut
from witness.errors import DeviceError
from witness.gpu import cards, migraphx, provider, webgpu
from witness.gpu.speed import Speed
from witness.gpu.subject import Subject
from witness.models.session import Model
from witness.options import Precision, Runtime
from witness.progress import Reporter

SHAPE = (1, 64, 80)

pytestmark = pytest.mark.skipif(
    not provider.says_assignment(), reason="plug-ins need onnxruntime 1.24 or newer"
)


@pytest.fixture
def subject(trunk) -> Subject:
    return Subject(trunk, "trunk", SHAPE, Model(trunk, "trunk"))


@pytest.fixture
def double(plug_in, tmp_path):
    """A machine with a card that MIGraphX does not take, and a double of the plug-in."""
    patched = plug_in(provider.WEBGPU_PLUGIN, gfx="gfx1030", supported="unlisted")
    patched.setenv("FAKE_EP", provider.WEBGPU)
    patched.setenv("FAKE_ARCH", "none")
    core = tmp_path / "onnxruntime.so"  # the double is linked with it; a space would end its name
    core.symlink_to(os.environ["FAKE_ORT"])
    patched.setenv("LD_PRELOAD", str(core))
    patched.setattr(webgpu, "_cards", lambda *_: ["0x1002-0x73bf"])
    return patched


@pytest.fixture
def notes() -> list[str]:
    return []


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, SHAPE).astype(np.float32)


def run(subject, notes, *, calls=1, **runtime):
    """The device that answered one block, and whether it did so rightly."""
    reporter = Reporter(note=notes.append, warn=notes.append)
    with webgpu.accelerate(subject, Runtime(**runtime), calls=calls, reporter=reporter) as model:
        if model is None:
            return None
        np.testing.assert_allclose(model(noise(1)), subject.cpu(noise(1)), atol=1e-4)
        return model.device


def slower(monkeypatch, gpu_ms: float, cpu_ms: float) -> None:
    """Let the two be as fast as that."""
    speed = Speed(0.1, gpu_ms, core_ms=cpu_ms, cpu_ms=cpu_ms, cpu_cores=1)
    monkeypatch.setattr(webgpu, "_measured", lambda *_: speed)


@pytest.mark.usefixtures("double")
def test_strict_gives_what_the_cpu_gives(subject, notes, log):
    assert run(subject, notes, device="webgpu") == "webgpu"
    assert notes == ["voices on the GPU through WebGPU"]
    assert log("COMPILE") == ["COMPILE 1x64x80"]
    assert len(log("RUN")) == 3  # which nodes are where, the canary, the block


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"FAKE_LEFT": "Relu"}, "does not take all of the model's nodes"),
        ({"FAKE_WRONG": "1"}, "the GPU gives other numbers than the CPU"),
        ({"FAKE_NDEV": "0"}, "does not start"),
        ({"FAKE_CRASH": "compile"}, "the GPU's process ended with"),
        ({"FAKE_EP": "AnotherExecutionProvider"}, "finds 0 cards"),
    ],
)
def test_nothing_runs_on_the_cpu_unasked(double, subject, notes, settings, complaint):
    for name, value in settings.items():
        double.setenv(name, value)
    with pytest.raises(DeviceError, match=rf"^WebGPU cannot run trunk: .*{complaint}"):
        run(subject, notes, device="webgpu")
    slower(double, 1, 1000)
    assert run(subject, notes, device="auto") is None
    assert notes[-1].startswith("voices on the CPU, because WebGPU failed: ")


@pytest.mark.usefixtures("double")
def test_what_it_cannot_do_is_refused(subject, notes):
    for model, runtime, complaint in (
        (None, {}, "stretches of speech of any length"),
        (subject, {"gpu": 1}, "chooses the card itself"),
    ):
        with pytest.raises(DeviceError, match=complaint):
            run(model, notes, device="webgpu", **runtime)
    half = webgpu.accelerate(subject, Runtime("webgpu"), calls=1, precision=Precision.FP16)
    with pytest.raises(DeviceError, match="computes in fp32"), half:
        pass
    half = webgpu.accelerate(subject, Runtime("auto"), calls=1, precision=Precision.FP16)
    with half as model:
        assert model is None


def test_without_the_plugin(double, subject, notes):
    double.setattr(provider, "plugin_library", lambda _: None)
    with pytest.raises(DeviceError, match=r"is missing; fix: pip install '.*\[webgpu\]'"):
        run(subject, notes, device="webgpu")
    assert run(subject, notes, device="auto") is None
    assert notes == []


@pytest.mark.usefixtures("double")
def test_it_is_measured_once_and_remembered(subject, notes, tmp_path):
    run(subject, notes, device="auto", calls=10)
    (row,) = json.loads((tmp_path / "cache" / "webgpu.json").read_bytes()).values()
    assert set(row) == {"load_s", "gpu_ms", "core_ms", "cpu_ms", "cpu_cores"}
    assert min(row.values()) > 0


@pytest.mark.parametrize(
    ("gpu_ms", "cpu_ms", "calls", "first", "second"),
    [
        (10, 100, 30, "webgpu", "webgpu"),
        (100, 10, 30, None, None),
        (10, 100, 1, "webgpu", None),  # it is open already; the next time it would not pay
    ],
)
def test_auto_takes_it_where_it_pays(double, subject, notes, gpu_ms, cpu_ms, calls, first, second, log):
    slower(double, gpu_ms, cpu_ms)
    settings = {"device": "auto", "calls": calls, "threads": 1}
    assert run(subject, notes, **settings) == first
    compiled = len(log("COMPILE"))
    assert run(subject, notes, **settings) == second
    assert len(log("COMPILE")) == compiled + (second is not None)
    assert ("saves no time here" in notes[-1]) == (second is None)


def test_fewer_cores_take_longer_but_no_longer_than_one_would():
    """Two cores of sixteen that share memory: measured on a Xeon, 187 ms, where 8 x 43.4 would be 347."""
    speed = Speed(1.3, 12.4, core_ms=374, cpu_ms=43.4, cpu_cores=16)
    assert [speed.on_cpu(cores) for cores in (1, 2, 16, 32)] == [374, 187, 43.4, 43.4]
    assert not Speed(1.3, 200, core_ms=374, cpu_ms=43.4, cpu_cores=16).saves(100, 2)


def test_the_cpu_is_not_asked_before_the_gpu_has_answered(double, subject, notes):
    asked = []

    def cpu(block):
        asked.append(block.shape)
        return subject.cpu(block)

    double.setenv("FAKE_NDEV", "0")
    with pytest.raises(DeviceError, match="does not start"):
        run(replace(subject, cpu=cpu), notes, device="webgpu")
    assert not asked


def test_a_gpu_that_dies_while_it_is_measured_is_not_remembered(double, subject, notes, tmp_path):
    double.setenv("FAKE_CRASH", "run 3")
    assert run(subject, notes, device="auto", calls=100) is None
    assert notes[-1].startswith("voices on the CPU, because WebGPU failed: the GPU's process ended while")
    assert not (tmp_path / "cache" / "webgpu.json").exists()


def test_auto_asks_for_no_gpu_that_the_kernel_does_not_show(double, subject, notes, log):
    double.setattr(webgpu, "_cards", list)
    assert run(subject, notes, device="auto", calls=100) is None
    assert not log("")


def test_cards_are_those_of_drm_else_of_the_pci_bus(tmp_path):
    def device(folder: str, **files) -> None:
        (tmp_path / folder).mkdir(parents=True)
        for name, content in files.items():
            (tmp_path / folder / name).write_text(content + "\n")

    assert webgpu._cards(tmp_path) == []
    bus = "sys/bus/pci/devices/0000:00:0"
    device(f"{bus}5.0", **{"class": "0x020000", "vendor": "0x1af4", "device": "0x1041"})  # a network card
    device(f"{bus}6.0", **{"class": "0x030200", "vendor": "0x10de", "device": "0x2335"})
    assert webgpu._cards(tmp_path) == ["0x10de-0x2335"]
    device("sys/class/drm/renderD128/device", vendor="0x1002", device="0x73bf")
    assert webgpu._cards(tmp_path) == ["0x1002-0x73bf"]


def test_a_crash_is_tried_once_more_then_the_cpu_goes_on(double, subject, notes, tmp_path):
    slower(double, 1, 1000)
    double.setenv("FAKE_CRASH", "run 3")
    double.setenv("FAKE_CRASH_ONCE", str(tmp_path / "crashed"))
    assert run(subject, notes, device="auto", calls=10) == "webgpu"
    double.delenv("FAKE_CRASH_ONCE")
    assert run(subject, notes, device="auto", calls=10) == "cpu"
    assert "WebGPU failed, so the CPU did the rest of the voices" in notes[-1]
    with pytest.raises(DeviceError, match="WebGPU failed: "):
        run(subject, notes, device="webgpu")


def test_a_damaged_memory_is_written_again(double, subject, notes, tmp_path):
    (tmp_path / "cache").mkdir()
    for damage in (b"{", b"[]", b'{"a": {"load_s": 1}}', b'{"a": 1}'):
        (tmp_path / "cache" / "webgpu.json").write_bytes(damage)
        slower(double, 1, 1000)
        assert run(subject, notes, device="auto", calls=10) == "webgpu"
        assert len(json.loads((tmp_path / "cache" / "webgpu.json").read_bytes())) == 1


def test_migraphx_leaves_such_a_card_to_it(double, subject, notes):
    reporter = Reporter(note=notes.append, warn=notes.append)
    with migraphx.accelerate(subject, Runtime("auto"), calls=9, reporter=reporter) as model:
        assert model is None
    assert notes == []
    double.setattr(provider, "plugin_library", lambda _: None)
    with migraphx.accelerate(subject, Runtime("auto"), calls=9, reporter=reporter) as model:
        assert model is None
    assert "gfx1030 is not on AMD's list" in notes[0]
    assert [card.supported for card in cards.cards()] == ["unlisted"]


def test_it_is_asked_where_a_listed_card_has_no_rocm(double, subject, notes):
    """As MIGraphX says; the voices are not on the CPU then."""
    double.setattr(cards, "cards", lambda: (a_card(),))
    slower(double, 1, 1000)
    reporter = Reporter(note=notes.append, warn=notes.append)
    for accelerate in (migraphx.accelerate, webgpu.accelerate):
        with accelerate(subject, Runtime("auto"), calls=30, reporter=reporter) as model:
            pass
    assert model is not None
    missing, through = notes
    assert missing.startswith(
        "voices not through MIGraphX: there is no compiled graph for Radeon RX 9070 yet"
    )
    assert through.startswith("voices on the GPU through WebGPU")


def test_the_real_plugin_on_a_driver_of_this_machine(subject, notes, tmp_path, monkeypatch):
    """Mesa's software driver will do; that of Debian 12 is refused by the plug-in."""
    pytest.importorskip("onnxruntime_ep_webgpu", reason="it comes with .[webgpu]")
    monkeypatch.setenv("WITNESS_CACHE", str(tmp_path))
    monkeypatch.setenv("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1")
    reporter = Reporter(note=notes.append, warn=notes.append)
    try:
        with webgpu.accelerate(subject, Runtime("webgpu"), calls=1, reporter=reporter) as model:
            assert model is not None
            for seed in range(2):
                answer, expected = model(noise(seed)), subject.cpu(noise(seed))
                assert embedding_cut.cosine(answer, expected) >= 0.9999
                assert np.linalg.norm(answer - expected) <= 1e-3 * np.linalg.norm(expected)
            assert model.device == "webgpu"
    except DeviceError as error:
        if os.environ.get("WITNESS_TEST_WEBGPU"):
            raise
        pytest.skip(f"no driver that the plug-in takes: {error}")
