"""The GPU path from end to end: the real provider, on doubles of ROCm's libraries that compute true numbers.

The second onnxruntime gets its graphs from the provider, which may have joined some operators in its own way,
so numbers agree to some digits, not always to the last bit.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from conftest import CALL, a_card, fake_card, in_process
from test_embedding import model_file, voice_model
from witness import Options, diarize
from witness.cli import main
from witness.diarization import embedding, embedding_cut
from witness.errors import DeviceError
from witness.formats import writers
from witness.gpu import cards, graph_cache, migraphx, rocm
from witness.gpu.migraphx import Subject
from witness.gpu.process import GpuProcess
from witness.gpu.rocm import Provider
from witness.gpu.strict import records_assignment
from witness.models.session import Model, on_cores
from witness.options import Runtime
from witness.progress import Reporter
from witness.schema import Segmentation

SHAPE = (1, 64, 80)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """A model set with a small voice model, and a segmentation that hears two speakers in turn, always."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    folder = tmp_path_factory.mktemp("models")
    voice_model(folder / "embedding.onnx")
    (folder / "clustering.json").write_text('{"linkage": "centroid", "threshold": 0.7}')
    scores = np.full((1, 589, 7), -9, np.float32)
    scores[0, :, 1] = scores[0, 300:, 2] = 0
    scores[0, 300:, 1] = -9
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[2], keepdims=1),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "scores"], ["out"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 160000]),
        helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 589, 7]),
    ]
    weights = [numpy_helper.from_array(scores, "scores"), numpy_helper.from_array(np.float32([0]), "zero")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "segmentation.onnx")
    return folder


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> Path:
    """28 s of the call: one full block and a rest."""
    samples, rate = soundfile.read(CALL, dtype="float32")
    path = tmp_path_factory.mktemp("recording") / "call.wav"
    soundfile.write(path, samples[: 28 * rate], rate)
    return path


@pytest.fixture(scope="module")
def trunk(models) -> bytes:
    return embedding_cut.cut(model_file(models / "embedding.onnx"))[0]


@pytest.fixture(scope="module")
def compiled(doubles, models, tmp_path_factory) -> Path:
    """A cache with the one program that `witness gpu warm` makes for these models."""
    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        fake_card(patch, doubles)
        patch.setenv("WITNESS_CACHE", str(folder))
        done = in_process(folder, "gpu", "warm", "--models", models)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def warmed(card, compiled, tmp_path):
    """`card`, with such a cache of this test's own."""
    shutil.copytree(compiled, tmp_path / "cache")
    return card


@pytest.fixture(scope="module")
def expected(models, recording) -> list:
    """The turns that the CPU gives."""
    options = Options(models=str(models), offline=True)
    return json.loads(writers.content(diarize(recording, options, Runtime("cpu")), "json"))["turns"]


