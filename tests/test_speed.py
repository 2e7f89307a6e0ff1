"""The speed benchmark and the profile: what they count, not how fast this machine is."""

import json
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from click.testing import CliRunner

from conftest import CALL, in_process
from witness import tracing
from witness.bench import speed
from witness.cli.main import cli
from witness.diarization import embedding, fbank, segmentation
from witness.models.session import Model
from witness.options import Options, Runtime
from witness.progress import SILENT

SECONDS = 15
SEGMENTATION = {"onnxruntime: segmentation.onnx", "onnxruntime: back of segmentation.onnx"}  # whole, or cut


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("clip") / "clip with speech.wav"
    samples, rate = soundfile.read(CALL, dtype="float32")
    soundfile.write(path, samples[: SECONDS * rate], rate)
    return path


def witness(*args, cwd=None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "witness", *map(str, args)]
    return subprocess.run(command, capture_output=True, check=True, timeout=120, cwd=cwd)


@pytest.mark.slow
def test_what_is_counted(clip, monkeypatch):
    options = Options(models="builtin", whisper="none", offline=True)
    measured = speed.measure([clip], speed.SpeedPlan(options, Runtime(), 1, ("run", "profiled")), SILENT)
    monkeypatch.setattr(speed, "measure", lambda *_: measured)
    # The result is what stdout gets: a table, or with --json the document.
    table, text = (
        CliRunner().invoke(cli, ["bench", "speed", str(clip), *more]).stdout for more in ([], ["--json"])
    )
    document = json.loads(text)
    assert document["schema"] == "witness-speed/1"
    assert list(document) == [
        *("schema", "hardware", "versions", "source_sha256", "runtime", "options", "repeat", "load_before"),
        "files",
    ]
    (file,) = document["files"]
    assert list(file) == [
        *("name", "duration", "models", "device", "mode", "walls", "wall", "cpu", "times_real_time"),
        *("real_time_factor", "peak_memory_mb", "whisper_peak_memory_mb", "windows_per_second"),
        *("trunk_seconds_per_second", "outside_onnxruntime", "stages", "profiled"),
    ]
    assert set(file["walls"]) == {"run", "profiled"}
    assert file["duration"] == SECONDS
    assert file["windows_per_second"] == pytest.approx(
        len(segmentation.window_starts(SECONDS * 16000, 1.0)) / SECONDS, abs=1e-3
    )
    frames = -(-fbank.frame_count(SECONDS * 16000) // embedding.STRIDE)
    hop = embedding.TRUNK_SAMPLES / 16000
    trunk = sum(len(block.frames) for block in embedding.plan([np.arange(frames)])) * hop
    assert file["trunk_seconds_per_second"] == pytest.approx(trunk / SECONDS, rel=0.01)
    assert file["mode"] is None
    assert file["stages"]["transcription"] == {"wall": None, "cpu": None}
    for stage in ("segmentation", "embedding"):
        assert 0 < file["stages"][stage]["wall"] < file["wall"]
        assert file["stages"][stage]["cpu"] > 0
    assert 0 < file["outside_onnxruntime"] < 1
    assert file["peak_memory_mb"] > 20
    assert file["times_real_time"] == pytest.approx(1 / file["real_time_factor"], rel=0.01)
    assert file["profiled"]["wall"] > 0
    for row in (
        "segmentation",
        "embedding",
        "all",
        "times real time",
        "of trunk per second of audio",
        "of the wall time outside onnxruntime",
        "profiled",
    ):
        assert row in table


def test_serial_against_parallel():
    # 10 s of speakers could vanish behind 20 s of words; 8 s did.
    assert speed.serial(30.0, 20.0, 22.0) == speed.Serial(wall=30.0, saved=round(8 / 30, 4), overlap=0.8)
    assert speed.serial(30.0, 20.0, 30.0).overlap == 0


def test_time_in_which_a_model_runs_counts_once():
    times = ((1.0, 2.0), (2.0, 0.5), (2.5, 1.0), (5.0, 1.0))
    calls = [tracing.Call("m", (1,), begin, wall, cpu=0.0, thread=1) for begin, wall in times]
    assert speed.busy(calls) == pytest.approx(3.5)


@pytest.mark.slow
def test_a_profile_says_where_the_time_went_and_changes_nothing(clip, tmp_path):
    arguments = (clip, "-q", "--offline", "--models", "builtin", "--whisper", "none", "-f", "rttm")
    plain = in_process(tmp_path, *arguments).stdout
    assert plain.startswith(b"SPEAKER ")
    (tmp_path / "here").mkdir()
    assert witness(*arguments, "--profile", tmp_path / "profile.json", cwd=tmp_path / "here").stdout == plain
    assert not list(
        (tmp_path / "here").iterdir()
    )  # onnxruntime writes into the current folder if it is left to
    events = json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names[0] == "witness"
    assert any(name.startswith("onnxruntime: trunk of ") for name in names.values())
    stages = {event["name"]: event for event in events if event["ph"] == "X" and event["pid"] == 0}
    assert {"decode", "segmentation", "embedding", "clustering"} <= set(stages)
    operators = [event for event in events if event["pid"] and event.get("cat") == "Node"]
    assert len(operators) > 20
    # On one clock: what the segmentation model does while the stage is at work.
    (session,) = [number for number, name in names.items() if name in SEGMENTATION]
    stage = stages["segmentation"]
    runs = [event for event in events if event["pid"] == session and event["name"] == "model_run"]
    inside = [run for run in runs if stage["ts"] - 20_000 <= run["ts"] <= stage["ts"] + stage["dur"]]
    assert len(inside) == len(runs) - 1  # the first one tried the model


def test_nothing_is_noted_unless_somebody_asks():
    model = Model(str(segmentation_file()), "segmentation")
    assert tracing.current() is None
    assert model._trace is None
    with tracing.recording() as trace:
        assert tracing.current() is trace
        with tracing.Stopwatch().stage("work"):
            pass
    assert tracing.current() is None
    assert [span.stage for span in trace.spans] == ["work"]


def segmentation_file():
    from witness.models.store import diarization_models

    return diarization_models("builtin", offline=True).segmentation.path
