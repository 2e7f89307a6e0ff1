"""The contention table, on whisper's model of tones and a card that is a folder."""

import json
import shutil
from dataclasses import replace

import pytest
from click.testing import CliRunner

import ct2
import ggml
from conftest import CALL, DATA
from recordings import make
from witness.bench import contention
from witness.bench.contention import Contention, Run
from witness.cli.main import cli
from witness.errors import UsageError
from witness.gpu import cards
from witness.models import engines
from witness.options import Options, Runtime
from witness.progress import Reporter

MIB = 1 << 20


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    return ggml.write(tmp_path_factory.mktemp("model") / "tones.bin")


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return str(make(tmp_path_factory.mktemp("recording"), 1)[0])


@pytest.mark.slow
def test_each_engine_alone_and_both(whisper, recording, tmp_path, monkeypatch):
    shutil.copytree(DATA / "gpus" / "rx9070", tmp_path, dirs_exist_ok=True)
    (card,) = cards.list_cards(tmp_path, {})
    monkeypatch.setattr(cards, "list_cards", lambda: (card,))
    device = tmp_path / "sys/class/drm/renderD128/device"

    def grow(_stage: str, done: float, _total: float) -> None:  # as another program would use the card
        (device / "gpu_busy_percent").write_text(f"{10 + done:.0f}")
        (device / "mem_info_vram_used").write_text(f"{int(done + 1) * 100 * MIB}")

    options = Options(models="builtin", whisper=str(whisper), language="en", offline=True)
    found = contention.measure(recording, options, Runtime(device="cpu"), 1, reporter=Reporter(grow))
    diarizer, words, both = found.runs
    assert [run.name for run in found.runs] == list(contention.RUNS)
    assert (diarizer.whisper, words.diarizer) == (None, None)
    assert diarizer.diarizer > 0
    assert words.whisper > 0
    assert both.diarizer > 0
    assert both.whisper > 0
    assert all(run.wall >= (run.diarizer or run.whisper) for run in found.runs)
    assert [run.busy for run in found.runs] == [10, 11, 12]
    assert [run.memory for run in found.runs] == [100 * MIB, 200 * MIB, 300 * MIB]
    assert found.card == "Radeon RX 9070 (gfx1201)"
    assert found.device == {"embedding": "cpu", "whisper": "cpu"}


def test_without_a_recognizer():
    with pytest.raises(UsageError, match="--whisper"):
        contention.measure(str(CALL), Options(models="builtin", whisper="none"), Runtime(), 1)


RUNS = (
    Run("diarizer", 5.0, 4.0, None, 20.0, 10**9),
    Run("whisper", 9.0, None, 8.0, 80.0, 3 * 10**9),
    Run("both", 12.0, 6.0, 10.0, 90.0, 4 * 10**9),
    Run("diarizer", 5.2, 4.2, None, 22.0, 10**9),
    Run("whisper", 9.2, None, 8.2, 82.0, 3 * 10**9),
    Run("both", 12.2, 6.3, 10.25, 92.0, 4 * 10**9),
)
FOUND = Contention(
    60.0, "transcribe-cpp", {"embedding": "migraphx", "whisper": "vulkan: A Card"}, "A Card (gfx1201)", RUNS
)


def test_the_table():
    assert contention.to_text(FOUND).splitlines() == [
        "60.0 s of audio, medians of 2 rounds; voice model on migraphx, transcribe-cpp on vulkan: A Card; "
        "card: A Card (gfx1201)",
        "          diarizer  whisper     wall  GPU busy  GPU memory",
        "diarizer    4.10 s        -   5.10 s      21 %     1.00 GB",
        " whisper         -   8.10 s   9.10 s      81 %     3.00 GB",
        "    both    6.15 s  10.12 s  12.10 s      91 %     4.00 GB",
        "beside the other, diarizer takes 1.50 times as long",
        "beside the other, whisper takes 1.25 times as long",
        "one after the other 14.20 s, both at the same time 12.10 s",
    ]


def test_json_and_a_machine_without_a_card():
    document = json.loads(contention.to_json(FOUND))
    assert document["schema"] == "witness-contention/1"
    assert document["slowdown"] == {"diarizer": pytest.approx(1.5), "whisper": pytest.approx(1.25)}
    assert len(document["runs"]) == 6
    bare = replace(FOUND, card=None, runs=tuple(replace(run, busy=None, memory=None) for run in RUNS))
    assert bare.median("both", "busy") is None
    assert "card: none" in contention.to_text(bare)


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "write"), [("whisper.cpp", ggml.write), ("ctranslate2", ct2.write)])
def test_the_command_with_any_recognizer(tmp_path, recording, engine, write):
    if engine not in engines.installed():
        pytest.skip(f"{engine} is not installed")
    model = write(tmp_path / "tones.bin")
    arguments = ["bench", "contention", recording, "--models", "builtin", "--offline"]
    arguments += ["--recognizer", engine, "--whisper", str(model)]
    result = CliRunner().invoke(cli, [*arguments, "--device", "cpu", "--rounds", "1", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["recognizer"] == engine
    assert [run["name"] for run in found["runs"]] == ["diarizer", "whisper", "both"]