@pytest.fixture
def witness(capfd):
    """Run the command line in this process: exit code, stdout, stderr, what children print among them."""

    def run(*args: str, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as stop:
            main.main(list(args))
        out, err = capfd.readouterr()
        assert stop.value.code == code, err
        return out, err

    return run


@pytest.fixture
def transcribe(witness, models, recording):
    def run(*args: str, code: int = 0) -> tuple[str, str]:
        basics = ("--models", str(models), "--whisper", "none", "--offline", "-f", "json")
        return witness("run", str(recording), *basics, *args, code=code)

    return run


@pytest.fixture
def warm(witness, models):
    return lambda *args, code=0: witness("gpu", "warm", "--models", str(models), *args, code=code)


def a_target(trunk: bytes, shape=SHAPE) -> migraphx.CompileTarget:
    subject = Subject(trunk, "trunk", shape, Model(trunk, "trunk"))
    return migraphx.CompileTarget(rocm.find_stack(rocm.choose_card(None)), subject)


def turns(out: str) -> list:
    return json.loads(out)["turns"]


def pays(*, saved_ms: float = 1e6) -> None:
    """Let the warm-up have measured that the GPU saves so much on each block."""
    (place,) = graph_cache.root().rglob("manifest.json")
    document = json.loads(place.read_text())
    on_cpu = document["measured"]["gpu_ms"] + saved_ms
    document["measured"] |= {"core_ms": on_cpu, "cpu_ms": on_cpu, "cpu_cores": 1}
    place.write_text(json.dumps(document))


@pytest.mark.usefixtures("card")
def test_strict_compiles_once_and_gives_what_the_cpu_gives(transcribe, models, expected, log):
    on_cpu, quiet = transcribe("--device", "cpu")
    assert "MIGraphX" not in quiet
    cold, notes = transcribe("--device", "migraphx")
    model = f"{models.name}/embedding.onnx"
    assert f"note: compiling trunk of {model} for Radeon RX 9070 (gfx1201), for 600 s" in notes
    assert "note: voices on Radeon RX 9070 (gfx1201) through MIGraphX: 1 block" in notes
    warm, notes = transcribe("--device", "migraphx")
    assert "compiling" not in notes
    assert log("COMPILE") == ["COMPILE 1x2640x80"]
    assert turns(cold) == turns(warm) == turns(on_cpu) == expected
    devices = [json.loads(out)["device"]["embedding"] for out in (on_cpu, cold, warm)]
    assert devices == ["cpu", "migraphx", "migraphx"]
    assert json.loads(cold)["warnings"] == json.loads(on_cpu)["warnings"]


def test_auto_never_compiles_and_says_why(card, transcribe, warm, log):
    out, err = transcribe()
    assert json.loads(out)["device"]["embedding"] == "cpu"
    assert err.count("note: voices on the CPU: there is no compiled graph for Radeon RX 9070 yet") == 1
    assert not log("")
    warm()
    log_after = len(log("COMPILE"))
    out, err = transcribe("--precision", "fp16")
    assert "none of the compiled graphs is for this model" in err
    pays(saved_ms=-1)
    out, err = transcribe()
    assert "note: voices on the CPU: that is faster on this machine (1 block at" in err
    pays()
    out, err = transcribe()
    assert json.loads(out)["device"]["embedding"] == "migraphx"
    assert "note: voices on Radeon RX 9070 (gfx1201) through MIGraphX: 1 block at" in err
    (program,) = graph_cache.root().rglob("*.mxr")
    program.chmod(0o644)
    program.write_bytes(b"damaged")
    out, err = transcribe()
    assert json.loads(out)["device"]["embedding"] == "cpu"
    assert "cannot be used: the program is damaged" in err
    fake_card(card, Path(os.environ["LD_LIBRARY_PATH"]), supported="unlisted")
    assert "note: voices on the CPU: gfx1201 is not on AMD's list" in transcribe()[1]
    assert len(log("COMPILE")) == log_after


def test_no_card_and_nothing_asked_for_nothing_is_said(transcribe, monkeypatch):
    monkeypatch.setattr(cards, "list_cards", lambda: ())
    monkeypatch.setenv("ORT_MIGRAPHX_FP16_ENABLE", "1")
    out, err = transcribe()
    assert json.loads(out)["device"]["embedding"] == "cpu"
    assert err == ""


def refused(result: tuple[str, str]) -> str:
    """The one line on stderr, but for notes."""
    out, err = result
    assert out == ""
    (line,) = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert "--device cpu" in line or "fix: " in line
    return line


def test_no_card_is_exit_6(transcribe, monkeypatch):
    monkeypatch.setattr(cards, "list_cards", lambda: ())
    line = refused(transcribe("--device", "migraphx", code=6))
    assert line.startswith("witness: no AMD GPU is visible")


@pytest.mark.usefixtures("card")
def test_a_card_that_is_not_there_is_exit_6(transcribe):
    _, err = transcribe("--device", "migraphx", "--gpu", "3", code=6)
    assert "there is no GPU 3; there is 0 (Radeon RX 9070); --gpu chooses one" in err


@pytest.mark.skipif(Path("/opt/rocm").exists(), reason="there is a real ROCm here")
def test_no_rocm_is_exit_6(card, transcribe):
    card.delenv("LD_LIBRARY_PATH")
    line = refused(transcribe("--device", "migraphx", code=6))
    assert "libamdhip64.so.7 and libmigraphx_c.so.3 cannot be found" in line


def test_a_driver_without_device_is_exit_6(card, transcribe):
    card.setenv("FAKE_NDEV", "0")
    assert "HIP failure 100" in refused(transcribe("--device", "migraphx", code=6))


def test_a_gpu_that_computes_nonsense_is_refused_and_nothing_is_kept(card, transcribe):
    card.setenv("FAKE_WRONG", "1")
    line = refused(transcribe("--device", "migraphx", code=6))
    assert "the GPU gives other numbers than the CPU (cosine" in line
    assert not list(graph_cache.root().rglob("*.mxr"))


def test_a_gpu_that_begins_to_compute_nonsense_is_not_used(warmed, transcribe):
    """A driver update, say: the canary sings at every start."""
    pays()
    warmed.setenv("FAKE_WRONG", "1")
    out, err = transcribe()
    transcript = json.loads(out)
    assert transcript["device"]["embedding"] == "cpu"
    (warning,) = [line for line in transcript["warnings"] if "MIGraphX" in line]
    assert "other numbers than the CPU" in warning
    assert warning in err
    assert "other numbers" in refused(transcribe("--device", "migraphx", code=6))


@pytest.mark.parametrize("device", ["auto", "migraphx"])
def test_a_crash_is_tried_once_more(warmed, transcribe, expected, tmp_path, device):
    pays()
    warmed.setenv("FAKE_CRASH", "run 2")  # the first is the canary
    warmed.setenv("FAKE_CRASH_ONCE", str(tmp_path / "crashed"))
    out, err = transcribe("--device", device)
    assert (tmp_path / "crashed").exists()
    assert json.loads(out)["device"]["embedding"] == "migraphx"
    assert turns(out) == expected
    assert "failed" not in err


def test_two_crashes_are_the_cpu_or_exit_6(warmed, transcribe, expected):
    pays()
    warmed.setenv(
        "FAKE_CRASH", "run 2" if records_assignment() else "run 3"
    )  # before 1.24 there is one run more
    out, err = transcribe()
    transcript = json.loads(out)
    assert transcript["device"]["embedding"] == "cpu"
    assert transcript["turns"] == expected
    (warning,) = [line for line in transcript["warnings"] if "MIGraphX" in line]
    assert "SIGABRT (free(): invalid pointer)" in warning
    assert "so the CPU did the rest" in warning
    assert warning in err
    assert "SIGABRT" in refused(transcribe("--device", "migraphx", code=6))


@pytest.mark.parametrize("when", ["compile", "load", "run 1"])
def test_a_crash_while_it_opens(card, transcribe, tmp_path, when):
    card.setenv("FAKE_CRASH", when)
    assert "SIGABRT" in refused(transcribe("--device", "migraphx", code=6))
    assert not list(graph_cache.root().rglob("*.mxr"))
    card.setenv("FAKE_CRASH_ONCE", str(tmp_path / "crashed"))
    assert json.loads(transcribe("--device", "migraphx")[0])["device"]["embedding"] == "migraphx"


def library(path: Path, source: Path, *options: str) -> None:
    subprocess.run(["gcc", "-shared", "-fPIC", *options, "-o", path, source], check=True)  # noqa: S607


def test_a_process_whose_work_is_done_cannot_abort(warmed, transcribe, tmp_path):
    source = tmp_path / "abort.c"
    source.write_text("#include <stdlib.h>\nvoid _exit(int code) { (void)code; abort(); }\n")
    library(tmp_path / "abort.so", source)
    warmed.setenv("LD_PRELOAD", str(tmp_path / "abort.so"))  # os._exit of the child ends in an abort
    out, err = transcribe("--device", "migraphx")
    assert json.loads(out)["device"]["embedding"] == "migraphx"
    assert not any("MIGraphX" in line for line in json.loads(out)["warnings"])
    assert "SIGABRT" not in err


def test_a_compilation_that_hangs_is_stopped(card, warm, log):
    card.setenv("FAKE_COMPILE_MS", "600000")
    begun = time.monotonic()
    line = refused(warm("--limit", "10", code=6))
    assert time.monotonic() - begun < 60
    assert "no answer within 10 s" in line
    assert len(log("COMPILE")) == 1
    assert not [path for path in graph_cache.root().iterdir() if path.is_dir()]


def running(marker: str) -> int:
    """How many processes have it in their environment."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # not ours, or gone
            count += marker.encode() in path.read_bytes()
    return count


def test_a_child_that_compiles_ends_with_its_parent(card, trunk, tmp_path, log):
    """By a signal from the kernel: while onnxruntime makes a session, no Python of the child runs."""
    card.setenv("FAKE_COMPILE_MS", "600000")
    card.setenv("WITNESS_TEST", marker := f"orphan-{os.getpid()}")
    (tmp_path / "trunk.onnx").write_bytes(trunk)
    code = (
        "import sys; from pathlib import Path; from witness.gpu.process import GpuProcess\n"
        "source = Path(sys.argv[1]).read_bytes()\n"
        "from witness.gpu.rocm import find_provider, provider_options\n"
        "options = provider_options(find_provider(), sys.argv[2], gpu=0, fp16=False, exhaustive=False)\n"
        "request = {'do': 'open', 'name': 'x', 'shape': [1, 64, 80], 'libraries': [], 'provider': options}\n"
        "GpuProcess().request(request, source, limit=600)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "trunk.onnx"), str(tmp_path)]
    parent = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    while not log("COMPILE") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running(marker) == 2
    parent.kill()
    parent.wait()
    while running(marker) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not running(marker)


def test_a_library_in_the_working_folder_is_not_loaded(card, transcribe, doubles, tmp_path):
    """The provider's RUNPATH ends in an empty element, which the loader takes for the current folder."""
    marker, source = tmp_path / "loaded", tmp_path / "planted.c"
    body = f'fclose(fopen("{marker}", "w"));'
    source.write_text(f"#include <stdio.h>\n__attribute__((constructor)) void f(void) {{ {body} }}\n")
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("libmigraphx_c.so.3", "libamdhip64.so.7"):
        library(folder / name, source, f"-Wl,-soname,{name}")
    card.chdir(folder)
    if not Path("/opt/rocm").exists():
        card.delenv("LD_LIBRARY_PATH")
        assert "libamdhip64.so.7 and libmigraphx_c.so.3 cannot be found" in refused(
            transcribe("--device", "migraphx", code=6)
        )
    for variable in (str(doubles), f"{doubles}:", f":{doubles}"):
        card.setenv("LD_LIBRARY_PATH", variable)
        transcribe("--device", "migraphx")
    assert not marker.exists()


@pytest.mark.usefixtures("card")
def test_a_library_from_elsewhere_is_refused(trunk, tmp_path):
    """Whatever the loader was told, what it did load is looked up in the end."""
    source = tmp_path / "empty.c"
    source.touch()
    nameless = tmp_path / "libmigraphx_c.so.3"  # so the provider does not take it for the one it needs
    library(nameless, source)
    target = a_target(trunk)
    process = GpuProcess()
    with pytest.raises(DeviceError, match="which is not this ROCm's"):
        process.request(
            {**target.request(tmp_path), "libraries": [str(nameless)]}, target.subject.source, limit=60
        )
    process.kill()


def test_variables_that_would_change_the_program_do_not(card, transcribe, tmp_path):
    card.setenv("ORT_MIGRAPHX_MODEL_CACHE_PATH", str(tmp_path / "elsewhere"))
    card.setenv("ORT_MIGRAPHX_FP16_ENABLE", "1")
    card.setenv("MIGRAPHX_DISABLE_MLIR", "1")
    _, err = transcribe("--device", "migraphx")
    names = "MIGRAPHX_DISABLE_MLIR, ORT_MIGRAPHX_FP16_ENABLE, ORT_MIGRAPHX_MODEL_CACHE_PATH"
    assert err.count(f"note: ignored, because they change what MIGraphX runs: {names}") == 1
    (graph,) = [graph_cache.read(folder) for folder in graph_cache.folders()]
    assert graph.key.precision == "fp32"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.usefixtures("warmed")
def test_fp16_is_another_program_and_says_how_close_it_is(transcribe):
    out, err = transcribe("--device", "migraphx", "--precision", "fp16")
    assert "through MIGraphX in fp16 (cosine 0." in err or "through MIGraphX in fp16 (cosine 1." in err
    assert {graph_cache.read(folder).key.precision for folder in graph_cache.folders()} == {"fp32", "fp16"}
    assert json.loads(out)["device"]["embedding"] == "migraphx"


@pytest.mark.usefixtures("card")
def test_an_operator_that_migraphx_does_not_have(witness, tmp_path):
    path = partial_model(tmp_path / "partial.onnx")
    _, err = witness("gpu", "warm", "--model", str(path), "--shape", "x=1x40x80", code=6)
    card = "Radeon RX 9070 (gfx1201)"
    assert err.splitlines()[-1] == (
        f"witness: MIGraphX cannot run partial.onnx on {card}: it does not take all of the model's nodes; "
        "`witness probe` says which; `witness doctor` looks for the reason, --device cpu does without the GPU"
    )


def partial_model(path: Path) -> Path:
    """Hardmax is not on the provider's list."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Hardmax", ["y"], ["z"], axis=-1),
        helper.make_node("MatMul", ["z", "w"], ["out"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", "T", 80]) for name in ("x", "out")]
    weights = [numpy_helper.from_array(np.eye(80, dtype=np.float32), "w")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.usefixtures("card")
def test_ten_minutes_are_at_most_45_calls_of_one_shape(trunk, models, log):
    """What runs on the GPU in a whole recording, counted where it runs."""
    voice = embedding.load(model_file(models / "embedding.onnx"))
    samples = np.random.default_rng(0).normal(0, 0.1, 600 * 16000).astype(np.float32)
    windows = Segmentation.regular(np.ones((591, 589, 3), np.bool_))
    windows.active[:, :, 1:] = False
    expected = embedding.embed(samples, [windows], voice)
    runtime, calls = Runtime("migraphx"), embedding.full_blocks(len(samples))
    subject = Subject(trunk, "trunk", embedding.BLOCK_SHAPE, voice.trunk)
    with migraphx.accelerate(subject, runtime, calls=calls) as fast:
        before = len(log("RUN"))
        found = embedding.embed(samples, [windows], replace(voice, block_trunk=fast))
    runs = log("RUN")
    assert set(runs) == {"RUN 1x2640x80"}
    assert len(runs) - before == fast.on_gpu == 24 <= 45
    assert np.allclose(expected, found, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.usefixtures("card")
def test_a_short_recording_runs_on_the_cpu_and_says_so(witness, models, tmp_path):
    samples, rate = soundfile.read(CALL, dtype="float32")
    soundfile.write(tmp_path / "short.wav", samples[: 10 * rate], rate)
    args = ("--models", str(models), "--whisper", "none", "--offline", "--device", "migraphx", "-f", "json")
    out, err = witness("run", str(tmp_path / "short.wav"), *args)
    assert json.loads(out)["device"]["embedding"] == "cpu"
    assert "MIGraphX: 0 blocks" in err


def test_several_cards(monkeypatch):
    apu = a_card(index=0, name="APU", gfx="gfx1151", integrated=True, memory_total=96 << 30)
    small, large = a_card(index=1, name="small", memory_total=8 << 30), a_card(index=2)
    old = a_card(index=3, gfx="gfx1030", memory_total=24 << 30, supported="unlisted")
    hidden = a_card(index=-1, memory_total=24 << 30)
    monkeypatch.setattr(cards, "list_cards", lambda: (apu, small, large, old, hidden))
    assert rocm.choose_card(None) == large
    assert rocm.choose_card(0) == apu
    with pytest.raises(DeviceError, match=r"no GPU 4; there is 0 \(APU\), 1 \(small\)"):
        rocm.choose_card(4)
    monkeypatch.setattr(cards, "list_cards", lambda: (hidden,))
    with pytest.raises(DeviceError, match="no AMD GPU is visible"):
        rocm.choose_card(None)
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "10.3.0")
    assert rocm.Stack(a_card(gfx="gfx1031"), "", "", (), Provider(Path("/nowhere"))).gfx == "gfx1030"


def test_interrupted_it_leaves_no_child(card, models, log):
    card.setenv("FAKE_COMPILE_MS", "600000")
    card.setenv("WITNESS_TEST", marker := f"interrupt-{os.getpid()}")
    # sysfs cannot be faked for a process of its own, so a line of Python stands in for `witness`.
    code = (
        "import sys; from conftest import a_card\n"
        "from witness.gpu import cards; from witness.cli import main as cli\n"
        "cards.list_cards = lambda: (a_card(),)\n"
        "cli.main(sys.argv[1:])"
    )
    args = ["gpu", "warm", "--models", str(models)]
    here = Path(__file__).parent
    command = [sys.executable, "-c", code, *args]
    process = subprocess.Popen(command, cwd=here, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not log("COMPILE") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running(marker) == 2
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("witness: interrupted")
    assert not running(marker)


@pytest.mark.usefixtures("card")
def test_the_same_on_the_gpu_from_many_threads(trunk):
    target, cpu = a_target(trunk), Model(trunk, "trunk")
    inputs = [np.random.default_rng(n).normal(0, 1, SHAPE).astype(np.float32) for n in range(20)]
    notes: list[str] = []
    reporter = Reporter(note=notes.append)
    with (
        migraphx._start(target, migraphx.warm(target), "why", strict=True, reporter=reporter) as fast,
        on_cores(4) as mapped,
    ):
        for feats, answer in zip(inputs, mapped(fast, inputs), strict=True):
            assert np.allclose(answer, cpu(feats), rtol=1e-5, atol=1e-6)
    assert [note.endswith("through MIGraphX: why") for note in notes] == [True]  # nothing of its end
